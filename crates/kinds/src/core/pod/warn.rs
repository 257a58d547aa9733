//! Warnings about pods: deprecated fields, and fields without effect.

use crate::check::TextSet;
use crate::{quantities, read};
use names::Names;
use schema::problem::quoted;
use schema::{Map, Path, Value};

/// Volumes that no longer work, or will not for long.
///
/// Deprecated fields and their warnings.
const OLD_VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo: deprecated in v1.11"),
    ("scaleIO", "scaleIO: deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker: deprecated in v1.22, support removal is planned in v1.26"),
    ("storageos", "storageOS: deprecated in v1.22, support removal is planned in v1.26"),
    ("quobyte", "quobyte: deprecated in v1.22, support removal is planned in v1.26"),
    (
        "glusterfs",
        "glusterfs: deprecated in v1.25, this feature will be removed soon after in a subsequent release",
    ),
];

/// Labels of nodes that have got other names: subdomain and name before, since when, and the same now.
const OLD_LABELS: &[(&str, &str, &str, (&str, &str))] = &[
    ("beta", "arch", "v1.14", ("", "arch")),
    ("beta", "os", "v1.14", ("", "os")),
    ("failure-domain.beta", "region", "v1.17", ("topology", "region")),
    ("failure-domain.beta", "zone", "v1.17", ("topology", "zone")),
    ("beta", "instance-type", "v1.17", ("node", "instance-type")),
];

const CONTAINERS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

/// New pods only: changes come from machines, which do not listen.
pub(super) fn warn(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    about(new)
}

/// Warnings about pods and pod templates.
pub(super) fn about(new: &Value) -> Vec<String> {
    let names = Names::kubernetes();
    let spec = new.at(&["spec"]).unwrap_or(&Value::Null);
    let mut out = node_selector(read::map(spec, &["nodeSelector"]), "spec.nodeSelector");
    affinity(spec, &names, &mut out);
    spread(spec, &names, &mut out);
    annotations(read::map(new, &["metadata", "annotations"]), &names, &mut out);
    for (at, volume) in spec.items(&["volumes"]).iter().enumerate() {
        for (_, why) in OLD_VOLUMES.iter().filter(|(field, _)| read::has(volume, &[field])) {
            out.push(format!("spec.volumes[{at}].{why}"));
        }
    }
    repeated(spec.items(&["hostAliases"]), "ip", "spec.hostAliases", &mut out);
    repeated(spec.items(&["imagePullSecrets"]), "name", "spec.imagePullSecrets", &mut out);
    for (at, secret) in spec.items(&["imagePullSecrets"]).iter().enumerate() {
        if secret.text(&["name"]).is_empty() {
            out.push(format!("spec.imagePullSecrets[{at}].name: invalid empty name \"\""));
        }
    }
    repeated(spec.items(&["volumes"]), "name", "spec.volumes", &mut out);
    fractions(read::map(spec, &["overhead"]), &|| "spec.overhead".to_owned(), &mut out);
    seccomp(new, &names, &mut out);
    for list in CONTAINERS {
        for (at, one) in spec.items(&[list]).iter().enumerate() {
            container(one, &|| format!("spec.{list}[{at}]"), &mut out);
        }
    }
    out
}

/// The warning about a deprecated label.
pub(crate) fn old_label(label: &str, names: &Names) -> Option<String> {
    let (_, _, since, (subdomain, name)) =
        OLD_LABELS.iter().find(|(subdomain, name, ..)| names.is_well_known_under(label, subdomain, name))?;
    let now =
        if subdomain.is_empty() { names.well_known(name) } else { names.well_known_under(subdomain, name) };
    Some(format!("deprecated since {since}; use {now:?} instead"))
}

/// Old labels in the terms of a node selector.
pub(crate) fn node_terms(terms: &[Value], path: &str) -> Vec<String> {
    let names = Names::kubernetes();
    let mut out = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        for (of, one) in term.items(&["matchExpressions"]).iter().enumerate() {
            let key = one.text(&["key"]);
            if let Some(why) = old_label(key, &names) {
                let place = format!("{path}.nodeSelectorTerms[{at}].matchExpressions[{of}].key");
                out.push(format!("{place}: {key} is {why}"));
            }
        }
    }
    out
}

/// Old labels in a selector of nodes.
pub(crate) fn node_selector(selector: &Map, path: &str) -> Vec<String> {
    let names = Names::kubernetes();
    selector.keys().filter_map(|key| Some(format!("{path}[{key}]: {}", old_label(key, &names)?))).collect()
}

fn affinity(spec: &Value, names: &Names, out: &mut Vec<String>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let Some(affinity) = spec.at(&["affinity", "nodeAffinity"]) else { return };
    let path = Path::ROOT.field("spec");
    let path = path.field("affinity");
    let path = path.field("nodeAffinity");
    let terms = affinity.items(&[REQUIRED, "nodeSelectorTerms"]);
    out.extend(node_terms(terms, &path.field(REQUIRED).to_string()));
    let mut expressions = |term: &Value, path: &Path<'_>| {
        let path = path.field("matchExpressions");
        for (at, one) in term.items(&["matchExpressions"]).iter().enumerate() {
            let key = one.text(&["key"]);
            if let Some(why) = old_label(key, names) {
                out.push(format!("{}: {key} is {why}", path.index(at).field("key")));
            }
        }
    };
    let preferred = path.field(PREFERRED);
    for (at, one) in affinity.items(&[PREFERRED]).iter().enumerate() {
        let path = preferred.index(at);
        expressions(one.at(&["preference"]).unwrap_or(&Value::Null), &path.field("preference"));
    }
}

fn spread(spec: &Value, names: &Names, out: &mut Vec<String>) {
    for (at, one) in spec.items(&["topologySpreadConstraints"]).iter().enumerate() {
        let key = one.text(&["topologyKey"]);
        if let Some(why) = old_label(key, names) {
            out.push(format!("spec.topologySpreadConstraints[{at}].topologyKey: {key} is {why}"));
        }
    }
}

fn annotations(annotations: &Map, names: &Names, out: &mut Vec<String>) {
    const OLD: &[(&str, &str, &str)] = &[
        (
            "scheduler.alpha",
            "critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha", "sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha", "unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ];
    for (subdomain, name, why) in OLD {
        if let Some(key) = annotations.keys().find(|key| names.is_well_known_under(key, subdomain, name)) {
            out.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
}

/// Annotations that a field replaces, unless the field is set.
fn seccomp(pod: &Value, names: &Names, out: &mut Vec<String>) {
    const WHY: &str = "deprecated since v1.19, non-functional in a future release; use the \"seccompProfile\" field instead";
    let annotations = read::map(pod, &["metadata", "annotations"]);
    // most pods have none
    if annotations.is_empty() {
        return;
    }
    let mut tell = |key: &str, owner: &[&str], value: &Value| {
        if annotations.get(key).is_some() && !read::has(value, owner) {
            out.push(format!("metadata.annotations[{key}]: {WHY}"));
        }
    };
    let of_pod = names.well_known_under("seccomp.security.alpha", "pod");
    tell(&of_pod, &["spec", "securityContext", "seccompProfile"], pod);
    let prefix = names.well_known_under("container.seccomp.security.alpha", "");
    for one in CONTAINERS.iter().flat_map(|list| pod.items(&["spec", list])) {
        tell(&format!("{prefix}{}", one.text(&["name"])), &["securityContext", "seccompProfile"], one);
    }
}

/// Items of a list with a duplicate key.
fn repeated(items: &[Value], field: &str, path: &str, out: &mut Vec<String>) {
    let mut seen = TextSet::default();
    for (at, item) in items.iter().enumerate() {
        let text = item.text(&[field]);
        if !text.is_empty() && !seen.insert(text) {
            out.push(format!("{path}[{at}].{field}: duplicate {field} {}", quoted(text)));
        }
    }
}

fn container(one: &Value, path: &dyn Fn() -> String, out: &mut Vec<String>) {
    for list in ["limits", "requests"] {
        let path = || format!("{}.resources.{list}", path());
        fractions(read::map(one, &["resources", list]), &path, out);
    }
    let mut seen = TextSet::default();
    for (at, variable) in one.items(&["env"]).iter().enumerate() {
        let name = variable.text(&["name"]);
        if !name.is_empty() && !seen.insert(name) {
            out.push(format!("{}.env[{at}].name: duplicate name {}", path(), quoted(name)));
        }
    }
}

/// There are no parts of bytes.
fn fractions(resources: &Map, path: &dyn Fn() -> String, out: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        if let Some(value) = resources.get(name).filter(|value| !quantities::parse(value).is_whole()) {
            let text = read::text(value);
            out.push(format!(
                "{}[{name}]: fractional byte value {text:?} is invalid, must be an integer",
                path()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn unwise_things_are_reported() {
        let check = |spec: &str, expected: &[&str]| {
            assert_eq!(warn(&json(&format!(r#"{{"spec":{spec}}}"#)), None), expected);
        };
        check(r#"{"containers":[{"env":[{"name":"A"},{"name":"B"}]}]}"#, &[]);
        check(
            r#"{"nodeSelector":{"beta.kubernetes.io/arch":"x"}}"#,
            &[
                r#"spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead"#,
            ],
        );
        check(
            r#"{"imagePullSecrets":[{"name":"a"},{"name":"a"},{}]}"#,
            &[
                r#"spec.imagePullSecrets[1].name: duplicate name "a""#,
                r#"spec.imagePullSecrets[2].name: invalid empty name """#,
            ],
        );
        check(
            r#"{"volumes":[{"scaleIO":{}}]}"#,
            &["spec.volumes[0].scaleIO: deprecated in v1.16, non-functional in v1.22+"],
        );
        check(
            r#"{"containers":[{"resources":{"limits":{"memory":"1500m"}}}]}"#,
            &[
                r#"spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer"#,
            ],
        );
        check(
            r#"{"topologySpreadConstraints":[{"topologyKey":"failure-domain.beta.kubernetes.io/zone"}]}"#,
            &[
                r#"spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
            ],
        );
    }
}
