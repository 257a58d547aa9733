//! APIServices: the server of an API version, and the order of versions.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::hooks::{
    Context, CreateHooks, Hooks, ReadHooks, RepeatedMetadataErrors, SubresourceHooks, Subresources,
    UpdateHooks, WriteHooks, replace,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value, format};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(prepare),
            validate_first: Some(|object, _| names(object)),
            validate: Some(|object, _| validate(object)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| validate(object)),
            // the name stands before the rest of the metadata
            validate: Some(|object, _, _| names(object)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors::CHANGE_FIRST,
            name_rule: Some(|name, _| metadata::path_name(name, false)),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: STATUS, ..Subresources::default() },
        ..Hooks::default()
    }
}

static STATUS: &[SubresourceHooks] = &[SubresourceHooks {
    apply: apply_status,
    validate: Some(status),
    unowned: &["metadata"],
    without_table: true,
    ..SubresourceHooks::STATUS
}];

/// Of the metadata only the server's own fields are looked at.
fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    let mut metadata = submitted.at(&["metadata"]).cloned().unwrap_or_else(Value::map);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        match next.at(&["metadata", field]) {
            Some(value) => metadata.set(&[field], value.clone()),
            None => drop(metadata.unset(&[field])),
        }
    }
    next.set(&["metadata"], metadata);
    replace(next, submitted, "status");
}

/// A local API service is available at once.
fn prepare(object: &mut Value, context: &Context<'_>) {
    if !read::has(object, &["spec", "service"]) {
        let mut condition = Value::map();
        condition.set(&["type"], "Available");
        condition.set(&["status"], "True");
        condition.set(&["lastTransitionTime"], context.timestamp());
        condition.set(&["reason"], "Local");
        condition.set(&["message"], "Local APIServices are always available");
        object.set(&["status", "conditions"], vec![condition]);
    }
}

const MOST_GROUP_PRIORITY: i64 = 20000;
const MOST_VERSION_PRIORITY: i64 = 1000;

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let nothing = Value::map();
    let spec = object.at(&["spec"]).unwrap_or(&nothing);
    let (group, version) = (spec.text(&["group"]), spec.text(&["version"]));
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        out.push(Problem::required(&path.field("group"), detail));
    }
    if !group.is_empty() {
        check::subdomain(group, &path.field("group"), &mut out);
    }
    let format_errors = format::dns1035_label(version);
    out.extend(format_errors.iter().map(|why| Problem::invalid_text(&path.field("version"), version, why)));
    for (field, most) in
        [("groupPriorityMinimum", MOST_GROUP_PRIORITY), ("versionPriority", MOST_VERSION_PRIORITY)]
    {
        let priority = read::int(spec, &[field]);
        if priority <= 0 || priority > most {
            let detail = format!("must be positive and less than {most}");
            out.push(check::invalid_int(&path.field(field), priority, &detail));
        }
    }
    match spec.at(&["service"]) {
        Some(service) => remote(spec, service, &path, &mut out),
        None => local(spec, &path, &mut out),
    }
    out
}

/// The name, and a prefix of one, is `<version>.<group>`.
fn names(object: &Value) -> Problems {
    let mut out = Problems::new();
    let wanted = format!("{}.{}", object.text(&["spec", "version"]), object.text(&["spec", "group"]));
    for field in ["generateName", "name"] {
        name(object, field, &wanted, &mut out);
    }
    out
}

fn name(object: &Value, field: &'static str, wanted: &str, out: &mut Problems) {
    let name = object.text(&["metadata", field]);
    // a missing or invalid name is already reported
    if !name.is_empty() && name != wanted && format::path_segment(name).is_empty() {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", quoted(wanted));
        out.push(Problem::invalid_text(&Path::ROOT.field("metadata").field(field), name, &detail));
    }
}

fn status(object: &Value, _: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let status = Path::ROOT.field("status");
    let path = status.field("conditions");
    for (at, condition) in object.items(&["status", "conditions"]).iter().enumerate() {
        let status = condition.text(&["status"]);
        if !STATUSES.contains(&status) {
            out.push(check::unsupported(&path.index(at).field("status"), status, STATUSES));
        }
    }
    out
}

const STATUSES: &[&str] = &["True", "False", "Unknown"];

fn local(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    if read::flag(spec, &["insecureSkipTLSVerify"]) {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        out.push(Problem::invalid(&path.field("insecureSkipTLSVerify"), &Value::Bool(true), detail));
    }
    let bundle = check::byte_len(spec.text(&["caBundle"]));
    if bundle != 0 {
        let detail = "local APIServices may not have a caBundle";
        out.push(Problem::invalid_text(&path.field("caBundle"), &format!("{bundle} bytes"), detail));
    }
}

fn remote(spec: &Value, service: &Value, path: &Path<'_>, out: &mut Problems) {
    let at = path.field("service");
    check::required_field(service, "namespace", &at, out);
    check::required_field(service, "name", &at, out);
    let port = read::int(service, &["port"]);
    for why in format::port_number(port) {
        out.push(check::invalid_int(&at.field("port"), port, &format!("port is not valid: {why}")));
    }
    if read::flag(spec, &["insecureSkipTLSVerify"]) && !spec.text(&["caBundle"]).is_empty() {
        let detail = "may not be true if caBundle is present";
        out.push(Problem::invalid(&path.field("insecureSkipTLSVerify"), &Value::Bool(true), detail));
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let service = match object.at(&["spec", "service"]) {
        Some(service) => format!("{}/{}", service.text(&["namespace"]), service.text(&["name"])),
        None => "Local".to_owned(),
    };
    let conditions = object.items(&["status", "conditions"]);
    let available = conditions.iter().find(|it| it.text(&["type"]) == "Available");
    let available = match available.map(|it| (it.text(&["status"]), it.text(&["reason"]))) {
        None => "Unknown".to_owned(),
        Some(("True", _)) => "True".to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    vec![metadata::name(object), service.into(), available.into(), metadata::age(object, now)]
}
