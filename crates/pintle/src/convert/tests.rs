//! Every sample through every format, and the errors.

use super::*;

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/samples");

fn samples() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(SAMPLES).expect("samples").map(|entry| entry.expect("readable").path());
    let read = |path: std::path::PathBuf| (path.display().to_string(), fs::read(path).expect("readable"));
    entries.map(read).filter(|(name, _)| name.ends_with(".yaml")).collect()
}

fn to(form: Format, bytes: &[u8]) -> Vec<u8> {
    convert_bytes(bytes, form).unwrap_or_else(|why| panic!("{why:#}: {}", String::from_utf8_lossy(bytes)))
}

fn refused(form: Format, bytes: &[u8]) -> String {
    format!("{:#}", convert_bytes(bytes, form).expect_err("should be refused"))
}

#[test]
fn every_sample_goes_through_every_form() {
    let samples = samples();
    assert!(samples.len() > 50, "{} samples", samples.len());
    for (name, text) in samples {
        let json = to(Format::Json, &text);
        let yaml = to(Format::Yaml, &text);
        assert_eq!(to(Format::Yaml, &json), yaml, "{name}: JSON and YAML say the same");
        assert_eq!(to(Format::Json, &yaml), json, "{name}: and back");
        // protobuf has the normal form, which text comes to after one turn
        let protobuf = to(Format::Protobuf, &text);
        for form in [Format::Json, Format::Yaml] {
            let normal = to(form, &protobuf);
            assert_eq!(to(Format::Protobuf, &normal), protobuf, "{name}: {form:?}");
            assert_eq!(to(form, &normal), normal, "{name}: {form:?}");
        }
        for cut in [5, protobuf.len() / 2, protobuf.len() - 5] {
            let message = refused(Format::Yaml, &protobuf[..cut]);
            assert!(
                ["truncated", "damaged", "built-in", "apiVersion"].iter().any(|part| message.contains(part)),
                "{name} cut at {cut}: {message}"
            );
        }
    }
}

#[test]
fn values_copied_out_of_etcd_are_understood() {
    let value = to(Format::Protobuf, b"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: b}}");
    let plain = to(Format::Json, &value);
    let behind = [&value[..], b"\n"].concat();
    let keyed = [b"/registry/configmaps/default/x\n", &behind[..]].concat();
    let coded = STANDARD.encode(&value).into_bytes();
    for copied in [behind, keyed, coded] {
        assert_eq!(to(Format::Json, &copied), plain);
    }
}

#[test]
fn retired_versions_and_options_have_every_form() {
    let objects = [
        "{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: x}, spec: {minAvailable: 1}}",
        "{apiVersion: extensions/v1beta1, kind: Ingress, metadata: {name: x}, spec: {backend: {serviceName: s, servicePort: web}}}",
        "{apiVersion: extensions/v1beta1, kind: DeploymentRollback, name: x, rollbackTo: {revision: 3}}",
        "{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: Role, metadata: {name: x}, rules: [{verbs: [get], resources: [pods]}]}",
        "{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: x}, spec: {privileged: true}}",
        "{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: x}, spec: {version: v1}}",
        "{apiVersion: v1, kind: DeleteOptions, gracePeriodSeconds: 3}",
        "{apiVersion: apps/v1, kind: DeleteOptions, gracePeriodSeconds: 3}",
    ];
    for object in objects {
        let protobuf = to(Format::Protobuf, object.as_bytes());
        let json = to(Format::Json, &protobuf);
        assert_eq!(to(Format::Protobuf, &json), protobuf, "{object}");
        let message = String::from_utf8(json).expect("JSON is text");
        let version =
            object.split(['{', ',']).find_map(|it| it.strip_prefix("apiVersion: ")).expect("a version");
        assert!(message.contains(&format!("\"apiVersion\": \"{version}\"")), "{message}");
    }
    let event = to(Format::Protobuf, br#"{"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod"}}"#);
    assert_eq!(to(Format::Protobuf, &to(Format::Json, &event)), event);
    let (old, new) = ("serviceName", "\"name\"");
    let message = to(Format::Json, &to(Format::Protobuf, objects[1].as_bytes()));
    let message = String::from_utf8(message).expect("JSON is text");
    assert!(
        message.contains(old) && message.contains("\"servicePort\": \"web\"") && message.contains(new),
        "{message}"
    );
}

#[test]
fn several_documents_and_lists() {
    let text =
        b"# a comment\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n\n--- # empty\n---\n\
                 apiVersion: example.com/v1\nkind: Widget\nspec: {size: 1, deep: [null, {}]}\n";
    let json = String::from_utf8(to(Format::Json, text)).expect("text");
    assert!(json.contains("\"Secret\"") && json.contains("\"Widget\"") && json.contains("null"), "{json}");
    let yaml = String::from_utf8(to(Format::Yaml, text)).expect("text");
    assert_eq!(yaml.matches("---\n").count(), 1, "{yaml}");
    assert!(refused(Format::Protobuf, text).contains("there are 2"));
    let list = br#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
        "items":[{"metadata":{"name":"a","creationTimestamp":null}},{"metadata":{"name":"b","creationTimestamp":null},"data":{"k":"AA=="}}]}"#;
    let there = to(Format::Protobuf, list);
    let kind = proto::open(&there).expect("an envelope").kind;
    assert_eq!((kind.as_str(), to(Format::Json, &there)), ("SecretList", to(Format::Json, list)));
    let mixed = b"{kind: List, apiVersion: v1, metadata: {}, items: [{kind: Widget, apiVersion: e.org/v1}]}";
    assert_eq!(to(Format::Yaml, &to(Format::Protobuf, mixed)), to(Format::Yaml, mixed));
}

#[test]
fn errors_are_reported() {
    for (form, bytes, part) in [
        (
            Format::Protobuf,
            &b"{apiVersion: example.com/v1, kind: Widget}"[..],
            "example.com/v1 Widget is not a built-in",
        ),
        (Format::Protobuf, b"{metadata: {name: x}}", "apiVersion or kind is missing"),
        (Format::Protobuf, b"{apiVersion: v1, kind: Secret, datum: {}}", "unknown field \"datum\""),
        (Format::Protobuf, b"{apiVersion: v1, kind: Secret, data: 5}", "not a valid Secret"),
        (Format::Protobuf, b"{apiVersion: meta.k8s.io/v1, kind: Table}", "has no protobuf encoding"),
        (Format::Json, b"a: {b: 1\n", "document 1: yaml:"),
        (Format::Json, b"a: 1\n---\n- x\n", "document 2 is not an object"),
        (Format::Json, b"a: 1\na: 2\n", "already set"),
        (Format::Json, b"\xff\xfe", "neither text nor protobuf"),
        (Format::Json, b"\n# nothing\n", "contains no object"),
        (Format::Json, b"k8s\0", "damaged: empty body"),
        (
            Format::Json,
            b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Widget\x12\x02\x0a\x00",
            "v1 Widget is not a built-in",
        ),
        (Format::Json, b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x7f\x0a", "truncated"),
    ] {
        let message = refused(form, bytes);
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}
