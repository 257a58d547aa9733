"""Material of requests: objects by kind, recorded scenarios, values by field name, and the published schemas.

Objects come from tests/samples and from recorded requests. `Kinds` knows from discovery where a kind is served.
"""
import collections
import json
import subprocess

from servers import REPOSITORY

# Reviews are answered, not stored; a webhook configuration can change all later responses.
VIRTUAL = {"TokenReview", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview",
           "SelfSubjectRulesReview", "SelfSubjectReview"}
DRY_RUN_ONLY = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"}


class Kind:
    def __init__(self, group_version, resource, subresources):
        self.group_version, self.resource, self.subresources = group_version, resource["name"], subresources
        self.kind, self.namespaced, self.verbs = resource["kind"], resource["namespaced"], resource["verbs"]
        self.objects = []

    def path(self, namespace, name=None, subresource=None):
        root = "/api/" if "/" not in self.group_version else "/apis/"
        scope = "/namespaces/" + namespace if self.namespaced else ""
        return "/".join([root + self.group_version + scope, self.resource] + [it for it in (name, subresource) if it])


class Corpus:
    def __init__(self, upstream, recorded, pintle):
        self.kinds = {}
        self.scenarios = []
        self.values = collections.defaultdict(list)
        self.discover(upstream)
        self.definitions = json.loads(upstream.request("GET", "/openapi/v2").body)["definitions"]
        self.models = {}
        for name, definition in self.definitions.items():
            for it in definition.get("x-kubernetes-group-version-kind", []):
                group_version = "/".join(part for part in (it["group"], it["version"]) if part)
                self.models.setdefault((group_version, it["kind"]), name)
        self.read_samples(pintle)
        if recorded:
            self.read_recorded(recorded)
        self.served = sorted((kind for kind in self.kinds.values() if kind.objects),
                             key=lambda kind: (kind.group_version, kind.kind))

    def discover(self, upstream):
        groups = json.loads(upstream.request("GET", "/apis").body)["groups"]
        versions = ["v1"] + [it["groupVersion"] for group in groups for it in group["versions"]]
        for version in versions:
            root = "/api/" if version == "v1" else "/apis/"
            resources = json.loads(upstream.request("GET", root + version).body)["resources"]
            for resource in resources:
                if "/" not in resource["name"]:
                    prefix = resource["name"] + "/"
                    below = [it["name"][len(prefix):] for it in resources if it["name"].startswith(prefix)]
                    self.kinds[version, resource["kind"]] = Kind(version, resource, below)

    def add(self, body):
        if not isinstance(body, dict):
            return
        kind = self.kinds.get((body.get("apiVersion"), body.get("kind")))
        if kind and isinstance(body.get("metadata"), dict) and len(kind.objects) < 60:
            kind.objects.append(body)
        self.collect(body, "")

    def collect(self, value, field):
        """Remembers values by the name of their field, as candidates for other objects."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.collect(item, key)
        elif isinstance(value, list):
            for item in value:
                self.collect(item, field)
        if field and len(self.values[field]) < 200 and "${" not in json.dumps(value):
            self.values[field].append(value)

    def read_samples(self, pintle):
        for sample in sorted((REPOSITORY / "tests/samples").glob("*.yaml")):
            converted = subprocess.run([pintle, "convert", "-f", str(sample), "-o", "json"],
                                       capture_output=True, check=True)
            self.add(json.loads(converted.stdout))

    def read_recorded(self, folder):
        for path in sorted(folder.glob("*/*.json")):
            scenario = json.loads(path.read_text())
            steps = [step for step in scenario["steps"] if "do" in step and not step["do"].get("watch")]
            for step in steps:
                do = step["do"]
                body = do.get("body", do.get("base"))
                if do["method"] == "POST" and "${" not in json.dumps(body):
                    self.add(body)
                for case in step.get("cases", []):
                    for pointer, value in case.get("set", {}).items():
                        self.collect(value, pointer.rsplit("/", 1)[-1])
            # tokens, impersonation and discovery are compared by tests/replay
            if scenario["family"] in ("defaults", "verbs", "versions", "patches", "apply", "tables", "crds"):
                self.scenarios.append({**scenario, "steps": steps})
