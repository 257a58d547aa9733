//! Whether a user may: a path is a subresource of the node, a method is a verb; the API server decides.

use super::authentication::{Reviews, SubjectAccess};
use super::user::ReviewedUser;
use crate::stats::AgentMetrics;
use env::io::RealInstant;
use http::Method;
use outbound::TtlCache;
use std::sync::Arc;
use std::time::Duration;

const CACHE_ENTRIES: usize = 1024;
const CACHE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy)]
pub struct AuthorizationOptions {
    /// `AlwaysAllow` instead of `Webhook`.
    pub always_allow: bool,
    pub allowed_ttl: Duration,
    pub denied_ttl: Duration,
}

/// The decision of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Denied,
    Failed(String),
}

/// See the module.
pub struct Authorization {
    options: AuthorizationOptions,
    reviews: Option<Arc<dyn Reviews>>,
    node: String,
    decisions: TtlCache<bool>,
    counters: AgentMetrics,
}

/// The verb of a method.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresource of a path.
pub fn subresource(path: &str) -> &'static str {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match () {
        () if is_below("/stats") => "stats",
        () if is_below("/metrics") => "metrics",
        () if is_below("/logs") => "log",
        () if is_below("/spec") => "spec",
        () if is_below("/checkpoint") => "checkpoint",
        () => "proxy",
    }
}

impl Authorization {
    pub fn new(
        options: AuthorizationOptions,
        reviews: Option<Arc<dyn Reviews>>,
        node: String,
        world: &env::World,
        counters: AgentMetrics,
    ) -> Self {
        let decisions = TtlCache::new(world.clone(), CACHE_ENTRIES, CACHE_BYTES);
        Authorization { options, reviews, node, decisions, counters }
    }

    pub async fn authorize(&self, user: ReviewedUser, method: &Method, path: &str) -> Decision {
        if self.options.always_allow {
            return Decision::Allowed;
        }
        let Some(reviews) = &self.reviews else { return Decision::Denied };
        let access = SubjectAccess {
            user,
            verb: verb(method),
            node: self.node.clone(),
            subresource: subresource(path),
        };
        let parts = [&access.user.name, &access.user.uid, &access.user.extra].map(|it| it.as_bytes());
        let parts = parts.into_iter().chain([access.verb.as_bytes(), access.subresource.as_bytes()]);
        let key = self.decisions.key(parts.chain(access.user.groups.iter().map(String::as_bytes)));
        let decide = |is_allowed| if is_allowed { Decision::Allowed } else { Decision::Denied };
        if let Some(known) = self.decisions.get(&key) {
            return decide(known);
        }
        let begun = RealInstant::now();
        let reviewed = reviews.access(&access).await;
        self.counters.access_reviewed(reviewed.is_ok(), begun.elapsed());
        match reviewed {
            Ok(is_allowed) => {
                let time = if is_allowed { self.options.allowed_ttl } else { self.options.denied_ttl };
                self.decisions.put(key, is_allowed, 64, time);
                decide(is_allowed)
            }
            Err(why) => Decision::Failed(why),
        }
    }
}
