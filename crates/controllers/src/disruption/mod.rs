//! The disruption controller: computes how many pods each disruption budget allows to be evicted.
//!
//! Always true: a budget whose status cannot be computed allows no disruption. Evictions write the same status, so every
//! write requires the resource version that it was computed from.

mod expected;
mod stale;
mod status;

use crate::Context;
use crate::pods::state;
use crate::scales::Scales;
use api::Resource;
use api::core::v1::Pod;
use api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use apimachinery::labels::Selector;
use client::events::Note;
use client::{Action, Api, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run, unless};
use expected::Owners;
use std::sync::Arc;

struct Budgets {
    context: Context,
    budgets: WriteTracker<PodDisruptionBudget>,
    pods: Informer<Pod>,
    owners: Owners,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let (budgets, pods) = (context.informer::<PodDisruptionBudget>(), context.informer::<Pod>());
    let changed = queue.clone();
    budgets.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    listen_to_pods(&pods, &budgets, &queue);
    let stale = stale::StaleConditions::listen(&context);
    let owners = Owners::new(&context, Scales::new(context.client.clone()));
    budgets.synced().await;
    pods.synced().await;
    owners.synced().await;
    let controller = Budgets { context, budgets: WriteTracker::new(budgets), pods, owners };
    tokio::join!(run::run(Arc::new(controller), queue, 1), stale.run());
}

/// Queues budgets when their pods change in a way that matters to them.
fn listen_to_pods(pods: &Informer<Pod>, budgets: &Informer<PodDisruptionBudget>, queue: &Queue<Key>) {
    let (budgets, changed) = (budgets.clone(), queue.clone());
    pods.listen(move |change| {
        let mut pods = vec![change.object()];
        if let Change::Updated { old, new } = change {
            let (before, after) = (&old.metadata, &new.metadata);
            if before.labels == after.labels
                && before.owner_references == after.owner_references
                && before.uid == after.uid
                && before.deletion_timestamp.is_some() == after.deletion_timestamp.is_some()
                && state::is_ready(old) == state::is_ready(new)
            {
                return;
            }
            pods.push(old);
        }
        for budget in budgets.in_namespace(change.object().namespace()) {
            let selector = selector(&budget);
            if pods.iter().any(|pod| selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))) {
                changed.add(Key::of(&*budget));
            }
        }
    });
}

/// The selector of a budget: without one it selects no pods, with an empty one all.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    Selector::try_from(budget.spec.selector.as_deref()?).ok()
}

impl Reconcile for Budgets {
    type Key = Key;

    fn name(&self) -> &'static str {
        "disruption"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.budgets.seen(key).await?;
        let Some(budget) = self.budgets.informer().get(key) else { return Ok(Action::AwaitChange) };
        let why = match self.sync(key, &budget).await {
            Ok(next) => return Ok(next),
            // another write came first, such as that of an eviction
            Err(why) if why.is(409) => return Err(why),
            Err(why) => why,
        };
        let next = status::unknown(&budget, &why.message(), self.context.time());
        self.write(key, &budget, next).await?;
        match why {
            // an error in the budget or its pods remains until they change
            Failure::Other(_) => Ok(Action::AwaitChange),
            why => Err(why),
        }
    }
}

impl Budgets {
    async fn sync(&self, key: &Key, budget: &PodDisruptionBudget) -> Result<Action, Failure> {
        let pods = match selector(budget) {
            None => Vec::new(),
            Some(selector) => {
                let mut pods = self.pods.in_namespace(&key.namespace);
                pods.retain(|pod| selector.matches(&pod.metadata.labels));
                pods
            }
        };
        if pods.is_empty() {
            self.context.events.note(budget, Note::normal("NoPods", "No matching pods found"));
        }
        let mut scale = 0;
        if status::needs_scale(&budget.spec) {
            let expected = self.owners.expected(&pods).await;
            let expected = expected.inspect_err(|why| self.record_failure(budget, &why.message()))?;
            scale = expected.count;
            if expected.unmanaged {
                self.record_unmanaged(budget);
            }
        }
        let desired = status::desired_health(&budget.spec, scale, pods.len()).map_err(|why| {
            self.record_failure(budget, &why);
            Failure::Other(why)
        })?;
        let now = self.context.time();
        let disrupted = status::disrupted(budget, &pods, now);
        for name in &disrupted.overdue {
            if let Some(pod) = pods.iter().find(|pod| pod.name() == name) {
                let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
                self.context.events.note(&**pod, Note::warning("NotDeleted", message));
            }
        }
        let healthy = status::healthy(&pods, &disrupted.pods);
        let next = status::status(budget, desired, healthy, disrupted.pods, now);
        self.write(key, budget, next).await?;
        Ok(disrupted.recheck_after.map_or(Action::AwaitChange, Action::Requeue))
    }

    fn record_failure(&self, budget: &PodDisruptionBudget, why: &str) {
        let message = format!("Failed to calculate the number of expected pods: {why}");
        self.context.events.note(budget, Note::warning("CalculateExpectedPodCountFailed", message));
    }

    fn record_unmanaged(&self, budget: &PodDisruptionBudget) {
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
        if budget.status == next {
            return Ok(());
        }
        let budgets = Api::beside(&self.context.client, budget);
        let written = budgets.replace_status(&PodDisruptionBudget { status: next, ..budget.clone() }).await;
        if let Some(written) = unless(404, written)? {
            self.budgets.wrote(key, &written);
        }
        Ok(())
    }
}
