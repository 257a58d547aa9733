//! Within which bounds a rollout moves.

use crate::int_or_percent::{Round, scaled_value};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many pods there should be, how many more there may be meanwhile, and how many may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub replicas: i32,
    pub surge: i32,
    pub unavailable: i32,
}

pub fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|it| it.strategy.as_ref());
    strategy.and_then(|it| it.type_.as_deref()).is_none_or(|it| it == "RollingUpdate")
}

pub fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|it| it.paused) == Some(true)
}

impl Limits {
    pub fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let replicas = spec.and_then(|it| it.replicas).unwrap_or(1);
        if !is_rolling(deployment) {
            return Limits { replicas, surge: 0, unavailable: 0 };
        }
        let rolling = spec.and_then(|it| it.strategy.as_ref()?.rolling_update.as_ref());
        let surge = rolling.and_then(|it| it.max_surge.as_ref());
        let unavailable = rolling.and_then(|it| it.max_unavailable.as_ref());
        Limits::resolve(replicas, surge, unavailable)
    }

    /// Of percents, surge is rounded up and what may be missing down. If both come to nothing one may be missing:
    /// otherwise no step could be taken.
    fn resolve(replicas: i32, surge: Option<&IntOrString>, unavailable: Option<&IntOrString>) -> Self {
        let surge = scaled_value(surge, replicas, Round::Up);
        let unavailable = match scaled_value(unavailable, replicas, Round::Down) {
            0 if surge == 0 => 1,
            some => some,
        };
        Limits { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// The most pods that there may be.
    pub fn most(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest available pods that there must be.
    pub fn least_available(&self) -> i32 {
        self.replicas - self.unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn limits(replicas: i32, surge: Value, unavailable: Value) -> (i32, i32) {
        let json = json!({
            "metadata": {},
            "spec": {
                "replicas": replicas, "selector": {}, "template": {},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}
                }
            }
        });
        let limits = Limits::of(&serde_json::from_value(json).unwrap());
        (limits.surge, limits.unavailable)
    }

    #[test]
    fn percents_are_rounded_so_that_there_is_always_a_step() {
        assert_eq!(limits(10, json!("25%"), json!("25%")), (3, 2));
        assert_eq!(limits(1, json!("25%"), json!("25%")), (1, 0));
        assert_eq!(limits(3, json!(0), json!("25%")), (0, 1));
        assert_eq!(limits(10, json!(0), json!(0)), (0, 1));
        assert_eq!(limits(10, json!(2), json!(20)), (2, 10));
        assert_eq!(limits(0, json!("100%"), json!("100%")), (0, 0));
        assert_eq!(limits(0, json!(1), json!(1)), (1, 0));
        assert_eq!(limits(1000, json!("1%"), json!("0%")), (10, 0));
        assert_eq!(limits(10, json!("x"), json!("-5%")), (0, 1));
        assert_eq!(limits(i32::MAX, json!("100%"), json!("100%")), (i32::MAX, i32::MAX));
    }

    #[test]
    fn all_at_once_has_no_steps() {
        let json = json!({
            "metadata": {},
            "spec": {"replicas": 4, "selector": {}, "template": {}, "strategy": {"type": "Recreate"}}
        });
        let limits = Limits::of(&serde_json::from_value(json).unwrap());
        assert_eq!((limits.most(), limits.least_available()), (4, 4));
    }
}
