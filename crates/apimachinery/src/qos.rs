//! The quality-of-service class of a pod.

use crate::resource_list;
use schema::Value;
use schema::quantity::Quantity;
use std::collections::BTreeMap;

/// `Guaranteed` if the limits of every container are its requests, `BestEffort` if no container has any.
pub fn qos_class(pod: &Value) -> &'static str {
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut all_limited = true;
    for one in ["containers", "initContainers"].iter().flat_map(|list| pod.items(&["spec", list])) {
        add(&mut requests, one, "requests");
        all_limited &= add(&mut limits, one, "limits") == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds the amounts of a container that count, and returns their number.
fn add<'v>(sums: &mut BTreeMap<&'v str, Quantity>, one: &'v Value, list: &str) -> usize {
    let mut count = 0;
    for name in ["cpu", "memory"] {
        let amount = one.at(&["resources", list, name]).map(resource_list::parse);
        if let Some(amount) = amount.filter(|it| it.sign() > 0) {
            count += 1;
            let sum = sums.entry(name).or_insert_with(|| Quantity::new(0));
            *sum = sum.plus(&amount);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;

    #[test]
    fn the_class_follows_from_resources() {
        let check = |containers: &str, expected: &str| {
            assert_eq!(
                qos_class(&json(&format!(r#"{{"spec":{{"containers":{containers}}}}}"#))),
                expected,
                "{containers}"
            );
        };
        check("[{}]", "BestEffort");
        check(r#"[{"resources":{"requests":{"cpu":"0"}}}]"#, "BestEffort");
        check(r#"[{"resources":{"requests":{"cpu":"1"}}}]"#, "Burstable");
        let equal = r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1000m","memory":"1Gi"}}"#;
        check(&format!(r#"[{{"resources":{equal}}}]"#), "Guaranteed");
        check(&format!(r#"[{{"resources":{equal}}},{{}}]"#), "Burstable");
        check(
            r#"[{"resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}}]"#,
            "Burstable",
        );
    }
}
