//! Creates the service accounts of every namespace: `default`, and others that the options name.

use crate::Context;
use api::core::v1::{Namespace, ServiceAccount};
use api::meta::v1::ObjectMeta;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, is_terminating, run, unless};
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
    names: Vec<String>,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let (namespaces, accounts) = (context.informer::<Namespace>(), context.informer::<ServiceAccount>());
    let controller = Arc::new(Accounts {
        context,
        names: options.accounts,
        namespaces: namespaces.clone(),
        accounts: accounts.clone(),
    });
    let changed = queue.clone();
    namespaces.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    let changed = queue.clone();
    accounts.listen(move |change| {
        if change.is_deletion() {
            changed.add(Key::new("", change.key().namespace));
        }
    });
    namespaces.synced().await;
    accounts.synced().await;
    run::run(controller, queue, options.workers).await;
}

impl Reconcile for Accounts {
    type Key = Key;

    fn name(&self) -> &'static str {
        "serviceaccount"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::AwaitChange) };
        if namespace.status.phase != "Active" {
            return Ok(Action::AwaitChange);
        }
        let is_missing = |name: &&String| self.accounts.get(&Key::new(&key.name, *name)).is_none();
        for name in self.names.iter().filter(is_missing) {
            let account = ServiceAccount {
                metadata: ObjectMeta { name: name.clone(), ..ObjectMeta::default() },
                ..ServiceAccount::default()
            };
            let accounts: Api<ServiceAccount> = Api::namespaced(&self.context.client, &key.name);
            // it exists, or its namespace is terminating
            if let Err(why) = unless(409, accounts.create(&account).await)
                && !is_terminating(&why)
            {
                return Err(why.into());
            }
        }
        Ok(Action::AwaitChange)
    }
}
