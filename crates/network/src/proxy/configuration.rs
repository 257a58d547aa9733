//! The configuration of the proxy: the file of upstream's proxy (`KubeProxyConfiguration`, `v1alpha1`) and its flags.
//!
//! Every field and flag is a row of a table. As upstream does, flags count only without a file, save for
//! `--hostname-override`. Fields of other implementations (IPVS, Windows) are validated by type and have no effect.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use names::Names;
use schema::Value;
use schema::time::{format_duration, parse_duration};
use schema::yaml::{self, Limits};

use super::run::DetectLocal;
use crate::netfilter::Prefix;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Bool,
    Int,
    Float,
    Duration,
    /// A list of texts.
    Texts,
    /// Booleans by name.
    Switches,
}

/// Path in the file, flag, type, default.
type Row = (&'static str, Option<&'static str>, Kind, &'static str);

const ROWS: &[Row] = &[
    ("bindAddress", Some("bind-address"), Kind::Text, "0.0.0.0"),
    ("bindAddressHardFail", Some("bind-address-hard-fail"), Kind::Bool, "false"),
    ("clientConnection.acceptContentTypes", None, Kind::Text, ""),
    ("clientConnection.burst", Some("kube-api-burst"), Kind::Int, "10"),
    ("clientConnection.contentType", Some("kube-api-content-type"), Kind::Text, PROTOBUF),
    ("clientConnection.kubeconfig", Some("kubeconfig"), Kind::Text, ""),
    ("clientConnection.qps", Some("kube-api-qps"), Kind::Float, "5"),
    ("clusterCIDR", Some("cluster-cidr"), Kind::Text, ""),
    ("configSyncPeriod", Some("config-sync-period"), Kind::Duration, "15m0s"),
    ("conntrack.maxPerCore", Some("conntrack-max-per-core"), Kind::Int, "32768"),
    ("conntrack.min", Some("conntrack-min"), Kind::Int, "131072"),
    ("conntrack.tcpCloseWaitTimeout", Some("conntrack-tcp-timeout-close-wait"), Kind::Duration, "1h0m0s"),
    ("conntrack.tcpEstablishedTimeout", Some("conntrack-tcp-timeout-established"), Kind::Duration, "24h0m0s"),
    ("detectLocal.bridgeInterface", Some("pod-bridge-interface"), Kind::Text, ""),
    ("detectLocal.interfaceNamePrefix", Some("pod-interface-name-prefix"), Kind::Text, ""),
    ("detectLocalMode", Some("detect-local-mode"), Kind::Text, ""),
    ("enableProfiling", Some("profiling"), Kind::Bool, "false"),
    ("featureGates", Some("feature-gates"), Kind::Switches, ""),
    ("healthzBindAddress", Some("healthz-bind-address"), Kind::Text, "0.0.0.0:10256"),
    ("hostnameOverride", Some("hostname-override"), Kind::Text, ""),
    ("iptables.localhostNodePorts", Some("iptables-localhost-nodeports"), Kind::Bool, "true"),
    ("iptables.masqueradeAll", Some("masquerade-all"), Kind::Bool, "false"),
    ("iptables.masqueradeBit", Some("iptables-masquerade-bit"), Kind::Int, "14"),
    ("iptables.minSyncPeriod", Some("iptables-min-sync-period"), Kind::Duration, "1s"),
    ("iptables.syncPeriod", Some("iptables-sync-period"), Kind::Duration, "30s"),
    ("ipvs.excludeCIDRs", Some("ipvs-exclude-cidrs"), Kind::Texts, ""),
    ("ipvs.minSyncPeriod", Some("ipvs-min-sync-period"), Kind::Duration, "0s"),
    ("ipvs.scheduler", Some("ipvs-scheduler"), Kind::Text, ""),
    ("ipvs.strictARP", Some("ipvs-strict-arp"), Kind::Bool, "false"),
    ("ipvs.syncPeriod", Some("ipvs-sync-period"), Kind::Duration, "30s"),
    ("ipvs.tcpFinTimeout", Some("ipvs-tcpfin-timeout"), Kind::Duration, "0s"),
    ("ipvs.tcpTimeout", Some("ipvs-tcp-timeout"), Kind::Duration, "0s"),
    ("ipvs.udpTimeout", Some("ipvs-udp-timeout"), Kind::Duration, "0s"),
    ("metricsBindAddress", Some("metrics-bind-address"), Kind::Text, "127.0.0.1:10249"),
    ("mode", Some("proxy-mode"), Kind::Text, ""),
    ("nodePortAddresses", Some("nodeport-addresses"), Kind::Texts, ""),
    ("oomScoreAdj", Some("oom-score-adj"), Kind::Int, "-999"),
    ("portRange", Some("proxy-port-range"), Kind::Text, ""),
    ("showHiddenMetricsForVersion", Some("show-hidden-metrics-for-version"), Kind::Text, ""),
    ("winkernel.enableDSR", None, Kind::Bool, "false"),
    ("winkernel.forwardHealthCheckVip", None, Kind::Bool, "false"),
    ("winkernel.networkName", None, Kind::Text, ""),
    ("winkernel.rootHnsEndpointName", None, Kind::Text, ""),
    ("winkernel.sourceVip", None, Kind::Text, ""),
];

/// The default of `clientConnection.contentType`; the vendor of the dialect takes the place of the braces.
const PROTOBUF: &str = "application/vnd.{}.protobuf";

const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

/// The command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    pub config: Option<String>,
    pub write_config_to: Option<String>,
    pub master: Option<String>,
    pub has_cleanup: bool,
    pub asks_for_help: bool,
    pub asks_for_version: bool,
    pub verbosity: u8,
    pub vmodule: Vec<String>,
    healthz_port: Option<u16>,
    metrics_port: Option<u16>,
    values: BTreeMap<&'static str, Value>,
}

impl Flags {
    /// Parses a command line in upstream's syntax. Every mistake is reported.
    pub fn parse(arguments: &[String]) -> Result<Self, Vec<String>> {
        let mut flags = Self::default();
        let mut errors = Vec::new();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(name) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                errors.push(format!("unknown argument {argument:?}"));
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            let name = name.replace('_', "-");
            let mut next = || match value.clone() {
                Some(value) => Ok(value),
                None => arguments.next().cloned().ok_or_else(|| format!("flag needs an argument: --{name}")),
            };
            if let Err(error) = flags.set(&name, value.as_deref(), &mut next) {
                errors.push(error);
            }
        }
        if errors.is_empty() { Ok(flags) } else { Err(errors) }
    }

    fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        next: &mut dyn FnMut() -> Result<String, String>,
    ) -> Result<(), String> {
        let switch =
            || boolean(value.unwrap_or("true")).ok_or_else(|| invalid(name, value.unwrap_or_default()));
        let number = |text: String| text.parse().map_err(|_| invalid(name, &text));
        match name {
            "config" => self.config = Some(next()?),
            "write-config-to" => self.write_config_to = Some(next()?),
            "master" => self.master = Some(next()?),
            "cleanup" => self.has_cleanup = switch()?,
            "help" | "h" => self.asks_for_help = switch()?,
            "version" => self.asks_for_version = value == Some("raw") || switch()?,
            "v" => {
                let text = next()?;
                self.verbosity = text.parse().map_err(|_| invalid(name, &text))?;
            }
            "vmodule" => self.vmodule = next()?.split(',').map(str::to_owned).collect(),
            "boot-id-file" | "machine-id-file" => _ = next()?,
            "log-flush-frequency" => _ = duration(&next()?).ok_or_else(|| invalid(name, "that"))?,
            "healthz-port" => self.healthz_port = Some(number(next()?)?),
            "metrics-port" => self.metrics_port = Some(number(next()?)?),
            _ => {
                let row = ROWS.iter().find(|(_, flag, ..)| *flag == Some(name));
                let (path, _, kind, _) = row.ok_or_else(|| format!("unknown flag: --{name}"))?;
                let text = match kind {
                    Kind::Bool => value.unwrap_or("true").to_owned(),
                    _ => next()?,
                };
                let parsed = parse_text(*kind, &text).ok_or_else(|| invalid(name, &text))?;
                self.values.insert(path, parsed);
            }
        }
        Ok(())
    }
}

fn invalid(name: &str, value: &str) -> String {
    format!("invalid argument {value:?} for \"--{name}\" flag")
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn duration(text: &str) -> Option<i64> {
    parse_duration(text).ok()
}

/// The value of a text on the command line or in the table.
fn parse_text(kind: Kind, text: &str) -> Option<Value> {
    let items = || text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Some(match kind {
        Kind::Text => Value::String(text.to_owned()),
        Kind::Bool => Value::Bool(boolean(text)?),
        Kind::Int => Value::Int(text.parse().ok()?),
        Kind::Float => Value::Float(text.parse().ok()?),
        Kind::Duration => Value::String(format_duration(duration(text)?)),
        Kind::Texts => Value::List(items().map(|item| Value::String(item.to_owned())).collect()),
        Kind::Switches => {
            let switch = |item: &str| {
                let (name, value) = item.split_once('=')?;
                Some((name.to_owned().into(), Value::Bool(boolean(value)?)))
            };
            Value::Map(items().map(switch).collect::<Option<_>>()?)
        }
    })
}

/// The value of a field in a file, if it has the right type.
fn parse_value(kind: Kind, value: &Value) -> Option<Value> {
    match (kind, value) {
        (Kind::Text, Value::String(_)) | (Kind::Bool, Value::Bool(_)) | (Kind::Int, Value::Int(_)) => {
            Some(value.clone())
        }
        (Kind::Float, Value::Float(_)) => Some(value.clone()),
        // numbers of a configuration are far below the precision of a float
        (Kind::Float, Value::Int(number)) => Some(Value::Float(*number as f64)),
        (Kind::Duration, Value::String(text)) => parse_text(kind, text),
        (Kind::Texts, Value::List(items)) => {
            items.iter().all(|item| item.as_str().is_some()).then(|| value.clone())
        }
        (Kind::Switches, Value::Map(map)) => {
            map.iter().all(|(_, value)| value.as_bool().is_some()).then(|| value.clone())
        }
        _ => None,
    }
}

/// The whole configuration: a value for every field.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    values: BTreeMap<&'static str, Value>,
    vendor: String,
}

impl Configuration {
    /// The configuration of a file, or that of the flags if there is none.
    pub fn load(flags: &Flags, file: Option<&[u8]>, names: &Names) -> Result<Self, Vec<String>> {
        let vendor = names.vendor.to_string();
        let mut configuration = Self { values: BTreeMap::new(), vendor };
        match file {
            Some(text) => {
                configuration.values = read_file(text, names)?;
                let overridden = flags.values.get_key_value("hostnameOverride");
                configuration.values.extend(overridden.map(|(path, value)| (*path, value.clone())));
            }
            None => {
                configuration.values.clone_from(&flags.values);
                configuration.apply_ports(flags);
            }
        }
        configuration.complete();
        let errors = configuration.validate();
        if errors.is_empty() { Ok(configuration) } else { Err(errors) }
    }

    /// The deprecated flags for ports alone: 0 disables, another one takes the place of an address's port.
    fn apply_ports(&mut self, flags: &Flags) {
        let ports = [("healthzBindAddress", flags.healthz_port), ("metricsBindAddress", flags.metrics_port)];
        for (path, port) in ports.into_iter().filter_map(|(path, port)| Some((path, port?))) {
            let host = self.values.get(path).and_then(Value::as_str).map(host_of);
            let default = if path == "healthzBindAddress" { "0.0.0.0" } else { "127.0.0.1" };
            let host = host.unwrap_or_else(|| default.to_owned());
            let address = if port == 0 { DISABLED.to_owned() } else { format!("{host}:{port}") };
            self.values.insert(path, Value::String(address));
        }
    }

    /// Sets defaults of fields that are absent, or empty where upstream takes that for absent.
    fn complete(&mut self) {
        for (path, _, kind, default) in ROWS {
            let is_unset = match self.values.get(path) {
                None | Some(Value::Null) => true,
                Some(Value::String(text)) if *kind == Kind::Duration => {
                    duration(text) == Some(0) && !path.starts_with("conntrack.")
                }
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Int(number)) => *number == 0 && *path == "clientConnection.burst",
                Some(Value::Float(number)) => *number == 0.0,
                _ => false,
            };
            if is_unset {
                let text = default.replace("{}", &self.vendor);
                self.values.insert(path, parse_text(*kind, &text).unwrap_or_default());
            }
        }
        if self.text("bindAddress").contains(':') {
            // the addresses of both ports follow that of the proxy
            for (path, default, new) in [
                ("healthzBindAddress", "0.0.0.0:10256", "[::]:10256"),
                ("metricsBindAddress", "127.0.0.1:10249", "[::1]:10249"),
            ] {
                if self.text(path) == default {
                    self.values.insert(path, Value::String(new.to_owned()));
                }
            }
        }
        for (path, port) in [("healthzBindAddress", HEALTHZ_PORT), ("metricsBindAddress", METRICS_PORT)] {
            let text = self.text(path);
            if text.parse::<IpAddr>().is_ok() {
                let address =
                    if text.contains(':') { format!("[{text}]:{port}") } else { format!("{text}:{port}") };
                self.values.insert(path, Value::String(address));
            }
        }
    }

    fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut require = |is_valid: bool, field: &str, value: String, why: &str| {
            if !is_valid {
                errors.push(format!("KubeProxyConfiguration.{field}: Invalid value: {value}: {why}"));
            }
        };
        let quoted = |path: &str| format!("{:?}", self.text(path));
        let int = |path: &str| self.int(path).to_string();
        require(
            (-1000..=1000).contains(&self.int("oomScoreAdj")),
            "OOMScoreAdj",
            int("oomScoreAdj"),
            "must be within the range [-1000, 1000]",
        );
        require(
            self.nanos("configSyncPeriod") > 0,
            "ConfigSyncPeriod",
            quoted("configSyncPeriod"),
            "must be greater than 0",
        );
        require(
            self.text("bindAddress").parse::<IpAddr>().is_ok(),
            "BindAddress",
            quoted("bindAddress"),
            "not a valid textual representation of an IP address",
        );
        for (path, field) in
            [("healthzBindAddress", "HealthzBindAddress"), ("metricsBindAddress", "MetricsBindAddress")]
        {
            let text = self.text(path);
            require(
                text == DISABLED || text.parse::<SocketAddr>().is_ok(),
                field,
                quoted(path),
                "must be IP:port",
            );
        }
        let networks: Vec<_> = self.text("clusterCIDR").split(',').filter(|text| !text.is_empty()).collect();
        let parsed: Vec<Prefix> = networks.iter().filter_map(|text| text.parse().ok()).collect();
        let is_dual = parsed.len() == 2 && parsed[0].first().is_ipv4() != parsed[1].first().is_ipv4();
        let (is_valid, why) = match networks.len() {
            0 => (true, ""),
            1 => {
                (parsed.len() == 1, "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)")
            }
            2 => (is_dual, "must be a valid DualStack CIDR (e.g. 10.100.0.0/16,fde4:8dba:82e1::/48)"),
            _ => (
                false,
                "only one CIDR allowed or a valid DualStack CIDR (e.g. 10.100.0.0/16,fde4:8dba:82e1::/48)",
            ),
        };
        require(is_valid, "ClusterCIDR", quoted("clusterCIDR"), why);
        require(
            (0..=31).contains(&self.int("iptables.masqueradeBit")),
            "KubeProxyIPTablesConfiguration.MasqueradeBit",
            int("iptables.masqueradeBit"),
            "must be within the range [0, 31]",
        );
        require(
            self.nanos("iptables.syncPeriod") > 0,
            "KubeProxyIPTablesConfiguration.SyncPeriod",
            quoted("iptables.syncPeriod"),
            "must be greater than 0",
        );
        for path in ["conntrack.maxPerCore", "conntrack.min"] {
            let is_valid = self.int(path) >= 0;
            require(is_valid, path, int(path), "must be greater than or equal to 0");
        }
        for path in ["conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout"] {
            let is_valid = self.nanos(path) >= 0;
            require(is_valid, path, quoted(path), "must be greater than or equal to 0");
        }
        for (at, text) in self.texts("nodePortAddresses").iter().enumerate() {
            let field = format!("NodePortAddresses[{at}]");
            require(text.parse::<Prefix>().is_ok(), &field, format!("{text:?}"), "must be a valid CIDR");
        }
        require(
            matches!(self.text("mode"), "" | "iptables" | "ipvs" | "nftables"),
            "ProxyMode",
            quoted("mode"),
            "must be iptables,ipvs,nftables or blank (blank means the best-available proxy [currently nftables])",
        );
        let mode = self.text("detectLocalMode");
        let interface = match mode {
            "BridgeInterface" => Some(("InterfaceName", self.text("detectLocal.bridgeInterface"))),
            "InterfaceNamePrefix" => Some(("InterfacePrefix", self.text("detectLocal.interfaceNamePrefix"))),
            _ => None,
        };
        if let Some((field, name)) = interface {
            let is_valid = !name.is_empty() && name.len() < 16;
            let why =
                if name.is_empty() { "must not be empty" } else { "must be no more than 15 characters" };
            require(is_valid, field, format!("{name:?}"), why);
        }
        let known = ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"];
        require(
            known.contains(&mode),
            "DetectLocalMode",
            quoted("detectLocalMode"),
            "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        );
        errors
    }

    pub fn text(&self, path: &str) -> &str {
        self.values.get(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn bool(&self, path: &str) -> bool {
        self.values.get(path).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn int(&self, path: &str) -> i64 {
        self.values.get(path).and_then(Value::as_int).unwrap_or_default()
    }

    pub fn float(&self, path: &str) -> f64 {
        match self.values.get(path) {
            Some(Value::Float(number)) => *number,
            _ => 0.0,
        }
    }

    fn nanos(&self, path: &str) -> i64 {
        duration(self.text(path)).unwrap_or_default()
    }

    pub fn duration(&self, path: &str) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos(path)).unwrap_or(0))
    }

    pub fn texts(&self, path: &str) -> Vec<&str> {
        let items = self.values.get(path).and_then(Value::as_list).unwrap_or_default();
        items.iter().filter_map(Value::as_str).collect()
    }

    /// The address of a port, unless it is disabled.
    pub fn address(&self, path: &str) -> Option<SocketAddr> {
        self.text(path).parse().ok()
    }

    /// A feature gate, if the configuration names it.
    pub fn gate(&self, name: &str) -> Option<bool> {
        self.values.get("featureGates")?.as_map()?.get(name)?.as_bool()
    }

    pub fn node_port_networks(&self) -> Vec<Prefix> {
        let networks = self.texts("nodePortAddresses").into_iter().filter_map(|text| text.parse().ok());
        let networks: Vec<Prefix> = networks.collect();
        // a network of all addresses of a family is no restriction of it
        let all: Vec<_> =
            networks.iter().filter(|network| network.length() == 0).map(Prefix::first).collect();
        let is_restricted = |network: &Prefix| {
            network.length() == 0 || !all.iter().any(|first| first.is_ipv4() == network.first().is_ipv4())
        };
        networks.into_iter().filter(is_restricted).collect()
    }

    pub fn detect_local(&self) -> DetectLocal {
        match self.text("detectLocalMode") {
            "NodeCIDR" => DetectLocal::NodeNetworks,
            "BridgeInterface" => DetectLocal::Interface(self.text("detectLocal.bridgeInterface").to_owned()),
            "InterfaceNamePrefix" => {
                DetectLocal::InterfacePrefix(self.text("detectLocal.interfaceNamePrefix").to_owned())
            }
            _ => {
                let networks = self.text("clusterCIDR").split(',').filter_map(|text| text.parse().ok());
                let networks: Vec<Prefix> = networks.collect();
                if networks.is_empty() { DetectLocal::None } else { DetectLocal::ClusterNetworks(networks) }
            }
        }
    }

    /// The configuration as an object of the API.
    pub fn to_value(&self, names: &Names) -> Value {
        let mut object = Value::map();
        for (path, value) in &self.values {
            let mut map = object.make_map();
            let mut parts: Vec<&'static str> = path.split('.').collect();
            let Some(last) = parts.pop() else { continue };
            for part in parts {
                map = map.entry(part).make_map();
            }
            map.insert(last, value.clone());
        }
        let map = object.make_map();
        map.insert("apiVersion", Value::String(api_version(names)));
        map.insert("kind", Value::String(kind(names)));
        object
    }

    pub fn to_yaml(&self, names: &Names) -> String {
        yaml::emit(&self.to_value(names))
    }
}

/// The address of a port that is not opened.
const DISABLED: &str = "disabled";

fn host_of(address: &str) -> String {
    address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned()
}

fn api_version(names: &Names) -> String {
    format!("{}/v1alpha1", names.group(&format!("{}proxy.config", names.prefix)))
}

/// `KubeProxyConfiguration`.
fn kind(names: &Names) -> String {
    let mut prefix = names.prefix.to_string();
    prefix[..1].make_ascii_uppercase();
    format!("{prefix}ProxyConfiguration")
}

/// The fields of a file. Unknown ones are errors, as are values of another type.
fn read_file(text: &[u8], names: &Names) -> Result<BTreeMap<&'static str, Value>, Vec<String>> {
    let document = yaml::parse(text, Limits::default()).map_err(|error| vec![error.cause().to_owned()])?;
    let Some(map) = document.value.as_map() else {
        return Err(vec!["the configuration is no object".to_owned()]);
    };
    let mut errors: Vec<String> = document
        .repeated
        .iter()
        .map(|path| format!("strict decoding error: key {path:?} already set in map"))
        .collect();
    if document.value.text(&["apiVersion"]) != api_version(names)
        || document.value.text(&["kind"]) != kind(names)
    {
        errors.push(format!("apiVersion and kind must be {} and {}", api_version(names), kind(names)));
    }
    let mut values = BTreeMap::new();
    for (name, value) in map.iter().filter(|(name, _)| !matches!(*name, "apiVersion" | "kind")) {
        read_field(name.to_owned(), value, &mut values, &mut errors);
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

fn read_field(
    path: String,
    value: &Value,
    values: &mut BTreeMap<&'static str, Value>,
    errors: &mut Vec<String>,
) {
    if let Some((path, _, kind, _)) = ROWS.iter().find(|(known, ..)| *known == path) {
        match parse_value(*kind, value) {
            Some(value) => _ = values.insert(path, value),
            None if value.is_null() => (),
            None => errors.push(format!("{path}: the value is {} instead of {kind:?}", value.json_type())),
        }
        return;
    }
    let prefix = format!("{path}.");
    match value.as_map() {
        Some(map) if ROWS.iter().any(|(known, ..)| known.starts_with(&prefix)) => {
            for (name, value) in map.iter() {
                read_field(format!("{prefix}{name}"), value, values, errors);
            }
        }
        None if value.is_null() && ROWS.iter().any(|(known, ..)| known.starts_with(&prefix)) => (),
        _ => errors.push(format!("strict decoding error: unknown field {path:?}")),
    }
}

/// A flag that sets a field.
pub struct FlagField {
    pub flag: &'static str,
    /// The type of its value.
    pub value: &'static str,
    pub default: &'static str,
}

/// The flags that set fields.
pub fn flag_fields() -> impl Iterator<Item = FlagField> {
    let rows = ROWS.iter().copied();
    rows.filter_map(|(_, flag, kind, default)| {
        let value = match kind {
            Kind::Text => "text",
            Kind::Bool => "bool",
            Kind::Int | Kind::Float => "number",
            Kind::Duration => "duration",
            Kind::Texts | Kind::Switches => "list",
        };
        Some(FlagField { flag: flag?, value, default })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arguments: &str, file: Option<&str>) -> Result<Configuration, Vec<String>> {
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let flags = Flags::parse(&arguments)?;
        Configuration::load(&flags, file.map(str::as_bytes), &Names::kubernetes())
    }

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    #[test]
    fn defaults_are_those_of_upstream() {
        let configuration = load("", None).unwrap();
        let text = configuration.to_yaml(&Names::kubernetes());
        for line in [
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
            "bindAddress: 0.0.0.0",
            "  contentType: application/vnd.kubernetes.protobuf",
            "  maxPerCore: 32768",
            "  tcpEstablishedTimeout: 24h0m0s",
            "healthzBindAddress: 0.0.0.0:10256",
            "kind: KubeProxyConfiguration",
            "metricsBindAddress: 127.0.0.1:10249",
            "oomScoreAdj: -999",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
        // what is written can be read
        assert_eq!(load("", Some(&text)).unwrap(), configuration);
    }

    #[test]
    fn a_file_takes_the_place_of_flags() {
        let file = format!(
            "{HEAD}bindAddress: '::'\nclusterCIDR: 10.1.0.0/16,fd01::/48\nmetricsBindAddress: 0.0.0.0\niptables:\n  \
             masqueradeAll: true\n  syncPeriod: 1m\nnodePortAddresses: [10.0.0.0/8]\nfeatureGates:\n  \
             ProxyTerminatingEndpoints: false\nconntrack: null\n"
        );
        let configuration = load("--masquerade-all=false --hostname-override here", Some(&file)).unwrap();
        assert!(configuration.bool("iptables.masqueradeAll"));
        assert_eq!(configuration.text("hostnameOverride"), "here");
        assert_eq!(configuration.text("healthzBindAddress"), "[::]:10256");
        assert_eq!(configuration.text("metricsBindAddress"), "0.0.0.0:10249");
        assert_eq!(configuration.duration("iptables.syncPeriod"), Duration::from_secs(60));
        assert_eq!(configuration.gate("ProxyTerminatingEndpoints"), Some(false));
        assert_eq!(configuration.node_port_networks(), ["10.0.0.0/8".parse().unwrap()]);
        let networks = ["10.1.0.0/16", "fd01::/48"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(configuration.detect_local(), DetectLocal::ClusterNetworks(networks));
    }

    #[test]
    fn flags_are_read_in_upstreams_syntax() {
        let configuration = load(
            "--cluster-cidr=10.1.0.0/16 --proxy-mode ipvs --masquerade-all --kube_api_qps 7.5 --healthz-port 0 \
             --nodeport-addresses 127.0.0.0/8,0.0.0.0/0 --detect-local-mode=NodeCIDR --conntrack-min=0",
            None,
        )
        .unwrap();
        assert_eq!(configuration.address("healthzBindAddress"), None);
        assert!(configuration.bool("iptables.masqueradeAll"));
        assert_eq!(
            (configuration.float("clientConnection.qps"), configuration.int("conntrack.min")),
            (7.5, 0)
        );
        assert_eq!(configuration.node_port_networks(), ["0.0.0.0/0".parse().unwrap()]);
        assert_eq!(configuration.detect_local(), DetectLocal::NodeNetworks);
    }

    #[test]
    fn all_mistakes_are_reported() {
        let check = |result: Result<Configuration, Vec<String>>, parts: &[&str]| {
            let errors = result.unwrap_err();
            assert_eq!(errors.len(), parts.len(), "{errors:?}");
            for (error, part) in errors.iter().zip(parts) {
                assert!(error.contains(part), "{part} is not in {error}");
            }
        };
        check(
            load("--nonsense --iptables-masquerade-bit x word --config", None),
            &[
                "unknown flag: --nonsense",
                "invalid argument \"x\" for \"--iptables-masquerade-bit\" flag",
                "unknown argument \"word\"",
                "flag needs an argument: --config",
            ],
        );
        check(
            load(
                "--iptables-masquerade-bit 32 --cluster-cidr 10.0.0.0/8,11.0.0.0/8 --proxy-mode userspace",
                None,
            ),
            &["DualStack CIDR", "must be within the range [0, 31]", "ProxyMode"],
        );
        check(
            load("", Some(&format!("{HEAD}mode: 1\nunknown: x\nipvs:\n  other: y\n"))),
            &["ipvs.other", "mode", "unknown"],
        );
        check(load("", Some("kind: KubeProxyConfiguration")), &["apiVersion and kind must be"]);
    }
}
