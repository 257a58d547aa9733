//! ImagePolicyWebhook: asks an ImageReview webhook about the images of pods.
//!
//! Invariants: an unreachable webhook denies, unless `defaultAllow` is set. Responses are cached, denials for
//! a shorter time, because the same images run again and again.

use super::configuration::{ConfigErrors, Part};
use super::parts::Parts;
use super::sync_plugin::is;
use env::MaybeReady;
use outbound::{Backoff, HttpClient, Limits, TtlCache, Webhook, WebhookError};
use rest::{Admission, AdmissionAttributes, ApiError, AuditDetail, Interest, Resource};
use schema::{Map, Value, encode};
use std::path::Path;
use std::time::Duration;

/// Bounds of the cache.
const CACHE_ENTRIES: usize = 1024;
const CACHE_BYTES: usize = 4 * 1024 * 1024;

pub struct ImagePolicyWebhook {
    hook: Webhook,
    api_version: String,
    /// Infix of the keys of annotations that are sent to the webhook.
    annotation_infix: String,
    /// Prefix of the keys of its audit annotations.
    annotation_prefix: String,
    cache: TtlCache<Verdict>,
    settings: Settings,
}

#[derive(Clone)]
struct Verdict {
    allowed: bool,
    reason: String,
    audit_annotations: Vec<(String, String)>,
}

#[derive(Debug, PartialEq)]
struct Settings {
    kubeconfig: String,
    allow: Duration,
    deny: Duration,
    backoff: Duration,
    default_allow: bool,
}

impl ImagePolicyWebhook {
    pub fn new(parts: &Parts, configuration: &Value) -> Result<Self, String> {
        let settings = settings(configuration)?;
        let client = HttpClient::from_kubeconfig(Path::new(&settings.kubeconfig), Limits::REVIEW);
        let client = client.map_err(|why| why.to_string())?;
        client.measure(&parts.calls);
        let backoff = Backoff { first: settings.backoff, ..Backoff::default() };
        let domain = parts.names.group("image-policy");
        Ok(ImagePolicyWebhook {
            hook: Webhook::new(client, backoff, parts.world.clone()),
            api_version: format!("{}/v1alpha1", parts.names.group("imagepolicy")),
            annotation_infix: format!(".{domain}/"),
            annotation_prefix: format!("imagepolicywebhook.{domain}/"),
            cache: TtlCache::new(parts.world.clone(), CACHE_ENTRIES, CACHE_BYTES),
            settings,
        })
    }

    /// The spec of the review of a pod.
    fn review_spec(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Value {
        let lists: &[&str] = match write.subresource {
            "" => &["containers", "initContainers"],
            _ => &["ephemeralContainers"],
        };
        let containers = lists.iter().flat_map(|list| pod.items(&["spec", list]));
        let containers: Vec<Value> = containers
            .map(|container| {
                let mut one = Value::map();
                one.set(&["image"], container.text(&["image"]));
                one
            })
            .collect();
        let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_map);
        let annotations = annotations.into_iter().flat_map(|map| map.iter());
        let annotations = annotations.filter(|(key, _)| key.contains(&self.annotation_infix));
        let annotations: Map =
            annotations.map(|(key, value)| (key.to_owned().into(), value.clone())).collect();
        let mut spec = Value::map();
        if !containers.is_empty() {
            spec.set(&["containers"], containers);
        }
        if !annotations.is_empty() {
            spec.set(&["annotations"], annotations);
        }
        spec.set(&["namespace"], write.namespace);
        spec
    }

    async fn admit(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let spec = self.review_spec(write, pod);
        let key = self.cache.key([&*encode::untyped(&spec)]);
        let verdict = match self.cache.get(&key) {
            Some(verdict) => verdict,
            None => {
                let began = write.api.world.elapsed();
                let reviewed = self.review(spec).await;
                let took = write.api.world.elapsed().saturating_sub(began);
                write.user.record.add_webhook_duration(took);
                match reviewed {
                    Ok(verdict) => {
                        let ttl = if verdict.allowed { self.settings.allow } else { self.settings.deny };
                        let audit_annotations: usize = verdict
                            .audit_annotations
                            .iter()
                            .map(|(key, value)| key.len() + value.len())
                            .sum();
                        self.cache.put(
                            key,
                            verdict.clone(),
                            verdict.reason.len() + audit_annotations + 100,
                            ttl,
                        );
                        verdict
                    }
                    Err(why) => return self.fail(write, pod, &why),
                }
            }
        };
        if write.user.record.audit_detail() > AuditDetail::Nothing {
            for (key, value) in &verdict.audit_annotations {
                write.user.record.annotate(format!("{}{key}", self.annotation_prefix), value.as_str());
            }
        }
        if verdict.allowed {
            return Ok(());
        }
        let why = match &*verdict.reason {
            "" => "one or more images rejected by webhook backend".to_owned(),
            reason => format!("image policy webhook backend denied one or more images: {reason}"),
        };
        Err(write.forbidden(Some(pod), &why))
    }

    fn fail(&self, write: &AdmissionAttributes<'_>, pod: &Value, why: &WebhookError) -> Result<(), ApiError> {
        tracing::warn!(%why, "calling the image policy webhook failed");
        if !self.settings.default_allow {
            return Err(write.forbidden(Some(pod), &why.to_string()));
        }
        write.user.record.annotate(format!("{}failed-open", self.annotation_prefix), "true");
        Ok(())
    }

    async fn review(&self, spec: Value) -> Result<Verdict, WebhookError> {
        let mut review = Value::map();
        review.set(&["kind"], "ImageReview");
        review.set(&["apiVersion"], self.api_version.as_str());
        review.set(&["metadata", "creationTimestamp"], Value::Null);
        review.set(&["spec"], spec);
        review.set(&["status", "allowed"], false);
        let response = self.hook.ask(&review).await?;
        let allowed = match response.at(&["status", "allowed"]) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(allowed)) => *allowed,
            Some(_) => return Err(WebhookError::Field("status.allowed")),
        };
        let audit_annotations = response.at(&["status", "auditAnnotations"]).and_then(Value::as_map);
        let audit_annotations = audit_annotations.into_iter().flat_map(|map| map.iter());
        let audit_annotations =
            audit_annotations.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())));
        Ok(Verdict {
            allowed,
            reason: response.text(&["status", "reason"]).to_owned(),
            audit_annotations: audit_annotations.collect(),
        })
    }
}

impl Admission for ImagePolicyWebhook {
    fn interest(&self, resource: &Resource) -> Interest {
        let writes = Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS);
        writes.when(is(resource, "", "pods"))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        if !matches!(write.subresource, "" | "ephemeralcontainers") {
            return Ok(()).into();
        }
        MaybeReady::later(self.admit(write, object))
    }
}

/// Parses the configuration.
fn settings(configuration: &Value) -> Result<Settings, String> {
    const FIELDS: &[&str] = &["kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"];
    let mut problems = ConfigErrors::default();
    let whole = Part::root(configuration);
    if configuration.is_null() {
        return Err("no config specified".to_owned());
    }
    whole.only(&["imagePolicy"], &mut problems);
    let empty = Value::map();
    let policy = whole.part("imagePolicy", FIELDS, &mut problems).unwrap_or(Part::root(&empty));
    let kubeconfig = policy.text("kubeConfigFile", &mut problems).unwrap_or_default().to_owned();
    if kubeconfig.is_empty() {
        problems.add(&policy.at("kubeConfigFile"), "Required value");
    }
    const SECOND: Duration = Duration::from_secs(1);
    const MILLISECOND: Duration = Duration::from_millis(1);
    let mut time = |field: &str, unit: Duration, (least, most, usual): (Duration, Duration, Duration)| {
        match policy.int(field, &mut problems).unwrap_or(0) {
            0 => usual,
            // disabled
            -1 => Duration::ZERO,
            many => {
                let duration = u32::try_from(many).map_or(Duration::MAX, |many| unit.saturating_mul(many));
                if many < 0 || duration < least || duration > most {
                    let why = format!("valid value is between {least:?} and {most:?}, got {many}");
                    problems.add(&policy.at(field), why);
                }
                duration
            }
        }
    };
    let half_an_hour = Duration::from_secs(30 * 60);
    let allow = time("allowTTL", SECOND, (SECOND, half_an_hour, Duration::from_secs(300)));
    let deny = time("denyTTL", SECOND, (SECOND, half_an_hour, Duration::from_secs(30)));
    let most = Duration::from_secs(5 * 60);
    let backoff = time("retryBackoff", MILLISECOND, (MILLISECOND, most, Duration::from_millis(500)));
    let default_allow = match configuration.at(&["imagePolicy", "defaultAllow"]) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(allow)) => *allow,
        Some(_) => {
            problems.add(&policy.at("defaultAllow"), "must be true or false");
            false
        }
    };
    problems.into_result(Settings { kubeconfig, allow, deny, backoff, default_allow })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_within_bounds() {
        let read = |text: &str| settings(&schema::decode::json_untyped(text.as_bytes()).expect("JSON").value);
        let one =
            read(r#"{"imagePolicy":{"kubeConfigFile":"/k","allowTTL":60,"denyTTL":-1,"defaultAllow":true}}"#);
        let expected = Settings {
            kubeconfig: "/k".to_owned(),
            allow: Duration::from_secs(60),
            deny: Duration::ZERO,
            backoff: Duration::from_millis(500),
            default_allow: true,
        };
        assert_eq!(one, Ok(expected));
        for (text, part) in [
            ("null", "no config specified"),
            ("{}", "kubeConfigFile: Required value"),
            (
                r#"{"imagePolicy":{"kubeConfigFile":"/k","allowTTL":1801}}"#,
                "imagePolicy.allowTTL: valid value is between",
            ),
            (r#"{"imagePolicy":{"kubeConfigFile":"/k","retryBackoff":-7}}"#, "imagePolicy.retryBackoff"),
            (r#"{"imagePolicy":{"kubeConfigFile":"/k","defaultAllow":"yes"}}"#, "imagePolicy.defaultAllow"),
            (r#"{"imagePolicy":{"kubeConfigFile":"/k","more":1}}"#, "imagePolicy.more: unknown field"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
