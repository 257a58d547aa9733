//! The status of a pod: updates, and the quality-of-service class of its spec.

use super::update;
use crate::check::{self, Problems};
use crate::read;
use rest::hooks::{Context, replace};
use schema::problem::{Problem, Reason};
use schema::{Path, Value, format};
use std::collections::{HashMap, HashSet};

/// Takes the status and the metadata from the node agent, except for the owner references.
pub(super) fn apply(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    let owners = next.at(&["metadata", "ownerReferences"]).cloned();
    replace(next, submitted, "status");
    replace(next, submitted, "metadata");
    match owners {
        Some(owners) => next.set(&["metadata", "ownerReferences"], owners),
        None => {
            next.unset(&["metadata", "ownerReferences"]);
        }
    }
}

pub(super) fn validate(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    update::annotations(new, old, context.names, &mut out);
    conditions(new, &mut out);
    let status = Path::ROOT.field("status");
    let nominated = new.text(&["status", "nominatedNodeName"]);
    if !nominated.is_empty() && nominated != old.text(&["status", "nominatedNodeName"]) {
        check::subdomain(nominated, &status.field("nominatedNodeName"), &mut out);
    }
    let policy = old.text(&["spec", "restartPolicy"]);
    for (field, policy) in [
        ("containerStatuses", policy),
        ("initContainerStatuses", policy),
        // these are never started again, whatever the pod says
        ("ephemeralContainerStatuses", "Never"),
    ] {
        transitions(new, old, field, policy, &mut out);
    }
    addresses(new.items(&["status", "podIPs"]), &status.field("podIPs"), &mut out);
    out
}

fn conditions(new: &Value, out: &mut Problems) {
    // clients know the conditions by this path, odd as it is
    let path = Path::ROOT.field("metadata");
    let path = path.field("conditions");
    for (at, condition) in new.items(&["status", "conditions"]).iter().enumerate() {
        check::qualified_name(condition.text(&["type"]), &path.index(at).field("Type"), out);
    }
}

/// A container that has ended and is not started again stays ended.
fn transitions(new: &Value, old: &Value, field: &str, policy: &str, out: &mut Problems) {
    if policy == "Always" {
        return;
    }
    let terminated = |it: &Value| read::has(it, &["state", "terminated"]);
    let states: HashMap<&str, bool> =
        new.items(&["status", field]).iter().map(|it| (it.text(&["name"]), terminated(it))).collect();
    let path = Path::ROOT.field("status");
    let path = path.field(field);
    for (at, was) in old.items(&["status", field]).iter().enumerate() {
        let failed = read::int(was, &["state", "terminated", "exitCode"]) != 0;
        let over = terminated(was) && !(failed && policy == "OnFailure");
        if over && states.get(was.text(&["name"])) == Some(&false) {
            const WHY: &str = "may not be transitioned to non-terminated state";
            out.push(Problem::forbidden(&path.index(at).field("state"), WHY));
        }
    }
}

fn addresses(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    let mut parsed = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let text = item.text(&["ip"]);
        match format::parse_ip(text) {
            Some(address) => parsed.push(address),
            None => {
                let why = format::ip(text);
                out.extend(why.iter().map(|why| Problem::invalid_text(&path.index(at), text, why)));
            }
        }
    }
    if items.len() < 2 {
        return;
    }
    if parsed.len() != items.len() {
        let message =
            "Internal error: failed to check for dual stack with error:ip <nil> is invalid".to_owned();
        out.push(Problem { reason: Reason::InternalError, field: path.to_string(), message });
    }
    if items.len() > 2 || parsed.len() != items.len() || !check::is_dual_stack(&parsed) {
        const WHY: &str = "may specify no more than one IP for each IP family";
        out.push(Problem::invalid(path, &Value::List(items.to_vec()), WHY));
    }
    let mut seen = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        if !seen.insert(item.text(&["ip"])) {
            out.push(Problem::duplicate(&path.index(at), item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn ended_containers_stay_ended() {
        let check = |policy: &str, code: i64, expected: usize| {
            let old = json(&format!(
                r#"{{"spec":{{"restartPolicy":{policy:?}}},"status":{{"containerStatuses":[
                    {{"name":"c","state":{{"terminated":{{"exitCode":{code}}}}}}}]}}}}"#
            ));
            let new = json(r#"{"status":{"containerStatuses":[{"name":"c","state":{"running":{}}}]}}"#);
            assert_eq!(validate(&new, &old, &context()).len(), expected, "{policy} {code}");
        };
        check("Always", 0, 0);
        check("OnFailure", 1, 0);
        check("OnFailure", 0, 1);
        check("Never", 1, 1);
    }

    #[test]
    fn addresses_are_one_for_each_family() {
        let check = |ips: &str, expected: usize| {
            let object =
                json(&format!(r#"{{"spec":{{"restartPolicy":"Always"}},"status":{{"podIPs":{ips}}}}}"#));
            assert_eq!(validate(&object, &object, &context()).len(), expected, "{ips}");
        };
        check(r#"[{"ip":"1.1.1.1"},{"ip":"fd00::1"}]"#, 0);
        check(r#"[{"ip":"1.1.1.1"},{"ip":"1.1.1.2"}]"#, 1);
        check(r#"[{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}]"#, 2);
        check(r#"[{"ip":"x"}]"#, 1);
        // the address, families that cannot be read, and the rule about them
        check(r#"[{"ip":"1.1.1.1"},{"ip":"x"}]"#, 3);
    }

    #[test]
    fn owners_are_not_the_status() {
        let mut next = json(r#"{"metadata":{"ownerReferences":[{"name":"a"}]},"spec":{"a":1}}"#);
        let submitted =
            json(r#"{"metadata":{"labels":{"x":"y"}},"spec":{"a":2},"status":{"phase":"Running"}}"#);
        apply(&mut next, &submitted, &context());
        let expected = r#"{"metadata":{"labels":{"x":"y"},"ownerReferences":[{"name":"a"}]},"spec":{"a":1},"status":{"phase":"Running"}}"#;
        assert_eq!(next, json(expected));
    }

    #[test]
    fn types_of_conditions_are_names() {
        let object =
            json(r#"{"spec":{"restartPolicy":"Always"},"status":{"conditions":[{"type":"In valid"}]}}"#);
        let found = problems(&validate(&object, &object, &context()));
        assert!(
            found[0].starts_with(r#"metadata.conditions[0].Type: Invalid value: "In valid": name part"#),
            "{found:?}"
        );
    }
}
