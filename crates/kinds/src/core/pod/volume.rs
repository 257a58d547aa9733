//! Volumes of a pod: each has a name and exactly one source.

use super::volume_sources as sources;
use crate::check::{self, Problems, TextSet};
use crate::read;
use schema::problem::Problem;
use schema::{Map, Path, Value};
use std::collections::{HashMap, HashSet};

/// A kind of volume.
pub(super) struct Source {
    /// Its field in a volume.
    pub field: &'static str,
    /// The name under which one too many is reported.
    extra: &'static str,
    /// The name under which its problems are reported.
    formatted: &'static str,
    check: fn(&Value, &Path<'_>, &mut Problems),
}

const fn source(field: &'static str, check: fn(&Value, &Path<'_>, &mut Problems)) -> Source {
    Source { field, extra: field, formatted: field, check }
}

/// All kinds in the order in which they are looked at; the first one given is the one that counts.
/// Three of them are reported under names of their own, which clients know.
pub(super) static SOURCES: &[Source] = &[
    source("emptyDir", sources::empty_dir),
    source("hostPath", sources::host_path),
    source("gitRepo", sources::git_repo),
    Source { formatted: "persistentDisk", ..source("gcePersistentDisk", sources::gce_disk) },
    source("awsElasticBlockStore", sources::aws_store),
    source("secret", sources::secret),
    source("nfs", sources::nfs),
    source("iscsi", sources::iscsi),
    source("glusterfs", sources::glusterfs),
    source("flocker", sources::flocker),
    source("persistentVolumeClaim", |it, path, out| check::required_field(it, "claimName", path, out)),
    source("rbd", sources::rbd),
    source("cinder", sources::cinder),
    Source { extra: "cephFS", ..source("cephfs", sources::cephfs) },
    source("quobyte", sources::quobyte),
    Source { extra: "downwarAPI", ..source("downwardAPI", sources::downward_api) },
    source("fc", sources::fibre_channel),
    source("flexVolume", sources::flex),
    source("configMap", sources::config_map),
    source("azureFile", sources::azure_file),
    source("vsphereVolume", |it, path, out| check::required_field(it, "volumePath", path, out)),
    source("photonPersistentDisk", |it, path, out| check::required_field(it, "pdID", path, out)),
    source("portworxVolume", |it, path, out| check::required_field(it, "volumeID", path, out)),
    source("azureDisk", sources::azure_disk),
    source("storageos", sources::storage_os),
    source("projected", sources::projected),
    source("scaleIO", sources::scale_io),
    source("csi", sources::csi),
    source("ephemeral", sources::ephemeral),
];

/// The volumes that containers can mount, by name: those without a problem.
pub(super) type Volumes<'v> = HashMap<&'v str, &'v Value>;

/// Checks all volumes of a pod, and returns the mountable ones.
pub(super) fn volumes<'v>(
    items: &'v [Value],
    pod_name: &str,
    path: &Path<'_>,
    out: &mut Problems,
) -> Volumes<'v> {
    let claims: HashSet<String> = items
        .iter()
        .filter(|it| !pod_name.is_empty() && read::has(it, &["ephemeral"]))
        .map(|it| format!("{pod_name}-{}", it.text(&["name"])))
        .collect();
    let mut mountable = Volumes::new();
    for (at, volume) in items.iter().enumerate() {
        let path = path.index(at);
        let before = out.len();
        let name = volume.text(&["name"]);
        one_source(volume, &path, out);
        let name_path = path.field("name");
        if !pod_name.is_empty() && !name.is_empty() && read::has(volume, &["ephemeral"]) {
            let claim = format!("{pod_name}-{name}");
            let formatted = schema::problem::quoted(&claim);
            for why in check::why(schema::table::Format::Dns1123Subdomain, &claim) {
                out.push(Problem::invalid_text(&name_path, name, &format!("PVC name {formatted}: {why}")));
            }
        }
        if name.is_empty() {
            out.push(Problem::required(&name_path, ""));
        } else {
            check::label(name, &name_path, out);
        }
        if mountable.contains_key(name) {
            out.push(check::duplicate_text(&name_path, name));
        }
        if out.len() == before {
            mountable.insert(name, volume);
        }
        let claim = volume.text(&["persistentVolumeClaim", "claimName"]);
        if claims.contains(claim) {
            const WHY: &str = "must not reference a PVC that gets created for an ephemeral volume";
            let path = path.field("persistentVolumeClaim");
            out.push(Problem::invalid_text(&path.field("claimName"), claim, WHY));
        }
    }
    mountable
}

/// The sources that a volume has, in the order of [`SOURCES`]. A volume has few fields and there are many kinds,
/// so the fields are gone through.
pub(super) fn sources_of(volume: &Value) -> impl Iterator<Item = (&'static Source, &Value)> {
    let mut candidates: Vec<(usize, &Value)> = Vec::new();
    for (name, value) in volume.as_map().into_iter().flat_map(Map::iter).filter(|(_, it)| !it.is_null()) {
        candidates.extend(SOURCES.iter().position(|source| source.field == name).map(|at| (at, value)));
    }
    candidates.sort_unstable_by_key(|(at, _)| *at);
    candidates.into_iter().map(|(at, value)| (&SOURCES[at], value))
}

fn one_source(volume: &Value, path: &Path<'_>, out: &mut Problems) {
    let mut has_source = false;
    for (source, value) in sources_of(volume) {
        if has_source {
            out.push(Problem::forbidden(
                &path.field(source.extra),
                "may not specify more than 1 volume type",
            ));
        } else {
            has_source = true;
            (source.check)(value, &path.field(source.formatted), out);
        }
    }
    if !has_source {
        out.push(Problem::required(path, "must specify a volume type"));
    }
}

/// Checks the volume mounts of a container. `devices` are its block devices.
pub(super) fn mounts(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, out: &mut Problems) {
    let devices = container.items(&["volumeDevices"]);
    let device_names: HashSet<&str> = devices.iter().map(|it| it.text(&["name"])).collect();
    let device_paths: HashSet<&str> = devices.iter().map(|it| it.text(&["devicePath"])).collect();
    let privileged = read::flag(container, &["securityContext", "privileged"]);
    let mut points = TextSet::default();
    for (at, mount) in container.items(&["volumeMounts"]).iter().enumerate() {
        let item = path.index(at);
        let (name, point) = (mount.text(&["name"]), mount.text(&["mountPath"]));
        check::required(name, &item.field("name"), out);
        if !volumes.contains_key(name) {
            out.push(check::not_found(&item.field("name"), name));
        }
        check::required(point, &item.field("mountPath"), out);
        if !points.insert(point) {
            out.push(Problem::invalid_text(&item.field("mountPath"), point, "must be unique"));
        }
        if device_names.contains(name) {
            out.push(Problem::invalid_text(
                &item.field("name"),
                name,
                "must not already exist in volumeDevices",
            ));
        }
        if device_paths.contains(point) {
            const WHY: &str = "must not already exist as a path in volumeDevices";
            out.push(Problem::invalid_text(&item.field("mountPath"), point, WHY));
        }
        // these are reported at the list, not at the item
        let (below, expression) = (mount.text(&["subPath"]), mount.text(&["subPathExpr"]));
        if !below.is_empty() {
            check::descending_path(below, &path.field("subPath"), out);
        }
        if !expression.is_empty() {
            if !below.is_empty() {
                const WHY: &str = "subPathExpr and subPath are mutually exclusive";
                out.push(Problem::invalid_text(&item.field("subPathExpr"), expression, WHY));
            }
            check::descending_path(expression, &path.field("subPathExpr"), out);
        }
        if let Some(propagation) = read::opt_text(mount, &["mountPropagation"]) {
            mount_propagation(propagation, privileged, &path.field("mountPropagation"), out);
        }
    }
}

fn mount_propagation(propagation: &str, privileged: bool, path: &Path<'_>, out: &mut Problems) {
    const KNOWN: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    if !KNOWN.contains(&propagation) {
        out.push(check::unsupported(path, propagation, KNOWN));
    }
    if propagation == "Bidirectional" && !privileged {
        const WHY: &str = "Bidirectional mount propagation is available only to privileged containers";
        out.push(Problem::forbidden(path, WHY));
    }
}

/// Volumes that a container sees as block devices.
pub(super) fn devices(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, out: &mut Problems) {
    if container.items(&["volumeDevices"]).is_empty() {
        return;
    }
    let mounts = container.items(&["volumeMounts"]);
    let mount_names: HashSet<&str> = mounts.iter().map(|it| it.text(&["name"])).collect();
    let mount_paths: HashSet<&str> = mounts.iter().map(|it| it.text(&["mountPath"])).collect();
    let (mut names, mut points) = (HashSet::new(), HashSet::new());
    for (at, device) in container.items(&["volumeDevices"]).iter().enumerate() {
        let path = path.index(at);
        let (name, point) = (device.text(&["name"]), device.text(&["devicePath"]));
        let (name_path, point_path) = (path.field("name"), path.field("devicePath"));
        check::required(name, &name_path, out);
        if names.contains(name) {
            out.push(Problem::invalid_text(&name_path, name, "must be unique"));
        }
        match volumes.get(name) {
            None => out.push(check::not_found(&name_path, name)),
            Some(volume)
                if !["persistentVolumeClaim", "ephemeral"].iter().any(|it| read::has(volume, &[it])) =>
            {
                const WHY: &str =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                out.push(Problem::invalid_text(&name_path, name, WHY));
            }
            Some(_) => {}
        }
        check::required(point, &point_path, out);
        if points.contains(point) {
            out.push(Problem::invalid_text(&point_path, point, "must be unique"));
        }
        if check::has_backsteps(point) {
            out.push(Problem::invalid_text(&point_path, point, "can not contain backsteps ('..')"));
        } else {
            points.insert(point);
        }
        if mount_names.contains(name) {
            out.push(Problem::invalid_text(&name_path, name, "must not already exist in volumeMounts"));
        }
        if mount_paths.contains(point) {
            out.push(Problem::invalid_text(
                &point_path,
                point,
                "must not already exist as a path in volumeMounts",
            ));
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn check_volumes(volumes_json: &str, expected: &[&str]) {
        let pod = json(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"volumes":{volumes_json}}}}}"#));
        let mut out = Problems::new();
        let name = pod.text(&["metadata", "name"]);
        volumes(pod.items(&["spec", "volumes"]), name, &Path::ROOT.field("v"), &mut out);
        assert_eq!(problems(&out), expected);
    }

    #[test]
    fn each_volume_has_a_name_and_one_source() {
        check_volumes(r#"[{"name":"a","emptyDir":{}}]"#, &[]);
        check_volumes(
            r#"[{"name":"a","emptyDir":{}},{"name":"a","emptyDir":{}}]"#,
            &[r#"v[1].name: Duplicate value: "a""#],
        );
        check_volumes(
            r#"[{"name":"a","hostPath":{},"downwardAPI":{}}]"#,
            &[
                "v[0].hostPath.path: Required value",
                "v[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        );
        check_volumes(r#"[{"name":"a"}]"#, &["v[0]: Required value: must specify a volume type"]);
        check_volumes(
            r#"[{"name":"a","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1"}}}}}},
                {"name":"b","persistentVolumeClaim":{"claimName":"p-a"}}]"#,
            &[
                r#"v[1].persistentVolumeClaim.claimName: Invalid value: "p-a": must not reference a PVC that gets created for an ephemeral volume"#,
            ],
        );
    }

    #[test]
    fn mounts_and_devices_do_not_meet() {
        let volume = json(r#"{"name":"a","persistentVolumeClaim":{"claimName":"c"}}"#);
        let known: Volumes<'_> = [("a", &volume)].into();
        let container = json(
            r#"{"volumeMounts":[{"name":"a","mountPath":"/x"},{"name":"b","mountPath":"/x","subPath":"../y"}],
                "volumeDevices":[{"name":"a","devicePath":"/x"}]}"#,
        );
        let mut out = Problems::new();
        mounts(&container, &known, &Path::ROOT.field("m"), &mut out);
        devices(&container, &known, &Path::ROOT.field("d"), &mut out);
        let expected = [
            r#"m[0].name: Invalid value: "a": must not already exist in volumeDevices"#,
            r#"m[0].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices"#,
            r#"m[1].name: Not found: "b""#,
            r#"m[1].mountPath: Invalid value: "/x": must be unique"#,
            r#"m[1].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices"#,
            r#"m.subPath: Invalid value: "../y": must not contain '..'"#,
            r#"d[0].name: Invalid value: "a": must not already exist in volumeMounts"#,
            r#"d[0].devicePath: Invalid value: "/x": must not already exist as a path in volumeMounts"#,
        ];
        assert_eq!(problems(&out), expected);
    }
}
