//! Versions that another server converts into one another.
//!
//! What always holds: an object that comes back is the one that was sent, in the version that was asked for. Only
//! its labels, its annotations and what is not metadata may have changed; everything else of the metadata is put
//! back. A server that fails, takes too long or answers something else fails the request, and nothing is kept.

use crate::outgoing::webhook_target::{Reached, Way};
use bytes::Bytes;
use outbound::{Limits, Users};
use rest::versions::{Converter, Converting};
use rest::{Api, ApiError, metadata};
use schema::problem::quoted;
use schema::{Value, decode, encode};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// As much as clients are given for a whole list.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), answer: 64 * 1024 * 1024 };

/// The versions of the question that are spoken, best first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Who converts the objects of a definition, where its versions differ in more than their names.
pub(super) fn of(definition: &Value, api: &Arc<Api>, way: &Way) -> Option<Arc<dyn Converter>> {
    let conversion = definition.at(&["spec", "conversion"])?;
    if conversion.text(&["strategy"]) != "Webhook" {
        return None;
    }
    let config = conversion.at(&["webhook", "clientConfig"])?;
    let spoken = conversion.items(&["webhook", "conversionReviewVersions"]);
    let version = spoken.iter().filter_map(Value::as_str).find(|it| VERSIONS.contains(it));
    Some(Arc::new(Hook {
        api: Arc::downgrade(api),
        server: Reached::of(config, way.clone(), LIMITS, &Users::default()),
        version: version.unwrap_or(VERSIONS[0]).to_owned(),
        kind: definition.text(&["spec", "names", "kind"]).to_owned(),
    }))
}

struct Hook {
    api: Weak<Api>,
    server: Reached,
    /// Of the question.
    version: String,
    kind: String,
}

/// What was converted is asked again after so many seconds: who converts may have been replaced.
const BELIEVED_SECONDS: i64 = 300;

impl Converter for Hook {
    fn epoch(&self) -> u64 {
        let now = self.api.upgrade().map_or(0, |api| env::unix_seconds(&api.world));
        u64::try_from(now / BELIEVED_SECONDS).unwrap_or(0)
    }

    fn convert<'a>(&'a self, objects: Vec<Value>, version: &'a str) -> Converting<'a> {
        Box::pin(async move {
            let from = objects.first().map(|it| it.text(&["apiVersion"]).to_owned()).unwrap_or_default();
            let told = format!("conversion webhook for {from}, Kind={}", self.kind);
            let failed = |why: String| ApiError::internal(format!("{told} failed: {why}"));
            let converted = self.ask(&objects, version).await.map_err(failed)?;
            if converted.len() != objects.len() {
                let (found, wanted) = (converted.len(), objects.len());
                return Err(ApiError::internal(format!(
                    "{told} returned {found} objects, expected {wanted}"
                )));
            }
            let both = objects.into_iter().zip(converted).enumerate();
            both.map(|(at, (sent, converted))| {
                same_object(sent, converted, version).map_err(|why| {
                    ApiError::internal(format!(
                        "{told} returned invalid converted object at index {at}: {why}"
                    ))
                })
            })
            .collect()
        })
    }
}

impl Hook {
    async fn ask(&self, objects: &[Value], version: &str) -> Result<Vec<Value>, String> {
        let api = self.api.upgrade().ok_or("the server is going away")?;
        let group = api.names.group("apiextensions");
        let api_version = format!("{group}/{}", self.version);
        let uid = metadata::new_uid(&api.world);
        let mut review = Value::map();
        review.set(&["kind"], "ConversionReview");
        review.set(&["apiVersion"], &*api_version);
        review.set(&["request", "uid"], &*uid);
        review.set(&["request", "desiredAPIVersion"], version);
        review.set(&["request", "objects"], objects.to_vec());
        let caller = self.server.caller(&api)?;
        drop(api);
        let answer = self.server.post_by(&caller, "", Bytes::from(encode::untyped(&review))).await?;
        if !answer.status.is_success() {
            let code = answer.status.as_u16();
            return Err(format!("the server answered with status {code}"));
        }
        let decoded = decode::json_untyped(&answer.body).map_err(|why| why.to_string())?.value;
        read(decoded, &api_version, &uid)
    }
}

/// The objects of an answer.
fn read(mut answer: Value, api_version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let found = (answer.text(&["apiVersion"]), answer.text(&["kind"]));
    if found != (api_version, "ConversionReview") {
        return Err(format!(
            "expected webhook response of {api_version}, Kind=ConversionReview, got {}, Kind={}",
            found.0, found.1
        ));
    }
    let found = answer.text(&["response", "uid"]);
    if found != uid {
        return Err(format!("expected response.uid={}, got {}", quoted(uid), quoted(found)));
    }
    let status = answer.text(&["response", "result", "status"]);
    if status != "Success" {
        return Err(match answer.text(&["response", "result", "message"]) {
            "" => format!("response.result.status was '{status}', expected 'Success'"),
            message => message.to_owned(),
        });
    }
    match answer.at_mut(&["response", "convertedObjects"]) {
        Some(Value::List(objects)) => Ok(std::mem::take(objects)),
        _ => Ok(Vec::new()),
    }
}

/// What came back, which must be what was sent in another version, with the metadata that it had.
fn same_object(sent: Value, mut converted: Value, version: &str) -> Result<Value, String> {
    let found = converted.text(&["apiVersion"]);
    if found != version {
        return Err(format!("invalid groupVersion (expected {version}, received {found})"));
    }
    for (name, path) in [
        ("kind", &["kind"][..]),
        ("name", &["metadata", "name"]),
        ("namespace", &["metadata", "namespace"]),
        ("UID", &["metadata", "uid"]),
    ] {
        let (was, is) = (sent.text(path), converted.text(path));
        if was != is {
            return Err(format!("must have the same {name}: {was} != {is}"));
        }
    }
    let mut metadata = sent.at(&["metadata"]).cloned().unwrap_or_else(Value::map);
    for field in ["labels", "annotations"] {
        match converted.at(&["metadata", field]).filter(|it| !it.is_null()) {
            None => drop(metadata.unset(&[field])),
            Some(value) => {
                let texts = value.as_map().is_some_and(|it| it.iter().all(|(_, it)| it.as_str().is_some()));
                if !texts {
                    return Err(format!("metadata.{field} must be a map of strings"));
                }
                metadata.set(&[field], value.clone());
            }
        }
    }
    converted.set(&["metadata"], metadata);
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        decode::json_untyped(text.as_bytes()).unwrap().value
    }

    #[test]
    fn metadata_comes_back_as_it_was() {
        let sent = json(
            r#"{"apiVersion":"g/v1","kind":"T","metadata":{"name":"a","uid":"u","generation":3,"finalizers":["f"],
                "labels":{"a":"b"}}}"#,
        );
        let converted = json(
            r#"{"apiVersion":"g/v2","kind":"T","metadata":{"name":"a","uid":"u","labels":{"a":"c"},"finalizers":[]},
                "spec":{"x":1}}"#,
        );
        let found = same_object(sent, converted, "g/v2").unwrap();
        let expected = json(
            r#"{"apiVersion":"g/v2","kind":"T","metadata":{"name":"a","uid":"u","generation":3,"finalizers":["f"],
                "labels":{"a":"c"}},"spec":{"x":1}}"#,
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn another_object_is_not_taken() {
        let sent = || json(r#"{"apiVersion":"g/v1","kind":"T","metadata":{"name":"a","uid":"u"}}"#);
        for (answer, why) in [
            (r#"{"apiVersion":"g/v1","kind":"T"}"#, "invalid groupVersion (expected g/v2, received g/v1)"),
            (r#"{"apiVersion":"g/v2","kind":"U"}"#, "must have the same kind: T != U"),
            (
                r#"{"apiVersion":"g/v2","kind":"T","metadata":{"name":"b"}}"#,
                "must have the same name: a != b",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"T","metadata":{"name":"a","uid":"u","labels":{"a":1}}}"#,
                "metadata.labels must be a map of strings",
            ),
        ] {
            assert_eq!(same_object(sent(), json(answer), "g/v2"), Err(why.to_owned()));
        }
    }

    #[test]
    fn answers_are_read_with_care() {
        let told = |response: &str| {
            let answer =
                format!(r#"{{"apiVersion":"g/v1","kind":"ConversionReview","response":{response}}}"#);
            read(json(&answer), "g/v1", "u")
        };
        let failed = r#"{"uid":"u","result":{"status":"Failure","message":"no"}}"#;
        assert_eq!(told(failed), Err("no".to_owned()));
        assert_eq!(
            told(r#"{"uid":"u","result":{}}"#),
            Err("response.result.status was '', expected 'Success'".to_owned())
        );
        assert_eq!(told(r#"{"uid":"v"}"#), Err(r#"expected response.uid="u", got "v""#.to_owned()));
        let done = r#"{"uid":"u","result":{"status":"Success"},"convertedObjects":[{"a":1}]}"#;
        assert_eq!(told(done), Ok(vec![json(r#"{"a":1}"#)]));
        assert!(read(json("{}"), "g/v1", "u").is_err());
    }
}
