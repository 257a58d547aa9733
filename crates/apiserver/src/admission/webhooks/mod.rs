//! Webhooks: other servers that are asked about writes, and may change or refuse them.
//!
//! What always holds: webhooks are asked in the order of their configurations' names, and within one as it lists
//! them; a write that none of them is for costs one look into a table. A webhook that cannot be reached, takes too
//! long or answers nonsense refuses the write, unless its configuration says that it may fail. The configurations
//! themselves are nobody's to judge, so that a webhook that stands in the way of everything can be taken away.

mod hook;
mod metrics;
mod mutating;
mod review;
mod table;
mod validating;

pub(crate) use metrics::Counters;
pub(super) use mutating::Mutating;
pub(super) use validating::Validating;

use super::Parts;
use super::configuration::{self, Wrong};
use super::derived::Derived;
use super::matching::{self, Meant};
use crate::webhook_target::Way;
use env::World;
use hook::Hook;
use names::Names;
use outbound::{ClientMetrics, Users};
use rest::{AdmissionAttributes, Given};
use schema::Value;
use std::path::Path;
use std::sync::Arc;
use table::Table;

/// What both kinds of webhooks have.
pub(super) struct Webhooks {
    known: Derived<Table>,
    users: Users,
    counters: Counters,
    calls: Arc<ClientMetrics>,
    way: Way,
    world: World,
}

/// A webhook that a write is for, its place among all, and what it is shown.
struct Concerned {
    at: usize,
    hook: Arc<Hook>,
    meant: Meant,
}

impl Webhooks {
    fn new(plural: &'static str, parts: &Parts, told: &Value) -> Result<Self, String> {
        Ok(Webhooks {
            known: Derived::new(plural),
            users: users(&parts.names, told)?,
            counters: parts.webhooks.clone(),
            calls: parts.calls.clone(),
            way: parts.way.clone(),
            world: parts.world.clone(),
        })
    }

    /// The webhooks whose rules mean a write, in order.
    fn concerned(&self, write: &AdmissionAttributes<'_>) -> Vec<Concerned> {
        let make = |hook: &_, configuration: &str| Hook::of(hook, configuration, self);
        let made = self
            .known
            .get(write.api, |collection, objects, before| Table::of(collection, objects, before, &make));
        let Some(made) = made else { return Vec::new() };
        let candidates = made.it.candidates(&write.resource.kind.plural);
        let meant = candidates.filter_map(|(at, hook)| {
            let meant = matching::meant(&hook.rules, hook.equivalent, write)?;
            Some(Concerned { at, hook: hook.clone(), meant })
        });
        meant.collect()
    }
}

/// Whether the request asks for a dry run, whatever becomes of the write.
pub(super) fn is_dry_run(write: &AdmissionAttributes<'_>) -> bool {
    match write.given {
        Given::Write(options) => options.dry_run,
        Given::Delete(options) => options.dry_run,
        Given::Nothing => write.dry_run,
    }
}

/// What is shown to webhooks, as the file that the configuration names says.
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
