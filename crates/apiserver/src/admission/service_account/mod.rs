//! ServiceAccount: assigns a service account to every pod, `default` unless it names another, which must exist.
//!
//! A new pod gets the account's token as a volume, unless pod or account declines, and the account's secrets for
//! pulling images, unless it brings its own. Where the account says so, its pods may use no secrets but those that
//! it lists. Pods that a node only mirrors have no account and may have nothing that one would give them.
//!
//! Upstream waits a second for an account that it does not see yet; here what is not there does not exist.

mod secrets;
mod token;

use super::plain::{Decide, Verdict, is};
use env::World;
use names::Names;
use rest::{AdmissionAttributes, Interest, Operation, Resource};
use schema::Value;

const DEFAULT: &str = "default";
const EPHEMERAL: &str = "ephemeralcontainers";

pub struct ServiceAccount {
    world: World,
    /// The annotation of pods that stand for what a node runs by itself.
    mirror: String,
    /// The annotation of accounts whose pods are limited to their secrets.
    limited: String,
    tokens: token::Volume,
}

impl Decide for ServiceAccount {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS).when(is(resource, "", "pods"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        match (write.operation, write.subresource) {
            (Operation::Create, "") => self.complete(write, object),
            _ => Ok(()),
        }
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, _: Option<&Value>) -> Verdict {
        match (write.operation, write.subresource) {
            (Operation::Create, "") => self.check(write, object),
            (Operation::Update, EPHEMERAL) => self.check_debugging(write, object),
            _ => Ok(()),
        }
    }
}

impl ServiceAccount {
    pub fn new(names: &Names, world: World) -> Self {
        ServiceAccount {
            world,
            mirror: names.well_known("config.mirror"),
            limited: names.well_known("enforce-mountable-secrets"),
            tokens: token::Volume::new(names),
        }
    }

    /// Gives a new pod what its account gives to all.
    fn complete(&self, write: &AdmissionAttributes<'_>, pod: &mut Value) -> Verdict {
        if self.is_mirror(pod) {
            return self.check(write, pod);
        }
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            // clients know the field under two names
            pod.set(&["spec", "serviceAccountName"], DEFAULT);
            pod.set(&["spec", "serviceAccount"], DEFAULT);
        }
        let account = self.account(write, pod)?;
        if wants_token(pod, &account) {
            self.tokens.mount(pod, &self.world);
        }
        let pulls = account.items(&["imagePullSecrets"]);
        if pod.items(&["spec", "imagePullSecrets"]).is_empty() && !pulls.is_empty() {
            pod.set(&["spec", "imagePullSecrets"], pulls.to_vec());
        }
        self.limit(&account, || secrets::beyond(pod, &account))
    }

    /// What must hold in the end, whoever changed the pod in between.
    fn check(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Verdict {
        if self.is_mirror(pod) {
            return secrets::mirrored(pod).map_or(Ok(()), |why| Err(why.to_owned()));
        }
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            let name = pod.text(&["metadata", "name"]);
            return Err(format!("no service account specified for pod {}/{name}", write.namespace));
        }
        let account = self.account(write, pod)?;
        self.limit(&account, || secrets::beyond(pod, &account))
    }

    /// Containers that join a running pod get no further than those it began with.
    fn check_debugging(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Verdict {
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            return Ok(());
        }
        let account = self.account(write, pod)?;
        self.limit(&account, || secrets::beyond_debugging(pod, &account))
    }

    /// What goes beyond an account matters only where the account says so.
    fn limit(&self, account: &Value, beyond: impl FnOnce() -> Option<String>) -> Verdict {
        // whatever reads as yes
        let said = account.text(&["metadata", "annotations", &self.limited]);
        let limited = matches!(said, "1" | "t" | "T" | "true" | "TRUE" | "True");
        limited.then(beyond).flatten().map_or(Ok(()), Err)
    }

    fn account(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Result<Value, String> {
        let (namespace, name) = (write.namespace, pod.text(&["spec", "serviceAccountName"]));
        write.api.lookup("serviceaccounts", namespace, name).ok_or_else(|| {
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found")
        })
    }

    fn is_mirror(&self, pod: &Value) -> bool {
        pod.at(&["metadata", "annotations", &self.mirror]).is_some()
    }
}

/// The pod decides, then the account; who says nothing gets it.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let said = |value: &Value, path: &[&str]| value.at(path).and_then(Value::as_bool);
    said(pod, &["spec", "automountServiceAccountToken"])
        .or_else(|| said(account, &["automountServiceAccountToken"]))
        .unwrap_or(true)
}
