"""Parts of requests: bodies as text, patches, query parameters, and media types."""
import copy
import json
import urllib.parse

from mutate import NUMBERS, TEXTS

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPT = ["application/json", "application/yaml", PROTOBUF, "*/*", "text/plain", "application/json;pretty=1",
          "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
          "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
          "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", PROTOBUF + ";as=Table;g=meta.k8s.io;v=v1",
          PROTOBUF + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=Bogus;g=meta.k8s.io;v=v1",
          "application/json;as=Table;g=meta.k8s.io;v=v2, application/json", "application/bogus, application/yaml;q=0.5"]
WRITE = {
    "dryRun": ["All", "All", "All", "", "bogus", "all"],
    "fieldManager": ["a", "b", "é", "x" * 128, "x" * 129, "a\nb", "", "a b"],
    "fieldValidation": ["Strict", "Strict", "Warn", "Ignore", "bogus", ""],
    "pretty": ["true", "false", "1"],
    "unknown": ["1"],
}
LIST = {
    "limit": ["1", "2", "0", "-1", "a", "9223372036854775808"],
    "continue": ["a", "YQ", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", ""],
    "resourceVersion": ["0", "1", "-1", "a", "01", "${rv}", ""],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "bogus"],
    "labelSelector": ["a", "!a", "a=b", "a in (b,c)", "a notin ()", "a>1", "a<b", "=", "a==b,c!=d", "a b", "-a", "a=" + "b" * 64,
                      "a in (", "(", "a=b=c", "a,,b", "kubernetes.io/metadata.name", "A/B/C"],
    "fieldSelector": ["metadata.name=o", "metadata.namespace!=a", "a=b", "metadata.name=o,metadata.name=p", "=", "a",
                      "status.phase=Running", "spec.nodeName=", "type=a", "metadata.name==o", "metadata.name\\=o", "spec.host=a"],
    "timeoutSeconds": ["1", "a", "-1"],
    "pretty": ["true"],
}
WATCH = {
    "resourceVersion": ["${start}"] * 6 + ["0", "0", "", "${rv}", "a", "-1", "01", "99999999"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "bogus", ""],
    "allowWatchBookmarks": ["true", "false", "a"],
    "sendInitialEvents": ["true", "a"],
    "labelSelector": LIST["labelSelector"] + ["app=web", "app!=web", "app in (web)"],
    "fieldSelector": LIST["fieldSelector"],
    "limit": ["1", "a"],
    "continue": ["a"],
    "pretty": ["true"],
}
DELETE = {
    "gracePeriodSeconds": ["0", "1", "-1", "a", "30"],
    "propagationPolicy": ["Orphan", "Background", "Foreground", "bogus", ""],
    "orphanDependents": ["true", "false", "a"],
    "dryRun": ["All", "bogus"],
}
OPTIONS = {
    "gracePeriodSeconds": [0, 1, -1, "a", None], "propagationPolicy": ["Orphan", "Background", "Foreground", "bogus", 1],
    "orphanDependents": [True, False, "a"], "dryRun": [["All"], ["bogus"], [], "All", ["All", "All"]],
    "preconditions": [{"uid": "${uid}"}, {"resourceVersion": "${rv}"}, {"uid": "a"}, {"resourceVersion": "1"}, {}, 1],
    "kind": ["DeleteOptions", "Pod", "Bogus"], "apiVersion": ["v1", "apps/v1", "meta.k8s.io/v1", "bogus/v1"], "unknown": [1],
}


def query(random, table, chance=0.35):
    """A query string, empty most of the time."""
    found = []
    while random.random() < chance:
        name = random.choice(sorted(table))
        found.append((name, random.choice(table[name])))
    return "?" + urllib.parse.urlencode(found, safe="${}") if found else ""


def yaml(value, indent=0):
    """Block YAML of a JSON value; keys and strings are quoted as in JSON."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        return "".join("\n%s%s:%s" % (pad, json.dumps(key), yaml(item, indent + 1)) for key, item in value.items())
    if isinstance(value, list) and value:
        return "".join("\n%s-%s" % (pad, yaml(item, indent + 1)) for item in value)
    return " " + json.dumps(value)


def with_repeated_key(random, value):
    """JSON in which one object has a key twice."""
    objects = []

    def walk(item):
        if isinstance(item, dict):
            if item:
                objects.append(item)
            for inner in item.values():
                walk(inner)
        elif isinstance(item, list):
            for inner in item:
                walk(inner)
    walk(value)
    if not objects:
        return json.dumps(value)
    target = random.choice(objects)
    key = random.choice(list(target))
    again = target[key] if random.random() < 0.5 else random.choice(TEXTS + NUMBERS)
    mark = "repeated-key-marker"
    target[mark] = again
    text = json.dumps(value).replace(json.dumps(mark), json.dumps(key))
    del target[mark]
    return text


def part(random, body, keep):
    """Some of the fields of an object, nested as they are."""
    if not isinstance(body, dict):
        return copy.deepcopy(body)
    found = {}
    for key, value in body.items():
        if key in keep:
            found[key] = copy.deepcopy(value)
        elif random.random() < 0.6:
            found[key] = part(random, value, ()) if random.random() < 0.7 else copy.deepcopy(value)
    return found


def strategic(random, patch):
    """Adds directives to a patch."""
    nodes = []

    def walk(item):
        if isinstance(item, dict):
            nodes.append(item)
            for inner in item.values():
                walk(inner)
        elif isinstance(item, list):
            for inner in item:
                walk(inner)
    walk(patch)
    node = random.choice(nodes) if nodes else patch
    lists = [key for key, value in node.items() if isinstance(value, list)]
    draw = random.random()
    if draw < 0.4:
        node["$patch"] = random.choice(["delete", "replace", "merge", "bogus", 1])
    elif draw < 0.6:
        node["$retainKeys"] = random.sample(sorted(node), random.randint(0, len(node)))
    elif lists and draw < 0.8:
        key = random.choice(lists)
        order = [dict(list(it.items())[:1]) if isinstance(it, dict) else it for it in node[key]]
        random.shuffle(order)
        node["$setElementOrder/" + key] = order
    elif lists:
        key = random.choice(lists)
        node["$deleteFromPrimitiveList/" + key] = [it for it in node[key] if not isinstance(it, dict)] + ["a"]
    return patch


def json_patch(random, mutator, body):
    """One to three operations at places of an object."""
    places = list(mutator.places(body))

    def pointer():
        path = [str(it).replace("~", "~0").replace("/", "~1") for it in random.choice(places)]
        draw = random.random()
        if draw < 0.2:
            path.append(random.choice(["a", "-", "0", "1", "-1", "01", "é", "a~b", "x"]))
        return "/" + "/".join(path) if path else random.choice(["", "/"])
    operations = []
    for _ in range(random.choice([1, 1, 2, 3])):
        operation = {"op": random.choice(["add", "add", "replace", "replace", "remove", "remove", "move", "copy", "test", "bogus"]),
                     "path": pointer()}
        if operation["op"] in ("add", "replace", "test") and random.random() < 0.95:
            operation["value"] = mutator.value(operation["path"].rsplit("/", 1)[-1])
        if operation["op"] in ("move", "copy") and random.random() < 0.95:
            operation["from"] = pointer()
        operations.append(operation)
    return operations


def delete_options(random):
    chosen = random.sample(sorted(OPTIONS), random.choice([0, 1, 1, 2, 3]))
    return {"kind": "DeleteOptions", "apiVersion": "v1", **{name: random.choice(OPTIONS[name]) for name in chosen}}
