//! The status of a deployment: counts of pods, and conditions for availability, progress and failures.

use super::limits::Limits;
use super::sets::Sets;
use crate::replicas::ReplicaKind;
use api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition};
use api::{Resource, Time};
use std::time::Duration;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The seconds without progress after which a rollout has failed; `None` without a deadline.
fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|it| *it != i32::MAX)
}

/// The next status of a deployment, before it is written.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    deployment: &'a Deployment,
    pub status: DeploymentStatus,
    now: Time,
}

impl<'a> Draft<'a> {
    pub fn new(deployment: &'a Deployment, now: Time) -> Self {
        Draft { deployment, status: deployment.status.clone(), now }
    }

    pub fn is_changed(&self) -> bool {
        self.status != self.deployment.status
    }

    fn condition(&self, name: &str) -> Option<&DeploymentCondition> {
        self.status.conditions.iter().find(|it| it.type_ == name)
    }

    fn remove(&mut self, name: &str) {
        self.status.conditions.retain(|it| it.type_ != name);
    }

    /// Sets a condition, unless it has this status and reason already.
    fn set(&mut self, name: &str, status: &str, reason: &str, message: String) {
        let before = self.condition(name);
        if before.is_some_and(|it| it.status == status && it.reason == reason) {
            return;
        }
        self.renew(name, status, reason, message);
    }

    /// Sets a condition, and its update time in any case.
    fn renew(&mut self, name: &str, status: &str, reason: &str, message: String) {
        let same = self.condition(name).filter(|it| it.status == status);
        let since = same.and_then(|it| it.last_transition_time);
        let condition = DeploymentCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_update_time: Some(self.now),
            last_transition_time: Some(since.unwrap_or(self.now)),
            ..DeploymentCondition::default()
        };
        self.remove(name);
        self.status.conditions.push(condition);
    }

    /// Restarts the progress deadline of a deployment that was paused or resumed.
    pub fn pause(&mut self) {
        let reason = self.condition(PROGRESSING).map_or("", |it| &it.reason);
        if deadline(self.deployment).is_none() || reason == TIMED_OUT {
            return;
        }
        match (self.deployment.spec.paused, reason == PAUSED) {
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

    /// The new replica set exists, but there is no progress condition yet.
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

    /// Another object has the name of the new replica set.
    pub fn collided(&mut self) {
        self.status.collision_count = Some(self.status.collision_count.unwrap_or(0).saturating_add(1));
    }

    /// Counts pods, and sets the condition of availability.
    pub fn count(&mut self, sets: &Sets, limits: &Limits) {
        let sum =
            |of: &dyn Fn(&ReplicaSet) -> i32| sets.all().fold(0i32, |sum, set| sum.saturating_add(of(set)));
        let available = sum(&|set| set.status.available_replicas);
        self.status.observed_generation = self.deployment.metadata.generation;
        self.status.replicas = sum(&|set| set.status.replicas);
        self.status.updated_replicas = sets.new.as_ref().map_or(0, |it| it.status.replicas);
        self.status.ready_replicas = sum(&|set| set.status.ready_replicas);
        self.status.available_replicas = available;
        self.status.unavailable_replicas = (sum(&|set| set.replicas()) - available).max(0);
        if available >= limits.least_available() {
            let message = "Deployment has minimum availability.".to_owned();
            self.set(AVAILABLE, "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            self.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
        }
    }

    /// Sets the conditions of progress and failures. Pods are counted already.
    pub fn progress(&mut self, sets: &Sets, limits: &Limits) {
        if deadline(self.deployment).is_none() {
            self.remove(PROGRESSING);
        } else if !self.was_complete() {
            let subject = match &sets.new {
                Some(new) => format!("ReplicaSet {:?}", new.name()),
                None => format!("Deployment {:?}", self.deployment.name()),
            };
            if is_complete(self.deployment, &self.status, limits) {
                self.set(PROGRESSING, "True", COMPLETE, format!("{subject} has successfully progressed."));
            } else if self.has_progressed() {
                self.renew(PROGRESSING, "True", "ReplicaSetUpdated", format!("{subject} is progressing."));
            } else if self.seconds_left().is_some_and(|left| left < 0) {
                self.set(PROGRESSING, "False", TIMED_OUT, format!("{subject} has timed out progressing."));
            }
        }
        match failure(sets) {
            Some(why) => self.fail(why),
            None => self.remove(REPLICA_FAILURE),
        }
    }

    fn fail(&mut self, why: &ReplicaSetCondition) {
        let before = self.condition(REPLICA_FAILURE);
        if before.is_some_and(|it| it.status == why.status && it.reason == why.reason) {
            return;
        }
        let same = before.filter(|it| it.status == why.status);
        let since = same.and_then(|it| it.last_transition_time);
        let condition = DeploymentCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: why.status.clone(),
            reason: why.reason.clone(),
            message: why.message.clone(),
            last_update_time: why.last_transition_time,
            last_transition_time: since.or(why.last_transition_time),
            ..DeploymentCondition::default()
        };
        self.remove(REPLICA_FAILURE);
        self.status.conditions.push(condition);
    }

    /// Whether the last rollout was complete, and no other has begun since.
    fn was_complete(&self) -> bool {
        self.status.replicas == self.status.updated_replicas
            && self.condition(PROGRESSING).is_some_and(|it| it.reason == COMPLETE)
    }

    fn has_progressed(&self) -> bool {
        let (before, now) = (&self.deployment.status, &self.status);
        now.updated_replicas > before.updated_replicas
            || now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
            || now.ready_replicas > before.ready_replicas
            || now.available_replicas > before.available_replicas
    }

    /// The seconds until the progress deadline; `None` if no deadline applies.
    fn seconds_left(&self) -> Option<i64> {
        let deadline = deadline(self.deployment)?;
        let condition = self.condition(PROGRESSING)?;
        if [COMPLETE, TIMED_OUT].contains(&&*condition.reason) {
            return None;
        }
        let expires = condition.last_update_time?.unix_seconds().saturating_add(deadline.into());
        Some(expires.saturating_sub(self.now.unix_seconds()))
    }

    /// The time after which the deadline has passed.
    pub fn requeue_after(&self, limits: &Limits) -> Option<Duration> {
        if is_complete(self.deployment, &self.status, limits) {
            return None;
        }
        let left = u64::try_from(self.seconds_left()?).unwrap_or(0);
        Some(Duration::from_secs(left.saturating_add(1)))
    }
}

/// Whether a rollout is complete.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus, limits: &Limits) -> bool {
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|it| *it == limits.replicas)
        && status.observed_generation >= deployment.metadata.generation
}

/// The condition that pods cannot be created or deleted, of the new set or else of an old one.
fn failure(sets: &Sets) -> Option<&ReplicaSetCondition> {
    let conditions = sets.new.iter().chain(&sets.old).flat_map(|set| &set.status.conditions);
    conditions.into_iter().find(|it| it.type_ == REPLICA_FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { replicas: 10, surge: 3, unavailable: 2 };

    fn deployment(deadline: Option<i32>, paused: bool, status: &DeploymentStatus) -> Deployment {
        let deployment = object::<Deployment>(json!({
            "metadata": {"name": "d", "generation": 4},
            "spec": {
                "replicas": 10, "selector": {}, "template": {}, "paused": paused,
                "progressDeadlineSeconds": deadline
            }
        }));
        Deployment { status: status.clone(), ..deployment }
    }

    fn set(name: &str, desired: i32, current: i32, available: i32, conditions: Value) -> Arc<ReplicaSet> {
        Arc::new(object(json!({
            "metadata": {"name": name},
            "spec": {"replicas": desired, "selector": {}},
            "status": {
                "replicas": current, "readyReplicas": available, "availableReplicas": available,
                "conditions": conditions
            }
        })))
    }

    /// The next status for some sets, and its conditions in short.
    fn next(
        before: &DeploymentStatus,
        now: i64,
        new: (i32, i32, i32),
        old: (i32, i32, i32),
    ) -> (DeploymentStatus, String) {
        let deployment = deployment(Some(60), false, before);
        let mut draft = Draft::new(&deployment, Time(now));
        let sets = Sets {
            new: Some(set("new", new.0, new.1, new.2, Value::Null)),
            old: vec![set("old", old.0, old.1, old.2, Value::Null)],
        };
        draft.pause();
        draft.found("new");
        draft.count(&sets, &LIMITS);
        draft.progress(&sets, &LIMITS);
        let text = summary(&draft.status);
        (draft.status, text)
    }

    fn summary(status: &DeploymentStatus) -> String {
        let all = status.conditions.iter().map(|it| {
            let seconds = |time: Option<Time>| time.map_or(0, Time::unix_seconds);
            format!(
                "{}={}({}, {}/{})",
                it.type_,
                it.status,
                it.reason,
                seconds(it.last_update_time),
                seconds(it.last_transition_time)
            )
        });
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_rollout_that_progresses() {
        let (first, text) = next(&DeploymentStatus::default(), 100, (3, 0, 0), (10, 10, 10));
        assert_eq!(
            text,
            "Available=True(MinimumReplicasAvailable, 100/100) Progressing=True(ReplicaSetUpdated, 100/100)"
        );
        assert_eq!((first.replicas, first.updated_replicas, first.unavailable_replicas), (10, 0, 3));
        assert_eq!(first.observed_generation, 4);
        // nothing happens: nothing changes
        assert_eq!(next(&first, 110, (3, 0, 0), (10, 10, 10)).0, first);
        let (second, text) = next(&first, 120, (3, 3, 0), (10, 10, 10));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 120/100)"), "{text}");
        // fewer available than the minimum
        let (_, text) = next(&second, 130, (3, 3, 0), (7, 7, 7));
        assert!(text.contains("Available=False(MinimumReplicasUnavailable, 130/130)"), "{text}");
        let (done, text) = next(&second, 140, (10, 10, 10), (0, 0, 0));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        // pods that break later are no rollout
        let (_, text) = next(&done, 1000, (10, 10, 5), (0, 0, 0));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        // but another template is, as soon as it has pods
        let (begun, text) = next(&done, 1000, (3, 0, 0), (10, 10, 10));
        assert!(text.contains("Progressing=True(NewReplicaSetAvailable, 140/100)"), "{text}");
        let (_, text) = next(&begun, 1010, (3, 3, 0), (8, 8, 8));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 1010/100)"), "{text}");
    }

    #[test]
    fn a_rollout_that_exceeds_its_deadline() {
        let (first, _) = next(&DeploymentStatus::default(), 100, (3, 3, 0), (10, 10, 10));
        assert_eq!(next(&first, 160, (3, 3, 0), (10, 10, 10)).0, first);
        let (late, text) = next(&first, 161, (3, 3, 0), (10, 10, 10));
        assert!(text.contains("Progressing=False(ProgressDeadlineExceeded, 161/161)"), "{text}");
        assert_eq!(next(&late, 500, (3, 3, 0), (10, 10, 10)).0, late);
        let (_, text) = next(&late, 600, (3, 3, 1), (10, 10, 10));
        assert!(text.contains("Progressing=True(ReplicaSetUpdated, 600/600)"), "{text}");
        let again = |status: &DeploymentStatus, now| {
            let deployment = deployment(Some(60), false, status);
            Draft::new(&deployment, Time(now)).requeue_after(&LIMITS).map(|it| it.as_secs())
        };
        assert_eq!(again(&first, 100), Some(61));
        assert_eq!(again(&first, 500), Some(1));
        assert_eq!(again(&late, 500), None);
        assert_eq!(again(&DeploymentStatus::default(), 500), None);
    }

    #[test]
    fn pauses_are_conditions() {
        let after = |paused, status: &DeploymentStatus, now| {
            let deployment = deployment(Some(60), paused, status);
            let mut draft = Draft::new(&deployment, Time(now));
            draft.pause();
            (draft.is_changed(), draft.status)
        };
        let (changed, paused) = after(true, &DeploymentStatus::default(), 100);
        assert!(changed);
        assert_eq!(summary(&paused), "Progressing=Unknown(DeploymentPaused, 100/100)");
        assert!(!after(true, &paused, 110).0);
        let (_, resumed) = after(false, &paused, 120);
        assert_eq!(summary(&resumed), "Progressing=Unknown(DeploymentResumed, 120/100)");
        assert!(!after(false, &resumed, 130).0);
    }

    #[test]
    fn without_a_deadline_there_is_no_progress_condition() {
        for deadline in [None, Some(i32::MAX)] {
            let before: DeploymentStatus = object(json!({
                "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"}]
            }));
            let deployment = deployment(deadline, true, &before);
            let mut draft = Draft::new(&deployment, Time(1));
            draft.pause();
            draft.created("new");
            draft.progress(&Sets::default(), &LIMITS);
            assert_eq!(draft.status.conditions, []);
            assert_eq!(draft.requeue_after(&LIMITS), None);
        }
    }

    #[test]
    fn failures_of_replica_sets_are_copied() {
        let why = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no room",
            "lastTransitionTime": "1970-01-01T00:00:05Z"
        }]);
        let before = DeploymentStatus::default();
        let first = deployment(Some(60), false, &before);
        let mut draft = Draft::new(&first, Time(10));
        draft.progress(&Sets { new: None, old: vec![set("old", 1, 0, 0, why)] }, &LIMITS);
        assert_eq!(summary(&draft.status), "ReplicaFailure=True(FailedCreate, 5/5)");
        let next = deployment(Some(60), false, &draft.status);
        let mut draft = Draft::new(&next, Time(20));
        draft.progress(&Sets::default(), &LIMITS);
        assert_eq!(draft.status.conditions, []);
    }

    #[test]
    fn collisions_are_counted() {
        let before = DeploymentStatus::default();
        let deployment = deployment(None, false, &before);
        let mut draft = Draft::new(&deployment, Time(10));
        draft.collided();
        draft.collided();
        assert_eq!(draft.status.collision_count, Some(2));
    }
}
