//! Histories of a model are correct, and every planted fault breaks its rule.

use super::*;
use crate::history::{
    Call, Change, ChangeType, Freshness, Notice, Object, Operation, Outcome, Version, Watch,
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
    changes: Vec<Change>,
    operations: Vec<Operation>,
    step: u64,
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
        self.changes.push(Change { change_type, object: object.clone() });
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
                    None => Outcome::Absent,
                    Some(object) => {
                        Outcome::Object(self.change(ChangeType::Modified, Object { value, ..object }))
                    }
                }
            }
            Call::Delete { name, .. } => match self.objects.get(&name).cloned() {
                None => Outcome::Absent,
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
            6 => Call::Delete { name, uid: None },
            7 if below(&self.random, 6) == 0 => Call::DeleteCollection,
            8 | 9 => Call::Get { name, freshness: Freshness::Latest },
            10 => Call::List { freshness: Freshness::Latest, page: None },
            _ => Call::List { freshness: Freshness::NotOlderThan(self.version), page: None },
        };
        let mut outcome = self.answer(&call);
        // an answer that is lost leaves a write that is there
        if below(&self.random, 15) == 0 {
            outcome = Outcome::Unknown;
        }
        let now = self.step * 10;
        let (begin, end) = (now - below(&self.random, 10), now + 1 + below(&self.random, 25));
        self.operations.push(Operation { client: 0, call, begin, end, outcome });
    }

    fn watch(&self, client: u32, start: Version) -> Watch {
        let mut notices = Vec::new();
        for change in self.changes.iter().filter(|it| it.object.version > start) {
            notices.push(Notice::Change(change.clone()));
            if below(&self.random, 5) == 0 {
                notices.push(Notice::Bookmark(change.object.version));
            }
        }
        Watch { client, start, notices, is_complete: true }
    }
}

fn history(seed: u64) -> History {
    let random: World = Seeded::new(0, seed);
    let mut model = Model {
        random,
        version: 10,
        objects: BTreeMap::new(),
        changes: Vec::new(),
        operations: Vec::new(),
        step: 0,
    };
    for _ in 0..STEPS {
        model.step();
    }
    let middle = model.changes[model.changes.len() / 2].object.version;
    let watches = vec![model.watch(0, 10), model.watch(1, middle)];
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

fn forget(history: &mut History, version: Version) {
    for watch in &mut history.watches {
        watch.notices.retain(|it| !matches!(it, Notice::Change(change) if change.object.version == version));
    }
}

fn edit(history: &mut History, version: Version, edit: impl Fn(&mut Object)) {
    for watch in &mut history.watches {
        for notice in &mut watch.notices {
            if let Notice::Change(change) = notice
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
                !matches!(it, Notice::Change(it) if it.change_type == ChangeType::Deleted && it.object.uid == uids[0])
            });
        }
        Some(())
    });
}

#[test]
fn a_change_that_a_watch_leaves_out_is_found() {
    check_fault("watches are complete", |history| {
        let notices = &mut history.watches[1].notices;
        let at = notices.iter().rposition(|it| matches!(it, Notice::Change(_)))?;
        notices.remove(at);
        Some(())
    });
}

#[test]
fn a_bookmark_that_comes_too_early_is_found() {
    check_fault("watches are complete", |history| {
        let notices = &mut history.watches[0].notices;
        let last = notices.iter().rposition(|it| matches!(it, Notice::Change(_)))?;
        let Notice::Change(change) = &notices[last] else { return None };
        let version = change.object.version;
        notices.insert(last, Notice::Bookmark(version));
        Some(())
    });
}

#[test]
fn changes_out_of_order_are_found() {
    check_fault("watches are in order", |history| {
        let notices = &mut history.watches[0].notices;
        let is_change = |it: &Notice| matches!(it, Notice::Change(_));
        let at = (1..notices.len()).find(|at| is_change(&notices[at - 1]) && is_change(&notices[*at]))?;
        notices.swap(at - 1, at);
        Some(())
    });
}

#[test]
fn watches_that_disagree_are_found() {
    check_fault("watches agree", |history| {
        let notice = history.watches[1].notices.iter_mut().find(|it| matches!(it, Notice::Change(_)))?;
        let Notice::Change(change) = notice else { return None };
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
        for watch in history.watches.iter_mut().filter(|it| it.start < object.version) {
            let again = Object { version: Version::MAX - 1, ..object.clone() };
            watch.notices.push(Notice::Change(Change { change_type: ChangeType::Modified, object: again }));
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
            history.watches[0].notices.iter().filter_map(|it| match it {
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
