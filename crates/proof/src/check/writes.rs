//! The rules of writes, but for deletions.

use super::bounds::Bounds;
use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Call, ChangeType, Object, Operation, Outcome, Version};
use std::collections::HashMap;

pub fn check(
    operations: &[Operation],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    check_requested(operations, timeline, violations);
    for operation in operations {
        if let Outcome::Object(object) = &operation.outcome {
            check_name(operation, object, violations);
            if operation.call.value().is_some() {
                check_acknowledged(operation, object, timeline, bounds, violations);
            }
        }
    }
}

/// A read or a write answers with the object that its request names.
fn check_name(operation: &Operation, object: &Object, violations: &mut Vec<Violation>) {
    if operation.call.name().is_some_and(|name| name != object.name) {
        violations.push(Violation::of("answers are about their object", operation, "it is another one"));
    }
}

/// Every value comes from one write, and appears once.
fn check_requested(operations: &[Operation], timeline: &Timeline, violations: &mut Vec<Violation>) {
    let writers: HashMap<&str, &Operation> =
        operations.iter().filter_map(|it| Some((it.call.value()?, it))).collect();
    let mut shown: HashMap<&str, Version> = HashMap::new();
    // deletions have rules of their own
    for change in timeline.changes().filter(|it| it.change_type != ChangeType::Deleted) {
        let (value, version) = (&*change.object.value, change.object.version);
        if let Some(first) = shown.insert(value, version) {
            let detail = format!("{change:?}: the value was written at version {first} already");
            violations.push(Violation::new("changes were requested", detail));
        }
        match writers.get(value) {
            None => {
                let detail = format!("{change:?}: no client has written this value");
                violations.push(Violation::new("changes were requested", detail));
            }
            Some(writer) => match &writer.outcome {
                Outcome::Refused(_) | Outcome::Absent => {
                    let why = format!("its value is there at version {version}");
                    violations.push(Violation::of("refused writes are not there", writer, why));
                }
                _ => {}
            },
        }
    }
}

fn check_acknowledged(
    operation: &Operation,
    object: &Object,
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    let Some(change) = timeline.at(object.version).filter(|it| it.object == *object) else {
        let found = timeline.at(object.version);
        let why = format!("at this version there is {found:?}");
        violations.push(Violation::of("acknowledged writes are there", operation, why));
        return;
    };
    let before = timeline.object(&object.name, object.version - 1);
    let holds = match &operation.call {
        Call::Create { .. } => change.change_type == ChangeType::Added && before.is_none(),
        Call::Update { expected, .. } => before.is_some_and(|it| it.version == *expected),
        Call::Patch { .. } => before.is_some(),
        _ => true,
    };
    if !holds || Some(&*object.value) != operation.call.value() {
        violations.push(Violation::of("preconditions held", operation, format!("it met {before:?}")));
    }
    let known = bounds.newest_before(operation.begin);
    if object.version <= known {
        let why = format!("version {known} was known before");
        violations.push(Violation::of("versions grow", operation, why));
    }
}
