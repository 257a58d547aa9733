//! The flags of upstream's proxy, each with its effect here.

use super::configuration::{FlagField, flag_fields};

/// A flag, for the help text and the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagRow {
    pub name: &'static str,
    /// The type of the value; empty if the flag takes none.
    pub value: &'static str,
    pub default: &'static str,
    /// What the flag does, or why it has no effect.
    pub effect: Result<&'static str, &'static str>,
}

impl FlagRow {
    pub fn description(&self) -> String {
        match self.effect {
            Ok(effect) => effect.to_owned(),
            Err(why) => format!("No effect: {why}"),
        }
    }
}

const NO_IPVS: Result<&str, &str> = Err("there is no IPVS mode");
const NO_MACHINE: Result<&str, &str> = Err("the proxy reads no identity of the machine");

const EFFECTS: &[(&str, Result<&str, &str>)] = &[
    ("bind-address", Ok("An address whose family is that of the default addresses for health and metrics")),
    ("bind-address-hard-fail", Ok("End if the port for health or for metrics cannot be opened")),
    ("boot-id-file", NO_MACHINE),
    ("cleanup", Ok("Delete the rules of services and quit")),
    (
        "cluster-cidr",
        Ok(
            "The networks of all pods, one of each family; traffic from elsewhere to cluster IPs gets the node's address",
        ),
    ),
    ("config", Ok("The configuration file; beside it, of the other fields only --hostname-override counts")),
    ("config-sync-period", Err("the proxy follows every change, so there is nothing to read again")),
    (
        "conntrack-max-per-core",
        Ok("The limit of tracked connections for each CPU; 0 leaves the kernel's limit"),
    ),
    ("conntrack-min", Ok("The least limit of tracked connections, whatever the number of CPUs")),
    ("conntrack-tcp-timeout-close-wait", Ok("How long TCP connections that wait to be closed are tracked")),
    (
        "conntrack-tcp-timeout-established",
        Ok("How long idle TCP connections are tracked; 0 leaves the kernel's time"),
    ),
    (
        "detect-local-mode",
        Ok(
            "How pods of this node are recognized: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        ),
    ),
    ("feature-gates", Ok("Feature gates; ProxyTerminatingEndpoints has an effect")),
    ("healthz-bind-address", Ok("The address of /healthz")),
    ("healthz-port", Ok("Deprecated: the port of /healthz, 0 for none")),
    ("help", Ok("Print the flags and quit")),
    ("hostname-override", Ok("The name of this node [default: the host name]")),
    ("iptables-localhost-nodeports", Ok("Serve node ports at 127.0.0.0/8, too")),
    ("iptables-masquerade-bit", Ok("The bit of the packet mark for traffic that gets the node's address")),
    ("iptables-min-sync-period", Err("changes are written at once, those that arrive meanwhile together")),
    (
        "iptables-sync-period",
        Ok(
            "How often the proxy looks whether another program changed its rules; two periods late is unhealthy",
        ),
    ),
    ("ipvs-exclude-cidrs", NO_IPVS),
    ("ipvs-min-sync-period", NO_IPVS),
    ("ipvs-scheduler", NO_IPVS),
    ("ipvs-strict-arp", NO_IPVS),
    ("ipvs-sync-period", NO_IPVS),
    ("ipvs-tcp-timeout", NO_IPVS),
    ("ipvs-tcpfin-timeout", NO_IPVS),
    ("ipvs-udp-timeout", NO_IPVS),
    ("kube-api-burst", Ok("How many requests may follow each other at once")),
    ("kube-api-content-type", Err("the format of requests is that of this program")),
    ("kube-api-qps", Ok("Requests per second")),
    ("kubeconfig", Ok("The kubeconfig of the API server")),
    ("log-flush-frequency", Err("the log is not buffered")),
    ("machine-id-file", NO_MACHINE),
    ("masquerade-all", Ok("Give the node's address to all traffic to cluster IPs")),
    ("master", Ok("The URL of the API server, in place of the one in the kubeconfig")),
    ("metrics-bind-address", Ok("The address of /metrics, /configz and /proxyMode")),
    ("metrics-port", Ok("Deprecated: the port of /metrics, 0 for none")),
    (
        "nodeport-addresses",
        Ok("Networks of the node's addresses at which node ports are served [default: all]"),
    ),
    ("oom-score-adj", Ok("The OOM score of the process")),
    ("pod-bridge-interface", Ok("The interface of pods, for --detect-local-mode=BridgeInterface")),
    (
        "pod-interface-name-prefix",
        Ok("The start of their interfaces' names, for --detect-local-mode=InterfaceNamePrefix"),
    ),
    ("profiling", Ok("Serve debug pages below /debug/pprof/ at the address of metrics")),
    ("proxy-mode", Err("rules are written by nftables in every mode")),
    ("proxy-port-range", Err("there is no userspace mode")),
    ("show-hidden-metrics-for-version", Err("no metric of the proxy is hidden")),
    ("v", Ok("The verbosity of the log")),
    ("version", Ok("Print the version and quit")),
    ("vmodule", Ok("The verbosity of modules: pattern=level,...")),
    ("write-config-to", Ok("Write the whole configuration to a file and quit")),
];

/// All flags, sorted.
pub fn flag_rows() -> Vec<FlagRow> {
    let fields: Vec<FlagField> = flag_fields().collect();
    let row = |(name, effect): (&'static str, Result<&'static str, &'static str>)| {
        let field = fields.iter().find(|field| field.flag == name);
        let (value, default) =
            field.map_or_else(|| (own_value(name), ""), |field| (field.value, field.default));
        FlagRow { name, value, default, effect }
    };
    EFFECTS.iter().copied().map(row).collect()
}

/// The type of the value of a flag that sets no field.
fn own_value(name: &str) -> &'static str {
    match name {
        "cleanup" | "help" | "version" => "",
        "boot-id-file" | "config" | "machine-id-file" | "write-config-to" => "file",
        "healthz-port" | "metrics-port" => "port",
        "log-flush-frequency" => "duration",
        "master" => "url",
        "v" => "level",
        "vmodule" => "list",
        _ => "text",
    }
}

/// The help text.
pub fn help() -> String {
    let mut text =
        "The service proxy: addresses of services lead to their endpoints, by nf_tables.\n\nFlags:\n"
            .to_owned();
    for row in flag_rows() {
        let default =
            if row.default.is_empty() { String::new() } else { format!(" [default: {}]", row.default) };
        text.push_str(&format!("  --{:<36} {}{default}\n", row.name, row.description()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::configuration::Flags;

    #[test]
    fn every_flag_of_upstream_is_read_and_described() {
        let rows = flag_rows();
        assert!(rows.is_sorted_by_key(|row| row.name));
        for field in flag_fields() {
            assert!(rows.iter().any(|row| row.name == field.flag), "{} has no description", field.flag);
        }
        for row in &rows {
            let value = match row.default {
                "" => "1",
                default => default,
            };
            let read = ["1", "true", "1s", "A=true", "30-40"]
                .into_iter()
                .chain([value])
                .any(|value| Flags::parse(&[format!("--{}={value}", row.name)]).is_ok());
            assert!(read, "--{} is unknown", row.name);
        }
        let help = help();
        let line = help.lines().find(|line| line.trim_start().starts_with("--ipvs-scheduler "));
        assert!(line.is_some_and(|line| line.ends_with(" No effect: there is no IPVS mode")), "{help}");
    }
}
