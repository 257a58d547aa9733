//! From text to a tree of given values.

use super::{fields, object_text};
use names::Names;
use schema::{Value, decode};

/// The scheme of these kinds, as upstream's errors name it.
const SCHEME: &str = "pkg/kubelet/apis/config/scheme/scheme.go:33";
/// Kinds of the same group that are no configuration of an agent.
const OTHER_KINDS: [&str; 2] = ["SerializedNodeConfigSource", "CredentialProviderConfig"];

/// Decodes a file. Unknown and duplicate fields are ignored.
pub fn decode(text: &[u8], names: &Names) -> Result<Value, String> {
    let value = object_text::read(text).map_err(|why| format!("failed to decode: {why}"))?;
    check_kind(&value, names)?;
    let value = with_upstream_names(value);
    let has_empty = |field: &str| match value.at(&[field]) {
        Some(Value::List(list)) => list.is_empty(),
        Some(Value::Map(map)) => map.iter().next().is_none(),
        _ => false,
    };
    // the normal form has no empty lists and maps, but these differ from absent ones
    let empty: Vec<&'static str> =
        ["enforceNodeAllocatable", "evictionHard"].into_iter().filter(|field| has_empty(field)).collect();
    let decoded = decode::tree(value, fields::table())
        .map_err(|why| format!("failed to decode: {}", go_text(&why.to_string())))?;
    let mut tree = decoded.value;
    check_levels(&tree).map_err(|why| format!("failed to decode: {why}"))?;
    for field in empty {
        let nothing = if field == "evictionHard" { Value::map() } else { Value::List(Vec::new()) };
        tree.make_map().insert(field, nothing);
    }
    Ok(tree)
}

/// Fields of the specification's spelling, and of upstream's.
const NEUTRAL_NAMES: [(&str, &str); 5] = [
    ("clusterAPIQPS", "kubeAPIQPS"),
    ("clusterAPIBurst", "kubeAPIBurst"),
    ("clusterReserved", "kubeReserved"),
    ("clusterReservedCgroup", "kubeReservedCgroup"),
    ("nodeagentCgroups", "kubeletCgroups"),
];

/// Values of the specification's spelling, and of upstream's, by field.
const NEUTRAL_VALUES: [(&str, &str, &str); 2] =
    [("cpuManagerPolicy", "None", "none"), ("memoryManagerPolicy", "none", "None")];

/// Renames the fields that the specification spells without the product's prefix, and values that it spells
/// in its own way.
fn with_upstream_names(mut value: Value) -> Value {
    if value.text(&["kind"]) != "NodeAgentConfiguration" {
        return value;
    }
    for (neutral, name) in NEUTRAL_NAMES {
        if let Some(given) = value.at(&[neutral]).cloned()
            && value.at(&[name]).is_none()
        {
            value.set(&[name], given);
        }
    }
    for (field, neutral, text) in NEUTRAL_VALUES {
        if value.text(&[field]) == neutral {
            value.set(&[field], text);
        }
    }
    value
}

/// Types of the log's options that have a name of their own in Go: the end of an error, and its other form.
const GO_NAMES: [(&str, &str, &str); 3] = [
    (".verbosity", "int64", "v1.VerbosityLevel"),
    (".flushFrequency", "int64", "time.Duration"),
    (".vmodule", "[]v1.VModuleItem", "v1.VModuleConfiguration"),
];

fn go_text(text: &str) -> String {
    let named = GO_NAMES.iter().find_map(|(field, ty, name)| {
        Some(format!("{}{field} of type {name}", text.strip_suffix(&format!("{field} of type {ty}"))?))
    });
    named.unwrap_or_else(|| text.to_owned())
}

/// Refuses levels of the log that do not fit in 32 bits without a sign.
fn check_levels(tree: &Value) -> Result<(), String> {
    let level = |value: &Value, place: &str| {
        let number = value.at(&["verbosity"]).and_then(Value::as_int).unwrap_or(0);
        u32::try_from(number).map(drop).map_err(|_| {
            format!("json: cannot unmarshal number {number} into Go struct field {place}.verbosity of type v1.VerbosityLevel")
        })
    };
    if let Some(logging) = tree.at(&["logging"]) {
        level(logging, "LoggingConfiguration.logging")?;
    }
    tree.items(&["logging", "vmodule"]).iter().try_for_each(|it| level(it, "VModuleItem.logging.vmodule"))
}

fn check_kind(value: &Value, names: &Names) -> Result<(), String> {
    let (kind, version) = (value.text(&["kind"]), value.text(&["apiVersion"]));
    let group = names.group(&format!("{}.config", names.agent));
    let neutral = names.group("nodeagent.config");
    let is_own = version.strip_suffix("/v1beta1").is_some_and(|it| it == group || it == neutral);
    match kind {
        "KubeletConfiguration" | "NodeAgentConfiguration" if is_own => Ok(()),
        _ if is_own && OTHER_KINDS.contains(&kind) => Err(format!(
            "failed to cast object to KubeletConfiguration, unexpected type: {version}, Kind={kind}"
        )),
        _ => Err(format!(
            "failed to decode: no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;

    #[test]
    fn both_spellings_of_the_configuration_are_read() {
        let names = Names::kubernetes();
        let read = |kind: &str, group: &str| {
            let group = names.group(group);
            let text = format!(
                "apiVersion: {group}/v1beta1\nkind: {kind}\nclusterReserved: {{cpu: 100m}}\nclusterAPIQPS: 7\nmaxPods: 9\n"
            );
            let tree = decode(text.as_bytes(), &names).unwrap();
            let read = Configuration::with_defaults(tree);
            (read.map("kubeReserved").len(), read.int("kubeAPIQPS"), read.int("maxPods"))
        };
        assert_eq!(read("NodeAgentConfiguration", "nodeagent.config"), (1, 7, 9));
        // upstream does not know these fields
        assert_eq!(read("KubeletConfiguration", "kubelet.config"), (0, 5, 9));
    }

    #[test]
    fn a_configuration_that_was_written_is_read_back() {
        let names = Names::kubernetes();
        let mut tree = Value::map();
        tree.set(&["maxPods"], 7);
        let configuration = Configuration::with_defaults(tree);
        let text = configuration.to_yaml(&names);
        let read = Configuration::with_defaults(decode(text.as_bytes(), &names).unwrap());
        assert_eq!(read.map("evictionHard"), configuration.map("evictionHard"));
        assert_eq!(read.texts("enforceNodeAllocatable"), ["pods"]);
        assert_eq!((read.int("maxPods"), read.int("oomScoreAdj")), (7, -999));
    }
}
