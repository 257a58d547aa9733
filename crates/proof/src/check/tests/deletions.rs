//! Planted faults of deletions.

use super::*;

/// Moves an operation behind all others.
fn last(history: &mut History, call: Call, outcome: Outcome) {
    let (begin, end) = (STEPS * 100, STEPS * 100 + 1);
    history.operations.push(Operation { client: 0, call, begin, end, outcome });
}

/// Adds a deletion to all watches.
fn delete(history: &mut History, object: &Object) {
    for watch in &mut history.watches {
        let object = Object { version: Version::MAX - 1, ..object.clone() };
        let notice = Notice::Change(Change { change_type: ChangeType::Deleted, object });
        watch.notices.push(Delivery { at: Point::MAX, notice });
    }
}

/// An object that is there in the end.
fn living(history: &History) -> Option<Object> {
    let mut objects: BTreeMap<&str, &Object> = BTreeMap::new();
    for seen in &history.watches[0].notices {
        let Notice::Change(Change { change_type, object }) = &seen.notice else { continue };
        match change_type {
            ChangeType::Deleted => objects.remove(&*object.name),
            _ => objects.insert(&object.name, object),
        };
    }
    objects.into_values().next().cloned()
}

/// A history in which no answer was lost, and so no deletion has a request of which it is not known what it did.
fn answered(seed: u64) -> History {
    history_of(seed, false)
}

#[test]
fn an_object_that_vanishes_without_a_request_is_found() {
    check_fault_in(answered, "deletions were requested", |history| {
        let object = living(history)?;
        // requests of other names, of other uids, and those that were refused are no reason
        let (name, uid) = (object.name.clone(), Some("another".to_owned()));
        last(history, Call::Delete { name: "other".to_owned(), uid: None }, Outcome::Unknown);
        last(history, Call::Delete { name: name.clone(), uid }, Outcome::Unknown);
        last(history, Call::Delete { name, uid: None }, Outcome::Refused(409));
        delete(history, &object);
        Some(())
    });
}

#[test]
fn two_deletions_by_one_request_are_found() {
    check_fault_in(answered, "deletions were requested", |history| {
        let object = living(history)?;
        delete(history, &object);
        // the one request whose answer was lost has deleted an earlier object
        let deleted = history.operations.iter().position(|it| {
            matches!((&it.call, &it.outcome), (Call::Delete { name, uid: None }, Outcome::Deleted(_)) if *name == object.name)
        })?;
        history.operations[deleted].outcome = Outcome::Unknown;
        Some(())
    });
}

#[test]
fn a_deletion_before_its_request_is_found() {
    check_fault_in(answered, "deletions were requested", |history| {
        let deleted = history
            .operations
            .iter()
            .position(|it| matches!((&it.call, &it.outcome), (Call::Delete { .. }, Outcome::Deleted(_))))?;
        history.operations[deleted].outcome = Outcome::Unknown;
        postpone(&mut history.operations[deleted]);
        Some(())
    });
}

#[test]
fn a_deletion_whose_answer_was_lost_is_correct() {
    for seed in 0..100 {
        let mut history = answered(seed);
        let Some(object) = living(&history) else { continue };
        delete(&mut history, &object);
        let call = Call::Delete { name: object.name, uid: Some(object.uid) };
        last(&mut history, call, Outcome::Unknown);
        let violations = check(&history);
        assert!(
            !violations.iter().any(|it| it.rule == "deletions were requested"),
            "seed {seed}: {violations:?}"
        );
    }
}

#[test]
fn a_deletion_that_is_acknowledged_long_after_it_is_found() {
    check_fault("deletions are there", |history| {
        let is_deletion = |it: &Operation| matches!(&it.outcome, Outcome::Deleted(uids) if uids.len() == 1);
        let deleted = history.operations.iter().position(is_deletion)?;
        postpone(&mut history.operations[deleted]);
        Some(())
    });
}

#[test]
fn a_deletion_of_another_uid_is_found() {
    check_fault("preconditions held", |history| {
        let is_deleted = |it: &Operation| matches!(&it.outcome, Outcome::Deleted(uids) if !uids.is_empty());
        let operation = history
            .operations
            .iter_mut()
            .find(|it| matches!(it.call, Call::Delete { .. }) && is_deleted(it))?;
        let Call::Delete { uid, .. } = &mut operation.call else { return None };
        *uid = Some("another".to_owned());
        Some(())
    });
}

#[test]
fn a_deletion_of_another_object_is_found() {
    check_fault("answers are about their object", |history| {
        let operation = history
            .operations
            .iter_mut()
            .find(|it| matches!((&it.call, &it.outcome), (Call::Delete { .. }, Outcome::Deleted(_))))?;
        let Call::Delete { name, .. } = &mut operation.call else { return None };
        name.push('x');
        Some(())
    });
}

#[test]
fn an_object_that_a_deletecollection_leaves_is_found() {
    check_fault("collections are emptied", |history| {
        living(history)?;
        last(history, Call::DeleteCollection, Outcome::Deleted(Vec::new()));
        Some(())
    });
}
