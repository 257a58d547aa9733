//! The status of a claim whose volume grows, as patches. Each applies only to the version of the claim that it was made from.

use crate::params::json_value;
use api::Quantity;
use api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

/// The volume is being made larger.
pub const RESIZING: &str = "Resizing";
/// The volume is larger, and the file system on it is not.
pub const FILE_SYSTEM_RESIZE_PENDING: &str = "FileSystemResizePending";

/// The claim has the size of its volume, and its growth is over.
pub fn finished(claim: &PersistentVolumeClaim, size: &Quantity) -> Value {
    let mut patch = patch(claim, None);
    patch["status"]["capacity"] = json!({ "storage": size.to_string() });
    patch
}

/// The growth is at the step of a condition, which takes the place of other steps. One that the claim has already stays as
/// it is.
pub fn at_step(claim: &PersistentVolumeClaim, condition: Value) -> Value {
    let is_there = |kind: &str| condition["type"] == kind;
    let existing = claim.status.conditions.iter().find(|it| is_there(&it.type_) && it.status == "True");
    patch(claim, Some(existing.map_or(condition.clone(), json_value)))
}

/// Whether the growth of a claim is at a step.
pub fn is_at_step(claim: &PersistentVolumeClaim, step: &str) -> bool {
    claim.status.conditions.iter().any(|it| it.type_ == step && it.status == "True")
}

fn patch(claim: &PersistentVolumeClaim, step: Option<Value>) -> Value {
    let is_step = |kind: &str| [RESIZING, FILE_SYSTEM_RESIZE_PENDING].contains(&kind);
    let others = claim.status.conditions.iter().filter(|it| !is_step(&it.type_)).map(json_value);
    let conditions: Vec<Value> = others.chain(step).collect();
    json!({
        "metadata": { "resourceVersion": claim.metadata.resource_version },
        "status": { "conditions": conditions },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn claim() -> PersistentVolumeClaim {
        let text = br#"{"metadata":{"name":"c","namespace":"n","resourceVersion":"7"},"status":{
            "capacity":{"storage":"1Gi"},"conditions":[
            {"type":"FileSystemResizePending","status":"True","message":"old"},{"type":"Mine","status":"True"}]}}"#;
        from_json(text).unwrap()
    }

    fn types(patch: &Value) -> Vec<&str> {
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        conditions.iter().map(|it| it["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_claim_whose_volume_has_grown_has_its_size_and_no_pending_resize() {
        let patch = finished(&claim(), &"2Gi".parse().unwrap());
        assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(patch["status"]["capacity"], json!({"storage": "2Gi"}));
        assert_eq!(types(&patch), ["Mine"]);
    }

    #[test]
    fn a_growing_claim_is_at_one_step() {
        let patch = at_step(&claim(), json!({"type": RESIZING, "status": "True"}));
        assert_eq!(types(&patch), ["Mine", RESIZING]);
        assert_eq!(patch["status"].get("capacity"), None);
        let same = at_step(
            &claim(),
            json!({"type": FILE_SYSTEM_RESIZE_PENDING, "status": "True", "message": "new"}),
        );
        assert_eq!(types(&same), ["Mine", FILE_SYSTEM_RESIZE_PENDING]);
        assert_eq!(same["status"]["conditions"][1]["message"], "old");
        assert!(is_at_step(&claim(), FILE_SYSTEM_RESIZE_PENDING) && !is_at_step(&claim(), RESIZING));
    }
}
