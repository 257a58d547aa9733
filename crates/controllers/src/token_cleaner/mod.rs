//! Deletes expired bootstrap tokens.

use crate::Context;
use crate::bootstrap_token::expiration;
use api::Resource;
use api::core::v1::Secret;
use api::meta::v1::DeleteOptions;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, of_uid, run};
use std::sync::Arc;
use std::time::Duration;

struct Cleaner {
    context: Context,
    secrets: Informer<Secret>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let kind = format!("type={}", context.names.bootstrap_token_type());
    let secrets = context.informer_of::<Secret>(&context.names.system_namespace(), &kind);
    let cleaner = Arc::new(Cleaner { context, secrets: secrets.clone() });
    let changed = queue.clone();
    secrets.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    secrets.synced().await;
    run::run(cleaner, queue, 1).await;
}

impl Reconcile for Cleaner {
    type Key = Key;

    fn name(&self) -> &'static str {
        "tokencleaner"
    }

    fn queue_name(&self) -> &'static str {
        "token_cleaner"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(secret) = self.secrets.get(key) else { return Ok(Action::AwaitChange) };
        let Some(until) = expiration(&secret) else { return Ok(Action::AwaitChange) };
        let left = until.saturating_sub(self.context.now());
        if left > 0 {
            return Ok(Action::Requeue(Duration::from_secs(left.unsigned_abs())));
        }
        let preconditions = Some(Box::new(of_uid(secret.uid())));
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        let secrets: Api<Secret> = Api::namespaced(&self.context.client, &key.namespace);
        match secrets.delete(&key.name, &options).await {
            // gone, or replaced by another secret of the same name
            Err(why) if !why.is(404) && !why.is(409) => Err(why.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}
