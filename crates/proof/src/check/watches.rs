//! The rules of watches, and of the changes of an object.

use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Change, ChangeType, Notice, Version, Watch};
use std::collections::HashMap;

pub fn check(watches: &[Watch], timeline: &Timeline, violations: &mut Vec<Violation>) {
    for watch in watches {
        check_watch(watch, timeline, violations);
    }
    check_turns(timeline, violations);
}

fn check_watch(watch: &Watch, timeline: &Timeline, violations: &mut Vec<Violation>) {
    let who = format!("the watch of client {} from version {}", watch.client, watch.start);
    // up to this version everything has been delivered
    let mut reached = watch.start;
    for notice in &watch.notices {
        let version = match notice {
            Notice::Change(change) => change.object.version,
            Notice::Bookmark(version) => *version,
        };
        let is_behind = match notice {
            Notice::Change(_) => version <= reached,
            Notice::Bookmark(_) => version < reached,
        };
        if is_behind {
            let detail = format!("{who} has {notice:?} after version {reached}");
            violations.push(Violation::new("watches are in order", detail));
            continue;
        }
        let missing =
            timeline.between(reached, version).filter(|it| *notice != Notice::Change((*it).clone()));
        violations.extend(missing.map(|it| missing_change(&who, it)));
        reached = version;
    }
    if watch.is_complete {
        let missing = timeline.between(reached, Version::MAX);
        violations.extend(missing.map(|it| missing_change(&who, it)));
    }
}

fn missing_change(who: &str, change: &Change) -> Violation {
    Violation::new("watches are complete", format!("{who} lacks {change:?}"))
}

/// An object is added, modified any number of times, deleted, and added again as another one.
fn check_turns(timeline: &Timeline, violations: &mut Vec<Violation>) {
    let mut living: HashMap<&str, &str> = HashMap::new();
    let mut seen: HashMap<&str, Version> = HashMap::new();
    for change in timeline.changes() {
        let object = &change.object;
        let before = living.get(&*object.name).copied();
        let is_turn = match change.change_type {
            ChangeType::Added => before.is_none() && seen.insert(&object.uid, object.version).is_none(),
            ChangeType::Modified | ChangeType::Deleted => before == Some(&object.uid),
        };
        if !is_turn {
            let detail = format!("{change:?} after an object with the uid {before:?}");
            violations.push(Violation::new("changes follow each other", detail));
        }
        match change.change_type {
            ChangeType::Deleted => living.remove(&*object.name),
            _ => living.insert(&object.name, &object.uid),
        };
    }
}
