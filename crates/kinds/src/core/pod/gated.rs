//! Validation of pod fields that are forbidden while their feature gate is off.
//!
//! Nothing is checked while the gates are open. An object that already has such a field may keep it.

use crate::check::{self, Problems};
use crate::gates::{self, Gate};
use crate::read;
use rest::hooks::Context;
use schema::{Path, Value};

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The most search paths, and their longest total length.
pub(super) struct SearchPathLimits {
    pub most: usize,
    pub characters: usize,
}

impl SearchPathLimits {
    /// The limits that every resolver supports.
    const FEW: SearchPathLimits = SearchPathLimits { most: 6, characters: 256 };
    pub const MANY: SearchPathLimits = SearchPathLimits { most: 32, characters: 2048 };

    pub fn check(&self, searches: &[Value], path: &Path<'_>, out: &mut Problems) {
        let mut refuse = |why: String| {
            let why = format!("must not have more than {why}");
            out.push(check::invalid_formatted(path, &check::format_texts(searches), &why));
        };
        if searches.len() > self.most {
            refuse(format!("{} search paths", self.most));
        }
        let length = searches.iter().map(|it| read::text(it).len() + 1).sum::<usize>().saturating_sub(1);
        if length > self.characters {
            refuse(format!("{} characters (including spaces) in the search list", self.characters));
        }
    }
}

/// Checks the replacement of `old`, a pod or a pod template; gated fields that `old` has stay allowed.
pub(crate) fn keeping(
    old: Option<&Value>,
    context: &Context<'_>,
    check: impl FnOnce(&Context<'_>) -> Problems,
) -> Problems {
    let in_use = |gate: Gate| {
        let mut problems = Problems::new();
        let spec = old.and_then(|old| old.at(&["spec"])).unwrap_or(&Value::Null);
        refused(gate, spec, &Path::ROOT, &mut problems);
        !problems.is_empty()
    };
    let kept: Vec<Gate> = GATES.into_iter().filter(|gate| !gate.is_open(context) && in_use(*gate)).collect();
    if kept.is_empty() {
        return check(context);
    }
    let closed = context.closed.iter().filter(|name| !kept.iter().any(|gate| gate.name == **name));
    let closed: Vec<String> = closed.cloned().collect();
    check(&Context { closed: &closed, ..*context })
}

const GATES: [Gate; 2] = [gates::HUGE_PAGES, gates::LONG_SEARCHES];

/// Checks the spec of a pod for fields of closed gates.
pub(super) fn validate(spec: &Value, path: &Path<'_>, context: &Context<'_>, out: &mut Problems) {
    for gate in GATES.into_iter().filter(|gate| !gate.is_open(context)) {
        refused(gate, spec, path, out);
    }
}

fn refused(gate: Gate, spec: &Value, path: &Path<'_>, out: &mut Problems) {
    if gate == gates::LONG_SEARCHES {
        let path = path.field("dnsConfig");
        SearchPathLimits::FEW.check(spec.items(&["dnsConfig", "searches"]), &path.field("searches"), out);
        return;
    }
    let volumes = path.field("volumes");
    for (at, volume) in spec.items(&["volumes"]).iter().enumerate() {
        files(volume, &volumes.index(at), out);
    }
    for list in CONTAINERS {
        let containers = path.field(list);
        for (at, one) in spec.items(&[list]).iter().enumerate() {
            let path = containers.index(at);
            let path = path.field("env");
            for (at, variable) in one.items(&["env"]).iter().enumerate() {
                if let Some(from) = variable.at(&["valueFrom"]) {
                    huge_pages(from, &path.index(at).field("valueFrom"), out);
                }
            }
        }
    }
}

/// Reports do not name the file.
fn files(volume: &Value, path: &Path<'_>, out: &mut Problems) {
    for file in volume.items(&["downwardAPI", "items"]) {
        huge_pages(file, &path.field("downwardAPI"), out);
    }
    let path = path.field("projected");
    for source in volume.items(&["projected", "sources"]) {
        for file in source.items(&["downwardAPI", "items"]) {
            huge_pages(file, &path.field("downwardAPI"), out);
        }
    }
}

fn huge_pages(holder: &Value, path: &Path<'_>, out: &mut Problems) {
    let resource = holder.text(&["resourceFieldRef", "resource"]);
    if super::field_refs::is_huge(resource) {
        let path = path.field("resourceFieldRef");
        out.push(check::unsupported(&path.field("resource"), resource, super::field_refs::SHOWN_RESOURCES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    fn check(gate: Gate, old: Option<&str>, pod: &str, expected: &[&str]) {
        let closed = [gate.name.to_owned()];
        let (pod, old) = (json(pod), old.map(json));
        let context = Context { closed: &closed, ..context() };
        let found = keeping(old.as_ref(), &context, |context| {
            let mut out = Problems::new();
            validate(pod.at(&["spec"]).unwrap(), &Path::ROOT.field("spec"), context, &mut out);
            out
        });
        assert_eq!(problems(&found), expected);
    }

    #[test]
    fn search_paths_are_limited_unless_in_use() {
        const MANY: &str = r#"{"spec":{"dnsConfig":{"searches":["a","b","c","d","e","f","g"]}}}"#;
        const WHY: &str = r#"spec.dnsConfig.searches: Invalid value: []string{"a", "b", "c", "d", "e", "f", "g"}: must not have more than 6 search paths"#;
        check(gates::LONG_SEARCHES, None, MANY, &[WHY]);
        check(gates::LONG_SEARCHES, Some(r#"{"spec":{"dnsConfig":{"searches":["a"]}}}"#), MANY, &[WHY]);
        check(gates::LONG_SEARCHES, Some(MANY), MANY, &[]);
        check(gates::HUGE_PAGES, None, MANY, &[]);
    }

    #[test]
    fn huge_page_references_are_rejected_unless_in_use() {
        const SHOWN: &str = r#"{"spec":{
            "containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"resource":"limits.hugepages-2Mi"}}}]},
                          {"env":[{"valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]}],
            "volumes":[{"projected":{"sources":[{"downwardAPI":{"items":[
                {"resourceFieldRef":{"resource":"requests.hugepages-1Gi"}}]}}]}}]}}"#;
        const KNOWN: &str = r#"supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#;
        let volume = "spec.volumes[0].projected.downwardAPI.resourceFieldRef.resource";
        let variable = "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource";
        let expected = [
            format!(r#"{volume}: Unsupported value: "requests.hugepages-1Gi": {KNOWN}"#),
            format!(r#"{variable}: Unsupported value: "limits.hugepages-2Mi": {KNOWN}"#),
        ];
        check(gates::HUGE_PAGES, None, SHOWN, &expected.each_ref().map(String::as_str));
        check(gates::HUGE_PAGES, Some(SHOWN), SHOWN, &[]);
    }
}
