//! Protobuf against prost: a ConfigMap that one of both reads has the same fields for the other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use schema::{Value, proto};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
    #[prost(bool, optional, tag = "4")]
    immutable: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
}

fuzz_target!(|data: &[u8]| {
    let ours = proto::decode(data, &api::tables::K_CORE_V1_CONFIG_MAP.root);
    let theirs = ConfigMap::decode(data);
    // the mirror knows few fields, so ours may find more to refuse; prost refuses text that is not UTF-8
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    let meta = theirs.metadata.unwrap_or_default();
    assert_eq!(ours.text(&["metadata", "name"]), meta.name);
    assert_eq!(ours.text(&["metadata", "namespace"]), meta.namespace);
    let generation = ours.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or_default();
    assert_eq!(generation, meta.generation);
    assert_eq!(map(&ours, &["metadata", "labels"]), meta.labels);
    assert_eq!(map(&ours, &["data"]), theirs.data);
    assert_eq!(ours.at(&["immutable"]).and_then(Value::as_bool), theirs.immutable);
});

fn map(value: &Value, path: &[&str]) -> BTreeMap<String, String> {
    let entries = value.at(path).and_then(Value::as_map).into_iter().flat_map(|it| it.iter());
    entries.map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned())).collect()
}
