//! Selects the webhooks that match a write.

use super::clients::Clients;
use super::hook::Hook;
use super::table::Table;
use crate::admission::configuration::{self, Wrong};
use crate::admission::derived::Derived;
use crate::admission::matching::{self, Meant};
use crate::admission::parts::Parts;
use names::Names;
use outbound::Users;
use rest::AdmissionAttributes;
use schema::Value;
use std::path::Path;
use std::sync::Arc;

/// See the module.
pub(super) struct Webhooks {
    known: Derived<Table>,
    pub clients: Clients,
}

/// A webhook that matches a write, its index among all, and the version that it is shown.
pub(super) struct Invocation {
    pub at: usize,
    pub hook: Arc<Hook>,
    pub meant: Meant,
}

impl Webhooks {
    pub fn new(plural: &'static str, parts: &Parts, told: &Value) -> Result<Self, String> {
        Ok(Webhooks {
            known: Derived::new(plural),
            clients: Clients {
                users: users(&parts.names, told)?,
                counters: parts.webhooks.clone(),
                calls: parts.calls.clone(),
                way: parts.way.clone(),
                world: parts.world.clone(),
            },
        })
    }

    /// The webhooks whose rules match a write, in order.
    pub fn invocations(&self, write: &AdmissionAttributes<'_>) -> Vec<Invocation> {
        let make = |hook: &_, configuration: &str| Hook::of(hook, configuration, &self.clients);
        let made = self
            .known
            .get(write.api, |collection, objects, before| Table::of(collection, objects, before, &make));
        let Some(made) = made else { return Vec::new() };
        let candidates = made.it.candidates(&write.resource.kind.plural);
        let meant = candidates.filter_map(|(at, hook)| {
            let meant = matching::meant(&hook.rules, hook.equivalent, write)?;
            Some(Invocation { at, hook: hook.clone(), meant })
        });
        meant.collect()
    }
}

/// Credentials for webhooks, from the kubeconfig file that the configuration names.
fn users(names: &Names, told: &Value) -> Result<Users, String> {
    if told.is_null() {
        return Ok(Users::default());
    }
    let group = names.group("apiserver.config");
    let forms = [
        (format!("{group}/v1"), "WebhookAdmissionConfiguration"),
        (format!("{group}/v1alpha1"), "WebhookAdmission"),
    ];
    let mut wrong = Wrong::default();
    let whole = configuration::whole_of(told, &forms, &["kubeConfigFile"], &mut wrong);
    let file = whole.text("kubeConfigFile", &mut wrong).unwrap_or_default();
    if !file.is_empty() && !file.starts_with('/') {
        wrong.say("kubeConfigFile", format!("{file:?}: must be an absolute file path"));
    }
    wrong.unless(())?;
    match file {
        "" => Ok(Users::default()),
        file => Users::from_kubeconfig(Path::new(file)).map_err(|why| why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_with_credentials_is_named_in_full() {
        let read = |text: &str| {
            let told = schema::decode::json_untyped(text.as_bytes()).expect("JSON").value;
            users(&Names::kubernetes(), &told).map(drop)
        };
        let of = |file: &str| {
            format!(
                r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":{file:?}}}"#
            )
        };
        assert!(read(&of("")).is_ok());
        assert_eq!(read(&of("x")).unwrap_err(), "kubeConfigFile: \"x\": must be an absolute file path");
        assert!(read(&of("/nowhere/at/all")).unwrap_err().starts_with("/nowhere/at/all: "));
        assert!(read(r#"{"kind":"WebhookAdmission"}"#).is_err());
    }
}
