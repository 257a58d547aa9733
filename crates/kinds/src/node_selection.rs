//! Constraints on the node of a pod: tolerations, taints, selectors, affinity and spreading.
//!
//! Pods, nodes and runtime classes use them.

use crate::check::{self, Problems};
use crate::read;
use schema::problem::{Problem, Reason, quoted};
use schema::table::Format;
use schema::{Path, Value};
use std::collections::HashSet;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NOT_OPERATOR: &str = "not a valid selector operator";

pub fn tolerations(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    for (at, item) in items.iter().enumerate() {
        toleration(item, &path.index(at), out);
    }
}

fn toleration(item: &Value, path: &Path<'_>, out: &mut Problems) {
    let (key, operator, effect) = (item.text(&["key"]), item.text(&["operator"]), item.text(&["effect"]));
    if !key.is_empty() {
        check::qualified_name(key, &path.field("key"), out);
    } else if operator != "Exists" {
        const WHY: &str =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        out.push(Problem::invalid_text(&path.field("operator"), operator, WHY));
    }
    if read::has(item, &["tolerationSeconds"]) && effect != "NoExecute" {
        const WHY: &str = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        out.push(Problem::invalid_text(&path.field("effect"), effect, WHY));
    }
    let value = item.text(&["value"]);
    match operator {
        "" | "Equal" => {
            let why = check::why(Format::LabelValue, value);
            if !why.is_empty() {
                out.push(Problem::invalid_text(&path.field("operator"), value, &why.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            const WHY: &str = "value must be empty when `operator` is 'Exists'";
            out.push(check::invalid_formatted(&path.field("operator"), &format_toleration(item), WHY));
        }
        "Exists" => {}
        _ => out.push(check::unsupported(&path.field("operator"), operator, &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        taint_effect(effect, &path.field("effect"), out);
    }
}

/// A toleration as messages show it.
pub(crate) fn format_toleration(item: &Value) -> String {
    let text = |field: &str| quoted(item.text(&[field]));
    let seconds = match read::opt_int(item, &["tolerationSeconds"]) {
        Some(seconds) => format!("(*int64)({seconds})"),
        None => "(*int64)(nil)".to_owned(),
    };
    format!(
        "core.Toleration{{Key:{}, Operator:{}, Value:{}, Effect:{}, TolerationSeconds:{seconds}}}",
        text("key"),
        text("operator"),
        text("value"),
        text("effect")
    )
}

fn taint_effect(effect: &str, path: &Path<'_>, out: &mut Problems) {
    check::one_of(effect, EFFECTS, path, out);
}

pub(crate) fn taints(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    let mut seen = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        let path = path.index(at);
        let (key, value, effect) = (item.text(&["key"]), item.text(&["value"]), item.text(&["effect"]));
        check::qualified_name(key, &path.field("key"), out);
        let why = check::why(Format::LabelValue, value);
        if !why.is_empty() {
            out.push(Problem::invalid_text(&path.field("value"), value, &why.join(";")));
        }
        taint_effect(effect, &path.field("effect"), out);
        if !seen.insert((key, effect)) {
            let added = match read::opt_text(item, &["timeAdded"]) {
                Some(time) => time.to_owned(),
                None => "<nil>".to_owned(),
            };
            let (key, value, effect) = (quoted(key), quoted(value), quoted(effect));
            let message = format!(
                "Duplicate value: core.Taint{{Key:{key}, Value:{value}, Effect:{effect}, TimeAdded:{added}}}: \
                 taints must be unique by key and effect pair"
            );
            out.push(Problem { reason: Reason::Duplicate, field: path.to_string(), message });
        }
    }
}

/// A selector over labels, absent or not.
pub(crate) fn label_selector(selector: Option<&Value>, path: &Path<'_>, out: &mut Problems) {
    let Some(selector) = selector.filter(|it| !it.is_null()) else { return };
    if let Some(labels) = selector.at(&["matchLabels"]) {
        check::labels(labels, &path.field("matchLabels"), out);
    }
    let expressions = path.field("matchExpressions");
    for (at, one) in selector.items(&["matchExpressions"]).iter().enumerate() {
        let path = expressions.index(at);
        let values = one.items(&["values"]);
        match one.text(&["operator"]) {
            "In" | "NotIn" => some_values(values, &path, out),
            "Exists" | "DoesNotExist" => no_values(values, &path, out),
            other => out.push(Problem::invalid_text(&path.field("operator"), other, NOT_OPERATOR)),
        }
        check::qualified_name(one.text(&["key"]), &path.field("key"), out);
        let values_path = path.field("values");
        for (at, value) in values.iter().enumerate() {
            check::label_value(read::text(value), &values_path.index(at), out);
        }
    }
}

fn some_values(values: &[Value], path: &Path<'_>, out: &mut Problems) {
    if values.is_empty() {
        out.push(Problem::required(
            &path.field("values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        ));
    }
}

fn no_values(values: &[Value], path: &Path<'_>, out: &mut Problems) {
    if !values.is_empty() {
        const WHY: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
        out.push(Problem::forbidden(&path.field("values"), WHY));
    }
}

pub(crate) fn affinity(affinity: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(node) = affinity.at(&["nodeAffinity"]) {
        node_affinity(node, &path.field("nodeAffinity"), out);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        if let Some(pod) = affinity.at(&[field]) {
            pod_affinity(pod, &path.field(field), out);
        }
    }
}

fn node_affinity(affinity: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(selector) = affinity.at(&[REQUIRED]).filter(|it| !it.is_null()) {
        node_selector(selector, &path.field(REQUIRED), out);
    }
    let preferred = path.field(PREFERRED);
    for (at, one) in affinity.items(&[PREFERRED]).iter().enumerate() {
        let path = preferred.index(at);
        weight(one, &path, out);
        if let Some(term) = one.at(&["preference"]) {
            node_term(term, &path.field("preference"), out);
        }
    }
}

/// A selector over nodes, by their labels and fields.
pub(crate) fn node_selector(selector: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("nodeSelectorTerms");
    let terms = selector.items(&["nodeSelectorTerms"]);
    if terms.is_empty() {
        out.push(Problem::required(&path, "must have at least one node selector term"));
    }
    for (at, term) in terms.iter().enumerate() {
        node_term(term, &path.index(at), out);
    }
}

fn weight(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let weight = read::int(one, &["weight"]);
    if !(1..=100).contains(&weight) {
        out.push(check::invalid_int(&path.field("weight"), weight, "must be in the range 1-100"));
    }
}

fn node_term(term: &Value, path: &Path<'_>, out: &mut Problems) {
    let expressions = path.field("matchExpressions");
    for (at, one) in term.items(&["matchExpressions"]).iter().enumerate() {
        let path = expressions.index(at);
        let values = one.items(&["values"]);
        match one.text(&["operator"]) {
            "In" | "NotIn" => some_values(values, &path, out),
            "Exists" | "DoesNotExist" => no_values(values, &path, out),
            "Gt" | "Lt" if values.len() == 1 => {}
            "Gt" | "Lt" => {
                const WHY: &str = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                out.push(Problem::required(&path.field("values"), WHY));
            }
            other => out.push(Problem::invalid_text(&path.field("operator"), other, NOT_OPERATOR)),
        }
        check::qualified_name(one.text(&["key"]), &path.field("key"), out);
    }
    let fields = path.field("matchFields");
    for (at, one) in term.items(&["matchFields"]).iter().enumerate() {
        node_field(one, &fields.index(at), out);
    }
}

fn node_field(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let values = one.items(&["values"]);
    match one.text(&["operator"]) {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            const WHY: &str =
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            out.push(Problem::required(&path.field("values"), WHY));
        }
        other => out.push(Problem::invalid_text(&path.field("operator"), other, NOT_OPERATOR)),
    }
    let key = one.text(&["key"]);
    if key != "metadata.name" {
        out.push(Problem::invalid_text(&path.field("key"), key, "not a valid field selector key"));
        return;
    }
    let path = path.field("values");
    for (at, value) in values.iter().enumerate() {
        check::subdomain(read::text(value), &path.index(at), out);
    }
}

fn pod_affinity(affinity: &Value, path: &Path<'_>, out: &mut Problems) {
    let required = path.field(REQUIRED);
    for (at, term) in affinity.items(&[REQUIRED]).iter().enumerate() {
        pod_term(term, &required.index(at), out);
    }
    let preferred = path.field(PREFERRED);
    for (at, one) in affinity.items(&[PREFERRED]).iter().enumerate() {
        let path = preferred.index(at);
        weight(one, &path, out);
        pod_term(one.at(&["podAffinityTerm"]).unwrap_or(&Value::Null), &path.field("podAffinityTerm"), out);
    }
}

fn pod_term(term: &Value, path: &Path<'_>, out: &mut Problems) {
    label_selector(term.at(&["labelSelector"]), &path.field("labelSelector"), out);
    label_selector(term.at(&["namespaceSelector"]), &path.field("namespaceSelector"), out);
    for name in term.items(&["namespaces"]) {
        check::label(read::text(name), &path.field("namespace"), out);
    }
    let key = term.text(&["topologyKey"]);
    let path = path.field("topologyKey");
    if key.is_empty() {
        out.push(Problem::required(&path, "can not be empty"));
    }
    check::qualified_name(key, &path, out);
}

pub(crate) fn topology_spread(constraints: &[Value], path: &Path<'_>, out: &mut Problems) {
    // the earlier of two equal constraints is reported, so later ones are counted first
    let tuple =
        |it: &Value| (it.text(&["topologyKey"]).to_owned(), it.text(&["whenUnsatisfiable"]).to_owned());
    let mut later = HashSet::new();
    let mut repeated = vec![false; constraints.len()];
    for (at, one) in constraints.iter().enumerate().rev() {
        repeated[at] = !later.insert(tuple(one));
    }
    for (at, one) in constraints.iter().enumerate() {
        let path = path.index(at);
        let skew = read::int(one, &["maxSkew"]);
        if skew <= 0 {
            out.push(check::invalid_int(&path.field("maxSkew"), skew, "must be greater than zero"));
        }
        let (key, action) = tuple(one);
        if key.is_empty() {
            out.push(Problem::required(&path.field("topologyKey"), "can not be empty"));
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&&*action) {
            let supported = ["DoNotSchedule", "ScheduleAnyway"];
            out.push(check::unsupported(&path.field("whenUnsatisfiable"), &action, &supported));
        }
        if repeated[at] {
            let path = path.field("{topologyKey, whenUnsatisfiable}");
            out.push(check::duplicate_text(&path, &format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = one.at(&["minDomains"]).and_then(Value::as_int) {
            min_domains(domains, &action, &path.field("minDomains"), out);
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = read::opt_text(one, &[field]).filter(|it| !["Honor", "Ignore"].contains(it))
            {
                out.push(check::unsupported(&path.field(field), policy, &["Honor", "Ignore"]));
            }
        }
        match_label_keys(one, &path.field("matchLabelKeys"), out);
    }
}

fn min_domains(domains: i64, action: &str, path: &Path<'_>, out: &mut Problems) {
    if domains <= 0 {
        out.push(check::invalid_int(path, domains, "must be greater than zero"));
    }
    if action != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        out.push(check::invalid_int(path, domains, &why));
    }
}

/// The keys of a constraint must be others than those of its selector, which itself is not checked.
fn match_label_keys(constraint: &Value, path: &Path<'_>, out: &mut Problems) {
    let labels = read::map(constraint, &["labelSelector", "matchLabels"]);
    let expressions = constraint.items(&["labelSelector", "matchExpressions"]);
    let selected: HashSet<&str> =
        labels.iter().map(|(key, _)| key).chain(expressions.iter().map(|it| it.text(&["key"]))).collect();
    for (at, key) in constraint.items(&["matchLabelKeys"]).iter().map(read::text).enumerate() {
        check::qualified_name(key, &path.index(at), out);
        if selected.contains(key) {
            const WHY: &str = "exists in both matchLabelKeys and labelSelector";
            out.push(Problem::invalid_text(&path.index(at), key, WHY));
        }
    }
}

/// The tolerations of two lists, except covered ones.
pub fn merge_tolerations(first: &[Value], second: &[Value]) -> Vec<Value> {
    // coverage is decided pair by pair; in longer lists only equal tolerations are left out
    const MOST_COMPARED: usize = 256;
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::with_capacity(all.len());
    if all.len() > MOST_COMPARED {
        let mut seen = HashSet::new();
        merged.extend(all.into_iter().filter(|it| seen.insert(format_toleration(it))).cloned());
        return merged;
    }
    for (at, one) in all.iter().enumerate() {
        let covered_later = all[at + 1..].iter().any(|other| other != one && covers(other, one));
        if !merged.iter().any(|other| covers(other, one)) && !covered_later {
            merged.push((*one).clone());
        }
    }
    merged
}

/// Whether everything that `b` tolerates is tolerated by `a`.
pub fn covers(a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    let exists = a.text(&["operator"]) == "Exists";
    let key_fits = a.text(&["key"]) == b.text(&["key"]) || (a.text(&["key"]).is_empty() && exists);
    let effect_fits = a.text(&["effect"]).is_empty() || a.text(&["effect"]) == b.text(&["effect"]);
    if !key_fits || !effect_fits {
        return false;
    }
    if a.text(&["effect"]) == "NoExecute" {
        match (read::opt_int(a, &["tolerationSeconds"]), read::opt_int(b, &["tolerationSeconds"])) {
            (Some(_), None) => return false,
            (Some(ours), Some(theirs)) if ours < theirs => return false,
            _ => {}
        }
    }
    match a.text(&["operator"]) {
        "Exists" => true,
        // API behaviour: only an explicit `Equal` covers another toleration
        "" | "Equal" => b.text(&["operator"]) == "Equal" && a.text(&["value"]) == b.text(&["value"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn tolerations_are_consistent() {
        let check = |item: &str, expected: &[&str]| {
            let mut out = Problems::new();
            tolerations(&[json(item)], &Path::ROOT.field("t"), &mut out);
            assert_eq!(problems(&out), expected, "{item}");
        };
        check(r#"{"operator":"Exists"}"#, &[]);
        check(
            r#"{"key":"k","tolerationSeconds":1,"effect":"NoSchedule"}"#,
            &[
                r#"t[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
            ],
        );
        check(
            r#"{"key":"k","operator":"Bogus"}"#,
            &[r#"t[0].operator: Unsupported value: "Bogus": supported values: "Equal", "Exists""#],
        );
    }

    #[test]
    fn equal_constraints_are_found_once() {
        let one = r#"{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}"#;
        let mut out = Problems::new();
        topology_spread(&[json(one), json(one)], &Path::ROOT.field("t"), &mut out);
        let expected = r#"t[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}""#;
        assert_eq!(problems(&out), [expected]);
    }

    #[test]
    fn domains_and_label_keys_of_constraints_are_checked() {
        let one = r#"{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway","minDomains":0,
            "labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Bogus"}]},
            "matchLabelKeys":["a","c","d","e f"]}"#;
        let mut out = Problems::new();
        topology_spread(&[json(one)], &Path::ROOT.field("t"), &mut out);
        let fields: Vec<_> = out.iter().map(|it| &*it.field).collect();
        let keys = ["t[0].matchLabelKeys[0]", "t[0].matchLabelKeys[1]", "t[0].matchLabelKeys[3]"];
        assert_eq!(fields, [&["t[0].minDomains"; 2][..], &keys].concat());
    }

    #[test]
    fn covered_tolerations_are_left_out() {
        let check = |first: &str, second: &str, expected: usize| {
            let (first, second) = (json(first), json(second));
            let merged = merge_tolerations(first.as_list().unwrap_or(&[]), second.as_list().unwrap_or(&[]));
            assert_eq!(merged.len(), expected);
        };
        check(r#"[{"operator":"Exists"}]"#, r#"[{"key":"k","operator":"Exists","effect":"NoSchedule"}]"#, 1);
        check(r#"[{"key":"a"}]"#, r#"[{"key":"b"}]"#, 2);
        check(r#"[{"key":"a","value":"x"}]"#, r#"[{"key":"a","operator":"Exists"}]"#, 1);
    }
}
