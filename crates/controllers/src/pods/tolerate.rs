//! Whether pods bear the taints of nodes.

use k8s_openapi::api::core::v1::{Taint, Toleration};

pub const NO_EXECUTE: &str = "NoExecute";
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Whether a toleration is about a taint: what it leaves out is any.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any_or = |said: &Option<String>, is: &str| {
        let said = said.as_deref().unwrap_or("");
        said.is_empty() || said == is
    };
    if !is_any_or(&toleration.effect, &taint.effect) || !is_any_or(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("") {
        "" | "Equal" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
        "Exists" => true,
        _ => false,
    }
}

/// The first of the tolerations that is about a taint.
pub fn tolerating<'a>(tolerations: &'a [Toleration], taint: &Taint) -> Option<&'a Toleration> {
    tolerations.iter().find(|it| tolerates(it, taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_left_out_is_any() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        let of = |toleration: Value| tolerates(&serde_json::from_value(toleration).unwrap(), &taint);
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
