//! CSIDrivers, CSINodes and CSIStorageCapacities: capabilities, nodes and free capacity of storage drivers.

use crate::check::{self, Problems};
use crate::core::pod::volume_sources::driver_name;
use crate::{gates, metadata, node_selection as scheduling, quantities, read};
use rest::hooks::{
    Context, Conversion, CreateHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    StorageHooks, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const IMMUTABLE: &str = "field is immutable";

/// CSIDrivers.
pub fn driver_hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(|object, context| drop_mount(object, None, context)),
            validate: Some(|object, _| {
                let mut out = Problems::new();
                driver_spec(object, &mut out);
                out
            }),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_driver_update),
            validate: Some(update_driver),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(driver_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// Fields that may change count as a generation; a new driver has none.
fn prepare_driver_update(object: &mut Value, old: &Value, context: &Context<'_>) {
    drop_mount(object, Some(old), context);
    let differs = |field: &str| !read::same(object.at(&["spec", field]), old.at(&["spec", field]));
    if ["tokenRequests", "requiresRepublish", "seLinuxMount"].into_iter().any(differs) {
        let generation = read::int(old, &["metadata", "generation"]);
        object.set(&["metadata", "generation"], generation + 1);
    }
}

/// A field that must be switched on.
fn drop_mount(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] = &[(gates::SELINUX_MOUNT, &["spec", "seLinuxMount"])];
    gates::drop_disabled(object, old, GUARDED, context);
}

fn driver_spec(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !read::has(object, &["spec", field]) {
            out.push(Problem::required(&path.field(field), ""));
        }
    }
    const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
    match read::opt_text(object, &["spec", "fsGroupPolicy"]) {
        None => out.push(Problem::required(&path.field("fsGroupPolicy"), "")),
        Some(policy) if !POLICIES.contains(&policy) => {
            out.push(check::unsupported(&path.field("fsGroupPolicy"), policy, POLICIES));
        }
        Some(_) => {}
    }
    token_requests(object, out);
    const MODES: &[&str] = &["Persistent", "Ephemeral"];
    for mode in object.items(&["spec", "volumeLifecycleModes"]).iter().map(read::text) {
        if !MODES.contains(&mode) {
            out.push(check::unsupported(&path.field("volumeLifecycleModes"), mode, MODES));
        }
    }
}

fn token_requests(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    let tokens = path.field("tokenRequests");
    let mut audiences = HashSet::new();
    for (at, token) in object.items(&["spec", "tokenRequests"]).iter().enumerate() {
        let path = tokens.index(at);
        let audience = token.text(&["audience"]);
        if !audiences.insert(audience) {
            out.push(check::duplicate_text(&path.field("audience"), audience));
        }
        let why = match read::opt_int(token, &["expirationSeconds"]) {
            Some(..600) => "may not specify a duration less than 10 minutes",
            Some(0x1_0000_0001..) => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        let seconds = read::int(token, &["expirationSeconds"]);
        out.push(check::invalid_int(&path.field("expirationSeconds"), seconds, why));
    }
}

fn update_driver(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    driver_spec(new, &mut out);
    let path = Path::ROOT.field("spec");
    for (field, formatted) in [
        ("attachRequired", "attachedRequired"),
        ("fsGroupPolicy", "fsGroupPolicy"),
        ("podInfoOnMount", "podInfoOnMount"),
    ] {
        let (is, was) = (new.at(&["spec", field]), old.at(&["spec", field]));
        if is != was {
            let value = is.unwrap_or(&Value::Null);
            out.push(Problem::invalid(&path.field(formatted), value, IMMUTABLE));
        }
    }
    let (is, was) =
        (new.items(&["spec", "volumeLifecycleModes"]), old.items(&["spec", "volumeLifecycleModes"]));
    if is != was {
        let formatted: Vec<_> = is.iter().map(|it| quoted(read::text(it))).collect();
        let formatted = match is.is_empty() {
            true => "[]storage.VolumeLifecycleMode(nil)".to_owned(),
            false => format!("[]storage.VolumeLifecycleMode{{{}}}", formatted.join(", ")),
        };
        out.push(check::invalid_formatted(&path.field("volumeLifecycleModes"), &formatted, IMMUTABLE));
    }
    // the API reports these twice on an update
    token_requests(new, &mut out);
    out
}

fn driver_cells(object: &Value, now: Duration) -> Vec<Value> {
    let modes: Vec<_> = object.items(&["spec", "volumeLifecycleModes"]).iter().map(read::text).collect();
    let tokens = object.items(&["spec", "tokenRequests"]);
    let audiences: Vec<_> = tokens.iter().map(|it| it.text(&["audience"])).collect();
    vec![
        metadata::name(object),
        Value::Bool(object.at(&["spec", "attachRequired"]).and_then(Value::as_bool).unwrap_or(true)),
        Value::Bool(read::flag(object, &["spec", "podInfoOnMount"])),
        Value::Bool(read::flag(object, &["spec", "storageCapacity"])),
        if tokens.is_empty() { "<unset>".into() } else { audiences.join(",").into() },
        Value::Bool(read::flag(object, &["spec", "requiresRepublish"])),
        metadata::or(&modes.join(","), "<none>"),
        metadata::age(object, now),
    ]
}

/// CSINodes.
pub fn node_hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| node(object)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| node(object)),
            validate: Some(update_node),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::State,
                MetadataRules::OfKind,
            ]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(node_cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn node(object: &Value) -> Problems {
    const MOST_OF_ID: usize = 256;
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let path = path.field("drivers");
    let mut names = HashSet::new();
    for (at, driver) in object.items(&["spec", "drivers"]).iter().enumerate() {
        let path = path.index(at);
        let (name, id) = (driver.text(&["name"]), driver.text(&["nodeID"]));
        driver_name(name, &path.field("name"), &mut out);
        check::required(id, &path.field("nodeID"), &mut out);
        if id.len() > MOST_OF_ID {
            let why = format!("must be {MOST_OF_ID} characters or less");
            out.push(Problem::invalid_text(&path.field("nodeID"), id, &why));
        }
        if let Some(allocatable) = driver.at(&["allocatable"]) {
            check::not_negative(allocatable, "count", &path.field("allocatable"), &mut out);
        }
        if !names.insert(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
        let mut keys = HashSet::new();
        for key in driver.items(&["topologyKeys"]).iter().map(read::text) {
            check::required(key, &path, &mut out);
            if !keys.insert(key) {
                out.push(check::duplicate_text(&path, key));
            }
            check::qualified_name(key, &path, &mut out);
        }
    }
    out
}

/// Drivers come and go; while one is there, it stays the same.
fn update_node(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let mut by_name: HashMap<&str, Vec<&Value>> = HashMap::new();
    for next in new.items(&["spec", "drivers"]) {
        by_name.entry(next.text(&["name"])).or_default().push(next);
    }
    for driver in old.items(&["spec", "drivers"]) {
        // creation checks that names are unique, so each is looked up once
        for next in by_name.remove(driver.text(&["name"])).unwrap_or_default() {
            if next != driver {
                let path = Path::ROOT.field("CSINodeDriver");
                out.push(check::invalid_formatted(&path, &format_driver(next), IMMUTABLE));
            }
        }
    }
    out
}

fn format_driver(driver: &Value) -> String {
    let keys = match driver.items(&["topologyKeys"]) {
        [] => "[]string(nil)".to_owned(),
        keys => check::format_texts(keys),
    };
    let allocatable = if read::has(driver, &["allocatable"]) { "0xc000000000" } else { "nil" };
    format!(
        "storage.CSINodeDriver{{Name:{}, NodeID:{}, TopologyKeys:{keys}, \
         Allocatable:(*storage.VolumeNodeResources)({allocatable})}}",
        quoted(driver.text(&["name"])),
        quoted(driver.text(&["nodeID"])),
    )
}

fn node_cells(object: &Value, now: Duration) -> Vec<Value> {
    let drivers = object.items(&["spec", "drivers"]).len() as i64;
    vec![metadata::name(object), Value::Int(drivers), metadata::age(object, now)]
}

/// CSIStorageCapacities.
pub fn capacity_hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            validate: Some(|object, _| capacity(object)),
            repeats_errors: true,
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate_state: Some(|object, _, _| capacity(object)),
            validate: Some(update_capacity),
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
        ..Hooks::default()
    }
}

/// The same in its earlier version, which has the same fields.
pub fn earlier_capacity_hooks() -> Hooks {
    let same = Conversion { to_stored: |object| object, from_stored: |object| object };
    let base = capacity_hooks();
    Hooks { storage: StorageHooks { convert: Some(same), ..base.storage }, ..base }
}

fn capacity(object: &Value) -> Problems {
    let mut out = Problems::new();
    scheduling::label_selector(object.at(&["nodeTopology"]), &Path::ROOT.field("nodeTopology"), &mut out);
    check::subdomain(object.text(&["storageClassName"]), &Path::ROOT.field("storageClassName"), &mut out);
    if let Some(value) = object.at(&["capacity"]).filter(|it| quantities::parse(it).sign() < 0) {
        let path = Path::ROOT.field("capacity");
        out.push(Problem::invalid(&path, value, "must be greater than or equal to 0"));
    }
    out
}

fn update_capacity(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let (is, was) = (new.at(&["nodeTopology"]), old.at(&["nodeTopology"]));
    if !read::same(is, was) {
        let path = Path::ROOT.field("nodeTopology");
        out.push(match is.filter(|it| !it.is_null()) {
            None => check::null(&path, IMMUTABLE),
            Some(selector) => check::invalid_formatted(&path, &format_selector(selector), IMMUTABLE),
        });
    }
    let class = new.text(&["storageClassName"]);
    if class != old.text(&["storageClassName"]) {
        out.push(Problem::invalid_text(&Path::ROOT.field("storageClassName"), class, IMMUTABLE));
    }
    out
}

fn format_selector(selector: &Value) -> String {
    let label = |(key, value): (&str, &Value)| format!("{}:{}", quoted(key), quoted(read::text(value)));
    let labels: Vec<_> = read::map(selector, &["matchLabels"]).iter().map(label).collect();
    let labels = match &labels[..] {
        [] => "(nil)".to_owned(),
        labels => format!("{{{}}}", labels.join(", ")),
    };
    let expression = |one: &Value| {
        let values = match one.items(&["values"]) {
            [] => "[]string(nil)".to_owned(),
            values => check::format_texts(values),
        };
        let (key, operator) = (quoted(one.text(&["key"])), quoted(one.text(&["operator"])));
        format!("v1.LabelSelectorRequirement{{Key:{key}, Operator:{operator}, Values:{values}}}")
    };
    let expressions: Vec<_> = selector.items(&["matchExpressions"]).iter().map(expression).collect();
    let expressions = match &expressions[..] {
        [] => "(nil)".to_owned(),
        expressions => format!("{{{}}}", expressions.join(", ")),
    };
    format!(
        "v1.LabelSelector{{MatchLabels:map[string]string{labels}, \
         MatchExpressions:[]v1.LabelSelectorRequirement{expressions}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn drivers_are_immutable_while_listed() {
        let old = json(r#"{"spec":{"drivers":[{"name":"a","nodeID":"1"},{"name":"b","nodeID":"1"}]}}"#);
        let gone = json(r#"{"spec":{"drivers":[{"name":"b","nodeID":"1"}]}}"#);
        assert_eq!(problems(&update_node(&gone, &old, &context())), [""; 0]);
        let changed = json(r#"{"spec":{"drivers":[{"name":"a","nodeID":"2"},{"name":"a","nodeID":"1"}]}}"#);
        let expected = [
            r#"spec.drivers[1].name: Duplicate value: "a""#,
            r#"spec.drivers[1].name: Duplicate value: "a""#,
            concat!(
                r#"CSINodeDriver: Invalid value: storage.CSINodeDriver{Name:"a", NodeID:"2", TopologyKeys:[]string(nil), "#,
                "Allocatable:(*storage.VolumeNodeResources)(nil)}: field is immutable"
            ),
        ];
        let all = node(&changed).repeated().and(update_node(&changed, &old, &context()));
        assert_eq!(problems(&all), expected);
    }

    #[test]
    fn tokens_are_for_different_audiences() {
        let driver = json(
            r#"{"spec":{"attachRequired":true,"podInfoOnMount":false,"storageCapacity":false,
                "fsGroupPolicy":"File","tokenRequests":[{"audience":""},{"audience":"","expirationSeconds":1}]}}"#,
        );
        let expected = [
            r#"spec.tokenRequests[1].audience: Duplicate value: """#,
            "spec.tokenRequests[1].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
        ];
        let mut out = Problems::new();
        driver_spec(&driver, &mut out);
        assert_eq!(problems(&out), expected);
    }
}
