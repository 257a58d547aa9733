//! Metrics of authentication and authorization.
//!
//! Users are not labels, except for a few well-known ones.

use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use std::sync::OnceLock;
use std::time::Duration;

const DURATION: Descriptor =
    Descriptor::alpha("authentication_duration_seconds", "Duration of authentication by result.")
        .by(&["result"])
        .seconds(&latency_bounds());
const ATTEMPTS: Descriptor =
    Descriptor { name: "authentication_attempts", help: "Authentication attempts by result.", ..DURATION };
const USERS: Descriptor = Descriptor::alpha(
    "authenticated_user_requests",
    "Authenticated requests by user; most users are counted together.",
)
.by(&["username"]);
const FILTERS: Descriptor = Descriptor::alpha(
    "apiserver_request_filter_duration_seconds",
    "Time that requests spend in each filter.",
)
.by(&["filter"])
.seconds(&seconds([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0]));

/// From a millisecond to sixteen seconds.
const fn latency_bounds() -> [u64; 15] {
    metrics::counts(1_000_000, 2)
}

/// The users with labels of their own; then mail addresses, and all others.
const USER_LABELS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];
const MAIL: usize = 5;
const OTHER: usize = 6;

/// Metrics of authentication and filters.
pub struct Callers {
    pub authenticated: Histogram,
    /// Requests without credentials.
    pub anonymous: Histogram,
    /// Requests with invalid credentials.
    pub refused: Histogram,
    users: Family<Counter>,
    of_user: [OnceLock<Counter>; USER_LABELS.len()],
    pub filters: Filters,
}

/// Time spent in each filter.
pub struct Filters {
    pub authentication: Histogram,
    pub audit: Histogram,
    pub impersonation: Histogram,
    pub flow_control: Histogram,
    pub authorization: Histogram,
}

impl Callers {
    pub fn new(registry: &Registry) -> Self {
        let duration = registry.family(DURATION);
        registry.counted(ATTEMPTS, &duration);
        let filters = registry.family(FILTERS);
        let [authentication, audit, impersonation, flow_control, authorization] =
            ["authentication", "audit", "impersonation", "priorityandfairness", "authorization"]
                .map(|name| filters.of(&[name]));
        Callers {
            authenticated: duration.of(&["success"]),
            anonymous: duration.of(&["failure"]),
            refused: duration.of(&["error"]),
            users: registry.family(USERS),
            of_user: Default::default(),
            filters: Filters { authentication, audit, impersonation, flow_control, authorization },
        }
    }

    /// Counts an authenticated request.
    pub fn record(&self, name: &str, took: Duration) {
        self.authenticated.took(took);
        let named = USER_LABELS[..MAIL].iter().position(|authenticated| *authenticated == name);
        let at = named.unwrap_or(if name.contains('@') { MAIL } else { OTHER });
        self.of_user[at].get_or_init(|| self.users.of(&[USER_LABELS[at]])).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_users_share_a_label() {
        let registry = Registry::default();
        let callers = Callers::new(&registry);
        for name in ["admin", "jane@example.org", "jane", "system:node:a", "system:anonymous"] {
            callers.record(name, Duration::from_millis(1));
        }
        let text = registry.text();
        for line in [
            "authenticated_user_requests{username=\"admin\"} 1\n",
            "authenticated_user_requests{username=\"email_id\"} 1\n",
            "authenticated_user_requests{username=\"other\"} 3\n",
            "authentication_attempts{result=\"success\"} 5\n",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"0.001\"} 5\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("jane"), "{text}");
    }
}
