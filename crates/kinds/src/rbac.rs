//! Roles and bindings: validation of rules and subjects; the role of a binding is immutable.
//!
//! The objects only; the authorizer evaluates them.

use crate::check::{self, Problems};
use crate::workload::Selector;
use crate::{metadata, node_selection as scheduling, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks,
    WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Map, Path, Value};
use std::time::Duration;

const GROUP: &str = "rbac.authorization";

const REPEATED: [MetadataRules; 5] = [
    MetadataRules::State,
    MetadataRules::OfKind,
    MetadataRules::State,
    MetadataRules::OfKind,
    MetadataRules::Change,
];

/// Names of roles and bindings fit into a path, and so do prefixes of them, even `.` and `..`, which a name would continue.
fn role_name(name: &str, _prefix: bool) -> Vec<String> {
    metadata::path_name(name, false)
}

/// Roles within a namespace.
pub fn role_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| rules(object, true)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| rules(object, true)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
            name_rule: Some(role_name),
            ..WriteHooks::default()
        },
        ..Hooks::default()
    }
}

/// Roles of the whole cluster, which may be put together from others.
pub fn cluster_role_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| cluster_role(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| cluster_role(object)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
            name_rule: Some(role_name),
            ..WriteHooks::default()
        },
        ..Hooks::default()
    }
}

/// Bindings within a namespace.
pub fn role_binding_hooks() -> Hooks {
    let base = binding_hooks();
    Hooks {
        create: CreateHooks {
            validate: Some(|object, context| binding(object, context, true)),
            ..base.create
        },
        update: UpdateHooks {
            validate_state: Some(|object, _, context| binding(object, context, true)),
            validate: Some(|new, old, _| changed_role(new, old)),
            ..base.update
        },
        ..base
    }
}

/// Bindings in the whole cluster.
pub fn cluster_role_binding_hooks() -> Hooks {
    let base = binding_hooks();
    Hooks {
        create: CreateHooks {
            validate: Some(|object, context| binding(object, context, false)),
            ..base.create
        },
        update: UpdateHooks {
            validate_state: Some(|object, _, context| binding(object, context, false)),
            validate: Some(|new, old, _| changed_role(new, old)),
            ..base.update
        },
        ..base
    }
}

fn binding_hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(default), ..DecodeHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
            name_rule: Some(role_name),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(binding_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// Roles are of this group by default. So are users and groups; service accounts belong to
/// the nameless one.
fn default(object: &mut Value, names: &Names) {
    if object.text(&["roleRef", "apiGroup"]).is_empty() {
        object.set(&["roleRef", "apiGroup"], names.group(GROUP));
    }
    read::each_mut(object, &["subjects"], |subject| {
        let named = matches!(subject.text(&["kind"]), "User" | "Group");
        if named && subject.text(&["apiGroup"]).is_empty() {
            subject.set(&["apiGroup"], names.group(GROUP));
        }
    });
}

fn rules(object: &Value, namespaced: bool) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("rules");
    for (at, one) in object.items(&["rules"]).iter().enumerate() {
        rule(one, namespaced, &path.index(at), &mut out);
    }
    out
}

fn rule(rule: &Value, namespaced: bool, path: &Path<'_>, out: &mut Problems) {
    let mut needed = |field: &str, why: &str| {
        if rule.items(&[field]).is_empty() {
            out.push(Problem::required(&path.field(field), why));
        }
    };
    needed("verbs", "verbs must contain at least one value");
    let urls = rule.items(&["nonResourceURLs"]);
    if urls.is_empty() {
        needed("apiGroups", "resource rules must supply at least one api group");
        needed("resources", "resource rules must supply at least one resource");
        return;
    }
    let mut refuse = |why: &str| {
        out.push(check::invalid_formatted(&path.field("nonResourceURLs"), &check::format_texts(urls), why));
    };
    if namespaced {
        refuse("namespaced rules cannot apply to non-resource URLs");
    }
    if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.items(&[field]).is_empty()) {
        refuse("rules cannot apply to both regular resources and non-resource URLs");
    }
}

fn cluster_role(object: &Value) -> Problems {
    let mut out = rules(object, false);
    let Some(aggregation) = object.at(&["aggregationRule"]).filter(|it| !it.is_null()) else { return out };
    let path = Path::ROOT.field("aggregationRule");
    let path = path.field("clusterRoleSelectors");
    let selectors = aggregation.items(&["clusterRoleSelectors"]);
    if selectors.is_empty() {
        const WHY: &str = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        out.push(Problem::required(&path, WHY));
    }
    for (at, selector) in selectors.iter().enumerate() {
        let (path, before) = (path.index(at), out.len());
        scheduling::label_selector(Some(selector), &path, &mut out);
        if out.len() > before {
            out.push(check::null(&path, "invalid label selector."));
        }
    }
    out
}

fn binding(object: &Value, context: &Context<'_>, namespaced: bool) -> Problems {
    let mut out = Problems::new();
    let group = context.names.group(GROUP);
    let path = Path::ROOT.field("roleRef");
    let role = |field: &str| object.text(&["roleRef", field]);
    if role("apiGroup") != group {
        out.push(check::unsupported(&path.field("apiGroup"), role("apiGroup"), &[&group]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role("kind")) {
        out.push(check::unsupported(&path.field("kind"), role("kind"), kinds));
    }
    let name = role("name");
    if name.is_empty() {
        out.push(Problem::required(&path.field("name"), ""));
    } else {
        let why = metadata::path_name(name, false);
        out.extend(why.iter().map(|why| Problem::invalid_text(&path.field("name"), name, why)));
    }
    let path = Path::ROOT.field("subjects");
    for (at, one) in object.items(&["subjects"]).iter().enumerate() {
        subject(one, namespaced, &group, &path.index(at), &mut out);
    }
    out
}

fn subject(subject: &Value, namespaced: bool, group: &str, path: &Path<'_>, out: &mut Problems) {
    let (name, given) = (subject.text(&["name"]), subject.text(&["apiGroup"]));
    check::required(name, &path.field("name"), out);
    let in_group = |group: &str, out: &mut Problems| {
        if given != group {
            out.push(check::unsupported(&path.field("apiGroup"), given, &[group]));
        }
    };
    match subject.text(&["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                check::subdomain(name, &path.field("name"), out);
            }
            in_group("", out);
            if !namespaced {
                check::required_field(subject, "namespace", path, out);
            }
        }
        "User" | "Group" => in_group(group, out),
        other => {
            out.push(check::unsupported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]));
        }
    }
}

fn changed_role(new: &Value, old: &Value) -> Problems {
    let mut out = Problems::new();
    if new.at(&["roleRef"]) != old.at(&["roleRef"]) {
        let text = |field: &str| quoted(new.text(&["roleRef", field]));
        let (group, kind, name) = (text("apiGroup"), text("kind"), text("name"));
        let formatted = format!("rbac.RoleRef{{APIGroup:{group}, Kind:{kind}, Name:{name}}}");
        out.push(check::invalid_formatted(&Path::ROOT.field("roleRef"), &formatted, "cannot change roleRef"));
    }
    out
}

/// Whether one of the selectors by which a cluster role gathers others chooses a role with these labels.
pub fn selects(selector: &Value, labels: &Map) -> bool {
    Selector::of(Some(selector)).matches(labels)
}

fn binding_cells(object: &Value, now: Duration) -> Vec<Value> {
    let role = format!("{}/{}", object.text(&["roleRef", "kind"]), object.text(&["roleRef", "name"]));
    let named = |kind: &str| {
        let of_kind = object.items(&["subjects"]).iter().filter(|one| one.text(&["kind"]) == kind);
        let names: Vec<_> = of_kind
            .map(|one| match kind {
                "ServiceAccount" => format!("{}/{}", one.text(&["namespace"]), one.text(&["name"])),
                _ => one.text(&["name"]).to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        metadata::name(object),
        role.into(),
        metadata::age(object, now),
        named("User"),
        named("Group"),
        named("ServiceAccount"),
    ]
}

/// Converts from `v1alpha1`, where subjects have a version, and the user `*` stands for all authenticated users.
pub(crate) fn convert_v1alpha1(object: &mut Value, names: &Names) {
    read::each_mut(object, &["subjects"], |subject| {
        let version = subject.unset(&["apiVersion"]).unwrap_or_default();
        let group = match subject.text(&["kind"]) {
            "ServiceAccount" => String::new(),
            "User" | "Group" => names.group(GROUP),
            _ => read::text(&version).split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default(),
        };
        subject.set(&["apiGroup"], group);
        if subject.text(&["kind"]) == "User" && subject.text(&["name"]) == "*" {
            subject.set(&["kind"], "Group");
            subject.set(&["name"], "system:authenticated");
        }
    });
}
