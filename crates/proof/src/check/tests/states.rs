//! Planted faults of watches that begin with a state, and of what watches say about time.

use super::*;

/// The watch that begins with the newest state.
const NEWEST: usize = 2;

#[track_caller]
fn check_state_fault(plant: impl Fn(&mut Vec<Delivery>) -> Option<()>) {
    check_fault("watches begin with a state", |history| plant(&mut history.watches[NEWEST].notices));
}

/// Whether the events begin with an object that was changed before: no addition can be meant.
fn begins_with_state(notices: &[Delivery], history: &History) -> bool {
    let added = |object: &Object| {
        history.watches[0].notices.iter().any(|it| match &it.notice {
            Notice::Change(change) => change.object == *object && change.change_type == ChangeType::Added,
            Notice::Bookmark(_) => false,
        })
    };
    notices.first().is_some_and(|it| matches!(&it.notice, Notice::Change(change) if !added(&change.object)))
}

#[test]
fn a_state_that_lacks_an_object_is_found() {
    check_fault("watches begin with a state", |history| {
        let notices = &history.watches[NEWEST].notices;
        if !begins_with_state(notices, history) {
            return None;
        }
        history.watches[NEWEST].notices.remove(0);
        Some(())
    });
}

#[test]
fn a_state_with_an_object_twice_is_found() {
    check_state_fault(|notices| {
        let first = notices.first().filter(|it| is_change(it))?.clone();
        notices.insert(0, first);
        Some(())
    });
}

#[test]
fn a_change_that_is_left_out_after_a_state_is_found() {
    check_state_fault(|notices| {
        let at = notices.iter().rposition(is_change)?;
        notices.remove(at);
        Some(())
    });
}

#[test]
fn a_state_older_than_what_was_known_is_found() {
    check_fault("watches begin with a state", |history| {
        history.watches[NEWEST].begin = STEPS * 100;
        Some(())
    });
}

#[test]
fn a_state_of_any_version_may_be_old() {
    for seed in 0..100 {
        let mut history = history(seed);
        history.watches[NEWEST + 1].begin = STEPS * 100;
        assert_eq!(check(&history), [], "seed {seed}");
    }
}

#[test]
fn a_change_that_a_watch_shows_before_its_request_is_found() {
    check_fault("watches are in time", |history| {
        let seen = history.watches[0].notices.iter_mut().rfind(|it| is_change(it))?;
        seen.at = 0;
        Some(())
    });
}

#[test]
fn a_read_older_than_what_a_watch_has_shown_is_found() {
    check_fault("reads are fresh", |history| {
        // no other client has learned of the change
        let (at, object) = acknowledged(history, |it| matches!(it, Call::Patch { .. }))?;
        history.operations[at].outcome = Outcome::Unknown;
        let before = history.watches[0].notices.iter().rev().find_map(|it| match &it.notice {
            Notice::Change(change)
                if change.object.name == object.name && change.object.version < object.version =>
            {
                Some(change.object.clone())
            }
            _ => None,
        })?;
        let point = history.operations[at].end;
        history.operations.truncate(at + 1);
        for watch in &mut history.watches {
            watch.notices.retain(|it| it.notice.version() <= object.version);
            watch.is_complete = false;
            for seen in &mut watch.notices {
                seen.at = seen.at.min(point);
            }
        }
        let call = Call::Get { name: object.name, freshness: Freshness::Latest };
        let (begin, end) = (point + 100, point + 101);
        history.operations.push(Operation { client: 1, call, begin, end, outcome: Outcome::Object(before) });
        Some(())
    });
}
