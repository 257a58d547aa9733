//! PersistentVolumeClaims: requests for storage. The spec is immutable, except for the bound volume, the default
//! storage class, and the size once it is bound.

use crate::check::{self, Problems};
use crate::{
    core::volumes, gates, metadata, node_selection as scheduling, quantities, read, storage::storageclass,
};
use apimachinery::volumes::{storage_class, storage_class_annotation};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(|object, context| whole(object, None, context)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate_state: Some(|new, old, context| whole(new, Some(old), context)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            warn: Some(|object, _| warn(object)),
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
                MetadataRules::State,
                MetadataRules::OfKind,
            ]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    restore: Some(drop_disabled_status),
    validate: Some(validate_status),
    ..SubresourceHooks::STATUS
}];

fn default(object: &mut Value) {
    for list in ["limits", "requests"] {
        quantities::round(object.at_mut(&["spec", "resources", list]));
    }
    for list in ["capacity", "allocatedResources"] {
        quantities::round(object.at_mut(&["status", list]));
    }
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    object.unset(&["status"]);
    object.set(&["status", "phase"], "Pending");
    prepare(object, None, context);
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    prepare(next, Some(old), context);
}

fn prepare(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    spec.unset(&["resources", "claims"]);
    let any_source = gates::ANY_SOURCE.is_open(context);
    // a claim that has had a source keeps the field; sources in other namespaces have a gate of their own
    let elsewhere = !spec.text(&["dataSourceRef", "namespace"]).is_empty();
    let disabled = !any_source || elsewhere && !gates::CROSS_NAMESPACE_SOURCES.is_open(context);
    if disabled && !old.is_some_and(|old| read::has(old, &["spec", "dataSourceRef"])) {
        spec.unset(&["dataSourceRef"]);
    }
    let kept = old.is_some_and(|old| read::has(old, &["spec", "dataSource"]));
    if !kept && !read::has(spec, &["dataSourceRef"]) && !is_known_source(spec.at(&["dataSource"])) {
        spec.unset(&["dataSource"]);
    }
    if !any_source {
        return;
    }
    // the two names for the same thing say the same, unless only one of them can
    match (read::has(spec, &["dataSource"]), read::has(spec, &["dataSourceRef"])) {
        (true, false) => copy_source(spec, "dataSource", "dataSourceRef"),
        (false, true) if spec.text(&["dataSourceRef", "namespace"]).is_empty() => {
            copy_source(spec, "dataSourceRef", "dataSource");
        }
        _ => {}
    }
}

/// The fields that both names of a source have.
const SOURCE_FIELDS: [&str; 3] = ["apiGroup", "kind", "name"];

fn copy_source(spec: &mut Value, from: &'static str, to: &'static str) {
    for field in SOURCE_FIELDS {
        if let Some(value) = spec.at(&[from, field]).cloned() {
            spec.set(&[to, field], value);
        }
    }
}

/// The sources that the older field can name: claims and snapshots.
fn is_known_source(source: Option<&Value>) -> bool {
    let Some(source) = source.filter(|it| !it.is_null()) else { return true };
    match (source.text(&["apiGroup"]), source.text(&["kind"])) {
        ("", "PersistentVolumeClaim") => true,
        (group, "VolumeSnapshot") => group == Names::kubernetes().group("snapshot.storage"),
        _ => false,
    }
}

/// A new claim that says nothing about its class gets the default one.
pub fn give_class(object: &mut Value, context: &Context<'_>) {
    if !has_class(object, context.names)
        && let Some(class) = storageclass::default_class(context)
    {
        object.set(&["spec", "storageClassName"], class);
    }
}

/// A claim in use is not deleted: a finalizer says so from the start.
pub fn protect(object: &mut Value, names: &Names) {
    metadata::add_finalizer(object, &names.well_known("pvc-protection"));
}

/// Claims grow when they are bound and their class allows it.
pub fn check_growth(new: &Value, old: &Value, context: &Context<'_>) -> Result<(), String> {
    if size(new) <= size(old) {
        return Ok(());
    }
    if old.text(&["status", "phase"]) != "Bound" {
        return Err("Only bound persistent volume claims can be expanded".to_owned());
    }
    let (is, was) = (storage_class(new, context.names), storage_class(old, context.names));
    let allowed = !is.is_empty()
        && is == was
        && (context.lookup)("storageclasses", "", is)
            .is_some_and(|class| read::flag(&class, &["allowVolumeExpansion"]));
    if allowed {
        return Ok(());
    }
    const WHY: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(WHY.to_owned())
}

fn size(claim: &Value) -> schema::quantity::Quantity {
    quantities::parse(claim.at(&["spec", "resources", "requests", "storage"]).unwrap_or(&Value::Null))
}

/// The capacity of a claim.
fn capacity(claim: &Value) -> schema::quantity::Quantity {
    quantities::parse(claim.at(&["status", "capacity", "storage"]).unwrap_or(&Value::Null))
}

fn has_class(claim: &Value, names: &Names) -> bool {
    read::map(claim, &["metadata", "annotations"]).contains(&storage_class_annotation(names))
        || read::has(claim, &["spec", "storageClassName"])
}

fn whole(object: &Value, old: Option<&Value>, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let alone = volumes::may_be_alone(old, context);
    spec(object.at(&["spec"]).unwrap_or(&Value::Null), alone, &Path::ROOT.field("spec"), &mut out);
    out
}

/// Checks the spec of a claim, also in pods and stateful sets. `alone` allows ReadWriteOncePod.
pub(crate) fn spec(spec: &Value, alone: bool, path: &Path<'_>, out: &mut Problems) {
    let modes = path.field("accessModes");
    if spec.items(&["accessModes"]).is_empty() {
        out.push(Problem::required(&modes, "at least 1 access mode is required"));
    }
    scheduling::label_selector(spec.at(&["selector"]), &path.field("selector"), out);
    volumes::access_modes(spec, alone, &modes, out);
    let resources = path.field("resources");
    match spec.at(&["resources", "requests", "storage"]) {
        None => out.push(Problem::required(&resources.key("storage"), "")),
        Some(size) => volumes::positive(size, &resources.key("storage"), out),
    }
    match spec.text(&["storageClassName"]) {
        "" => {}
        class => check::subdomain(class, &path.field("storageClassName"), out),
    }
    if let Some(mode) =
        read::opt_text(spec, &["volumeMode"]).filter(|it| !["Block", "Filesystem"].contains(it))
    {
        out.push(check::unsupported(&path.field("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.at(&[field]).filter(|it| !it.is_null()) {
            data_source(source, &path.field(field), out);
        }
    }
    let (one, other) = (spec.at(&["dataSource"]), spec.at(&["dataSourceRef"]));
    if let (Some(one), Some(other)) = (one.filter(|it| !it.is_null()), other.filter(|it| !it.is_null())) {
        // an absent group is the core group too, but another value than an empty one
        let agree = SOURCE_FIELDS.iter().all(|it| read::opt_text(one, &[it]) == read::opt_text(other, &[it]));
        let why = if !other.text(&["namespace"]).is_empty() {
            Some("may not be specified when dataSourceRef.namespace is specified")
        } else {
            (!agree).then_some("must match dataSourceRef")
        };
        let formatted = "field.Path{name:\"dataSource\", index:\"\", parent:(*field.Path)(0xc000000000)}";
        out.extend(why.map(|why| check::invalid_formatted(path, formatted, why)));
    }
}

fn data_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(source, "name", path, out);
    check::required_field(source, "kind", path, out);
    let kind = source.text(&["kind"]);
    if source.text(&["apiGroup"]).is_empty() && kind != "PersistentVolumeClaim" {
        const WHY: &str = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        out.push(Problem::invalid_text(path, kind, WHY));
    }
    match source.text(&["namespace"]) {
        "" => {}
        namespace => check::label(namespace, &path.field("namespace"), out),
    }
}

fn update(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let key = storage_class_annotation(context.names);
    let annotated = |claim: &Value| read::map(claim, &["metadata", "annotations"]).get(&key).cloned();
    let (is, was) = (annotated(new), annotated(old));
    let field = |claim: &Value| read::opt_text(claim, &["spec", "storageClassName"]).map(str::to_owned);
    let (mut next, mut before) = (new.clone(), old.clone());
    // from the annotation to the field, which says the same
    let moved = was.as_ref().is_some_and(|was| field(old).is_none() && field(new).as_deref() == was.as_str());
    if moved {
        next.unset(&["spec", "storageClassName"]);
    } else {
        if is != was {
            let path = Path::ROOT.field("metadata");
            let path = path.field("annotations");
            let formatted = is.as_ref().map_or("", read::text);
            out.push(Problem::invalid_text(&path.field(&key), formatted, "field is immutable"));
        }
        // a claim that had no class may be given one
        if was.is_none() && field(old).is_none() {
            next.unset(&["spec", "storageClassName"]);
        }
    }
    if old.text(&["spec", "volumeName"]).is_empty() {
        for claim in [&mut next, &mut before] {
            claim.unset(&["spec", "volumeName"]);
        }
    }
    if new.text(&["status", "phase"]) == "Bound" && read::has(new, &["spec", "resources", "requests"]) {
        for claim in [&mut next, &mut before] {
            claim.unset(&["spec", "resources", "requests", "storage"]);
            tidy(claim);
        }
    }
    if next.at(&["spec"]) != before.at(&["spec"]) {
        let (is, was) = (read::map(&next, &["spec"]), read::map(&before, &["spec"]));
        let changed: Vec<_> = is.keys().chain(was.keys()).filter(|it| is.get(it) != was.get(it)).collect();
        let why = format!(
            "spec is immutable after creation except resources.requests for bound claims\n  core.PersistentVolumeClaimSpec{{{}}}",
            changed.join(", ")
        );
        out.push(Problem::forbidden(&Path::ROOT.field("spec"), &why));
    }
    if size(new) < size(old) {
        let recovers = gates::RECOVERY.is_open(context);
        // a volume never shrinks, but a request for expansion that did not happen may be withdrawn
        let why = match recovers {
            false => Some("field can not be less than previous value"),
            true if size(new) <= capacity(old) => Some("field can not be less than status.capacity"),
            true => None,
        };
        let path = Path::ROOT.field("spec");
        let path = path.field("resources");
        let path = path.field("requests");
        out.extend(why.map(|why| Problem::forbidden(&path.field("storage"), why)));
    }
    let mode = new.text(&["spec", "volumeMode"]);
    if mode != old.text(&["spec", "volumeMode"]) {
        out.push(Problem::invalid_text(&Path::ROOT.field("volumeMode"), mode, "field is immutable"));
    }
    out
}

/// No requests and an empty list of them are the same.
fn tidy(claim: &mut Value) {
    if read::map(claim, &["spec", "resources", "requests"]).is_empty() {
        claim.unset(&["spec", "resources", "requests"]);
    }
}

fn drop_disabled_status(next: &mut Value, old: &Value, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] = &[
        (gates::RECOVERY, &["status", "allocatedResources"]),
        (gates::RECOVERY, &["status", "resizeStatus"]),
    ];
    gates::drop_disabled(next, Some(old), GUARDED, context);
}

fn validate_status(new: &Value, _: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let capacity = path.field("capacity");
    for (name, value) in read::map(new, &["status", "capacity"]).iter() {
        volumes::valid_amount(value, &capacity.key(name), &mut out);
    }
    if gates::RECOVERY.is_open(context) {
        recovery(new, &path, &mut out);
    }
    out
}

/// Checks the expansion status.
fn recovery(claim: &Value, path: &Path<'_>, out: &mut Problems) {
    const STAGES: &[&str] = &[
        "",
        "ControllerExpansionFailed",
        "ControllerExpansionInProgress",
        "NodeExpansionFailed",
        "NodeExpansionInProgress",
        "NodeExpansionPending",
    ];
    if let Some(stage) = read::opt_text(claim, &["status", "resizeStatus"]).filter(|it| !STAGES.contains(it))
    {
        out.push(check::unsupported(&path.field("resizeStatus"), stage, STAGES));
    }
    let path = path.field("allocatedResources");
    for (name, value) in read::map(claim, &["status", "allocatedResources"]).iter() {
        match name {
            "storage" => volumes::valid_amount(value, &path.key(name), out),
            other => out.push(check::unsupported(&path, other, &["storage"])),
        }
    }
}

fn warn(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for list in ["requests", "limits"] {
        if let Some(value) = object.at(&["spec", "resources", list, "storage"])
            && !quantities::parse(value).is_whole()
        {
            let text = read::text(value);
            out.push(format!(
                "spec.resources.{list}[storage]: fractional byte value {text:?} is invalid, must be an integer"
            ));
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let bound = !object.text(&["spec", "volumeName"]).is_empty();
    let (capacity, modes) = match bound {
        false => ("", String::new()),
        true => (
            read::opt_text(object, &["status", "capacity", "storage"]).unwrap_or("0"),
            volumes::short_modes(object.items(&["status", "accessModes"])),
        ),
    };
    vec![
        metadata::name(object),
        metadata::phase(object),
        object.text(&["spec", "volumeName"]).into(),
        capacity.into(),
        modes.into(),
        storage_class(object, &Names::kubernetes()).into(),
        metadata::age(object, now),
        read::opt_text(object, &["spec", "volumeMode"]).unwrap_or("<unset>").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    fn claim(spec: &str) -> Value {
        let mut object = json(r#"{"metadata":{"name":"c"},"status":{"phase":"Pending"}}"#);
        object.set(&["spec"], json(spec));
        object
    }

    #[test]
    fn sources_mirror_each_other() {
        let check = |given: &str, expected: &str| {
            let mut object = claim(given);
            prepare(&mut object, None, &context());
            assert_eq!(object.at(&["spec"]), Some(&json(expected)), "{given}");
        };
        const CLAIM: &str = r#"{"kind":"PersistentVolumeClaim","name":"a"}"#;
        let both = format!(r#"{{"dataSource":{CLAIM},"dataSourceRef":{CLAIM}}}"#);
        check(&format!(r#"{{"dataSource":{CLAIM}}}"#), &both);
        check(&format!(r#"{{"dataSourceRef":{CLAIM}}}"#), &both);
        check(r#"{"dataSource":{"apiGroup":"x.y","kind":"Foo","name":"a"}}"#, "{}");
        // an empty namespace is none, and the older field has no such field
        let here = r#"{"kind":"PersistentVolumeClaim","name":"a","namespace":""}"#;
        let both = format!(r#"{{"dataSource":{CLAIM},"dataSourceRef":{here}}}"#);
        check(&format!(r#"{{"dataSourceRef":{here}}}"#), &both);
    }

    #[test]
    fn sources_agree_in_absent_groups_too() {
        let check = |group: &str, expected: usize| {
            let spec = format!(
                r#"{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}},
                "dataSource":{{"kind":"PersistentVolumeClaim","name":"a"}},
                "dataSourceRef":{{{group}"kind":"PersistentVolumeClaim","name":"a"}}}}"#
            );
            assert_eq!(whole(&claim(&spec), None, &context()).len(), expected, "{group}");
        };
        check("", 0);
        check(r#""apiGroup":null,"#, 0);
        check(r#""apiGroup":"","#, 1);
    }

    #[test]
    fn bound_claims_grow_and_nothing_else_changes() {
        const SPEC: &str = r#"{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Block"}"#;
        let mut old = claim(SPEC);
        let mut new = old.clone();
        new.set(&["spec", "volumeName"], "v");
        new.set(&["spec", "storageClassName"], "fast");
        assert_eq!(problems(&update(&new, &old, &context())), [""; 0]);
        new.set(&["spec", "resources", "requests", "storage"], "2Gi");
        assert_eq!(update(&new, &old, &context()).len(), 1);
        for claim in [&mut old, &mut new] {
            claim.set(&["status", "phase"], "Bound");
        }
        assert_eq!(problems(&update(&new, &old, &context())), [""; 0]);
        let refused = check_growth(&new, &old, &context()).unwrap_err();
        assert!(refused.contains("must support resize"), "{refused}");
        let lookup = |_: &str, _: &str, _: &str| Some(json(r#"{"allowVolumeExpansion":true}"#));
        old.set(&["spec", "storageClassName"], "fast");
        assert!(check_growth(&new, &old, &Context { lookup: &lookup, ..context() }).is_ok());
        let shrunk = problems(&update(&old, &new, &context()));
        assert!(shrunk.iter().any(|it| it.contains("can not be less than previous value")), "{shrunk:?}");
    }

    #[test]
    fn new_claims_fall_to_the_default_class() {
        let classes = [
            json(
                r#"{"metadata":{"name":"old","creationTimestamp":"2020-01-01T00:00:00Z","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}"#,
            ),
            json(
                r#"{"metadata":{"name":"new","creationTimestamp":"2021-01-01T00:00:00Z","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}"#,
            ),
        ];
        let containing = |_: &str, _: &str| classes.to_vec();
        let context = Context { containing: &containing, ..context() };
        let check = |spec: &str, expected: &str| {
            let mut object = claim(spec);
            give_class(&mut object, &context);
            protect(&mut object, context.names);
            assert_eq!(object.text(&["spec", "storageClassName"]), expected);
            assert_eq!(object.items(&["metadata", "finalizers"]), ["kubernetes.io/pvc-protection".into()]);
        };
        check("{}", "new");
        check(r#"{"storageClassName":""}"#, "");
        check(r#"{"storageClassName":"x"}"#, "x");
    }
}
