//! Every kind, read into its struct and written again, is the object that it was.

use schema::table::{Kind, Type};
use schema::{Value, decode, encode};

use crate::core::v1::Pod;
use crate::tables::sample_objects::{Dice, Maker};
use crate::{
    IntOrString, Kinded, Quantity, ReadError, Resource, Time, from_json, from_json_unmanaged,
    metadata_from_json, to_json,
};

/// Reads an object of a kind and writes it again.
pub(crate) struct RoundTrip {
    kind: &'static Kind,
    pass: fn(&[u8]) -> Result<Vec<u8>, ReadError>,
}

pub(crate) fn round_trip<T: Kinded>() -> RoundTrip {
    RoundTrip { kind: T::kind(), pass: |text| from_json::<T>(text).map(|it| to_json(&it)) }
}

fn decoded(text: &[u8], ty: &Type, at: &str) -> Value {
    decode::json(text, ty)
        .unwrap_or_else(|why| panic!("{at}: {why}\n{}", String::from_utf8_lossy(text)))
        .value
}

#[test]
fn every_kind_survives_its_struct_with_every_field_filled_in() {
    const SEED: u64 = 11;
    let trips = crate::round_trips();
    assert!(trips.len() > 100, "{} kinds", trips.len());
    for RoundTrip { kind, pass } in trips {
        for seed in SEED..SEED + 6 {
            let mut dice = Dice::new(seed);
            let made = Maker::new(&mut dice, seed % 2 == 1).object(kind, "example.org");
            let at = format!("{} {} (seed {seed})", kind.version, kind.name);
            let object = decode::tree(made, &kind.root).unwrap_or_else(|why| panic!("{at}: {why}")).value;
            let text = encode::json(&object, &kind.root);
            let written = pass(&text).unwrap_or_else(|why| panic!("{at}: {why}"));
            let (found, expected) = (decoded(&written, &kind.root, &at), decoded(&text, &kind.root, &at));
            if found != expected {
                let [found, expected] = [&found, &expected].map(|it| encode::json(it, &kind.root));
                let apart = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or_default();
                let around = |it: &[u8]| {
                    String::from_utf8_lossy(&it[apart.saturating_sub(120)..(apart + 80).min(it.len())])
                        .into_owned()
                };
                panic!("{at}\n   found {}\nexpected {}", around(&found), around(&expected));
            }
        }
    }
}

#[test]
fn managed_fields_stay_text_with_any_whitespace() {
    let text = br#"{"metadata":{"managedFields":[{"manager":"a","fieldsV1":{"f:spec": {"f:x\"" :{}} }},{"fieldsV1":null}]}}"#;
    let pod: Pod = from_json(text).expect("a pod");
    let fields = pod.metadata.managed_fields.iter().map(|it| it.fields_v1.as_json()).collect::<Vec<_>>();
    assert_eq!(fields, [Some(r#"{"f:spec":{"f:x\"":{}}}"#), None]);
    let again: Pod = from_json(&to_json(&pod)).expect("a pod");
    assert_eq!(again.metadata.managed_fields, pod.metadata.managed_fields);
    let wrong = from_json::<Pod>(br#"{"metadata":{"managedFields":[{"fieldsV1":[]}]}}"#);
    assert!(wrong.is_err_and(|why| why.to_string().ends_with("fieldsV1: expected an object, found a list")));
}

#[test]
fn managed_fields_are_stepped_over_on_request() {
    let text =
        br#"{"metadata":{"name":"a","managedFields":[{"manager":"a","fieldsV1":{"f:spec":{}}},7],"uid":"u"},
        "spec":{"nodeName":"n","later":{"managedFields":[{}]}}}"#;
    assert!(from_json::<Pod>(text).is_err());
    let pod: Pod = from_json_unmanaged(text).expect("a pod");
    assert_eq!((pod.name(), pod.uid(), &*pod.spec.node_name), ("a", "u", "n"));
    assert!(pod.metadata.managed_fields.is_empty());
    // part of a field that the type does not declare
    let unknown = String::from_utf8(to_json(&pod)).expect("text");
    assert!(unknown.contains(r#""later":{"managedFields":[{}]}"#), "{unknown}");
    assert!(from_json_unmanaged::<Pod>(br#"{"metadata":{"managedFields":[}}"#).is_err());
}

#[test]
fn the_metadata_of_any_kind_is_read_alone() {
    let text = br#"{"kind":"Odd","metadata":{"name":"a","managedFields":[{"manager":"m"}],"resourceVersion":"7"},"spec":[{"a":{}}]}"#;
    let metadata = metadata_from_json(text).expect("metadata");
    assert_eq!((&*metadata.name, &*metadata.resource_version), ("a", "7"));
    assert!(metadata.managed_fields.is_empty());
    assert!(metadata_from_json(br#"{"metadata":{"name":"a"},"spec":[}"#).is_err());
    assert!(metadata_from_json(br#"{"metadata":{"name":7}}"#).is_err());
}

#[test]
fn a_struct_has_the_values_of_the_object() {
    let text = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"a","creationTimestamp":"2024-01-02T03:04:05Z","labels":{"app":"web"}},
        "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1500m"}},"ports":[{"containerPort":80}],
        "livenessProbe":{"httpGet":{"port":"http"}}}],"priority":0,"hostNetwork":true,"nodeName":"n1"}}"#;
    let pod: Pod = from_json(text).expect("a pod");
    assert_eq!((pod.name(), pod.namespace(), &*pod.spec.node_name), ("web", "a", "n1"));
    assert_eq!(pod.metadata.creation_timestamp, Some(Time(1_704_164_645)));
    assert_eq!((pod.spec.priority, pod.spec.host_network, pod.spec.host_pid), (Some(0), true, false));
    let container = &pod.spec.containers[0];
    assert_eq!(container.resources.requests["cpu"], "1.5".parse::<Quantity>().expect("a quantity"));
    assert_eq!(container.ports[0].container_port, 80);
    let probe = container.liveness_probe.as_ref().and_then(|it| it.http_get.as_ref()).expect("a probe");
    assert_eq!(probe.port, IntOrString::String("http".into()));
}

#[test]
fn fields_that_are_not_declared_are_written_back() {
    let text = br#"{"metadata":{"name":"web","fresh":{"b":[1,2.5],"a":null}},"spec":{"containers":[],"later":"x"},"status":{}}"#;
    let mut pod: Pod = from_json(text).expect("a pod");
    assert_eq!(pod.spec.unknown_fields.iter().collect::<Vec<_>>(), [("later", &Value::from("x"))]);
    pod.metadata.labels.insert("app".into(), "web".into());
    let written = String::from_utf8(to_json(&pod)).expect("text");
    assert_eq!(
        written,
        r#"{"metadata":{"name":"web","creationTimestamp":null,"labels":{"app":"web"},"fresh":{"a":null,"b":[1,2.5]}},"spec":{"containers":null,"later":"x"},"status":{}}"#
    );
}

#[test]
fn type_errors_name_their_path() {
    for (text, message) in [
        (
            r#"{"spec":{"containers":[{"name":"a"},{"name":1}]}}"#,
            "spec.containers[1].name: expected a string, found a number",
        ),
        (r#"{"metadata":{"labels":{"a":[]}}}"#, "metadata.labels[a]: expected a string, found a list"),
        (r#"{"spec":{"priority":4294967296}}"#, "spec.priority: 4294967296 does not fit int32"),
        (
            r#"{"metadata":{"creationTimestamp":"now"}}"#,
            "metadata.creationTimestamp: \"now\" is not a time of RFC 3339",
        ),
        (r#"{"spec":{}"#, "unexpected end of JSON input"),
        (r#"{} {}"#, "invalid character '{' after top-level value"),
        ("[]", "expected an object, found a list"),
    ] {
        let error = from_json::<Pod>(text.as_bytes()).expect_err(text);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn lists_take_the_room_of_their_items() {
    let text = r#"{"spec":{"containers":[{"name":"a"}],"volumes":[{"name":"a"},{"name":"b"},{"name":"c"}],"tolerations":[]},
                   "status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}}"#;
    let pod: Pod = from_json(text.as_bytes()).unwrap();
    let (spec, status) = (&pod.spec, &pod.status);
    assert_eq!((spec.containers.len(), spec.containers.capacity()), (1, 1));
    assert_eq!((spec.volumes.len(), spec.volumes.capacity()), (3, 3));
    assert_eq!((status.pod_ips.len(), status.pod_ips.capacity()), (2, 2));
    assert_eq!(spec.tolerations.capacity(), 0);
}
