//! The rules of deletions: those that were acknowledged are there, and those that are there were requested.

use super::bounds::Bounds;
use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Call, Change, ChangeType, Operation, Outcome, Version};
use std::collections::{HashMap, HashSet};

pub fn check(
    operations: &[Operation],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    check_requested(operations, timeline, bounds, violations);
    for operation in operations {
        let Outcome::Deleted(uids) = &operation.outcome else { continue };
        for uid in uids {
            check_deleted(operation, uid, timeline, bounds, violations);
        }
        match &operation.call {
            Call::Delete { name, uid } => check_object(operation, name, uid, uids, timeline, violations),
            _ => check_emptied(operation, timeline, bounds, violations),
        }
    }
}

fn check_deleted(
    operation: &Operation,
    uid: &str,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let (first, end) = bounds.of_operation(operation);
    // of several deletions of an object, one deletes it: that of another client may have been earlier, but not before
    // this one began
    let why = match timeline.deletion(uid) {
        None => format!("the object {uid} is still there"),
        Some(version) if version >= end => {
            format!("the object {uid} was deleted later, at version {version}")
        }
        Some(version) if version <= first => {
            format!("the object {uid} was deleted earlier, at version {version}; {first} was known")
        }
        Some(_) => return,
    };
    violations.push(Violation::of("deletions are there", operation, why));
}

/// A deletion is of the object that its request names, by name and by uid.
fn check_object(
    operation: &Operation,
    name: &str,
    expected: &Option<String>,
    uids: &[String],
    timeline: &Timeline,
    violations: &mut Vec<Violation>,
) {
    if let Some(expected) = expected
        && uids.iter().any(|uid| uid != expected)
    {
        violations.push(Violation::of("preconditions held", operation, "the object has another uid"));
    }
    for uid in uids {
        let change = timeline.deletion(uid).and_then(|version| timeline.at(version));
        if let Some(change) = change
            && change.object.name != name
        {
            violations.push(Violation::of(
                "answers are about their object",
                operation,
                format!("{change:?}"),
            ));
        }
    }
}

/// What was there when a deletecollection began is gone when it ends.
fn check_emptied(
    operation: &Operation,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let (first, end) = bounds.of_operation(operation);
    for object in timeline.objects(first).values() {
        if timeline.deletion(&object.uid).is_none_or(|version| version >= end) {
            let why = format!("{object:?} was there from before {first} until {end}");
            violations.push(Violation::of("collections are emptied", operation, why));
        }
    }
}

/// A request that can have deleted one object of a name.
struct Request<'a> {
    uid: Option<&'a str>,
    /// It is newer than the first version, and older than the end.
    span: (Version, Version),
}

impl Request<'_> {
    fn is_reason(&self, change: &Change) -> bool {
        let (first, end) = self.span;
        let version = change.object.version;
        first < version && version < end && self.uid.is_none_or(|uid| uid == change.object.uid)
    }
}

/// Every deletion has a request, and a request deletes no object of a name twice.
fn check_requested(
    operations: &[Operation],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let mut acknowledged: HashSet<&str> = HashSet::new();
    let mut requests: HashMap<&str, Vec<Request<'_>>> = HashMap::new();
    let names: HashSet<&str> = timeline.changes().map(|it| &*it.object.name).collect();
    for operation in operations {
        let (first, end) = bounds.of_operation(operation);
        // an answer that was lost, or a refusal in the midst of the collection, may come before the last deletion
        let late = (first, Version::MAX);
        match (&operation.call, &operation.outcome) {
            (Call::Delete { .. }, Outcome::Deleted(uids)) => acknowledged.extend(uids.iter().map(|it| &**it)),
            (Call::Delete { name, uid }, Outcome::Unknown) => {
                let request = Request { uid: uid.as_deref(), span: late };
                requests.entry(name).or_default().push(request);
            }
            // objects are listed first, and deleted by name then
            (Call::DeleteCollection, Outcome::Deleted(uids)) => {
                let changes = uids.iter().filter_map(|uid| timeline.at(timeline.deletion(uid)?));
                for name in changes.map(|it| &*it.object.name) {
                    requests.entry(name).or_default().push(Request { uid: None, span: (first, end) });
                }
            }
            (Call::DeleteCollection, _) => {
                for name in &names {
                    requests.entry(name).or_default().push(Request { uid: None, span: late });
                }
            }
            _ => {}
        }
    }
    for change in timeline.changes().filter(|it| it.change_type == ChangeType::Deleted) {
        if acknowledged.contains(&*change.object.uid) {
            continue;
        }
        let requests = requests.entry(&change.object.name).or_default();
        // one that can be the reason of this deletion alone, else the one whose time is over first
        let reasons = requests.iter().enumerate().filter(|(_, it)| it.is_reason(change));
        match reasons.min_by_key(|(_, it)| (it.uid.is_none(), it.span.1)).map(|(at, _)| at) {
            Some(at) => drop(requests.swap_remove(at)),
            None => {
                let detail = format!("{change:?}: no client has deleted it");
                violations.push(Violation::new("deletions were requested", detail));
            }
        }
    }
}
