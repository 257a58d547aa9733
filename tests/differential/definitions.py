"""Cases on a generated CustomResourceDefinition: schemas with defaults, list types and rules, and objects of it."""
from payloads import ACCEPT, APPLY, JSON_PATCH, MERGE

FORMATS = ["date", "date-time", "ipv4", "byte", "uuid", "duration", "int32", "double", "hostname", "bogus"]
RULES = ["self.a == self.b", "self.size() > 1", "self == oldSelf", "has(self.a)", "!has(self.a) || self.a > 1", "self.all(x, x > 0)",
         "self.exists(x, x == 'a')", "self >= 0 && self <= 10", "self.startsWith('a')", "self.matches('^[a-z]+$')", "true", "false",
         "self.a", "self.unknown == 1", "1 +", "self.map(x, x)", "size(self) < 5", "string(self) == 'a'", "self in ['a', 'b']",
         "self.a + self.b < 10", "self.a / self.b > 1", "self.isSorted()", "self.sum() > 3", "duration('1h') > duration('1m')",
         "oldSelf.a <= self.a", "self.contains('a') && self.size() < 3", "type(self) == string", "dyn(self) == 1", "self[0] == 'a'",
         "self.exists_one(x, x.a == 1)", "self.filter(x, x != 'a').size() == 0", "self.find('[0-9]+') != ''", "self.replace('a', 'b') == 'b'"]
TYPES = ["string", "string", "integer", "number", "boolean", "object", "object", "array", "array"]


def schema(random, depth):
    """A schema, structural nearly always."""
    kind = random.choice(TYPES if depth else TYPES[:5])
    found = {"type": kind}
    if kind == "object":
        if random.random() < 0.7:
            found["properties"] = {name: schema(random, depth - 1) for name in random.sample("abcd", random.randint(1, 3))}
            if random.random() < 0.3:
                found["required"] = random.sample("abcd", random.randint(1, 2))
        elif random.random() < 0.8:
            found["additionalProperties"] = schema(random, depth - 1)
        chance(random, found, 0.1, "x-kubernetes-preserve-unknown-fields", [True, False])
        chance(random, found, 0.1, "x-kubernetes-map-type", ["atomic", "granular", "bogus"])
        chance(random, found, 0.1, "maxProperties", [0, 1, 3, -1])
        chance(random, found, 0.05, "x-kubernetes-embedded-resource", [True])
    elif kind == "array":
        found["items"] = schema(random, depth - 1)
        chance(random, found, 0.3, "x-kubernetes-list-type", ["set", "map", "atomic", "bogus"])
        if found.get("x-kubernetes-list-type") == "map" or random.random() < 0.03:
            found["x-kubernetes-list-map-keys"] = random.sample("ab", random.randint(1, 2))
            if random.random() < 0.8:
                found["items"] = {"type": "object", "required": ["a", "b"], "properties": {
                    "a": {"type": "string"}, "b": {"type": random.choice(["integer", "string"])}, "c": schema(random, 0)}}
        chance(random, found, 0.3, "maxItems", [0, 1, 3, 10, -1])
        chance(random, found, 0.1, "minItems", [0, 1, 3])
        chance(random, found, 0.05, "uniqueItems", [True, False])
    elif kind == "string":
        chance(random, found, 0.3, "maxLength", [0, 1, 5, 100, -1])
        chance(random, found, 0.1, "minLength", [0, 1, 3])
        chance(random, found, 0.15, "pattern", ["^[a-z]+$", "a{2,3}", "(", "^a", "[[:alpha:]]"])
        chance(random, found, 0.15, "format", FORMATS)
        chance(random, found, 0.1, "enum", [["a", "b"], ["a", "a"], [], [1, "a"]])
    elif kind in ("integer", "number"):
        chance(random, found, 0.2, "minimum", [0, 1, -5, 1.5, 1e10])
        chance(random, found, 0.2, "maximum", [0, 10, 100.5, 2**40])
        chance(random, found, 0.1, "exclusiveMaximum", [True, False])
        chance(random, found, 0.1, "multipleOf", [2, 0.5, 0, -1, 0.1])
        chance(random, found, 0.1, "format", ["int32", "int64", "float", "double", "bogus"])
        chance(random, found, 0.05, "enum", [[1, 2], [1.0, 1], ["a"]])
    chance(random, found, 0.1, "nullable", [True, False])
    if random.random() < 0.2:
        found["default"] = value(random, found, 2)
    if random.random() < 0.18:
        found["x-kubernetes-validations"] = [rule(random) for _ in range(random.choice([1, 1, 2]))]
    if random.random() < 0.05:
        inner = {key: item for key, item in schema(random, 0).items() if key not in ("type", "default", "nullable")}
        found[random.choice(["allOf", "anyOf", "oneOf"])] = [inner]
    elif random.random() < 0.03:
        found["not"] = {"enum": ["a"]}
    if random.random() < 0.03:
        found.pop("type")
        chance(random, found, 0.7, "x-kubernetes-int-or-string", [True])
    return found


def chance(random, found, probability, key, values):
    if random.random() < probability:
        found[key] = random.choice(values)


def rule(random):
    found = {"rule": random.choice(RULES)}
    chance(random, found, 0.4, "message", ["must fit", "", " a", "a\nb", "x" * 100])
    return found


def value(random, of, depth):
    """A value that fits a schema, nearly always."""
    if random.random() < 0.06:
        return random.choice([None, "a", 1, 1.5, True, [], {}, -1, "", [1], {"a": 1}, 10**20])
    kind = of.get("type")
    if isinstance(of.get("enum"), list) and of["enum"] and random.random() < 0.8:
        return random.choice(of["enum"])
    if kind == "object":
        properties = of.get("properties") or {}
        found = {name: value(random, item, depth - 1) for name, item in properties.items() if random.random() < 0.75}
        if isinstance(of.get("additionalProperties"), dict):
            found.update({name: value(random, of["additionalProperties"], depth - 1) for name in random.sample("xyz", 2)})
        if random.random() < 0.08:
            found[random.choice(["unknown", "metadata", "apiVersion", "a"])] = random.choice([1, "a", {}, None, {"name": "a"}])
        return found
    if kind == "array":
        return [value(random, of.get("items") or {}, depth - 1) for _ in range(random.choice([0, 1, 2, 2, 3]))]
    if kind == "integer":
        return random.choice([0, 1, 2, 5, 10, 100, -1, 2**31, 2**53 + 1, 1.0, 2**63 - 1])
    if kind == "number":
        return random.choice([0, 1, 1.5, -1, 1e10, 0.1, 1e-7, 100, 1e21])
    if kind == "boolean":
        return random.random() < 0.5
    return random.choice(["a", "b", "aa", "abc", "A1", "", "2020-01-02", "2020-01-02T03:04:05Z", "1.2.3.4", "1h", "é", "x" * 20])


def columns(random):
    found = []
    for name in random.sample("ABCD", random.randint(0, 3)):
        column = {"name": name, "type": random.choice(["string", "integer", "number", "boolean", "date", "bogus", "string"]),
                  "jsonPath": random.choice([".spec.a", ".spec", ".metadata.creationTimestamp", ".spec.b[0]", ".spec.b[*].a", "spec.a", ".",
                                             ".status.c", ".spec.a.b", "{.a}", ".metadata.labels"])}
        chance(random, column, 0.2, "priority", [0, 1, -1])
        chance(random, column, 0.2, "format", ["int32", "date", "bogus"])
        found.append(column)
    return found


def build(case):
    random = case.random
    group = case.name + ".example.com"
    case.title = "custom"
    root = {"type": "object", "properties": {"spec": schema(random, 3), "status": schema(random, 2)}}
    chance(random, root, 0.05, "x-kubernetes-preserve-unknown-fields", [True])
    if random.random() < 0.1:
        root["x-kubernetes-validations"] = [rule(random)]
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    if random.random() < 0.5:
        version["subresources"] = {"status": {}}
    if random.random() < 0.2:
        version.setdefault("subresources", {})["scale"] = {
            "specReplicasPath": random.choice([".spec.a", ".spec.replicas", "spec.a", ".spec.a[0]"]),
            "statusReplicasPath": random.choice([".status.a", ".status.replicas", ".spec.a"])}
    if random.random() < 0.4:
        version["additionalPrinterColumns"] = columns(random)
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                  "metadata": {"name": "things." + group},
                  "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                           "versions": [version]}}
    if random.random() < 0.15:
        definition = case.mutator.changed(definition, case.corpus.definitions[case.corpus.models[
            "apiextensions.k8s.io/v1", "CustomResourceDefinition"]])
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    case.send("POST", definitions, definition, "application/json")
    collection = "/apis/%s/v1/namespaces/%s/things" % (group, case.name)
    case.send("GET", collection, established="things." + group)

    def thing(name):
        found = {"apiVersion": group + "/v1", "kind": "Thing", "metadata": {"name": name, "namespace": case.name}}
        for field, of in root["properties"].items():
            if random.random() < 0.85:
                found[field] = value(random, of, 4)
        return case.mutator.changed(found) if random.random() < 0.1 else found
    for number in range(random.randint(2, 5)):
        case.write("POST", collection, thing("o%d" % number if number else "o"))
    path = collection + "/o"
    for _ in range(random.randint(2, 6)):
        at = path + random.choice(["", "", "", "/status", "/scale"])
        draw = random.random()
        if draw < 0.3 and not at.endswith("scale"):
            body = thing("o")
            if isinstance(body.get("metadata"), dict):
                body["metadata"]["resourceVersion"] = random.choice(["${rv}"] * 6 + ["", "1"])
            case.write("PUT", at, body)
        elif draw < 0.75:
            body = thing("o") if not at.endswith("scale") else {"spec": {"replicas": random.choice([1, -1, "a", 2**31])}}
            case.patch(at, body, None, True, (MERGE, JSON_PATCH, APPLY))
        else:
            case.send("GET", random.choice([at, collection]), accept=random.choice(ACCEPT))
    if random.random() < 0.3:
        case.patch(definitions + "/things." + group, definition, None, True)
    case.send("DELETE", path)
    if random.random() < 0.3:
        case.watch(collection, "o")
