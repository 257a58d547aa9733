//! Settings of the kernel that the proxy's rules rely on, and those of connection tracking in its configuration.

use std::path::Path;

use super::configuration::Configuration;

/// A setting below `/proc/sys/net`, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSetting {
    pub path: &'static str,
    pub value: u64,
    /// The setting is only raised.
    is_minimum: bool,
}

/// The settings of a configuration on a machine with so many CPUs.
pub fn kernel_settings(configuration: &Configuration, cpus: u64) -> Vec<KernelSetting> {
    let setting = |path, value| KernelSetting { path, value, is_minimum: false };
    let number = |path: &str| u64::try_from(configuration.int(path)).unwrap_or(0);
    let mut settings = Vec::new();
    if configuration.bool("iptables.localhostNodePorts") && serves_loopback(configuration) {
        // packets of 127.0.0.1 leave by other interfaces, with the node's address
        settings.push(setting("ipv4/conf/all/route_localnet", 1));
    }
    let per_core = number("conntrack.maxPerCore");
    if per_core > 0 {
        let value = (per_core * cpus).max(number("conntrack.min"));
        settings.push(KernelSetting { is_minimum: true, ..setting("netfilter/nf_conntrack_max", value) });
    }
    for (field, path) in [
        ("conntrack.tcpEstablishedTimeout", "netfilter/nf_conntrack_tcp_timeout_established"),
        ("conntrack.tcpCloseWaitTimeout", "netfilter/nf_conntrack_tcp_timeout_close_wait"),
    ] {
        let seconds = configuration.duration(field).as_secs();
        if seconds > 0 {
            settings.push(setting(path, seconds));
        }
    }
    settings
}

fn serves_loopback(configuration: &Configuration) -> bool {
    let networks = configuration.node_port_networks();
    networks.is_empty() || networks.iter().any(|network| network.contains([127, 0, 0, 1].into()))
}

/// Applies settings below a folder, `/proc/sys/net`. A container often may not, so failures are logged.
pub fn apply(folder: &Path, settings: &[KernelSetting]) {
    for KernelSetting { path, value, is_minimum } in settings {
        let file = folder.join(path);
        let present = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if present.is_some_and(|present| present == *value || *is_minimum && present > *value) {
            continue;
        }
        match std::fs::write(&file, value.to_string()) {
            Ok(()) => tracing::info!(path, value, "changed a setting of the kernel"),
            Err(error) => tracing::warn!(%error, path, value, "cannot change a setting of the kernel"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::configuration::Flags;
    use names::Names;

    fn settings(arguments: &[&str]) -> Vec<(&'static str, u64)> {
        let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
        let flags = Flags::parse(&arguments).unwrap();
        let configuration = Configuration::load(&flags, None, &Names::kubernetes()).unwrap();
        kernel_settings(&configuration, 8).into_iter().map(|it| (it.path, it.value)).collect()
    }

    #[test]
    fn settings_follow_the_configuration() {
        assert_eq!(
            settings(&[]),
            [
                ("ipv4/conf/all/route_localnet", 1),
                ("netfilter/nf_conntrack_max", 262_144),
                ("netfilter/nf_conntrack_tcp_timeout_established", 86_400),
                ("netfilter/nf_conntrack_tcp_timeout_close_wait", 3600),
            ]
        );
        let off = ["--nodeport-addresses=10.0.0.0/8", "--conntrack-max-per-core=0"];
        let timeouts = ["--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=1m"];
        assert_eq!(
            settings(&[off, timeouts].concat()),
            [("netfilter/nf_conntrack_tcp_timeout_close_wait", 60)]
        );
    }

    #[test]
    fn minimums_are_only_raised() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("max");
        let setting = |value| KernelSetting { path: "max", value, is_minimum: true };
        for (present, expected) in [("100\n", "200"), ("300\n", "300\n")] {
            std::fs::write(&file, present).unwrap();
            apply(folder.path(), &[setting(200)]);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        }
    }
}
