"""Drives a server with the Python client library, typed and dynamic.

    suite.py KUBECONFIG NAMESPACE SAMPLES KINDS

Each kind of the list is created, read, listed, patched in three ways, replaced, deleted, and its events are
watched from before its creation. What is not as it should be is told, and the run ends with status 1.
"""

import copy
import re
import sys

import kubernetes
import yaml
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

KUBECONFIG, NAMESPACE, SAMPLES, KINDS = sys.argv[1:5]
PREFIX = "interop-py-"
# a label of its own: another suite may run at the same time
STEP = "interop-py"
checks = 0


class Failed(Exception):
    """Something is not as it should be."""


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise Failed(what)


def refused(status, reason, call, *args, **options):
    try:
        call(*args, **options)
    except ApiException as why:
        body = yaml.safe_load(why.body)
        check((why.status, body["reason"]) == (status, reason), f"{status} {reason}, but {why.status} {why.body}")
        return body
    raise Failed(f"{call.__name__} should be refused with {status} {reason}")


def snake(kind):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()


class Kind:
    """The calls of the typed client for one kind."""

    def __init__(self, line):
        api, name = line.split()
        self.object = yaml.safe_load(open(f"{SAMPLES}/{name}.yaml"))
        self.kind = self.object["kind"]
        self.api = getattr(client, api)()
        self.namespaced = hasattr(self.api, f"create_namespaced_{snake(self.kind)}")
        self.object["metadata"]["name"] = self.name = PREFIX + self.object["metadata"]["name"]
        self.place = [NAMESPACE] if self.namespaced else []

    def verb(self, verb):
        middle = "namespaced_" if self.namespaced else ""
        return getattr(self.api, f"{verb}_{middle}{snake(self.kind)}")

    def create(self, **options):
        return self.verb("create")(*self.place, self.object, **options)

    def one(self, verb, *body, **options):
        return self.verb(verb)(self.name, *self.place, *body, **options)

    def listed(self, **options):
        return self.verb("list")(*self.place, **options)

    def remove(self):
        try:
            self.one("delete")
            # what protects volumes in use is the work of a controller, which need not run here
            if self.one("read").metadata.finalizers:
                self.one("patch", {"metadata": {"finalizers": None}})
        except ApiException as why:
            if why.status != 404:
                raise


def typed(kind):
    what = f"python {kind.kind}"
    kind.remove()
    before = kind.listed().metadata.resource_version
    dry = kind.create(dry_run="All")
    check(dry.metadata.uid, f"{what}: a dry run answers with the object")
    refused(404, "NotFound", kind.one, "read")
    made = kind.create(field_validation="Strict")
    check(made.metadata.name == kind.name and made.metadata.uid, f"{what}: {made.metadata}")
    refused(409, "AlreadyExists", kind.create)
    check(kind.one("read").to_dict() == made.to_dict(), f"{what}: what was made is what is read")
    only = kind.listed(field_selector=f"metadata.name={kind.name}")
    check([it.metadata.name for it in only.items] == [kind.name], f"{what}: the list")

    label = {"metadata": {"labels": {STEP: "strategic"}}}
    check(kind.one("patch", label).metadata.labels[STEP] == "strategic", f"{what}: strategic patch")
    pointed = [{"op": "replace", "path": f"/metadata/labels/{STEP}", "value": "json"}]
    check(kind.one("patch", pointed).metadata.labels[STEP] == "json", f"{what}: JSON patch")
    chosen = kind.listed(label_selector=f"{STEP}=json", limit=1)
    check([it.metadata.name for it in chosen.items] == [kind.name], f"{what}: the list by label")

    current = kind.one("read")
    stale = copy.deepcopy(current)
    current.metadata.labels[STEP] = "put"
    replaced = kind.one("replace", current)
    check(replaced.metadata.labels[STEP] == "put", f"{what}: replaced")
    stale.metadata.labels[STEP] = "late"
    refused(409, "Conflict", kind.one, "replace", stale)
    kind.remove()
    refused(404, "NotFound", kind.one, "read")

    seen = []
    stream = watch.Watch()
    selector = f"metadata.name={kind.name}"
    for event in stream.stream(
        kind.verb("list"), *kind.place, resource_version=before, field_selector=selector, timeout_seconds=30
    ):
        labels = event["object"].metadata.labels or {}
        seen.append((event["type"], labels.get(STEP)))
        if event["type"] == "DELETED":
            stream.stop()
    steps = ["ADDED None", "MODIFIED strategic", "MODIFIED json", "MODIFIED put", "DELETED put"]
    told = [f"{kind} {step}" for kind, step in seen]
    # a finalizer adds steps before the last
    check(told[:4] == steps[:4] and told[-1] == steps[4], f"{what}: the events {told}")


def dynamically(api, api_version, kind, body):
    what = f"python dynamic {kind}"
    resource = api.resources.get(api_version=api_version, kind=kind)
    name = body["metadata"]["name"]
    applied = resource.server_side_apply(body, namespace=NAMESPACE, field_manager="one", force_conflicts=True)
    check(applied.metadata.managedFields[0].manager == "one", f"{what}: who applied")
    rival = copy.deepcopy(body)
    rival["metadata"]["labels"] = {"owner": "two"}
    try:
        resource.server_side_apply(rival, namespace=NAMESPACE, field_manager="two")
        raise Failed(f"{what}: there is no conflict")
    except dynamic.exceptions.ConflictError as why:
        check("conflict" in str(why.body), f"{what}: {why.body}")
    merged = resource.patch(
        {"metadata": {"annotations": {"a": "b"}}}, name, NAMESPACE, content_type="application/merge-patch+json"
    )
    check(merged.metadata.annotations.a == "b", f"{what}: merge patch")
    names = [it.metadata.name for it in resource.get(namespace=NAMESPACE, label_selector="owner=one").items]
    check(names == [name], f"{what}: {names}")
    resource.delete(name, NAMESPACE)


def attempt(failures, what, call, *args):
    """Goes on after a failure, so that one run tells all of them."""
    try:
        call(*args)
    except Exception as why:
        failures.append(what)
        print(f"FAILED: python {what}: {why}", file=sys.stderr)


def basics():
    version = client.VersionApi().get_code()
    check(version.git_version.startswith("v"), f"version {version}")
    core = client.CoreV1Api()
    try:
        core.create_namespace({"metadata": {"name": NAMESPACE}})
    except ApiException as why:
        check(why.status == 409, f"a namespace: {why}")
    wrong = {"metadata": {"name": "Not_A_Name"}}
    body = refused(422, "Invalid", core.create_namespaced_config_map, NAMESPACE, wrong)
    check(body["details"]["causes"][0]["field"] == "metadata.name", f"causes {body}")


def main():
    config.load_kube_config(KUBECONFIG)
    failures = []
    attempt(failures, "basics", basics)
    lines = [line for line in open(KINDS) if line.strip() and not line.startswith("#")]
    for line in lines:
        attempt(failures, line.split()[1], lambda: typed(Kind(line)))
    api = dynamic.DynamicClient(client.ApiClient())
    for name in ["core.v1.ConfigMap", "apps.v1.Deployment", "rbac.v1.Role"]:
        body = yaml.safe_load(open(f"{SAMPLES}/{name}.yaml"))
        body["metadata"].update(name=PREFIX + "dynamic", labels={"owner": "one"})
        attempt(failures, f"dynamic {name}", dynamically, api, body["apiVersion"], body["kind"], body)
    print(f"python client {kubernetes.__version__}: {len(lines)} kinds, {checks} checks, {len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
