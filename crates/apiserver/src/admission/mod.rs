//! Admission plugins: the chain that every write passes.
//!
//! Each plugin is one file and one line in [`PLUGINS`], in the order in which they run. First each may change or reject
//! an object (`mutate`), then the object is validated, then each may reject it (`validate`). A plugin runs only for the
//! operations that it declares (`interest`).

mod always;
mod always_pull_images;
mod certificates;
pub(crate) mod configuration;
mod creation;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod derived;
mod escalation;
mod event_rate_limit;
mod extended_resource_toleration;
mod image_policy_webhook;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod matching;
mod metrics;
mod namespace_auto_provision;
mod namespace_exists;
mod namespace_lifecycle;
mod node_restriction;
mod owner_references;
mod parts;
mod persistent_volume_claim_resize;
mod persistent_volume_label;
mod pod_node_selector;
pub(crate) mod pod_security;
mod pod_toleration_restriction;
mod policies;
pub(crate) mod policy_metrics;
mod priority;
mod resource_quota;
mod runtime_class;
mod security_context_deny;
mod service_account;
mod storage_object_in_use_protection;
mod sync_plugin;
mod taint_nodes_by_condition;
pub(crate) mod webhooks;

use creation::Creation;
use escalation::Escalation;
use event_rate_limit::EventRateLimit;
pub use kinds::core::pod::admit::TolerationSeconds;
pub(crate) use metrics::AdmissionMetrics;
use namespace_lifecycle::NamespaceLifecycle;
use node_restriction::NodeRestriction;
pub(crate) use parts::Parts;
use pod_node_selector::PodNodeSelector;
use pod_security::PodSecurity;
use pod_toleration_restriction::PodTolerationRestriction;
use rest::Admission;
use schema::Value;
use service_account::ServiceAccount;
use std::collections::BTreeMap;
use sync_plugin::SyncPlugin;

/// Options of admission.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Plugins to enable beyond the defaults.
    pub enable: Vec<String>,
    /// Default plugins to disable. Wins over `enable`.
    pub disable: Vec<String>,
    /// Configurations of plugins, by name.
    pub configuration: BTreeMap<String, Value>,
    /// Default tolerations of lost nodes, in seconds.
    pub toleration_seconds: TolerationSeconds,
}

/// Builds a plugin from its configuration; the error lists its problems.
type PluginFactory = fn(&Parts, &Value) -> Result<Box<dyn Admission>, String>;

/// A plugin that can be enabled and disabled.
pub struct Plugin {
    name: &'static str,
    /// Whether it is enabled by default.
    on: bool,
    make: PluginFactory,
}

impl Plugin {
    pub fn named(name: &str) -> Option<&'static Plugin> {
        PLUGINS.iter().find(|plugin| plugin.name == name)
    }

    /// The names of all, in the order in which they run.
    pub fn all() -> impl Iterator<Item = &'static str> {
        PLUGINS.iter().map(|plugin| plugin.name)
    }
}

/// Enabled by default.
const fn on(name: &'static str, make: PluginFactory) -> Plugin {
    Plugin { name, on: true, make }
}

/// Disabled by default.
const fn off(name: &'static str, make: PluginFactory) -> Plugin {
    Plugin { name, on: false, make }
}

/// Wraps a synchronous plugin.
fn sync<T: sync_plugin::SyncAdmission + 'static>(plugin: T) -> Result<Box<dyn Admission>, String> {
    Ok(Box::new(SyncPlugin(plugin)))
}

/// In the order in which they run.
const PLUGINS: &[Plugin] = &[
    off("AlwaysAdmit", |_, _| Ok(Box::new(always::Admit))),
    off("NamespaceAutoProvision", |_, _| Ok(Box::new(namespace_auto_provision::NamespaceAutoProvision))),
    on("NamespaceLifecycle", |_, _| Ok(Box::new(NamespaceLifecycle))),
    off("NamespaceExists", |_, _| Ok(Box::new(namespace_exists::NamespaceExists))),
    off("SecurityContextDeny", |_, _| sync(security_context_deny::SecurityContextDeny)),
    off("LimitPodHardAntiAffinityTopology", |_, _| {
        sync(limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology)
    }),
    on("LimitRanger", |_, _| sync(limit_ranger::LimitRanger)),
    on("ServiceAccount", |parts, _| sync(ServiceAccount::new(&parts.names, parts.world.clone()))),
    off("NodeRestriction", |_, _| Ok(Box::new(NodeRestriction))),
    on("TaintNodesByCondition", |_, _| sync(taint_nodes_by_condition::TaintNodesByCondition)),
    off("AlwaysPullImages", |_, _| sync(always_pull_images::AlwaysPullImages)),
    off("ImagePolicyWebhook", |parts, configuration| {
        Ok(Box::new(image_policy_webhook::ImagePolicyWebhook::new(parts, configuration)?))
    }),
    on("PodSecurity", |parts, configuration| {
        Ok(Box::new(PodSecurity::new(&parts.names, parts.pod_security.clone(), configuration)?))
    }),
    off("PodNodeSelector", |parts, configuration| {
        Ok(Box::new(PodNodeSelector::new(&parts.names, configuration)?))
    }),
    on("Priority", |_, _| sync(priority::Priority)),
    on("DefaultTolerationSeconds", |parts, _| {
        sync(default_toleration_seconds::DefaultTolerationSeconds(parts.toleration_seconds))
    }),
    off("PodTolerationRestriction", |parts, configuration| {
        Ok(Box::new(PodTolerationRestriction::new(&parts.names, configuration)?))
    }),
    off("EventRateLimit", |parts, configuration| {
        Ok(Box::new(EventRateLimit::new(&parts.names, parts.world.clone(), configuration)?))
    }),
    off("ExtendedResourceToleration", |_, _| sync(extended_resource_toleration::ExtendedResourceToleration)),
    off("PersistentVolumeLabel", |_, _| sync(persistent_volume_label::PersistentVolumeLabel)),
    on("DefaultStorageClass", |_, _| sync(default_storage_class::DefaultStorageClass)),
    on("StorageObjectInUseProtection", |_, _| {
        sync(storage_object_in_use_protection::StorageObjectInUseProtection)
    }),
    off("OwnerReferencesPermissionEnforcement", |parts, _| {
        Ok(Box::new(owner_references::OwnerReferencesPermissionEnforcement {
            authorizer: parts.authorizer.clone(),
        }))
    }),
    on("PersistentVolumeClaimResize", |_, _| {
        sync(persistent_volume_claim_resize::PersistentVolumeClaimResize)
    }),
    on("RuntimeClass", |_, _| sync(runtime_class::RuntimeClass)),
    on("CertificateApproval", |parts, _| {
        Ok(Box::new(certificates::Approval { authorizer: parts.authorizer.clone() }))
    }),
    on("CertificateSigning", |parts, _| {
        Ok(Box::new(certificates::Signing { authorizer: parts.authorizer.clone() }))
    }),
    on("CertificateSubjectRestriction", |_, _| Ok(Box::new(certificates::SubjectRestriction))),
    on("DefaultIngressClass", |_, _| sync(default_ingress_class::DefaultIngressClass)),
    off("DenyServiceExternalIPs", |_, _| sync(deny_service_external_ips::DenyServiceExternalIps)),
    on("MutatingAdmissionWebhook", |parts, configuration| {
        Ok(Box::new(webhooks::Mutating::new(parts, configuration)?))
    }),
    on("ValidatingAdmissionPolicy", |parts, _| Ok(Box::new(policies::ValidatingAdmissionPolicy::new(parts)))),
    on("ValidatingAdmissionWebhook", |parts, configuration| {
        Ok(Box::new(webhooks::Validating::new(parts, configuration)?))
    }),
    on("ResourceQuota", |parts, configuration| {
        Ok(Box::new(resource_quota::ResourceQuota::new(&parts.names, configuration)?))
    }),
    off("AlwaysDeny", |_, _| Ok(Box::new(always::Deny))),
];

/// Why the options are invalid.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidPlugins(Vec<String>);

/// The chain of plugins, in order.
pub(crate) fn chain(options: &Options, parts: &Parts) -> Result<Vec<Box<dyn Admission>>, InvalidPlugins> {
    let named = options.enable.iter().chain(&options.disable);
    let mut wrong: Vec<String> = named
        .filter(|name| Plugin::named(name).is_none())
        .map(|name| format!("there is no admission plugin {name:?}"))
        .collect();
    // the create permission is checked before the validation of any plugin
    let mut chain: Vec<Box<dyn Admission>> =
        vec![Box::new(Creation { authorizer: parts.authorizer.clone() })];
    for plugin in PLUGINS {
        let is = |names: &[String]| names.iter().any(|name| name == plugin.name);
        if !(plugin.on || is(&options.enable)) || is(&options.disable) {
            continue;
        }
        match (plugin.make)(parts, options.configuration.get(plugin.name).unwrap_or(&Value::Null)) {
            Ok(plugin_instance) => chain.push(parts.plugin_metrics.measure(plugin.name, plugin_instance)),
            Err(why) => wrong.push(format!("admission plugin {}: {why}", plugin.name)),
        }
    }
    // escalation is checked on roles as changed by plugins
    let (rbac, authorizer) = (parts.rbac.clone(), parts.authorizer.clone());
    chain.push(Box::new(Escalation { rbac, authorizer }));
    if wrong.is_empty() { Ok(chain) } else { Err(InvalidPlugins(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::webhook_target::ServiceRouting;
    use auth::Rbac;
    use env::World;
    use names::Names;
    use std::sync::Arc;

    fn wrong(options: Options) -> String {
        let rbac = Arc::new(Rbac::new(&Names::kubernetes()));
        let (names, world) = (Names::kubernetes(), env::Simulated::new(0, 0) as World);
        let registry = ::metrics::Registry::default();
        let parts = Parts {
            names,
            world: world.clone(),
            pod_security: pod_security::Counters::new(&registry),
            plugin_metrics: AdmissionMetrics::new(&registry, &world),
            rbac: rbac.clone(),
            authorizer: rbac,
            toleration_seconds: TolerationSeconds::default(),
            webhooks: webhooks::Counters::new(&registry),
            calls: outbound::ClientMetrics::new(&registry),
            routing: ServiceRouting::default(),
            policies: true,
            policy_counters: policy_metrics::Counters::new(&registry),
            faults: None,
        };
        chain(&options, &parts).err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn only_known_plugins_can_be_enabled_or_disabled() {
        let named = |name: &str| vec![name.to_owned()];
        let both = Options { enable: named("Nothing"), disable: named("NorThis"), ..Options::default() };
        let configuration = wrong(both);
        assert!(
            configuration.contains("\"Nothing\"") && configuration.contains("\"NorThis\""),
            "{configuration}"
        );
        assert_eq!(wrong(Options { disable: named("ResourceQuota"), ..Options::default() }), "");
    }
}
