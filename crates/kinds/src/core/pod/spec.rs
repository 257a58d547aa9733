//! Validation of a pod spec, in the order of the reported problems.

use super::container::{self, Pod};
use super::gated::SearchPathLimits;
use super::{host_process, seccomp, security, volume};
use crate::check::{self, Problems};
use crate::{node_selection as scheduling, quantities, read};
use names::Names;
use schema::problem::{Problem, quoted};
use schema::{Map, Path, Value};
use std::collections::HashSet;

/// Annotations that mean something.
pub(super) fn annotations(pod: &Value, path: &Path<'_>, names: &Names, out: &mut Problems) {
    let annotations = read::map(pod, &["metadata", "annotations"]);
    let mirror = names.well_known("config.mirror");
    if let Some(value) = annotations.get(&mirror)
        && pod.text(&["spec", "nodeName"]).is_empty()
    {
        const WHY: &str = "must set spec.nodeName if mirror pod annotation is set";
        out.push(Problem::invalid(&path.key(&mirror), value, WHY));
    }
    let cost = names.well_known_under("controller", "pod-deletion-cost");
    if let Some(value) = annotations.get(&cost)
        && !is_cost(read::text(value))
    {
        out.push(Problem::invalid(&path.key(&cost), value, "must be a 32bit integer"));
    }
    seccomp::annotations(annotations, path, names, out);
    let profiles = app_armor_prefix(names);
    let has_container = |name: &str| {
        let lists = ["containers", "initContainers", "ephemeralContainers"];
        lists.iter().flat_map(|list| pod.items(&["spec", list])).any(|it| it.text(&["name"]) == name)
    };
    for (key, value) in annotations.iter() {
        let Some(container) = key.strip_prefix(&*profiles) else { continue };
        if !has_container(container) {
            out.push(Problem::invalid_text(&path.key(key), container, "container not found"));
        }
        let profile = read::text(value);
        let fits =
            matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with("localhost/");
        if !fits {
            out.push(Problem::invalid(
                &path.key(key),
                value,
                &format!("invalid AppArmor profile name: {}", quoted(profile)),
            ));
        }
    }
}

/// A number without decoration: `+1` and `01` are typing errors.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" || !digits.starts_with('0');
    plain && !text.starts_with('+') && text.parse::<i32>().is_ok()
}

/// The prefix of the annotations with the profile of a container.
pub(super) fn app_armor_prefix(names: &Names) -> String {
    names.well_known_under("container.apparmor.security.beta", "")
}

/// `pod_name` is empty where the pod does not exist yet.
pub(super) fn validate(
    spec: &Value,
    pod_name: &str,
    path: &Path<'_>,
    allow_privileged: bool,
    out: &mut Problems,
) {
    let volumes = volume::volumes(spec.items(&["volumes"]), pod_name, &path.field("volumes"), out);
    let of_pod = Pod { volumes, allow_privileged };
    let (regular, init) = (spec.items(&["containers"]), spec.items(&["initContainers"]));
    container::regular(regular, &of_pod, &path.field("containers"), out);
    container::init(init, regular, &of_pod, &path.field("initContainers"), out);
    let ephemeral = spec.items(&["ephemeralContainers"]);
    container::ephemeral(ephemeral, [regular, init], &of_pod, &path.field("ephemeralContainers"), out);
    check::one_of(
        spec.text(&["restartPolicy"]),
        &["Always", "OnFailure", "Never"],
        &path.field("restartPolicy"),
        out,
    );
    const DNS: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check::one_of(spec.text(&["dnsPolicy"]), DNS, &path.field("dnsPolicy"), out);
    if let Some(selector) = spec.at(&["nodeSelector"]) {
        check::labels(selector, &path.field("nodeSelector"), out);
    }
    security::of_pod(spec, path, out);
    if let Some(affinity) = spec.at(&["affinity"]) {
        scheduling::affinity(affinity, &path.field("affinity"), out);
    }
    dns_config(spec, &path.field("dnsConfig"), out);
    let gates = path.field("readinessGates");
    for (at, gate) in spec.items(&["readinessGates"]).iter().enumerate() {
        check::qualified_name(gate.text(&["conditionType"]), &gates.index(at).field("conditionType"), out);
    }
    scheduling_gates(spec.items(&["schedulingGates"]), &path.field("schedulingGates"), out);
    let constraints = spec.items(&["topologySpreadConstraints"]);
    scheduling::topology_spread(constraints, &path.field("topologySpreadConstraints"), out);
    host_process::validate(spec, path, allow_privileged, out);
    names_and_numbers(spec, path, out);
    scheduling::tolerations(spec.items(&["tolerations"]), &path.field("tolerations"), out);
    host_aliases(spec.items(&["hostAliases"]), &path.field("hostAliases"), out);
    let class = spec.text(&["priorityClassName"]);
    if !class.is_empty() {
        check::subdomain(class, &path.field("priorityClassName"), out);
    }
    if let Some(class) = read::opt_text(spec, &["runtimeClassName"]) {
        check::subdomain(class, &path.field("runtimeClassName"), out);
    }
    if let Some(policy) = read::opt_text(spec, &["preemptionPolicy"]) {
        check::one_of(policy, &["PreemptLowerPriority", "Never"], &path.field("preemptionPolicy"), out);
    }
    quantities::requirements(read::map(spec, &["overhead"]), &Map::new(), &path.field("overhead"), out);
    security::operating_system(spec, path, out);
}

fn scheduling_gates(gates: &[Value], path: &Path<'_>, out: &mut Problems) {
    let mut seen = HashSet::new();
    for (at, gate) in gates.iter().enumerate() {
        let name = gate.text(&["name"]);
        if name.is_empty() {
            out.push(Problem::required(&path.index(at), "must not be empty"));
        }
        if !seen.insert(name) {
            out.push(check::duplicate_text(&path.index(at), name));
        }
    }
}

/// A name that may be absent.
pub(super) fn subdomain(spec: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    let name = spec.text(&[field]);
    if !name.is_empty() {
        check::subdomain(name, &path.field(field), out);
    }
}

fn names_and_numbers(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    subdomain(spec, "serviceAccountName", path, out);
    subdomain(spec, "nodeName", path, out);
    if let Some(seconds) = read::opt_int(spec, &["activeDeadlineSeconds"]) {
        check::between(seconds, 1, i64::from(i32::MAX), &path.field("activeDeadlineSeconds"), out);
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(&[field]);
        if !name.is_empty() {
            check::label(name, &path.field(field), out);
        }
    }
}

fn host_aliases(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    for alias in items {
        check::ip(alias.text(&["ip"]), &path.field("ip"), out);
        for name in alias.items(&["hostnames"]) {
            check::subdomain(read::text(name), &path.field("hostnames"), out);
        }
    }
}

fn dns_config(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    const MOST_SERVERS: usize = 3;
    let config = spec.at(&["dnsConfig"]).filter(|it| !it.is_null());
    let own = spec.text(&["dnsPolicy"]) == "None";
    let Some(config) = config else {
        if own {
            out.push(Problem::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
        }
        return;
    };
    let servers = config.items(&["nameservers"]);
    let servers_path = path.field("nameservers");
    if own && servers.is_empty() {
        const WHY: &str = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        out.push(Problem::required(&servers_path, WHY));
        return;
    }
    if servers.len() > MOST_SERVERS {
        let why = format!("must not have more than {MOST_SERVERS} nameservers");
        out.push(check::invalid_formatted(&servers_path, &check::format_texts(servers), &why));
    }
    for (at, server) in servers.iter().enumerate() {
        check::ip(read::text(server), &servers_path.index(at), out);
    }
    let searches = config.items(&["searches"]);
    let searches_path = path.field("searches");
    SearchPathLimits::MANY.check(searches, &searches_path, out);
    for (at, search) in searches.iter().enumerate() {
        let search = read::text(search);
        check::subdomain(search.strip_suffix('.').unwrap_or(search), &searches_path.index(at), out);
    }
    let options = path.field("options");
    for (at, option) in config.items(&["options"]).iter().enumerate() {
        if option.text(&["name"]).is_empty() {
            out.push(Problem::required(&options.index(at), "must not be empty"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    fn check(fields: &str, expected: &[&str]) {
        let mut pod = json(
            r#"{"spec":{"restartPolicy":"Always","dnsPolicy":"Default","containers":[
                {"name":"c","image":"i","terminationMessagePolicy":"File","imagePullPolicy":"Always"}]}}"#,
        );
        let Value::Map(fields) = json(fields) else { panic!("fields of a spec") };
        for (field, value) in fields {
            pod.make_map().entry("spec").make_map().insert(field, value);
        }
        let mut out = Problems::new();
        let spec = pod.at(&["spec"]).expect("just set");
        validate(spec, "", &Path::ROOT.field("spec"), false, &mut out);
        assert_eq!(problems(&out), expected);
    }

    #[test]
    fn single_fields_are_checked() {
        check("{}", &[]);
        check(
            r#"{"restartPolicy":"Bogus"}"#,
            &[
                r#"spec.restartPolicy: Unsupported value: "Bogus": supported values: "Always", "OnFailure", "Never""#,
            ],
        );
        check(
            r#"{"activeDeadlineSeconds":0}"#,
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        );
        check(
            r#"{"hostAliases":[{"ip":"x"}]}"#,
            &[r#"spec.hostAliases.ip: Invalid value: "x": must be valid IP address"#],
        );
    }

    #[test]
    fn own_name_resolution_needs_servers() {
        check(
            r#"{"dnsPolicy":"None"}"#,
            &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        );
        check(
            r#"{"dnsPolicy":"None","dnsConfig":{}}"#,
            &[
                "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
            ],
        );
        check(
            r#"{"dnsConfig":{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"],"searches":["a.b."],"options":[{}]}}"#,
            &[
                r#"spec.dnsConfig.nameservers: Invalid value: []string{"1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"}: must not have more than 3 nameservers"#,
                "spec.dnsConfig.options[0]: Required value: must not be empty",
            ],
        );
    }

    #[test]
    fn annotations_that_mean_something_are_checked() {
        let check = |annotations_json: &str, expected: &[&str]| {
            let pod = json(&format!(
                r#"{{"metadata":{{"annotations":{annotations_json}}},"spec":{{"containers":[{{"name":"c"}}]}}}}"#
            ));
            let mut out = Problems::new();
            let path = Path::ROOT.field("metadata");
            annotations(&pod, &path.field("annotations"), &Names::kubernetes(), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"controller.kubernetes.io/pod-deletion-cost":"-100"}"#, &[]);
        check(
            r#"{"controller.kubernetes.io/pod-deletion-cost":"+1"}"#,
            &[
                r#"metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer"#,
            ],
        );
        check(r#"{"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}"#, &[]);
        check(
            r#"{"container.apparmor.security.beta.kubernetes.io/x":"unconfined"}"#,
            &[
                r#"metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container not found"#,
            ],
        );
    }
}
