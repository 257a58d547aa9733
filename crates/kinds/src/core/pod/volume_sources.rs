//! Validation of the sources of volumes.

use super::field_refs::{field_ref, resource_field_ref};
use crate::check::{self, Problems};
use crate::{core::persistentvolumeclaim, quantities, read};
use schema::problem::Problem;
use schema::{Path, Value};
use std::collections::HashSet;

const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn required_list(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    if value.items(&[field]).is_empty() {
        out.push(Problem::required(&path.field(field), ""));
    }
}

/// A reference to a secret, when given, names one.
fn secret_ref(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    if let Some(reference) = value.at(&[field]).filter(|it| !it.is_null()) {
        check::required_field(reference, "name", &path.field(field), out);
    }
}

pub(super) fn empty_dir(it: &Value, path: &Path<'_>, out: &mut Problems) {
    if it.at(&["sizeLimit"]).is_some_and(|limit| quantities::parse(limit).sign() < 0) {
        const WHY: &str = "SizeLimit field must be a valid resource quantity";
        out.push(Problem::forbidden(&path.field("sizeLimit"), WHY));
    }
}

pub(crate) fn host_path(it: &Value, path: &Path<'_>, out: &mut Problems) {
    const TYPES: &[&str] = &[
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let place = it.text(&["path"]);
    if place.is_empty() {
        out.push(Problem::required(&path.field("path"), ""));
        return;
    }
    check::no_backsteps(place, &path.field("path"), out);
    let kind = it.text(&["type"]);
    if !TYPES.contains(&kind) {
        out.push(check::unsupported(&path.field("type"), kind, TYPES));
    }
}

pub(super) fn git_repo(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "repository", path, out);
    check::descending_path(it.text(&["directory"]), &path.field("directory"), out);
}

pub(crate) fn gce_disk(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "pdName", path, out);
    partition(it, path, out);
}

pub(crate) fn aws_store(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "volumeID", path, out);
    partition(it, path, out);
}

/// Zero is no partition, though messages do not say so.
fn partition(it: &Value, path: &Path<'_>, out: &mut Problems) {
    let number = read::int(it, &["partition"]);
    if number != 0 {
        check::between(number, 1, 255, &path.field("partition"), out);
    }
}

fn items(it: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("items");
    for (at, item) in it.items(&["items"]).iter().enumerate() {
        key_to_path(item, &path.index(at), out);
    }
}

fn key_to_path(item: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(item, "key", path, out);
    check::required_field(item, "path", path, out);
    check::unreserved_path(item.text(&["path"]), &path.field("path"), out);
    check::file_mode(item, "mode", path, out);
}

pub(super) fn secret(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "secretName", path, out);
    check::file_mode(it, "defaultMode", path, out);
    items(it, path, out);
}

pub(super) fn config_map(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "name", path, out);
    check::file_mode(it, "defaultMode", path, out);
    items(it, path, out);
}

pub(crate) fn nfs(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "server", path, out);
    check::required_field(it, "path", path, out);
    let place = it.text(&["path"]);
    if !place.starts_with('/') {
        out.push(Problem::invalid_text(&path.field("path"), place, "must be an absolute path"));
    }
}

pub(super) fn iscsi(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "targetPortal", path, out);
    match it.text(&["iqn"]) {
        "" => out.push(Problem::required(&path.field("iqn"), "")),
        name => iscsi_name(name, NOT_ISCSI, &path.field("iqn"), out),
    }
    check::between(read::int(it, &["lun"]), 0, 255, &path.field("lun"), out);
    let guarded = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|field| read::flag(it, &[field]));
    if guarded && !read::has(it, &["secretRef"]) {
        out.push(Problem::required(&path.field("secretRef"), ""));
    }
    if let Some(name) = read::opt_text(it, &["initiatorName"]) {
        iscsi_name(name, NOT_ISCSI, &path.field("initiatorname"), out);
    }
}

const NOT_ISCSI: &str = "must be valid format starting with iqn, eui, or naa";

/// `iqn.2001-04.com.example:storage`, `eui.` and sixteen digits, `naa.` and sixteen or thirty-two.
pub(crate) fn iscsi_name(name: &str, unknown: &str, path: &Path<'_>, out: &mut Problems) {
    let hex = |text: &str, lengths: &[usize]| {
        lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let fits = if let Some(rest) = name.strip_prefix("iqn.") {
        let (date, domain) = (rest.get(..7).unwrap_or(""), rest.get(7..).unwrap_or(""));
        let date_fits =
            date.bytes().enumerate().all(|(at, b)| if at == 4 { b == b'-' } else { b.is_ascii_digit() });
        let (domain, place) = domain.strip_prefix('.').unwrap_or("").split_once(':').unwrap_or_default();
        let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let special = |c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c);
        date.len() == 7
            && date_fits
            && !domain.is_empty()
            && domain.bytes().all(letters)
            && !place.is_empty()
            && !place.contains(special)
    } else if let Some(rest) = name.strip_prefix("eui.") {
        hex(rest, &[16])
    } else if let Some(rest) = name.strip_prefix("naa.") {
        hex(rest, &[16, 32])
    } else if ["iqn", "eui", "naa"].iter().any(|start| name.starts_with(start)) {
        false
    } else {
        out.push(Problem::invalid_text(path, name, unknown));
        return;
    };
    if !fits {
        out.push(Problem::invalid_text(path, name, "must be valid format"));
    }
}

pub(crate) fn glusterfs(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "endpoints", path, out);
    check::required_field(it, "path", path, out);
}

pub(crate) fn flocker(it: &Value, path: &Path<'_>, out: &mut Problems) {
    let (name, uuid) = (it.text(&["datasetName"]), it.text(&["datasetUUID"]));
    if name.is_empty() && uuid.is_empty() {
        out.push(Problem::required(path, "one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        const WHY: &str = "datasetName and datasetUUID can not be specified simultaneously";
        out.push(Problem::invalid_text(path, "resource", WHY));
    }
    if name.contains('/') {
        out.push(Problem::invalid_text(&path.field("datasetName"), name, "must not contain '/'"));
    }
}

pub(crate) fn rbd(it: &Value, path: &Path<'_>, out: &mut Problems) {
    required_list(it, "monitors", path, out);
    check::required_field(it, "image", path, out);
}

pub(super) fn cinder(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "volumeID", path, out);
    secret_ref(it, "secretRef", path, out);
}

pub(crate) fn cephfs(it: &Value, path: &Path<'_>, out: &mut Problems) {
    required_list(it, "monitors", path, out);
}

pub(crate) fn quobyte(it: &Value, path: &Path<'_>, out: &mut Problems) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = it.text(&["registry"]);
    if registry.is_empty() {
        out.push(Problem::required(&path.field("registry"), PAIRS));
    } else if !registry.split(',').all(|pair| pair.rsplit_once(':').is_some()) {
        out.push(Problem::invalid_text(&path.field("registry"), registry, PAIRS));
    }
    let tenant = it.text(&["tenant"]);
    if tenant.len() > 64 {
        const WHY: &str = "must be a UUID and may not exceed a length of 64 characters";
        out.push(Problem::required(&path.field("tenant"), WHY));
    }
    check::required_field(it, "volume", path, out);
}

pub(super) fn downward_api(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::file_mode(it, "defaultMode", path, out);
    for file in it.items(&["items"]) {
        downward_file(file, path, out);
    }
}

/// Reports do not name the file.
fn downward_file(file: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(file, "path", path, out);
    check::unreserved_path(file.text(&["path"]), &path.field("path"), out);
    match (read::has(file, &["fieldRef"]), file.at(&["resourceFieldRef"])) {
        (true, resource) => {
            if let Some(reference) = file.at(&["fieldRef"]) {
                field_ref(reference, VOLUME_FIELDS, &path.field("fieldRef"), out);
            }
            if resource.is_some_and(|it| !it.is_null()) {
                const WHY: &str = "fieldRef and resourceFieldRef can not be specified simultaneously";
                out.push(Problem::invalid_text(path, "resource", WHY));
            }
        }
        (false, Some(reference)) if !reference.is_null() => {
            resource_field_ref(reference, &path.field("resourceFieldRef"), true, out);
        }
        _ => out.push(Problem::required(path, "one of fieldRef and resourceFieldRef is required")),
    }
    check::file_mode(file, "mode", path, out);
}

pub(crate) fn fibre_channel(it: &Value, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "must specify either targetWWNs or wwids, but not both";
    const BOTH: &str = "targetWWNs and wwids can not be specified simultaneously";
    let (targets, wwids) = (it.items(&["targetWWNs"]), it.items(&["wwids"]));
    let path_of_targets = path.field("targetWWNs");
    match (targets.is_empty(), wwids.is_empty()) {
        (true, true) => out.push(Problem::required(&path_of_targets, WHY)),
        (false, false) => {
            out.push(check::invalid_formatted(&path_of_targets, &check::format_texts(targets), BOTH))
        }
        _ => {}
    }
    if !targets.is_empty() {
        match read::opt_int(it, &["lun"]) {
            Some(lun) => check::between(lun, 0, 255, &path.field("lun"), out),
            None => {
                out.push(Problem::required(&path.field("lun"), "lun is required if targetWWNs is specified"))
            }
        }
    }
}

pub(crate) fn flex(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "driver", path, out);
    let options = path.field("options");
    let names = names::Names::kubernetes();
    for key in read::map(it, &["options"]).keys() {
        let namespace = key.split('/').next().unwrap_or("").to_lowercase();
        let reserved = [&names.api_domain, &names.well_known_domain]
            .iter()
            .any(|domain| namespace == ***domain || namespace.ends_with(&format!(".{domain}")));
        if key.contains('/') && reserved {
            let why = format!("{} and {} namespaces are reserved", names.well_known_domain, names.api_domain);
            out.push(Problem::invalid_text(&options.key(key), key, &why));
        }
    }
}

pub(crate) fn azure_file(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "secretName", path, out);
    check::required_field(it, "shareName", path, out);
}

pub(crate) fn azure_disk(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::required_field(it, "diskName", path, out);
    check::required_field(it, "diskURI", path, out);
    let known = |field: &str, values: &[&str], out: &mut Problems| {
        if let Some(given) = read::opt_text(it, &[field]).filter(|it| !values.contains(it)) {
            out.push(check::unsupported(&path.field(field), given, values));
        }
    };
    known("cachingMode", &["None", "ReadOnly", "ReadWrite"], out);
    known("kind", &["Dedicated", "Managed", "Shared"], out);
    let (start, form) = match it.text(&["kind"]) {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    let uri = it.text(&["diskURI"]);
    if !uri.starts_with(start) {
        out.push(check::unsupported(&path.field("diskURI"), uri, &[form]));
    }
}

pub(super) fn storage_os(it: &Value, path: &Path<'_>, out: &mut Problems) {
    match it.text(&["volumeName"]) {
        "" => out.push(Problem::required(&path.field("volumeName"), "")),
        name => check::label(name, &path.field("volumeName"), out),
    }
    match it.text(&["volumeNamespace"]) {
        "" => {}
        name => check::label(name, &path.field("volumeNamespace"), out),
    }
    secret_ref(it, "secretRef", path, out);
}

pub(crate) fn scale_io(it: &Value, path: &Path<'_>, out: &mut Problems) {
    for field in ["gateway", "system", "volumeName"] {
        check::required_field(it, field, path, out);
    }
}

/// The name of a driver, whatever its case.
pub(crate) fn driver_name(driver: &str, path: &Path<'_>, out: &mut Problems) {
    const MOST: usize = 63;
    check::required(driver, path, out);
    if driver.len() > MOST {
        out.push(Problem::too_long(path, MOST));
    }
    let why = check::why(schema::table::Format::Dns1123Subdomain, &driver.to_lowercase());
    out.extend(why.iter().map(|why| Problem::invalid_text(path, driver, why)));
}

pub(super) fn csi(it: &Value, path: &Path<'_>, out: &mut Problems) {
    driver_name(it.text(&["driver"]), &path.field("driver"), out);
    secret_ref(it, "nodePublishSecretRef", path, out);
}

pub(super) fn projected(it: &Value, path: &Path<'_>, out: &mut Problems) {
    check::file_mode(it, "defaultMode", path, out);
    let sources = path.field("sources");
    let mut paths = HashSet::new();
    for (at, source) in it.items(&["sources"]).iter().enumerate() {
        projection(source, &sources.index(at), path, &mut paths, out);
    }
}

/// One source of a projected volume; `volume` is where conflicts with other sources are reported.
fn projection<'v>(
    source: &'v Value,
    path: &Path<'_>,
    volume: &Path<'_>,
    paths: &mut HashSet<&'v str>,
    out: &mut Problems,
) {
    const CONFLICT: &str = "conflicting duplicate paths";
    let mut kinds = 0;
    for field in ["secret", "configMap"] {
        let Some(it) = source.at(&[field]).filter(|it| !it.is_null()) else { continue };
        kinds += 1;
        let path = path.field(field);
        let name = it.text(&["name"]);
        check::required(name, &path.field("name"), out);
        let items = path.field("items");
        for (at, item) in it.items(&["items"]).iter().enumerate() {
            key_to_path(item, &items.index(at), out);
            let place = item.text(&["path"]);
            if !place.is_empty() && !paths.insert(place) {
                out.push(Problem::invalid_text(volume, name, CONFLICT));
            }
        }
    }
    if let Some(it) = source.at(&["downwardAPI"]).filter(|it| !it.is_null()) {
        kinds += 1;
        for file in it.items(&["items"]) {
            downward_file(file, &path.field("downwardAPI"), out);
            let place = file.text(&["path"]);
            if !place.is_empty() && !paths.insert(place) {
                out.push(Problem::invalid_text(volume, place, CONFLICT));
            }
        }
    }
    if let Some(it) = source.at(&["serviceAccountToken"]).filter(|it| !it.is_null()) {
        kinds += 1;
        let path = path.field("serviceAccountToken");
        let seconds = read::int(it, &["expirationSeconds"]);
        let wrong = match seconds {
            ..600 => Some("may not specify a duration less than 10 minutes"),
            0x1_0000_0001.. => Some("may not specify a duration larger than 2^32 seconds"),
            _ => None,
        };
        if let Some(why) = wrong {
            out.push(check::invalid_int(&path.field("expirationSeconds"), seconds, why));
        }
        check::required(it.text(&["path"]), &volume.field("path"), out);
    }
    if kinds > 1 {
        out.push(Problem::forbidden(path, "may not specify more than 1 volume type"));
    }
}

pub(super) fn ephemeral(it: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("volumeClaimTemplate");
    match it.at(&["volumeClaimTemplate"]).filter(|it| !it.is_null()) {
        None => out.push(Problem::required(&path, "")),
        Some(template) => {
            template_metadata(template, &path.field("metadata"), out);
            let spec = template.at(&["spec"]).unwrap_or(&Value::Null);
            persistentvolumeclaim::spec(spec, false, &path.field("spec"), out);
        }
    }
}

/// Fields of a claim template's metadata that must not be set, in upstream's order, and what it calls them.
const REFUSED_METADATA: &[(&str, &str)] = &[
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// A template may have labels and annotations and nothing else.
fn template_metadata(template: &Value, path: &Path<'_>, out: &mut Problems) {
    let metadata = read::map(template, &["metadata"]);
    let at = path.field("annotations");
    for (key, _) in metadata.get("annotations").and_then(Value::as_map).into_iter().flat_map(|it| it.iter()) {
        let why = check::why(schema::table::Format::QualifiedName, &key.to_lowercase());
        out.extend(why.iter().map(|why| Problem::invalid_text(&at, key, why)));
    }
    if let Some(labels) = metadata.get("labels") {
        check::labels(labels, &path.field("labels"), out);
    }
    for (field, shown) in REFUSED_METADATA {
        let value = metadata.get(field).filter(|it| !it.is_null());
        if value.is_some_and(|it| it.as_str() != Some("") && it.as_int() != Some(0)) {
            out.push(Problem::forbidden(&path.field(shown), "cannot be set"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn check(source: fn(&Value, &Path<'_>, &mut Problems), value: &str, expected: &[&str]) {
        let mut out = Problems::new();
        source(&json(value), &Path::ROOT.field("v"), &mut out);
        assert_eq!(problems(&out), expected, "{value}");
    }

    #[test]
    fn iscsi_names_have_their_forms() {
        let with = |name: &str| format!(r#"{{"targetPortal":"p","iqn":{name:?}}}"#);
        check(iscsi, &with("iqn.2001-04.com.example:storage"), &[]);
        check(iscsi, &with("eui.0123456789abcdef"), &[]);
        check(iscsi, &with("naa.0123456789abcdef"), &[]);
        check(iscsi, &with("eui.1"), &[r#"v.iqn: Invalid value: "eui.1": must be valid format"#]);
        check(
            iscsi,
            &with("x"),
            &[r#"v.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa"#],
        );
        check(iscsi, &with("iqn.é"), &[r#"v.iqn: Invalid value: "iqn.é": must be valid format"#]);
    }

    #[test]
    fn templates_of_claims_have_no_metadata_but_labels_and_annotations() {
        let metadata = r#"{"uid":"u","name":"n","labels":{"a b":"c"},"annotations":{"d e":"f"},"generation":0,
            "namespace":"","creationTimestamp":null,"resourceVersion":"1"}"#;
        let template = format!(
            r#"{{"volumeClaimTemplate":{{"metadata":{metadata},"spec":{{"accessModes":["ReadWriteOnce"],
                "resources":{{"requests":{{"storage":"1"}}}}}}}}}}"#
        );
        let mut out = Problems::new();
        ephemeral(&json(&template), &Path::ROOT, &mut out);
        let fields: Vec<&str> = out.iter().map(|it| it.field.as_str()).collect();
        let expected = ["annotations", "labels", "name", "uID", "resourceVersion"];
        assert_eq!(fields, expected.map(|it| format!("volumeClaimTemplate.metadata.{it}")));
    }

    #[test]
    fn projected_paths_do_not_meet() {
        check(
            projected,
            r#"{"sources":[{"secret":{"name":"s","items":[{"key":"a","path":"x"}]}},
                {"configMap":{"name":"c","items":[{"key":"a","path":"x"}]}}]}"#,
            &[r#"v: Invalid value: "c": conflicting duplicate paths"#],
        );
        check(
            projected,
            r#"{"sources":[{"serviceAccountToken":{"expirationSeconds":1}}]}"#,
            &[
                "v.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                "v.path: Required value",
            ],
        );
    }

    #[test]
    fn paths_stay_inside() {
        check(
            secret,
            r#"{"secretName":"s","items":[{"key":"k","path":"/a"}]}"#,
            &[r#"v.items[0].path: Invalid value: "/a": must be a relative path"#],
        );
        check(
            secret,
            r#"{"secretName":"s","items":[{"key":"k","path":"..a"}]}"#,
            &[r#"v.items[0].path: Invalid value: "..a": must not start with '..'"#],
        );
        check(
            host_path,
            r#"{"path":"/a/../b"}"#,
            &[r#"v.path: Invalid value: "/a/../b": must not contain '..'"#],
        );
    }
}
