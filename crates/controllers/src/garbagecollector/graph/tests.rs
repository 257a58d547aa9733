use super::*;
use crate::garbagecollector::decide::{Action, Propagation, decide};
use std::collections::BTreeMap;

fn of(kind: &str) -> Type {
    Type { api_version: "v1".to_owned(), kind: kind.to_owned() }
}

fn reference(kind: &str, name: &str, blocks: bool) -> Reference {
    Reference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        block_owner_deletion: blocks,
    }
}

fn object(namespace: &str, name: &str, version: u64, owners: &[Reference]) -> Metadata {
    Metadata {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: version.to_string(),
        owner_references: owners.to_vec(),
        ..Metadata::default()
    }
}

fn uid(name: &str) -> Uid {
    Uid::from(&*format!("uid-{name}"))
}

fn delete(name: &str) -> Todo {
    Todo::Delete(uid(name))
}

#[test]
fn an_owner_that_nobody_has_seen_is_looked_for() {
    let mut graph = Graph::default();
    assert_eq!(graph.put(&of("P"), &object("a", "p", 1, &[reference("R", "r", false)])), [delete("r")]);
    assert!(!graph.look(&uid("r")).unwrap().seen);
    assert_eq!(graph.look(&uid("p")).unwrap().owners[0].1, OwnerState::Unknown);
    // it comes, and is what it was said to be
    assert_eq!(graph.put(&of("R"), &object("a", "r", 2, &[])), []);
    assert_eq!(graph.look(&uid("p")).unwrap().owners[0].1, OwnerState::Solid);
    // it goes, and its dependent should be looked at
    assert_eq!(graph.gone(&of("R"), &object("a", "r", 3, &[])), [delete("p")]);
    assert_eq!(graph.look(&uid("p")).unwrap().owners[0].1, OwnerState::Absent);
    assert_eq!(graph.gone(&of("P"), &object("a", "p", 4, &[])), []);
    assert_eq!(graph.len(), 0);
}

#[test]
fn an_owner_that_is_said_to_be_two_things_is_looked_for_as_both() {
    let mut graph = Graph::default();
    let owned = |kind| [Reference { uid: "u".to_owned(), ..reference(kind, "r", false) }];
    assert_eq!(graph.put(&of("P"), &object("a", "p", 1, &owned("R"))), [Todo::Delete("u".into())]);
    // the second one calls it something else
    assert_eq!(graph.put(&of("P"), &object("a", "q", 2, &owned("S"))), [delete("q")]);
    let first = graph.look(&"u".into()).unwrap().identity;
    assert_eq!(graph.is_absent(&first), [delete("p"), Todo::Delete("u".into())]);
    assert_eq!(graph.look(&uid("p")).unwrap().owners[0].1, OwnerState::Absent);
    assert_eq!(graph.look(&uid("q")).unwrap().owners[0].1, OwnerState::Unknown);
    let second = graph.look(&"u".into()).unwrap().identity;
    assert_eq!(second.of.kind, "S");
    assert_eq!(graph.is_absent(&second), [delete("p"), delete("q")]);
}

#[test]
fn references_across_namespaces_are_told_of_whoever_comes_first() {
    let told = |todo: &[Todo]| {
        todo.iter().any(|it| {
            matches!(it, Todo::Misplaced { dependent, owner }
        if dependent.uid == uid("p") && owner.to_string() == "[v1/R, namespace: b, name: r, uid: uid-r]")
        })
    };
    let child = object("b", "p", 1, &[reference("R", "r", false)]);
    let parent = object("a", "r", 2, &[]);
    let mut graph = Graph::default();
    graph.put(&of("P"), &child);
    let todo = graph.put(&of("R"), &parent);
    assert!(told(&todo) && todo.contains(&delete("p")), "{todo:?}");
    let mut graph = Graph::default();
    graph.put(&of("R"), &parent);
    let todo = graph.put(&of("P"), &child);
    assert!(told(&todo) && todo.contains(&delete("p")), "{todo:?}");
    // an owner in no namespace may be anybody's
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("", "r", 1, &[]));
    assert_eq!(graph.put(&of("P"), &child), []);
}

#[test]
fn owners_that_wait_hear_of_dependents_that_block_no_longer() {
    let waiting = |version| Metadata {
        deletion_timestamp: Some("now".to_owned()),
        finalizers: vec![FOREGROUND.to_owned()],
        ..object("a", "r", version, &[])
    };
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("a", "r", 1, &[]));
    for name in ["p", "q", "s"] {
        graph.put(&of("P"), &object("a", name, 2, &[reference("R", "r", name != "s")]));
    }
    assert_eq!(graph.put(&of("R"), &waiting(3)), [delete("p"), delete("q"), delete("s"), delete("r")]);
    let view = graph.look(&uid("r")).unwrap();
    assert_eq!((view.blocked, view.blocking), (true, vec![uid("p"), uid("q")]));
    assert_eq!(graph.put(&of("P"), &object("a", "p", 4, &[reference("R", "r", false)])), [delete("r")]);
    assert_eq!(graph.gone(&of("P"), &object("a", "q", 5, &[])), [delete("r")]);
    assert!(!graph.look(&uid("r")).unwrap().blocked);
    // what was missed while nobody watched is found out
    assert_eq!(graph.only(&of("P"), &HashSet::from(["uid-p".to_owned()])), [delete("r")]);
    assert_eq!(graph.len(), 2);
}

#[test]
fn a_type_that_is_not_watched_any_more_is_neither_there_nor_gone() {
    let mut graph = Graph::default();
    graph.put(&of("R"), &object("a", "r", 1, &[]));
    graph.put(&of("R"), &object("a", "lonely", 1, &[]));
    graph.put(&of("P"), &object("a", "p", 2, &[reference("R", "r", false)]));
    assert_eq!(graph.unwatched(&of("R")), []);
    assert_eq!(graph.look(&uid("p")).unwrap().owners[0].1, OwnerState::Unknown);
    assert!(graph.look(&uid("lonely")).is_none());
    assert_eq!(graph.unwatched(&of("P")), []);
    assert_eq!(graph.len(), 0);
}

/// Numbers that look random, from a seed.
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

/// A server and a collector, one step at a time, in any order that may happen.
struct World {
    dice: Dice,
    objects: BTreeMap<String, (Type, Metadata)>,
    /// What is told of each type, and not heard yet.
    events: BTreeMap<String, VecDeque<(bool, Metadata)>>,
    graph: Graph,
    todo: Vec<Todo>,
    version: u64,
    /// Those that lost their owner and must stay.
    orphans: HashSet<String>,
}

const KINDS: [&str; 3] = ["P", "R", "C"];

impl World {
    fn tell(&mut self, uid: &str, there: bool) {
        let (of, object) = self.objects.get(uid).cloned().unwrap();
        self.events.entry(of.kind).or_default().push_back((there, object));
    }

    fn change(&mut self, uid: &str, change: impl FnOnce(&mut Metadata)) {
        self.version += 1;
        let object = &mut self.objects.get_mut(uid).unwrap().1;
        change(object);
        object.resource_version = self.version.to_string();
        let gone = object.deletion_timestamp.is_some() && object.finalizers.is_empty();
        self.tell(uid, !gone);
        if gone {
            self.objects.remove(uid);
        }
    }

    fn deleted(&mut self, uid: &str, propagation: Propagation) {
        self.change(uid, |it| {
            it.deletion_timestamp = Some("now".to_owned());
            it.finalizers.retain(|it| it != ORPHAN && it != FOREGROUND);
            match propagation {
                Propagation::Orphan => it.finalizers.push(ORPHAN.to_owned()),
                Propagation::Foreground => it.finalizers.push(FOREGROUND.to_owned()),
                Propagation::Background => {}
            }
        });
    }

    /// What a reference of an object means, as the server has it.
    fn owner(&self, dependent: &Metadata, owner: &Reference) -> OwnerState {
        let there = self.objects.get(&owner.uid).filter(|(of, it)| {
            of.kind == owner.kind
                && it.name == owner.name
                && (it.namespace.is_empty() || it.namespace == dependent.namespace)
        });
        match there {
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
        self.tell(&uid, true);
    }

    /// References to some that are there, and sometimes to what is not.
    fn owners(&mut self, namespace: &str) -> Vec<Reference> {
        let mut owners: Vec<Reference> = Vec::new();
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
                2..5 => owner.block_owner_deletion = true,
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
            0 if !deleting => self.deleted(&uid, Propagation::Background),
            1 if !deleting => self.deleted(&uid, Propagation::Foreground),
            2 if !deleting => {
                // who depends on it is known before it goes
                while self.hear() {}
                let only = |it: &Metadata| {
                    it.deletion_timestamp.is_none()
                        && it.owner_references.len() == 1
                        && it.owner_references[0].uid == uid
                };
                let orphans = self.objects.iter().filter(|(_, (_, it))| {
                    only(it) && self.owner(it, &it.owner_references[0]) == OwnerState::Solid
                });
                self.orphans.extend(orphans.map(|(uid, _)| uid.clone()).collect::<Vec<_>>());
                self.deleted(&uid, Propagation::Orphan);
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

    /// One event is heard; whether there was one.
    fn hear(&mut self) -> bool {
        let waiting: Vec<String> =
            self.events.iter().filter(|(_, all)| !all.is_empty()).map(|(kind, _)| kind.clone()).collect();
        let Some(kind) = self.dice.pick(&waiting) else { return false };
        let (there, object) = self.events.get_mut(&kind).unwrap().pop_front().unwrap();
        let todo = match there {
            true => self.graph.put(&of(&kind), &object),
            false => self.graph.gone(&of(&kind), &object),
        };
        self.todo.extend(todo);
        true
    }

    /// One thing is done; whether there was one.
    fn work(&mut self) -> bool {
        if self.todo.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.todo.len());
        match self.todo.swap_remove(at) {
            Todo::Misplaced { .. } => {}
            Todo::Orphan(uid) => self.orphan(&uid),
            Todo::Delete(uid) => self.look_at(&uid),
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

    fn look_at(&mut self, uid: &Uid) {
        let Some(view) = self.graph.look(uid) else { return };
        let text = uid.to_string();
        if !view.seen {
            let reference = Reference {
                uid: text.clone(),
                kind: view.identity.of.kind.clone(),
                name: view.identity.name.to_string(),
                ..Reference::default()
            };
            let as_seen = object(&view.identity.namespace, "", 0, &[]);
            match self.owner(&as_seen, &reference) {
                OwnerState::Absent => {
                    let todo = self.graph.is_absent(&view.identity);
                    self.todo.extend(todo);
                }
                // it comes again until it has been seen
                _ if self.events.values().any(|all| !all.is_empty()) => {
                    self.todo.push(Todo::Delete(uid.clone()))
                }
                _ => panic!("{view:?} exists and was not seen"),
            }
            return;
        }
        let Some((_, now)) = self.objects.get(&text).cloned() else { return };
        let mut owners = Vec::new();
        for (owner, known) in &view.owners {
            let reference = Reference {
                uid: owner.uid.to_string(),
                kind: owner.of.kind.clone(),
                name: owner.name.to_string(),
                ..Reference::default()
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
            Action::Wait(blocking) => self.todo.extend(blocking.into_iter().map(Todo::Delete)),
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
            // somebody was faster: it is looked at again
            Action::Delete(_) if stale => self.todo.push(Todo::Delete(uid.clone())),
            Action::Delete(propagation) => {
                let solid = now.owner_references.iter().any(|it| self.owner(&now, it) == OwnerState::Solid);
                assert!(!solid && !now.owner_references.is_empty(), "{now:?} was collected and had an owner");
                assert!(!self.orphans.contains(&text), "{now:?} was to stay");
                self.deleted(&text, propagation);
            }
            Action::UnblockAndDelete => {
                self.change(&text, |it| {
                    it.owner_references.iter_mut().for_each(|it| it.block_owner_deletion = false);
                });
                self.deleted(&text, Propagation::Foreground);
            }
        }
    }

    /// The graph is what one would make of the objects anew, and nothing is left that should not be.
    fn check(&self) {
        for (uid, (of, object)) in &self.objects {
            let view =
                self.graph.look(&Uid::from(&**uid)).unwrap_or_else(|| panic!("{object:?} is not known"));
            assert!(
                view.seen && *view.identity.of == *of && view.version.to_string() == object.resource_version
            );
            let owners: Vec<String> = view.owners.iter().map(|(it, _)| it.uid.to_string()).collect();
            let expected: Vec<String> = object.owner_references.iter().map(|it| it.uid.clone()).collect();
            assert_eq!(owners, expected);
            let mut dependents: Vec<String> =
                self.graph.dependents_of(&Uid::from(&**uid)).iter().map(|it| it.uid.to_string()).collect();
            dependents.sort();
            let refer = |it: &Metadata| it.owner_references.iter().any(|it| it.uid == *uid);
            let expected: Vec<String> =
                self.objects.iter().filter(|(_, (_, it))| refer(it)).map(|(uid, _)| uid.clone()).collect();
            assert_eq!(dependents, expected, "of {object:?}");
            assert!(object.deletion_timestamp.is_none(), "{object:?} is still there");
            let known = object.owner_references.iter().map(|it| self.owner(object, it));
            let owned = object.owner_references.is_empty() || known.clone().any(|it| it == OwnerState::Solid);
            assert!(owned, "{object:?} belongs to nobody: {:?}", known.collect::<Vec<_>>());
        }
        assert_eq!(self.graph.len(), self.objects.len(), "nodes are left");
        assert!(self.orphans.iter().all(|uid| self.objects.contains_key(uid)));
    }
}

#[test]
fn whatever_happens_in_whatever_order_what_should_go_goes_and_nothing_else() {
    for seed in 0..600 {
        let told = std::panic::catch_unwind(|| {
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
                        world.hear()
                    } else {
                        world.work()
                    };
                }
            }
            let mut steps = 0;
            while world.hear() || world.work() {
                steps += 1;
                assert!(steps < 100_000, "it never ends");
            }
            world.check();
        });
        assert!(told.is_ok(), "with seed {seed}");
    }
}
