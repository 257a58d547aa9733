"""Tests of the comparison: python3 tests/differential/compare_test.py"""
import datetime
import email.message
import json
import unittest

from compare import Pairs, compare
from servers import Response

NOW = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
UIDS = ["00000000-0000-0000-0000-00000000000%d" % number for number in range(4)]


def response(body, status=200, media="application/json", warnings=()):
    headers = email.message.Message()
    headers["Content-Type"] = media
    for warning in warnings:
        headers["Warning"] = warning
    return Response(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode())


def paths(left, right, pairs=None):
    return [path for path, _, _ in compare(left, right, pairs or Pairs())]


def thing(version, uid=UIDS[0], **more):
    return response({"metadata": {"resourceVersion": version, "uid": uid, "creationTimestamp": NOW}, **more})


class Comparing(unittest.TestCase):
    def test_chosen_values_are_paired(self):
        pairs = Pairs()
        self.assertEqual(paths(thing("5"), thing("9", UIDS[1]), pairs), [])
        self.assertEqual(paths(thing("5"), thing("9", UIDS[1]), pairs), [])
        self.assertEqual(paths(thing("6"), thing("9", UIDS[1]), pairs), ["/metadata/resourceVersion"])
        self.assertEqual(paths(thing("5"), thing("10", UIDS[1]), pairs), ["/metadata/resourceVersion"])
        self.assertEqual(paths(thing("7"), thing("11", UIDS[2]), pairs), ["/metadata/uid"])

    def test_fields_types_and_headers_are_compared(self):
        self.assertEqual(paths(response({"a": 1}), response({"a": 1.0})), ["/a"])
        self.assertEqual(paths(response({"a": None}), response({})), ["/a"])
        self.assertEqual(paths(response({}, 201), response({}, warnings=["299 - \"x\""])), ["status"])
        self.assertEqual(paths(response({}), response({}, warnings=["299 - \"x\""])), ["Warning"])
        self.assertEqual(paths(response({}), response({}, media="text/plain")), ["Content-Type"])
        self.assertEqual(paths(response({"time": "2020-01-01T00:00:00Z"}), response({"time": "2021-01-01T00:00:00Z"})), ["/time"])

    def test_the_order_of_causes_does_not_matter(self):
        one, other = {"field": "a", "message": "x"}, {"field": "b", "message": "y"}
        left = response({"message": "[a: x, b: y]", "details": {"causes": [one, other]}})
        right = response({"message": "[b: y, a: x]", "details": {"causes": [other, one]}})
        self.assertEqual(paths(left, right), [])
        self.assertEqual(paths(left, response({"message": "[a: x, b: z]", "details": {"causes": [one]}})),
                         ["/details/causes"])

    def test_protobuf_is_compared_by_field(self):
        def message(*texts):
            return response(b"k8s\0" + b"".join(bytes([number * 8 + 2, len(text)]) + text.encode() for number, text in texts))
        self.assertEqual(paths(message((1, UIDS[0])), message((1, UIDS[1]))), [])
        self.assertEqual(paths(message((1, "a b c")), message((1, "a b d"))), ["protobuf/0/1"])
        self.assertEqual(paths(message((1, "a b c")), message((2, "a b c"))), ["protobuf/0/0"])

    def test_descriptions_of_columns_are_not_compared(self):
        def table(description, name):
            text = "columnDefinitions:\n- description: %s\n  format: name\n  name: %s\n" % (description, name)
            return response(text.encode(), media="application/yaml")
        self.assertEqual(paths(table("'a\n    b'", "n"), table("c", "n")), [])
        self.assertEqual(paths(table("a", "n"), table("a", "m")), ["text"])

    def test_the_group_of_a_moved_kind_may_differ(self):
        def details(group, media):
            return response(("details:\n  group: %s\n  kind: %s" % (group, "Ingress")).encode(), 422, media)
        moved, other = details("extensions", "application/yaml"), details("networking.k8s.io", "application/yaml")
        self.assertEqual(paths(moved, other), [])
        self.assertEqual(paths(moved, details("batch", "application/yaml")), ["text"])
        def message(group):
            return response(b"k8s\0" + bytes([10, len(group)]) + group.encode(), 422)
        self.assertEqual(paths(message("apps"), message("extensions")), [])
        self.assertEqual(paths(message("apps"), message("batch")), ["protobuf/0/1"])

    def test_lists_with_chosen_names_are_compared_by_pair(self):
        def named(name, uid):
            return {"metadata": {"name": name, "uid": uid, "resourceVersion": "1"}}
        pairs = Pairs()
        self.assertEqual(paths(response(named(UIDS[0], UIDS[2])), response(named(UIDS[1], UIDS[3])), pairs), [])
        def listed(*names):
            items = [{"metadata": {"name": name}} for name in names]
            return response({"metadata": {}, "items": items})
        # "0.." sorts behind one of the two names and before the other one
        middle = UIDS[0] + "a"
        self.assertEqual(paths(listed(UIDS[0], middle), listed(middle, UIDS[1]), pairs), [])
        self.assertNotEqual(paths(listed("a", "b"), listed("b", "a"), pairs), [])

    def test_conflicts_whose_paths_upstream_overwrites(self):
        def conflicts(*fields):
            causes = [{"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": it} for it in fields]
            return response({"kind": "Status", "details": {"causes": causes}}, 409)
        prefix = '.webhooks[name="a.b"].clientConfig'
        here = conflicts(prefix + ".caBundle", prefix + ".service.port")
        there = conflicts(prefix + ".service", prefix + ".service.port")
        self.assertEqual(compare(there, here, Pairs()), [("/details/causes", "overwritten paths", "paths")])
        other = conflicts(prefix + ".other", prefix + ".service.port")
        self.assertEqual(paths(other, here), ["/details/causes/0/field"])
        self.assertEqual(paths(here, here), [])


if __name__ == "__main__":
    unittest.main()
