//! The rules of watches, and of the changes of an object.

use super::bounds::Bounds;
use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Change, ChangeType, Delivery, Freshness, Notice, Object, Start, Version, Watch};
use std::collections::{BTreeMap, HashMap};

pub fn check(watches: &[Watch], timeline: &Timeline, bounds: &Bounds, violations: &mut Vec<Violation>) {
    for watch in watches {
        let who = format!("the watch of client {} from {:?}", watch.client, watch.start);
        match watch.start {
            Start::After(version) => {
                check_changes(&who, version, &watch.notices, watch.is_complete, timeline, violations);
            }
            Start::State(freshness) => check_state(&who, watch, freshness, timeline, bounds, violations),
        }
        check_time(&who, watch, bounds, violations);
    }
    check_turns(timeline, violations);
}

/// Everything from a version on, up to which all has been delivered.
fn check_changes(
    who: &str,
    mut reached: Version,
    notices: &[Delivery],
    is_complete: bool,
    timeline: &Timeline,
    violations: &mut Vec<Violation>,
) {
    for Delivery { notice, .. } in notices {
        let version = notice.version();
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
        violations.extend(missing.map(|it| missing_change(who, it)));
        reached = version;
    }
    if is_complete {
        let missing = timeline.between(reached, Version::MAX);
        violations.extend(missing.map(|it| missing_change(who, it)));
    }
}

/// First all objects of one version, then the changes after it. Where the one ends and the other begins is not said: there
/// must be a place.
fn check_state(
    who: &str,
    watch: &Watch,
    freshness: Freshness,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let first = match freshness {
        Freshness::Latest => bounds.newest_before(watch.begin),
        _ => 0,
    };
    let fits = |count: usize| {
        let (state, changes) = watch.notices.split_at(count);
        let state: Vec<&Object> = state.iter().filter_map(|it| object(&it.notice)).collect();
        let Some(next) = changes.first() else {
            // a connection that broke before all objects were there
            return watch.is_complete && is_state(&state, Version::MAX, timeline)
                || !watch.is_complete && is_part_of_state(&state, first, timeline);
        };
        let version = match &next.notice {
            Notice::Change(change) => change.object.version - 1,
            Notice::Bookmark(version) => *version,
        };
        let mut found = Vec::new();
        check_changes(who, version, changes, watch.is_complete, timeline, &mut found);
        let known = changes.iter().filter_map(|it| object(&it.notice));
        version >= first
            && found.is_empty()
            && is_state(&state, version, timeline)
            && known.map(|it| it.version).all(|version| timeline.at(version).is_some())
    };
    if !(0..=watch.most_initial()).any(fits) {
        let begin = &watch.notices[..watch.notices.len().min(watch.most_initial() + 2)];
        let detail = format!("{who} begins with {begin:?}; version {first} was known before");
        violations.push(Violation::new("watches begin with a state", detail));
    }
}

fn object(notice: &Notice) -> Option<&Object> {
    match notice {
        Notice::Change(change) => Some(&change.object),
        Notice::Bookmark(_) => None,
    }
}

fn is_state(objects: &[&Object], version: Version, timeline: &Timeline) -> bool {
    let by_name: BTreeMap<&str, &Object> = objects.iter().map(|it| (&*it.name, *it)).collect();
    by_name.len() == objects.len() && by_name == timeline.objects(version)
}

/// Whether these objects were there together, at a version from the first on.
fn is_part_of_state(objects: &[&Object], first: Version, timeline: &Timeline) -> bool {
    let version = objects.iter().map(|it| it.version).fold(first, Version::max);
    objects.iter().all(|it| timeline.object(&it.name, version) == Some(*it))
}

/// No change is shown before a request for it can have been sent.
fn check_time(who: &str, watch: &Watch, bounds: &Bounds, violations: &mut Vec<Violation>) {
    for seen in &watch.notices {
        if let Notice::Change(change) = &seen.notice
            && change.object.version >= bounds.oldest_after(seen.at)
        {
            let detail = format!("{who} has {change:?} at {}, before it was requested", seen.at);
            violations.push(Violation::new("watches are in time", detail));
        }
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
