//! Upstream's command line: its flags, their types, and the fields that they override.

use super::error::StartError;
use super::fields::{self, FieldRow};
use schema::Value;
use std::collections::BTreeMap;

/// Flags that are no fields of the configuration: name, type, default and effect; a dash is no effect.
const OWN: &[(&str, &str, &str, &str)] = &[
    (
        "bootstrap-kubeconfig",
        "string",
        "",
        "Credentials with which a node without a kubeconfig requests its first certificate",
    ),
    ("cert-dir", "string", "/var/lib/kubelet/pki", "Where the agent keeps its certificates"),
    ("cloud-config", "string", "", "-"),
    (
        "cloud-provider",
        "string",
        "",
        "With `external` the node has a taint until a cloud controller has initialized it",
    ),
    ("config", "string", "", "The file of the configuration"),
    ("container-runtime", "string", "remote", "-"),
    (
        "container-runtime-endpoint",
        "string",
        "",
        "The socket of the runtime, `unix:///run/containerd/containerd.sock`; without it the usual ones are tried",
    ),
    (
        "exit-on-lock-contention",
        "bool",
        "false",
        "Whether the agent ends when another process opens its lock file",
    ),
    (
        "experimental-allocatable-ignore-eviction",
        "bool",
        "false",
        "Whether thresholds of eviction are not held back from pods",
    ),
    ("experimental-mounter-path", "string", "", "-"),
    ("hostname-override", "string", "", "The name of the node instead of the host name"),
    (
        "image-credential-provider-bin-dir",
        "string",
        "",
        "The directory of the programs that know credentials of registries",
    ),
    ("image-credential-provider-config", "string", "", "The file that says which programs these are"),
    ("image-service-endpoint", "string", "", "The socket of the image service, if it is another one"),
    (
        "keep-terminated-pod-volumes",
        "bool",
        "false",
        "Whether a pod that has ended keeps its volumes until it is deleted",
    ),
    ("kubeconfig", "string", "", "How the API server is reached; without it only static pods run"),
    ("lock-file", "string", "", "A file that one agent at a time locks"),
    (
        "master-service-namespace",
        "string",
        "default",
        "The namespace of the service of the API server, which pods get as variables",
    ),
    (
        "maximum-dead-containers",
        "int32",
        "-1",
        "The most ended containers of the node; the newest of each name stays",
    ),
    (
        "maximum-dead-containers-per-container",
        "int32",
        "1",
        "The most ended containers of each name in a pod; the newest stays",
    ),
    (
        "minimum-container-ttl-duration",
        "duration",
        "0s",
        "The least age at which an ended container is removed",
    ),
    ("node-ip", "string", "", "Addresses of the node; with a comma one of each family"),
    ("node-labels", "map", "", "Labels of the node, key=value, separated by commas"),
    (
        "pod-infra-container-image",
        "string",
        names::node::SANDBOX_IMAGE,
        "The image of sandboxes, which is not removed under disk pressure",
    ),
    ("register-schedulable", "bool", "true", "Whether the node is registered as schedulable"),
    ("root-dir", "string", "/var/lib/kubelet", "Where the agent keeps pods and volumes"),
    ("runtime-cgroups", "string", "", "-"),
    // flags of upstream's metrics library, without effect
    ("application-metrics-count-limit", "int32", "100", "-"),
    ("azure-container-registry-config", "string", "", "-"),
    (
        "boot-id-file",
        "string",
        "/proc/sys/kernel/random/boot_id",
        "Files that identify the start of the machine; the first one counts",
    ),
    ("container-hints", "string", "/etc/cadvisor/container_hints.json", "-"),
    ("containerd", "string", "/run/containerd/containerd.sock", "-"),
    ("containerd-namespace", "string", names::node::CONTAINERD_NAMESPACE, "-"),
    ("enable-load-reader", "bool", "false", "-"),
    ("event-storage-age-limit", "string", "default=24h", "-"),
    ("event-storage-event-limit", "string", "default=100000", "-"),
    ("global-housekeeping-interval", "duration", "1m0s", "-"),
    ("housekeeping-interval", "duration", "1s", "-"),
    ("log-cadvisor-usage", "bool", "false", "-"),
    ("log-json-info-buffer-size", "string", "0", "-"),
    ("log-json-split-stream", "bool", "false", "-"),
    (
        "machine-id-file",
        "string",
        "/etc/machine-id,/var/lib/dbus/machine-id",
        "Files that identify the machine; the first one counts",
    ),
    ("storage-driver-buffer-duration", "duration", "1m0s", "-"),
    ("storage-driver-db", "string", "cadvisor", "-"),
    ("storage-driver-host", "string", "localhost:8086", "-"),
    ("storage-driver-password", "string", "root", "-"),
    ("storage-driver-secure", "bool", "false", "-"),
    ("storage-driver-table", "string", "stats", "-"),
    ("storage-driver-user", "string", "root", "-"),
];

/// A command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    own: BTreeMap<&'static str, String>,
    /// Values of fields, in the order of the command line.
    overrides: Vec<(FieldRow, Value)>,
    pub asks_for_help: bool,
    pub asks_for_version: bool,
    /// Whether the configuration is printed and nothing runs.
    pub asks_for_config: bool,
}

/// A flag by name.
enum FlagTarget {
    Own(&'static str, &'static str),
    Field(FieldRow),
}

impl FlagTarget {
    fn ty(&self) -> &'static str {
        match self {
            FlagTarget::Own(_, ty) => ty,
            FlagTarget::Field(row) => row.base(),
        }
    }
}

fn find(name: &str) -> Option<FlagTarget> {
    let own = OWN.iter().find(|row| row.0 == name).map(|(own, ty, ..)| FlagTarget::Own(own, ty));
    own.or_else(|| fields::rows().find(|row| row.flag == Some(name)).map(FlagTarget::Field))
}

impl Flags {
    /// Reads the arguments after the name of the program.
    pub fn parse(arguments: &[String]) -> Result<Self, StartError> {
        let wrong = |why: String| StartError::new(format!("failed to parse kubelet flag: {why}"));
        let mut flags = Flags::default();
        let mut words = arguments.iter();
        let mut positional = None;
        while let Some(word) = words.next() {
            let Some(rest) =
                word.strip_prefix("--").or_else(|| word.strip_prefix('-').filter(|it| !it.is_empty()))
            else {
                positional.get_or_insert(word);
                continue;
            };
            if rest.is_empty() {
                positional = positional.or_else(|| words.next());
                break;
            }
            let (name, given) =
                rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
            let name = name.replace('_', "-");
            match (&*name, word.starts_with("--")) {
                ("help", true) | ("h", false) => flags.asks_for_help = true,
                ("version", true) => flags.asks_for_version = given != Some("false"),
                ("write-config", true) => flags.asks_for_config = given != Some("false"),
                (_, false) if !name.starts_with('v') => {
                    return Err(wrong(format!(
                        "unknown shorthand flag: {:?} in {word}",
                        name.chars().next().unwrap_or('-')
                    )));
                }
                _ => {
                    let known = find(&name).ok_or_else(|| wrong(format!("unknown flag: --{name}")))?;
                    let value = match given {
                        Some(value) => value.to_owned(),
                        None if known.ty() == "bool" => "true".to_owned(),
                        None => words
                            .next()
                            .cloned()
                            .ok_or_else(|| wrong(format!("flag needs an argument: --{name}")))?,
                    };
                    flags.set(known, &name, value).map_err(wrong)?;
                }
            }
        }
        match positional {
            Some(word) => Err(StartError::new(format!("unknown command {word}"))),
            None => Ok(flags),
        }
    }

    fn set(&mut self, known: FlagTarget, name: &str, text: String) -> Result<(), String> {
        let shown = if name == "v" { "-v, --v".to_owned() } else { format!("--{name}") };
        let value = parse_value(known.ty(), &text)
            .map_err(|why| format!("invalid argument {text:?} for {shown:?} flag: {why}"))?;
        match known {
            FlagTarget::Own("node-labels", _) => {
                // a flag that is repeated adds labels
                let before = self.own.remove("node-labels").filter(|before| !before.is_empty());
                let whole = before.map_or(text.clone(), |before| format!("{before},{text}"));
                self.own.insert("node-labels", whole);
            }
            FlagTarget::Own(name, _) => drop(self.own.insert(name, text)),
            FlagTarget::Field(row) => self.overrides.push((row, value)),
        }
        Ok(())
    }

    /// The value of a flag that is no field, or its default.
    pub fn text(&self, name: &'static str) -> &str {
        let default = || OWN.iter().find(|row| row.0 == name).map_or("", |row| row.2);
        self.own.get(name).map_or_else(default, String::as_str)
    }

    /// The value of a flag that was given and is not empty.
    pub fn given(&self, name: &'static str) -> Option<&str> {
        self.own.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub fn is_given(&self, name: &'static str) -> bool {
        self.own.contains_key(name)
    }

    /// Labels for the node.
    pub fn node_labels(&self) -> BTreeMap<String, String> {
        let pairs = self.text("node-labels").split(',').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (key.trim().to_owned(), value.trim().to_owned())
            })
            .collect()
    }

    /// Overrides the values of a file. Feature gates are merged.
    pub fn apply_to(&self, tree: &mut Value) {
        for (row, value) in &self.overrides {
            match (row.base(), value) {
                ("boolmap", Value::Map(gates)) => {
                    for (name, is_open) in gates.iter() {
                        let gates = tree.make_map().entry("featureGates").make_map();
                        gates.insert(name.to_string(), is_open.clone());
                    }
                }
                _ => tree.set(&row.steps(), value.clone()),
            }
        }
    }
}

/// The value of a flag of a type.
fn parse_value(ty: &str, text: &str) -> Result<Value, String> {
    let number = |bits: u32| {
        let parsed = text.parse::<i64>().ok().filter(|it| bits == 64 || i32::try_from(*it).is_ok());
        parsed.map(Value::Int).ok_or_else(|| {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            format!("strconv.ParseInt: parsing {text:?}: {why}")
        })
    };
    let pairs = || text.split(',').filter(|pair| !pair.is_empty());
    match ty {
        "bool" => match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true.into()),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false.into()),
            _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
        },
        "int32" => number(32),
        "int64" => number(64),
        "verbosity" => match text.parse::<u32>() {
            Ok(level) => Ok(Value::Int(i64::from(level))),
            Err(_) => Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")),
        },
        "duration" => match schema::time::parse_duration(text) {
            Ok(_) => Ok(text.into()),
            Err(why) => Err(why.to_string()),
        },
        "strings" => Ok(Value::List(pairs().map(Value::from).collect())),
        "map" => {
            let mut map = Value::map();
            for pair in pairs() {
                // a threshold is written with a comparison
                let (key, value) = pair.split_once(['=', '<']).unwrap_or((pair, ""));
                map.make_map().insert(key.trim().to_owned(), Value::from(value.trim()));
            }
            Ok(map)
        }
        "boolmap" => {
            let mut map = Value::map();
            for pair in pairs() {
                let (name, value) =
                    pair.split_once('=').ok_or_else(|| format!("missing bool value for {pair}"))?;
                let value = parse_value("bool", value.trim()).map_err(|_| {
                    format!("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")
                })?;
                map.make_map().insert(name.trim().to_owned(), value);
            }
            Ok(map)
        }
        "listmap" => {
            let mut map = Value::map();
            for pair in pairs() {
                let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
                let entry = map.make_map().entry(key.trim().to_owned());
                match entry.as_list_mut() {
                    Some(list) => list.push(Value::from(value.trim())),
                    None => *entry = Value::List(vec![Value::from(value.trim())]),
                }
            }
            Ok(map)
        }
        "[]taint" => pairs().map(parse_taint).collect::<Result<Vec<_>, _>>().map(Value::List),
        "[]vmodule" => {
            let items = pairs().map(|pair| {
                let (pattern, level) = pair.split_once('=').unwrap_or((pair, ""));
                let mut item = Value::map();
                item.set(&["filePattern"], pattern);
                item.set(&["verbosity"], level.parse::<i64>().unwrap_or(0));
                item
            });
            Ok(Value::List(items.collect()))
        }
        "[]memory" => parse_memory(text),
        _ => Ok(text.into()),
    }
}

/// `key=value:effect`, `key:effect`.
fn parse_taint(text: &str) -> Result<Value, String> {
    let (pair, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let mut taint = Value::map();
    for (field, text) in [("key", key), ("value", value), ("effect", effect)] {
        if !text.is_empty() {
            taint.set(&[field], text);
        }
    }
    Ok(taint)
}

/// `0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=2Gi`.
fn parse_memory(text: &str) -> Result<Value, String> {
    let mut all = Vec::new();
    for node in text.split(';').filter(|it| !it.is_empty()) {
        let (number, limits) = node
            .split_once(':')
            .ok_or_else(|| "invalid command syntax, expected key:value format".to_owned())?;
        let number: i64 = number
            .parse()
            .map_err(|_| format!("failed to convert the NUMA node ID, exptected integer, got {number}"))?;
        let mut item = Value::map();
        item.set(&["numaNode"], number);
        item.set(&["limits"], Value::map());
        for pair in limits.split(',') {
            let (name, quantity) = pair.split_once('=').unwrap_or((pair, ""));
            if let Some(map) = item.at_mut(&["limits"]) {
                map.make_map().insert(name.to_owned(), Value::from(quantity));
            }
        }
        all.push(item);
    }
    Ok(Value::List(all))
}

/// A flag, for help and documentation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlagRow {
    pub name: &'static str,
    pub ty: &'static str,
    pub default: &'static str,
    /// The effect, if it has any.
    pub effect: Option<String>,
}

/// All flags by name.
pub fn rows() -> Vec<FlagRow> {
    let own = OWN.iter().map(|&(name, ty, default, effect)| {
        let effect = Some(effect).filter(|it| *it != "-").map(str::to_owned);
        FlagRow { name, ty, default, effect }
    });
    let fields = fields::rows().filter_map(|row| {
        let effect = (!row.is_ignored).then(|| format!("Sets `{}` of the configuration", row.path));
        Some(FlagRow { name: row.flag?, ty: row.base(), default: row.default.unwrap_or(""), effect })
    });
    let mut all: Vec<_> = own.chain(fields).collect();
    all.sort_unstable();
    all
}

/// Fields of the configuration file that are accepted without effect.
pub fn ignored_fields() -> Vec<&'static str> {
    fields::rows().filter(|row| row.is_ignored).map(|row| row.path).collect()
}

/// The list of flags.
pub fn help() -> String {
    let mut text = String::from(
        "Runs the pods of this node.\n\nUsage: pintle nodeagent [FLAGS]\n\n--write-config prints the configuration with all defaults, and ends.\n\nFlags:\n",
    );
    for FlagRow { name, ty, default, effect } in rows() {
        let default = if default.is_empty() { String::new() } else { format!(" (default {default})") };
        let effect = effect.unwrap_or_else(|| "Accepted without effect".to_owned()).replace('`', "");
        text.push_str(&format!("  --{name} {ty}\n      {effect}{default}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Flags::parse(&words).map_err(|why| why.message)
    }

    #[test]
    fn flags_override_fields() {
        let flags = parse(
            "--max-pods 5 --sync-frequency=3s --fail-swap-on=false --register-with-taints a=b:NoSchedule -v=2 \
             --feature-gates A=true,B=false --root-dir /r --node-labels a=b --node_labels=c=d",
        )
        .unwrap();
        let mut tree = Value::map();
        tree.set(&["maxPods"], 9);
        flags.apply_to(&mut tree);
        assert_eq!(tree.at(&["maxPods"]), Some(&Value::Int(5)));
        assert_eq!(tree.at(&["featureGates", "B"]), Some(&Value::Bool(false)));
        assert_eq!(tree.items(&["registerWithTaints"])[0].text(&["effect"]), "NoSchedule");
        assert_eq!(flags.text("root-dir"), "/r");
        assert_eq!(flags.text("cert-dir"), "/var/lib/kubelet/pki");
        assert_eq!(flags.node_labels().len(), 2);
    }

    #[test]
    fn mistakes_have_upstreams_words() {
        for (line, message) in [
            ("--no-such-flag", "failed to parse kubelet flag: unknown flag: --no-such-flag"),
            (
                "--v zz",
                "failed to parse kubelet flag: invalid argument \"zz\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"zz\": invalid syntax",
            ),
            (
                "--sync-frequency x",
                "failed to parse kubelet flag: invalid argument \"x\" for \"--sync-frequency\" flag: time: invalid duration \"x\"",
            ),
            ("--fail-swap-on maybe", "unknown command maybe"),
            ("--config", "failed to parse kubelet flag: flag needs an argument: --config"),
        ] {
            assert_eq!(parse(line).unwrap_err(), message);
        }
    }

    #[test]
    fn every_flag_of_upstream_exists() {
        let Some(path) = testdata::find("reference/flags.json") else { return };
        let text = std::fs::read_to_string(path).unwrap();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, _) in all["kubelet"].as_object().unwrap() {
            assert!(matches!(&**name, "help" | "version") || find(name).is_some(), "{name}");
        }
    }
}
