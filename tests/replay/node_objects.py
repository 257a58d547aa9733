#!/usr/bin/env python3
"""node_objects.py RESULT: prints how node objects differ from the recorded ones, apart from the sizes of the machine.

Of an amount that depends on the machine, what the flags hold back from pods is compared: capacity less allocatable."""
import json
import re
import sys

SUFFIXES = {"": 1, "m": 0.001, "k": 1000, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
MACHINE = ("memory", "ephemeral-storage", "cpu", "hugepages-1Gi", "hugepages-2Mi")


def number(text):
    digits, suffix = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text).groups()
    return float(digits) * SUFFIXES[suffix]


def without_sizes(node):
    capacity, allocatable = node.get("capacity") or {}, node.get("allocatable") or {}
    held_back = {
        name: round(number(capacity[name]) - number(allocatable.get(name, "0")), 3)
        for name in capacity
        # a share of a disk of another size is another amount
        if name in ("memory", "cpu")
    }
    plain = {key: value for key, value in node.items() if key not in ("capacity", "allocatable")}
    # so is whether its disks are nearly full
    plain["conditions"] = {kind: it for kind, it in (node.get("conditions") or {}).items() if "Pressure" not in kind}
    for key, amounts in (("capacity", capacity), ("allocatable", allocatable)):
        plain[key] = {name: value for name, value in amounts.items() if name not in MACHINE}
        plain[key + " names"] = sorted(name for name in amounts if not name.startswith("hugepages"))
    return plain | {"held back": held_back}


def differences(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            yield from differences(want.get(key), got.get(key), f"{path}.{key}" if path else key)
    elif want != got:
        yield f"{path}: {json.dumps(want)} upstream, {json.dumps(got)} here"


def main():
    result = json.load(open(sys.argv[1]))
    failed = 0
    for case in result["bad"]:
        found = list(differences(without_sizes(case["want"]), without_sizes(case["got"])))
        failed += bool(found)
        for line in found:
            print(f"FAIL {case['name']}: {line}")
    print(f"node objects {result['total'] - failed}/{result['total']}")
    sys.exit(bool(failed))


main()
