//! The user of a request: a client certificate, a bearer token, or anonymous.
//!
//! Invariants: an invalid credential is refused, even if anonymous requests are allowed; tokens are reviewed by the API
//! server, and its answers are kept for a while.

use super::user::{CertificateUser, ReviewedUser};
use crate::stats::AgentMetrics;
use client::Client;
use env::io::RealInstant;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, header};
use names::Names;
use outbound::TtlCache;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const CACHE_ENTRIES: usize = 1024;
const CACHE_BYTES: usize = 4 << 20;
/// How long the answer for an invalid token is kept.
const REFUSAL_TTL: Duration = Duration::from_secs(10);

/// The attributes of a request, for a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectAccess {
    pub user: ReviewedUser,
    pub verb: &'static str,
    pub node: String,
    pub subresource: &'static str,
}

/// Reviews by the API server.
pub trait Reviews: Send + Sync + 'static {
    /// The user of a token, `None` if it is invalid.
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<ReviewedUser>, String>>;
    /// Whether a user may.
    fn access<'a>(&'a self, access: &'a SubjectAccess) -> BoxFuture<'a, Result<bool, String>>;
}

/// Reviews over a client.
pub struct ClientReviews {
    pub client: Client,
    pub names: Names,
}

impl ClientReviews {
    async fn post(&self, group: &str, plural: &str, kind: &str, spec: Value) -> Result<Value, String> {
        let version = format!("{}/v1", self.names.group(group));
        let body = json!({ "apiVersion": version, "kind": kind, "spec": spec });
        let request = Request::post(format!("/apis/{version}/{plural}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|why| why.to_string())?;
        let answer = self.client.request_bytes(request).await.map_err(|why| why.to_string())?;
        serde_json::from_slice(&answer).map_err(|why| why.to_string())
    }
}

impl Reviews for ClientReviews {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<ReviewedUser>, String>> {
        async move {
            let answer =
                self.post("authentication", "tokenreviews", "TokenReview", json!({ "token": token })).await?;
            let status = &answer["status"];
            if status["authenticated"] != json!(true) {
                return Ok(None);
            }
            let user = &status["user"];
            let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
            let groups = user["groups"].as_array().map(|all| all.iter().map(text).collect());
            Ok(Some(ReviewedUser {
                name: text(&user["username"]),
                uid: text(&user["uid"]),
                groups: groups.unwrap_or_default(),
                extra: user.get("extra").map(Value::to_string).unwrap_or_default(),
            }))
        }
        .boxed()
    }

    fn access<'a>(&'a self, access: &'a SubjectAccess) -> BoxFuture<'a, Result<bool, String>> {
        async move {
            let user = &access.user;
            let mut spec = json!({
                "user": user.name,
                "groups": user.groups,
                "resourceAttributes": {
                    "verb": access.verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": access.subresource,
                    "name": access.node,
                },
            });
            if !user.uid.is_empty() {
                spec["uid"] = json!(user.uid);
            }
            if let Ok(extra) = serde_json::from_str::<Value>(&user.extra) {
                spec["extra"] = extra;
            }
            let answer =
                self.post("authorization", "subjectaccessreviews", "SubjectAccessReview", spec).await?;
            let is_denied = answer["status"]["denied"] == json!(true);
            Ok(answer["status"]["allowed"] == json!(true) && !is_denied)
        }
        .boxed()
    }
}

#[derive(Debug, Clone, Copy)]
pub struct AuthenticationOptions {
    pub anonymous: bool,
    pub webhook: bool,
    pub cache_ttl: Duration,
}

/// See the module.
pub struct Authentication {
    options: AuthenticationOptions,
    reviews: Option<Arc<dyn Reviews>>,
    tokens: TtlCache<Option<ReviewedUser>>,
    counters: AgentMetrics,
}

impl Authentication {
    pub fn new(
        options: AuthenticationOptions,
        reviews: Option<Arc<dyn Reviews>>,
        world: &env::World,
        counters: AgentMetrics,
    ) -> Self {
        let tokens = TtlCache::new(world.clone(), CACHE_ENTRIES, CACHE_BYTES);
        Authentication { options, reviews, tokens, counters }
    }

    /// The user of a request, `None` if it has none.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: &CertificateUser,
    ) -> Option<ReviewedUser> {
        match certificate {
            CertificateUser::Valid(user) => return Some(user.clone()),
            CertificateUser::Invalid | CertificateUser::Absent => {}
        }
        let token = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let token = token
            .and_then(|it| it.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        if let Some((_, token)) = token {
            return self.token(token.trim()).await;
        }
        let is_refused = matches!(certificate, CertificateUser::Invalid);
        let anonymous = ReviewedUser {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..ReviewedUser::default()
        };
        (self.options.anonymous && !is_refused).then_some(anonymous)
    }

    async fn token(&self, token: &str) -> Option<ReviewedUser> {
        let reviews = self.reviews.as_ref().filter(|_| self.options.webhook && !token.is_empty())?;
        let key = self.tokens.key([token.as_bytes()]);
        let begun = RealInstant::now();
        if let Some(known) = self.tokens.get(&key) {
            self.counters.token_reviewed(true, true, begun.elapsed());
            return known;
        }
        let reviewed = reviews.token(token).await;
        self.counters.token_reviewed(false, reviewed.is_ok(), begun.elapsed());
        match reviewed {
            Ok(mut user) => {
                if let Some(user) = &mut user
                    && !user.groups.iter().any(|it| it == "system:authenticated")
                {
                    user.groups.push("system:authenticated".to_owned());
                }
                let time = if user.is_some() {
                    self.options.cache_ttl
                } else {
                    REFUSAL_TTL.min(self.options.cache_ttl)
                };
                self.tokens.put(key, user.clone(), 512, time);
                user
            }
            Err(why) => {
                tracing::warn!(%why, "a token cannot be reviewed");
                None
            }
        }
    }
}
