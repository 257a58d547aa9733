//! Taints of nodes, and tolerations of pods.

use api::core::v1::{Taint, Toleration};

pub const NO_EXECUTE: &str = "NoExecute";
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Whether a toleration matches a taint. An empty field matches any value.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any_or = |pattern: &str, value: &str| pattern.is_empty() || pattern == value;
    if !is_any_or(&toleration.effect, &taint.effect) || !is_any_or(&toleration.key, &taint.key) {
        return false;
    }
    match &*toleration.operator {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// The first toleration that matches a taint.
pub fn tolerating<'a>(tolerations: &'a [Toleration], taint: &Taint) -> Option<&'a Toleration> {
    tolerations.iter().find(|it| tolerates(it, taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn an_empty_field_matches_any_value() {
        let taint: Taint = object(json!({"key": "k", "value": "v", "effect": "NoExecute"}));
        let of = |toleration: Value| tolerates(&object(toleration), &taint);
        for (toleration, tolerated) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": ""}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k"}), false),
            (json!({"key": "k", "operator": "Like", "value": "v"}), false),
        ] {
            assert_eq!(of(toleration.clone()), tolerated, "{toleration}");
        }
    }
}
