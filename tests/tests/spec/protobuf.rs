//! "Protobuf envelope": the same objects in another encoding.

use super::*;
use tests::{ApiResponse, Cluster};

pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = &[0x6b, 0x38, 0x73, 0x00];

/// The fields of a message whose values have a length, as number and bytes.
fn parts(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => drop(varint(&mut message)),
            2 => {
                let length = varint(&mut message) as usize;
                let (value, rest) = message.split_at(length);
                found.push((tag >> 3, value));
                message = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number that ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number that does not end")
}

fn part(message: &[u8], number: u64) -> &[u8] {
    let found = parts(message).into_iter().find(|(n, _)| *n == number);
    found.unwrap_or_else(|| panic!("no field {number}")).1
}

/// Takes an envelope apart: version, kind, message.
fn open(answer: &ApiResponse) -> (String, String, Vec<u8>) {
    let body = answer.body.strip_prefix(MAGIC).unwrap_or_else(|| panic!("no prefix: {}", answer.text()));
    let kind = part(body, 1);
    let text = |number| String::from_utf8(part(kind, number).to_vec()).unwrap();
    (text(1), text(2), part(body, 2).to_vec())
}

async fn with_one() -> (Cluster, String) {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": "v"}})).await;
    (cluster, format!("{CONFIGMAPS}/x"))
}

#[tokio::test]
async fn an_object_travels_in_an_envelope() {
    let (cluster, path) = with_one().await;
    let answer = cluster.get(&path).accept(PROTOBUF).await.code(200);
    assert_eq!(answer.header("content-type"), PROTOBUF);
    let (version, kind, message) = open(&answer);
    assert_eq!((&*version, &*kind), ("v1", "ConfigMap"));
    assert_eq!(part(part(&message, 1), 1), b"x", "the name is the first field of the metadata");
}

#[tokio::test]
async fn responses_are_accepted_as_requests() {
    let (cluster, path) = with_one().await;
    let before = cluster.read(&path).await;
    let body = cluster.get(&path).accept(PROTOBUF).await.code(200).body;
    let put = cluster.put(&path, body.to_vec()).content_type(PROTOBUF).await.code(200);
    assert_eq!(put.json(), before, "nothing is lost on the way");
    cluster.delete(&path).await.code(200);
    // a version cannot be given to something new, so the bytes of the old one have to be made without it
    let dry = cluster
        .post(&format!("{CONFIGMAPS}?dryRun=All"), json!({"metadata": {"name": "x"}, "data": {"k": "v"}}));
    let new = dry.accept(PROTOBUF).await.code(201).body;
    let created = cluster.post(CONFIGMAPS, new.to_vec()).content_type(PROTOBUF).await.code(201).json();
    assert_eq!(created["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn lists_and_errors_are_encoded() {
    let (cluster, path) = with_one().await;
    let (version, kind, message) = open(&cluster.get(CONFIGMAPS).accept(PROTOBUF).await.code(200));
    assert_eq!((&*version, &*kind), ("v1", "ConfigMapList"));
    assert_eq!(parts(&message).iter().filter(|(number, _)| *number == 2).count(), 1);
    let (version, kind, message) =
        open(&cluster.get(&format!("{path}-not")).accept(PROTOBUF).await.code(404));
    assert_eq!((&*version, &*kind), ("v1", "Status"));
    assert_eq!(part(&message, 4), b"NotFound");
}

#[tokio::test]
async fn bytes_without_the_prefix_are_rejected() {
    let cluster = Cluster::start().await;
    for body in [
        &b"{\"metadata\":{\"name\":\"x\"}}"[..],
        b"",
        b"k8s",
        b"k8s\0garbage",
        &[MAGIC, &[0xff; 40]].concat(),
    ] {
        let ask = cluster.post(CONFIGMAPS, body.to_vec()).content_type(PROTOBUF);
        ask.await.refused(400, "BadRequest");
    }
    cluster.answers().await;
}

/// A field with a length.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [&out, bytes].concat()
}

pub(super) fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let names = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC, &field(1, &names), &field(2, message)].concat()
}

#[tokio::test]
async fn a_record_of_owners_that_is_none_is_left_out() {
    let cluster = Cluster::start().await;
    for (nth, fields) in [&b"{\"f:data\""[..], b"x", b"\xff", b"[]"].into_iter().enumerate() {
        let name = format!("x{nth}");
        let entry = [
            field(1, b"m"),
            field(2, b"Update"),
            field(3, b"v1"),
            field(6, b"FieldsV1"),
            field(7, &field(1, fields)),
        ];
        // the seventeenth field of the metadata, whose tag takes two bytes
        let entries = [&[0x8a], &*field(0, &entry.concat())].concat();
        let entries = [&entries[..1], &[1], &entries[2..]].concat();
        let metadata = field(1, &[field(1, name.as_bytes()), entries].concat());
        let data = field(2, &[field(1, b"k"), field(2, b"v")].concat());
        let body = envelope("v1", "ConfigMap", &[metadata, data].concat());
        let created = cluster.post(CONFIGMAPS, body).content_type(PROTOBUF).await.code(201).json();
        let managed = &created["metadata"]["managedFields"];
        assert_eq!(managed.as_array().map(Vec::len), Some(1), "{created}");
        assert_ne!(managed[0]["manager"], "m", "the creator owns what it brought");
    }
}

#[tokio::test]
async fn errors_of_messages_are_reported() {
    let cluster = Cluster::start().await;
    let metadata = field(1, &field(1, b"x"));
    let config = |rest: &[u8]| envelope("v1", "ConfigMap", &[&metadata, rest].concat());
    let whole = config(&field(2, &[field(1, b"k"), field(2, b"v")].concat()));
    let truncated = whole.len() - 3;
    for (body, part) in [
        (vec![], "empty data"),
        (MAGIC.to_vec(), "empty body"),
        (whole[4..].to_vec(), "expected prefix [107 56 115 0]"),
        (b"K8S\0".to_vec(), "expected prefix [107 56 115 0]"),
        (whole[..truncated].to_vec(), "unexpected EOF"),
        (config(&[0x12, 0xff, 0xff, 0xff, 0x7f]), "unexpected EOF"),
        (config(&[&[0x12][..], &[0xff; 9], &[0x01]].concat()), "negative length"),
        (config(&[0x80; 12]), "integer overflow"),
        (config(&[0x10, 0x01]), "wrong wireType = 0 for field Data"),
        (config(&[0x0c]), "wiretype end group for non-group"),
        (config(&[0x00, 0x00]), "illegal tag 0"),
        (config(&[0xa7, 0x06]), "illegal wireType 7"),
        (config(&[0xa3, 0x06].repeat(100_000)), "unexpected EOF"),
        (envelope("v1", "Widget", &metadata), "no kind \"Widget\" is registered"),
        (envelope("v1", "Secret", &metadata), "cannot be handled as a ConfigMap"),
    ] {
        let status = cluster.post(CONFIGMAPS, body).content_type(PROTOBUF).await.refused(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().contains(part), "{part}: {status}");
    }
    // every other cut is noticed too, unless it leaves a whole message; nothing is made of a part
    for end in 0..whole.len() {
        let cut =
            cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), whole[..end].to_vec()).content_type(PROTOBUF);
        let answer = cut.await;
        assert!(matches!(answer.status, 400 | 422), "cut at {end}: {}", answer.text());
    }
    cluster.post(CONFIGMAPS, whole).content_type(PROTOBUF).await.code(201);
}

#[tokio::test]
async fn nesting_of_messages_is_limited() {
    const DEPTH: usize = 20_000;
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let cluster = Cluster::start().await;
    // a schema whose negation is a schema with a negation, and so on: definition, spec, versions, schema, and then it repeats
    let mut schema: Vec<u8> = Vec::new();
    for _ in 0..DEPTH {
        schema = [&[0xe2, 0x01][..], &field(0, &schema)[1..]].concat();
    }
    let version = [field(1, b"v1"), field(4, &field(1, &schema))].concat();
    let spec = [field(1, b"example.com"), field(7, &version)].concat();
    let message = [field(1, &field(1, b"widgets.example.com")), field(2, &spec)].concat();
    let body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &message);
    let status = cluster.post(DEFINITIONS, body).content_type(PROTOBUF).await.refused(400, "BadRequest");
    assert!(status["message"].as_str().unwrap().contains("exceeded max depth"), "{status}");
    cluster.answers().await;
}

#[tokio::test]
async fn fields_of_a_schema_are_named_as_messages_show_them() {
    let cluster = Cluster::start().await;
    // a number or a text where the schema has something else
    let cases: [(&[u8], &str); 4] = [
        (&[0xc2, 0x02, 0], "wrong wireType = 2 for field XIntOrString"),
        (&[0xd0, 0x02, 0], "wrong wireType = 0 for field XListType"),
        (&[0x10, 0], "wrong wireType = 0 for field Schema"),
        (&[0x18, 0], "wrong wireType = 0 for field Ref"),
    ];
    for (schema, words) in cases {
        let version = [field(1, b"v1"), field(4, &field(1, schema))].concat();
        let body =
            envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &field(7, &version)));
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let status = cluster.post(definitions, body).content_type(PROTOBUF).await.refused(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().ends_with(words), "{status}");
    }
}

#[tokio::test]
async fn a_client_may_accept_json_as_well() {
    let (cluster, path) = with_one().await;
    let accept = format!("{PROTOBUF}, application/json");
    assert_eq!(cluster.get(&path).accept(&accept).await.code(200).header("content-type"), PROTOBUF);
}

#[tokio::test]
async fn fields_of_nested_messages_are_named_in_errors() {
    let cluster = Cluster::start().await;
    let in_spec = |bytes: &[u8]| field(2, bytes);
    let cases = [
        (
            "persistentvolumes",
            "PersistentVolume",
            in_spec(&[0x10, 1]),
            "wrong wireType = 0 for field PersistentVolumeSource",
        ),
        (
            "persistentvolumes",
            "PersistentVolume",
            in_spec(&field(2, &[0, 0])),
            "PersistentVolumeSource: illegal tag 0 (wire type 0)",
        ),
        (
            "persistentvolumes",
            "PersistentVolume",
            in_spec(&field(2, &[0x48, 1])),
            "wrong wireType = 0 for field CephFS",
        ),
        (
            "persistentvolumes",
            "PersistentVolume",
            in_spec(&field(2, &field(6, &[0x08, 1]))),
            "wrong wireType = 0 for field CephMonitors",
        ),
        ("pods", "Pod", in_spec(&field(1, &[0x10, 1])), "wrong wireType = 0 for field VolumeSource"),
        ("pods", "Pod", in_spec(&[0x48, 1]), "wrong wireType = 0 for field DeprecatedServiceAccount"),
        ("pods", "Pod", vec![0x08, 1], "wrong wireType = 0 for field ObjectMeta"),
        // a message of another kind is decoded as that kind
        (
            "pods",
            "PersistentVolume",
            in_spec(&[0x10, 1]),
            "handled as a Pod: proto: wrong wireType = 0 for field PersistentVolumeSource",
        ),
    ];
    for (plural, kind, message, words) in cases {
        let place = if plural == "pods" { PODS.to_owned() } else { format!("/api/v1/{plural}") };
        let body = envelope("v1", kind, &message);
        let status = cluster.post(&place, body).content_type(PROTOBUF).await.refused(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().ends_with(words), "{status}");
    }
}
