//! Metrics of authentication and authorization.
//!
//! Names of users are not told: most are counted together.

use metrics::{About, Counter, Family, Histogram, Registry, seconds};
use std::sync::OnceLock;
use std::time::Duration;

const DURATION: About =
    About::alpha("authentication_duration_seconds", "Time to find out who is calling, by how that ended.")
        .by(&["result"])
        .seconds(&doubled());
const ATTEMPTS: About = About {
    name: "authentication_attempts",
    help: "Requests whose caller was to be found out, by how that ended.",
    ..DURATION
};
const USERS: About =
    About::alpha("authenticated_user_requests", "Requests by who sent them, most users as one.")
        .by(&["username"]);
const FILTERS: About =
    About::alpha("apiserver_request_filter_duration_seconds", "Time that requests spend in each filter.")
        .by(&["filter"])
        .seconds(&seconds([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0]));

/// From a millisecond to sixteen seconds.
const fn doubled() -> [u64; 15] {
    metrics::counts(1_000_000, 2)
}

/// The users that are told apart; then those that look like mail addresses, and all others.
const KNOWN: [&str; 7] = [
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

/// See the module.
pub struct Callers {
    pub known: Histogram,
    /// Nothing was shown.
    pub unknown: Histogram,
    /// What was shown could not be believed.
    pub refused: Histogram,
    users: Family<Counter>,
    of_user: [OnceLock<Counter>; KNOWN.len()],
    pub filters: Filters,
}

/// Time spent in each filter.
pub struct Filters {
    pub authentication: Histogram,
    pub audit: Histogram,
    pub impersonation: Histogram,
    pub room: Histogram,
    pub authorization: Histogram,
}

impl Callers {
    pub fn new(registry: &Registry) -> Self {
        let duration = registry.family(DURATION);
        registry.counted(ATTEMPTS, &duration);
        let filters = registry.family(FILTERS);
        let [authentication, audit, impersonation, room, authorization] =
            ["authentication", "audit", "impersonation", "priorityandfairness", "authorization"]
                .map(|name| filters.of(&[name]));
        Callers {
            known: duration.of(&["success"]),
            unknown: duration.of(&["failure"]),
            refused: duration.of(&["error"]),
            users: registry.family(USERS),
            of_user: Default::default(),
            filters: Filters { authentication, audit, impersonation, room, authorization },
        }
    }

    /// A caller is known by this name.
    pub fn is(&self, name: &str, took: Duration) {
        self.known.took(took);
        let named = KNOWN[..MAIL].iter().position(|known| *known == name);
        let at = named.unwrap_or(if name.contains('@') { MAIL } else { OTHER });
        self.of_user[at].get_or_init(|| self.users.of(&[KNOWN[at]])).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_users_are_one() {
        let registry = Registry::default();
        let callers = Callers::new(&registry);
        for name in ["admin", "jane@example.org", "jane", "system:node:a", "system:anonymous"] {
            callers.is(name, Duration::from_millis(1));
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
