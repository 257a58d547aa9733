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

    def test_a_write_of_one_server_alone_is_told_once(self):
        pairs = Pairs()
        self.assertEqual(paths(thing("5"), thing("9"), pairs), [])
        told = [("/metadata/resourceVersion", "new version", "version before")]
        self.assertEqual(compare(thing("6"), thing("9"), pairs), told)
        self.assertEqual(compare(thing("6"), thing("9"), pairs), [])
        told = [("/metadata/resourceVersion", "version before", "new version")]
        self.assertEqual(compare(thing("6"), thing("10"), pairs), told)
        self.assertEqual(compare(thing("6"), thing("10"), pairs), [])
        told = [("/metadata/resourceVersion", "version before", "version before")]
        self.assertEqual(compare(thing("5"), thing("10"), pairs), told)

    def test_versions_in_yaml_and_protobuf_are_paired(self):
        def yaml(version):
            text = 'data:\n  resourceVersion: "7"\nkind: A\nmetadata:\n  name: a\n  resourceVersion: "%s"\nspec: {}\n' % version
            return response(text.encode(), media="application/yaml")
        def protobuf(version):
            body = version.encode()
            for number in (6, 1, 2):
                body = bytes([number * 8 + 2, len(body)]) + body
            return response(b"k8s\0" + body)
        pairs = Pairs()
        told = [("/metadata/resourceVersion", "new version", "version before")]
        self.assertEqual(compare(yaml("5"), yaml("9"), pairs), [])
        self.assertEqual(compare(yaml("6"), yaml("9"), pairs), told)
        self.assertEqual(compare(thing("6"), thing("9"), pairs), [])
        self.assertEqual(compare(protobuf("8"), protobuf("9"), pairs), told)
        self.assertEqual(compare(thing("8"), thing("9"), pairs), [])
        # the version of a list is that of the store
        def listed(version):
            return response(b'items: []\nmetadata:\n  resourceVersion: "%d"\n' % version, media="application/yaml")
        self.assertEqual(compare(listed(10), listed(9), pairs), [])

    def test_another_status_in_protobuf_is_one_difference(self):
        def refused(message, status):
            body = bytes([3 * 8 + 2, len(message)]) + message.encode()
            return response(b"k8s\0" + bytes([2 * 8 + 2, len(body)]) + body, status)
        told = [("status", {"code": 422, "message": "a"}, {"code": 500, "message": "b"})]
        self.assertEqual(compare(refused("a", 422), refused("b", 500), Pairs()), told)
        told = [("status", "success", {"code": 500, "message": "b"})]
        self.assertEqual(compare(refused("", 200), refused("b", 500), Pairs()), told)

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

    def test_the_rest_of_a_year_depends_on_the_compiler(self):
        def message(rest):
            return response({"message": 'parsing time "0x10" as "2006-01-02": cannot parse "%s" as "2006"' % rest})
        self.assertEqual(paths(message("0x10"), message("")), [])
        self.assertEqual(paths(message("0x10"), response({"message": "another"})), ["/message"])

    def test_addresses_are_not_compared(self):
        def message(address):
            return response(("message: Controller:(*bool)(%s), B:(*bool)(nil)" % address).encode(), 422, "application/yaml")
        self.assertEqual(paths(message("0xc0012345ab"), message("0x1")), [])
        self.assertEqual(paths(message("0xc0012345ab"), message("nil")), ["text"])

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

    def test_fields_of_an_object_in_the_place_of_another_type_are_one_difference(self):
        def refused(*fields, warnings=()):
            causes = [{"field": "spec", "message": 'Invalid value: "object": spec in body must be of type string: "object"'}]
            causes += [{"field": field, "message": "x"} for field in fields]
            return response({"details": {"causes": causes}}, 422, warnings=['299 - "unknown field \\"%s\\""' % it for it in warnings])
        told = ["fields of an object in the place of another type"]
        self.assertEqual(paths(refused(), refused(warnings=["spec.a"])), told)
        self.assertEqual(paths(refused("spec.b", warnings=["spec.b.c"]), refused(warnings=["spec.a", "spec.b"])), told)
        self.assertEqual(paths(refused(), refused(warnings=["status.a"])), ["Warning"])
        self.assertEqual(paths(refused(), refused("status")), ["/details/causes"])

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
