//! Metrics in both versions: the source, its target or current value, and the form of each version.
//!
//! The older form has one flat structure per source; the newer one separates the metric from its value and names the
//! type of the value. The older form writes zero for some absent values.

use schema::Value;

/// The default target utilization, in percent.
pub(super) const USUAL_UTILIZATION: i64 = 80;

/// The default metric.
pub(super) fn usual_metric(utilization: i64) -> Value {
    let mut metric = Value::map();
    metric.set(&["type"], "Resource");
    metric.set(&["resource", "name"], "cpu");
    metric.set(&["resource", "target", "type"], "Utilization");
    metric.set(&["resource", "target", "averageUtilization"], utilization);
    metric
}

/// Whether a metric has a target or a current value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Current,
}

/// The field names of one source in the two versions.
struct Spelling {
    /// The name of the field, the same in both versions.
    source: &'static str,
    /// The selector field of the older form; empty if the source has no metric of its own.
    selector: &'static str,
    /// Older names of the three values of a target, then of a current value.
    target: Values,
    current: Values,
    /// The value that the older form always has.
    needed_target: &'static str,
    needed_current: &'static str,
}

/// Older names of `value`, `averageValue` and `averageUtilization`, empty where there is none.
type Values = [&'static str; 3];

const NEWER: Values = ["value", "averageValue", "averageUtilization"];

const SPELLINGS: [Spelling; 5] = [
    Spelling {
        source: "object",
        selector: "selector",
        target: ["targetValue", "averageValue", ""],
        current: ["currentValue", "averageValue", ""],
        needed_target: "targetValue",
        needed_current: "currentValue",
    },
    Spelling {
        source: "pods",
        selector: "selector",
        target: ["", "targetAverageValue", ""],
        current: ["", "currentAverageValue", ""],
        needed_target: "targetAverageValue",
        needed_current: "currentAverageValue",
    },
    Spelling {
        source: "resource",
        selector: "",
        target: ["", "targetAverageValue", "targetAverageUtilization"],
        current: ["", "currentAverageValue", "currentAverageUtilization"],
        needed_target: "",
        needed_current: "currentAverageValue",
    },
    Spelling {
        source: "containerResource",
        selector: "",
        target: ["", "targetAverageValue", "targetAverageUtilization"],
        current: ["", "currentAverageValue", "currentAverageUtilization"],
        needed_target: "",
        needed_current: "currentAverageValue",
    },
    Spelling {
        source: "external",
        selector: "metricSelector",
        target: ["targetValue", "targetAverageValue", ""],
        current: ["currentValue", "currentAverageValue", ""],
        needed_target: "",
        needed_current: "currentValue",
    },
];

impl Spelling {
    fn values(&self, side: Side) -> (&Values, &'static str) {
        match side {
            Side::Target => (&self.target, self.needed_target),
            Side::Current => (&self.current, self.needed_current),
        }
    }
}

impl Side {
    fn field(self) -> &'static str {
        match self {
            Side::Target => "target",
            Side::Current => "current",
        }
    }
}

/// Copies a field that is there.
fn copy(from: &Value, from_path: &[&str], to: &mut Value, to_path: &[&'static str]) {
    if let Some(value) = from.at(from_path).filter(|it| !it.is_null()) {
        to.set(to_path, value.clone());
    }
}

/// A metric of the newer version as the older one spells it.
pub(super) fn older(metric: &Value, side: Side) -> Value {
    let mut out = Value::map();
    out.set(&["type"], metric.text(&["type"]));
    for spelling in &SPELLINGS {
        let Some(source) = metric.at(&[spelling.source]).filter(|it| !it.is_null()) else { continue };
        let mut flat = Value::map();
        if spelling.selector.is_empty() {
            flat.set(&["name"], source.text(&["name"]));
            copy(source, &["container"], &mut flat, &["container"]);
        } else {
            flat.set(&["metricName"], source.text(&["metric", "name"]));
            copy(source, &["metric", "selector"], &mut flat, &[spelling.selector]);
        }
        copy(source, &["describedObject"], &mut flat, &["target"]);
        let (values, needed) = spelling.values(side);
        for (name, newer) in values.iter().zip(NEWER).filter(|(name, _)| !name.is_empty()) {
            copy(source, &[side.field(), newer], &mut flat, &[name]);
        }
        if !needed.is_empty() && flat.at(&[needed]).is_none() {
            flat.set(&[needed], "0");
        }
        out.set(&[spelling.source], flat);
    }
    out
}

/// A metric of the older version as the newer one spells it.
pub(super) fn newer(metric: &Value, side: Side) -> Value {
    let mut out = Value::map();
    copy(metric, &["type"], &mut out, &["type"]);
    for spelling in &SPELLINGS {
        let Some(flat) = metric.at(&[spelling.source]).filter(|it| !it.is_null()) else { continue };
        let mut source = Value::map();
        if spelling.selector.is_empty() {
            copy(flat, &["name"], &mut source, &["name"]);
            copy(flat, &["container"], &mut source, &["container"]);
        } else {
            copy(flat, &["metricName"], &mut source, &["metric", "name"]);
            copy(flat, &[spelling.selector], &mut source, &["metric", "selector"]);
        }
        if spelling.source == "object" {
            copy(flat, &["target"], &mut source, &["describedObject"]);
        }
        let (values, needed) = spelling.values(side);
        for (name, newer) in values.iter().zip(NEWER).filter(|(name, _)| !name.is_empty()) {
            copy(flat, &[name], &mut source, &[side.field(), newer]);
            if *name == needed && source.at(&[side.field(), newer]).is_none() {
                source.set(&[side.field(), newer], "0");
            }
        }
        if side == Side::Target {
            source.set(&["target", "type"], target_type(&source));
        }
        out.set(&[spelling.source], source);
    }
    out
}

/// The older version has no target type; it follows from the values.
fn target_type(source: &Value) -> &'static str {
    let has = |field: &str| source.at(&["target", field]).is_some();
    let measured = source.at(&["metric"]).is_some();
    if has("averageUtilization") {
        "Utilization"
    } else if has("averageValue") || !measured {
        "AverageValue"
    } else {
        "Value"
    }
}

/// The utilization of the processor that a metric speaks of, if it does.
pub(super) fn utilization(metric: &Value, side: Side) -> Option<i64> {
    let of_processor = metric.text(&["type"]) == "Resource" && metric.text(&["resource", "name"]) == "cpu";
    let percent = metric.at(&["resource", side.field(), "averageUtilization"]);
    percent.filter(|_| of_processor).and_then(Value::as_int)
}
