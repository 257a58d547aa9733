"""Reads JUnit reports of upstream's suite, prints the results of conformance tests, and keeps docs/conformance.md.

    results.py [--update PAGE] REPORT...

The page has a row for each conformance test. A report changes the results of the tests that it ran; reasons, which are
written by hand, stay until their test passes.
"""
import re
import sys
import xml.etree.ElementTree as tree

ROW = re.compile(r"^\| (?P<name>\[sig-.*?) \| (?P<result>passed|failed|skipped|not run) \| (?P<reason>.*?) ?\|$")
SUMMARY = re.compile(r"^\d+ of \d+ pass.*$", re.M)


def results_of(path):
    """The result and the message of each conformance test in a report; those that were not selected are 'not run'."""
    found = {}
    for case in tree.parse(path).getroot().iter("testcase"):
        name = case.get("name", "").removeprefix("[It] ")
        if "[Conformance]" not in name:
            continue
        state, message = case.get("status", ""), ""
        failure = next((part for kind in ("failure", "error") for part in case.iter(kind)), None)
        if failure is not None:
            result, message = "failed", failure.get("message") or ""
        elif state == "passed":
            result = "passed"
        else:
            skipped = case.find("skipped")
            reason = "" if skipped is None else skipped.get("message", "")
            # a test that its filter left out has no reason; one that skips itself says why
            result = "skipped" if reason.startswith("skipped - ") else "not run"
            message = reason.removeprefix("skipped - ")
        found[name] = (result, " ".join(message.split()))
    return found


def read_page(path):
    rows = {}
    try:
        with open(path) as page:
            text = page.read()
    except FileNotFoundError:
        return "", rows
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            rows[match["name"].replace("\\|", "|")] = (match["result"], match["reason"])
    return text, rows


def write_page(path, text, rows):
    passed = sum(result == "passed" for result, _ in rows.values())
    lines = ["| test | last result | reason |", "|---|---|---|"]
    for name, (result, reason) in sorted(rows.items()):
        lines.append("| {} | {} | {} |".format(name.replace("|", "\\|"), result, reason).replace("|  |", "| |"))
    head = text.split("| test | last result")[0].rstrip()
    head = SUMMARY.sub(f"{passed} of {len(rows)} pass.", head, count=1)
    with open(path, "w") as page:
        page.write(head + "\n\n" + "\n".join(lines) + "\n")


def main(arguments):
    page = None
    if arguments[:1] == ["--update"]:
        page, arguments = arguments[1], arguments[2:]
    if not arguments:
        sys.exit(__doc__)
    text, rows = read_page(page) if page else ("", {})
    for path in arguments:
        for name, (result, message) in sorted(results_of(path).items()):
            if result == "not run":
                rows.setdefault(name, (result, ""))
                continue
            reason = rows.get(name, ("", ""))[1]
            rows[name] = (result, "" if result == "passed" else message if result == "skipped" else reason)
            print(f"{result}: {name}" + (f"\n    {message[:400]}" if result != "passed" else ""))
    if page:
        write_page(page, text, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
