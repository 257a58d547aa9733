//! Webhook authorizer: decides by a SubjectAccessReview of another server.
//!
//! Invariants: an unreachable server or an invalid response permits nothing. Decisions are cached, denials
//! for a shorter time; requests too large for a cheap cache key are reviewed each time.

use crate::reviews::user_info::extra_value;
use crate::string_lists::texts;
use auth::authorize::{Failure, Rules};
use auth::{Attributes, Authorizer, Decision, User};
use env::{MaybeReady, World};
use names::Names;
use outbound::{Backoff, HttpClient, TtlCache, Version, Webhook, WebhookError};
use schema::{Value, encode};
use std::time::Duration;

/// Bounds of the cache.
const CACHE_ENTRIES: usize = 8192;
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Decisions on requests with longer attributes are not cached: clients choose them freely.
const MAX_KEY_BYTES: usize = 10_000;

/// Options of the webhook.
pub struct Options {
    pub client: HttpClient,
    pub version: Version,
    /// TTL of permissions.
    pub authorized_ttl: Duration,
    /// TTL of denials.
    pub unauthorized_ttl: Duration,
    pub backoff: Backoff,
}

impl Options {
    pub const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
    pub const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

    pub fn new(client: HttpClient) -> Self {
        Options {
            client,
            version: Version::default(),
            authorized_ttl: Self::AUTHORIZED_TTL,
            unauthorized_ttl: Self::UNAUTHORIZED_TTL,
            backoff: Backoff::default(),
        }
    }
}

/// The authorizer.
pub struct WebhookAuthorizer {
    hook: Webhook,
    version: Version,
    group_version: String,
    ttl: [Duration; 2],
    cache: TtlCache<Decision>,
}

impl WebhookAuthorizer {
    pub fn new(options: Options, names: &Names, world: &World) -> Self {
        WebhookAuthorizer {
            hook: Webhook::new(options.client, options.backoff, world.clone()),
            version: options.version,
            group_version: format!("{}/{}", names.group("authorization"), options.version.name()),
            ttl: [options.unauthorized_ttl, options.authorized_ttl],
            cache: TtlCache::new(world.clone(), CACHE_ENTRIES, CACHE_BYTES),
        }
    }

    fn review_spec(&self, attributes: &Attributes<'_>) -> Value {
        let mut spec = Value::map();
        let kind = if attributes.resource_request { "resourceAttributes" } else { "nonResourceAttributes" };
        spec.set(&[kind], Value::map());
        let mut set = |path: &[&'static str], text: &str| {
            if !text.is_empty() {
                spec.set(path, text);
            }
        };
        set(&["user"], &attributes.user.name);
        set(&["uid"], &attributes.user.uid);
        if attributes.resource_request {
            for (field, text) in [
                ("namespace", attributes.namespace),
                ("verb", attributes.verb),
                ("group", attributes.api_group),
                ("version", attributes.version),
                ("resource", attributes.resource),
                ("subresource", attributes.subresource),
                ("name", attributes.name),
            ] {
                set(&[kind, field], text);
            }
        } else {
            set(&[kind, "path"], attributes.path);
            set(&[kind, "verb"], attributes.verb);
        }
        let groups = match self.version {
            Version::V1 => "groups",
            Version::V1beta1 => "group",
        };
        if !attributes.user.groups.is_empty() {
            spec.set(&[groups], texts(&attributes.user.groups));
        }
        if !attributes.user.extra.is_empty() {
            spec.set(&["extra"], extra_value(attributes.user));
        }
        spec
    }

    async fn review(&self, spec: Value, key: Option<outbound::Key>) -> Decision {
        let mut review = Value::map();
        review.set(&["apiVersion"], self.group_version.as_str());
        review.set(&["kind"], "SubjectAccessReview");
        review.set(&["metadata", "creationTimestamp"], Value::Null);
        review.set(&["spec"], spec);
        review.set(&["status", "allowed"], false);
        match self.hook.ask(&review).await.and_then(|response| parse_decision(&response)) {
            Ok(decision) => {
                if let Some(key) = key {
                    let bytes = decision.reason().len() + 100;
                    let ttl = self.ttl[usize::from(decision.is_allowed())];
                    self.cache.put(key, decision.clone(), bytes, ttl);
                }
                decision
            }
            Err(why) => {
                tracing::warn!(%why, "calling the authorization webhook failed");
                Decision::failed(why.to_string())
            }
        }
    }
}

/// Parses a response.
fn parse_decision(response: &Value) -> Result<Decision, WebhookError> {
    let flag = |name: &'static str, field: &str| match response.at(&["status", field]) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(_) => Err(WebhookError::Field(name)),
    };
    let reason = match response.at(&["status", "reason"]) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(reason)) => reason.clone(),
        Some(_) => return Err(WebhookError::Field("status.reason")),
    };
    Ok(match (flag("status.allowed", "allowed")?, flag("status.denied", "denied")?) {
        (true, true) => Decision::Failed(Box::new(Failure {
            denied: true,
            reason,
            error: "webhook subject access review returned both allow and deny response".to_owned(),
        })),
        (false, true) => Decision::Deny(reason.into()),
        (true, false) => Decision::Allow(reason.into()),
        (false, false) => Decision::NoOpinion(reason.into()),
    })
}

impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let spec = self.review_spec(attributes);
        let chosen = [
            attributes.namespace,
            attributes.verb,
            attributes.api_group,
            attributes.version,
            attributes.resource,
            attributes.subresource,
            attributes.name,
            attributes.path,
        ];
        let short = chosen.iter().map(|it| it.len()).sum::<usize>() < MAX_KEY_BYTES;
        let key = short.then(|| self.cache.key([&*encode::untyped(&spec)]));
        match key.and_then(|key| self.cache.get(&key)) {
            Some(decision) => decision.into(),
            None => MaybeReady::later(self.review(spec, key)),
        }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules {
            incomplete: true,
            problem: "webhook authorizer does not support user rule resolution".to_owned(),
            ..Rules::default()
        }
    }
}
