//! Every pod runs as a service account: `default` unless it names another, which must exist.
//!
//! A new pod gets the account's token as a volume, unless pod or account declines, and the account's secrets for
//! pulling images, unless it brings its own. Where the account says so, its pods may use no secrets but those that
//! it lists. Pods that a node only mirrors have no account and may have nothing that one would give them.
//!
//! Upstream waits a second for an account that it does not see yet; here what is not there does not exist.

mod secrets;
mod token;

use ambient::{Soon, World};
use names::Names;
use rest::{Admission, Admitted, ApiError, Interest, Operation, Resource};
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

impl Admission for ServiceAccount {
    fn interest(&self, resource: &Resource) -> Interest {
        let pods = resource.group.is_empty() && resource.kind.plural == "pods";
        Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS).when(pods)
    }

    fn admit<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        let created = write.operation == Operation::Create && write.subresource.is_empty();
        match object.filter(|_| created) {
            Some(object) => self.complete(write, object).into(),
            None => Ok(()).into(),
        }
    }

    fn settle<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        let outcome = match (write.operation, write.subresource) {
            (Operation::Create, "") => self.check(write, object).map(drop),
            (Operation::Update, EPHEMERAL) => self.check_debugging(write, object),
            _ => Ok(()),
        };
        outcome.into()
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
    fn complete(&self, write: &Admitted<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if self.is_mirror(pod) {
            return self.check(write, pod).map(drop);
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
        self.limit(write, pod, &account)
    }

    /// What must hold in the end, whoever changed the pod in between.
    fn check(&self, write: &Admitted<'_>, pod: &Value) -> Result<(), ApiError> {
        if self.is_mirror(pod) {
            return match secrets::mirrored(pod) {
                Some(why) => Err(write.forbidden(Some(pod), why)),
                None => Ok(()),
            };
        }
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            let name = pod.text(&["metadata", "name"]);
            let why = format!("no service account specified for pod {}/{name}", write.namespace);
            return Err(write.forbidden(Some(pod), &why));
        }
        let account = self.account(write, pod)?;
        self.limit(write, pod, &account)
    }

    /// Containers that join a running pod get no further than those it began with.
    fn check_debugging(&self, write: &Admitted<'_>, pod: &Value) -> Result<(), ApiError> {
        if pod.text(&["spec", "serviceAccountName"]).is_empty() {
            return Ok(());
        }
        let account = self.account(write, pod)?;
        match secrets::beyond_debugging(pod, &account).filter(|_| self.is_limited(&account)) {
            Some(why) => Err(write.forbidden(Some(pod), &why)),
            None => Ok(()),
        }
    }

    fn limit(&self, write: &Admitted<'_>, pod: &Value, account: &Value) -> Result<(), ApiError> {
        if !self.is_limited(account) {
            return Ok(());
        }
        secrets::beyond(pod, account).map_or(Ok(()), |why| Err(write.forbidden(Some(pod), &why)))
    }

    fn is_limited(&self, account: &Value) -> bool {
        // whatever reads as yes
        let yes = account.text(&["metadata", "annotations", &self.limited]);
        matches!(yes, "1" | "t" | "T" | "true" | "TRUE" | "True")
    }

    fn account(&self, write: &Admitted<'_>, pod: &Value) -> Result<Value, ApiError> {
        let name = pod.text(&["spec", "serviceAccountName"]);
        write.api.lookup("serviceaccounts", write.namespace, name).ok_or_else(|| {
            let why = format!(
                "error looking up service account {}/{name}: serviceaccount {name:?} not found",
                write.namespace
            );
            write.forbidden(Some(pod), &why)
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
