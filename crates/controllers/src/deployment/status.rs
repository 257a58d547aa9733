//! What a deployment says about itself: how many pods there are, whether enough of them are available, and whether the
//! rollout gets on.

use super::limits::{Limits, is_paused};
use super::sets::Sets;
use crate::replicas::Replicated;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::TimeDelta;
use kube::ResourceExt;
use std::time::Duration;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const DONE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The seconds without progress after which a rollout has failed, if there is such a deadline.
fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|it| *it != i32::MAX)
}

/// What is zero is not there.
fn some(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// A status on its way.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    deployment: &'a Deployment,
    pub status: DeploymentStatus,
    now: Time,
}

impl<'a> Draft<'a> {
    pub fn new(deployment: &'a Deployment, now: Time) -> Self {
        let mut status = deployment.status.clone().unwrap_or_default();
        status.conditions = status.conditions.filter(|it| !it.is_empty());
        Draft { deployment, status, now }
    }

    pub fn is_news(&self) -> bool {
        self.status != Draft::new(self.deployment, self.now.clone()).status
    }

    fn condition(&self, name: &str) -> Option<&DeploymentCondition> {
        self.status.conditions.iter().flatten().find(|it| it.type_ == name)
    }

    fn remove(&mut self, name: &str) {
        if let Some(conditions) = &mut self.status.conditions {
            conditions.retain(|it| it.type_ != name);
        }
        self.status.conditions = self.status.conditions.take().filter(|it| !it.is_empty());
    }

    /// Sets a condition; nothing happens if it is the same with the same reason.
    fn set(&mut self, name: &str, status: &str, reason: &str, message: String) {
        let before = self.condition(name);
        if before.is_some_and(|it| it.status == status && it.reason.as_deref() == Some(reason)) {
            return;
        }
        self.renew(name, status, reason, message);
    }

    /// The same, but what is the same is said anew.
    fn renew(&mut self, name: &str, status: &str, reason: &str, message: String) {
        let same = self.condition(name).filter(|it| it.status == status);
        let since = same.and_then(|it| it.last_transition_time.clone());
        let condition = DeploymentCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: Some(self.now.clone()),
            last_transition_time: Some(since.unwrap_or_else(|| self.now.clone())),
        };
        self.remove(name);
        self.status.conditions.get_or_insert_default().push(condition);
    }

    /// A deployment that was paused or resumed is not measured by the time before.
    pub fn pause(&mut self) {
        let reason = self.condition(PROGRESSING).and_then(|it| it.reason.as_deref());
        if deadline(self.deployment).is_none() || reason == Some(TIMED_OUT) {
            return;
        }
        match (is_paused(self.deployment), reason == Some(PAUSED)) {
            (true, false) => self.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".to_owned()),
            (false, true) => {
                self.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed".to_owned());
            }
            _ => {}
        }
    }

    pub fn created(&mut self, set: &str) {
        if deadline(self.deployment).is_some() {
            let message = format!("Created new replica set {set:?}");
            self.set(PROGRESSING, "True", "NewReplicaSetCreated", message);
        }
    }

    /// A replica set was there already when somebody began to watch the progress.
    pub fn found(&mut self, set: &str) {
        if deadline(self.deployment).is_some() && self.condition(PROGRESSING).is_none() {
            let message = format!("Found new replica set {set:?}");
            self.set(PROGRESSING, "True", "FoundNewReplicaSet", message);
        }
    }

    pub fn not_created(&mut self, message: String) {
        if deadline(self.deployment).is_some() {
            self.set(PROGRESSING, "False", "ReplicaSetCreateError", message);
        }
    }

    /// A name was taken by somebody else's replica set.
    pub fn collided(&mut self) {
        self.status.collision_count = Some(self.status.collision_count.unwrap_or(0).saturating_add(1));
    }

    /// Counts pods.
    pub fn count(&mut self, sets: &Sets, limits: &Limits) {
        let sum =
            |of: &dyn Fn(&ReplicaSet) -> i32| sets.all().fold(0i32, |sum, set| sum.saturating_add(of(set)));
        let available = sum(&|set| set.status().available);
        self.status.observed_generation = self.deployment.metadata.generation;
        self.status.replicas = some(sum(&|set| set.status().replicas));
        self.status.updated_replicas = some(sets.new.as_ref().map_or(0, |it| it.status().replicas));
        self.status.ready_replicas = some(sum(&|set| set.status().ready));
        self.status.available_replicas = some(available);
        self.status.unavailable_replicas = some((sum(&|set| set.replicas()) - available).max(0));
        if available >= limits.least_available() {
            let message = "Deployment has minimum availability.".to_owned();
            self.set(AVAILABLE, "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            self.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
        }
    }

    /// Says whether the rollout gets on. Pods are counted by now.
    pub fn progress(&mut self, sets: &Sets, limits: &Limits) {
        if deadline(self.deployment).is_none() {
            self.remove(PROGRESSING);
        } else if !self.was_done() {
            let what = match &sets.new {
                Some(new) => format!("ReplicaSet {:?}", new.name_any()),
                None => format!("Deployment {:?}", self.deployment.name_any()),
            };
            if is_complete(self.deployment, &self.status, limits) {
                self.set(PROGRESSING, "True", DONE, format!("{what} has successfully progressed."));
            } else if self.gets_on() {
                self.renew(PROGRESSING, "True", "ReplicaSetUpdated", format!("{what} is progressing."));
            } else if self.left().is_some_and(|left| left < TimeDelta::zero()) {
                self.set(PROGRESSING, "False", TIMED_OUT, format!("{what} has timed out progressing."));
            }
        }
        match failure(sets) {
            Some(why) => self.fail(&why),
            None => self.remove(REPLICA_FAILURE),
        }
    }

    fn fail(&mut self, why: &ReplicaSetCondition) {
        let before = self.condition(REPLICA_FAILURE);
        if before.is_some_and(|it| it.status == why.status && it.reason == why.reason) {
            return;
        }
        let same = before.filter(|it| it.status == why.status);
        let since = same.and_then(|it| it.last_transition_time.clone());
        let condition = DeploymentCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: why.status.clone(),
            reason: why.reason.clone(),
            message: why.message.clone(),
            last_update_time: why.last_transition_time.clone(),
            last_transition_time: since.or(why.last_transition_time.clone()),
        };
        self.remove(REPLICA_FAILURE);
        self.status.conditions.get_or_insert_default().push(condition);
    }

    /// Whether the last rollout had come to its end, and nothing has begun since.
    fn was_done(&self) -> bool {
        self.status.replicas == self.status.updated_replicas
            && self.condition(PROGRESSING).is_some_and(|it| it.reason.as_deref() == Some(DONE))
    }

    fn gets_on(&self) -> bool {
        let before = self.deployment.status.as_ref();
        let of = |pick: fn(&DeploymentStatus) -> Option<i32>| {
            (before.and_then(pick).unwrap_or(0), pick(&self.status).unwrap_or(0))
        };
        let (all, updated) = (of(|it| it.replicas), of(|it| it.updated_replicas));
        let (ready, available) = (of(|it| it.ready_replicas), of(|it| it.available_replicas));
        updated.1 > updated.0
            || all.1 - updated.1 < all.0 - updated.0
            || ready.1 > ready.0
            || available.1 > available.0
    }

    /// The time until the deadline; nothing where none runs.
    fn left(&self) -> Option<TimeDelta> {
        let deadline = TimeDelta::try_seconds(deadline(self.deployment)?.into())?;
        let condition = self.condition(PROGRESSING)?;
        if [DONE, TIMED_OUT].map(Some).contains(&condition.reason.as_deref()) {
            return None;
        }
        let from = condition.last_update_time.as_ref()?.0;
        Some(from.checked_add_signed(deadline)?.signed_duration_since(self.now.0))
    }

    /// When to look whether the deadline has passed.
    pub fn looks_again(&self, limits: &Limits) -> Option<Duration> {
        if is_complete(self.deployment, &self.status, limits) {
            return None;
        }
        let left = self.left()?.to_std().unwrap_or_default();
        Some(left + Duration::from_secs(1))
    }
}

/// Whether a rollout has come to its end.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus, limits: &Limits) -> bool {
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|it| it.unwrap_or(0) == limits.replicas)
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

/// Why pods cannot be made, first of the new set, then of others.
fn failure(sets: &Sets) -> Option<ReplicaSetCondition> {
    let failed =
        |set: &ReplicaSet| set.status().conditions.into_iter().find(|it| it.type_ == REPLICA_FAILURE);
    sets.new.iter().chain(&sets.old).find_map(|set| failed(set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::chrono::DateTime;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { replicas: 10, surge: 3, unavailable: 2 };

    fn at(seconds: i64) -> Time {
        Time(DateTime::from_timestamp(seconds, 0).unwrap())
    }

    fn deployment(deadline: Option<i32>, paused: bool, status: &DeploymentStatus) -> Deployment {
        let json = json!({
            "metadata": {"name": "d", "generation": 4},
            "spec": {
                "replicas": 10, "selector": {}, "template": {}, "paused": paused,
                "progressDeadlineSeconds": deadline
            },
            "status": status
        });
        serde_json::from_value(json).unwrap()
    }

    fn set(name: &str, wanted: i32, there: i32, available: i32, conditions: Value) -> Arc<ReplicaSet> {
        let json = json!({
            "metadata": {"name": name},
            "spec": {"replicas": wanted, "selector": {}},
            "status": {
                "replicas": there, "readyReplicas": available, "availableReplicas": available,
                "conditions": conditions
            }
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    /// The status after looking at some sets, and its conditions in short.
    fn look(
        before: &DeploymentStatus,
        now: i64,
        new: (i32, i32, i32),
        old: (i32, i32, i32),
    ) -> (DeploymentStatus, String) {
        let deployment = deployment(Some(60), false, before);
        let mut draft = Draft::new(&deployment, at(now));
        let sets = Sets {
            new: Some(set("new", new.0, new.1, new.2, Value::Null)),
            old: vec![set("old", old.0, old.1, old.2, Value::Null)],
        };
        draft.pause();
        draft.found("new");
        draft.count(&sets, &LIMITS);
        draft.progress(&sets, &LIMITS);
        let text = said(&draft.status);
        (draft.status, text)
    }

    fn said(status: &DeploymentStatus) -> String {
        let all = status.conditions.iter().flatten().map(|it| {
            let seconds = |time: &Option<Time>| time.as_ref().map_or(0, |it| it.0.timestamp());
            format!(
                "{}={}({}, {}/{})",
                it.type_,
                it.status,
                it.reason.as_deref().unwrap_or_default(),
                seconds(&it.last_update_time),
                seconds(&it.last_transition_time)
            )
        });
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_rollout_that_gets_on() {
        let (first, text) = look(&DeploymentStatus::default(), 100, (3, 0, 0), (10, 10, 10));
        assert_eq!(
            text,
            "Available=True(MinimumReplicasAvailable, 100/100) Progressing=True(ReplicaSetUpdated, 100/100)"
        );
        assert_eq!(
            (first.replicas, first.updated_replicas, first.unavailable_replicas),
            (Some(10), None, Some(3))
        );
        assert_eq!(first.observed_generation, Some(4));
        // nothing happens: nothing changes
        assert_eq!(look(&first, 110, (3, 0, 0), (10, 10, 10)).0, first);
        let (second, text) = look(&first, 120, (3, 3, 0), (10, 10, 10));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 120/100)"), "{text}");
        // fewer than there must be
        let (_, text) = look(&second, 130, (3, 3, 0), (7, 7, 7));
        assert!(text.contains("Available=False(MinimumReplicasUnavailable, 130/130)"), "{text}");
        let (done, text) = look(&second, 140, (10, 10, 10), (0, 0, 0));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        // pods that break later are no rollout
        let (_, text) = look(&done, 1000, (10, 10, 5), (0, 0, 0));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        // but another template is, as soon as it has pods
        let (begun, text) = look(&done, 1000, (3, 0, 0), (10, 10, 10));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        let (_, text) = look(&begun, 1010, (3, 3, 0), (8, 8, 8));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 1010/100)"), "{text}");
    }

    #[test]
    fn a_rollout_that_does_not() {
        let (first, _) = look(&DeploymentStatus::default(), 100, (3, 3, 0), (10, 10, 10));
        assert_eq!(look(&first, 160, (3, 3, 0), (10, 10, 10)).0, first);
        let (late, text) = look(&first, 161, (3, 3, 0), (10, 10, 10));
        assert!(text.contains("Progressing=False(ProgressDeadlineExceeded, 161/161)"), "{text}");
        assert_eq!(look(&late, 500, (3, 3, 0), (10, 10, 10)).0, late);
        let (_, text) = look(&late, 600, (3, 3, 1), (10, 10, 10));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 600/600)"), "{text}");
        let again = |status: &DeploymentStatus, now| {
            let deployment = deployment(Some(60), false, status);
            Draft::new(&deployment, at(now)).looks_again(&LIMITS).map(|it| it.as_secs())
        };
        assert_eq!(again(&first, 100), Some(61));
        assert_eq!(again(&first, 500), Some(1));
        assert_eq!(again(&late, 500), None);
        assert_eq!(again(&DeploymentStatus::default(), 500), None);
    }

    #[test]
    fn pauses_are_told() {
        let after = |paused, status: &DeploymentStatus, now| {
            let deployment = deployment(Some(60), paused, status);
            let mut draft = Draft::new(&deployment, at(now));
            draft.pause();
            (draft.is_news(), draft.status)
        };
        let (news, paused) = after(true, &DeploymentStatus::default(), 100);
        assert!(news);
        assert_eq!(said(&paused), "Progressing=Unknown(DeploymentPaused, 100/100)");
        assert!(!after(true, &paused, 110).0);
        let (_, resumed) = after(false, &paused, 120);
        assert_eq!(said(&resumed), "Progressing=Unknown(DeploymentResumed, 120/100)");
        assert!(!after(false, &resumed, 130).0);
    }

    #[test]
    fn without_a_deadline_nobody_watches() {
        for deadline in [None, Some(i32::MAX)] {
            let before: DeploymentStatus = serde_json::from_value(json!({
                "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"}]
            }))
            .unwrap();
            let deployment = deployment(deadline, true, &before);
            let mut draft = Draft::new(&deployment, at(1));
            draft.pause();
            draft.created("new");
            draft.progress(&Sets::default(), &LIMITS);
            assert_eq!(draft.status.conditions, None);
            assert_eq!(draft.looks_again(&LIMITS), None);
        }
    }

    #[test]
    fn failures_of_replica_sets_are_passed_on() {
        let why = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no room",
            "lastTransitionTime": "1970-01-01T00:00:05Z"
        }]);
        let before = DeploymentStatus::default();
        let first = deployment(Some(60), false, &before);
        let mut draft = Draft::new(&first, at(10));
        draft.progress(&Sets { new: None, old: vec![set("old", 1, 0, 0, why)] }, &LIMITS);
        assert_eq!(said(&draft.status), "ReplicaFailure=True(FailedCreate, 5/5)");
        let next = deployment(Some(60), false, &draft.status);
        let mut draft = Draft::new(&next, at(20));
        draft.progress(&Sets::default(), &LIMITS);
        assert_eq!(draft.status.conditions, None);
    }

    #[test]
    fn collisions_are_counted() {
        let before = DeploymentStatus::default();
        let deployment = deployment(None, false, &before);
        let mut draft = Draft::new(&deployment, at(10));
        draft.collided();
        draft.collided();
        assert_eq!(draft.status.collision_count, Some(2));
    }
}
