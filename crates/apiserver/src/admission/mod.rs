//! Checks that writes pass: the plugins that an operator can switch, and what always holds.
//!
//! Each plugin is one file and one line in [`PLUGINS`], in the order in which they are asked. First all of them
//! may change or refuse an object (`admit`), then it is validated, then all of them have the last word
//! (`settle`). A plugin says which writes it is for (`interest`); others do not visit it.

mod always;
mod configuration;
mod creation;
mod escalation;
mod namespace_lifecycle;
mod node_restriction;
mod pod_security;
mod quota;
mod signers;

use ambient::World;
use auth::{Authorizer, Rbac};
use creation::Creation;
use escalation::Escalation;
use names::Names;
use namespace_lifecycle::NamespaceLifecycle;
use node_restriction::NodeRestriction;
use pod_security::PodSecurity;
use quota::Quota;
use rest::Admission;
use schema::Value;
use signers::Signers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the operator decided about plugins.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// On although they are not by default.
    pub enable: Vec<String>,
    /// Off although they are on by default. Wins over `enable`.
    pub disable: Vec<String>,
    /// What plugins are told, by name.
    pub configuration: BTreeMap<String, Value>,
}

/// What plugins may be made from.
pub(crate) struct Parts {
    pub names: Names,
    pub world: World,
    pub rbac: Arc<Rbac>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Makes a plugin from its configuration; the error says what is wrong with that.
type Make = fn(&Parts, &Value) -> Result<Box<dyn Admission>, String>;

struct Plugin {
    name: &'static str,
    /// Whether it is on unless told otherwise.
    on: bool,
    /// Absent for what has its place in the order but is not there yet.
    make: Option<Make>,
}

/// On unless told otherwise.
const fn on(name: &'static str, make: Make) -> Plugin {
    Plugin { name, on: true, make: Some(make) }
}

/// Off unless told otherwise.
const fn off(name: &'static str, make: Make) -> Plugin {
    Plugin { name, on: false, make: Some(make) }
}

/// Part of the order, and nothing yet.
const fn to_come(name: &'static str, on: bool) -> Plugin {
    Plugin { name, on, make: None }
}

/// In the order in which they are asked.
const PLUGINS: &[Plugin] = &[
    off("AlwaysAdmit", |_, _| Ok(Box::new(always::Admit))),
    to_come("NamespaceAutoProvision", false),
    on("NamespaceLifecycle", |_, _| Ok(Box::new(NamespaceLifecycle))),
    to_come("NamespaceExists", false),
    to_come("SecurityContextDeny", false),
    to_come("LimitPodHardAntiAffinityTopology", false),
    to_come("LimitRanger", true),
    to_come("ServiceAccount", true),
    off("NodeRestriction", |_, _| Ok(Box::new(NodeRestriction))),
    to_come("TaintNodesByCondition", true),
    to_come("AlwaysPullImages", false),
    to_come("ImagePolicyWebhook", false),
    on("PodSecurity", |parts, told| Ok(Box::new(PodSecurity::new(&parts.names, told)?))),
    to_come("PodNodeSelector", false),
    to_come("Priority", true),
    to_come("DefaultTolerationSeconds", true),
    to_come("PodTolerationRestriction", false),
    to_come("EventRateLimit", false),
    to_come("ExtendedResourceToleration", false),
    to_come("PersistentVolumeLabel", false),
    to_come("DefaultStorageClass", true),
    to_come("StorageObjectInUseProtection", true),
    to_come("OwnerReferencesPermissionEnforcement", false),
    to_come("PersistentVolumeClaimResize", true),
    to_come("RuntimeClass", true),
    on("CertificateApproval", |parts, _| Ok(Box::new(Signers { authorizer: parts.authorizer.clone() }))),
    to_come("CertificateSigning", true),
    to_come("CertificateSubjectRestriction", true),
    to_come("DefaultIngressClass", true),
    to_come("DenyServiceExternalIPs", false),
    to_come("MutatingAdmissionWebhook", true),
    to_come("ValidatingAdmissionPolicy", true),
    to_come("ValidatingAdmissionWebhook", true),
    on("ResourceQuota", |_, _| Ok(Box::new(Quota))),
    off("AlwaysDeny", |_, _| Ok(Box::new(always::Deny))),
];

/// Why the plugins cannot be as asked for.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct BadPlugins(Vec<String>);

/// All that writes pass, in order.
pub(crate) fn chain(options: &Options, parts: &Parts) -> Result<Vec<Box<dyn Admission>>, BadPlugins> {
    let known: BTreeSet<&str> = PLUGINS.iter().map(|plugin| plugin.name).collect();
    let named = options.enable.iter().chain(&options.disable).chain(options.configuration.keys());
    let mut wrong: Vec<String> = named
        .filter(|name| !known.contains(name.as_str()))
        .map(|name| format!("there is no admission plugin {name:?}"))
        .collect();
    // who may create at all is asked before any plugin has its last word
    let mut chain: Vec<Box<dyn Admission>> =
        vec![Box::new(Creation { authorizer: parts.authorizer.clone() })];
    for plugin in PLUGINS {
        let is = |names: &[String]| names.iter().any(|name| name == plugin.name);
        let asked = is(&options.enable);
        if !(plugin.on || asked) || is(&options.disable) {
            continue;
        }
        let Some(make) = plugin.make else {
            if asked {
                tracing::warn!(plugin = plugin.name, "this admission plugin does nothing yet");
            }
            continue;
        };
        match make(parts, options.configuration.get(plugin.name).unwrap_or(&Value::Null)) {
            Ok(made) => chain.push(made),
            Err(why) => wrong.push(format!("admission plugin {}: {why}", plugin.name)),
        }
    }
    // what roles permit is looked at in the form that plugins have given them
    let (rbac, authorizer) = (parts.rbac.clone(), parts.authorizer.clone());
    chain.push(Box::new(Escalation { rbac, authorizer }));
    if wrong.is_empty() { Ok(chain) } else { Err(BadPlugins(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(options: Options) -> String {
        let rbac = Arc::new(Rbac::new(&Names::kubernetes()));
        let (names, world) = (Names::kubernetes(), ambient::Simulated::new(0, 0));
        let parts = Parts { names, world, rbac: rbac.clone(), authorizer: rbac };
        chain(&options, &parts).err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn only_plugins_that_there_are_can_be_switched() {
        let named = |name: &str| vec![name.to_owned()];
        let both = Options { enable: named("Nothing"), disable: named("NorThis"), ..Options::default() };
        let told = wrong(both);
        assert!(told.contains("\"Nothing\"") && told.contains("\"NorThis\""), "{told}");
        assert_eq!(wrong(Options { disable: named("ResourceQuota"), ..Options::default() }), "");
    }
}
