//! The rules of refusals: what was said to be absent, there or changed was so at some time while the request ran.

use super::bounds::Bounds;
use super::timeline::Timeline;
use super::violation::Violation;
use crate::history::{Call, Freshness, Object, Operation, Outcome};

pub fn check(
    operations: &[Operation],
    timeline: &Timeline,
    bounds: &Bounds,
    violations: &mut Vec<Violation>,
) {
    for operation in operations {
        let code = match operation.outcome {
            Outcome::Absent => 404,
            Outcome::Refused(code) => code,
            _ => continue,
        };
        if !has_reason(operation, code, timeline, bounds) {
            let (first, end) = bounds.of_operation(operation);
            let why = format!("nothing between the versions {first} and {end} is a reason for {code}");
            violations.push(Violation::of("refusals have a reason", operation, why));
        }
    }
}

fn has_reason(operation: &Operation, code: u16, timeline: &Timeline, bounds: &Bounds) -> bool {
    let span = bounds.of_operation(operation);
    let was_ever = |name: &str, is_so: &dyn Fn(Option<&Object>) -> bool| timeline.was_ever(name, span, is_so);
    match (code, &operation.call) {
        // a server may refuse what is too much at once
        (429, _) => true,
        // absent objects are a rule of reads
        (404, Call::Get { .. }) => true,
        (404, Call::Update { name, .. } | Call::Patch { name, .. } | Call::Delete { name, .. }) => {
            was_ever(name, &|it| it.is_none())
        }
        (409, Call::Create { name, .. }) => was_ever(name, &|it| it.is_some()),
        (409, Call::Update { name, expected, .. }) => {
            was_ever(name, &|it| it.is_some_and(|it| it.version != *expected))
        }
        (409, Call::Delete { name, uid: Some(uid) }) => {
            was_ever(name, &|it| it.is_some_and(|it| it.uid != *uid))
        }
        // history is kept for a while only
        (410, Call::List { page: Some(_), .. }) => true,
        (410, Call::List { freshness, page: None }) => matches!(freshness, Freshness::Exact(_)),
        _ => false,
    }
}
