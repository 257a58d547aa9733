//! The limits of a rollout.

use crate::int_or_percent::{Round, scaled_value};
use api::IntOrString;
use api::apps::v1::Deployment;

/// The desired number of pods, how many more may exist during a rollout, and how many may be unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub replicas: i32,
    pub surge: i32,
    pub unavailable: i32,
}

pub fn is_rolling(deployment: &Deployment) -> bool {
    matches!(&*deployment.spec.strategy.type_, "" | "RollingUpdate")
}

impl Limits {
    pub fn of(deployment: &Deployment) -> Self {
        let replicas = deployment.spec.replicas.unwrap_or(1);
        if !is_rolling(deployment) {
            return Limits { replicas, surge: 0, unavailable: 0 };
        }
        let rolling = deployment.spec.strategy.rolling_update.as_ref();
        let surge = rolling.and_then(|it| it.max_surge.as_ref());
        let unavailable = rolling.and_then(|it| it.max_unavailable.as_ref());
        Limits::resolve(replicas, surge, unavailable)
    }

    /// Percentages of surge are rounded up, those of unavailable pods down. If both are zero, one pod may be
    /// unavailable: otherwise no step would be possible.
    fn resolve(replicas: i32, surge: Option<&IntOrString>, unavailable: Option<&IntOrString>) -> Self {
        let surge = scaled_value(surge, replicas, Round::Up);
        let unavailable = match scaled_value(unavailable, replicas, Round::Down) {
            0 if surge == 0 => 1,
            some => some,
        };
        Limits { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// The maximum number of pods.
    pub fn most(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The minimum number of available pods.
    pub fn least_available(&self) -> i32 {
        self.replicas - self.unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn limits(replicas: i32, surge: Value, unavailable: Value) -> (i32, i32) {
        let limits = Limits::of(&object(json!({
            "metadata": {},
            "spec": {
                "replicas": replicas, "selector": {}, "template": {},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}
                }
            }
        })));
        (limits.surge, limits.unavailable)
    }

    #[test]
    fn percentages_are_rounded_so_that_a_step_is_possible() {
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
    fn recreate_has_no_steps() {
        let limits = Limits::of(&object(json!({
            "metadata": {},
            "spec": {"replicas": 4, "selector": {}, "template": {}, "strategy": {"type": "Recreate"}}
        })));
        assert_eq!((limits.most(), limits.least_available()), (4, 4));
    }
}
