//! Conversion webhook of custom resources.
//!
//! Invariants: a converted object is the one that was sent, in the requested version. Only labels,
//! annotations and non-metadata may change; other metadata is restored. A failure, a timeout or an invalid
//! response fails the request, and nothing is cached.

use crate::outgoing::webhook_target::{ServiceRouting, WebhookTarget};
use bytes::Bytes;
use outbound::{Limits, Users};
use rest::versions::{ConversionFuture, Converter};
use rest::{Api, ApiError, metadata};
use schema::problem::quoted;
use schema::{Value, decode, encode};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Enough for a whole list.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), answer: 64 * 1024 * 1024 };

/// Supported ConversionReview versions, best first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The converter of a definition with the `Webhook` strategy.
pub(super) fn of(definition: &Value, api: &Arc<Api>, routing: &ServiceRouting) -> Option<Arc<dyn Converter>> {
    let conversion = definition.at(&["spec", "conversion"])?;
    if conversion.text(&["strategy"]) != "Webhook" {
        return None;
    }
    let config = conversion.at(&["webhook", "clientConfig"])?;
    let spoken = conversion.items(&["webhook", "conversionReviewVersions"]);
    let version = spoken.iter().filter_map(Value::as_str).find(|it| VERSIONS.contains(it));
    Some(Arc::new(Hook {
        api: Arc::downgrade(api),
        server: WebhookTarget::of(config, routing.clone(), LIMITS, &Users::default()),
        version: version.unwrap_or(VERSIONS[0]).to_owned(),
        kind: definition.text(&["spec", "names", "kind"]).to_owned(),
    }))
}

struct Hook {
    api: Weak<Api>,
    server: WebhookTarget,
    /// Of the ConversionReview.
    version: String,
    kind: String,
}

/// Lifetime of conversion results in seconds: the webhook may have been replaced.
const CACHE_SECONDS: i64 = 300;

impl Converter for Hook {
    fn epoch(&self) -> u64 {
        let now = self.api.upgrade().map_or(0, |api| env::unix_seconds(&api.world));
        u64::try_from(now / CACHE_SECONDS).unwrap_or(0)
    }

    fn convert<'a>(&'a self, objects: Vec<Value>, version: &'a str) -> ConversionFuture<'a> {
        Box::pin(async move {
            let from = objects.first().map(|it| it.text(&["apiVersion"]).to_owned()).unwrap_or_default();
            let webhook = format!("conversion webhook for {from}, Kind={}", self.kind);
            let failed = |why: String| ApiError::internal(format!("{webhook} failed: {why}"));
            let converted = self.review(&objects, version).await.map_err(failed)?;
            if converted.len() != objects.len() {
                let (found, expected) = (converted.len(), objects.len());
                return Err(ApiError::internal(format!(
                    "{webhook} returned {found} objects, expected {expected}"
                )));
            }
            let both = objects.into_iter().zip(converted).enumerate();
            both.map(|(at, (sent, converted))| {
                restore_metadata(sent, converted, version).map_err(|why| {
                    ApiError::internal(format!(
                        "{webhook} returned invalid converted object at index {at}: {why}"
                    ))
                })
            })
            .collect()
        })
    }
}

impl Hook {
    async fn review(&self, objects: &[Value], version: &str) -> Result<Vec<Value>, String> {
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
        let client = self.server.client(&api)?;
        drop(api);
        let answer = self.server.post_by(&client, "", Bytes::from(encode::untyped(&review))).await?;
        if !answer.status.is_success() {
            let code = answer.status.as_u16();
            return Err(format!("the server answered with status {code}"));
        }
        let decoded = decode::json_untyped(&answer.body).map_err(|why| why.to_string())?.value;
        read(decoded, &api_version, &uid)
    }
}

/// The objects of a response.
fn read(mut answer: Value, api_version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let type_meta = (answer.text(&["apiVersion"]), answer.text(&["kind"]));
    if type_meta != (api_version, "ConversionReview") {
        return Err(format!(
            "expected webhook response of {api_version}, Kind=ConversionReview, got {}, Kind={}",
            type_meta.0, type_meta.1
        ));
    }
    let type_meta = answer.text(&["response", "uid"]);
    if type_meta != uid {
        return Err(format!("expected response.uid={}, got {}", quoted(uid), quoted(type_meta)));
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

/// Checks that an object came back in the requested version, and restores its metadata.
fn restore_metadata(sent: Value, mut converted: Value, version: &str) -> Result<Value, String> {
    let api_version = converted.text(&["apiVersion"]);
    if api_version != version {
        return Err(format!("invalid groupVersion (expected {version}, received {api_version})"));
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
        let found = restore_metadata(sent, converted, "g/v2").unwrap();
        let expected = json(
            r#"{"apiVersion":"g/v2","kind":"T","metadata":{"name":"a","uid":"u","generation":3,"finalizers":["f"],
                "labels":{"a":"c"}},"spec":{"x":1}}"#,
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn another_object_is_refused() {
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
            assert_eq!(restore_metadata(sent(), json(answer), "g/v2"), Err(why.to_owned()));
        }
    }

    #[test]
    fn responses_are_validated() {
        let webhook = |response: &str| {
            let answer =
                format!(r#"{{"apiVersion":"g/v1","kind":"ConversionReview","response":{response}}}"#);
            read(json(&answer), "g/v1", "u")
        };
        let failed = r#"{"uid":"u","result":{"status":"Failure","message":"no"}}"#;
        assert_eq!(webhook(failed), Err("no".to_owned()));
        assert_eq!(
            webhook(r#"{"uid":"u","result":{}}"#),
            Err("response.result.status was '', expected 'Success'".to_owned())
        );
        assert_eq!(webhook(r#"{"uid":"v"}"#), Err(r#"expected response.uid="u", got "v""#.to_owned()));
        let done = r#"{"uid":"u","result":{"status":"Success"},"convertedObjects":[{"a":1}]}"#;
        assert_eq!(webhook(done), Ok(vec![json(r#"{"a":1}"#)]));
        assert!(read(json("{}"), "g/v1", "u").is_err());
    }
}
