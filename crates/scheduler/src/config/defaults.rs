//! A configuration from a decoded tree, with defaults for absent fields.

use super::args::{Args, ArgsKind, set_defaults};
use super::extender::{Extender, ExtenderTlsConfig, ManagedResource};
use super::extension_point::ExtensionPoint;
use super::gates::Gates;
use super::plugins::{EnabledPlugin, PluginSelection, PluginSelections, default_plugins};
use super::read::{boolean, duration, float, int32, int64, optional_text, text};
use super::types::{ClientConnection, Configuration, LeaderElection, PluginConfig, ProfileConfig};
use super::version::Version;
use crate::framework::Profile;
use names::Names;
use schema::Value;

const SECOND: i64 = 1_000_000_000;

/// The configuration of a tree. `args` has the arguments of each profile's plugins, in the order of the tree.
pub(super) fn build(
    value: &Value,
    args: Vec<Vec<Args>>,
    version: Version,
    names: &Names,
    gates: Gates,
) -> Configuration {
    let enable_profiling = boolean(value, "enableProfiling").unwrap_or(true);
    let contention = boolean(value, "enableContentionProfiling");
    let empty = Value::map();
    let part = |field: &str| value.at(&[field]).unwrap_or(&empty);
    Configuration {
        version,
        parallelism: int32(value, "parallelism").unwrap_or(16),
        leader_election: leader_election(part("leaderElection"), names),
        client_connection: client_connection(part("clientConnection"), names),
        healthz_bind_address: text(value, "healthzBindAddress"),
        metrics_bind_address: text(value, "metricsBindAddress"),
        enable_profiling,
        enable_contention_profiling: contention.unwrap_or(enable_profiling),
        percentage_of_nodes_to_score: Some(int32(value, "percentageOfNodesToScore").unwrap_or(0)),
        pod_initial_backoff_seconds: int64(value, "podInitialBackoffSeconds").unwrap_or(1),
        pod_max_backoff_seconds: int64(value, "podMaxBackoffSeconds").unwrap_or(10),
        profiles: profiles(value.items(&["profiles"]), args, version, gates),
        extenders: value.items(&["extenders"]).iter().map(extender).collect(),
    }
}

/// A text, or its default when it is empty.
fn text_or(value: &Value, field: &str, default: String) -> String {
    Some(text(value, field)).filter(|text| !text.is_empty()).unwrap_or(default)
}

fn leader_election(value: &Value, names: &Names) -> LeaderElection {
    let nanos = |field: &str, default: i64| match duration(value, field) {
        0 => default * SECOND,
        nanos => nanos,
    };
    LeaderElection {
        leader_elect: boolean(value, "leaderElect").unwrap_or(true),
        lease_duration_nanos: nanos("leaseDuration", 15),
        renew_deadline_nanos: nanos("renewDeadline", 10),
        retry_period_nanos: nanos("retryPeriod", 2),
        resource_lock: text_or(value, "resourceLock", "leases".to_owned()),
        resource_name: text_or(value, "resourceName", format!("{}-scheduler", names.prefix)),
        resource_namespace: text_or(value, "resourceNamespace", names.system_namespace()),
    }
}

fn client_connection(value: &Value, names: &Names) -> ClientConnection {
    let qps = float(value, "qps");
    let burst = int32(value, "burst").unwrap_or(0);
    ClientConnection {
        kubeconfig: text(value, "kubeconfig"),
        accept_content_types: text(value, "acceptContentTypes"),
        content_type: text_or(value, "contentType", names.protobuf_media_type()),
        qps: if qps == 0.0 { 50.0 } else { qps },
        burst: if burst == 0 { 100 } else { burst },
    }
}

fn profiles(values: &[Value], args: Vec<Vec<Args>>, version: Version, gates: Gates) -> Vec<ProfileConfig> {
    if values.is_empty() {
        return vec![profile(&Value::map(), Vec::new(), true, version, gates)];
    }
    let is_only = values.len() == 1;
    let profiles = values.iter().zip(args);
    profiles.map(|(value, args)| profile(value, args, is_only, version, gates)).collect()
}

fn profile(value: &Value, args: Vec<Args>, is_only: bool, version: Version, gates: Gates) -> ProfileConfig {
    // several profiles need names of their own, which validation demands
    let default_name = if is_only { Profile::default().scheduler_name } else { String::new() };
    let mut plugins = default_plugins(version, gates);
    if let Some(custom) = value.at(&["plugins"]) {
        plugins = plugins.merge(&selections(custom), version);
    }
    let configs = value.items(&["pluginConfig"]).iter().zip(args);
    let mut plugin_config: Vec<PluginConfig> =
        configs.map(|(config, args)| PluginConfig { name: text(config, "name"), args }).collect();
    add_default_args(&plugins, &mut plugin_config, version, gates);
    ProfileConfig {
        scheduler_name: optional_text(value, "schedulerName").unwrap_or(default_name),
        percentage_of_nodes_to_score: int32(value, "percentageOfNodesToScore"),
        plugins,
        plugin_config,
    }
}

/// Adds the default arguments of enabled plugins that have none.
fn add_default_args(
    plugins: &PluginSelections,
    configs: &mut Vec<PluginConfig>,
    version: Version,
    gates: Gates,
) {
    let points = ExtensionPoint::ALL.into_iter().filter(|point| match point {
        ExtensionPoint::MultiPoint => version != Version::V1beta2,
        ExtensionPoint::PreEnqueue => version == Version::V1,
        _ => true,
    });
    for name in plugins.names(points) {
        let Some(kind) = ArgsKind::of_plugin(name) else { continue };
        if configs.iter().all(|config| config.name != name) {
            let mut args = Value::map();
            set_defaults(kind, &mut args, gates);
            configs.push(PluginConfig { name: name.to_owned(), args: Args::InTree(kind, args) });
        }
    }
}

fn selections(value: &Value) -> PluginSelections {
    let mut selections = PluginSelections::default();
    for point in ExtensionPoint::ALL {
        let list = |field: &str| value.items(&[point.field(), field]).iter().map(enabled_plugin).collect();
        *selections.get_mut(point) = PluginSelection { enabled: list("enabled"), disabled: list("disabled") };
    }
    selections
}

fn enabled_plugin(value: &Value) -> EnabledPlugin {
    EnabledPlugin { name: text(value, "name"), weight: int32(value, "weight").unwrap_or(0) }
}

fn extender(value: &Value) -> Extender {
    let is = |field: &str| boolean(value, field).unwrap_or(false);
    Extender {
        url_prefix: text(value, "urlPrefix"),
        filter_verb: text(value, "filterVerb"),
        preempt_verb: text(value, "preemptVerb"),
        prioritize_verb: text(value, "prioritizeVerb"),
        weight: int64(value, "weight").unwrap_or(0),
        bind_verb: text(value, "bindVerb"),
        enable_https: is("enableHTTPS"),
        tls_config: value.at(&["tlsConfig"]).map(tls_config),
        http_timeout_nanos: duration(value, "httpTimeout"),
        node_cache_capable: is("nodeCacheCapable"),
        managed_resources: value.items(&["managedResources"]).iter().map(managed_resource).collect(),
        ignorable: is("ignorable"),
    }
}

fn managed_resource(value: &Value) -> ManagedResource {
    let ignored_by_scheduler = boolean(value, "ignoredByScheduler").unwrap_or(false);
    ManagedResource { name: text(value, "name"), ignored_by_scheduler }
}

fn tls_config(value: &Value) -> ExtenderTlsConfig {
    ExtenderTlsConfig {
        insecure: boolean(value, "insecure").unwrap_or(false),
        server_name: text(value, "serverName"),
        cert_file: text(value, "certFile"),
        key_file: text(value, "keyFile"),
        ca_file: text(value, "caFile"),
        cert_data: text(value, "certData"),
        key_data: text(value, "keyData"),
        ca_data: text(value, "caData"),
    }
}
