//! Nodes: addresses for pods, taints, amounts of resources.

use crate::check::{self, Problems};
use crate::{metadata, node_selection as scheduling, quantities, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, Priority, ReadHooks, RepeatedMetadataErrors,
    StorageHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, Reason, quoted};
use schema::{Path, Value, format};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(create),
            keeps_status: true,
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate_state: Some(|new, _, context| create(new, context)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
            ]),
            ..WriteHooks::default()
        },
        storage: StorageHooks {
            // a node whose status is late is taken for lost
            priority: Priority::Urgent,
            ..StorageHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    restore: Some(drop_disabled_status),
    validate: Some(update),
    ..SubresourceHooks::STATUS
}];

fn default(object: &mut Value) {
    mirror_pod_cidr(object);
    for field in ["capacity", "allocatable"] {
        quantities::round(object.at_mut(&["status", field]));
    }
    if let Some(capacity) = object.at(&["status", "capacity"]).cloned()
        && !read::has(object, &["status", "allocatable"])
    {
        object.set(&["status", "allocatable"], capacity);
    }
}

/// `podCIDR` is the first of `podCIDRs`; where they differ the single one wins, as old clients know no other.
fn mirror_pod_cidr(object: &mut Value) {
    let first = object.items(&["spec", "podCIDRs"]).first().map(|it| read::text(it).to_owned());
    let single = object.text(&["spec", "podCIDR"]).to_owned();
    match first {
        Some(first) if single.is_empty() => object.set(&["spec", "podCIDR"], first),
        Some(first) if first == single => {}
        _ if single.is_empty() => {}
        _ => object.set(&["spec", "podCIDRs"], vec![single.into()]),
    }
}

/// Removes the configuration source, which is no longer supported, unless the old object has one.
fn drop_disabled(next: &mut Value, old: Option<&Value>) {
    if !old.is_some_and(|old| read::has(old, &["spec", "configSource"])) {
        next.unset(&["spec", "configSource"]);
    }
}

fn prepare_create(object: &mut Value, _: &Context<'_>) {
    drop_disabled(object, None);
    object.unset(&["status", "config"]);
}

fn prepare_update(next: &mut Value, old: &Value, _: &Context<'_>) {
    drop_disabled(next, Some(old));
}

/// The same for the status of the source. Its writer owns what it has sent.
fn drop_disabled_status(next: &mut Value, old: &Value, _: &Context<'_>) {
    if !read::has(old, &["status", "config"]) {
        next.unset(&["status", "config"]);
    }
}

/// A new node takes no pods before it has said that it is ready.
pub fn taint_new(object: &mut Value, names: &Names) {
    let key = names.well_known_under("node", "not-ready");
    let mut taints = object.items(&["spec", "taints"]).to_vec();
    if !taints.iter().any(|it| it.text(&["key"]) == key && it.text(&["effect"]) == "NoSchedule") {
        let mut taint = Value::map();
        taint.set(&["key"], key);
        taint.set(&["effect"], "NoSchedule");
        taints.push(taint);
        object.set(&["spec", "taints"], taints);
    }
}

fn create(object: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    validate(object, &mut out);
    out
}

fn validate(object: &Value, out: &mut Problems) {
    // clients know the taints by this path, odd as it is
    scheduling::taints(object.items(&["spec", "taints"]), &Path::ROOT.field("metadata").field("taints"), out);
    resources(object, out);
    pod_cidrs(object.items(&["spec", "podCIDRs"]), out);
}

fn resources(object: &Value, out: &mut Problems) {
    let status = Path::ROOT.field("status");
    for field in ["capacity", "allocatable"] {
        let path = status.field(field);
        for (name, value) in read::map(object, &["status", field]).iter() {
            quantities::amount(name, value, &path.field(name), out);
        }
    }
}

const MAX_WARNINGS: usize = 16;

fn pod_cidrs(ranges: &[Value], out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    let path = path.field("podCIDRs");
    let mut addresses = Vec::with_capacity(ranges.len());
    let mut wrong = None;
    for (at, range) in ranges.iter().enumerate() {
        match format::parse_cidr(read::text(range)) {
            Some((address, _)) => addresses.push(address),
            None => {
                wrong.get_or_insert(read::text(range));
                out.push(check::invalid_formatted(
                    &path.index(at),
                    &check::format_texts(ranges),
                    "must be valid CIDR",
                ));
            }
        }
        // each report names them all, so a few have to do
        if at == MAX_WARNINGS {
            break;
        }
    }
    if ranges.len() < 2 {
        return;
    }
    if let Some(range) = wrong {
        let message = format!(
            "Internal error: invalid PodCIDRs. failed to check with dual stack with error:failed to parse cidr \
             value:{} with error:invalid CIDR address: {range}",
            quoted(range)
        );
        out.push(Problem { reason: Reason::InternalError, field: path.to_string(), message });
    }
    if wrong.is_some() || ranges.len() > 2 || !check::is_dual_stack(&addresses) {
        const WHY: &str = "may specify no more than one CIDR for each IP family";
        out.push(check::invalid_formatted(&path, &check::format_texts(ranges), WHY));
    }
    let mut seen = HashSet::new();
    for (at, range) in ranges.iter().enumerate() {
        if !seen.insert(read::text(range)) {
            out.push(Problem::duplicate(&path.index(at), range));
        }
    }
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    resources(new, &mut out);
    let mut addresses = HashSet::new();
    for (at, one) in new.items(&["status", "addresses"]).iter().enumerate() {
        if !addresses.insert((one.text(&["type"]), one.text(&["address"]))) {
            let path = Path::ROOT.field("status");
            out.push(Problem::duplicate(&path.field("addresses").index(at), one));
        }
    }
    let spec = Path::ROOT.field("spec");
    let had = old.items(&["spec", "podCIDRs"]);
    if !had.is_empty() && had != new.items(&["spec", "podCIDRs"]) {
        const WHY: &str = "node updates may not change podCIDR except from \"\" to valid";
        out.push(Problem::forbidden(&spec.field("podCIDRs"), WHY));
    }
    let had = old.text(&["spec", "providerID"]);
    if !had.is_empty() && had != new.text(&["spec", "providerID"]) {
        const WHY: &str = "node updates may not change providerID except from \"\" to valid";
        out.push(Problem::forbidden(&spec.field("providerID"), WHY));
    }
    scheduling::taints(
        new.items(&["spec", "taints"]),
        &Path::ROOT.field("metadata").field("taints"),
        &mut out,
    );
    if old.text(&["spec", "externalID"]) != new.text(&["spec", "externalID"]) {
        out.push(Problem::forbidden(&spec.field("externalID"), "may not be updated"));
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let address = |kind: &str| {
        let address = object.items(&["status", "addresses"]).iter().find(|it| it.text(&["type"]) == kind);
        address.map_or(Value::from("<none>"), |it| it.text(&["address"]).into())
    };
    let info = |field: &str| metadata::or(object.text(&["status", "nodeInfo", field]), "<unknown>");
    vec![
        metadata::name(object),
        status(object).into(),
        roles(object, &Names::kubernetes()).into(),
        metadata::age(object, now),
        object.text(&["status", "nodeInfo", "kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn status(object: &Value) -> String {
    let ready = object.items(&["status", "conditions"]).iter().find(|it| it.text(&["type"]) == "Ready");
    let mut status = match ready.map(|it| it.text(&["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if read::flag(object, &["spec", "unschedulable"]) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(object: &Value, names: &Names) -> String {
    let (prefix, single) = (names.well_known_under("node-role", ""), names.well_known("role"));
    let mut roles = BTreeSet::new();
    for (label, value) in read::map(object, &["metadata", "labels"]).iter() {
        let role =
            if label == single { read::text(value) } else { label.strip_prefix(&prefix).unwrap_or("") };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn the_single_range_wins() {
        let check = |object: &str, expected: &str| {
            let mut object = json(object);
            default(&mut object);
            assert_eq!(object, json(expected));
        };
        check(r#"{"spec":{"podCIDR":"a"}}"#, r#"{"spec":{"podCIDR":"a","podCIDRs":["a"]}}"#);
        check(r#"{"spec":{"podCIDRs":["b","c"]}}"#, r#"{"spec":{"podCIDR":"b","podCIDRs":["b","c"]}}"#);
        check(r#"{"spec":{"podCIDR":"a","podCIDRs":["b"]}}"#, r#"{"spec":{"podCIDR":"a","podCIDRs":["a"]}}"#);
        check(
            r#"{"status":{"capacity":{"cpu":"1"}}}"#,
            r#"{"status":{"capacity":{"cpu":"1"},"allocatable":{"cpu":"1"}}}"#,
        );
    }

    #[test]
    fn new_nodes_are_tainted_once() {
        let mut object = json("{}");
        for _ in 0..2 {
            taint_new(&mut object, context().names);
        }
        let expected =
            json(r#"{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}}"#);
        assert_eq!(object, expected);
    }

    #[test]
    fn ranges_are_one_for_each_family() {
        let check = |ranges: &str, expected: &[&str]| {
            let mut out = Problems::new();
            pod_cidrs(json(ranges).as_list().unwrap_or(&[]), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"["10.0.0.0/24","fd00::/64"]"#, &[]);
        check(
            r#"["10.0.0.0/24","10.0.0.0/24"]"#,
            &[
                r#"spec.podCIDRs: Invalid value: []string{"10.0.0.0/24", "10.0.0.0/24"}: may specify no more than one CIDR for each IP family"#,
                r#"spec.podCIDRs[1]: Duplicate value: "10.0.0.0/24""#,
            ],
        );
        check(r#"["x"]"#, &[r#"spec.podCIDRs[0]: Invalid value: []string{"x"}: must be valid CIDR"#]);
    }

    #[test]
    fn identity_stays() {
        let old = json(r#"{"spec":{"podCIDRs":["10.0.0.0/24"],"providerID":"a"}}"#);
        let found = update(&json(r#"{"spec":{}}"#), &old, &context());
        assert_eq!(
            found.iter().map(|it| &*it.field).collect::<Vec<_>>(),
            ["spec.podCIDRs", "spec.providerID"]
        );
    }

    #[test]
    fn rows_tell_state_and_roles() {
        let object = json(
            r#"{"metadata":{"name":"n","labels":{"node-role.kubernetes.io/worker":"","kubernetes.io/role":"old"}},
                "spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#,
        );
        let row = cells(&object, Duration::ZERO);
        assert_eq!(row[1..3], [Value::from("NotReady,SchedulingDisabled"), Value::from("old,worker")]);
        assert_eq!(row.len(), 10);
    }
}
