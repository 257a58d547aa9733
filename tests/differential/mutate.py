"""Changes of objects: small, mostly invalid, drawn from a seeded generator.

A change picks a place in a tree and removes, retypes, replaces, duplicates or extends it. Where the published schema
of the place is known, a change can also set any field of it.
"""
import copy

TEXTS = ["", " ", "a", "A", "a-b", "-a", "a.", "a..b", "a/b", "a/b/c", "/", "é", "a\nb", "a\tb", "null", "true", "0", "-1",
         "1.5", "1e3", "0x10", "100m", "1Gi", "1.5Gi", "-1Ki", "10%", "150%", "-5%", "%d", "abc%", "1.2.3.4", "1.2.3.4/24",
         "10.0.0.0/33", "fd00::1", "fd00::/64", "256.1.1.1", "010.1.1.1", "::ffff:1.2.3.4", "http", "HTTP", "TCP",
         "2020-01-02T03:04:05Z", "2020-01-02", "*", "*.example.com", "example.com", "kubernetes.io/a", "a.k8s.io/b",
         "$(A)", "${a}", "\"", "\\", "<a>&b", "..", ".", "../a", "/a/../b", "a:b", "a=b", "a,b", "a b", "YQ==", "YQ",
         "https://example.com", "http://example.com/a?b#c", "In", "Exists", "Never", "Always", "None", "Default", "65536",
         "a" * 63, "a" * 64, "a" * 253, "a" * 254, "a." * 31 + "a", "x" * 1025, "\u0000", "\U0001f600"]
NUMBERS = [0, 1, -1, 2, 10, 100, 101, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32, 2**53,
           2**63 - 1, 2**63, -2**63, 2**64, 10**20, 1.5, 0.0, -0.5, 1e3, 1e300, 2.0]
KEYS = ["unknown", "Unknown", "a.b/c", "metadata", "spec", "kind", "$patch", "f:a", "", "a b", "é", "name", "x" * 64]


class Mutator:
    def __init__(self, random, corpus):
        self.random, self.corpus = random, corpus

    # ---- values

    def value(self, field, depth=2):
        """Any value, preferably one that fields of this name have elsewhere."""
        draw = self.random.random()
        if field and draw < 0.45 and self.corpus.values.get(field):
            return copy.deepcopy(self.random.choice(self.corpus.values[field]))
        if draw < 0.65:
            return self.random.choice(TEXTS)
        if draw < 0.8:
            return self.random.choice(NUMBERS)
        if draw < 0.92 or not depth:
            return self.random.choice([None, True, False, [], {}, [None], [""], [{}], {"a": None}])
        if draw < 0.96:
            return [self.value(field, depth - 1) for _ in range(self.random.randint(1, 3))]
        return {self.random.choice(KEYS): self.value("", depth - 1)}

    def of_schema(self, schema, field, depth):
        """A value that a schema allows, nearly always."""
        if self.random.random() < 0.08:
            return self.value(field)
        if self.corpus.values.get(field) and self.random.random() < 0.35:
            return copy.deepcopy(self.random.choice(self.corpus.values[field]))
        schema = self.resolve(schema)
        kind = schema.get("type")
        if schema.get("enum"):
            return self.random.choice(schema["enum"])
        if "properties" in schema:
            names = sorted(schema["properties"])
            required = [name for name in schema.get("required", []) if self.random.random() < 0.93]
            some = self.random.sample(names, min(len(names), self.random.randint(0, 3))) if depth else []
            return {name: self.of_schema(schema["properties"][name], name, depth - 1)
                    for name in dict.fromkeys(required + some)}
        if kind == "array":
            return [self.of_schema(schema["items"], field, depth - 1) for _ in range(self.random.choice([0, 1, 1, 2]))]
        if kind == "object":
            inner = schema.get("additionalProperties")
            entry = self.of_schema(inner, "", depth - 1) if isinstance(inner, dict) else self.value(field)
            return {self.random.choice(["a", "a.b/c", "cpu", "memory"]): entry}
        if kind == "integer":
            return self.random.choice([0, 1, 2, 5, 80, 1000, -1, 65536])
        if kind == "boolean":
            return self.random.random() < 0.5
        if schema.get("format") == "int-or-string":
            return self.random.choice([1, "10%", "http", "1", -1, "a b"])
        if schema.get("format") == "date-time":
            return self.random.choice(["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.123456Z", "2020-01-02"])
        if schema.get("format") == "byte":
            return self.random.choice(["YQ==", "", "YQ", "a b"])
        return self.random.choice(["a", "b", "a-b", "example.com/a", "1", "10m", "1Gi"] + self.random.sample(TEXTS, 2))

    def resolve(self, schema):
        for _ in range(4):
            if "$ref" not in schema:
                break
            schema = self.corpus.definitions.get(schema["$ref"].rsplit("/", 1)[-1], {})
        return schema

    def schema_at(self, schema, path):
        for part in path:
            schema = self.resolve(schema)
            if isinstance(part, int):
                schema = schema.get("items", {})
            else:
                inner = schema.get("additionalProperties")
                schema = schema.get("properties", {}).get(part, inner if isinstance(inner, dict) else {})
        return self.resolve(schema)

    # ---- places

    def places(self, value, path=()):
        yield path
        if isinstance(value, dict):
            for key in value:
                yield from self.places(value[key], path + (key,))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self.places(item, path + (number,))

    @staticmethod
    def at(value, path):
        for part in path:
            value = value[part]
        return value

    # ---- changes

    def change(self, body, schema=None, fixed=()):
        """Changes one place of an object in place; the fields named by `fixed` stay."""
        body = body if isinstance(body, (dict, list)) else {}
        places = [path for path in self.places(body) if path and not (len(path) == 1 and path[0] in fixed)]
        objects = [path for path in self.places(body) if isinstance(self.at(body, path), dict)]
        draw = self.random.random()
        if schema and objects and (draw < 0.5 or not places):
            return self.extend(body, schema, self.random.choice(objects), fixed)
        if not places:
            return body
        path = self.random.choice(places)
        parent, last = self.at(body, path[:-1]), path[-1]
        field = next((part for part in reversed(path) if isinstance(part, str)), "")
        if draw < 0.62:
            del parent[last]
        elif draw < 0.68:
            parent[last] = None
        elif draw < 0.9 or not isinstance(parent, (dict, list)):
            parent[last] = self.value(field)
        elif isinstance(parent, list):
            item = copy.deepcopy(parent[last])
            parent.insert(self.random.randint(0, len(parent)), item)
            if isinstance(item, dict) and item and self.random.random() < 0.5:
                key = self.random.choice(sorted(item))
                item[key] = self.value(key)
        else:
            parent[self.random.choice(KEYS)] = self.value("")
        return body

    def extend(self, body, schema, path, fixed):
        """Sets a field that the schema has at a place."""
        properties = self.schema_at(schema, path).get("properties")
        if not properties:
            return body
        names = [name for name in sorted(properties) if path or name not in fixed]
        name = self.random.choice(names) if names else None
        if name and name != "managedFields":
            self.at(body, path)[name] = self.of_schema(properties[name], name, 3)
        return body

    def changed(self, body, schema=None, fixed=("apiVersion", "kind"), least=0):
        """A copy with none to three changes."""
        body = copy.deepcopy(body)
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 3]) or least):
            body = self.change(body, schema, fixed if self.random.random() < 0.97 else ())
        return body
