//! PodDisruptionBudgets are respected.
//!
//! Asserted: a ready pod that is evicted by the API (its condition `DisruptionTarget` says so) is named in
//! `disruptedPods` of each budget that selects it; each name that is added there takes one from `disruptionsAllowed`,
//! which is never below 0. Between two counts of the controller there are so never more evictions than it has allowed.
//!
//! Permitted upstream, and not asserted: the controller's count may be older than what has happened to the pods since;
//! pods that are not ready, or over, may go without a budget's consent (`unhealthyPodEvictionPolicy`).

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{condition, is_ready, is_terminating, number, selects, text};
use crate::cluster::history::{Change, Event, Objects};
use serde_json::Value;
use std::collections::HashSet;

/// See the module.
#[derive(Default)]
pub struct Budgets {
    /// Pods that a budget has named as disrupted: the budget and the pod's name.
    named: HashSet<(String, String, String)>,
}

const RULE: &str = "a PodDisruptionBudget is respected";

impl Invariant for Budgets {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        let Event::Change(change) = event else { return };
        let problem = match &*change.key.resource {
            "poddisruptionbudgets.policy" => self.see_budget(change),
            "pods" => self.see_pod(change, objects),
            _ => None,
        };
        if change.key.resource == "pods" && change.is_gone {
            // another pod may have its name
            self.named.retain(|it| it.0 != change.key.namespace || it.2 != change.key.name);
        }
        breaches.extend(problem.map(|detail| Breach {
            rule: RULE,
            revision: change.revision,
            namespace: change.key.namespace.clone(),
            detail: format!("{}: {detail}", change.key),
        }));
    }
}

fn disrupted(budget: &Value) -> Vec<&str> {
    let pods = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    pods.into_iter().flat_map(|it| it.keys()).map(String::as_str).collect()
}

impl Budgets {
    fn see_budget(&mut self, change: &Change) -> Option<String> {
        let budget = &change.object;
        for pod in disrupted(budget) {
            let named = (change.key.namespace.clone(), change.key.name.clone(), pod.to_owned());
            self.named.insert(named);
        }
        let allowed = |it: &Value| number(it, "/status/disruptionsAllowed");
        if allowed(budget) < 0 {
            return Some(format!("allows {} disruptions", allowed(budget)));
        }
        let before = change.previous.as_ref()?;
        // the controller counts anew; an eviction adds a name to the same count
        let is_same_count = ["currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration"]
            .iter()
            .all(|it| number(before, &format!("/status/{it}")) == number(budget, &format!("/status/{it}")));
        let known = disrupted(before);
        let new = disrupted(budget).into_iter().filter(|it| !known.contains(it)).count();
        let new = i64::try_from(new).unwrap_or(i64::MAX);
        (is_same_count && new > 0 && allowed(budget) > allowed(before) - new)
            .then(|| format!("{new} evictions took it from {} to {}", allowed(before), allowed(budget)))
    }

    fn see_pod(&self, change: &Change, objects: &Objects) -> Option<String> {
        let before = change.previous.as_ref()?;
        condition(&change.object, "DisruptionTarget")
            .filter(|it| text(it, "/reason") == "EvictionByEvictionAPI" && it["status"] == "True")?;
        let is_now = !is_terminating(before) && (change.is_gone || is_terminating(&change.object));
        // an unready pod may go; the condition is written before the deletion
        if !is_now || !is_ready(before) {
            return None;
        }
        let unnamed =
            objects.within("poddisruptionbudgets.policy", &change.key.namespace).find(|(key, budget)| {
                let named = (key.namespace.clone(), key.name.clone(), change.key.name.clone());
                selects(&budget["spec"]["selector"], before) && !self.named.contains(&named)
            })?;
        Some(format!("was evicted, and {} has not allowed it", unnamed.0.name))
    }
}
