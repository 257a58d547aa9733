"""Runs the examples of documents, so that what a reader copies works.

A comment before a fenced block says what it is:

    <!-- from FILE -->         the block is a part of this file of the repository, which other checks run
    <!-- file NAME -->         the block is a file that the commands of the section read
    <!-- run SECTION -->       the block is run by bash, in a folder of its own; blocks of one section are one script
    <!-- run SECTION in DIR --> the same in a copy of a folder of the repository

Usage: documents.py REPOSITORY PINTLE
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

DOCUMENTS = ["docs/testing.md", *(f"clients/{name}/README.md" for name in ("go", "python", "javascript", "github-action"))]
BLOCK = re.compile(r"^<!-- (from|file|run) ([^ ]+)(?: in ([^ ]+))? -->\n```[a-z]*\n(.*?)^```$", re.M | re.S)
# what a section may take; tests of a debug build on a busy machine included
LIMIT_SECONDS = 400
# background programs of a section do not outlive it
END = "trap 'jobs -p | xargs -r kill 2>/dev/null || true; wait' EXIT\n"
TOOLS = {"kubectl": r"\bkubectl\b", "go": r"\bgo test\b"}


def main(repository: pathlib.Path, program: pathlib.Path) -> int:
    problems, sections, seen = [], {}, 0
    for document in DOCUMENTS:
        text = (repository / document).read_text()
        for kind, name, folder, body in BLOCK.findall(text):
            seen += 1
            if kind == "from" and body not in (repository / name).read_text():
                problems.append(f"{document}: a block is no part of {name}")
            if kind == "file":
                # for the section that follows
                sections.setdefault(None, []).append((name, body))
            if kind == "run":
                section = sections.setdefault((document, name), {"files": [], "folder": folder, "script": ""})
                section["files"] += sections.pop(None, [])
                section["script"] += body
        # a comment that is not followed by a block would be a check that checks nothing
        if len(re.findall(r"^<!-- (?:from|file|run) ", text, re.M)) != len(BLOCK.findall(text)):
            problems.append(f"{document}: a comment is not followed by a block")
    if sections.pop(None, None):
        problems.append("a file has no section that uses it")
    for (document, name), section in sections.items():
        problem = run(repository, program, f"{document}: {name}", section)
        problems += [f"{document}: {name}: {problem}"] if problem else []
    print("\n".join(problems) or f"{seen} examples are right")
    return 1 if problems or not seen else 0


def run(repository: pathlib.Path, program: pathlib.Path, title: str, section: dict) -> "str | None":
    for tool, pattern in TOOLS.items():
        if re.search(pattern, section["script"]) and not shutil.which(tool):
            print(f"## LEFT OUT: {title}: there is no {tool}")
            return None
    with tempfile.TemporaryDirectory() as scratch:
        here, links = pathlib.Path(scratch, "here"), pathlib.Path(scratch, "bin")
        if section["folder"]:
            shutil.copytree(repository / section["folder"], here)
        here.mkdir(exist_ok=True)
        for name, body in section["files"]:
            (here / name).write_text(body)
        links.mkdir()
        (links / "pintle").symlink_to(program)
        environment = {
            **os.environ,
            "PATH": f"{links}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": f"{scratch}/cache",
            # the caches of a language stay where they are
            "GOCACHE": os.environ.get("GOCACHE", os.path.expanduser("~/.cache/go-build")),
        }
        environment.pop("KUBECONFIG", None)
        output = tempfile.TemporaryFile()
        # a session of its own, which ends as a whole
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", END + section["script"]],
            cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )
        try:
            status = shell.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end within {LIMIT_SECONDS} s"
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        said = output.read().decode(errors="replace")
        print(f"{title}: {status}")
        return f"ended with {status}:\n{said}" if status else None


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
