//! The rules of reads.

use super::bounds::Bounds;
use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Call, Freshness, Object, Operation, Outcome, Version};
use std::collections::BTreeMap;

pub fn check(
    operations: &[Operation],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    for operation in operations {
        match (&operation.call, &operation.outcome) {
            (Call::Get { freshness, .. }, Outcome::Object(object)) => {
                check_object(operation, *freshness, object, timeline, bounds, violations);
            }
            (Call::Get { name, freshness }, Outcome::Absent) => {
                check_absent(operation, *freshness, name, timeline, bounds, violations);
            }
            (Call::List { freshness, page }, Outcome::List { version, objects }) => {
                let freshness = freshness.of_list(page.is_some());
                check_list(operation, freshness, *version, objects, timeline, bounds, violations);
            }
            _ => {}
        }
    }
}

/// The versions at which a read can have happened: at least the first, before the second.
fn span(operation: &Operation, freshness: Freshness, bounds: &Bounds) -> (Version, Version) {
    let first = match freshness {
        Freshness::Latest => bounds.newest_before(operation.begin),
        Freshness::Any => 0,
        Freshness::NotOlderThan(version) | Freshness::Exact(version) | Freshness::Unmatched(version) => {
            version
        }
    };
    (first, bounds.oldest_after(operation.end))
}

fn check_object(
    operation: &Operation,
    freshness: Freshness,
    object: &Object,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    // a deletion has a version of its own, under which no read shows the object
    if timeline.object(&object.name, object.version) != Some(object) {
        let found = timeline.at(object.version);
        violations.push(Violation::of(
            "reads are true",
            operation,
            format!("at this version there is {found:?}"),
        ));
        return;
    }
    let (first, end) = span(operation, freshness, bounds);
    let replaced = timeline.next(&object.name, object.version).map_or(Version::MAX, |it| it.object.version);
    if replaced <= first || object.version >= end {
        let why = format!(
            "the object has this form from {} until {replaced}, the read was from {first} until {end}",
            object.version
        );
        violations.push(Violation::of("reads are fresh", operation, why));
    }
}

fn check_absent(
    operation: &Operation,
    freshness: Freshness,
    name: &str,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let (first, end) = span(operation, freshness, bounds);
    if !timeline.was_ever(name, (first, end), |it| it.is_none()) {
        let why = format!("the object was there from {first} until {end}");
        violations.push(Violation::of("reads are fresh", operation, why));
    }
}

fn check_list(
    operation: &Operation,
    freshness: Freshness,
    version: Version,
    objects: &[Object],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let expected = timeline.objects(version);
    let listed: BTreeMap<&str, &Object> = objects.iter().map(|it| (&*it.name, it)).collect();
    if listed != expected || listed.len() != objects.len() {
        let why = format!("at version {version} there are {expected:?}");
        violations.push(Violation::of("lists are exact", operation, why));
    }
    let (first, end) = span(operation, freshness, bounds);
    let is_exact = !matches!(freshness, Freshness::Exact(wanted) if wanted != version);
    if version < first || version >= end || !is_exact {
        let why = format!("the version is {version}, the list was from {first} until {end}");
        violations.push(Violation::of("reads are fresh", operation, why));
    }
}
