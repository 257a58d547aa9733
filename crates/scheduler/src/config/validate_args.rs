//! Validation of the arguments of plugins.

use super::args::ArgsKind;
use super::error::ConfigError;
use super::gates::Gates;
use super::read::{int64, text, texts};
use schema::Value;
use schema::format::{label_value, qualified_name};
use schema::problem::quoted;
use std::collections::HashSet;
use std::fmt::Display;

/// Collects messages.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<String>);

impl Errors {
    pub(super) fn push(&mut self, message: String) {
        self.0.push(message);
    }

    /// `value` is shown as it is: texts come quoted.
    pub(super) fn invalid(&mut self, path: &str, value: impl Display, detail: impl Display) {
        self.push(format!("{path}: Invalid value: {value}: {detail}"));
    }

    pub(super) fn required(&mut self, path: &str, detail: &str) {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.push(format!("{path}: Required value{detail}"));
    }

    fn not_supported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let known: Vec<String> = supported.iter().map(|text| quoted(text)).collect();
        let known = match known.is_empty() {
            true => String::new(),
            false => format!(": supported values: {}", known.join(", ")),
        };
        self.push(format!("{path}: Unsupported value: {}{known}", quoted(value)));
    }

    pub(super) fn finish(self) -> Result<(), ConfigError> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(self.0)) }
    }
}

/// Checks arguments. `prefix` ends in a dot, or is empty.
pub(super) fn validate(kind: ArgsKind, args: &Value, prefix: &str, gates: Gates, errors: &mut Errors) {
    let path = |field: &str| format!("{prefix}{field}");
    match kind {
        ArgsKind::DefaultPreemption => validate_default_preemption(args, &path, errors),
        ArgsKind::InterPodAffinity => {
            let weight = int64(args, "hardPodAffinityWeight").unwrap_or(0);
            if !(0..=100).contains(&weight) {
                errors.invalid(&path("hardPodAffinityWeight"), weight, "not in valid range [0, 100]");
            }
        }
        ArgsKind::NodeAffinity => validate_node_affinity(args, &path("addedAffinity"), errors),
        ArgsKind::NodeResourcesBalancedAllocation => validate_balanced_allocation(args, prefix, errors),
        ArgsKind::NodeResourcesFit => validate_fit(args, prefix, errors),
        ArgsKind::PodTopologySpread => validate_spread(args, prefix, errors),
        ArgsKind::VolumeBinding => validate_volume_binding(args, prefix, gates, errors),
    }
}

fn validate_default_preemption(args: &Value, path: &impl Fn(&str) -> String, errors: &mut Errors) {
    let percentage = int64(args, "minCandidateNodesPercentage").unwrap_or(0);
    let absolute = int64(args, "minCandidateNodesAbsolute").unwrap_or(0);
    let (percentage_path, absolute_path) =
        (path("minCandidateNodesPercentage"), path("minCandidateNodesAbsolute"));
    if !(0..=100).contains(&percentage) {
        errors.invalid(&percentage_path, percentage, "not in valid range [0, 100]");
    }
    if absolute < 0 {
        errors.invalid(&absolute_path, absolute, "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        let with = |other: &str| format!("cannot be zero at the same time as {other}");
        errors.invalid(&percentage_path, 0, with("minCandidateNodesAbsolute"));
        errors.invalid(&absolute_path, 0, with("minCandidateNodesPercentage"));
    }
}

fn validate_label_name(path: &str, name: &str, errors: &mut Errors) {
    for complaint in qualified_name(name) {
        errors.invalid(path, quoted(name), complaint);
    }
}

fn validate_fit(args: &Value, prefix: &str, errors: &mut Errors) {
    for (at, resource) in texts(args, "ignoredResources").iter().enumerate() {
        validate_label_name(&format!("{prefix}ignoredResources[{at}]"), resource, errors);
    }
    for (at, group) in texts(args, "ignoredResourceGroups").iter().enumerate() {
        let path = format!("{prefix}ignoredResourceGroups[{at}]");
        if group.contains('/') {
            errors.invalid(&path, quoted(group), "resource group name can't contain '/'");
        }
        validate_label_name(&path, group, errors);
    }
    let Some(strategy) = args.at(&["scoringStrategy"]) else { return };
    let prefix = format!("{prefix}scoringStrategy");
    let kind = text(strategy, "type");
    let known = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    if !known.contains(&&*kind) {
        errors.not_supported(&format!("{prefix}.type"), &kind, &known);
    }
    for (at, resource) in strategy.items(&["resources"]).iter().enumerate() {
        let weight = int64(resource, "weight").unwrap_or(0);
        if !(1..=100).contains(&weight) {
            let name = text(resource, "name");
            let detail = format!("resource weight of {name} not in valid range (0, 100]");
            errors.invalid(&format!("{prefix}.resources[{at}].weight"), weight, detail);
        }
    }
    if let Some(ratio) = strategy.at(&["requestedToCapacityRatio"]) {
        validate_shape(ratio.items(&["shape"]), &format!("{prefix}.shape"), errors);
    }
}

fn validate_shape(shape: &[Value], path: &str, errors: &mut Errors) {
    if shape.is_empty() {
        return errors.required(path, "at least one point must be specified");
    }
    let points: Vec<(i64, i64)> = shape
        .iter()
        .map(|point| (int64(point, "utilization").unwrap_or(0), int64(point, "score").unwrap_or(0)))
        .collect();
    let unsorted = points.windows(2).position(|pair| matches!(pair, [a, b] if a.0 >= b.0));
    if let Some(at) = unsorted {
        let detail = "utilization values must be sorted in increasing order";
        errors.invalid(&format!("{path}[{}].utilization", at + 1), points[at + 1].0, detail);
    }
    for (at, (utilization, score)) in points.into_iter().enumerate() {
        if !(0..=100).contains(&utilization) {
            let path = format!("{path}[{at}].utilization");
            errors.invalid(&path, utilization, "not in valid range [0, 100]");
        }
        if !(0..=10).contains(&score) {
            errors.invalid(&format!("{path}[{at}].score"), score, "not in valid range [0, 10]");
        }
    }
}

fn validate_balanced_allocation(args: &Value, prefix: &str, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (at, resource) in args.items(&["resources"]).iter().enumerate() {
        let path = format!("{prefix}resources[{at}]");
        let name = text(resource, "name");
        if !seen.insert(name.clone()) {
            errors.push(format!("{path}.name: Duplicate value: {}", quoted(&name)));
        }
        let weight = int64(resource, "weight").unwrap_or(0);
        if weight != 1 {
            errors.invalid(&format!("{path}.weight"), weight, "must be 1");
        }
    }
}

fn validate_spread(args: &Value, prefix: &str, errors: &mut Errors) {
    let constraints = args.items(&["defaultConstraints"]);
    let defaulting = text(args, "defaultingType");
    let path = format!("{prefix}defaultingType");
    match &*defaulting {
        "System" if !constraints.is_empty() => {
            errors.invalid(&path, "\"System\"", "when .defaultConstraints are not empty");
        }
        "System" | "List" => {}
        other => errors.not_supported(&path, other, &["System", "List"]),
    }
    let mut seen = HashSet::new();
    for (at, constraint) in constraints.iter().enumerate() {
        let path = format!("{prefix}defaultConstraints[{at}]");
        let skew = int64(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&format!("{path}.maxSkew"), skew, "not in valid range (0, inf)");
        }
        let key = text(constraint, "topologyKey");
        if key.is_empty() {
            errors.required(&format!("{path}.topologyKey"), "can not be empty");
        } else {
            validate_label_name(&format!("{path}.topologyKey"), &key, errors);
        }
        let action = text(constraint, "whenUnsatisfiable");
        let action_path = format!("{path}.whenUnsatisfiable");
        match &*action {
            "" => errors.required(&action_path, "can not be empty"),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => errors.not_supported(&action_path, other, &["DoNotSchedule", "ScheduleAnyway"]),
        }
        if constraint.at(&["labelSelector"]).is_some() {
            let why = "constraint must not define a selector, as they deduced for each pod";
            errors.push(format!("{path}.labelSelector: Forbidden: {why}"));
        }
        let shown = quoted(&format!("{{{key}, {action}}}"));
        if !seen.insert((key, action)) {
            errors.push(format!("{path}: Duplicate value: {shown}"));
        }
    }
}

fn validate_volume_binding(args: &Value, prefix: &str, gates: Gates, errors: &mut Errors) {
    let timeout = int64(args, "bindTimeoutSeconds").unwrap_or(0);
    if timeout < 0 {
        let detail = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.invalid(&format!("{prefix}bindTimeoutSeconds"), timeout, detail);
    }
    let path = format!("{prefix}shape");
    let shape = args.items(&["shape"]);
    if gates.volume_capacity_priority {
        validate_shape(shape, &path, errors);
    } else if args.at(&["shape"]).is_some() {
        let detail = "unexpected field `shape`, remove it or turn on the feature gate VolumeCapacityPriority";
        errors.invalid(&path, go_shape(shape), detail);
    }
}

/// A shape as upstream's messages show it.
fn go_shape(shape: &[Value]) -> String {
    let number = |point: &Value, field: &str| int64(point, field).unwrap_or(0);
    let point = |it: &Value| {
        let (utilization, score) = (number(it, "utilization"), number(it, "score"));
        format!("config.UtilizationShapePoint{{Utilization:{utilization}, Score:{score}}}")
    };
    let points: Vec<String> = shape.iter().map(point).collect();
    format!("[]config.UtilizationShapePoint{{{}}}", points.join(", "))
}

fn validate_node_affinity(args: &Value, path: &str, errors: &mut Errors) {
    let Some(affinity) = args.at(&["addedAffinity"]) else { return };
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for (at, term) in affinity.items(&[REQUIRED, "nodeSelectorTerms"]).iter().enumerate() {
        validate_term(term, &format!("{path}.{REQUIRED}.nodeSelectorTerms[{at}]"), errors);
    }
    for (at, preferred) in affinity.items(&[PREFERRED]).iter().enumerate() {
        let Some(term) = preferred.at(&["preference"]) else { continue };
        // a term without weight never counts
        if int64(preferred, "weight").unwrap_or(0) != 0 {
            validate_term(term, &format!("{path}.{PREFERRED}[{at}]"), errors);
        }
    }
}

fn validate_term(term: &Value, path: &str, errors: &mut Errors) {
    for (at, requirement) in term.items(&["matchExpressions"]).iter().enumerate() {
        validate_expression(requirement, &format!("{path}.matchExpressions[{at}]"), errors);
    }
    for (at, requirement) in term.items(&["matchFields"]).iter().enumerate() {
        let path = format!("{path}.matchFields[{at}]");
        let values = texts(requirement, "values");
        match &*text(requirement, "operator") {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                errors.invalid(&format!("{path}.values"), go_texts(&values), "must have one element");
            }
            other => errors.not_supported(&format!("{path}.operator"), other, &["In", "NotIn"]),
        }
    }
}

fn validate_expression(requirement: &Value, path: &str, errors: &mut Errors) {
    let (key, operator) = (text(requirement, "key"), text(requirement, "operator"));
    let values = texts(requirement, "values");
    if !["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"].contains(&&*operator) {
        return errors.not_supported(&format!("{path}.operator"), &operator, &[]);
    }
    let complaints = qualified_name(&key);
    if !complaints.is_empty() {
        errors.invalid(&format!("{path}.key"), quoted(&key), complaints.join("; "));
    }
    let values_path = format!("{path}.values");
    let wrong = match &*operator {
        "In" | "NotIn" if values.is_empty() => Some("for 'in', 'notin' operators, values set can't be empty"),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Some("values set must be empty for exists and does not exist")
        }
        "Gt" | "Lt" if values.len() != 1 => Some("for 'Gt', 'Lt' operators, exactly one value is required"),
        _ => None,
    };
    if let Some(detail) = wrong {
        errors.invalid(&values_path, go_texts(&values), detail);
    }
    if matches!(&*operator, "Gt" | "Lt") {
        for (at, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.invalid(&format!("{values_path}[{at}]"), quoted(value), detail);
        }
    }
    for (at, value) in values.iter().enumerate() {
        let complaints = label_value(value);
        if !complaints.is_empty() {
            errors.invalid(&format!("{values_path}[{at}][{key}]"), quoted(value), complaints.join("; "));
        }
    }
}

/// A list of texts as upstream's messages show it.
fn go_texts(texts: &[String]) -> String {
    if texts.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[]string{{{}}}", texts.join(", "))
}
