//! The row of an autoscaler, with the text of its targets.

use crate::{metadata, read};
use schema::Value;
use std::time::Duration;

const UNKNOWN: &str = "<unknown>";
/// The most metrics in the text.
const MOST_METRICS: usize = 2;

pub(super) fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let target = |field: &str| object.text(&["spec", "scaleTargetRef", field]);
    let least = match read::opt_int(object, &["spec", "minReplicas"]) {
        Some(number) => number.to_string(),
        None => "<unset>".to_owned(),
    };
    vec![
        metadata::name(object),
        format!("{}/{}", target("kind"), target("name")).into(),
        targets(object.items(&["spec", "metrics"]), object.items(&["status", "currentMetrics"])).into(),
        least.into(),
        Value::Int(read::int(object, &["spec", "maxReplicas"])),
        Value::Int(read::int(object, &["status", "currentReplicas"])),
        metadata::age(object, now),
    ]
}

fn targets(wanted: &[Value], current: &[Value]) -> String {
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let formatted: Vec<_> = wanted
        .iter()
        .enumerate()
        .take(MOST_METRICS)
        .map(|(at, one)| metric_text(one, current.get(at)))
        .collect();
    let formatted = formatted.join(", ");
    match wanted.len().saturating_sub(MOST_METRICS) {
        0 => formatted,
        more => format!("{formatted} + {more} more..."),
    }
}

/// `current/target` of one metric.
fn metric_text(wanted: &Value, current: Option<&Value>) -> String {
    let source = match wanted.text(&["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let is = current.and_then(|it| it.at(&[source])).and_then(|it| it.at(&["current"]));
    let amount = |from: Option<&Value>, field: &str, otherwise: &str| {
        from.and_then(|it| read::opt_text(it, &[field])).unwrap_or(otherwise).to_owned()
    };
    let target = wanted.at(&[source, "target"]);
    let average = target.is_some_and(|it| read::has(it, &["averageValue"]));
    let missing = |otherwise: &'static str| if is.is_some() { otherwise } else { UNKNOWN };
    match source {
        "external" | "object" if average => {
            let unknown = UNKNOWN;
            format!("{}/{} (avg)", amount(is, "averageValue", unknown), amount(target, "averageValue", ""))
        }
        "external" | "object" => {
            format!("{}/{}", amount(is, "value", missing("<nil>")), amount(target, "value", "<nil>"))
        }
        "pods" => format!(
            "{}/{}",
            amount(is, "averageValue", missing("<nil>")),
            amount(target, "averageValue", "<nil>")
        ),
        _ if average => {
            let now = amount(is, "averageValue", missing("<nil>"));
            format!("{now}/{}", amount(target, "averageValue", ""))
        }
        _ => {
            let percent = |from: Option<&Value>, otherwise: &str| {
                let number = from.and_then(|it| read::opt_int(it, &["averageUtilization"]));
                number.map_or(otherwise.to_owned(), |number| format!("{number}%"))
            };
            format!("{}/{}", percent(is, UNKNOWN), percent(target, "<auto>"))
        }
    }
}
