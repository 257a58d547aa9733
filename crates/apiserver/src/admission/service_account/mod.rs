//! ServiceAccount: assigns a service account to every pod, `default` unless it names another, which must
//! exist.
//!
//! A new pod gets the account's token as a volume, unless pod or account opts out, and the account's image
//! pull secrets, unless it has its own. If the account is limited to its secrets, its pods may use no others.
//! Mirror pods have no account and must not have what an account would give them.
//!
//! Upstream waits a second for an account that is not in its cache yet; the caches here are current.

mod secrets;
mod token;

use super::sync_plugin::{SyncAdmission, Verdict, is};
use env::World;
use names::Names;
use rest::{AdmissionAttributes, Interest, Operation, Resource};
use schema::problem::quoted;
use schema::{Value, format};

const DEFAULT: &str = "default";
const EPHEMERAL: &str = "ephemeralcontainers";

pub struct ServiceAccount {
    world: World,
    /// The annotation of mirror pods.
    mirror: String,
    /// The annotation of accounts that limit their pods to their secrets.
    limited: String,
    tokens: token::Volume,
}

impl SyncAdmission for ServiceAccount {
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

    /// Adds the token, secrets and account of a new pod.
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
        if mounts_token(pod, &account) {
            self.tokens.mount(pod, &self.world);
        }
        let pulls = account.items(&["imagePullSecrets"]);
        if pod.items(&["spec", "imagePullSecrets"]).is_empty() && !pulls.is_empty() {
            pod.set(&["spec", "imagePullSecrets"], pulls.to_vec());
        }
        self.limit(&account, || secrets::forbidden_secret(pod, &account))
    }

    /// Checks the result after all plugins.
    fn check(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Verdict {
        if self.is_mirror(pod) {
            return secrets::mirrored(pod).map_or(Ok(()), |why| Err(why.to_owned()));
        }
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            let name = pod.text(&["metadata", "name"]);
            return Err(format!("no service account specified for pod {}/{name}", write.namespace));
        }
        let account = self.account(write, pod)?;
        self.limit(&account, || secrets::forbidden_secret(pod, &account))
    }

    /// Ephemeral containers have the same limits as others.
    fn check_debugging(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Verdict {
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            return Ok(());
        }
        let account = self.account(write, pod)?;
        self.limit(&account, || secrets::forbidden_ephemeral_secret(pod, &account))
    }

    /// Applies the limit of an account, if it has one.
    fn limit(&self, account: &Value, violation: impl FnOnce() -> Option<String>) -> Verdict {
        // the values that parse as true
        let value_of = account.text(&["metadata", "annotations", &self.limited]);
        let limited = matches!(value_of, "1" | "t" | "T" | "true" | "TRUE" | "True");
        limited.then(violation).flatten().map_or(Ok(()), Err)
    }

    fn account(&self, write: &AdmissionAttributes<'_>, pod: &Value) -> Result<Value, String> {
        let (namespace, name) = (write.namespace, pod.text(&["spec", "serviceAccountName"]));
        write.api.lookup("serviceaccounts", namespace, name).ok_or_else(|| {
            let why = format::lookup_error(name)
                .unwrap_or_else(|| format!("serviceaccount {} not found", quoted(name)));
            format!("error looking up service account {namespace}/{name}: {why}")
        })
    }

    fn is_mirror(&self, pod: &Value) -> bool {
        pod.at(&["metadata", "annotations", &self.mirror]).is_some()
    }
}

/// The pod decides, then the account; the default is yes.
fn mounts_token(pod: &Value, account: &Value) -> bool {
    let value_of = |value: &Value, path: &[&str]| value.at(path).and_then(Value::as_bool);
    value_of(pod, &["spec", "automountServiceAccountToken"])
        .or_else(|| value_of(account, &["automountServiceAccountToken"]))
        .unwrap_or(true)
}
