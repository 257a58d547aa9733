//! Tokens of service accounts that are kept in secrets: those whose secret asks for one are filled, and go with their
//! account.
//!
//! A secret asks for a token by its type and by an annotation that names the account. It gets the token, the authority
//! by which the API server is known, and the name of its namespace. Unless a gate is closed (`unasked.rs`), nobody makes
//! such secrets by himself any more.
//!
//! What always holds: a secret is filled for the account that it names, or removed when there is none; that there is
//! none is asked of the server, and not of what was seen a little ago. A token that is there is never replaced.

mod unasked;

use crate::Context;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use names::Names;
use std::fmt;
use std::sync::Arc;

/// Signs the claims of a token.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

/// After so many failures a key is left alone until it changes.
const TRIES: u32 = 10;

#[derive(Clone)]
pub struct Options {
    /// Without it no token is made, and the loop does nothing.
    pub sign: Option<Sign>,
    /// The authority by which the API server is known, in PEM.
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

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// An account that is gone, with the tokens that were its own.
    Account(Reference),
    /// An account that is there and should name a token.
    Unasked(Key),
    /// A secret that is there.
    Secret(Key),
    /// A secret that is gone, which its account may still name.
    Gone { secret: String, account: Reference },
}

/// An account, by its name and, where that is known, by its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reference {
    key: Key,
    uid: Option<String>,
}

impl fmt::Display for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Account(account) => write!(out, "account {}", account.key),
            Work::Unasked(key) => write!(out, "account {key}"),
            Work::Secret(key) => write!(out, "secret {key}"),
            Work::Gone { secret, account } => write!(out, "secret {}/{secret}", account.key.namespace),
        }
    }
}

/// The annotations by which a secret names its account.
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
    fn account(&self, secret: &Secret) -> Option<Reference> {
        let named = |key: &str| secret.annotations().get(key).filter(|it| !it.is_empty()).cloned();
        let key = Key::new(secret.namespace().unwrap_or_default(), named(&self.name)?);
        Some(Reference { key, uid: named(&self.uid) })
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
        tracing::info!(
            controller = "serviceaccount-token",
            "has nothing to do: there is no key that signs tokens"
        );
        return std::future::pending().await;
    };
    let queue = Queue::<Work>::default();
    let annotations = Annotations::new(&context.names);
    let accounts = context.informer::<ServiceAccount>();
    let secrets = context.informer_of::<Secret>("", &format!("type={}", context.names.account_token_type()));
    // the annotation's name is the dialect's, so the index takes every one that ends so
    secrets.index(BY_ACCOUNT, |secret| {
        let named = secret.annotations().iter().filter(|(key, _)| key.ends_with("/service-account.name"));
        named.map(|(_, name)| Key::new(secret.namespace().unwrap_or_default(), name).to_string()).collect()
    });
    let (news, unasked) = (queue.clone(), !context.gates.asked_tokens);
    accounts.listen(move |change| {
        if change.is_deletion() {
            news.add(Work::Account(Reference { key: change.key(), uid: change.object().uid() }));
        } else if unasked {
            news.add(Work::Unasked(change.key()));
        }
    });
    let (news, of) = (queue.clone(), annotations.clone());
    secrets.listen(move |change| match of.account(change.object()) {
        Some(account) if change.is_deletion() => {
            news.add(Work::Gone { secret: change.key().name, account });
        }
        Some(_) => news.add(Work::Secret(change.key())),
        None => {}
    });
    accounts.synced().await;
    secrets.synced().await;
    let authority = options.authority.filter(|it| !it.is_empty());
    let this = Arc::new(Tokens { context, sign, authority, annotations, accounts, secrets });
    run::run(this, queue, options.workers).await;
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
            Work::Account(account) => self.remove_tokens(account).await?,
            Work::Unasked(key) => self.give_token(key).await?,
            Work::Secret(key) => self.fill(key).await?,
            Work::Gone { secret, account } => self.remove_reference(secret, account).await?,
        }
        Ok(Action::AwaitChange)
    }

    fn gives_up_after(&self) -> Option<u32> {
        Some(TRIES)
    }
}

impl Tokens {
    fn secrets_in(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    fn accounts_in(&self, namespace: &str) -> Api<ServiceAccount> {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    /// The account as it is now, if it is the one that is meant.
    async fn account(&self, account: &Reference) -> Result<Option<ServiceAccount>, Failure> {
        let is_meant = |it: &ServiceAccount| account.uid.is_none() || it.uid() == account.uid;
        if let Some(seen) = self.accounts.get(&account.key).filter(|it| is_meant(it)) {
            return Ok(Some((*seen).clone()));
        }
        let found = self.accounts_in(&account.key.namespace).get(&account.key.name).await;
        Ok(unless(404, found)?.filter(is_meant))
    }

    async fn remove_tokens(&self, account: &Reference) -> Result<(), Failure> {
        // one of the same name may have come meanwhile
        let there = self.accounts.get(&account.key);
        for secret in self.secrets.by(BY_ACCOUNT, &account.key.to_string()) {
            let Some(named) = self.annotations.account(&secret) else { continue };
            let of_another = match &named.uid {
                Some(uid) => Some(uid) != account.uid.as_ref(),
                None => there.is_some(),
            };
            if !of_another {
                self.remove(&secret).await?;
            }
        }
        Ok(())
    }

    /// Removes exactly this secret.
    async fn remove(&self, secret: &Secret) -> Result<(), Failure> {
        let same = Preconditions { uid: secret.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let api = self.secrets_in(&secret.namespace().unwrap_or_default());
        match unless(404, api.delete(&secret.name_any(), &params).await).map_err(Failure::from) {
            // another one of that name is not this one's business
            Err(why) if !why.is(409) => Err(why),
            _ => Ok(()),
        }
    }

    async fn fill(&self, key: &Key) -> Result<(), Failure> {
        let Some(seen) = self.secrets.get(key) else { return Ok(()) };
        let Some(named) = self.annotations.account(&seen) else { return Ok(()) };
        let Some(account) = self.account(&named).await? else { return self.remove(&seen).await };
        if self.lacks(&seen).is_nothing() {
            return Ok(());
        }
        let api = self.secrets_in(&key.namespace);
        let live = unless(404, api.get(&key.name).await)?;
        let Some(live) = live.filter(|it| it.uid() == seen.uid()) else { return Ok(()) };
        let lacks = self.lacks(&live);
        if lacks.is_nothing() {
            return Ok(());
        }
        let next = self.filled(live, &account, lacks)?;
        let written = api.replace(&key.name, &PostParams::default(), &next).await;
        match written.map_err(Failure::from) {
            // who changed it meanwhile made news of it
            Err(why) if !why.is(409) && !why.is(404) => Err(why),
            _ => Ok(()),
        }
    }

    fn lacks(&self, secret: &Secret) -> MissingData {
        lacks(secret, self.authority.as_deref())
    }

    fn filled(
        &self,
        mut secret: Secret,
        account: &ServiceAccount,
        lacks: MissingData,
    ) -> Result<Secret, Failure> {
        let namespace = account.namespace().unwrap_or_default();
        let claims = claims(&self.context.names, account, &secret.name_any());
        let data = secret.data.get_or_insert_default();
        let mut put = |key: &str, bytes: Vec<u8>| data.insert(key.to_owned(), ByteString(bytes));
        if let Some(authority) = self.authority.as_ref().filter(|_| lacks.authority) {
            put("ca.crt", authority.clone().into_bytes());
        }
        if lacks.namespace {
            put("namespace", namespace.into_bytes());
        }
        if lacks.token {
            let token = (self.sign)(&claims);
            let token = token.ok_or_else(|| Failure::Other("the token could not be signed".to_owned()))?;
            put("token", token.into_bytes());
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(self.annotations.name.clone(), account.name_any());
        annotations.insert(self.annotations.uid.clone(), account.uid().unwrap_or_default());
        Ok(secret)
    }

    async fn remove_reference(&self, secret: &str, account: &Reference) -> Result<(), Failure> {
        // it may have come back
        if self.secrets.get(&Key::new(&account.key.namespace, secret)).is_some() {
            return Ok(());
        }
        let Some(mut account) = self.account(account).await? else { return Ok(()) };
        let names_it =
            |it: &ServiceAccount| it.secrets.iter().flatten().any(|one| one.name.as_deref() == Some(secret));
        if !names_it(&account) {
            return Ok(());
        }
        if let Some(secrets) = &mut account.secrets {
            secrets.retain(|one| one.name.as_deref() != Some(secret));
        }
        let api = self.accounts_in(&account.namespace().unwrap_or_default());
        // somebody else may have been faster: then it is tried again
        let written = api.replace(&account.name_any(), &PostParams::default(), &account).await;
        unless(404, written)?;
        Ok(())
    }
}

/// The data that a secret lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingData {
    authority: bool,
    namespace: bool,
    token: bool,
}

impl MissingData {
    fn is_nothing(self) -> bool {
        !(self.authority || self.namespace || self.token)
    }
}

fn lacks(secret: &Secret, authority: Option<&str>) -> MissingData {
    let held = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[][..], |it| &it.0);
    MissingData {
        authority: authority.is_some_and(|authority| authority.as_bytes() != held("ca.crt")),
        namespace: held("namespace").is_empty(),
        token: held("token").is_empty(),
    }
}

/// What a token of old says.
fn claims(names: &Names, account: &ServiceAccount, secret: &str) -> serde_json::Value {
    let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
    let claim = |part: &str| names.well_known(&format!("serviceaccount/{part}"));
    let mut claims = serde_json::Map::new();
    for (key, text) in [
        ("iss".to_owned(), format!("{}/serviceaccount", names.vendor)),
        ("sub".to_owned(), format!("system:serviceaccount:{namespace}:{name}")),
        (claim("namespace"), namespace.clone()),
        (claim("secret.name"), secret.to_owned()),
        (claim("service-account.name"), name.clone()),
        (claim("service-account.uid"), account.uid().unwrap_or_default()),
    ] {
        claims.insert(key, text.into());
    }
    claims.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: serde_json::Value, annotations: serde_json::Value) -> Secret {
        let json = serde_json::json!({"metadata": {"name": "s", "namespace": "n", "annotations": annotations},
            "data": data});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_secret_says_what_it_lacks() {
        let of = |data: serde_json::Value, authority: Option<&str>| {
            let lacks = lacks(&secret(data, serde_json::json!({})), authority);
            (lacks.authority, lacks.namespace, lacks.token)
        };
        // "QQ==" is A
        let full = serde_json::json!({"ca.crt": "QQ==", "namespace": "bg==", "token": "dA=="});
        assert_eq!(of(full.clone(), Some("A")), (false, false, false));
        assert_eq!(of(full.clone(), None), (false, false, false));
        assert_eq!(of(full, Some("B")), (true, false, false));
        assert_eq!(of(serde_json::json!({"token": ""}), Some("A")), (true, true, true));
        assert_eq!(of(serde_json::json!({}), None), (false, true, true));
    }

    #[test]
    fn the_account_is_named_by_annotations() {
        let annotations = Annotations::new(&Names::kubernetes());
        let with = |annotations: serde_json::Value| secret(serde_json::json!({}), annotations);
        let named = with(serde_json::json!({"kubernetes.io/service-account.name": "a"}));
        assert_eq!(annotations.account(&named), Some(Reference { key: Key::new("n", "a"), uid: None }));
        assert_eq!(
            annotations.account(&with(serde_json::json!({"kubernetes.io/service-account.uid": "u"}))),
            None
        );
    }

    #[test]
    fn tokens_of_old_say_whose_they_are() {
        let account = serde_json::json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let account: ServiceAccount = serde_json::from_value(account).unwrap();
        assert_eq!(
            claims(&Names::kubernetes(), &account, "s"),
            serde_json::json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:n:a",
                "kubernetes.io/serviceaccount/namespace": "n", "kubernetes.io/serviceaccount/secret.name": "s",
                "kubernetes.io/serviceaccount/service-account.name": "a",
                "kubernetes.io/serviceaccount/service-account.uid": "u"})
        );
    }
}
