//! Every namespace has its service accounts: `default`, and others that an operator may want in all of them.

use crate::Context;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, is_terminating, run, unless};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The accounts that every namespace has.
    pub accounts: Vec<String>,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { accounts: vec!["default".to_owned()], workers: 1 }
    }
}

struct Accounts {
    context: Context,
    wanted: Vec<String>,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::default();
    let (namespaces, accounts) = (context.informer::<Namespace>(), context.informer::<ServiceAccount>());
    let this = Arc::new(Accounts {
        context,
        wanted: options.accounts,
        namespaces: namespaces.clone(),
        accounts: accounts.clone(),
    });
    let news = queue.clone();
    namespaces.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    let news = queue.clone();
    accounts.listen(move |change| {
        if change.is_deletion() {
            news.add(Key::new("", change.key().namespace));
        }
    });
    namespaces.synced().await;
    accounts.synced().await;
    run::run(this, queue, options.workers).await;
}

impl Reconcile for Accounts {
    type Key = Key;

    fn name(&self) -> &'static str {
        "serviceaccount"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::AwaitChange) };
        if namespace.status.as_ref().and_then(|it| it.phase.as_deref()) != Some("Active") {
            return Ok(Action::AwaitChange);
        }
        for name in missing(&self.wanted, |name| self.accounts.get(&Key::new(&key.name, name)).is_some()) {
            let account = ServiceAccount {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                ..ServiceAccount::default()
            };
            let api: Api<ServiceAccount> = Api::namespaced(self.context.client.clone(), &key.name);
            let made = api.create(&PostParams::default(), &account).await;
            // it is there, or its namespace is going away meanwhile
            if let Err(why) = unless(409, made)
                && !is_terminating(&why)
            {
                return Err(why.into());
            }
        }
        Ok(Action::AwaitChange)
    }
}

fn missing(wanted: &[String], is_there: impl Fn(&str) -> bool) -> impl Iterator<Item = &String> {
    wanted.iter().filter(move |name| !is_there(name))
}
