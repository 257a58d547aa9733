//! A lease has one holder, and a component that is elected one leader.
//!
//! Asserted: the holder of a lease changes only when the one before has released it or has not renewed it for the
//! lease's duration. The work of two candidates for one lease never overlaps.
//!
//! Permitted upstream, and not asserted: requests of a former leader that were sent before it stopped may be served after.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{number, text};
use crate::cluster::history::{Event, Objects};
use std::collections::HashMap;
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub struct Leases {
    /// When a lease was renewed last.
    renewed: HashMap<String, Duration>,
    /// The working candidates, by lease.
    leaders: HashMap<String, Vec<String>>,
}

impl Invariant for Leases {
    fn see(&mut self, event: &Event, _: &Objects, breaches: &mut Vec<Breach>) {
        match event {
            Event::Leadership { component, lease, begins, .. } => {
                let leaders = self.leaders.entry(lease.clone()).or_default();
                if !begins {
                    leaders.retain(|it| it != component);
                    return;
                }
                leaders.push(component.clone());
                if leaders.len() > 1 {
                    breaches.push(Breach {
                        rule: "a component has one leader",
                        revision: 0,
                        namespace: String::new(),
                        detail: format!("{} work for the lease {lease}", leaders.join(" and ")),
                    });
                }
            }
            Event::Change(change) if change.key.resource == "leases.coordination.k8s.io" => {
                let lease = &change.object;
                let key = change.key.to_string();
                if let Some(before) = &change.previous {
                    let [old, new] = [before, lease].map(|it| text(it, "/spec/holderIdentity"));
                    let since = change.at.saturating_sub(self.renewed.get(&key).copied().unwrap_or_default());
                    let lasts = u64::try_from(number(before, "/spec/leaseDurationSeconds")).unwrap_or(0);
                    if !change.is_gone
                        && !old.is_empty()
                        && old != new
                        && since < Duration::from_secs(lasts)
                        && !new.is_empty()
                    {
                        breaches.push(Breach {
                            rule: "a lease has one holder",
                            revision: change.revision,
                            namespace: change.key.namespace.clone(),
                            detail: format!(
                                "{}: {new} took it from {old}, who renewed it {since:?} before",
                                change.key
                            ),
                        });
                    }
                }
                let is_renewed = change
                    .previous
                    .as_ref()
                    .is_none_or(|before| text(before, "/spec/renewTime") != text(lease, "/spec/renewTime"));
                if is_renewed {
                    self.renewed.insert(key, change.at);
                }
            }
            _ => {}
        }
    }
}
