"""Compares reports of a replay with the list of scenarios that are known to pass.

  compare.py [--update] [--some] [--again FILE] LIST REPORT...

With --again the status is 3 when all that fail begin to do so at a version, and the file has their names, to be replayed
again. Versions depend on time, upstream's as well: a second that passes before an update with an empty list in place of
none gives its manager a later time, and each write of the server itself moves the version of lists.
With --some the reports cover a part of the scenarios: what is listed and not there is not missed.
With several reports a scenario passes when it passes in all of them.
Ends with status 1 when a listed scenario does not pass.
"""
import argparse
import json
import sys

HEADER = """\
# Scenarios of recorded upstream answers that pass, one a line. The build fails when one of them fails.
# Rewritten by: tests/replay/run --update
"""


def listed(path):
    try:
        with open(path) as file:
            return [line.strip() for line in file if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        return []


def is_due_to_time(scenario):
    return scenario["failures"][0]["differences"][0]["at"].endswith("/metadata/resourceVersion")


def show(scenario):
    print("  %s: %d of %d steps" % (scenario["name"], scenario["passed"], scenario["total"]))
    for failure in scenario["failures"][:2]:
        for difference in failure["differences"][:3]:
            print("    step %s %s: %s, expected %s, got %s" % (
                failure["step"], difference["at"], difference["why"],
                json.dumps(difference["expected"])[:160], json.dumps(difference["got"])[:160]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--some", action="store_true")
    parser.add_argument("--again")
    parser.add_argument("list")
    parser.add_argument("reports", nargs="+")
    options = parser.parse_args()
    known, scenarios = listed(options.list), {}
    for path in options.reports:
        with open(path) as file:
            for scenario in json.load(file)["scenarios"]:
                if scenario["name"] not in scenarios or scenario["failures"]:
                    scenarios[scenario["name"]] = scenario
    passing = sorted(name for name, scenario in scenarios.items() if not scenario["failures"])

    broken = [name for name in known if name in scenarios and scenarios[name]["failures"]]
    missing = [name for name in known if name not in scenarios and not options.some]
    fresh = sorted(set(passing) - set(known))
    if broken:
        print("\nscenarios that passed before and fail now:")
        for name in broken:
            show(scenarios[name])
    if missing:
        print("\nlisted, but not recorded (any more):")
        print("\n".join("  " + name for name in missing))
    if options.update:
        with open(options.list, "w") as file:
            file.write(HEADER + "".join(name + "\n" for name in passing))
        print("\n%s: %d scenarios, %d new, %d gone" % (
            options.list, len(passing), len(fresh), len(set(known) - set(passing))))
        return 0
    if fresh:
        print("\npassing, but not listed yet (tests/replay/run --update adds them):")
        print("\n".join("  " + name for name in fresh))
    if options.again and broken and not missing and all(is_due_to_time(scenarios[name]) for name in broken):
        with open(options.again, "w") as file:
            file.write("".join(name + "\n" for name in broken))
        return 3
    good = len(known) - len(broken) - len(missing)
    if options.some:
        good = len(set(known) & set(passing))
    print("\n%d of %d recorded scenarios pass; of those listed:" % (len(passing), len(scenarios)))
    print("%d passed, %d failed" % (good, len(broken) + len(missing)))
    return 1 if broken or missing else 0


if __name__ == "__main__":
    sys.exit(main())
