//! From a [`Configuration`] back to text: a file of its version, or the form of `/configz`.

use super::args::Args;
use super::extender::{Extender, ExtenderTlsConfig};
use super::extension_point::ExtensionPoint;
use super::plugins::{EnabledPlugin, PluginSelections};
use super::types::{ClientConnection, Configuration, LeaderElection, PluginConfig, ProfileConfig};
use super::version::Version;
use names::Names;
use schema::time::format_duration;
use schema::{Map, Value};

impl Configuration {
    /// The file of `--write-config-to`: the configuration with its completed profiles, in YAML.
    pub fn to_yaml(&self, names: &Names) -> String {
        let completed = Configuration { profiles: self.completed_profiles(), ..self.clone() };
        schema::yaml::emit(&completed.to_value(names))
    }

    /// The configuration as an object of its version.
    pub fn to_value(&self, names: &Names) -> Value {
        let version = self.version;
        let mut map = Map::new();
        map.insert("apiVersion", version.api_version(names));
        map.insert("kind", "KubeSchedulerConfiguration");
        map.insert("parallelism", i64::from(self.parallelism));
        map.insert("leaderElection", leader_election(&self.leader_election));
        map.insert("clientConnection", client_connection(&self.client_connection));
        if version == Version::V1beta2 {
            map.insert("healthzBindAddress", &*self.healthz_bind_address);
            map.insert("metricsBindAddress", &*self.metrics_bind_address);
        }
        map.insert("enableProfiling", self.enable_profiling);
        map.insert("enableContentionProfiling", self.enable_contention_profiling);
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            map.insert("percentageOfNodesToScore", i64::from(percentage));
        }
        map.insert("podInitialBackoffSeconds", self.pod_initial_backoff_seconds);
        map.insert("podMaxBackoffSeconds", self.pod_max_backoff_seconds);
        let profiles: Vec<Value> = self.profiles.iter().map(|it| profile(it, version, names)).collect();
        insert_list(&mut map, "profiles", profiles);
        insert_list(&mut map, "extenders", self.extenders.iter().map(extender).collect());
        map.into()
    }

    /// The answer of `/configz`: upstream shows its internal type, whose fields have capitals.
    pub fn to_configz(&self, names: &Names) -> Value {
        let mut map = Map::new();
        map.insert("Parallelism", i64::from(self.parallelism));
        map.insert("LeaderElection", capitalized(&leader_election(&self.leader_election)));
        map.insert("ClientConnection", capitalized(&client_connection(&self.client_connection)));
        map.insert("HealthzBindAddress", &*self.healthz_bind_address);
        map.insert("MetricsBindAddress", &*self.metrics_bind_address);
        map.insert("EnableProfiling", self.enable_profiling);
        map.insert("EnableContentionProfiling", self.enable_contention_profiling);
        map.insert("PercentageOfNodesToScore", optional(self.percentage_of_nodes_to_score));
        map.insert("PodInitialBackoffSeconds", self.pod_initial_backoff_seconds);
        map.insert("PodMaxBackoffSeconds", self.pod_max_backoff_seconds);
        map.insert("Profiles", self.profiles.iter().map(configz_profile).collect::<Vec<Value>>());
        let extenders: Vec<Value> = self.extenders.iter().map(configz_extender).collect();
        map.insert("Extenders", list_or_null(extenders));
        map.insert("apiVersion", self.version.api_version(names));
        let mut whole = Map::new();
        whole.insert("componentconfig", map);
        whole.into()
    }
}

fn insert_list(map: &mut Map, field: &'static str, items: Vec<Value>) {
    if !items.is_empty() {
        map.insert(field, items);
    }
}

fn insert_text(map: &mut Map, field: &'static str, text: &str) {
    if !text.is_empty() {
        map.insert(field, text);
    }
}

fn insert_true(map: &mut Map, field: &'static str, is: bool) {
    if is {
        map.insert(field, true);
    }
}

fn leader_election(election: &LeaderElection) -> Value {
    let mut map = Map::new();
    map.insert("leaderElect", election.leader_elect);
    map.insert("leaseDuration", format_duration(election.lease_duration_nanos));
    map.insert("renewDeadline", format_duration(election.renew_deadline_nanos));
    map.insert("retryPeriod", format_duration(election.retry_period_nanos));
    map.insert("resourceLock", &*election.resource_lock);
    map.insert("resourceName", &*election.resource_name);
    map.insert("resourceNamespace", &*election.resource_namespace);
    map.into()
}

fn client_connection(connection: &ClientConnection) -> Value {
    let mut map = Map::new();
    map.insert("kubeconfig", &*connection.kubeconfig);
    map.insert("acceptContentTypes", &*connection.accept_content_types);
    map.insert("contentType", &*connection.content_type);
    map.insert("qps", number(connection.qps));
    map.insert("burst", i64::from(connection.burst));
    map.into()
}

/// A whole number is written without a fraction.
fn number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

fn profile(profile: &ProfileConfig, version: Version, names: &Names) -> Value {
    let mut map = Map::new();
    map.insert("schedulerName", &*profile.scheduler_name);
    if let Some(percentage) = profile.percentage_of_nodes_to_score.filter(|_| version == Version::V1) {
        map.insert("percentageOfNodesToScore", i64::from(percentage));
    }
    map.insert("plugins", selections(&profile.plugins));
    let configs = profile.plugin_config.iter().map(|config| plugin_config(config, version, names));
    insert_list(&mut map, "pluginConfig", configs.collect());
    map.into()
}

fn selections(plugins: &PluginSelections) -> Value {
    let mut map = Map::new();
    for point in ExtensionPoint::ALL {
        let selection = plugins.get(point);
        let mut lists = Map::new();
        insert_list(&mut lists, "enabled", selection.enabled.iter().map(enabled_plugin).collect());
        insert_list(&mut lists, "disabled", selection.disabled.iter().map(enabled_plugin).collect());
        map.insert(point.field(), lists);
    }
    map.into()
}

fn enabled_plugin(plugin: &EnabledPlugin) -> Value {
    let mut map = Map::new();
    map.insert("name", &*plugin.name);
    map.insert("weight", i64::from(plugin.weight));
    map.into()
}

fn plugin_config(config: &PluginConfig, version: Version, names: &Names) -> Value {
    let mut map = Map::new();
    map.insert("name", &*config.name);
    let args = match &config.args {
        Args::OutOfTree(args) => args.clone(),
        Args::InTree(kind, args) => {
            let mut args = args.clone();
            args.set(&["apiVersion"], version.api_version(names));
            args.set(&["kind"], kind.kind());
            args
        }
    };
    map.insert("args", args);
    map.into()
}

fn extender(extender: &Extender) -> Value {
    let mut map = Map::new();
    map.insert("urlPrefix", &*extender.url_prefix);
    insert_text(&mut map, "filterVerb", &extender.filter_verb);
    insert_text(&mut map, "preemptVerb", &extender.preempt_verb);
    insert_text(&mut map, "prioritizeVerb", &extender.prioritize_verb);
    if extender.weight != 0 {
        map.insert("weight", extender.weight);
    }
    insert_text(&mut map, "bindVerb", &extender.bind_verb);
    insert_true(&mut map, "enableHTTPS", extender.enable_https);
    if let Some(tls) = &extender.tls_config {
        map.insert("tlsConfig", tls_config(tls));
    }
    map.insert("httpTimeout", format_duration(extender.http_timeout_nanos));
    insert_true(&mut map, "nodeCacheCapable", extender.node_cache_capable);
    let resources = extender.managed_resources.iter().map(|resource| {
        let mut map = Map::new();
        map.insert("name", &*resource.name);
        insert_true(&mut map, "ignoredByScheduler", resource.ignored_by_scheduler);
        map.into()
    });
    insert_list(&mut map, "managedResources", resources.collect());
    insert_true(&mut map, "ignorable", extender.ignorable);
    map.into()
}

fn tls_config(tls: &ExtenderTlsConfig) -> Value {
    let mut map = Map::new();
    insert_true(&mut map, "insecure", tls.insecure);
    insert_text(&mut map, "serverName", &tls.server_name);
    insert_text(&mut map, "certFile", &tls.cert_file);
    insert_text(&mut map, "keyFile", &tls.key_file);
    insert_text(&mut map, "caFile", &tls.ca_file);
    insert_text(&mut map, "certData", &tls.cert_data);
    insert_text(&mut map, "keyData", &tls.key_data);
    insert_text(&mut map, "caData", &tls.ca_data);
    map.into()
}

fn optional(number: Option<i32>) -> Value {
    number.map_or(Value::Null, |number| Value::Int(i64::from(number)))
}

fn list_or_null(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::List(items) }
}

/// Field names as Go writes them: initials in capitals.
fn capital(name: &str) -> String {
    match name {
        "qps" => "QPS".to_owned(),
        name => {
            let mut letters = name.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

/// The tree with capitalized field names.
fn capitalized(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            map.iter().map(|(name, value)| (capital(name).into(), capitalized(value))).collect::<Map>().into()
        }
        Value::List(items) => Value::List(items.iter().map(capitalized).collect()),
        other => other.clone(),
    }
}

fn configz_profile(profile: &ProfileConfig) -> Value {
    let mut plugins = Map::new();
    for point in ExtensionPoint::ALL {
        let selection = profile.plugins.get(point);
        let list = |plugins: &[EnabledPlugin]| {
            list_or_null(plugins.iter().map(|plugin| capitalized(&enabled_plugin(plugin))).collect())
        };
        let mut lists = Map::new();
        lists.insert("Enabled", list(&selection.enabled));
        lists.insert("Disabled", list(&selection.disabled));
        plugins.insert(point.name(), lists);
    }
    let configs = profile.plugin_config.iter().map(|config| {
        let mut map = Map::new();
        map.insert("Name", &*config.name);
        map.insert("Args", configz_args(&config.args));
        map.into()
    });
    let mut map = Map::new();
    map.insert("SchedulerName", &*profile.scheduler_name);
    map.insert("PercentageOfNodesToScore", optional(profile.percentage_of_nodes_to_score));
    map.insert("Plugins", plugins);
    map.insert("PluginConfig", list_or_null(configs.collect()));
    map.into()
}

/// Arguments of the internal types: capitals, and null for absent lists and parts. Parts that are types of the API keep
/// their names.
fn configz_args(args: &Args) -> Value {
    use super::args::ArgsKind;
    let Args::InTree(kind, value) = args else {
        let Args::OutOfTree(value) = args else { return Value::Null };
        return value.clone();
    };
    let mut all = match kind {
        ArgsKind::NodeAffinity | ArgsKind::PodTopologySpread => Map::new(),
        _ => match capitalized(value) {
            Value::Map(map) => map,
            _ => Map::new(),
        },
    };
    let absent: &[&'static str] = match kind {
        ArgsKind::DefaultPreemption | ArgsKind::InterPodAffinity => &[],
        ArgsKind::NodeAffinity => {
            all.insert("AddedAffinity", value.at(&["addedAffinity"]).cloned().unwrap_or_default());
            &[]
        }
        ArgsKind::PodTopologySpread => {
            let constraints = value.at(&["defaultConstraints"]).cloned().unwrap_or_default();
            all.insert("DefaultConstraints", constraints);
            all.insert("DefaultingType", value.text(&["defaultingType"]));
            &[]
        }
        ArgsKind::NodeResourcesBalancedAllocation => &["Resources"],
        ArgsKind::NodeResourcesFit => {
            if let Some(strategy) = all.get_mut("ScoringStrategy").and_then(Value::as_map_mut) {
                strategy.entry("RequestedToCapacityRatio");
            }
            &["IgnoredResources", "IgnoredResourceGroups", "ScoringStrategy"]
        }
        ArgsKind::VolumeBinding => &["Shape"],
    };
    for field in absent {
        all.entry(*field);
    }
    all.into()
}

fn configz_extender(extender: &Extender) -> Value {
    let mut map = Map::new();
    map.insert("URLPrefix", &*extender.url_prefix);
    map.insert("FilterVerb", &*extender.filter_verb);
    map.insert("PreemptVerb", &*extender.preempt_verb);
    map.insert("PrioritizeVerb", &*extender.prioritize_verb);
    map.insert("Weight", extender.weight);
    map.insert("BindVerb", &*extender.bind_verb);
    map.insert("EnableHTTPS", extender.enable_https);
    let tls = extender.tls_config.as_ref().map(configz_tls_config);
    map.insert("TLSConfig", tls.unwrap_or_default());
    map.insert("HTTPTimeout", format_duration(extender.http_timeout_nanos));
    map.insert("NodeCacheCapable", extender.node_cache_capable);
    let resources = extender.managed_resources.iter().map(|resource| {
        let mut map = Map::new();
        map.insert("Name", &*resource.name);
        map.insert("IgnoredByScheduler", resource.ignored_by_scheduler);
        map.into()
    });
    map.insert("ManagedResources", list_or_null(resources.collect()));
    map.insert("Ignorable", extender.ignorable);
    map.into()
}

fn configz_tls_config(tls: &ExtenderTlsConfig) -> Value {
    let bytes = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
    let mut map = Map::new();
    map.insert("Insecure", tls.insecure);
    map.insert("ServerName", &*tls.server_name);
    map.insert("CertFile", &*tls.cert_file);
    map.insert("KeyFile", &*tls.key_file);
    map.insert("CAFile", &*tls.ca_file);
    map.insert("CertData", bytes(&tls.cert_data));
    // upstream shows it; a key has no place in an answer
    map.insert("KeyData", Value::Null);
    map.insert("CAData", bytes(&tls.ca_data));
    map.into()
}
