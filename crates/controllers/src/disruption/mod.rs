//! Disruption budgets: how many pods may be evicted right now.
//!
//! What always holds: a budget that cannot be worked out allows nothing. Evictions write the same status; whoever is
//! second reads it again, so that none is lost.

mod expected;
mod stale;
mod status;

use crate::Context;
use crate::pods::state;
use crate::scales::Scales;
use client::events::Note;
use client::retry_on_conflict::beside;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run, unless};
use expected::Owners;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::ResourceExt;
use kube::api::PostParams;
use kube::core::{Selector, SelectorExt};
use std::sync::Arc;

struct Budgets {
    context: Context,
    budgets: WriteTracker<PodDisruptionBudget>,
    pods: Informer<Pod>,
    owners: Owners,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let (budgets, pods) = (context.informer::<PodDisruptionBudget>(), context.informer::<Pod>());
    let news = queue.clone();
    budgets.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    follow(&pods, &budgets, &queue);
    let stale = stale::Stale::listen(&context);
    let owners = Owners::new(&context, Scales::new(context.client.clone()));
    budgets.synced().await;
    pods.synced().await;
    owners.synced().await;
    let this = Budgets { context, budgets: WriteTracker::new(budgets), pods, owners };
    tokio::join!(run::run(Arc::new(this), queue, 1), stale.run());
}

/// Budgets are looked at when something changes about their pods that they look at.
fn follow(pods: &Informer<Pod>, budgets: &Informer<PodDisruptionBudget>, queue: &Queue<Key>) {
    let (budgets, news) = (budgets.clone(), queue.clone());
    pods.listen(move |change| {
        let seen = |pod: &Pod| {
            (state::is_ready(pod), pod.metadata.deletion_timestamp.is_some(), pod.metadata.uid.clone())
        };
        let mut pods = vec![change.object()];
        if let Change::Updated { old, new } = change {
            let same_place = old.labels() == new.labels() && old.owner_references() == new.owner_references();
            if same_place && seen(old) == seen(new) {
                return;
            }
            pods.push(old);
        }
        for budget in budgets.in_namespace(&change.object().namespace().unwrap_or_default()) {
            let selector = selector(&budget);
            if pods.iter().any(|pod| selector.as_ref().is_some_and(|it| it.matches(pod.labels()))) {
                news.add(Key::of(&*budget));
            }
        }
    });
}

/// Which pods a budget is about. None are where it does not say; all are where it says nothing about them.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    budget.spec.as_ref()?.selector.clone()?.try_into().ok()
}

impl Reconcile for Budgets {
    type Key = Key;

    fn name(&self) -> &'static str {
        "disruption"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.budgets.seen(key).await?;
        let Some(budget) = self.budgets.informer().get(key) else { return Ok(Action::AwaitChange) };
        let why = match self.look(key, &budget).await {
            Ok(next) => return Ok(next),
            // somebody was faster, such as an eviction
            Err(why) if why.is(409) => return Err(why),
            Err(why) => why,
        };
        let next = status::unknown(&budget, &why.message(), &self.context.time());
        self.write(key, &budget, next).await?;
        match why {
            // what is wrong with the budget or its pods stays so until they change
            Failure::Other(_) => Ok(Action::AwaitChange),
            why => Err(why),
        }
    }
}

impl Budgets {
    async fn look(&self, key: &Key, budget: &PodDisruptionBudget) -> Result<Action, Failure> {
        let Some(spec) = &budget.spec else { return Ok(Action::AwaitChange) };
        let pods = match selector(budget) {
            None => Vec::new(),
            Some(selector) => {
                let mut pods = self.pods.in_namespace(&key.namespace);
                pods.retain(|pod| selector.matches(pod.labels()));
                pods
            }
        };
        if pods.is_empty() {
            self.context.events.note(budget, Note::normal("NoPods", "No matching pods found"));
        }
        let mut scale = 0;
        if status::needs_scale(spec) {
            let expected = self.owners.expected(&pods).await;
            let expected = expected.inspect_err(|why| self.failed(budget, &why.message()))?;
            scale = expected.pods;
            if expected.unmanaged {
                self.unmanaged(budget);
            }
        }
        let wanted = status::wanted(spec, scale, pods.len()).map_err(|why| {
            self.failed(budget, &why);
            Failure::Other(why)
        })?;
        let now = self.context.time();
        let disrupted = status::disrupted(budget, &pods, now.0);
        for name in &disrupted.overdue {
            if let Some(pod) = pods.iter().find(|pod| pod.name_any() == *name) {
                let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
                self.context.events.note(&**pod, Note::warning("NotDeleted", message));
            }
        }
        let healthy = status::healthy(&pods, &disrupted.pods);
        let next = status::status(budget, wanted, healthy, disrupted.pods, &now);
        self.write(key, budget, next).await?;
        Ok(disrupted.again.map_or(Action::AwaitChange, Action::Requeue))
    }

    fn failed(&self, budget: &PodDisruptionBudget, why: &str) {
        let message = format!("Failed to calculate the number of expected pods: {why}");
        self.context.events.note(budget, Note::warning("CalculateExpectedPodCountFailed", message));
    }

    fn unmanaged(&self, budget: &PodDisruptionBudget) {
        let selector = selector(budget).map(|it| it.to_string()).unwrap_or_default();
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, \
             the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
             for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        self.context.events.note(budget, Note::warning("UnmanagedPods", message));
    }

    async fn write(
        &self,
        key: &Key,
        budget: &PodDisruptionBudget,
        next: PodDisruptionBudgetStatus,
    ) -> Result<(), Failure> {
        if budget.status.as_ref() == Some(&next) {
            return Ok(());
        }
        let mut over = budget.clone();
        over.status = Some(next);
        let body = serde_json::to_vec(&over).map_err(kube::Error::SerdeError)?;
        let budgets = beside::<PodDisruptionBudget>(&self.context.client, budget);
        let written = budgets.replace_status(&key.name, &PostParams::default(), body).await;
        if let Some(written) = unless(404, written)? {
            self.budgets.wrote(key, &written);
        }
        Ok(())
    }
}
