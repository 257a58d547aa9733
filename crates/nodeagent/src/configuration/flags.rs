//! Upstream's command line: its flags, their types, and the fields that they override.

use super::error::StartError;
use super::fields::{self, FieldRow};
use super::flag_values::{go_error, parse_value};
use schema::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Flags that are no fields of the configuration: name, type, default and effect; behind a dash is why there is none.
const OWN: &[(&str, &str, &str, &str)] = &[
    (
        "api-domain",
        "string",
        "",
        "In the neutral dialect, the domain that API groups, labels, annotations and signers end in",
    ),
    (
        "bootstrap-kubeconfig",
        "string",
        "",
        "Credentials with which a node without a kubeconfig requests its first certificate",
    ),
    ("cert-dir", "string", "/var/lib/kubelet/pki", "Where the agent keeps its certificates"),
    ("cloud-config", "string", "", "- there is no cloud provider code"),
    (
        "cloud-provider",
        "string",
        "",
        "With `external` the node has a taint until a cloud controller has initialized it",
    ),
    ("config", "string", "", "The file of the configuration"),
    ("container-runtime", "string", "remote", "- every runtime is remote"),
    (
        "container-runtime-endpoint",
        "string",
        "",
        "The socket of the runtime, `unix:///run/containerd/containerd.sock`; without it the usual ones are tried",
    ),
    (
        "dialect",
        "string",
        "kubernetes",
        "The names of groups, labels, annotations, signers and media types, as the API server has them: `kubernetes` or \
         `neutral`",
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
    ("experimental-mounter-path", "string", "", "- the agent mounts volumes with system calls"),
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
    ("node-labels", "labels", "", "Labels of the node, key=value, separated by commas"),
    (
        "pod-infra-container-image",
        "string",
        names::node::SANDBOX_IMAGE,
        "The image of sandboxes, which is not removed under disk pressure",
    ),
    ("register-schedulable", "bool", "true", "Whether the node is registered as schedulable"),
    ("root-dir", "string", "/var/lib/kubelet", "Where the agent keeps pods and volumes"),
    ("runtime-cgroups", "string", "", "The cgroup of the runtime, whose usage is part of `/stats/summary`"),
    ("vendor", "string", "", "In the neutral dialect, the word in media types and schema extensions"),
    // flags of upstream's metrics library
    ("application-metrics-count-limit", "int32", "100", "- containers' own metrics are not collected"),
    (
        "azure-container-registry-config",
        "string",
        "",
        "- there is no cloud provider code: credentials of registries come from plugins",
    ),
    (
        "boot-id-file",
        "string",
        "/proc/sys/kernel/random/boot_id",
        "Files that identify the start of the machine; the first one counts",
    ),
    (
        "container-hints",
        "string",
        "/etc/cadvisor/container_hints.json",
        "- usage is read from the kernel and the runtime when it is requested",
    ),
    (
        "containerd",
        "string",
        "/run/containerd/containerd.sock",
        "- usage of containers comes from the runtime of `--container-runtime-endpoint`",
    ),
    (
        "containerd-namespace",
        "string",
        names::node::CONTAINERD_NAMESPACE,
        "- usage of containers comes from the runtime of `--container-runtime-endpoint`",
    ),
    ("enable-load-reader", "bool", "false", "- loads of containers are not read"),
    ("event-storage-age-limit", "string", "default=24h", "- events of containers are not stored"),
    ("event-storage-event-limit", "string", "default=100000", "- events of containers are not stored"),
    (
        "global-housekeeping-interval",
        "duration",
        "1m0s",
        "- usage is read from the kernel and the runtime when it is requested",
    ),
    (
        "housekeeping-interval",
        "duration",
        "1s",
        "- usage is read from the kernel and the runtime when it is requested",
    ),
    (
        "log-cadvisor-usage",
        "bool",
        "false",
        "- usage is read from the kernel and the runtime when it is requested",
    ),
    (
        "machine-id-file",
        "string",
        "/etc/machine-id,/var/lib/dbus/machine-id",
        "Files that identify the machine; the first one counts",
    ),
    ("storage-driver-buffer-duration", "duration", "1m0s", "- usage is not sent to a database"),
    ("storage-driver-db", "string", "cadvisor", "- usage is not sent to a database"),
    ("storage-driver-host", "string", "localhost:8086", "- usage is not sent to a database"),
    ("storage-driver-password", "string", "root", "- usage is not sent to a database"),
    ("storage-driver-secure", "bool", "false", "- usage is not sent to a database"),
    ("storage-driver-table", "string", "stats", "- usage is not sent to a database"),
    ("storage-driver-user", "string", "root", "- usage is not sent to a database"),
];

/// Flags that upstream does not have: those of the API server's names.
pub const DIALECT_FLAGS: [&str; 3] = ["api-domain", "dialect", "vendor"];

/// Flags whose values Go's own flag package reads; its errors say less.
const GO_FLAGS: [&str; 7] = [
    "application-metrics-count-limit",
    "enable-load-reader",
    "global-housekeeping-interval",
    "housekeeping-interval",
    "log-cadvisor-usage",
    "storage-driver-buffer-duration",
    "storage-driver-secure",
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
            match word.strip_prefix("--") {
                Some("") => {
                    positional = positional.or_else(|| words.next());
                    break;
                }
                Some(rest) => flags.parse_long(rest, &mut words).map_err(wrong)?,
                None => match word.strip_prefix('-').filter(|it| !it.is_empty()) {
                    Some(letters) => flags.parse_letters(letters, &mut words).map_err(wrong)?,
                    None => drop(positional.get_or_insert(word)),
                },
            }
        }
        match positional {
            Some(word) => Err(StartError::new(format!("unknown command {word}"))),
            None => Ok(flags),
        }
    }

    /// `name=value`, or a name whose value is the next word.
    fn parse_long<'w>(
        &mut self,
        text: &str,
        words: &mut impl Iterator<Item = &'w String>,
    ) -> Result<(), String> {
        if text.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: --{text}"));
        }
        let (given_name, value) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let name = given_name.replace('_', "-");
        let switch = |shown: &str| {
            let text = value.unwrap_or("true");
            parse_value("bool", text)
                .map(|it| it == Value::Bool(true))
                .map_err(|why| format!("invalid argument {text:?} for {shown:?} flag: {why}"))
        };
        match &*name {
            "help" => self.asks_for_help = switch("-h, --help")?,
            "version" => self.asks_for_version = value == Some("raw") || switch("--version")?,
            "write-config" => self.asks_for_config = switch("--write-config")?,
            _ => {
                let known = find(&name).ok_or_else(|| format!("unknown flag: --{given_name}"))?;
                let value = match value {
                    Some(value) => value,
                    None if known.ty() == "bool" => "true",
                    None => words
                        .next()
                        .ok_or_else(|| format!("flag needs an argument: --{given_name}"))?
                        .as_str(),
                };
                self.set(known, &name, value)?;
            }
        }
        Ok(())
    }

    /// One-letter flags: `h` asks for help, `v` takes the rest or the next word as its value.
    fn parse_letters<'w>(
        &mut self,
        letters: &str,
        words: &mut impl Iterator<Item = &'w String>,
    ) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let after = rest.as_str();
            match letter {
                'h' => self.asks_for_help = true,
                'v' => {
                    let attached = after.strip_prefix('=').filter(|it| !it.is_empty()).unwrap_or(after);
                    let value = match attached {
                        "" => {
                            words.next().ok_or_else(|| format!("flag needs an argument: 'v' in -v{after}"))?
                        }
                        attached => attached,
                    };
                    let known = find("v").ok_or_else(|| "unknown flag: --v".to_owned())?;
                    return self.set(known, "v", value);
                }
                other => return Err(format!("unknown shorthand flag: {other:?} in -{other}{after}")),
            }
        }
        Ok(())
    }

    fn set(&mut self, known: FlagTarget, name: &str, text: &str) -> Result<(), String> {
        let shown = if name == "v" { "-v, --v".to_owned() } else { format!("--{name}") };
        let value = parse_value(known.ty(), text).map_err(|why| {
            let why = if GO_FLAGS.contains(&name) { go_error(&why) } else { &*why };
            format!("invalid argument {text:?} for {shown:?} flag: {why}")
        })?;
        match known {
            FlagTarget::Own("node-labels", _) => {
                // a flag that is repeated adds labels
                let before = self.own.remove("node-labels").filter(|before| !before.is_empty());
                let whole = before.map_or(text.to_owned(), |before| format!("{before},{text}"));
                self.own.insert("node-labels", whole);
            }
            FlagTarget::Own(name, "bool") => {
                drop(self.own.insert(name, (value == Value::Bool(true)).to_string()));
            }
            FlagTarget::Own(name, _) => drop(self.own.insert(name, text.to_owned())),
            FlagTarget::Field(_) if value.is_null() => {}
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

    /// The flags that were given and have no effect, and why they have none.
    pub fn ineffective(&self) -> Vec<(&'static str, &'static str)> {
        let given = OWN.iter().filter(|row| self.is_given(row.0));
        let ignored = given.filter_map(|row| Some((row.0, row.3.strip_prefix("- ")?)));
        let provider = (!matches!(self.text("cloud-provider"), "" | "external"))
            .then_some(("cloud-provider", "there is no cloud provider code: only `external` has an effect"));
        ignored.chain(provider).collect()
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

    /// Addresses of the node. Those that cannot be read are left out, as upstream does.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        self.text("node-ip").split(',').filter_map(|text| schema::format::parse_ip(text.trim())).collect()
    }

    /// Feature gates of the command line.
    pub fn feature_gates(&self) -> Vec<(String, bool)> {
        let gates = self.overrides.iter().filter(|(row, _)| row.path == "featureGates");
        let pairs = gates.filter_map(|(_, value)| value.as_map()).flat_map(|map| map.iter());
        pairs.map(|(name, value)| (name.to_string(), value.as_bool().unwrap_or(false))).collect()
    }

    /// Whether the command line turns a field on.
    pub fn turns_on(&self, path: &str) -> bool {
        let last = self.overrides.iter().rfind(|(row, _)| row.path == path);
        last.is_some_and(|(_, value)| value == &Value::Bool(true))
    }

    /// Overrides the values of a file. The first value of a list or map takes the place of that of the file, and a
    /// flag that is repeated adds to it; feature gates and levels of modules are added to those of the file.
    pub fn apply_to(&self, tree: &mut Value) {
        let mut given: Vec<&str> = Vec::new();
        for (row, value) in &self.overrides {
            let is_added = given.contains(&row.path) || matches!(row.base(), "boolmap" | "[]vmodule");
            given.push(row.path);
            let before = tree.at_mut(&row.steps()).filter(|_| is_added && row.base() != "[]taint");
            let is_done = before.is_some_and(|before| add(before, value));
            if !is_done {
                tree.set(&row.steps(), value.clone());
            }
        }
    }
}

/// Adds the items of a list or the entries of a map. False if there is nothing of the kind to add to.
fn add(before: &mut Value, added: &Value) -> bool {
    match (before, added) {
        (Value::List(before), Value::List(added)) => before.extend(added.iter().cloned()),
        (Value::Map(before), Value::Map(added)) => {
            for (key, value) in added.iter() {
                let entry = before.entry(key.to_string());
                if !(entry.as_list_mut().is_some() && add(entry, value)) {
                    *entry = value.clone();
                }
            }
        }
        _ => return false,
    }
    true
}

/// A flag, for help and documentation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlagRow {
    pub name: &'static str,
    pub ty: &'static str,
    pub default: &'static str,
    /// The effect, or why it has none.
    pub effect: Result<String, &'static str>,
}

impl FlagRow {
    /// The sentence of the flag in help and documentation.
    pub fn description(&self) -> String {
        match &self.effect {
            Ok(effect) => effect.clone(),
            Err(why) => format!("No effect: {why}"),
        }
    }
}

/// All flags by name.
pub fn rows() -> Vec<FlagRow> {
    let own = OWN.iter().map(|&(name, ty, default, effect)| {
        let effect = effect.strip_prefix("- ").map_or_else(|| Ok(effect.to_owned()), Err);
        FlagRow { name, ty, default, effect }
    });
    let fields = fields::rows().filter_map(|row| {
        let effect =
            row.why_ignored.map_or_else(|| Ok(format!("Sets `{}` of the configuration", row.path)), Err);
        Some(FlagRow { name: row.flag?, ty: row.base(), default: row.default.unwrap_or(""), effect })
    });
    let mut all: Vec<_> = own.chain(fields).collect();
    all.sort_unstable();
    all
}

/// Fields of the configuration file that are accepted without effect, and why they have none.
pub fn ignored_fields() -> Vec<(&'static str, &'static str)> {
    fields::rows().filter_map(|row| Some((row.path, row.why_ignored?))).collect()
}

/// The list of flags.
pub fn help() -> String {
    let mut text = String::from(
        "Runs the pods of this node.\n\nUsage: pintle nodeagent [FLAGS]\n\n--write-config prints the flags as a configuration file, with the defaults of such a file, and ends.\n\nFlags:\n",
    );
    for row in rows() {
        let effect = row.description().replace('`', "");
        let FlagRow { name, ty, default, .. } = row;
        let default = if default.is_empty() { String::new() } else { format!(" (default {default})") };
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
    fn flags_without_effect_are_listed_if_they_are_given() {
        let names = |line: &str| -> Vec<&str> {
            parse(line).unwrap().ineffective().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names("--root-dir=/r --node-ip=1.1.1.1 --cloud-provider=external"), [""; 0]);
        assert_eq!(
            names("--cloud-provider=aws --cloud-config=/c --storage-driver-db=x --root-dir=/r"),
            ["cloud-config", "storage-driver-db", "cloud-provider"]
        );
        // the default is given all the same
        assert_eq!(names("--container-runtime=remote"), ["container-runtime"]);
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
    fn flags_that_are_repeated_add_to_each_other() {
        let flags = parse(
            "--cluster-dns 1.1.1.1 --cluster-dns 2.2.2.2,3.3.3.3 --system-reserved cpu=1 --system-reserved memory=1Gi \
             --manifest-url-header a:b --manifest-url-header a:c --vmodule x=1 --register-with-taints a:NoSchedule \
             --register-with-taints b:NoSchedule -v3",
        )
        .unwrap();
        let mut tree = Value::map();
        tree.set(&["clusterDNS"], vec![Value::from("9.9.9.9")]);
        tree.set(&["logging", "vmodule"], vec![Value::map()]);
        flags.apply_to(&mut tree);
        assert_eq!(tree.items(&["clusterDNS"]).len(), 3);
        assert_eq!(tree.at(&["systemReserved"]).and_then(Value::as_map).map(|it| it.iter().count()), Some(2));
        assert_eq!(tree.items(&["staticPodURLHeader", "a"]).len(), 2);
        assert_eq!(tree.items(&["logging", "vmodule"]).len(), 2, "those of the file stay");
        assert_eq!(tree.items(&["registerWithTaints"]).len(), 1, "the last flag counts");
        assert_eq!(tree.at(&["logging", "verbosity"]), Some(&Value::Int(3)));
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
            ("-x", "failed to parse kubelet flag: unknown shorthand flag: 'x' in -x"),
            ("-v", "failed to parse kubelet flag: flag needs an argument: 'v' in -v"),
            ("--no_such=1", "failed to parse kubelet flag: unknown flag: --no_such"),
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
