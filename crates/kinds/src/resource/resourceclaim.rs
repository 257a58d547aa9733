//! Dynamic resource allocation: resource classes, claims, claim templates, and the scheduling contexts of pods. It is
//! off by default.

use crate::check::{self, Problems};
use crate::core::pod::volume_sources::driver_name;
use crate::{metadata, node_selection as scheduling, read};
use rest::hooks::{
    Context, CreateHooks, DeleteHooks, Hooks, ReadHooks, SubresourceHooks, Subresources, UpdateHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::collections::HashSet;
use std::time::Duration;

const IMMUTABLE: &str = "field is immutable";
const MOST_CONSUMERS: usize = 32;
const MOST_NODES: usize = 128;
const MOST_OF_HANDLE: usize = 16 * 1024;

/// ResourceClaims.
pub fn claim_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| claim(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate: Some(|new, old, _| same_spec(new, old, "ResourceClaimSpec").and(claim(new))),
            ..UpdateHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(claim_cells), ..ReadHooks::default() },
        subresources: Subresources { parts: CLAIM_STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static CLAIM_STATUS: &[SubresourceHooks] =
    &[SubresourceHooks { without_table: true, ..SubresourceHooks::status(Some(claim_status)) }];

fn claim(object: &Value) -> Problems {
    let mut out = Problems::new();
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    claim_spec(spec, &Path::ROOT.field("spec"), &mut out);
    out
}

fn claim_spec(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    check::subdomain(spec.text(&["resourceClassName"]), &path.field("resourceClassName"), out);
    parameters(spec, path, out);
    const MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];
    let mode = spec.text(&["allocationMode"]);
    if !MODES.contains(&mode) {
        out.push(check::unsupported(&path.field("allocationMode"), mode, MODES));
    }
}

fn parameters(of: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(reference) = of.at(&["parametersRef"]).filter(|it| !it.is_null()) {
        let path = path.field("parametersRef");
        check::required_field(reference, "kind", &path, out);
        check::required_field(reference, "name", &path, out);
    }
}

/// The spec is immutable.
fn same_spec(new: &Value, old: &Value, formatted: &str) -> Problems {
    if new.at(&["spec"]) == old.at(&["spec"]) {
        return Problems::new();
    }
    let formatted = format!("resource.{formatted}{{}}");
    Problems::from(check::invalid_formatted(&Path::ROOT.field("spec"), &formatted, IMMUTABLE))
}

fn claim_status(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let status =
        |object: &Value, field: &str| object.at(&["status", field]).filter(|it| !it.is_null()).cloned();
    let driver = new.text(&["status", "driverName"]);
    if !driver.is_empty() {
        driver_name(driver, &path.field("driverName"), &mut out);
    }
    let (is, was) = (status(new, "allocation"), status(old, "allocation"));
    if let Some(allocation) = &is {
        allocated(allocation, &path.field("allocation"), &mut out);
    }
    let users = new.items(&["status", "reservedFor"]);
    consumers(users, &path.field("reservedFor"), &mut out);
    let released = read::flag(new, &["status", "deallocationRequested"]);
    if !users.is_empty() {
        let path = path.field("reservedFor");
        let before = old.items(&["status", "reservedFor"]).iter();
        let before: HashSet<&str> = before.map(|it| it.text(&["uid"])).collect();
        let added = users.iter().any(|it| !before.contains(it.text(&["uid"])));
        match &is {
            None => out.push(Problem::forbidden(&path, "only allocated claims can be reserved")),
            Some(it) if !read::flag(it, &["shareable"]) && users.len() > 1 => {
                out.push(Problem::forbidden(&path, "may not be reserved more than once"));
            }
            Some(_) if released && added => {
                const WHY: &str = "new consumers may not be added while deallocation is requested";
                out.push(Problem::forbidden(&path, WHY));
            }
            Some(_) => {}
        }
        if is.is_some() && released && !read::flag(old, &["status", "deallocationRequested"]) {
            const WHY: &str = "deallocation cannot be requested while claim is in use";
            out.push(Problem::forbidden(&path.field("deallocationRequested"), WHY));
        }
    }
    if let (Some(is), Some(was)) = (&is, &was)
        && is != was
    {
        let formatted =
            format!("resource.AllocationResult{{ResourceHandle:{}}}", quoted(is.text(&["resourceHandle"])));
        out.push(check::invalid_formatted(&path.field("allocation"), &formatted, IMMUTABLE));
    }
    if is.is_none() && was.is_none() && released && !read::flag(old, &["status", "deallocationRequested"]) {
        const WHY: &str = "claim must be allocated";
        out.push(Problem::forbidden(&path.field("deallocationRequested"), WHY));
    }
    out
}

fn allocated(allocation: &Value, path: &Path<'_>, out: &mut Problems) {
    if allocation.text(&["resourceHandle"]).len() > MOST_OF_HANDLE {
        out.push(Problem::too_long(&path.field("resourceHandle"), MOST_OF_HANDLE));
    }
    if let Some(selector) = allocation.at(&["availableOnNodes"]).filter(|it| !it.is_null()) {
        scheduling::node_selector(selector, &path.field("availableOnNodes"), out);
    }
}

fn consumers(users: &[Value], path: &Path<'_>, out: &mut Problems) {
    if users.len() > MOST_CONSUMERS {
        out.push(Problem::too_many(path, users.len(), MOST_CONSUMERS));
    }
    let mut seen = HashSet::new();
    for (at, user) in users.iter().enumerate() {
        let path = path.index(at);
        for field in ["resource", "name", "uid"] {
            check::required_field(user, field, &path, out);
        }
        if !seen.insert(user.text(&["uid"])) {
            out.push(check::duplicate_text(&path.field("uid"), user.text(&["uid"])));
        }
    }
}

/// Checks the allocation status of a claim.
fn state(claim: &Value) -> &'static str {
    let users = !claim.items(&["status", "reservedFor"]).is_empty();
    if read::has(claim, &["metadata", "deletionTimestamp"]) {
        "deleted"
    } else if !read::has(claim, &["status", "allocation"]) {
        "pending"
    } else if users {
        "allocated,reserved"
    } else {
        "allocated"
    }
}

fn claim_cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![
        metadata::name(object),
        object.text(&["spec", "resourceClassName"]).into(),
        object.text(&["spec", "allocationMode"]).into(),
        state(object).into(),
        metadata::age(object, now),
    ]
}

/// ResourceClaimTemplates.
pub fn template_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| template(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate: Some(|new, old, _| same_spec(new, old, "ResourceClaimTemplateSpec").and(template(new))),
            ..UpdateHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(template_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn template(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    if let Some(labels) = object.at(&["spec", "metadata", "labels"]) {
        check::labels(labels, &path.field("metadata").field("labels"), &mut out);
    }
    let spec = object.at(&["spec", "spec"]).unwrap_or(&Value::Null);
    claim_spec(spec, &path.field("spec"), &mut out);
    out
}

fn template_cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![
        metadata::name(object),
        object.text(&["spec", "spec", "resourceClassName"]).into(),
        object.text(&["spec", "spec", "allocationMode"]).into(),
        metadata::age(object, now),
    ]
}

/// ResourceClasses.
pub fn class_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| class(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|new, _, _| class(new)), ..UpdateHooks::default() },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(class_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn class(object: &Value) -> Problems {
    let mut out = Problems::new();
    driver_name(object.text(&["driverName"]), &Path::ROOT.field("driverName"), &mut out);
    parameters(object, &Path::ROOT, &mut out);
    let namespace = object.text(&["parametersRef", "namespace"]);
    if !namespace.is_empty() {
        check::label(namespace, &Path::ROOT.field("parametersRef").field("namespace"), &mut out);
    }
    if let Some(selector) = object.at(&["suitableNodes"]).filter(|it| !it.is_null()) {
        scheduling::node_selector(selector, &Path::ROOT.field("suitableNodes"), &mut out);
    }
    out
}

fn class_cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![metadata::name(object), object.text(&["driverName"]).into(), metadata::age(object, now)]
}

/// PodSchedulings.
pub fn scheduling_hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            validate: Some(|object, _| validate_scheduling(object)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate: Some(|new, _, _| validate_scheduling(new)),
            ..UpdateHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(scheduling_cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SCHEDULING_STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SCHEDULING_STATUS: &[SubresourceHooks] =
    &[SubresourceHooks { without_table: true, ..SubresourceHooks::status(Some(|new, _, _| answered(new))) }];

fn nodes(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    if items.len() > MOST_NODES {
        out.push(Problem::too_many(path, items.len(), MOST_NODES));
    }
    let mut seen = HashSet::new();
    for (at, node) in items.iter().map(read::text).enumerate() {
        check::subdomain(node, &path.index(at), out);
        if !seen.insert(node) {
            out.push(check::duplicate_text(&path.index(at), node));
        }
    }
}

fn validate_scheduling(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    nodes(object.items(&["spec", "potentialNodes"]), &path.field("potentialNodes"), &mut out);
    out
}

fn answered(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let path = path.field("claims");
    let mut names = HashSet::new();
    for (at, claim) in object.items(&["status", "resourceClaims"]).iter().enumerate() {
        let path = path.index(at);
        nodes(claim.items(&["unsuitableNodes"]), &path.field("unsuitableNodes"), &mut out);
        if !names.insert(claim.text(&["name"])) {
            out.push(check::duplicate_text(&path, claim.text(&["name"])));
        }
    }
    out
}

fn scheduling_cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![metadata::name(object), object.text(&["spec", "selectedNode"]).into(), metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn claims_are_reserved_once_allocated() {
        let old = json(r#"{"spec":{"resourceClassName":"c"}}"#);
        let check = |status: &str, expected: &[&str]| {
            let mut new = old.clone();
            new.set(&["status"], json(status));
            assert_eq!(problems(&claim_status(&new, &old, &context())), expected, "{status}");
        };
        const USER: &str = r#"{"resource":"pods","name":"p","uid":"1"}"#;
        check(&format!(r#"{{"allocation":{{}},"reservedFor":[{USER}]}}"#), &[]);
        check(
            &format!(r#"{{"reservedFor":[{USER}]}}"#),
            &["status.reservedFor: Forbidden: only allocated claims can be reserved"],
        );
        check(
            &format!(r#"{{"allocation":{{}},"reservedFor":[{USER},{USER}]}}"#),
            &[
                r#"status.reservedFor[1].uid: Duplicate value: "1""#,
                "status.reservedFor: Forbidden: may not be reserved more than once",
            ],
        );
    }

    #[test]
    fn claim_specs_are_immutable() {
        let old = json(r#"{"spec":{"resourceClassName":"c","allocationMode":"Immediate"}}"#);
        let mut new = old.clone();
        assert!(same_spec(&new, &old, "ResourceClaimSpec").is_empty() && claim(&new).is_empty());
        new.set(&["spec", "allocationMode"], "Sometimes");
        assert_eq!(same_spec(&new, &old, "ResourceClaimSpec").len(), 1);
        let expected = [concat!(
            r#"spec.allocationMode: Unsupported value: "Sometimes": supported values: "#,
            r#""Immediate", "WaitForFirstConsumer""#
        )];
        assert_eq!(problems(&claim(&new)), expected);
    }

    #[test]
    fn rows_tell_how_far_a_claim_has_come() {
        for (claim, expected) in [
            ("{}", "pending"),
            (r#"{"status":{"allocation":{}}}"#, "allocated"),
            (r#"{"status":{"allocation":{},"reservedFor":[{"uid":"1"}]}}"#, "allocated,reserved"),
        ] {
            assert_eq!(state(&json(claim)), expected);
        }
    }
}
