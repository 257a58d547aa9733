//! PersistentVolumes: storage with a lifetime of its own. The source is immutable.

pub mod secrets;
mod sources;

use crate::check::{self, Problems};
use crate::core::volumes::{access_modes, may_be_alone, positive, short_modes, valid_amount};
use crate::{core::pod, gates, metadata, node_selection as scheduling, quantities, read};
use apimachinery::volumes::storage_class;
use names::Names;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

const MODES: &[&str] = &["Block", "Filesystem"];
const POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(create),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate_state: Some(|new, old, context| {
                let mut out = Problems::new();
                whole(new, may_be_alone(Some(old), context), &mut out);
                out
            }),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::State,
            ]),
            warn: Some(|object, _| warn(object)),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(None)];

/// Volumes of attachments have the same fields and none of these defaults, so no table has them.
fn default(object: &mut Value) {
    quantities::round(object.at_mut(&["spec", "capacity"]));
    let spec = object.make_map().entry("spec").make_map();
    for (field, value) in [("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem")] {
        let given = spec.entry(field);
        if given.is_null() || (field != "volumeMode" && given.as_str() == Some("")) {
            *given = value.into();
        }
    }
}

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    object.unset(&["status"]);
    object.set(&["status", "phase"], "Pending");
    drop_disabled(object, None, context);
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    drop_disabled(next, Some(old), context);
}

/// Fields that this version knows and does not use yet, unless they are there already.
fn drop_disabled(object: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] =
        &[(gates::NODE_EXPAND_SECRET, &["spec", "csi", "nodeExpandSecretRef"])];
    gates::drop_disabled(object, old, GUARDED, context);
}

/// A volume in use is not deleted: a finalizer says so from the start.
pub fn protect(object: &mut Value, names: &Names) {
    metadata::add_finalizer(object, &names.well_known("pv-protection"));
}

fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    whole(object, may_be_alone(None, context), &mut out);
    mount_options(object, context.names, &mut out);
    out
}

fn whole(object: &Value, alone: bool, out: &mut Problems) {
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    let place = Place::Own { name: object.text(&["metadata", "name"]), alone };
    self::spec(spec, place, &Path::ROOT.field("spec"), out);
}

/// The context of a volume spec.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// It has a name, and may be for one pod alone.
    Own { name: &'a str, alone: bool },
    /// It belongs to an attachment and says less.
    Inline,
}

/// Checks the spec of a volume.
pub(crate) fn spec(spec: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Problems) {
    let (name, alone, inline) = match place {
        Place::Own { name, alone } => (name, alone, false),
        Place::Inline => ("", false, true),
    };
    const INLINE: &str = "may not be specified in the context of inline volumes";
    if inline {
        for field in ["claimRef", "capacity"] {
            if read::has(spec, &[field]) {
                out.push(Problem::forbidden(&path.field(field), INLINE));
            }
        }
        if !read::has(spec, &["csi"]) {
            const WHY: &str = "has to be specified in the context of inline volumes";
            out.push(Problem::required(&path.field("csi"), WHY));
        }
    }
    if spec.items(&["accessModes"]).is_empty() {
        out.push(Problem::required(&path.field("accessModes"), ""));
    }
    access_modes(spec, alone, &path.field("accessModes"), out);
    if !inline {
        capacity(spec, &path.field("capacity"), out);
    }
    match spec.text(&["persistentVolumeReclaimPolicy"]) {
        "" => {}
        policy if inline && policy != "Retain" => {
            const WHY: &str = "may only be Retain in the context of inline volumes";
            out.push(Problem::forbidden(&path.field("persistentVolumeReclaimPolicy"), WHY));
        }
        policy if !inline && !POLICIES.contains(&policy) => {
            out.push(check::unsupported(&path.field("persistentVolumeReclaimPolicy"), policy, POLICIES));
        }
        _ => {}
    }
    if let Some(affinity) = spec.at(&["nodeAffinity"]).filter(|it| !it.is_null()) {
        let path = path.field("nodeAffinity");
        if inline {
            out.push(Problem::forbidden(&path, INLINE));
        } else {
            node_affinity(affinity, &path, out);
        }
    }
    sources::one_source(spec, name, path, out);
    if spec.text(&["persistentVolumeReclaimPolicy"]) == "Recycle" && is_root(spec.text(&["hostPath", "path"]))
    {
        const WHY: &str = "may not be 'recycle' for a hostPath mount of '/'";
        out.push(Problem::forbidden(&path.field("persistentVolumeReclaimPolicy"), WHY));
    }
    match spec.text(&["storageClassName"]) {
        "" => {}
        _ if inline => out.push(Problem::forbidden(&path.field("storageClassName"), INLINE)),
        class => check::subdomain(class, &path.field("storageClassName"), out),
    }
    match read::opt_text(spec, &["volumeMode"]) {
        Some(mode) if inline && mode != "Filesystem" => {
            const WHY: &str =
                "may not specify volumeMode other than Filesystem in the context of inline volumes";
            out.push(Problem::forbidden(&path.field("volumeMode"), WHY));
        }
        Some(mode) if !inline && !MODES.contains(&mode) => {
            out.push(check::unsupported(&path.field("volumeMode"), mode, MODES));
        }
        _ => {}
    }
}

fn capacity(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let given = spec.at(&["capacity"]).filter(|it| !it.is_null());
    let capacity = read::map(spec, &["capacity"]);
    if capacity.is_empty() {
        out.push(Problem::required(path, ""));
    }
    if !capacity.contains("storage") || capacity.len() > 1 {
        let formatted = quantities::format_list(given);
        out.push(check::unsupported_formatted(path, &formatted, &["storage"]));
    }
    for (name, value) in capacity.iter() {
        valid_amount(value, &path.key(name), out);
        positive(value, &path.key(name), out);
    }
}

fn node_affinity(affinity: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("required");
    match affinity.at(&["required"]).filter(|it| !it.is_null()) {
        None => out.push(Problem::required(&path, "must specify required node constraints")),
        Some(selector) => scheduling::node_selector(selector, &path, out),
    }
}

/// Whether a path resolves to the root.
fn is_root(place: &str) -> bool {
    let deeper = |depth: usize, step: &str| match step {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    };
    place.starts_with('/') && place.split('/').fold(0, deeper) == 0
}

fn mount_options(object: &Value, names: &Names, out: &mut Problems) {
    let key = names.well_known_under("volume.beta", "mount-options");
    let spec = object.at(&["spec"]).unwrap_or(&Value::Null);
    if read::map(object, &["metadata", "annotations"]).contains(&key) && !sources::takes_options(spec) {
        let path = Path::ROOT.field("metadata");
        let path = path.field("annotations");
        const WHY: &str = "may not specify mount options for this volume type";
        out.push(Problem::forbidden(&path.field(&key), WHY));
    }
}

fn update(new: &Value, old: &Value, context: &Context<'_>) -> Problems {
    // the API reports the problems of a volume twice on an update
    let (alone, mut out) = (may_be_alone(Some(old), context), Problems::new());
    mount_options(new, context.names, &mut out);
    whole(new, alone, &mut out);
    if differing_source(new, old) {
        let changed: Vec<_> =
            sources::fields().filter(|it| new.at(&["spec", it]) != old.at(&["spec", it])).collect();
        let why = format!(
            "spec.persistentvolumesource is immutable after creation\n  core.PersistentVolumeSource{{{}}}",
            changed.join(", ")
        );
        let path = Path::ROOT.field("spec");
        out.push(Problem::forbidden(&path.field("persistentvolumesource"), &why));
    }
    const WHY: &str = "field is immutable";
    let mode = new.text(&["spec", "volumeMode"]);
    if mode != old.text(&["spec", "volumeMode"]) {
        out.push(Problem::invalid_text(&Path::ROOT.field("volumeMode"), mode, WHY));
    }
    let (is, was) = (new.at(&["spec", "nodeAffinity"]), old.at(&["spec", "nodeAffinity"]));
    if was.is_some_and(|it| !it.is_null()) && !read::same(is, was) {
        let path = Path::ROOT.field("nodeAffinity");
        out.push(match is.filter(|it| !it.is_null()) {
            None => check::null(&path, WHY),
            Some(affinity) => {
                let selector = if read::has(affinity, &["required"]) { "0xc000000000" } else { "nil" };
                let formatted =
                    format!("core.VolumeNodeAffinity{{Required:(*core.NodeSelector)({selector})}}");
                check::invalid_formatted(&path, &formatted, WHY)
            }
        });
    }
    out
}

/// Whether the source changed; the secret for expansion may be added later.
fn differing_source(new: &Value, old: &Value) -> bool {
    const LATER: &str = "controllerExpandSecretRef";
    sources::fields().any(|field| {
        let (is, was) = (new.at(&["spec", field]), old.at(&["spec", field]));
        if read::same(is, was) {
            return false;
        }
        match (field, is, was) {
            ("csi", Some(is), Some(was)) if !read::has(was, &[LATER]) => {
                let mut is = is.clone();
                is.unset(&[LATER]);
                is != *was
            }
            _ => true,
        }
    })
}

fn warn(object: &Value) -> Vec<String> {
    let selector = object.at(&["spec", "nodeAffinity", "required"]).unwrap_or(&Value::Null);
    pod::warn::node_terms(selector.items(&["nodeSelectorTerms"]), "spec.nodeAffinity.required")
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let claim = match object.at(&["spec", "claimRef"]).filter(|it| !it.is_null()) {
        None => String::new(),
        Some(claim) => format!("{}/{}", claim.text(&["namespace"]), claim.text(&["name"])),
    };
    vec![
        metadata::name(object),
        read::opt_text(object, &["spec", "capacity", "storage"]).unwrap_or("0").into(),
        short_modes(object.items(&["spec", "accessModes"])).into(),
        object.text(&["spec", "persistentVolumeReclaimPolicy"]).into(),
        metadata::phase(object),
        claim.into(),
        storage_class(object, &Names::kubernetes()).into(),
        object.text(&["status", "reason"]).into(),
        metadata::age(object, now),
        read::opt_text(object, &["spec", "volumeMode"]).unwrap_or("<unset>").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    const VOLUME: &str = r#"{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"volumeMode":"Block",
        "accessModes":["ReadWriteMany","ReadWriteOnce"],"csi":{"driver":"d","volumeHandle":"h"}}}"#;

    #[test]
    fn the_source_stays_but_for_one_secret() {
        let old = json(VOLUME);
        let mut new = old.clone();
        new.set(&["spec", "csi", "controllerExpandSecretRef"], json(r#"{"name":"s","namespace":"n"}"#));
        new.set(&["spec", "capacity", "storage"], "2Gi");
        assert_eq!(problems(&update(&new, &old, &context())), [""; 0]);
        new.set(&["spec", "csi", "volumeHandle"], "other");
        new.set(&["spec", "volumeMode"], "Filesystem");
        let found = problems(&update(&new, &old, &context()));
        assert!(found[0].starts_with("spec.persistentvolumesource: Forbidden: "), "{found:?}");
        assert_eq!(found[1], r#"volumeMode: Invalid value: "Filesystem": field is immutable"#);
    }

    #[test]
    fn inline_volumes_say_less() {
        let mut out = Problems::new();
        let volume = json(VOLUME);
        spec(volume.at(&["spec"]).unwrap(), Place::Inline, &Path::ROOT.field("s"), &mut out);
        let expected = [
            "s.capacity: Forbidden: may not be specified in the context of inline volumes",
            "s.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes",
        ];
        assert_eq!(problems(&out), expected);
    }

    #[test]
    fn the_root_is_not_recycled() {
        for (place, root) in [("/", true), ("//./", true), ("/a/..", true), ("/a", false), ("", false)] {
            assert_eq!(is_root(place), root, "{place}");
        }
    }

    #[test]
    fn rows_tell_modes_in_short() {
        let row = cells(&json(VOLUME), Duration::ZERO);
        assert_eq!(row[1..3], ["1Gi", "RWO,RWX"].map(Value::from));
    }
}
