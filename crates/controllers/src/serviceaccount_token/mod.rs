//! Fills the token secrets of service accounts, and deletes them with their account.
//!
//! A token secret has the account token type and an annotation that names the account. It gets a token, the certificate
//! authority of the API server and the name of its namespace. Users create such secrets; the controller creates them
//! only where a gate is off (`auto_generation.rs`).
//!
//! A secret is filled for the account that it names, or deleted if the account does not exist; that is read from the
//! server, not from the cache. An existing token is never replaced.

mod auto_generation;

use crate::Context;
use api::core::v1::{Secret, ServiceAccount};
use api::meta::v1::DeleteOptions;
use api::{ByteString, Resource};
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, of_uid, run, unless};
use names::Names;
use std::fmt;
use std::sync::Arc;

/// Signs the claims of a token.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

/// After so many failures a key is dropped until it changes.
const TRIES: u32 = 10;

#[derive(Clone)]
pub struct Options {
    /// Without it the controller does nothing.
    pub sign: Option<Sign>,
    /// The certificate authority of the API server, in PEM.
    pub authority: Option<String>,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { sign: None, authority: None, workers: 5 }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (signs, workers) = (self.sign.is_some(), self.workers);
        out.debug_struct("Options").field("signs", &signs).field("workers", &workers).finish_non_exhaustive()
    }
}

/// The key of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// A deleted account, whose tokens are deleted.
    DeletedAccount(AccountReference),
    /// An account that must name a token.
    Account(Key),
    Secret(Key),
    /// A deleted secret, which its account may still name.
    DeletedSecret {
        secret: String,
        account: AccountReference,
    },
}

/// A reference to an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AccountReference {
    key: Key,
    /// Empty for any account of that name.
    uid: String,
}

impl AccountReference {
    fn refers_to(&self, account: &ServiceAccount) -> bool {
        self.uid.is_empty() || self.uid == account.uid()
    }
}

impl fmt::Display for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::DeletedAccount(account) => write!(out, "account {}", account.key),
            Work::Account(key) => write!(out, "account {key}"),
            Work::Secret(key) => write!(out, "secret {key}"),
            Work::DeletedSecret { secret, account } => {
                write!(out, "secret {}/{secret}", account.key.namespace)
            }
        }
    }
}

/// The keys of the annotations by which a secret names its account.
#[derive(Clone)]
struct Annotations {
    name: String,
    uid: String,
}

impl Annotations {
    fn new(names: &Names) -> Self {
        let of = |part: &str| names.well_known(&format!("service-account.{part}"));
        Annotations { name: of("name"), uid: of("uid") }
    }

    /// The account that a secret names.
    fn account(&self, secret: &Secret) -> Option<AccountReference> {
        let value = |key: &str| secret.metadata.annotations.get(key).cloned().unwrap_or_default();
        let (name, uid) = (value(&self.name), value(&self.uid));
        (!name.is_empty()).then(|| AccountReference { key: Key::new(secret.namespace(), name), uid })
    }
}

struct Tokens {
    context: Context,
    sign: Sign,
    authority: Option<String>,
    annotations: Annotations,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
}

/// The secrets of an account, by namespace and name.
const BY_ACCOUNT: &str = "account";

pub async fn run(context: Context, options: Options) {
    let Some(sign) = options.sign else {
        tracing::info!(controller = "serviceaccount-token", "disabled: there is no key that signs tokens");
        return std::future::pending().await;
    };
    let queue = Queue::<Work>::new(&context.world);
    let annotations = Annotations::new(&context.names);
    let accounts = context.informer::<ServiceAccount>();
    let secrets = context.informer_of::<Secret>("", &format!("type={}", context.names.account_token_type()));
    // the domain of the annotation depends on the dialect
    secrets.index(BY_ACCOUNT, |secret| {
        let annotations = secret.metadata.annotations.iter();
        let names = annotations.filter(|(key, _)| key.ends_with("/service-account.name"));
        names.map(|(_, name)| Key::new(secret.namespace(), name).to_string()).collect()
    });
    let (changed, generates_tokens) = (queue.clone(), !context.gates.no_token_auto_generation);
    accounts.listen(move |change| {
        if change.is_deletion() {
            let uid = change.object().uid().to_owned();
            changed.add(Work::DeletedAccount(AccountReference { key: change.key(), uid }));
        } else if generates_tokens {
            changed.add(Work::Account(change.key()));
        }
    });
    let (changed, keys) = (queue.clone(), annotations.clone());
    secrets.listen(move |change| match keys.account(change.object()) {
        Some(account) if change.is_deletion() => {
            changed.add(Work::DeletedSecret { secret: change.key().name, account });
        }
        Some(_) => changed.add(Work::Secret(change.key())),
        None => {}
    });
    accounts.synced().await;
    secrets.synced().await;
    let authority = options.authority.filter(|it| !it.is_empty());
    let tokens = Arc::new(Tokens { context, sign, authority, annotations, accounts, secrets });
    run::run(tokens, queue, options.workers).await;
}

impl Reconcile for Tokens {
    type Key = Work;

    fn name(&self) -> &'static str {
        "serviceaccount-token"
    }

    fn queue_name(&self) -> &'static str {
        "serviceaccount_tokens_secret"
    }

    async fn reconcile(&self, work: &Work) -> Result<Action, Failure> {
        match work {
            Work::DeletedAccount(account) => self.delete_tokens(account).await?,
            Work::Account(key) => self.ensure_token(key).await?,
            Work::Secret(key) => self.fill(key).await?,
            Work::DeletedSecret { secret, account } => self.remove_reference(secret, account).await?,
        }
        Ok(Action::AwaitChange)
    }

    fn gives_up_after(&self) -> Option<u32> {
        Some(TRIES)
    }
}

impl Tokens {
    fn secrets_in(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(&self.context.client, namespace)
    }

    fn accounts_in(&self, namespace: &str) -> Api<ServiceAccount> {
        Api::namespaced(&self.context.client, namespace)
    }

    /// The current account of a reference.
    async fn account(&self, reference: &AccountReference) -> Result<Option<ServiceAccount>, Failure> {
        let is_same = |it: &ServiceAccount| reference.refers_to(it);
        if let Some(cached) = self.accounts.get(&reference.key).filter(|it| is_same(it)) {
            return Ok(Some((*cached).clone()));
        }
        let live = self.accounts_in(&reference.key.namespace).get_opt(&reference.key.name).await?;
        Ok(live.filter(is_same))
    }

    async fn delete_tokens(&self, account: &AccountReference) -> Result<(), Failure> {
        // an account of the same name may exist again
        let exists = self.accounts.get(&account.key).is_some();
        for secret in self.secrets.by(BY_ACCOUNT, &account.key.to_string()) {
            let Some(reference) = self.annotations.account(&secret) else { continue };
            let is_of_another = match &*reference.uid {
                "" => exists,
                uid => uid != account.uid,
            };
            if !is_of_another {
                self.delete(&secret).await?;
            }
        }
        Ok(())
    }

    /// Deletes exactly this secret.
    async fn delete(&self, secret: &Secret) -> Result<(), Failure> {
        let preconditions = Some(Box::new(of_uid(secret.uid())));
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match self.secrets_in(secret.namespace()).delete(secret.name(), &options).await {
            // gone, or replaced by another secret of the same name
            Err(why) if !why.is(404) && !why.is(409) => Err(why.into()),
            _ => Ok(()),
        }
    }

    async fn fill(&self, key: &Key) -> Result<(), Failure> {
        let Some(cached) = self.secrets.get(key) else { return Ok(()) };
        let Some(reference) = self.annotations.account(&cached) else { return Ok(()) };
        let Some(account) = self.account(&reference).await? else { return self.delete(&cached).await };
        if self.missing_data(&cached).is_empty() {
            return Ok(());
        }
        let secrets = self.secrets_in(&key.namespace);
        let live = secrets.get_opt(&key.name).await?;
        let Some(live) = live.filter(|it| it.uid() == cached.uid()) else { return Ok(()) };
        let missing = self.missing_data(&live);
        if missing.is_empty() {
            return Ok(());
        }
        let next = self.filled(live, &account, missing)?;
        match secrets.replace(&next).await {
            // a concurrent change adds the secret to the queue again
            Err(why) if !why.is(409) && !why.is(404) => Err(why.into()),
            _ => Ok(()),
        }
    }

    fn missing_data(&self, secret: &Secret) -> MissingData {
        missing_data(secret, self.authority.as_deref())
    }

    fn filled(
        &self,
        mut secret: Secret,
        account: &ServiceAccount,
        missing: MissingData,
    ) -> Result<Secret, Failure> {
        let claims = claims(&self.context.names, account, secret.name());
        let mut put = |key: &str, bytes: Vec<u8>| secret.data.insert(key.to_owned(), ByteString(bytes));
        if let Some(authority) = self.authority.as_ref().filter(|_| missing.authority) {
            put("ca.crt", authority.clone().into_bytes());
        }
        if missing.namespace {
            put("namespace", account.namespace().into());
        }
        if missing.token {
            let token = (self.sign)(&claims);
            let token = token.ok_or_else(|| Failure::Other("the token could not be signed".to_owned()))?;
            put("token", token.into_bytes());
        }
        let annotations = &mut secret.metadata.annotations;
        annotations.insert(self.annotations.name.clone(), account.name().to_owned());
        annotations.insert(self.annotations.uid.clone(), account.uid().to_owned());
        Ok(secret)
    }

    async fn remove_reference(&self, secret: &str, account: &AccountReference) -> Result<(), Failure> {
        // a secret of the same name may exist again
        if self.secrets.get(&Key::new(&account.key.namespace, secret)).is_some() {
            return Ok(());
        }
        let Some(mut account) = self.account(account).await? else { return Ok(()) };
        let count = account.secrets.len();
        account.secrets.retain(|it| it.name != secret);
        if account.secrets.len() == count {
            return Ok(());
        }
        // a conflict is retried
        unless(404, self.accounts_in(account.namespace()).replace(&account).await)?;
        Ok(())
    }
}

/// The data that is missing in a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingData {
    authority: bool,
    namespace: bool,
    token: bool,
}

impl MissingData {
    fn is_empty(self) -> bool {
        !(self.authority || self.namespace || self.token)
    }
}

fn missing_data(secret: &Secret, authority: Option<&str>) -> MissingData {
    let value = |key: &str| secret.data.get(key).map_or(&[][..], |it| &it.0);
    MissingData {
        authority: authority.is_some_and(|authority| authority.as_bytes() != value("ca.crt")),
        namespace: value("namespace").is_empty(),
        token: value("token").is_empty(),
    }
}

/// The claims of a legacy token.
fn claims(names: &Names, account: &ServiceAccount, secret: &str) -> serde_json::Value {
    let (namespace, name) = (account.namespace(), account.name());
    let claim = |part: &str| names.well_known(&format!("serviceaccount/{part}"));
    let mut claims = serde_json::Map::new();
    for (key, text) in [
        ("iss".to_owned(), format!("{}/serviceaccount", names.vendor)),
        ("sub".to_owned(), format!("system:serviceaccount:{namespace}:{name}")),
        (claim("namespace"), namespace.to_owned()),
        (claim("secret.name"), secret.to_owned()),
        (claim("service-account.name"), name.to_owned()),
        (claim("service-account.uid"), account.uid().to_owned()),
    ] {
        claims.insert(key, text.into());
    }
    claims.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn secret(data: Value, annotations: Value) -> Secret {
        let metadata = json!({"name": "s", "namespace": "n", "annotations": annotations});
        object(json!({"metadata": metadata, "data": data}))
    }

    #[test]
    fn missing_data_of_secrets() {
        let of = |data: Value, authority: Option<&str>| {
            let missing = missing_data(&secret(data, json!({})), authority);
            (missing.authority, missing.namespace, missing.token)
        };
        // "QQ==" is A
        let full = json!({"ca.crt": "QQ==", "namespace": "bg==", "token": "dA=="});
        assert_eq!(of(full.clone(), Some("A")), (false, false, false));
        assert_eq!(of(full.clone(), None), (false, false, false));
        assert_eq!(of(full, Some("B")), (true, false, false));
        assert_eq!(of(json!({"token": ""}), Some("A")), (true, true, true));
        assert_eq!(of(json!({}), None), (false, true, true));
    }

    #[test]
    fn the_account_is_named_by_annotations() {
        let annotations = Annotations::new(&Names::kubernetes());
        let with = |annotations: Value| secret(json!({}), annotations);
        let named = with(json!({"kubernetes.io/service-account.name": "a"}));
        assert_eq!(
            annotations.account(&named),
            Some(AccountReference { key: Key::new("n", "a"), uid: String::new() })
        );
        assert_eq!(annotations.account(&with(json!({"kubernetes.io/service-account.uid": "u"}))), None);
    }

    #[test]
    fn legacy_tokens_name_their_account() {
        let account: ServiceAccount =
            object(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}));
        assert_eq!(
            claims(&Names::kubernetes(), &account, "s"),
            json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:n:a",
                "kubernetes.io/serviceaccount/namespace": "n", "kubernetes.io/serviceaccount/secret.name": "s",
                "kubernetes.io/serviceaccount/service-account.name": "a",
                "kubernetes.io/serviceaccount/service-account.uid": "u"})
        );
    }
}
