//! Defaults of a pod that depend on other fields.
//!
//! The tables declare all other defaults.

use super::image;
use super::volume::sources_of;
use crate::{quantities, read};
use names::Names;
use schema::Value;

pub(super) fn default(object: &mut Value) {
    mirror_addresses(object);
    template(object);
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    for list in ["containers", "initContainers"] {
        read::each_mut(spec, &[list], requests_from_limits);
    }
    if !read::has(spec, &["enableServiceLinks"]) {
        spec.set(&["enableServiceLinks"], true);
    }
}

/// Defaults of pods and pod templates.
pub(crate) fn template(object: &mut Value) {
    drop_old_annotations(object, &Names::kubernetes());
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    mirror_account(spec);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        read::each_mut(spec, &[list], container);
    }
    if read::flag(spec, &["hostNetwork"]) {
        for list in ["containers", "initContainers"] {
            read::each_mut(spec, &[list], |one| read::each_mut(one, &["ports"], port_of_the_host));
        }
    }
    quantities::round(spec.at_mut(&["overhead"]));
    read::each_mut(spec, &["volumes"], volume);
}

/// Drops the annotations that described init containers before the field existed.
fn drop_old_annotations(object: &mut Value, names: &Names) {
    let Some(annotations) = object.at_mut(&["metadata", "annotations"]).and_then(Value::as_map_mut) else {
        return;
    };
    let old = annotations.keys().any(|key| key.starts_with("pod."));
    for stage in ["alpha", "beta"].iter().filter(|_| old) {
        for name in ["init-containers", "init-container-statuses"] {
            annotations.remove(&names.well_known_under(&format!("pod.{stage}"), name));
        }
    }
    if annotations.is_empty() {
        object.unset(&["metadata", "annotations"]);
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`.
fn mirror_account(spec: &mut Value) {
    let (new, old) = (spec.text(&["serviceAccountName"]), spec.text(&["serviceAccount"]));
    let account = if new.is_empty() { old } else { new }.to_owned();
    if !account.is_empty() {
        spec.set(&["serviceAccountName"], account.as_str());
        spec.set(&["serviceAccount"], account);
    }
}

/// `podIP` is the first of `podIPs`; where they differ the single one wins, as old clients know no other.
fn mirror_addresses(object: &mut Value) {
    let first = object.items(&["status", "podIPs"]).first().map(|it| it.text(&["ip"]).to_owned());
    let single = object.text(&["status", "podIP"]).to_owned();
    match first {
        Some(first) if single.is_empty() && !first.is_empty() => object.set(&["status", "podIP"], first),
        Some(first) if first == single => {}
        _ if single.is_empty() => {}
        _ => {
            let mut ip = Value::map();
            ip.set(&["ip"], single);
            object.set(&["status", "podIPs"], vec![ip]);
        }
    }
}

fn container(one: &mut Value) {
    if one.text(&["imagePullPolicy"]).is_empty() {
        let policy = if image::is_latest(one.text(&["image"])) { "Always" } else { "IfNotPresent" };
        one.set(&["imagePullPolicy"], policy);
    }
    for list in ["limits", "requests"] {
        quantities::round(one.at_mut(&["resources", list]));
    }
}

/// Requests default to limits.
fn requests_from_limits(one: &mut Value) {
    let limits = read::map(one, &["resources", "limits"]).clone();
    if limits.is_empty() {
        return;
    }
    let resources = one.make_map().entry("resources").make_map();
    let requests = resources.entry("requests").make_map();
    for (name, limit) in limits {
        if !requests.contains(&name) {
            requests.insert(name, limit);
        }
    }
}

fn port_of_the_host(port: &mut Value) {
    if read::int(port, &["hostPort"]) == 0
        && let Some(number) = port.at(&["containerPort"]).cloned()
    {
        port.set(&["hostPort"], number);
    }
}

fn volume(volume: &mut Value) {
    if volume.as_map().is_none() {
        return;
    }
    if sources_of(volume).next().is_none() {
        volume.set(&["emptyDir"], Value::map());
    }
    if let Some(sources) = volume.at_mut(&["projected", "sources"])
        && sources.as_list().is_some_and(<[Value]>::is_empty)
    {
        *sources = Value::Null;
    }
    for list in ["limits", "requests"] {
        quantities::round(volume.at_mut(&["ephemeral", "volumeClaimTemplate", "spec", "resources", list]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    fn check(object: &str, path: &[&str], expected: &str) {
        let mut object = json(object);
        default(&mut object);
        assert_eq!(object.at(path), Some(&json(expected)), "{path:?}");
    }

    #[test]
    fn names_are_mirrored() {
        check(r#"{"spec":{"serviceAccount":"a"}}"#, &["spec", "serviceAccountName"], r#""a""#);
        check(
            r#"{"spec":{"serviceAccount":"a","serviceAccountName":"b"}}"#,
            &["spec", "serviceAccount"],
            r#""b""#,
        );
        check(r#"{"status":{"podIP":"1.1.1.1"}}"#, &["status", "podIPs"], r#"[{"ip":"1.1.1.1"}]"#);
        check(r#"{"status":{"podIPs":[{"ip":"1.1.1.1"}]}}"#, &["status", "podIP"], r#""1.1.1.1""#);
        check(
            r#"{"status":{"podIP":"1.1.1.1","podIPs":[{"ip":"bad"},{"ip":"1.1.1.1"}]}}"#,
            &["status", "podIPs"],
            r#"[{"ip":"1.1.1.1"}]"#,
        );
    }

    #[test]
    fn containers_follow_their_image_and_limits() {
        check(
            r#"{"spec":{"containers":[{"image":"nginx:1","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100u"}}}]}}"#,
            &["spec", "containers"],
            r#"[{"image":"nginx:1","imagePullPolicy":"IfNotPresent",
                "resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1m","memory":"1Gi"}}}]"#,
        );
    }

    #[test]
    fn ports_of_the_host_are_the_container_s() {
        check(
            r#"{"spec":{"hostNetwork":true,"containers":[{"imagePullPolicy":"Never","ports":[{"containerPort":80}]}]}}"#,
            &["spec", "containers"],
            r#"[{"imagePullPolicy":"Never","ports":[{"containerPort":80,"hostPort":80}]}]"#,
        );
    }

    #[test]
    fn volumes_without_a_source_are_empty_directories() {
        check(
            r#"{"spec":{"volumes":[{"name":"a"},{"name":"b","nfs":{}}]}}"#,
            &["spec", "volumes"],
            r#"[{"name":"a","emptyDir":{}},{"name":"b","nfs":{}}]"#,
        );
    }
}
