//! Updates of pods: the few mutable fields, bindings and ephemeral containers.

use super::spec::{app_armor_prefix, subdomain};
use super::validate::whole;
use super::{container, gated};
use crate::check::{self, Problems};
use crate::{node_selection as scheduling, read};
use names::Names;
use rest::error::{ApiError, Subject};
use rest::hooks::Context;
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::collections::{HashMap, HashSet};

const SPEC_FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`, \
     `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing \
     tolerations) or `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate<const PRIVILEGED: bool>(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    // an unchanged spec was checked before, but for the node, which a binding names; most updates change labels and
    // statuses
    let same = |path: &[&str]| new.at(path) == old.at(path);
    if same(&["spec"]) && same(&["metadata", "annotations"]) {
        let mut out = Problems::new();
        if let Some(spec) = new.at(&["spec"]) {
            subdomain(spec, "nodeName", &Path::ROOT.field("spec"), &mut out);
        }
        return out;
    }
    let mut out = gated::keeping(Some(old), context, |context| whole::<PRIVILEGED>(new, context));
    annotations(new, old, context.names, &mut out);
    let spec = Path::ROOT.field("spec");
    for list in ["containers", "initContainers"] {
        let (is, was) = (new.items(&["spec", list]), old.items(&["spec", list]));
        let path = spec.field(list);
        if is.len() != was.len() {
            out.push(Problem::forbidden(&path, "pod updates may not add or remove containers"));
            return out;
        }
        for (at, one) in is.iter().enumerate() {
            let path = path.index(at);
            check::required(one.text(&["image"]), &path.field("image"), &mut out);
            container::image_is_trimmed(one, &path, &mut out);
        }
    }
    if !deadline(new, old, &spec.field("activeDeadlineSeconds"), &mut out) {
        return out;
    }
    added_tolerations(new, old, &spec.field("tolerations"), &mut out);
    removed_gates(new, old, &spec.field("schedulingGates"), &mut out);
    let (is, was) = (new.at(&["spec"]), old.at(&["spec"]));
    if is != was {
        let unchangeable = changed_fields(new, old);
        if !unchangeable.is_empty() {
            out.push(Problem::forbidden(
                &spec,
                &format!("{SPEC_FORBIDDEN}\nchanged: {}\n", unchangeable.join(", ")),
            ));
        }
    }
    out
}

/// A deadline can be set, and come nearer. Says whether to go on.
fn deadline(new: &Value, old: &Value, path: &Path<'_>, out: &mut Problems) -> bool {
    let at = |object: &Value| read::opt_int(object, &["spec", "activeDeadlineSeconds"]);
    match (at(new), at(old)) {
        (Some(is), _) if is < 0 || is > i64::from(i32::MAX) => {
            check::between(is, 0, i64::from(i32::MAX), path, out);
            false
        }
        (Some(is), Some(was)) if is > was => {
            out.push(check::invalid_int(path, is, "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            out.push(check::null(path, "must not update from a positive integer to nil value"));
            true
        }
        _ => true,
    }
}

/// Tolerations can be added, and how long they last can change.
fn added_tolerations(new: &Value, old: &Value, path: &Path<'_>, out: &mut Problems) {
    let lasting = |it: &Value| {
        let mut it = it.clone();
        it.unset(&["tolerationSeconds"]);
        scheduling::format_toleration(&it)
    };
    let items = new.items(&["spec", "tolerations"]);
    let known: HashSet<String> = items.iter().map(lasting).collect();
    if old.items(&["spec", "tolerations"]).iter().any(|it| !known.contains(&lasting(it))) {
        const WHY: &str = "existing toleration can not be modified except its tolerationSeconds";
        out.push(Problem::forbidden(path, WHY));
        return;
    }
    scheduling::tolerations(items, path, out);
}

/// Gates can be taken away, until there are none.
fn removed_gates(new: &Value, old: &Value, path: &Path<'_>, out: &mut Problems) {
    let names = |object: &Value| -> Vec<String> {
        let items = object.items(&["spec", "schedulingGates"]);
        items.iter().map(|gate| gate.text(&["name"]).to_owned()).collect()
    };
    let known: HashSet<String> = names(old).into_iter().collect();
    for (at, gate) in names(new).iter().enumerate().filter(|(_, gate)| !known.contains(*gate)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        out.push(Problem::forbidden(&path.index(at).field("name"), &why));
    }
}

/// Names of the fields of the spec that differ although they may not.
fn changed_fields(new: &Value, old: &Value) -> Vec<String> {
    let mut is = new.at(&["spec"]).cloned().unwrap_or_default();
    let was = old.at(&["spec"]).cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            was.items(&[list]).iter().map(|it| it.at(&["image"]).cloned()).collect();
        let mut images = images.into_iter();
        read::each_mut(&mut is, &[list], |one| put(one, "image", images.next().flatten()));
    }
    put(&mut is, "activeDeadlineSeconds", was.at(&["activeDeadlineSeconds"]).cloned());
    put(&mut is, "tolerations", was.at(&["tolerations"]).cloned());
    put(&mut is, "schedulingGates", was.at(&["schedulingGates"]).cloned());
    let grace = |spec: &Value| read::opt_int(spec, &["terminationGracePeriodSeconds"]);
    if grace(&was).is_some_and(|it| it < 0) && grace(&is) == Some(1) {
        put(&mut is, "terminationGracePeriodSeconds", was.at(&["terminationGracePeriodSeconds"]).cloned());
    }
    let (is, was) = (read::map(&is, &[]), read::map(&was, &[]));
    let mut fields: Vec<String> = is
        .iter()
        .filter(|(field, value)| !read::same(Some(value), was.get(field)))
        .map(|(field, _)| field.to_owned())
        .collect();
    fields.extend(
        was.iter()
            .filter(|(field, it)| !it.is_null() && !is.contains(field))
            .map(|(field, _)| field.to_owned()),
    );
    fields
}

fn put(value: &mut Value, field: &'static str, other: Option<Value>) {
    match other {
        Some(other) => value.set(&[field], other),
        None => {
            value.unset(&[field]);
        }
    }
}

/// Annotations that the node has acted upon cannot change any more.
pub(super) fn annotations(new: &Value, old: &Value, names: &Names, out: &mut Problems) {
    let path = Path::ROOT.field("metadata");
    let path = path.field("annotations");
    let (profiles, mirror) = (app_armor_prefix(names), names.well_known("config.mirror"));
    let what = |key: &str| {
        if key.starts_with(&*profiles) {
            Some("AppArmor annotations")
        } else if key == mirror {
            Some("mirror pod annotation")
        } else {
            None
        }
    };
    let (is, was) =
        (read::map(new, &["metadata", "annotations"]), read::map(old, &["metadata", "annotations"]));
    for (key, value) in was.iter() {
        if let Some(what) = what(key).filter(|_| is.get(key) != Some(value)) {
            out.push(Problem::forbidden(&path.key(key), &format!("may not remove or update {what}")));
        }
    }
    for (key, _) in is.iter().filter(|(key, _)| !was.contains(key)) {
        if let Some(what) = what(key) {
            out.push(Problem::forbidden(&path.key(key), &format!("may not add {what}")));
        }
    }
}

/// Only the list itself goes through.
pub(super) fn apply_ephemeral(next: &mut Value, submitted: &Value, context: &Context<'_>) {
    let old = next.clone();
    match submitted.at(&["spec", "ephemeralContainers"]) {
        Some(containers) => next.set(&["spec", "ephemeralContainers"], containers.clone()),
        None => {
            next.unset(&["spec", "ephemeralContainers"]);
        }
    }
    super::drop::disabled(next, Some(&old), context);
}

/// Ephemeral containers can be added; existing ones are immutable.
pub(super) fn validate_ephemeral<const PRIVILEGED: bool>(
    new: &Value,
    old: &Value,
    context: &Context<'_>,
) -> Problems {
    let mirror = context.names.well_known("config.mirror");
    if read::map(old, &["metadata", "annotations"]).contains(&mirror) {
        return Problems::from(Problem::forbidden(
            &Path::ROOT,
            "static pods do not support ephemeral containers",
        ));
    }
    let mut out = gated::keeping(Some(old), context, |context| whole::<PRIVILEGED>(new, context));
    annotations(new, old, context.names, &mut out);
    let path = Path::ROOT.field("spec");
    let path = path.field("ephemeralContainers");
    let known: HashMap<&str, &Value> =
        new.items(&["spec", "ephemeralContainers"]).iter().map(|it| (it.text(&["name"]), it)).collect();
    for was in old.items(&["spec", "ephemeralContainers"]) {
        let name = was.text(&["name"]);
        let why = match known.get(name) {
            None => format!("existing ephemeral containers {} may not be removed\n", quoted(name)),
            Some(is) if *is != was => {
                format!("existing ephemeral containers {} may not be changed\n", quoted(name))
            }
            Some(_) => continue,
        };
        out.push(Problem::forbidden(&path, &why));
    }
    out
}

/// Assigns a pod to the node that a binding names. `now` is the time as the API writes it.
pub fn bind(pod: &mut Value, binding: &Value, now: &str) -> Result<(), ApiError> {
    let name = pod.text(&["metadata", "name"]).to_owned();
    let target = binding_target(binding)?;
    let conflict =
        |why: String| Err(ApiError::conflict(Subject { group: "", kind: "pods/binding", name: &name }, &why));
    if read::has(pod, &["metadata", "deletionTimestamp"]) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    match pod.text(&["spec", "nodeName"]) {
        "" => {}
        node => return conflict(format!("pod {name} is already assigned to node {}", quoted(node))),
    }
    if !pod.items(&["spec", "schedulingGates"]).is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.set(&["spec", "nodeName"], target);
    for (key, value) in read::map(binding, &["metadata", "annotations"]).iter() {
        let metadata = pod.make_map().entry("metadata").make_map();
        metadata.entry("annotations").make_map().insert(key.to_owned(), value.clone());
    }
    scheduled(pod, now);
    Ok(())
}

/// The target node of a binding.
pub fn binding_target(binding: &Value) -> Result<&str, ApiError> {
    let mut out = Problems::new();
    let path = Path::ROOT.field("target");
    let kind = binding.text(&["target", "kind"]);
    if !kind.is_empty() && kind != "Node" {
        out.push(check::unsupported(&path.field("kind"), kind, &["Node", "<empty>"]));
    }
    let target = binding.text(&["target", "name"]);
    check::required(target, &path.field("name"), &mut out);
    if out.is_empty() {
        return Ok(target);
    }
    // the API reports one text instead of the problems of an object
    let messages: Vec<_> = out.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
    Err(ApiError::internal(if messages.len() == 1 {
        messages.concat()
    } else {
        format!("[{}]", messages.join(", "))
    }))
}

fn scheduled(pod: &mut Value, now: &str) {
    let mut condition = Value::map();
    condition.set(&["type"], "PodScheduled");
    condition.set(&["status"], "True");
    condition.set(&["lastProbeTime"], Value::Null);
    condition.set(&["lastTransitionTime"], now);
    let mut conditions = pod.items(&["status", "conditions"]).to_vec();
    match conditions.iter_mut().find(|it| it.text(&["type"]) == "PodScheduled") {
        Some(known) if known.text(&["status"]) == "True" => {}
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    pod.set(&["status", "conditions"], conditions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    const POD: &str = r#"{"metadata":{"name":"p"},"spec":{"restartPolicy":"Always","dnsPolicy":"Default",
        "activeDeadlineSeconds":60,"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}],
        "containers":[{"name":"c","image":"i","terminationMessagePolicy":"File","imagePullPolicy":"Always"}]}}"#;

    fn check(change: impl Fn(&mut Value), expected: &[&str]) {
        let old = json(POD);
        let mut new = old.clone();
        change(&mut new);
        let found = problems(&validate::<false>(&new, &old, &context()));
        assert_eq!(found.iter().map(|it| it.split('\n').next().unwrap_or("")).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_node_of_a_binding_is_checked_by_the_next_update() {
        let mut pod = json(POD);
        pod.set(&["spec", "nodeName"], "/a");
        let found = problems(&validate::<false>(&pod, &pod, &context()));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("spec.nodeName: Invalid value: \"/a\": a lowercase RFC 1123 subdomain"),
            "{found:?}"
        );
    }

    #[test]
    fn few_fields_are_mutable() {
        check(|_| (), &[]);
        check(|pod| read::each_mut(pod, &["spec", "containers"], |it| it.set(&["image"], "j")), &[]);
        check(|pod| pod.set(&["spec", "activeDeadlineSeconds"], 59), &[]);
        check(|pod| pod.set(&["metadata", "labels", "a"], "b"), &[]);
        check(
            |pod| pod.set(&["spec", "activeDeadlineSeconds"], 61),
            &["spec.activeDeadlineSeconds: Invalid value: 61: must be less than or equal to previous value"],
        );
        let forbidden = format!("spec: Forbidden: {SPEC_FORBIDDEN}");
        check(|pod| pod.set(&["spec", "nodeName"], "n"), &[&forbidden]);
        check(
            |pod| pod.set(&["spec", "containers"], Vec::new()),
            &[
                "spec.containers: Required value",
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ],
        );
        check(
            |pod| pod.set(&["spec", "tolerations"], Vec::new()),
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        );
    }

    #[test]
    fn ephemeral_containers_are_only_added() {
        let with = |list: &str| {
            let mut pod = json(POD);
            pod.set(&["spec", "ephemeralContainers"], json(list));
            pod
        };
        let one = r#"{"name":"d","image":"x","terminationMessagePolicy":"File","imagePullPolicy":"Always"}"#;
        let old = with(&format!("[{one}]"));
        let check = |new: &Value, expected: &[&str]| {
            assert_eq!(problems(&validate_ephemeral::<false>(new, &old, &context())), expected);
        };
        check(&old, &[]);
        check(
            &json(POD),
            &[
                "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n",
            ],
        );
        check(
            &with(&format!("[{}]", one.replace("\"x\"", "\"y\""))),
            &[
                "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be changed\n",
            ],
        );
    }

    #[test]
    fn binding_happens_once() {
        let binding = json(r#"{"metadata":{"annotations":{"a":"b"}},"target":{"kind":"Node","name":"n"}}"#);
        let mut pod = json(POD);
        bind(&mut pod, &binding, "2020-01-01T00:00:00Z").unwrap();
        assert_eq!(pod.text(&["spec", "nodeName"]), "n");
        assert_eq!(pod.text(&["metadata", "annotations", "a"]), "b");
        assert_eq!(
            pod.items(&["status", "conditions"])[0].text(&["lastTransitionTime"]),
            "2020-01-01T00:00:00Z"
        );
        let again = bind(&mut pod, &binding, "").map_err(|it| (it.code, it.message));
        let text =
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
        assert_eq!(again, Err((409, text.to_owned())));
    }
}
