//! Checks that writes pass: the plugins that an operator can switch, and what always holds.
//!
//! Each plugin is one file and one line in [`PLUGINS`], in the order in which they are asked. First all of them
//! may change or refuse an object (`admit`), then it is validated, then all of them have the last word
//! (`settle`).

mod certificates;
mod creation;
mod escalation;
mod namespace_lifecycle;
mod node_restriction;
mod quota;

use auth::{Authorizer, Rbac};
use creation::Creation;
use escalation::Escalation;
use namespace_lifecycle::NamespaceLifecycle;
use node_restriction::NodeRestriction;
use quota::Quota;
use rest::Admission;
use schema::Value;
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
    pub rbac: Arc<Rbac>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Makes a plugin from its configuration; the error says what is wrong with that.
type Make = fn(&Parts, &Value) -> Result<Box<dyn Admission>, String>;

struct Plugin {
    name: &'static str,
    /// Whether it is on unless told otherwise.
    on: bool,
    /// Absent for what is part of the order but has its place elsewhere, or nowhere yet.
    make: Option<Make>,
}

const fn on(name: &'static str, make: Make) -> Plugin {
    Plugin { name, on: true, make: Some(make) }
}

/// One that is on only if an operator says so.
const fn off(name: &'static str, make: Make) -> Plugin {
    Plugin { name, on: false, make: Some(make) }
}

/// In the order in which they are asked.
const PLUGINS: &[Plugin] = &[
    on("NamespaceLifecycle", |_, _| Ok(Box::new(NamespaceLifecycle))),
    off("NodeRestriction", |_, _| Ok(Box::new(NodeRestriction))),
    on("CertificateApproval", |parts, _| {
        Ok(Box::new(certificates::Approval { authorizer: parts.authorizer.clone() }))
    }),
    on("CertificateSigning", |parts, _| {
        Ok(Box::new(certificates::Signing { authorizer: parts.authorizer.clone() }))
    }),
    on("CertificateSubjectRestriction", |_, _| Ok(Box::new(certificates::SubjectRestriction))),
    on("ResourceQuota", |_, _| Ok(Box::new(Quota))),
];

/// The plugin before which what always holds is asked: after all that may change an object.
const AFTER_CHANGES: &str = "ResourceQuota";

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
    let mut chain: Vec<Box<dyn Admission>> = Vec::new();
    for plugin in PLUGINS {
        if plugin.name == AFTER_CHANGES {
            let authorizer = parts.authorizer.clone();
            chain.push(Box::new(Escalation { rbac: parts.rbac.clone(), authorizer: authorizer.clone() }));
            chain.push(Box::new(Creation { authorizer }));
        }
        let is = |names: &[String]| names.iter().any(|name| name == plugin.name);
        if !(plugin.on || is(&options.enable)) || is(&options.disable) {
            continue;
        }
        let Some(make) = plugin.make else { continue };
        match make(parts, options.configuration.get(plugin.name).unwrap_or(&Value::Null)) {
            Ok(made) => chain.push(made),
            Err(why) => wrong.push(format!("admission plugin {}: {why}", plugin.name)),
        }
    }
    if wrong.is_empty() { Ok(chain) } else { Err(BadPlugins(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;

    fn wrong(options: Options) -> String {
        let rbac = Arc::new(Rbac::new(&Names::kubernetes()));
        let parts = Parts { rbac: rbac.clone(), authorizer: rbac };
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
