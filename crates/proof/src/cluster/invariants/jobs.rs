//! A Job is never counted twice, and no pod of it is forgotten.
//!
//! Asserted: `succeeded` is at most the number of pods that were seen to succeed, `failed` at most that of the pods that
//! failed or were deleted; neither goes back; no uid is listed twice as uncounted. A pod with the tracking finalizer that
//! succeeded does not vanish before its Job had it among the uncounted ones, unless the Job is over or gone. A Job that
//! is complete has as many successes as its spec has, and an end is final and one of both. An index counts when it is
//! among the completed ones. A CronJob that has recorded a time makes no second Job for it.
//!
//! Permitted upstream, and not asserted: after a crash between a Job and the status that names it, `concurrencyPolicy` may
//! be overrun, and a Job that is gone by then is made again.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{
    condition, controller, has_finalizer, is_terminating, items, number, text, uid,
};
use crate::cluster::history::{Change, Event, Objects};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The observed pods of a Job.
#[derive(Default)]
struct Pods {
    succeeded: HashSet<String>,
    /// Failed, or to be deleted.
    failed: HashSet<String>,
    /// Those that the Job has listed as uncounted.
    listed: HashSet<String>,
}

/// See the module.
#[derive(Default)]
pub struct Jobs {
    /// By the uid of the Job.
    pods: HashMap<String, Pods>,
    /// The `lastScheduleTime` of a CronJob before it made a Job, by the CronJob's uid and the Job's name.
    scheduled: HashMap<(String, String), String>,
}

impl Invariant for Jobs {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        let Event::Change(change) = event else { return };
        let mut problems = Vec::new();
        match &*change.key.resource {
            "pods" => self.see_pod(change, objects, &mut problems),
            "jobs.batch" => self.see_job(change, objects, &mut problems),
            _ => {}
        }
        breaches.extend(problems.into_iter().map(|detail| Breach {
            rule: "a Job counts each pod once",
            revision: change.revision,
            namespace: change.key.namespace.clone(),
            detail: format!("{}: {detail}", change.key),
        }));
    }
}

/// The end of a Job, if it has come.
fn end(job: &Value) -> Option<&str> {
    let is_over = |kind: &&str| condition(job, kind).is_some_and(|it| it["status"] == "True");
    ["Complete", "Failed"].into_iter().find(is_over)
}

/// Whether the completed indexes of a Job, such as `0-2,5`, have that of a pod: an index counts once, whatever pod has it.
fn has_index(job: &Value, pod: &Value) -> bool {
    let annotation = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
    let Ok(index) = text(pod, annotation).parse::<u32>() else { return false };
    let has = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().ok();
        number(first).zip(number(last)).is_some_and(|(first, last)| (first..=last).contains(&index))
    };
    text(job, "/status/completedIndexes").split(',').any(has)
}

impl Jobs {
    fn see_pod(&mut self, change: &Change, objects: &Objects, problems: &mut Vec<String>) {
        let Some(owner) = controller(&change.object, "Job") else { return };
        let pods = self.pods.entry(text(owner, "/uid").to_owned()).or_default();
        let pod = uid(&change.object).to_owned();
        let phase = text(&change.object, "/status/phase");
        if phase == "Succeeded" {
            pods.succeeded.insert(pod.clone());
        } else if phase == "Failed" || change.is_gone || is_terminating(&change.object) {
            pods.failed.insert(pod.clone());
        }
        let is_released = change.is_gone || !has_finalizer(&change.object, FINALIZER);
        let was_tracked = change.previous.as_ref().is_some_and(|it| has_finalizer(it, FINALIZER));
        if phase == "Succeeded" && is_released && was_tracked && !pods.listed.contains(&pod) {
            let job = objects.get("jobs.batch", &change.key.namespace, text(owner, "/name"));
            let job = job.filter(|it| uid(it) == text(owner, "/uid"));
            if job
                .is_some_and(|it| end(it).is_none() && !is_terminating(it) && !has_index(it, &change.object))
            {
                problems.push(format!("lost its finalizer before Job {} counted it", text(owner, "/name")));
            }
        }
    }

    fn see_job(&mut self, change: &Change, objects: &Objects, problems: &mut Vec<String>) {
        let job = &change.object;
        if let (None, Some(owner)) = (&change.previous, controller(job, "CronJob")) {
            let cron = objects.get("cronjobs.batch", &change.key.namespace, text(owner, "/name"));
            let recorded = cron.map_or("", |it| text(it, "/status/lastScheduleTime")).to_owned();
            let time = (text(owner, "/uid").to_owned(), change.key.name.clone());
            if self.scheduled.insert(time, recorded.clone()).is_some_and(|before| before != recorded) {
                problems.push("was made twice for one time".to_owned());
            }
        }
        let pods = self.pods.entry(uid(job).to_owned()).or_default();
        let listed = |field: &str| items(job, &format!("/status/uncountedTerminatedPods/{field}"));
        let mut once = HashSet::new();
        for pod in listed("succeeded").iter().chain(listed("failed")).filter_map(Value::as_str) {
            if !once.insert(pod) {
                problems.push(format!("lists the pod {pod} twice"));
            }
            pods.listed.insert(pod.to_owned());
        }
        for (field, seen) in
            [("succeeded", pods.succeeded.len()), ("failed", pods.failed.union(&pods.succeeded).count())]
        {
            let count = number(job, &format!("/status/{field}"));
            if count > i64::try_from(seen).unwrap_or(i64::MAX) {
                problems.push(format!("{count} {field}, but {seen} pods were seen to be"));
            }
        }
        let together = number(job, "/status/succeeded") + number(job, "/status/failed");
        let seen = pods.failed.union(&pods.succeeded).count();
        if together > i64::try_from(seen).unwrap_or(i64::MAX) {
            problems.push(format!("{together} pods have ended, but {seen} were seen to"));
        }
        if let Some(before) = &change.previous {
            for field in ["/status/succeeded", "/status/failed"] {
                if number(job, field) < number(before, field) {
                    problems.push(format!("{field} goes back to {}", number(job, field)));
                }
            }
            if end(before).is_some() && end(before) != end(job) {
                problems.push(format!("was {:?} and is {:?}", end(before), end(job)));
            }
        }
        let completions = job.pointer("/spec/completions").and_then(Value::as_i64);
        if end(job) == Some("Complete") && completions.is_some_and(|it| number(job, "/status/succeeded") < it)
        {
            problems.push("is complete before all its pods have succeeded".to_owned());
        }
    }
}
