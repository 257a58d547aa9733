//! Sources of persistent volumes: each has exactly one. Most are the sources of pod volumes; sources with a secret also
//! have its namespace, so they are checked here.

use crate::check::{self, Problems};
use crate::core::pod::volume_sources as shared;
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};

/// A kind of persistent volume.
struct Source {
    /// Its field in the spec.
    field: &'static str,
    /// The name under which one too many is reported.
    extra: &'static str,
    /// The name under which its problems are reported.
    formatted: &'static str,
    check: fn(&Value, &Path<'_>, &mut Problems),
    /// Whether an annotation may say how to mount it.
    options: bool,
}

const fn source(field: &'static str, check: fn(&Value, &Path<'_>, &mut Problems)) -> Source {
    Source { field, extra: field, formatted: field, check, options: false }
}

const fn with_options(field: &'static str, check: fn(&Value, &Path<'_>, &mut Problems)) -> Source {
    Source { options: true, ..source(field, check) }
}

/// All kinds in the order in which they are looked at; the first one given is the one that counts.
static SOURCES: &[Source] = &[
    source("hostPath", shared::host_path),
    Source { formatted: "persistentDisk", ..with_options("gcePersistentDisk", shared::gce_disk) },
    with_options("awsElasticBlockStore", shared::aws_store),
    with_options("glusterfs", glusterfs),
    source("flocker", shared::flocker),
    with_options("nfs", shared::nfs),
    with_options("rbd", shared::rbd),
    with_options("quobyte", shared::quobyte),
    Source { extra: "cephFS", ..with_options("cephfs", shared::cephfs) },
    with_options("iscsi", iscsi),
    with_options("cinder", cinder),
    source("fc", shared::fibre_channel),
    source("flexVolume", shared::flex),
    with_options("azureFile", azure_file),
    with_options("vsphereVolume", |it, path, out| check::required_field(it, "volumePath", path, out)),
    with_options("photonPersistentDisk", |it, path, out| check::required_field(it, "pdID", path, out)),
    source("portworxVolume", |it, path, out| check::required_field(it, "volumeID", path, out)),
    with_options("azureDisk", shared::azure_disk),
    source("scaleIO", shared::scale_io),
    source("local", local),
    source("storageos", storage_os),
    source("csi", csi),
];

/// Checks the source of a volume. `name` is the volume's.
pub(super) fn one_source(spec: &Value, name: &str, path: &Path<'_>, out: &mut Problems) {
    let mut has_source = false;
    for source in SOURCES {
        let Some(value) = spec.at(&[source.field]).filter(|it| !it.is_null()) else { continue };
        // upstream does not count one kind
        if has_source && source.field != "flexVolume" {
            const WHY: &str = "may not specify more than 1 volume type";
            out.push(Problem::forbidden(&path.field(source.extra), WHY));
            continue;
        }
        has_source = true;
        (source.check)(value, &path.field(source.formatted), out);
        match source.field {
            "iscsi" => iscsi_length(value, name, &path.field(source.formatted), out),
            "local" if !read::has(spec, &["nodeAffinity"]) => {
                const WHY: &str = "Local volume requires node affinity";
                out.push(Problem::required(&path.field("nodeAffinity"), WHY));
            }
            _ => {}
        }
    }
    if !has_source {
        out.push(Problem::required(path, "must specify a volume type"));
    }
}

/// Whether some source of the volume takes its mount options from an annotation.
pub(super) fn takes_options(spec: &Value) -> bool {
    SOURCES.iter().any(|source| source.options && read::has(spec, &[source.field]))
}

/// The fields of a spec that are sources.
pub(super) fn fields() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|source| source.field)
}

/// A reference to a secret, when given, says which one and where.
fn secret_ref(it: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(reference) = it.at(&["secretRef"]).filter(|it| !it.is_null()) {
        let path = path.field("secretRef");
        check::required_field(reference, "name", &path, out);
        check::required_field(reference, "namespace", &path, out);
    }
}

fn glusterfs(it: &Value, path: &Path<'_>, out: &mut Problems) {
    shared::glusterfs(it, path, out);
    match read::opt_text(it, &["endpointsNamespace"]) {
        None => {}
        Some("") => {
            const WHY: &str = "if the endpointnamespace is set, it must be a valid namespace name";
            out.push(Problem::invalid_text(&path.field("endpointsNamespace"), "", WHY));
        }
        Some(name) => check::label(name, &path.field("endpointsNamespace"), out),
    }
}

fn iscsi(it: &Value, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "must be valid format";
    check::required_field(it, "targetPortal", path, out);
    match it.text(&["iqn"]) {
        "" => out.push(Problem::required(&path.field("iqn"), "")),
        name => shared::iscsi_name(name, WHY, &path.field("iqn"), out),
    }
    check::between(read::int(it, &["lun"]), 0, 255, &path.field("lun"), out);
    let guarded = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| read::flag(it, &[field]));
    match it.at(&["secretRef"]).filter(|it| !it.is_null()) {
        None if guarded => out.push(Problem::required(&path.field("secretRef"), "")),
        None => {}
        Some(reference) => check::required_field(reference, "name", &path.field("secretRef"), out),
    }
    if let Some(name) = read::opt_text(it, &["initiatorName"]) {
        shared::iscsi_name(name, WHY, &path.field("initiatorname"), out);
    }
}

/// With an initiator of its own, the interface is named after volume and portal.
fn iscsi_length(it: &Value, volume: &str, path: &Path<'_>, out: &mut Problems) {
    const MOST: usize = 64;
    let portal = it.text(&["targetPortal"]);
    if read::has(it, &["initiatorName"]) && volume.len() + 1 + portal.len() > MOST {
        const WHY: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters \
                           if iscsi.initiatorName is specified.";
        out.push(Problem::invalid_text(&path.field("targetportal"), portal, WHY));
    }
}

fn cinder(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "volumeID", path, out);
    secret_ref(it, path, out);
}

fn azure_file(it: &Value, path: &Path<'_>, out: &mut Problems) {
    shared::azure_file(it, path, out);
    if read::opt_text(it, &["secretNamespace"]) == Some("") {
        out.push(Problem::required(&path.field("secretNamespace"), ""));
    }
}

fn local(it: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("path");
    match it.text(&["path"]) {
        "" => out.push(Problem::required(&path, "")),
        place => check::no_backsteps(place, &path, out),
    }
}

fn storage_os(it: &Value, path: &Path<'_>, out: &mut Problems) {
    match it.text(&["volumeName"]) {
        "" => out.push(Problem::required(&path.field("volumeName"), "")),
        name => check::label(name, &path.field("volumeName"), out),
    }
    match it.text(&["volumeNamespace"]) {
        "" => {}
        name => check::label(name, &path.field("volumeNamespace"), out),
    }
    secret_ref(it, path, out);
}

fn csi(it: &Value, path: &Path<'_>, out: &mut Problems) {
    shared::driver_name(it.text(&["driver"]), &path.field("driver"), out);
    check::required_field(it, "volumeHandle", path, out);
    const SECRETS: &[&str] = &[
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ];
    for field in SECRETS {
        let Some(reference) = it.at(&[field]).filter(|it| !it.is_null()) else { continue };
        let path = path.field(field);
        for part in ["name", "namespace"] {
            match reference.text(&[part]) {
                "" => out.push(Problem::required(&path.field(part), "")),
                text => check::label(text, &path.field(part), out),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn check(spec: &str, expected: &[&str]) {
        let mut out = Problems::new();
        one_source(&json(spec), "v", &Path::ROOT.field("s"), &mut out);
        assert_eq!(problems(&out), expected, "{spec}");
    }

    #[test]
    fn a_volume_is_in_one_place() {
        check("{}", &["s: Required value: must specify a volume type"]);
        check(r#"{"hostPath":{"path":"/a"}}"#, &[]);
        check(
            r#"{"hostPath":{"path":"/a"},"cephfs":{"monitors":["m"]}}"#,
            &["s.cephFS: Forbidden: may not specify more than 1 volume type"],
        );
        check(
            r#"{"local":{"path":"../a"}}"#,
            &[
                r#"s.local.path: Invalid value: "../a": must not contain '..'"#,
                "s.nodeAffinity: Required value: Local volume requires node affinity",
            ],
        );
    }

    #[test]
    fn secrets_are_named_in_full() {
        check(
            r#"{"csi":{"driver":"d","volumeHandle":"h","nodePublishSecretRef":{"name":"s"}}}"#,
            &["s.csi.nodePublishSecretRef.namespace: Required value"],
        );
        check(
            r#"{"iscsi":{"targetPortal":"p","iqn":"x","chapAuthSession":true}}"#,
            &[
                r#"s.iscsi.iqn: Invalid value: "x": must be valid format"#,
                "s.iscsi.secretRef: Required value",
            ],
        );
    }
}
