//! Removes tokens by which new nodes introduce themselves, when their time has passed.

use crate::Context;
use crate::bootstrap_token::good_until;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;

struct Cleaner {
    context: Context,
    secrets: Informer<Secret>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let kind = format!("type={}", context.names.bootstrap_token_type());
    let secrets = context.informer_of::<Secret>(&context.names.system_namespace(), &kind);
    let this = Arc::new(Cleaner { context, secrets: secrets.clone() });
    let news = queue.clone();
    secrets.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    secrets.synced().await;
    run::run(this, queue, 1).await;
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
        let Some(until) = good_until(&secret) else { return Ok(Action::AwaitChange) };
        let left = until.saturating_sub(self.context.now());
        if left > 0 {
            return Ok(Action::Requeue(Duration::from_secs(left.unsigned_abs())));
        }
        let same = Preconditions { uid: secret.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), &key.namespace);
        match unless(404, api.delete(&key.name, &params).await).map_err(Failure::from) {
            // another one of that name is not this one's business
            Err(why) if !why.is(409) => Err(why),
            _ => Ok(Action::AwaitChange),
        }
    }
}
