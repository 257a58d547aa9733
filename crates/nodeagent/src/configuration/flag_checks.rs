//! Checks of flags that are no fields: labels that an agent may give its own node, and the runtime.

use super::error::StartError;
use super::flags::Flags;
use super::gates::Gates;
use names::Names;
use schema::format::{label_value, qualified_name};
use std::collections::BTreeMap;

/// Names below the well-known domain that are allowed.
const ALLOWED: &[(&str, &str)] = &[
    ("beta.", "arch"),
    ("beta.", "instance-type"),
    ("beta.", "os"),
    ("failure-domain.beta.", "region"),
    ("failure-domain.beta.", "zone"),
    ("", "arch"),
    ("", "hostname"),
    ("", "os"),
    ("node.", "instance-type"),
    ("topology.", "region"),
    ("topology.", "zone"),
];

pub const SECCOMP_FLAG: &str =
    "the SeccompDefault feature gate must be enabled in order to use the --seccomp-default flag";

/// Checks the flags that are no fields.
pub fn validate(flags: &Flags, gates: &Gates, names: &Names) -> Result<(), StartError> {
    let domain = &*names.well_known_domain;
    let allowed: Vec<String> = ALLOWED.iter().map(|(sub, name)| format!("{sub}{domain}/{name}")).collect();
    let prefixes = [format!("{}.{domain}", names.agent), format!("node.{domain}")];
    let is_unknown = |label: &String| {
        let Some((namespace, _)) = label.split_once('/') else { return false };
        let is_below = |domain: &str| {
            namespace == domain || namespace.strip_suffix(domain).is_some_and(|it| it.ends_with('.'))
        };
        let is_reserved = is_below(domain) || is_below(&names.api_domain);
        let has_prefix = prefixes.iter().any(|it| {
            namespace == it || namespace.strip_suffix(it.as_str()).is_some_and(|it| it.ends_with('.'))
        });
        is_reserved && !has_prefix && !allowed.contains(label)
    };
    let unknown: Vec<String> = flags.node_labels().into_keys().filter(is_unknown).collect();
    let invalid = |why: String| Err(StartError::new(format!("failed to validate kubelet flags: {why}")));
    if !unknown.is_empty() {
        return invalid(format!(
            "unknown '{domain}' or '{}' labels specified with --node-labels: [{}]\n--node-labels in the '{domain}' \
             namespace must begin with an allowed prefix ({}) or be in the specifically allowed set ({})",
            names.api_domain,
            unknown.join(" "),
            prefixes.join(", "),
            allowed.join(", ")
        ));
    }
    let wrong = wrong_labels(&flags.node_labels());
    if !wrong.is_empty() {
        return invalid(format!("invalid node labels: {}", wrong.join("; ")));
    }
    if flags.turns_on("seccompDefault") && !gates.is_open("SeccompDefault") {
        return invalid(SECCOMP_FLAG.to_owned());
    }
    let runtime = flags.text("container-runtime");
    if runtime != "remote" {
        return invalid(format!(
            "unsupported CRI runtime: {runtime:?}, only \"remote\" is currently supported"
        ));
    }
    // without the flag, the agent looks for a runtime at the usual places
    if flags.is_given("container-runtime-endpoint") && flags.text("container-runtime-endpoint").is_empty() {
        return invalid(
            "the container runtime endpoint address was not specified or empty, use --container-runtime-endpoint to set"
                .to_owned(),
        );
    }
    Ok(())
}

/// The keys and values that are no label's, each with the rules that it breaks.
fn wrong_labels(labels: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, value) in labels {
        for (text, errors) in [(key, qualified_name(key)), (value, label_value(value))] {
            if !errors.is_empty() {
                wrong.entry(text).or_default().extend(errors);
            }
        }
    }
    wrong.iter().map(|(text, errors)| format!("'{text}' - {}", errors.join(", "))).collect()
}
