"""Cases: short sequences of requests on one kind, from a recorded scenario, or on a generated definition.

A request is a dict: method, path, headers, body (JSON), text, or protobuf. `${rv}` and `${uid}` in it stand for the
version and uid of the last object that the server returned. The same random number generator and another identifier
give the same case under other names.
"""
import copy
import json
import re
import urllib.parse

import definitions
from corpus import DRY_RUN_ONLY, VIRTUAL
from mutate import Mutator
from payloads import (ACCEPT, APPLY, DELETE, JSON_PATCH, LIST, MERGE, PROTOBUF, STRATEGIC, WATCH, WRITE, delete_options,
                      json_patch, part, query, strategic, with_repeated_key, yaml)

RECORDED_NAME = re.compile(r"rec-[0-9a-f]{6}")


class Case:
    """The requests of one case, in its own namespace."""

    def __init__(self, random, corpus, name):
        self.random, self.corpus, self.name = random, corpus, name
        self.mutator = Mutator(random, corpus)
        self.title, self.requests, self.namespaces = "", [], [name]

    def build(self, only=None):
        draw = self.random.random()
        if self.corpus.scenarios and draw < 0.2 and not only:
            self.recorded()
        elif draw < 0.35 and (not only or only == "custom"):
            definitions.build(self)
        else:
            kinds = [kind for kind in self.corpus.served if not only or kind.kind == only]
            self.kind(self.random.choice(kinds or self.corpus.served))
        return self

    def send(self, method, path, body=None, media=None, **more):
        self.requests.append({"method": method, "path": path, "body": body, "media": media, **more})

    # ---- bodies

    def write(self, method, path, body, table=WRITE):
        """A write of a whole object in one of its encodings."""
        path += query(self.random, table)
        draw = self.random.random()
        if draw < 0.8:
            self.send(method, path, body, "application/json", accept=self.accept())
        elif draw < 0.86:
            text = yaml(body) if self.random.random() < 0.7 else json.dumps(body)
            self.send(method, path, media="application/yaml", text=text.lstrip("\n"))
        elif draw < 0.92:
            self.send(method, path, media="application/json", text=with_repeated_key(self.random, body))
        elif draw < 0.99:
            self.send(method, path, body, PROTOBUF, encode=True, accept=self.accept())
        else:
            self.send(method, path, body, self.random.choice(["text/plain", MERGE, "application/bogus", None]))

    def accept(self):
        return self.random.choice(ACCEPT) if self.random.random() < 0.1 else None

    def patch(self, path, body, schema, versioned, types=(MERGE, STRATEGIC, JSON_PATCH, APPLY)):
        media = self.random.choice(types)
        changed = self.mutator.changed(body, schema)
        parameters = dict(WRITE)
        if media == JSON_PATCH:
            patch = json_patch(self.random, self.mutator, body)
        elif media == APPLY:
            patch = part(self.random, changed, ("apiVersion", "kind", "metadata"))
            parameters["force"] = ["true", "true", "false", "a"]
            path += "?fieldManager=" + self.random.choice("abc") if self.random.random() < 0.85 else ""
        else:
            patch = part(self.random, changed, ())
            if media == STRATEGIC and self.random.random() < 0.5:
                patch = strategic(self.random, patch)
        if versioned and self.random.random() < 0.05 and isinstance(patch, dict):
            patch.setdefault("metadata", {})
            if isinstance(patch["metadata"], dict):
                patch["metadata"]["resourceVersion"] = self.random.choice(["${rv}", "1", "a", ""])
        more = query(self.random, parameters)
        path += more.replace("?", "&", 1) if "?" in path else more
        if media == APPLY and self.random.random() < 0.3:
            self.send("PATCH", path, media=media, text=yaml(patch).lstrip("\n") or "{}")
        else:
            self.send("PATCH", path, patch, media, accept=self.accept())

    # ---- a built-in kind

    def kind(self, kind):
        self.title = kind.kind
        model = self.corpus.models.get((kind.group_version, kind.kind))
        schema = self.corpus.definitions.get(model)
        base = self.renamed(kind, copy.deepcopy(self.random.choice(kind.objects)), "o")
        collection = kind.path(self.name)
        if kind.kind in VIRTUAL:
            # reviews have no metadata
            base["metadata"] = {"namespace": self.name} if kind.namespaced else {}
            for _ in range(4):
                self.write("POST", collection, self.mutator.changed(base, schema, least=1))
            return
        writes = {**WRITE, "dryRun": ["All"]} if kind.kind in DRY_RUN_ONLY else WRITE
        suffix = "?dryRun=All" if kind.kind in DRY_RUN_ONLY else ""
        for number in range(self.random.randint(1, 4)):
            named = self.renamed(kind, copy.deepcopy(base), "m%d" % number)
            changed = self.mutator.changed(named, schema, least=1)
            if suffix:
                self.send("POST", collection + suffix, changed, "application/json")
            else:
                self.write("POST", collection, changed, writes)
        self.send("POST", collection + suffix, base, "application/json")
        path = self.object_path(kind, base)
        for _ in range(self.random.randint(2, 6)):
            self.operation(kind, path, base, schema, suffix)
        if suffix or self.random.random() < 0.7:
            self.delete(path, collection, kind)
        if not suffix and "watch" in kind.verbs and self.random.random() < 0.3:
            self.watch(collection, str(base["metadata"].get("name")))

    def operation(self, kind, path, base, schema, suffix):
        draw = self.random.random()
        if suffix:
            self.send("PUT", path + suffix, self.mutator.changed(base, schema, least=1), "application/json")
        elif draw < 0.3:
            changed = self.mutator.changed(base, schema)
            if isinstance(changed.get("metadata"), dict) and self.random.random() < 0.6:
                changed["metadata"]["resourceVersion"] = self.random.choice(["${rv}"] * 5 + ["1", "", "a"])
            self.write("PUT", path, changed)
        elif draw < 0.62:
            self.patch(path, base, schema, True)
        elif draw < 0.82 and kind.subresources:
            self.subresource(kind, path, base, schema)
        elif draw < 0.9:
            self.send("GET", path + query(self.random, LIST, 0.2), accept=self.random.choice(ACCEPT))
        else:
            self.list(kind)

    def list(self, kind):
        table = dict(LIST)
        path = kind.path(self.name)
        if not kind.namespaced:
            path += "?fieldSelector=metadata.name%3D" + self.name + "-o"
            table.pop("fieldSelector")
        more = query(self.random, table, 0.6)
        self.send("GET", path + (more.replace("?", "&", 1) if "?" in path else more), accept=self.random.choice(ACCEPT))

    def watch(self, collection, name):
        """Asks for the events of the case, by one of the three forms of the request."""
        draw = self.random.random()
        parameters = {}
        if draw < 0.15:
            collection = re.sub("^(/api|/apis/[^/]+)/([^/]+)/", r"\1/\2/watch/", collection)
            if self.random.random() < 0.5:
                collection += "/" + name
        else:
            parameters["watch"] = self.random.choice(["1", "true", "true", "True", "a", "false", ""])
        if "/namespaces/" not in collection and not collection.endswith("/" + name):
            parameters["fieldSelector"] = "metadata.name=" + name
        parameters["timeoutSeconds"] = self.random.choice(["1"] * 12 + ["-1", "a"])
        if self.random.random() < 0.9:
            parameters["resourceVersion"] = self.random.choice(WATCH["resourceVersion"])
        while self.random.random() < 0.3:
            parameter = self.random.choice(sorted(WATCH))
            parameters.setdefault(parameter, self.random.choice(WATCH[parameter]))
        media = [it for it in ACCEPT if PROTOBUF not in it]
        accept = self.random.choice(media) if self.random.random() < 0.4 else None
        self.send("GET", collection + "?" + urllib.parse.urlencode(parameters, safe="${}"), accept=accept, watch=True)

    def subresource(self, kind, path, base, schema):
        name = self.random.choice(sorted(kind.subresources))
        below = path + "/" + name
        metadata = {"name": base["metadata"].get("name"), "namespace": base["metadata"].get("namespace")}
        if name in ("status", "approval", "finalize", "ephemeralcontainers"):
            body = {**base, "status": self.mutator.of_schema(
                self.mutator.schema_at(schema or {}, ("status",)), "status", 3)} if name == "status" else base
            changed = self.mutator.changed(body, schema)
            if self.random.random() < 0.4:
                self.write("PUT", below, changed)
            else:
                self.patch(below, body, schema, True)
        elif name == "scale":
            body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 2}}
            model = self.corpus.definitions.get("io.k8s.api.autoscaling.v1.Scale")
            draw = self.random.random()
            if draw < 0.4:
                self.write("PUT", below, self.mutator.changed(body, model))
            elif draw < 0.8:
                self.patch(below, body, model, True, (MERGE, JSON_PATCH, APPLY, STRATEGIC))
            else:
                self.send("GET", below, accept=self.random.choice(ACCEPT))
        elif name == "eviction":
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            if self.random.random() < 0.5:
                body["deleteOptions"] = delete_options(self.random)
            self.write("POST", below, self.mutator.changed(body))
        elif name == "binding":
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}}
            self.write("POST", below, self.mutator.changed(body, self.corpus.definitions["io.k8s.api.core.v1.Binding"]))
        elif name == "token":
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": "a"}}
            self.write("POST", below, self.mutator.changed(body))

    def delete(self, path, collection, kind):
        draw = self.random.random()
        if draw < 0.4:
            self.send("DELETE", path + query(self.random, DELETE, 0.6))
        elif draw < 0.8:
            self.send("DELETE", path, self.mutator.changed(delete_options(self.random), fixed=()), "application/json")
        elif kind.namespaced:
            self.send("DELETE", collection + query(self.random, {**DELETE, **LIST}, 0.5))
        self.send("GET", path)

    def renamed(self, kind, body, name):
        """The object under a name of this case."""
        metadata = body["metadata"]
        metadata.pop("generateName", None)
        metadata.pop("uid", None)
        metadata.pop("resourceVersion", None)
        if kind.namespaced:
            metadata.update(name=name, namespace=self.name)
        elif kind.kind == "CustomResourceDefinition" and isinstance(body.get("spec"), dict):
            body["spec"]["group"] = self.name + ".example.com"
            names = body["spec"].get("names")
            metadata["name"] = "%s.%s.example.com" % (names.get("plural") if isinstance(names, dict) else "a", self.name)
        elif kind.kind != "APIService":
            metadata["name"] = "%s-%s" % (self.name, name)
        for webhook in body.get("webhooks") or []:
            if isinstance(webhook, dict):
                webhook["rules"] = [{"apiGroups": ["never.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
                                     "resources": ["nothings"]}]
        return body

    def object_path(self, kind, base):
        return kind.path(self.name, str(base["metadata"].get("name")))

    # ---- a recorded scenario

    def recorded(self):
        """The requests of a scenario, some of them changed."""
        scenario = self.random.choice(self.corpus.scenarios)
        self.title = scenario["name"]
        names = {}
        steps = RECORDED_NAME.sub(lambda found: names.setdefault(found[0], "%s-%d" % (self.name, len(names))),
                                  json.dumps([scenario.get("namespaces", []), scenario["steps"]]))
        self.namespaces, steps = json.loads(steps)
        for step in steps:
            do = step["do"]
            body = do.get("body", do.get("base"))
            if isinstance(body, (dict, list)) and self.random.random() < 0.5:
                kind = self.corpus.models.get((body.get("apiVersion"), body.get("kind"))) if isinstance(body, dict) else None
                body = self.mutator.changed(body, self.corpus.definitions.get(kind), fixed=("apiVersion", "kind", "metadata"))
            headers = do.get("headers", {})
            media = headers.get("Content-Type", "application/json")
            more = {"bind": step.get("answer", {})}
            if "text" in do:
                more["text"] = do["text"]
            if "as" in do or "proto" in do or "base64" in do:
                continue
            accept = headers.get("Accept")
            has_body = body is not None or "text" in do
            self.send(do["method"], do["path"], body, media if has_body else None, accept=accept, until=step.get("until"), **more)
