//! Validation of a configuration: all mistakes, in upstream's words and order.

use super::error::ConfigError;
use super::extender::Extender;
use super::extension_point::ExtensionPoint;
use super::gates::Gates;
use super::plugins::{EnabledPlugin, PluginSelection};
use super::types::{Configuration, LeaderElection, ProfileConfig};
use super::validate_args::{self, Errors};
use super::version::Version;
use names::Names;
use schema::format::{ip, qualified_name};
use schema::problem::quoted;
use std::collections::{HashMap, HashSet};

impl Configuration {
    /// Checks all values.
    pub fn validate(&self, names: &Names, gates: Gates) -> Result<(), ConfigError> {
        let mut errors = Errors::default();
        if self.client_connection.burst < 0 {
            errors.invalid("clientConnection.burst", self.client_connection.burst, "must be non-negative");
        }
        validate_leader_election(&self.leader_election, &mut errors);
        if self.parallelism <= 0 {
            let detail = "should be an integer value greater than zero";
            errors.invalid("parallelism", self.parallelism, detail);
        }
        self.validate_profiles(names, gates, &mut errors);
        validate_address("healthzBindAddress", &self.healthz_bind_address, &mut errors);
        validate_address("metricsBindAddress", &self.metrics_bind_address, &mut errors);
        validate_percentage("percentageOfNodesToScore", self.percentage_of_nodes_to_score, &mut errors);
        let (initial, max) = (self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds);
        if initial <= 0 {
            errors.invalid("podInitialBackoffSeconds", initial, "must be greater than 0");
        }
        if max < initial {
            let detail = "must be greater than or equal to PodInitialBackoffSeconds";
            errors.invalid("podMaxBackoffSeconds", max, detail);
        }
        validate_extenders(&self.extenders, names, &mut errors);
        errors.finish()
    }

    fn validate_profiles(&self, names: &Names, gates: Gates, errors: &mut Errors) {
        if self.profiles.is_empty() {
            errors.required("profiles", "");
        }
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (at, profile) in self.profiles.iter().enumerate() {
            let path = format!("profiles[{at}]");
            validate_profile(&path, profile, self.version, names, gates, errors);
            if let Some(other) = first.get(&*profile.scheduler_name) {
                let path = format!("{path}.schedulerName");
                errors.push(format!("{path}: Duplicate value: profiles[{other}].schedulerName"));
            }
            first.insert(&profile.scheduler_name, at);
        }
        validate_common_queue_sort(&self.profiles, errors);
    }
}

fn validate_leader_election(election: &LeaderElection, errors: &mut Errors) {
    if !election.leader_elect {
        return;
    }
    let lease = election.lease_duration_nanos;
    let renew = election.renew_deadline_nanos;
    let positive =
        [("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", election.retry_period_nanos)];
    for (field, nanos) in positive.into_iter().filter(|(_, nanos)| *nanos <= 0) {
        let path = format!("leaderElection.{field}");
        errors.invalid(&path, go_duration(nanos), "must be greater than zero");
    }
    if lease <= renew {
        let detail = "LeaseDuration must be greater than RenewDeadline";
        errors.invalid("leaderElection.leaseDuration", go_duration(renew), detail);
    }
    let required = [
        ("resourceLock", &election.resource_lock),
        ("resourceNamespace", &election.resource_namespace),
        ("resourceName", &election.resource_name),
    ];
    for (field, _) in required.into_iter().filter(|(_, text)| text.is_empty()) {
        errors.invalid(&format!("leaderElection.{field}"), "\"\"", format!("{field} is required"));
    }
}

/// A duration as upstream's messages show it.
fn go_duration(nanos: i64) -> String {
    format!("v1.Duration{{Duration:{nanos}}}")
}

fn validate_percentage(path: &str, percentage: Option<i32>, errors: &mut Errors) {
    if let Some(percentage) = percentage.filter(|it| !(0..=100).contains(it)) {
        errors.invalid(path, percentage, "not in valid range [0-100]");
    }
}

fn validate_profile(
    path: &str,
    profile: &ProfileConfig,
    version: Version,
    names: &Names,
    gates: Gates,
    errors: &mut Errors,
) {
    if profile.scheduler_name.is_empty() {
        errors.required(&format!("{path}.schedulerName"), "");
    }
    let percentage = format!("{path}.percentageOfNodesToScore");
    validate_percentage(&percentage, profile.percentage_of_nodes_to_score, errors);
    for point in ExtensionPoint::ALL.into_iter().filter(|point| *point != ExtensionPoint::MultiPoint) {
        for (at, plugin) in profile.plugins.get(point).enabled.iter().enumerate() {
            if is_removed(&plugin.name, version) {
                let path = format!("{path}.plugins.{}.enabled[{at}]", point.field());
                errors.invalid(&path, quoted(&plugin.name), removed(names));
            }
        }
    }
    let mut seen = HashSet::new();
    for (at, config) in profile.plugin_config.iter().enumerate() {
        let path = format!("{path}.pluginConfig[{at}]");
        if !seen.insert(&config.name) {
            errors.push(format!("{path}: Duplicate value: {}", quoted(&config.name)));
        }
        if is_removed(&config.name, version) {
            errors.invalid(&path, quoted(&config.name), removed(names));
        } else if let Some((kind, args)) = config.args.in_tree() {
            // upstream checks the others when it makes the plugin
            if kind != super::args::ArgsKind::NodeResourcesFit {
                validate_args::validate(kind, args, &format!("{path}.args."), gates, errors);
            }
        }
    }
}

/// Whether a version no longer has a plugin.
fn is_removed(plugin: &str, version: Version) -> bool {
    plugin == "SelectorSpread" && version == Version::V1
}

fn removed(names: &Names) -> String {
    let version = Version::V1.api_version(names);
    // upstream names the version of another group here
    format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {version:?})")
}

/// There is one queue, so all profiles sort it alike.
fn validate_common_queue_sort(profiles: &[ProfileConfig], errors: &mut Errors) {
    let Some((first, others)) = profiles.split_first() else { return };
    let common = first.plugins.get(ExtensionPoint::QueueSort);
    if common.enabled.len() > 1 {
        let detail = "only one queue sort plugin can be enabled";
        errors.invalid("profiles[0].plugins.queueSort.Enabled", common.enabled.len(), detail);
    }
    for (at, profile) in others.iter().enumerate() {
        let own = profile.plugins.get(ExtensionPoint::QueueSort);
        if own != common {
            let path = format!("profiles[{}].plugins.queueSort", at + 1);
            errors.invalid(&path, go_selection(own), "has to match for all profiles");
        }
    }
}

/// A selection as upstream's messages show it.
fn go_selection(selection: &PluginSelection) -> String {
    let list = |plugins: &[EnabledPlugin]| {
        if plugins.is_empty() {
            return "[]config.Plugin(nil)".to_owned();
        }
        let plugins: Vec<String> = plugins
            .iter()
            .map(|it| format!("config.Plugin{{Name:{}, Weight:{}}}", quoted(&it.name), it.weight))
            .collect();
        format!("[]config.Plugin{{{}}}", plugins.join(", "))
    };
    let (enabled, disabled) = (list(&selection.enabled), list(&selection.disabled));
    format!("config.PluginSet{{Enabled:{enabled}, Disabled:{disabled}}}")
}

fn validate_address(path: &str, address: &str, errors: &mut Errors) {
    if address.is_empty() {
        return;
    }
    match split_host_port(address) {
        Err(why) => errors.invalid(path, quoted(address), why),
        Ok((host, port)) => {
            let complaints = ip(host);
            if !complaints.is_empty() {
                errors.invalid(path, quoted(address), complaints.join(","));
            }
            if port != 0 {
                errors.invalid(path, quoted(address), "must be empty or with an explicit 0 port");
            }
        }
    }
}

fn split_host_port(address: &str) -> Result<(&str, i64), String> {
    let wrong = |why: &str| format!("address {address}: {why}");
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("missing port in address"))?;
    let host = match host.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').ok_or_else(|| {
            wrong(if address.contains(']') { "missing port in address" } else { "missing ']' in address" })
        })?,
        None if host.contains(':') => return Err(wrong("too many colons in address")),
        None => host,
    };
    if host.contains('[') {
        return Err(wrong("unexpected '[' in address"));
    }
    if host.contains(']') {
        return Err(wrong("unexpected ']' in address"));
    }
    let digits = port.strip_prefix(['+', '-']).unwrap_or(port);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    let number = port.parse().ok().filter(|_| is_number);
    Ok((host, number.ok_or_else(|| format!("strconv.Atoi: parsing {}: {why}", quoted(port)))?))
}

fn validate_extenders(extenders: &[Extender], names: &Names, errors: &mut Errors) {
    let mut resources = HashSet::new();
    for (at, extender) in extenders.iter().enumerate() {
        let path = format!("extenders[{at}]");
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let detail = "must have a positive weight applied to it";
            errors.invalid(&format!("{path}.weight"), extender.weight, detail);
        }
        for (index, resource) in extender.managed_resources.iter().enumerate() {
            let path = format!("{path}.managedResources[{index}].name");
            validate_extended_resource(&path, &resource.name, names, errors);
            if !resources.insert(&resource.name) {
                let detail = "duplicate extender managed resource name";
                errors.invalid(&path, quoted(&resource.name), detail);
            }
        }
    }
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("\"found {binders} extenders implementing bind\"");
        errors.invalid("extenders", found, "only one extender can implement bind");
    }
}

fn validate_extended_resource(path: &str, name: &str, names: &Names, errors: &mut Errors) {
    let complaints = qualified_name(name);
    for complaint in &complaints {
        errors.invalid(path, name, complaint);
    }
    let is_native = !name.contains('/') || name.contains(&names.well_known(""));
    let is_quota = name.starts_with("requests.");
    let is_extended = !is_native && !is_quota && qualified_name(&format!("requests.{name}")).is_empty();
    if complaints.is_empty() && !is_extended {
        errors.invalid(path, quoted(name), "is an invalid extended resource name");
    }
}
