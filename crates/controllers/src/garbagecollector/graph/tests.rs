use super::*;
use crate::garbagecollector::decide::{Action, Propagation, decide};
use api::Time;
use std::collections::BTreeMap;

fn of(kind: &str) -> Type {
    Type { api_version: "v1".to_owned(), kind: kind.to_owned() }
}

fn reference(kind: &str, name: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        block_owner_deletion: Some(blocks),
        ..OwnerReference::default()
    }
}

fn object(namespace: &str, name: &str, version: u64, owners: &[OwnerReference]) -> ObjectMeta {
    ObjectMeta {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: version.to_string(),
        owner_references: owners.to_vec(),
        ..ObjectMeta::default()
    }
}

fn uid(name: &str) -> Uid {
    Uid::from(&*format!("uid-{name}"))
}

fn delete(name: &str) -> WorkItem {
    WorkItem::Delete(uid(name))
}

#[test]
fn an_owner_that_was_not_observed_is_checked() {
    let mut graph = Graph::default();
    assert_eq!(graph.put(&of("P"), &object("a", "p", 1, &[reference("R", "r", false)])), [delete("r")]);
    assert!(!graph.view(&uid("r")).unwrap().observed);
    assert_eq!(graph.view(&uid("p")).unwrap().owners[0].1, OwnerState::Unknown);
    // it is observed, and matches the reference
    assert_eq!(graph.put(&of("R"), &object("a", "r", 2, &[])), []);
    assert_eq!(graph.view(&uid("p")).unwrap().owners[0].1, OwnerState::Solid);
    // it is deleted, and its dependent is queued
    assert_eq!(graph.gone(&of("R"), &object("a", "r", 3, &[])), [delete("p")]);
    assert_eq!(graph.view(&uid("p")).unwrap().owners[0].1, OwnerState::Absent);
    assert_eq!(graph.gone(&of("P"), &object("a", "p", 4, &[])), []);
    assert_eq!(graph.len(), 0);
}

#[test]
fn an_owner_with_two_identities_is_checked_as_both() {
    let mut graph = Graph::default();
    let owned = |kind| [OwnerReference { uid: "u".to_owned(), ..reference(kind, "r", false) }];
    assert_eq!(graph.put(&of("P"), &object("a", "p", 1, &owned("R"))), [WorkItem::Delete("u".into())]);
    // the second reference has another kind
    assert_eq!(graph.put(&of("P"), &object("a", "q", 2, &owned("S"))), [delete("q")]);
    let first = graph.view(&"u".into()).unwrap().identity;
    assert_eq!(graph.remove_absent(&first), [delete("p"), WorkItem::Delete("u".into())]);
    assert_eq!(graph.view(&uid("p")).unwrap().owners[0].1, OwnerState::Absent);
    assert_eq!(graph.view(&uid("q")).unwrap().owners[0].1, OwnerState::Unknown);
    let second = graph.view(&"u".into()).unwrap().identity;
    assert_eq!(second.of.kind, "S");
    assert_eq!(graph.remove_absent(&second), [delete("p"), delete("q")]);
}

#[test]
fn references_across_namespaces_are_reported_in_either_order() {
    let is_reported = |todo: &[WorkItem]| {
        todo.iter().any(|it| {
            matches!(it, WorkItem::Misplaced { dependent, owner }
        if dependent.uid == uid("p") && owner.to_string() == "[v1/R, namespace: b, name: r, uid: uid-r]")
        })
    };
    let child = object("b", "p", 1, &[reference("R", "r", false)]);
    let parent = object("a", "r", 2, &[]);
    let mut graph = Graph::default();
    graph.put(&of("P"), &child);
    let todo = graph.put(&of("R"), &parent);
    assert!(is_reported(&todo) && todo.contains(&delete("p")), "{todo:?}");
    let mut graph = Graph::default();
    graph.put(&of("R"), &parent);
    let todo = graph.put(&of("P"), &child);
    assert!(is_reported(&todo) && todo.contains(&delete("p")), "{todo:?}");
    // a cluster-scoped owner may have dependents in any namespace
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("", "r", 1, &[]));
    assert_eq!(graph.put(&of("P"), &child), []);
}

#[test]
fn waiting_owners_are_queued_when_a_dependent_unblocks_them() {
    let waiting = |version| ObjectMeta {
        deletion_timestamp: Some(Time(1)),
        finalizers: vec![FOREGROUND.to_owned()],
        ..object("a", "r", version, &[])
    };
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("a", "r", 1, &[]));
    for name in ["p", "q", "s"] {
        graph.put(&of("P"), &object("a", name, 2, &[reference("R", "r", name != "s")]));
    }
    assert_eq!(graph.put(&of("R"), &waiting(3)), [delete("p"), delete("q"), delete("s"), delete("r")]);
    let view = graph.view(&uid("r")).unwrap();
    assert_eq!((view.blocked, view.blocking), (true, vec![uid("p"), uid("q")]));
    assert_eq!(graph.put(&of("P"), &object("a", "p", 4, &[reference("R", "r", false)])), [delete("r")]);
    assert_eq!(graph.gone(&of("P"), &object("a", "q", 5, &[])), [delete("r")]);
    assert!(!graph.view(&uid("r")).unwrap().blocked);
    // a new list removes objects whose deletion was missed
    assert_eq!(graph.retain(&of("P"), &HashSet::from(["uid-p".to_owned()])), [delete("r")]);
    assert_eq!(graph.len(), 2);
}

#[test]
fn objects_of_an_unwatched_type_may_exist_or_not() {
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("a", "r", 1, &[]));
    graph.put(&of("R"), &object("a", "lonely", 1, &[]));
    graph.put(&of("P"), &object("a", "p", 2, &[reference("R", "r", false)]));
    assert_eq!(graph.unwatch(&of("R")), []);
    assert_eq!(graph.view(&uid("p")).unwrap().owners[0].1, OwnerState::Unknown);
    assert!(graph.view(&uid("lonely")).is_none());
    assert_eq!(graph.unwatch(&of("P")), []);
    assert_eq!(graph.len(), 0);
}

/// Pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.roll(all.len())].clone())
    }
}

/// A server and a collector, whose steps run in random order.
struct World {
    dice: Dice,
    objects: BTreeMap<String, (Type, ObjectMeta)>,
    /// Pending watch events by kind.
    events: BTreeMap<String, VecDeque<(bool, ObjectMeta)>>,
    graph: Graph,
    todo: Vec<WorkItem>,
    version: u64,
    /// Objects that were orphaned and must stay.
    orphans: HashSet<String>,
}

const KINDS: [&str; 3] = ["P", "R", "C"];

impl World {
    fn emit(&mut self, uid: &str, exists: bool) {
        let (of, object) = self.objects.get(uid).cloned().unwrap();
        self.events.entry(of.kind).or_default().push_back((exists, object));
    }

    fn change(&mut self, uid: &str, change: impl FnOnce(&mut ObjectMeta)) {
        self.version += 1;
        let object = &mut self.objects.get_mut(uid).unwrap().1;
        change(object);
        object.resource_version = self.version.to_string();
        let gone = object.deletion_timestamp.is_some() && object.finalizers.is_empty();
        self.emit(uid, !gone);
        if gone {
            self.objects.remove(uid);
        }
    }

    fn delete(&mut self, uid: &str, propagation: Propagation) {
        self.change(uid, |it| {
            it.deletion_timestamp = Some(Time(1));
            it.finalizers.retain(|it| it != ORPHAN && it != FOREGROUND);
            match propagation {
                Propagation::Orphan => it.finalizers.push(ORPHAN.to_owned()),
                Propagation::Foreground => it.finalizers.push(FOREGROUND.to_owned()),
                Propagation::Background => {}
            }
        });
    }

    /// The state of an owner on the server.
    fn owner(&self, dependent: &ObjectMeta, owner: &OwnerReference) -> OwnerState {
        let found = self.objects.get(&owner.uid).filter(|(of, it)| {
            of.kind == owner.kind
                && it.name == owner.name
                && (it.namespace.is_empty() || it.namespace == dependent.namespace)
        });
        match found {
            None => OwnerState::Absent,
            Some((_, it)) if DeletionState::of(it).waits() => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        }
    }

    fn create(&mut self, number: usize) {
        let kind = KINDS[self.dice.roll(KINDS.len())];
        let namespace = if kind == "C" { "" } else { ["a", "b"][self.dice.roll(2)] };
        let owners = self.owners(namespace);
        self.version += 1;
        let object = object(namespace, &format!("o{number}"), self.version, &owners);
        let uid = object.uid.clone();
        self.objects.insert(uid.clone(), (of(kind), object));
        self.emit(&uid, true);
    }

    /// References to existing objects, and sometimes to absent ones.
    fn owners(&mut self, namespace: &str) -> Vec<OwnerReference> {
        let mut owners: Vec<OwnerReference> = Vec::new();
        let all: Vec<String> = self.objects.keys().cloned().collect();
        for _ in 0..self.dice.roll(3) {
            let Some(uid) = self.dice.pick(&all) else { continue };
            let (of, it) = &self.objects[&uid];
            if namespace.is_empty() && !it.namespace.is_empty() || owners.iter().any(|it| it.uid == uid) {
                continue;
            }
            let mut owner = reference(&of.kind, &it.name, false);
            match self.dice.roll(10) {
                0 => owner.name = "wrong".to_owned(),
                1 => (owner.uid, owner.name) = ("uid-none".to_owned(), "none".to_owned()),
                2..5 => owner.block_owner_deletion = Some(true),
                _ => {}
            }
            owners.push(owner);
        }
        owners
    }

    fn act(&mut self, number: usize) {
        let all: Vec<String> = self.objects.keys().cloned().collect();
        let Some(uid) = self.dice.pick(&all) else { return self.create(number) };
        let deleting = self.objects[&uid].1.deletion_timestamp.is_some();
        match self.dice.roll(8) {
            0 if !deleting => self.delete(&uid, Propagation::Background),
            1 if !deleting => self.delete(&uid, Propagation::Foreground),
            2 if !deleting => {
                // its dependents are known before the deletion
                while self.observe() {}
                let only = |it: &ObjectMeta| {
                    it.deletion_timestamp.is_none()
                        && it.owner_references.len() == 1
                        && it.owner_references[0].uid == uid
                };
                let orphans = self.objects.iter().filter(|(_, (_, it))| {
                    only(it) && self.owner(it, &it.owner_references[0]) == OwnerState::Solid
                });
                self.orphans.extend(orphans.map(|(uid, _)| uid.clone()).collect::<Vec<_>>());
                self.delete(&uid, Propagation::Orphan);
            }
            3 => {
                let namespace = self.objects[&uid].1.namespace.clone();
                let owners = self.owners(&namespace);
                self.orphans.remove(&uid);
                self.change(&uid, |it| it.owner_references = owners);
                return;
            }
            _ => return self.create(number),
        }
        self.orphans.remove(&uid);
    }

    /// Delivers one event; false if there is none.
    fn observe(&mut self) -> bool {
        let waiting: Vec<String> =
            self.events.iter().filter(|(_, all)| !all.is_empty()).map(|(kind, _)| kind.clone()).collect();
        let Some(kind) = self.dice.pick(&waiting) else { return false };
        let (exists, object) = self.events.get_mut(&kind).unwrap().pop_front().unwrap();
        let todo = match exists {
            true => self.graph.put(&of(&kind), &object),
            false => self.graph.gone(&of(&kind), &object),
        };
        self.todo.extend(todo);
        true
    }

    /// Does one piece of work; false if there is none.
    fn work(&mut self) -> bool {
        if self.todo.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.todo.len());
        match self.todo.swap_remove(at) {
            WorkItem::Misplaced { .. } => {}
            WorkItem::Orphan(uid) => self.orphan(&uid),
            WorkItem::Delete(uid) => self.reconcile(&uid),
        }
        true
    }

    fn orphan(&mut self, uid: &Uid) {
        for dependent in self.graph.dependents_of(uid) {
            let dependent = dependent.uid.to_string();
            if self.objects.contains_key(&dependent) {
                self.change(&dependent, |it| it.owner_references.retain(|it| Uid::from(&*it.uid) != *uid));
            }
        }
        if self.objects.contains_key(&uid.to_string()) {
            self.change(&uid.to_string(), |it| it.finalizers.retain(|it| it != ORPHAN));
        }
    }

    fn reconcile(&mut self, uid: &Uid) {
        let Some(view) = self.graph.view(uid) else { return };
        let text = uid.to_string();
        if !view.observed {
            let reference = OwnerReference {
                uid: text.clone(),
                kind: view.identity.of.kind.clone(),
                name: view.identity.name.to_string(),
                ..OwnerReference::default()
            };
            let dependent = object(&view.identity.namespace, "", 0, &[]);
            match self.owner(&dependent, &reference) {
                OwnerState::Absent => {
                    let todo = self.graph.remove_absent(&view.identity);
                    self.todo.extend(todo);
                }
                // it is retried until it was observed
                _ if self.events.values().any(|all| !all.is_empty()) => {
                    self.todo.push(WorkItem::Delete(uid.clone()))
                }
                _ => panic!("{view:?} exists and was not observed"),
            }
            return;
        }
        let Some((_, now)) = self.objects.get(&text).cloned() else { return };
        let mut owners = Vec::new();
        for (owner, known) in &view.owners {
            let reference = OwnerReference {
                uid: owner.uid.to_string(),
                kind: owner.of.kind.clone(),
                name: owner.name.to_string(),
                ..OwnerReference::default()
            };
            owners.push(match known {
                OwnerState::Unknown => self.owner(&now, &reference),
                known => *known,
            });
        }
        let action = decide(&view, &owners);
        let stale = now.resource_version != view.version.to_string();
        match action {
            Action::Nothing => {}
            Action::Wait(blocking) => self.todo.extend(blocking.into_iter().map(WorkItem::Delete)),
            Action::Finish => {
                if now.finalizers.iter().any(|it| it == FOREGROUND) {
                    self.change(&text, |it| it.finalizers.retain(|it| it != FOREGROUND));
                }
            }
            Action::Unlink(uids) => {
                self.change(&text, |it| {
                    it.owner_references.retain(|it| !uids.contains(&Uid::from(&*it.uid)))
                });
            }
            // a conflict: it is decided again
            Action::Delete(_) if stale => self.todo.push(WorkItem::Delete(uid.clone())),
            Action::Delete(propagation) => {
                let solid = now.owner_references.iter().any(|it| self.owner(&now, it) == OwnerState::Solid);
                assert!(
                    !solid && !now.owner_references.is_empty(),
                    "{now:?} was collected although it has an owner"
                );
                assert!(!self.orphans.contains(&text), "{now:?} was orphaned and must stay");
                self.delete(&text, propagation);
            }
            Action::UnblockAndDelete => {
                self.change(&text, |it| {
                    it.owner_references.iter_mut().for_each(|it| it.block_owner_deletion = Some(false));
                });
                self.delete(&text, Propagation::Foreground);
            }
        }
    }

    /// The graph matches the objects, and no garbage is left.
    fn check(&self) {
        for (uid, (of, object)) in &self.objects {
            let view = self
                .graph
                .view(&Uid::from(&**uid))
                .unwrap_or_else(|| panic!("{object:?} is not in the graph"));
            assert!(
                view.observed
                    && *view.identity.of == *of
                    && view.version.to_string() == object.resource_version
            );
            let owners: Vec<String> = view.owners.iter().map(|(it, _)| it.uid.to_string()).collect();
            let expected: Vec<String> = object.owner_references.iter().map(|it| it.uid.clone()).collect();
            assert_eq!(owners, expected);
            let mut dependents: Vec<String> =
                self.graph.dependents_of(&Uid::from(&**uid)).iter().map(|it| it.uid.to_string()).collect();
            dependents.sort();
            let refer = |it: &ObjectMeta| it.owner_references.iter().any(|it| it.uid == *uid);
            let expected: Vec<String> =
                self.objects.iter().filter(|(_, (_, it))| refer(it)).map(|(uid, _)| uid.clone()).collect();
            assert_eq!(dependents, expected, "of {object:?}");
            assert!(object.deletion_timestamp.is_none(), "{object:?} is still there");
            let known = object.owner_references.iter().map(|it| self.owner(object, it));
            let owned = object.owner_references.is_empty() || known.clone().any(|it| it == OwnerState::Solid);
            assert!(owned, "{object:?} has no owner left: {:?}", known.collect::<Vec<_>>());
        }
        assert_eq!(self.graph.len(), self.objects.len(), "the graph has nodes without objects");
        assert!(self.orphans.iter().all(|uid| self.objects.contains_key(uid)));
    }
}

#[test]
fn garbage_and_nothing_else_is_collected_in_any_order_of_events() {
    for seed in 0..600 {
        let result = std::panic::catch_unwind(|| {
            let mut world = World {
                dice: Dice(seed),
                objects: BTreeMap::new(),
                events: BTreeMap::new(),
                graph: Graph::default(),
                todo: Vec::new(),
                version: 0,
                orphans: HashSet::new(),
            };
            for number in 0..60 {
                world.act(number);
                for _ in 0..world.dice.roll(4) {
                    if world.dice.roll(2) == 0 {
                        world.observe()
                    } else {
                        world.work()
                    };
                }
            }
            let mut steps = 0;
            while world.observe() || world.work() {
                steps += 1;
                assert!(steps < 100_000, "it does not terminate");
            }
            world.check();
        });
        assert!(result.is_ok(), "with seed {seed}");
    }
}
