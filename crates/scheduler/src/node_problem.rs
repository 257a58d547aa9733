//! Problems of node objects with which scheduling cannot count.
//!
//! The API server refuses such values; a store that other programs wrote may hold them.

use api::Quantity;
use api::core::v1::Node;

use crate::resource::CPU;

/// More bytes of labels are no labels; the API allows as many of annotations.
const MAX_LABELS_BYTES: usize = 256 * 1024;

/// Why a node is left out of scheduling; `None` for a usable node.
pub fn node_problem(node: &Node) -> Option<String> {
    let labels = &node.metadata.labels;
    let size: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_LABELS_BYTES {
        return Some(format!("metadata.labels has {size} bytes, at most {MAX_LABELS_BYTES} are allowed"));
    }
    node.status.allocatable.iter().find_map(|(name, quantity)| {
        let problem = quantity_problem(name, quantity)?;
        Some(format!("status.allocatable[{name}] {problem}: {quantity}"))
    })
}

fn quantity_problem(name: &str, quantity: &Quantity) -> Option<&'static str> {
    let amount = if name == CPU { quantity.milli() } else { quantity.whole() };
    match amount {
        ..0 => Some("is negative"),
        // the amount is saturated
        i64::MAX => Some("is too large"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(allocatable: &str) -> Node {
        let json = format!(r#"{{"status":{{"allocatable":{{{allocatable}}}}}}}"#);
        api::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn absurd_amounts_are_problems() {
        assert_eq!(node_problem(&node(r#""cpu":"4","memory":"9E","pods":"0""#)), None);
        for (allocatable, problem) in [
            (r#""cpu":"-1""#, "status.allocatable[cpu] is negative: -1"),
            (r#""cpu":"9E""#, "status.allocatable[cpu] is too large: 9E"),
            (r#""a.b/c":"-5""#, "status.allocatable[a.b/c] is negative: -5"),
        ] {
            assert_eq!(node_problem(&node(allocatable)).as_deref(), Some(problem));
        }
    }

    #[test]
    fn endless_labels_are_a_problem() {
        let mut node = node("");
        node.metadata.labels.insert("k".to_owned(), "v".repeat(MAX_LABELS_BYTES));
        assert!(node_problem(&node).unwrap().starts_with("metadata.labels has 262145 bytes"));
    }
}
