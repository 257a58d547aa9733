"""Compares two responses. Values that the servers choose (uids, versions, times, addresses) are paired, not compared.

A difference is a path in the response with both values. Pairs are kept for one case: a resourceVersion that upstream
repeats must be repeated here, too, so that a write without a change is seen as one.
"""
import datetime
import json
import re

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+]0000 UTC)( m=[+]\d+\.\d+)?")
REPLACED = [
    (UID, "<uid>"),
    (re.compile(r"\(?0x[0-9a-f]{9,12}\)?|(?<=\))\(0x1\)"), "<pointer>"),
    (re.compile(r"selfType\d+"), "<self>"),
    (re.compile(r"\b10\.0\.\d{1,3}\.\d{1,3}\b"), "<ip>"),
    (re.compile(r'(resourceVersion\\*":\\*"|ResourceVersion in record \()\d+'), r"\1<version>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+:\d{4,5}$"), "<server>"),
    # the name of a scheme depends on the compiler that built upstream
    (re.compile(r'in scheme \\*"[\w./-]+\.go:\d+'), 'in scheme "<scheme>'),
    # and so does what is left of a time whose year is no number
    (re.compile(r'(cannot parse \\*")[^"\\]*(\\*" as \\*"2006\\*")'), r"\1<rest>\2"),
    # the group of kinds that moved is chosen at each start
    (re.compile(r"\b((?:Deployment|DaemonSet|ReplicaSet|Ingress|NetworkPolicy)\.)(?:extensions|apps|networking\.k8s\.io)"), r"\1<group>"),
]
AGE = re.compile(r"(\d+[smhd])+|<invalid>")
CHOSEN = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "continue", "token"}
# the groups of kinds that moved, one of which is chosen at each start
MOVED = {"extensions", "apps", "networking.k8s.io"}
ABSENT = object()


def recent(text):
    """Whether a time is one that a server has just set."""
    try:
        moment = datetime.datetime.fromisoformat(text[:19].replace(" ", "T")).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return False
    return abs((datetime.datetime.now(datetime.timezone.utc) - moment).total_seconds()) < 86400


class Pairs:
    """Values that the servers chose, by server."""

    def __init__(self):
        self.pairs = {}
        self.names = []
        self.prefixes = set()

    def pair(self, scope, left, right):
        """Whether the two values have been seen together only."""
        forth = self.pairs.setdefault((scope, 0, left), right) == right
        return self.pairs.setdefault((scope, 1, right), left) == left and forth

    def versions(self, left, right):
        """What to call two versions of an object that do not belong together; nothing if they do."""
        seen = [("version", side, value) in self.pairs for side, value in enumerate((left, right))]
        if self.pair("version", left, right):
            return None
        if seen[0] != seen[1]:
            # one server has written where the other has not; from here on these two belong together
            self.pairs["version", 0, left], self.pairs["version", 1, right] = right, left
        return tuple("version before" if it else "new version" for it in seen)

    def expect_generated(self, body):
        """Remembers the prefix of a name that the servers generate, which errors show."""
        metadata = body.get("metadata") if isinstance(body, dict) else None
        prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
        if isinstance(prefix, str) and prefix:
            self.prefixes.add(prefix[:58])

    def name(self, left, right):
        if (left, right) not in self.names:
            self.names.append((left, right))

    def paired_name(self, name):
        """The name on the left of an object whose name on the right this is."""
        chosen = {right: left for left, right in self.names}
        return self.pairs.get(("uid", 1, name), chosen.get(name, name))

    def text(self, text, side):
        for number, names in enumerate(self.names):
            text = text.replace(names[side], "<name%d>" % number)
        text = TIME.sub(lambda found: "<time>" if recent(found[0]) else found[0], text)
        for pattern, replacement in REPLACED:
            text = pattern.sub(replacement, text)
        for prefix in self.prefixes:
            text = re.sub(r"(?<![\w.<-])" + re.escape(prefix) + r"[a-z0-9]{5}(?![\w>-])", "<generated>", text)
        return text


def ordered(value, key=""):
    """Sorts lists that upstream writes in no fixed order."""
    if isinstance(value, dict):
        return {name: ordered(item, name) for name, item in value.items()}
    if isinstance(value, list):
        value = [ordered(item) for item in value]
        if key in ("managedFields", "causes") and all(isinstance(item, dict) for item in value):
            value.sort(key=lambda it: json.dumps({k: v for k, v in it.items() if k != "time"}, sort_keys=True))
    return value


class Comparison:
    def __init__(self, pairs):
        self.pairs, self.found = pairs, []

    def differ(self, path, left, right):
        self.found.append((path, left, right))

    def values(self, left, right, path="", key=""):
        if type(left) is type(right) is dict:
            if {"name", "generateName"} <= left.keys() & right.keys() and left["name"] != right["name"]:
                self.generated(left, right)
            for name in sorted(left.keys() | right.keys()):
                at = path + "/" + name
                if name not in right:
                    self.differ(at, left[name], ABSENT)
                elif name not in left:
                    self.differ(at, ABSENT, right[name])
                else:
                    self.values(left[name], right[name], at, name)
        elif type(left) is type(right) is list and len(left) == len(right):
            for place, (one, other) in enumerate(zip(left, right)):
                self.values(one, other, "%s/%d" % (path, place), key)
        elif type(left) is type(right) is str:
            self.texts(left, right, path, key)
        elif left != right or type(left) is not type(right):
            if not (key in CHOSEN and type(left) is type(right) is int):
                self.differ(path, left, right)

    def versions(self, left, right):
        versions = shown_version(left), shown_version(right)
        if all(versions):
            self.texts(*versions, "/metadata/resourceVersion", "resourceVersion")

    def generated(self, left, right):
        prefix = left["generateName"]
        if left["name"][:-5] == right["name"][:-5] and len(left["name"]) == len(right["name"]) and prefix:
            self.pairs.name(left["name"], right["name"])

    def texts(self, left, right, path, key):
        if key == "resourceVersion" and left.isdigit() and right.isdigit():
            words = self.pairs.versions(left, right)
            if words:
                self.differ(path, *words)
            return
        if left == right or key in CHOSEN and left and right:
            return
        if UID.fullmatch(left) and UID.fullmatch(right):
            if not self.pairs.pair("uid", left, right):
                self.differ(path, left, right)
            return
        if AGE.fullmatch(left) and AGE.fullmatch(right) and "/cells/" in path:
            return
        one, other = self.pairs.text(left, 0), self.pairs.text(right, 1)
        if (key == "group" or path.startswith("protobuf/")) and {left, right} <= MOVED:
            return
        if one != other and not (key == "message" and same_pieces(one, other)):
            self.differ(path, one, other)


def same_pieces(left, right):
    """Whether two messages list the same errors in another order."""
    def pieces(text):
        return sorted(re.split(r", |\[|\]| and |: ", text))
    return len(left) == len(right) and pieces(left) == pieces(right)


def fields(data):
    """The fields of a protobuf message as (number, wire type, value); None if it is none."""
    found, at = [], 0

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    try:
        while at < len(data):
            tag, at = varint(at)
            wire = tag & 7
            if tag < 8 or wire not in (0, 1, 2, 5):
                return None
            if wire == 0:
                value, at = varint(at)
            else:
                size, at = varint(at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
                value, at = data[at:at + size], at + size
                if at > len(data):
                    return None
            found.append((tag >> 3, wire, value))
    except IndexError:
        return None
    return found


def tree(data, pairs, side):
    """A message as nested lists in which the values that servers choose are replaced."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    message = None if text is not None and text.isprintable() else fields(data)
    if message is None:
        text = data.hex() if text is None else pairs.text(text, side)
        return "<number>" if re.fullmatch(r"[1-9]\d*", text) else text
    return [[number, "<moment>" if wire == 0 and abs(value - datetime.datetime.now().timestamp()) < 86400 else
             value if wire == 0 else tree(value, pairs, side) if wire == 2 else value.hex()]
            for number, wire, value in message]


YAML_METADATA = re.compile(r"(?m)^metadata:\n((?:  .*\n?)+)")
YAML_VERSION = re.compile(r'(?m)^  resourceVersion: "(\d+)"$')


def shown_version(response):
    """The version of the one object that a response in YAML or protobuf shows; the texts are compared without it."""
    if response.body.startswith(b"k8s\0"):
        message = response.body[4:]
        for place in (2, 1, 6):
            message = next((value for number, wire, value in fields(message) or [] if (number, wire) == (place, 2)), b"")
        text = message.decode(errors="replace")
        return text if text.isdigit() else None
    text = response.body.decode(errors="replace")
    metadata = None if re.search("(?m)^(items|rows):", text) else YAML_METADATA.search(text)
    found = metadata and YAML_VERSION.search(metadata[1])
    return found and found[1]


def events(response):
    """The events of a watch, without those that report only a version, which servers send at times of their own."""
    text, found, at = response.body.decode().strip(), [], 0
    while at < len(text):
        event, at = json.JSONDecoder().raw_decode(text, at)
        while text[at:at + 1].isspace():
            at += 1
        if not isinstance(event, dict) or event.keys() != {"type", "object"}:
            raise ValueError("no event")
        # descriptions are this server's own texts
        for column in event["object"].get("columnDefinitions") or []:
            column.pop("description", None)
        if event["type"] != "BOOKMARK":
            found.append(ordered(event))
    return found


def document(response, unordered):
    """The JSON body without the version of a list, which other cases change, and without texts of columns."""
    if response.is_watch and response.status == 200:
        found = events(response)
        if unordered:
            found.sort(key=lambda it: json.dumps((it["object"].get("metadata") or {}).get("name")))
        return found
    body = ordered(json.loads(response.body))
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict) and body.keys() & {"items", "rows"}:
        body["metadata"].pop("resourceVersion", None)
    if unordered and isinstance(body, dict) and isinstance(body.get("items"), list):
        body["items"].sort(key=lambda it: json.dumps((it.get("metadata") or {}).get("name")) if isinstance(it, dict) else "")
    # descriptions are this server's own texts
    for column in body.get("columnDefinitions") or [] if isinstance(body, dict) else []:
        column.pop("description", None)
    return body


def arrange(left, right, pairs):
    """Gives the items of a sorted list the order of the other list, where a server has chosen names."""
    def names(items):
        metadata = [((it.get("object", it) or {}).get("metadata") or {}) for it in items]
        return [(it.get("namespace", ""), it.get("name", "")) for it in metadata]
    for field in ("items", "rows"):
        lists = [body.get(field) if isinstance(body, dict) else None for body in (left, right)]
        if not all(isinstance(items, list) and all(isinstance(it, dict) for it in items) for items in lists):
            continue
        theirs, ours = map(names, lists)
        if theirs != sorted(theirs) or ours != sorted(ours) or len(theirs) != len(ours):
            continue
        places = {name: place for place, (_, name) in enumerate(theirs)}
        paired = [places.get(pairs.paired_name(name)) for _, name in ours]
        if sorted(paired, key=str) == sorted(range(len(ours)), key=str):
            right[field] = [item for _, item in sorted(zip(paired, right[field]), key=lambda it: it[0])]


PATH_ELEMENT = re.compile(r'\.[^.\[]+|\[(?:"(?:[^"\\]|\\.)*"|[^\]"])*\]')


def overwritten(paths):
    """The paths of a set as upstream lists them: each is appended to the array of its parent, and those that share
    an array overwrite each other's last elements."""
    root, listed = ([], {}), []
    for path in paths:
        node, elements = root, PATH_ELEMENT.findall(path)
        for element in elements[:-1]:
            node = node[1].setdefault(element, ([], {}))
        node[0].append(elements[-1] if elements else "")

    def append(slice, element):
        array, length = slice
        if length == len(array):
            array = array + [None] * max(length, 1)
        array[length] = element
        return array, length + 1

    def walk(node, prefix):
        members, children = node
        listed.extend(append(prefix, member) for member in members)
        for element, child in children.items():
            walk(child, append(prefix, element))
    walk(root, ([], 0))
    return ["".join(array[:length]) for array, length in listed]


def has_overwritten_paths(left, right):
    """Whether upstream's conflicts are those here, in their order, with overwritten paths."""
    def conflicts(body):
        causes = (body.get("details") or {}).get("causes") if isinstance(body, dict) else None
        return [(it.get("message"), it.get("field", "")) for it in causes or [] if it.get("reason") == "FieldManagerConflict"]
    theirs, ours = conflicts(left), conflicts(right)
    if not ours or sorted(theirs) == sorted(ours):
        return False
    expected = []
    for manager in dict.fromkeys(message for message, _ in ours):
        expected += [(manager, path) for path in overwritten([field for message, field in ours if message == manager])]
    return sorted(expected) == sorted(theirs)


def without_consequences(found, bodies):
    """One difference for responses of another status; none of a message or subject that only follows from the causes."""
    if found and found[0][0] == "status":
        statuses = [{"code": body.get("code"), "message": body.get("message")} if isinstance(body, dict) and body.get("kind") == "Status"
                    else "success" for body in bodies]
        return [("status", *statuses)]
    if any(path.startswith("/details/causes") for path, _, _ in found):
        return [it for it in found if it[0] not in ("/message", "/details/group", "/details/kind", "/details/name")]
    return found


def outcome(response, pairs, side):
    """The status of a response in protobuf, as that of one in JSON is compared."""
    if response.status < 400:
        return "success"
    body = next((value for number, wire, value in fields(response.body[4:]) or [] if (number, wire) == (2, 2)), b"")
    message = next((value for number, wire, value in fields(body) or [] if (number, wire) == (3, 2)), b"")
    return {"code": response.status, "message": pairs.text(message.decode(errors="replace"), side)}


MISTYPED = re.compile(r'in body must be of type (string|number|integer|boolean|array): "object"$')


def below_mistyped(response):
    """The paths of objects that a custom resource has in the place of another type, as the causes of an error name them."""
    try:
        causes = json.loads(response.body)["details"]["causes"]
        return {it["field"] for it in causes if MISTYPED.search(it["message"])}
    except (ValueError, TypeError, KeyError):
        return set()


def without_mistyped(left, right, warnings, found):
    """The differences of two errors, apart from fields inside of an object in the place of another type, which is one."""
    paths = tuple(path + "." for path in below_mistyped(left) & below_mistyped(right))
    if not paths:
        return found
    def others(items, path_of):
        return [it for it in items if not path_of(it).startswith(paths)]
    def warned(warning):
        return warning.partition('unknown field \\"')[2]
    def causes(response):
        return sorted(others(json.loads(response.body)["details"]["causes"], lambda it: it["field"]), key=json.dumps)
    same = {"Warning": others(warnings[0], warned) == others(warnings[1], warned),
            "/details/causes": causes(left) == causes(right)}
    kept = [it for it in found if not same.get(re.sub(r"^(/details/causes)/.*", r"\1", it[0]))]
    return kept + [("fields of an object in the place of another type", *it[1:]) for it in found if it not in kept][:1]


def compare(left, right, pairs, unordered=False):
    """The differences of two responses, as (path, left, right); the order of a list counts unless it is `unordered`."""
    result = Comparison(pairs)
    if left.status != right.status:
        result.differ("status", left.status, right.status)
    if left.status == 0 or right.status == 0:
        return result.found
    if left.media_type() != right.media_type():
        result.differ("Content-Type", left.media_type(), right.media_type())
    warnings = [sorted(pairs.text(it, side) for it in response.warnings()) for side, response in enumerate((left, right))]
    if warnings[0] != warnings[1]:
        result.differ("Warning", *warnings)
    if left.body.startswith(b"k8s\0") and right.body.startswith(b"k8s\0"):
        if left.status != right.status:
            return [("status", *(outcome(response, pairs, side) for side, response in enumerate((left, right))))]
        trees = tree(left.body[4:], pairs, 0), tree(right.body[4:], pairs, 1)
        if trees[0] != trees[1]:
            result.values(*trees, "protobuf")
        result.versions(left, right)
        return result.found
    try:
        bodies = [document(response, unordered) for response in (left, right)]
    except ValueError:
        texts = [pairs.text(response.body.decode(errors="replace").strip(), side)
                 for side, response in enumerate((left, right))]
        texts = [re.sub(r'(resourceVersion: "?|continue: )\d+', r"\1<version>", text) for text in texts]
        texts = [re.sub(r"(?m)^  group: (%s)$" % "|".join(MOVED), "  group: <group>", text) for text in texts]
        # descriptions of columns are this server's own texts
        texts = [re.sub(r"(?ms)^(- |  )description: .*?^  (?=format:)", r"\1", text) for text in texts]
        # long lines are folded, at a place that depends on the length of the group
        if all("  group: <group>" in text for text in texts):
            texts = [re.sub(r"\n +", " ", text) for text in texts]
        if texts[0] != texts[1]:
            lines = [text.split("\n") for text in texts]
            odd = [(one, other) for one, other in zip(*lines) if one != other] or [(len(lines[0]), len(lines[1]))]
            result.differ("text", *odd[0])
        result.versions(left, right)
        return result.found
    arrange(*bodies, pairs)
    if all(isinstance(it, dict) for it in bodies) and has_overwritten_paths(bodies[0], json.loads(right.body)):
        return [("/details/causes", "overwritten paths", "paths")]
    result.values(*bodies)
    return without_mistyped(left, right, warnings, without_consequences(result.found, bodies))


def written(value):
    if value is ABSENT:
        return "(absent)"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
