//! Selects the webhooks that match a write.

use super::clients::Clients;
use super::hook::Hook;
use super::table::Table;
use crate::admission::configuration::{self, ConfigErrors};
use crate::admission::derived::DerivedValue;
use crate::admission::matching::{self, Match};
use crate::admission::parts::Parts;
use names::Names;
use outbound::Users;
use rest::AdmissionAttributes;
use schema::Value;
use std::path::Path;
use std::sync::Arc;

/// The webhooks of one kind of configuration.
pub(super) struct Webhooks {
    table: DerivedValue<Table>,
    pub clients: Clients,
}

/// A webhook that matches a write, its index among all, and the matched version.
pub(super) struct Invocation {
    pub at: usize,
    pub hook: Arc<Hook>,
    pub matched: Match,
}

impl Webhooks {
    pub fn new(plural: &'static str, parts: &Parts, configuration: &Value) -> Result<Self, String> {
        Ok(Webhooks {
            table: DerivedValue::new(plural),
            clients: Clients {
                users: users(&parts.names, configuration)?,
                counters: parts.webhooks.clone(),
                calls: parts.calls.clone(),
                routing: parts.routing.clone(),
                world: parts.world.clone(),
                faults: parts.faults.clone(),
            },
        })
    }

    /// The webhooks whose rules match a write, in order.
    pub fn invocations(&self, write: &AdmissionAttributes<'_>) -> Vec<Invocation> {
        let make = |hook: &_, configuration: &str| Hook::of(hook, configuration, &self.clients);
        let snapshot = self
            .table
            .get(write.api, |collection, objects, before| Table::of(collection, objects, before, &make));
        let Some(snapshot) = snapshot else { return Vec::new() };
        let candidates = snapshot.value.candidates(&write.resource.kind.plural);
        let matched = candidates.filter_map(|(at, hook)| {
            let matched = matching::find_match(&hook.rules, hook.equivalent, write)?;
            Some(Invocation { at, hook: hook.clone(), matched })
        });
        matched.collect()
    }
}

/// Credentials for webhooks, from the kubeconfig file in the configuration.
fn users(names: &Names, configuration: &Value) -> Result<Users, String> {
    if configuration.is_null() {
        return Ok(Users::default());
    }
    let group = names.group("apiserver.config");
    let forms = [
        (format!("{group}/v1"), "WebhookAdmissionConfiguration"),
        (format!("{group}/v1alpha1"), "WebhookAdmission"),
    ];
    let mut problems = ConfigErrors::default();
    let whole = configuration::whole_of(configuration, &forms, &["kubeConfigFile"], &mut problems);
    let file = whole.text("kubeConfigFile", &mut problems).unwrap_or_default();
    if !file.is_empty() && !file.starts_with('/') {
        problems.add("kubeConfigFile", format!("{file:?}: must be an absolute file path"));
    }
    problems.into_result(())?;
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
            let configuration = schema::decode::json_untyped(text.as_bytes()).expect("JSON").value;
            users(&Names::kubernetes(), &configuration).map(drop)
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
