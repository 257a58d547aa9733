//! Planted faults of answers: refusals without a reason, and objects that were not requested.

use super::*;

/// Adds an operation after all others, on an object that is there in the end, or on one that never was.
#[track_caller]
fn check_refusal(plant: impl Fn(Object) -> (Call, Outcome)) {
    check_fault("refusals have a reason", |history| {
        let last = history.watches[0].notices.iter().rfind(|it| is_change(it))?;
        let Notice::Change(change) = last.notice.clone() else { return None };
        if change.change_type == ChangeType::Deleted {
            return None;
        }
        let (call, outcome) = plant(change.object);
        let (begin, end) = (STEPS * 100, STEPS * 100 + 1);
        history.operations.push(Operation { client: 0, call, begin, end, outcome });
        Some(())
    });
}

fn value() -> String {
    "refused".to_owned()
}

#[test]
fn an_update_of_the_newest_version_that_is_refused_is_found() {
    check_refusal(|it| {
        (Call::Update { name: it.name, value: value(), expected: it.version }, Outcome::Refused(409))
    });
}

#[test]
fn an_update_of_an_object_that_is_there_and_is_not_found_is_found() {
    check_refusal(|it| {
        (Call::Update { name: it.name, value: value(), expected: it.version }, Outcome::Absent)
    });
}

#[test]
fn a_patch_of_an_object_that_is_there_and_is_not_found_is_found() {
    check_refusal(|it| (Call::Patch { name: it.name, value: value() }, Outcome::Absent));
}

#[test]
fn a_patch_without_a_version_that_has_a_conflict_is_found() {
    check_refusal(|it| (Call::Patch { name: it.name, value: value() }, Outcome::Refused(409)));
}

#[test]
fn an_apply_that_creates_and_is_not_found_is_found() {
    check_refusal(|_| (Call::Apply { name: "new".to_owned(), value: value() }, Outcome::Absent));
}

#[test]
fn a_create_of_an_absent_object_that_already_exists_is_found() {
    check_refusal(|_| (Call::Create { name: "new".to_owned(), value: value() }, Outcome::Refused(409)));
}

#[test]
fn a_delete_of_an_object_that_is_there_and_is_not_found_is_found() {
    check_refusal(|it| (Call::Delete { name: it.name, uid: None }, Outcome::Absent));
}

#[test]
fn a_delete_of_the_right_uid_that_is_refused_is_found() {
    check_refusal(|it| (Call::Delete { name: it.name, uid: Some(it.uid) }, Outcome::Refused(409)));
}

#[test]
fn a_list_of_the_newest_version_that_has_expired_is_found() {
    check_refusal(|_| (Call::List { freshness: Freshness::Latest, page: None }, Outcome::Refused(410)));
}

#[test]
fn a_request_that_is_refused_as_invalid_is_found() {
    check_refusal(|it| (Call::Patch { name: it.name, value: value() }, Outcome::Refused(422)));
}

#[test]
fn a_get_that_answers_with_another_object_is_found() {
    check_fault("answers are about their object", |history| {
        let (at, _) = acknowledged(history, |it| matches!(it, Call::Get { .. }))?;
        let Call::Get { name, .. } = &mut history.operations[at].call else { return None };
        name.push('x');
        Some(())
    });
}

#[test]
fn a_write_of_another_object_is_found() {
    check_fault("answers are about their object", |history| {
        let (at, _) = acknowledged(history, |it| matches!(it, Call::Patch { .. }))?;
        let Call::Patch { name, .. } = &mut history.operations[at].call else { return None };
        name.push('x');
        Some(())
    });
}
