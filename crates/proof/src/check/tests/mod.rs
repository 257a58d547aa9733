//! Histories of a model are correct, and every planted fault breaks its rule.

mod deletions;
mod refusals;
mod states;

use super::*;
use crate::history::{
    Call, Change, ChangeType, Delivery, Freshness, Notice, Object, Operation, Outcome, Point, Start, Version,
    Watch,
};
use env::{Seeded, World};
use std::collections::BTreeMap;

const STEPS: u64 = 300;

fn below(random: &World, limit: u64) -> u64 {
    env::random_u64(random) % limit
}

/// A server with one order of writes, and clients whose requests overlap.
struct Model {
    random: World,
    version: Version,
    objects: BTreeMap<String, Object>,
    /// With the points at which they were made.
    changes: Vec<(Point, Change)>,
    operations: Vec<Operation>,
    step: u64,
    loses_answers: bool,
}

impl Model {
    fn change(&mut self, change_type: ChangeType, mut object: Object) -> Object {
        // other collections have versions, too
        self.version += 1 + below(&self.random, 3);
        object.version = self.version;
        match change_type {
            ChangeType::Deleted => self.objects.remove(&object.name),
            _ => self.objects.insert(object.name.clone(), object.clone()),
        };
        self.changes.push((self.step * 10, Change { change_type, object: object.clone() }));
        object
    }

    fn answer(&mut self, call: &Call) -> Outcome {
        match call.clone() {
            Call::Get { name, .. } => {
                self.objects.get(&name).cloned().map_or(Outcome::Absent, Outcome::Object)
            }
            Call::List { .. } => {
                Outcome::List { version: self.version, objects: self.objects.values().cloned().collect() }
            }
            Call::Create { name, .. } if self.objects.contains_key(&name) => Outcome::Refused(409),
            Call::Create { name, value } => {
                let uid = format!("uid-{value}");
                Outcome::Object(self.change(ChangeType::Added, Object { name, uid, version: 0, value }))
            }
            Call::Update { name, value, expected } => match self.objects.get(&name).cloned() {
                None => Outcome::Absent,
                Some(object) if object.version != expected => Outcome::Refused(409),
                Some(object) => {
                    Outcome::Object(self.change(ChangeType::Modified, Object { value, ..object }))
                }
            },
            Call::Patch { name, value } | Call::Apply { name, value } => {
                match self.objects.get(&name).cloned() {
                    None if matches!(call, Call::Apply { .. }) => self.answer(&Call::Create { name, value }),
                    None => Outcome::Absent,
                    Some(object) => {
                        Outcome::Object(self.change(ChangeType::Modified, Object { value, ..object }))
                    }
                }
            }
            Call::Delete { name, uid } => match self.objects.get(&name).cloned() {
                None => Outcome::Absent,
                Some(object) if uid.is_some_and(|uid| uid != object.uid) => Outcome::Refused(409),
                Some(object) => Outcome::Deleted(vec![self.change(ChangeType::Deleted, object).uid]),
            },
            Call::DeleteCollection => {
                let all: Vec<_> = self.objects.values().cloned().collect();
                let deleted = all.into_iter().map(|it| self.change(ChangeType::Deleted, it).uid);
                Outcome::Deleted(deleted.collect())
            }
        }
    }

    fn step(&mut self) {
        self.step += 1;
        let (name, value) = (format!("o{}", below(&self.random, 4)), format!("v{}", self.step));
        let call = match below(&self.random, 12) {
            0 | 1 => Call::Create { name, value },
            2 | 3 => {
                let known = self.objects.get(&name).map_or(1, |it| it.version);
                Call::Update { name, value, expected: known.saturating_sub(below(&self.random, 5) / 4) }
            }
            4 => Call::Patch { name, value },
            5 => Call::Apply { name, value },
            6 => {
                let known = self.objects.get(&name).map(|it| it.uid.clone());
                let uid = match below(&self.random, 3) {
                    0 => None,
                    1 => known,
                    _ => Some("another".to_owned()),
                };
                Call::Delete { name, uid }
            }
            7 if below(&self.random, 6) == 0 => Call::DeleteCollection,
            8 | 9 => Call::Get { name, freshness: Freshness::Latest },
            10 => Call::List { freshness: Freshness::Latest, page: None },
            _ => match below(&self.random, 2) {
                0 => Call::List { freshness: Freshness::NotOlderThan(self.version), page: None },
                // without a match, a limit says that the version is meant exactly
                _ => Call::List { freshness: Freshness::Unmatched(self.version), page: Some(2) },
            },
        };
        let mut outcome = self.answer(&call);
        // an answer that is lost leaves a write that is there
        if self.loses_answers && below(&self.random, 15) == 0 {
            outcome = Outcome::Unknown;
        }
        let now = self.step * 10;
        let (begin, end) = (now - below(&self.random, 10), now + 1 + below(&self.random, 25));
        self.operations.push(Operation { client: 0, call, begin, end, outcome });
    }

    fn watch(&self, client: u32, start: Version) -> Watch {
        let notices = self.notices(start);
        Watch { client, start: Start::After(start), begin: 0, notices, is_complete: true }
    }

    /// A watch of the state at a version, and of what follows.
    fn watch_state(&self, client: u32, freshness: Freshness, version: Version) -> Watch {
        let mut state: BTreeMap<&str, &(Point, Change)> = BTreeMap::new();
        let mut begin = 0;
        for change in self.changes.iter().filter(|it| it.1.object.version <= version) {
            begin = change.0;
            match change.1.change_type {
                ChangeType::Deleted => state.remove(&*change.1.object.name),
                _ => state.insert(&change.1.object.name, change),
            };
        }
        let initial = |object: &Object| {
            let change = Change { change_type: ChangeType::Added, object: object.clone() };
            Delivery { at: begin + 1, notice: Notice::Change(change) }
        };
        let mut notices: Vec<Delivery> = state.values().map(|it| initial(&it.1.object)).collect();
        notices.extend(self.notices(version));
        Watch { client, start: Start::State(freshness), begin, notices, is_complete: true }
    }

    fn notices(&self, start: Version) -> Vec<Delivery> {
        let (mut notices, mut at) = (Vec::new(), 0);
        for (made, change) in self.changes.iter().filter(|it| it.1.object.version > start) {
            at = at.max(made + 1 + below(&self.random, 20));
            notices.push(Delivery { at, notice: Notice::Change(change.clone()) });
            if below(&self.random, 5) == 0 {
                notices.push(Delivery { at, notice: Notice::Bookmark(change.object.version) });
            }
        }
        notices
    }
}

fn history(seed: u64) -> History {
    history_of(seed, true)
}

fn history_of(seed: u64, loses_answers: bool) -> History {
    let random: World = Seeded::new(0, seed);
    let mut model = Model {
        random,
        version: 10,
        objects: BTreeMap::new(),
        changes: Vec::new(),
        operations: Vec::new(),
        step: 0,
        loses_answers,
    };
    for _ in 0..STEPS {
        model.step();
    }
    let middle = model.changes[model.changes.len() / 2].1.object.version;
    let states = [Freshness::Latest, Freshness::Any].map(|it| model.watch_state(2, it, middle));
    let watches = [model.watch(0, 10), model.watch(1, middle)].into_iter().chain(states).collect();
    History { operations: model.operations, watches }
}

#[test]
fn histories_of_one_server_are_correct() {
    for seed in 0..200 {
        assert_eq!(check(&history(seed)), [], "seed {seed}");
    }
}

/// Plants a fault in many histories; each must break the rule.
#[track_caller]
fn check_fault(rule: &str, plant: impl Fn(&mut History) -> Option<()>) {
    check_fault_in(history, rule, plant);
}

#[track_caller]
fn check_fault_in(history: fn(u64) -> History, rule: &str, plant: impl Fn(&mut History) -> Option<()>) {
    let mut planted = 0;
    for seed in 0..100 {
        let mut history = history(seed);
        if plant(&mut history).is_some() {
            planted += 1;
            let violations = check(&history);
            assert!(violations.iter().any(|it| it.rule == rule), "seed {seed}: {violations:?}");
        }
    }
    assert!(planted >= 50, "planted only {planted} times");
}

/// An acknowledged write and its object.
fn acknowledged(history: &History, wanted: impl Fn(&Call) -> bool) -> Option<(usize, Object)> {
    history.operations.iter().enumerate().find_map(|(at, it)| match &it.outcome {
        Outcome::Object(object) if wanted(&it.call) => Some((at, object.clone())),
        _ => None,
    })
}

fn is_change(seen: &Delivery) -> bool {
    matches!(seen.notice, Notice::Change(_))
}

fn forget(history: &mut History, version: Version) {
    for watch in &mut history.watches {
        watch
            .notices
            .retain(|it| !matches!(&it.notice, Notice::Change(change) if change.object.version == version));
    }
}

fn edit(history: &mut History, version: Version, edit: impl Fn(&mut Object)) {
    for watch in &mut history.watches {
        for seen in &mut watch.notices {
            if let Notice::Change(change) = &mut seen.notice
                && change.object.version == version
            {
                edit(&mut change.object);
            }
        }
    }
}

#[test]
fn a_lost_write_is_found() {
    check_fault("acknowledged writes are there", |history| {
        let (_, object) = acknowledged(history, |it| it.value().is_some())?;
        forget(history, object.version);
        Some(())
    });
}

#[test]
fn a_lost_deletion_is_found() {
    check_fault("deletions are there", |history| {
        let is_deletion = |it: &Operation| matches!(&it.outcome, Outcome::Deleted(uids) if uids.len() == 1);
        let operation = history.operations.iter().find(|it| is_deletion(it))?;
        let Outcome::Deleted(uids) = operation.outcome.clone() else { return None };
        for watch in &mut history.watches {
            watch.notices.retain(|it| {
                !matches!(&it.notice, Notice::Change(it) if it.change_type == ChangeType::Deleted && it.object.uid == uids[0])
            });
        }
        Some(())
    });
}

#[test]
fn a_change_that_a_watch_leaves_out_is_found() {
    check_fault("watches are complete", |history| {
        let notices = &mut history.watches[1].notices;
        let at = notices.iter().rposition(is_change)?;
        notices.remove(at);
        Some(())
    });
}

#[test]
fn a_bookmark_that_comes_too_early_is_found() {
    check_fault("watches are complete", |history| {
        let notices = &mut history.watches[0].notices;
        let last = notices.iter().rposition(is_change)?;
        let Delivery { at, notice } = notices[last].clone();
        notices.insert(last, Delivery { at, notice: Notice::Bookmark(notice.version()) });
        Some(())
    });
}

#[test]
fn changes_out_of_order_are_found() {
    check_fault("watches are in order", |history| {
        let notices = &mut history.watches[0].notices;
        let at = (1..notices.len()).find(|at| is_change(&notices[at - 1]) && is_change(&notices[*at]))?;
        notices.swap(at - 1, at);
        Some(())
    });
}

#[test]
fn watches_that_disagree_are_found() {
    check_fault("watches agree", |history| {
        let seen = history.watches[1].notices.iter_mut().find(|it| is_change(it))?;
        let Notice::Change(change) = &mut seen.notice else { return None };
        change.object.value.push('x');
        Some(())
    });
}

#[test]
fn another_uid_without_a_deletion_is_found() {
    check_fault("changes follow each other", |history| {
        let (at, object) = acknowledged(history, |it| matches!(it, Call::Patch { .. }))?;
        edit(history, object.version, |it| it.uid.push('x'));
        let uid = object.uid.clone() + "x";
        history.operations[at].outcome = Outcome::Object(Object { uid, ..object });
        Some(())
    });
}

#[test]
fn a_write_that_happens_twice_is_found() {
    check_fault("changes were requested", |history| {
        let (_, object) = acknowledged(history, |it| matches!(it, Call::Patch { .. }))?;
        for watch in &mut history.watches {
            let again = Object { version: Version::MAX - 1, ..object.clone() };
            let notice = Notice::Change(Change { change_type: ChangeType::Modified, object: again });
            watch.notices.push(Delivery { at: Point::MAX, notice });
        }
        Some(())
    });
}

#[test]
fn a_change_without_a_request_is_found() {
    check_fault("changes were requested", |history| {
        let (at, _) = acknowledged(history, |it| it.value().is_some())?;
        history.operations.remove(at);
        Some(())
    });
}

#[test]
fn a_refused_write_that_is_there_is_found() {
    check_fault("refused writes are not there", |history| {
        let (at, _) = acknowledged(history, |it| it.value().is_some())?;
        history.operations[at].outcome = Outcome::Refused(409);
        Some(())
    });
}

#[test]
fn an_update_of_another_version_is_found() {
    check_fault("preconditions held", |history| {
        let (at, _) = acknowledged(history, |it| matches!(it, Call::Update { .. }))?;
        if let Call::Update { expected, .. } = &mut history.operations[at].call {
            *expected -= 1;
        }
        Some(())
    });
}

#[test]
fn a_create_of_an_object_that_is_there_is_found() {
    check_fault("preconditions held", |history| {
        let (at, object) = acknowledged(history, |it| matches!(it, Call::Patch { .. }))?;
        history.operations[at].call = Call::Create { name: object.name, value: object.value };
        Some(())
    });
}

#[test]
fn versions_that_go_back_are_found() {
    check_fault("versions grow", |history| {
        let writes: Vec<usize> = (0..history.operations.len())
            .filter(|at| {
                let it = &history.operations[*at];
                it.call.value().is_some() && matches!(it.outcome, Outcome::Object(_))
            })
            .collect();
        let (first, second) = (*writes.first()?, *writes.last()?);
        let [a, b] = history.operations.get_disjoint_mut([first, second]).ok()?;
        std::mem::swap(&mut a.begin, &mut b.begin);
        std::mem::swap(&mut a.end, &mut b.end);
        Some(())
    });
}

#[test]
fn a_read_of_what_was_never_there_is_found() {
    check_fault("reads are true", |history| {
        let (at, mut object) = acknowledged(history, |it| matches!(it, Call::Get { .. }))?;
        object.value.push('x');
        history.operations[at].outcome = Outcome::Object(object);
        Some(())
    });
}

#[test]
fn a_read_of_the_version_of_a_deletion_is_found() {
    check_fault("reads are true", |history| {
        let deleted = history.watches[0].notices.iter().find_map(|it| match &it.notice {
            Notice::Change(change) if change.change_type == ChangeType::Deleted => {
                Some(change.object.clone())
            }
            _ => None,
        })?;
        let (at, _) = acknowledged(history, |it| matches!(it, Call::Get { .. }))?;
        history.operations[at].outcome = Outcome::Object(deleted);
        Some(())
    });
}

/// Moves an operation behind all others: what it saw is old by then.
fn postpone(operation: &mut Operation) {
    operation.begin += STEPS * 100;
    operation.end += STEPS * 100;
}

#[test]
fn an_old_object_is_found() {
    check_fault("reads are fresh", |history| {
        let (at, object) = acknowledged(history, |it| matches!(it, Call::Get { .. }))?;
        let later =
            acknowledged(history, |it| matches!(it, Call::Patch { name, .. } if *name == object.name))?.1;
        postpone(&mut history.operations[at]);
        (later.version > object.version).then_some(())
    });
}

#[test]
fn an_object_from_the_future_is_found() {
    check_fault("reads are fresh", |history| {
        let gets = history
            .operations
            .iter()
            .rposition(|it| matches!((&it.call, &it.outcome), (Call::Get { .. }, Outcome::Object(_))))?;
        let Outcome::Object(object) = &history.operations[gets].outcome else { return None };
        let seen = object.version;
        let operation = &mut history.operations[gets];
        (operation.begin, operation.end) = (0, 0);
        let first = acknowledged(history, |it| it.value().is_some())?.1.version;
        (first < seen).then_some(())
    });
}

#[test]
fn an_object_that_is_missed_is_found() {
    check_fault("reads are fresh", |history| {
        let changes = || {
            history.watches[0].notices.iter().filter_map(|it| match &it.notice {
                Notice::Change(change) => Some(change),
                Notice::Bookmark(_) => None,
            })
        };
        let is_deleted =
            |uid: &str| changes().any(|it| it.change_type == ChangeType::Deleted && it.object.uid == uid);
        let added = |uid: &str| changes().find(|it| it.object.uid == uid).map(|it| it.object.version);
        let known = |point| {
            let before = history.operations.iter().filter(|it| it.end < point);
            let versions = before.filter_map(|it| match &it.outcome {
                Outcome::Object(object) => Some(object.version),
                _ => None,
            });
            versions.max()
        };
        // an object that stays, read after it was there for all to see
        let at = history.operations.iter().position(|it| match (&it.call, &it.outcome) {
            (Call::Get { .. }, Outcome::Object(object)) => {
                !is_deleted(&object.uid) && known(it.begin) >= added(&object.uid)
            }
            _ => false,
        })?;
        history.operations[at].outcome = Outcome::Absent;
        Some(())
    });
}

fn listed(history: &History) -> Option<usize> {
    history.operations.iter().position(|it| match (&it.call, &it.outcome) {
        (Call::List { freshness: Freshness::Latest, .. }, Outcome::List { objects, .. }) => {
            !objects.is_empty()
        }
        _ => false,
    })
}

#[test]
fn a_list_that_lacks_an_object_is_found() {
    check_fault("lists are exact", |history| {
        let at = listed(history)?;
        if let Outcome::List { objects, .. } = &mut history.operations[at].outcome {
            objects.pop();
        }
        Some(())
    });
}

#[test]
fn a_list_with_an_object_twice_is_found() {
    check_fault("lists are exact", |history| {
        let at = listed(history)?;
        if let Outcome::List { objects, .. } = &mut history.operations[at].outcome {
            objects.push(objects[0].clone());
        }
        Some(())
    });
}

#[test]
fn an_old_list_is_found() {
    check_fault("reads are fresh", |history| {
        let at = listed(history)?;
        postpone(&mut history.operations[at]);
        Some(())
    });
}
