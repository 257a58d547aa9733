"""Compares what two servers show of the same store: every list and every object of every resource, whole.

    adopt.py UPSTREAM TOKEN PINTLE FOLDER

FOLDER has ca.crt, client.crt and client.key for Pintle. Only what must differ is left out: the revision at which a list
was made. What changes while it is looked at (leases, for one) is looked at again.
"""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request

TRIES = 10

# made up for each answer, and kept by no store
VIRTUAL = {"componentstatuses"}


class Server:
    def __init__(self, url, context, token=None):
        self.url, self.context, self.token = url, context, token

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Accept": "application/json"})
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return {"code": error.code, "body": error.read().decode(errors="replace")}


def differences(a, b, path=""):
    """Where two trees differ, as lines of text."""
    if type(a) is not type(b):
        return [f"{path}: {json.dumps(a)[:200]} here, {json.dumps(b)[:200]} there"]
    if isinstance(a, dict):
        found = []
        for key in sorted(set(a) | set(b)):
            if key not in a or key not in b:
                side, value = ("there", b[key]) if key in b else ("here", a[key])
                found.append(f"{path}.{key}: only {side}: {json.dumps(value)[:200]}")
            else:
                found += differences(a[key], b[key], f"{path}.{key}")
        return found
    if isinstance(a, list) and len(a) == len(b):
        return [line for at, pair in enumerate(zip(a, b)) for line in differences(*pair, f"{path}[{at}]")]
    return [] if a == b else [f"{path}: {json.dumps(a)[:200]} here, {json.dumps(b)[:200]} there"]


def resources(server):
    """The paths of everything that can be listed, with the same for single objects."""
    versions = ["/api/v1"]
    for group in server.get("/apis")["groups"]:
        versions += ["/apis/" + one["groupVersion"] for one in group["versions"]]
    for version in versions:
        for one in server.get(version).get("resources", []):
            if "/" not in one["name"] and "list" in one["verbs"] and "get" in one["verbs"] and one["name"] not in VIRTUAL:
                yield version, one["name"]


def compare(ours, theirs, path):
    found = []
    for again in range(TRIES):
        a, b = ours.get(path), theirs.get(path)
        for one in (a, b):
            if one.get("kind", "").endswith("List"):
                one.get("metadata", {}).pop("resourceVersion", None)
        found = differences(a, b)
        if not found:
            return b, []
        time.sleep(0.2 * again)
    return b, found


def main():
    upstream, token, pintle, folder = sys.argv[1:]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    known = ssl.create_default_context(cafile=folder + "/ca.crt")
    known.load_cert_chain(folder + "/client.crt", folder + "/client.key")
    theirs, ours = Server(upstream, trusting, token), Server(pintle, known)
    lists = objects = wrong = 0
    for version, plural in resources(theirs):
        path = f"{version}/{plural}"
        listed, found = compare(ours, theirs, path)
        lists += 1
        for item in listed.get("items") or []:
            metadata = item["metadata"]
            within = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            objects += 1
            one = f"{version}{within}/{plural}/{metadata['name']}"
            found += [f"{one}{line}" for line in compare(ours, theirs, one)[1]]
        for line in found:
            print(f"    {path}: {line}")
        wrong += bool(found)
    print(f"  {lists} lists and {objects} objects compared, {wrong} resources differ")
    return 1 if wrong or objects < 100 else 0


sys.exit(main())
