//! A quota is never exceeded.
//!
//! Asserted: when an object is created, the objects of its namespace that a quota counts are not more than `hard`, and
//! `status.used` is at no revision above `status.hard`. Counted are config maps (`count/configmaps`) and pods that are
//! not over (`pods`).
//!
//! Permitted upstream, and not asserted: a pod whose deletion is overdue by its grace period (its node is silent) counts
//! no more; a `hard` that is lowered below what is there, or a quota that is made after the
//! objects; the simulation does neither.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{is_over, number, text};
use crate::cluster::history::{Event, Objects};
use serde_json::Value;
use std::time::Duration;

/// See the module.
pub struct Quota;

const RULE: &str = "a quota is never exceeded";

fn amount(list: Option<&Value>, resource: &str) -> Option<i64> {
    list?.get(resource)?.as_str()?.parse().ok()
}

/// The number of objects that count at a time of the cluster.
pub fn usage(objects: &Objects, namespace: &str, resource: &str, at: Duration) -> i64 {
    let count = match resource {
        "count/configmaps" => objects.within("configmaps", namespace).count(),
        _ => {
            let counts = |pod: &Value| !is_over(pod) && !is_overdue(pod, at);
            objects.within("pods", namespace).filter(|(_, pod)| counts(pod)).count()
        }
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether a pod should have ended long ago.
fn is_overdue(pod: &Value, at: Duration) -> bool {
    let now = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let grace = number(pod, "/metadata/deletionGracePeriodSeconds");
    schema::time::to_unix(text(pod, "/metadata/deletionTimestamp")).is_some_and(|since| now > since + grace)
}

impl Invariant for Quota {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        let Event::Change(change) = event else { return };
        let namespace = &change.key.namespace;
        let mut breach = |detail: String| {
            let namespace = namespace.clone();
            breaches.push(Breach { rule: RULE, revision: change.revision, namespace, detail });
        };
        let counted = match &*change.key.resource {
            "configmaps" => "count/configmaps",
            "pods" => "pods",
            "resourcequotas" => {
                let list = |field: &str| change.object.pointer(&format!("/status/{field}"));
                for resource in ["count/configmaps", "pods"] {
                    if let (Some(used), Some(hard)) =
                        (amount(list("used"), resource), amount(list("hard"), resource))
                        && used > hard
                    {
                        breach(format!("{}: {used} {resource} used of {hard}", change.key));
                    }
                }
                return;
            }
            _ => return,
        };
        if change.previous.is_some() || change.is_gone {
            return;
        }
        for (key, quota) in objects.within("resourcequotas", namespace) {
            let is_older =
                !text(quota, "/metadata/uid").is_empty() && quota.pointer("/status/hard").is_some();
            let Some(hard) = amount(quota.pointer("/spec/hard"), counted).filter(|_| is_older) else {
                continue;
            };
            let used = usage(objects, namespace, counted, change.at);
            if used > hard {
                breach(format!("{} is one of {used} {counted}, {} allows {hard}", change.key, key.name));
            }
        }
    }
}
