//! The dependency graph: all objects that can be deleted, and all owners that references name.
//!
//! ```text
//! deployment d ◄── replica set r ◄── pod p          p refers to r by uid, and r to d
//!                              ◄╌╌ pod q            an owner that only references name is a virtual node:
//!                                                   it may not exist
//! ```
//!
//! Invariants: an object that was observed is a node; a node that was not observed has dependents. A node is among
//! the dependents of the owners that it refers to, until they are gone. The graph sends no requests: each change
//! returns a list of work. An owner that is not in the graph may exist nevertheless.

use super::identity::{Identity, Type, Uid};
use api::meta::v1::{ObjectMeta, OwnerReference};
use slab::Slab;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The limit of owners that are known to be absent.
const ABSENT_LIMIT: usize = 500;
/// The limit of objects that are searched for a deletion cycle.
const CYCLE_LIMIT: usize = 1000;
/// The finalizers of the propagation policies.
pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

/// Work that follows from a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkItem {
    /// Decide whether to delete this object.
    Delete(Uid),
    /// Orphan the dependents of this object.
    Orphan(Uid),
    /// Report a reference to an owner in another namespace.
    Misplaced { dependent: Identity, owner: Identity },
}

/// The state of an object's deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletionState {
    pub deleting: bool,
    pub orphan: bool,
    pub foreground: bool,
}

impl DeletionState {
    fn of(object: &ObjectMeta) -> Self {
        let has = |name: &str| object.finalizers.iter().any(|it| it == name);
        DeletionState {
            deleting: object.deletion_timestamp.is_some(),
            orphan: has(ORPHAN),
            foreground: has(FOREGROUND),
        }
    }

    /// Whether it waits until its dependents are orphaned.
    fn orphans(self) -> bool {
        self.deleting && self.orphan
    }

    /// Whether it waits until its dependents are gone.
    pub fn waits(self) -> bool {
        self.deleting && self.foreground
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: Uid,
    pub of: Arc<Type>,
    pub name: Box<str>,
    /// Whether a foreground deletion of the owner waits for this object.
    pub blocks: bool,
}

/// The state of an owner as the graph has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    Absent,
    Solid,
    /// Waits until its dependents are gone.
    Waiting,
    Unknown,
}

struct Node {
    identity: Identity,
    observed: bool,
    deletion: DeletionState,
    /// The resource version; zero if it is not a number.
    version: u64,
    owners: Box<[Owner]>,
    dependents: BTreeSet<u32>,
}

/// A copy of a node, with the state of its owners and dependents.
#[derive(Debug, Clone)]
pub struct View {
    pub identity: Identity,
    pub observed: bool,
    pub deletion: DeletionState,
    pub version: u64,
    pub owners: Vec<(Owner, OwnerState)>,
    pub has_dependents: bool,
    /// Whether a dependent waits for its own dependents.
    pub dependent_waits: bool,
    /// Whether it waits for dependents.
    pub blocked: bool,
    /// The dependents it waits for that do not wait themselves.
    pub blocking: Vec<Uid>,
}

impl View {
    /// Whether the fields that decide about the object are the same now.
    pub fn is_as_in(&self, now: &ObjectMeta) -> bool {
        let owners = now.owner_references.iter().map(|it| Uid::from(&*it.uid));
        Uid::from(&*now.uid) == self.identity.uid
            && DeletionState::of(now) == self.deletion
            && owners.eq(self.owners.iter().map(|(owner, _)| owner.uid.clone()))
    }
}

/// See the module.
#[derive(Default)]
pub struct Graph {
    nodes: Slab<Node>,
    by_uid: HashMap<Uid, u32>,
    absent: AbsentOwners,
    types: HashSet<Arc<Type>>,
    namespaces: HashSet<Arc<str>>,
}

/// Owners that do not exist; the oldest entry is dropped first.
#[derive(Default)]
struct AbsentOwners {
    all: HashSet<Identity>,
    order: VecDeque<Identity>,
}

impl AbsentOwners {
    fn add(&mut self, identity: Identity) {
        if self.all.insert(identity.clone()) {
            self.order.push_back(identity);
        }
        if self.order.len() > ABSENT_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

/// Whether a reference of an object in this namespace matches an identity.
fn matches(owner: &Owner, namespace: &str, identity: &Identity) -> bool {
    owner.uid == identity.uid
        && owner.of == identity.of
        && owner.name == identity.name
        && (identity.namespace.is_empty() || &*identity.namespace == namespace)
}

impl Graph {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds or updates an object.
    pub fn put(&mut self, of: &Type, object: &ObjectMeta) -> Vec<WorkItem> {
        let mut todo = Vec::new();
        if object.uid.is_empty() {
            return todo;
        }
        let identity = self.identity(of, object);
        let version = object.resource_version.parse().unwrap_or(0);
        let (at, before) = match self.by_uid.get(&identity.uid).copied() {
            None => (self.insert(identity), DeletionState::default()),
            Some(at) => {
                let node = &self.nodes[at as usize];
                if node.observed && node.identity == identity && version != 0 && version <= node.version {
                    return todo;
                }
                let before = if node.observed { node.deletion } else { DeletionState::default() };
                self.identify(at, identity, &mut todo);
                (at, before)
            }
        };
        self.relink(at, &object.owner_references, &mut todo);
        let node = &mut self.nodes[at as usize];
        (node.observed, node.version, node.deletion) = (true, version, DeletionState::of(object));
        let (uid, now) = (node.identity.uid.clone(), node.deletion);
        if now.orphans() && !before.orphans() {
            todo.push(WorkItem::Orphan(uid));
        } else if now.waits() && !before.waits() {
            todo.extend(self.dependents(at).map(WorkItem::Delete));
            todo.push(WorkItem::Delete(uid));
        }
        todo
    }

    /// Removes an object that was deleted.
    pub fn gone(&mut self, of: &Type, object: &ObjectMeta) -> Vec<WorkItem> {
        let identity = self.identity(of, object);
        match self.by_uid.get(&identity.uid).copied() {
            Some(at) => self.remove(at, identity),
            None => Vec::new(),
        }
    }

    /// Removes all objects of a type but these.
    pub fn retain(&mut self, of: &Type, uids: &HashSet<String>) -> Vec<WorkItem> {
        let lost = self.nodes.iter().filter(|(_, node)| {
            node.observed && *node.identity.of == *of && !uids.contains(&node.identity.uid.to_string())
        });
        let lost: Vec<(u32, Identity)> = lost.map(|(at, node)| (at as u32, node.identity.clone())).collect();
        lost.into_iter().flat_map(|(at, identity)| self.remove(at, identity)).collect()
    }

    /// Takes over from the server that this object does not exist.
    pub fn remove_absent(&mut self, identity: &Identity) -> Vec<WorkItem> {
        let Some(at) = self.by_uid.get(&identity.uid).copied() else { return Vec::new() };
        let node = &self.nodes[at as usize];
        if node.observed && node.identity == *identity {
            return self.remove(at, identity.clone());
        }
        // dependents whose reference matches lost their owner; others may refer to an object that exists
        let (mut orphaned, mut other) = (Vec::new(), None);
        for dependent in &node.dependents {
            let dependent = &self.nodes[*dependent as usize];
            let namespace = &dependent.identity.namespace;
            let refer = dependent.owners.iter().filter(|it| it.uid == identity.uid);
            for owner in refer {
                if matches(owner, namespace, identity) {
                    orphaned.push(dependent.identity.uid.clone());
                } else if other.is_none() {
                    let named = Identity {
                        uid: owner.uid.clone(),
                        of: owner.of.clone(),
                        namespace: namespace.clone(),
                        name: owner.name.clone(),
                    };
                    other = Some(named).filter(|it| !self.absent.all.contains(it));
                }
            }
        }
        let Some(other) = other.or_else(|| node.observed.then(|| node.identity.clone())) else {
            return self.remove(at, identity.clone());
        };
        let mut todo: Vec<WorkItem> = Vec::new();
        if !orphaned.is_empty() {
            self.absent.add(identity.clone());
            todo.extend(orphaned.into_iter().map(WorkItem::Delete));
        }
        let node = &mut self.nodes[at as usize];
        if !node.observed && node.identity == *identity {
            node.identity = other;
            todo.push(WorkItem::Delete(identity.uid.clone()));
        }
        todo
    }

    /// Remembers that an owner does not exist.
    pub fn note_absent(&mut self, identity: Identity) {
        self.absent.add(identity);
    }

    /// Ends the observation of a type: its objects may exist or not.
    pub fn unwatch(&mut self, of: &Type) -> Vec<WorkItem> {
        let all = self.nodes.iter().filter(|(_, node)| node.observed && *node.identity.of == *of);
        let all: Vec<u32> = all.map(|(at, _)| at as u32).collect();
        let mut todo = Vec::new();
        for at in all {
            self.relink(at, &[], &mut todo);
            let node = &mut self.nodes[at as usize];
            node.observed = false;
            if node.dependents.is_empty() {
                self.drop_node(at);
            }
        }
        todo
    }

    /// A node, with the state of its owners.
    pub fn view(&self, uid: &Uid) -> Option<View> {
        let node = &self.nodes[*self.by_uid.get(uid)? as usize];
        let blocks = |it: &&Node| it.owners.iter().any(|owner| owner.blocks && owner.uid == *uid);
        let dependents = || node.dependents.iter().map(|at| &self.nodes[*at as usize]);
        let mut view = View {
            identity: node.identity.clone(),
            observed: node.observed,
            deletion: node.deletion,
            version: node.version,
            owners: node.owners.iter().map(|it| (it.clone(), self.owner_state(it, &node.identity))).collect(),
            has_dependents: !node.dependents.is_empty(),
            dependent_waits: dependents().any(|it| it.deletion.waits()),
            blocked: false,
            blocking: Vec::new(),
        };
        if node.deletion.waits() {
            for dependent in dependents().filter(blocks) {
                // objects that wait for each other would wait for ever
                if dependent.deletion.waits() && self.waits_for(dependent, uid) {
                    continue;
                }
                view.blocked = true;
                if !dependent.deletion.waits() {
                    view.blocking.push(dependent.identity.uid.clone());
                }
            }
        }
        Some(view)
    }

    /// The dependents of a node.
    pub fn dependents_of(&self, uid: &Uid) -> Vec<Identity> {
        let Some(at) = self.by_uid.get(uid) else { return Vec::new() };
        let dependents = self.nodes[*at as usize].dependents.iter();
        dependents.map(|at| self.nodes[*at as usize].identity.clone()).collect()
    }

    /// Drops interned texts that are unused.
    pub fn tidy(&mut self) {
        self.types.retain(|it| Arc::strong_count(it) > 1);
        self.namespaces.retain(|it| Arc::strong_count(it) > 1);
        self.types.shrink_to_fit();
        self.namespaces.shrink_to_fit();
    }

    /// Whether a node waits for another one, directly or through others.
    fn waits_for(&self, node: &Node, other: &Uid) -> bool {
        let (mut visited, mut next) = (HashSet::new(), vec![node]);
        while let Some(node) = next.pop() {
            if node.identity.uid == *other {
                return true;
            }
            if !node.deletion.waits() || visited.len() >= CYCLE_LIMIT {
                continue;
            }
            for at in &node.dependents {
                let dependent = &self.nodes[*at as usize];
                let blocks = |it: &Owner| it.blocks && it.uid == node.identity.uid;
                if dependent.deletion.waits() && dependent.owners.iter().any(blocks) && visited.insert(*at) {
                    next.push(dependent);
                }
            }
        }
        false
    }

    fn owner_state(&self, owner: &Owner, dependent: &Identity) -> OwnerState {
        let mut named = Identity {
            uid: owner.uid.clone(),
            of: owner.of.clone(),
            namespace: dependent.namespace.clone(),
            name: owner.name.clone(),
        };
        if self.absent.all.contains(&named) {
            return OwnerState::Absent;
        }
        named.namespace = Arc::default();
        if self.absent.all.contains(&named) {
            return OwnerState::Absent;
        }
        let node = self.by_uid.get(&owner.uid).map(|at| &self.nodes[*at as usize]);
        match node.filter(|it| it.observed && matches(owner, &dependent.namespace, &it.identity)) {
            None => OwnerState::Unknown,
            Some(node) if node.deletion.waits() => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        }
    }

    fn dependents(&self, at: u32) -> impl Iterator<Item = Uid> + '_ {
        let dependents = self.nodes[at as usize].dependents.iter();
        dependents.map(|at| self.nodes[*at as usize].identity.uid.clone())
    }

    /// Sets the identity that was observed. References of dependents may turn out wrong.
    fn identify(&mut self, at: u32, identity: Identity, todo: &mut Vec<WorkItem>) {
        let node = &self.nodes[at as usize];
        if node.identity == identity {
            return;
        }
        for dependent in &node.dependents {
            let dependent = &self.nodes[*dependent as usize];
            let namespace = &dependent.identity.namespace;
            let wrong = |it: &&Owner| it.uid == identity.uid && !matches(it, namespace, &identity);
            let Some(wrong) = dependent.owners.iter().find(wrong) else { continue };
            if !identity.namespace.is_empty() && identity.namespace != *namespace {
                todo.push(misplaced(&dependent.identity, wrong));
            }
            todo.push(WorkItem::Delete(dependent.identity.uid.clone()));
        }
        self.nodes[at as usize].identity = identity;
    }

    /// Sets the owners of a node.
    fn relink(&mut self, at: u32, references: &[OwnerReference], todo: &mut Vec<WorkItem>) {
        let old = std::mem::take(&mut self.nodes[at as usize].owners);
        let new: Box<[Owner]> = references.iter().map(|it| self.owner(it)).collect();
        if old == new {
            self.nodes[at as usize].owners = old;
            return;
        }
        for before in &old {
            let still = new.iter().find(|it| it.uid == before.uid);
            let Some(owner) = self.by_uid.get(&before.uid).copied() else { continue };
            if before.blocks && still.is_none_or(|it| !it.blocks) {
                todo.push(WorkItem::Delete(before.uid.clone()));
            }
            if still.is_none() {
                let owner_node = &mut self.nodes[owner as usize];
                owner_node.dependents.remove(&at);
                if !owner_node.observed && owner_node.dependents.is_empty() {
                    self.drop_node(owner);
                }
            }
        }
        let added: Vec<Owner> =
            new.iter().filter(|it| !old.iter().any(|before| before.uid == it.uid)).cloned().collect();
        self.nodes[at as usize].owners = new;
        let mut doubtful = false;
        for owner in &added {
            doubtful |= self.depend(at, owner, todo);
        }
        if doubtful {
            todo.push(WorkItem::Delete(self.nodes[at as usize].identity.uid.clone()));
        }
    }

    /// Adds a node to the dependents of an owner. Returns whether the reference may be wrong.
    fn depend(&mut self, at: u32, owner: &Owner, todo: &mut Vec<WorkItem>) -> bool {
        let dependent = self.nodes[at as usize].identity.clone();
        let Some(known) = self.by_uid.get(&owner.uid).copied() else {
            let identity = Identity {
                uid: owner.uid.clone(),
                of: owner.of.clone(),
                namespace: dependent.namespace,
                name: owner.name.clone(),
            };
            let new = self.insert(identity);
            self.nodes[new as usize].dependents.insert(at);
            todo.push(WorkItem::Delete(owner.uid.clone()));
            return false;
        };
        let node = &mut self.nodes[known as usize];
        node.dependents.insert(at);
        let elsewhere = !node.identity.namespace.is_empty() && node.identity.namespace != dependent.namespace;
        if elsewhere && node.observed {
            todo.push(misplaced(&dependent, owner));
        }
        elsewhere || !matches(owner, &dependent.namespace, &node.identity)
    }

    /// Removes a node. Queues its dependents, and owners that wait for it.
    fn remove(&mut self, at: u32, identity: Identity) -> Vec<WorkItem> {
        let mut todo: Vec<WorkItem> = self.dependents(at).map(WorkItem::Delete).collect();
        if !todo.is_empty() {
            self.absent.add(identity);
        }
        let owners = std::mem::take(&mut self.nodes[at as usize].owners);
        for owner in &owners {
            let Some(owner_at) = self.by_uid.get(&owner.uid).copied() else { continue };
            let node = &mut self.nodes[owner_at as usize];
            node.dependents.remove(&at);
            if node.observed && node.deletion.waits() {
                todo.push(WorkItem::Delete(owner.uid.clone()));
            }
            if !node.observed && node.dependents.is_empty() {
                self.drop_node(owner_at);
            }
        }
        self.drop_node(at);
        todo
    }

    /// Drops a node without owners whose dependents, if any, are queued.
    fn drop_node(&mut self, at: u32) {
        // an object that owns itself is dropped with its own reference
        if let Some(node) = self.nodes.try_remove(at as usize) {
            self.by_uid.remove(&node.identity.uid);
        }
    }

    fn insert(&mut self, identity: Identity) -> u32 {
        let uid = identity.uid.clone();
        let node = Node {
            identity,
            observed: false,
            deletion: DeletionState::default(),
            version: 0,
            owners: Box::default(),
            dependents: BTreeSet::new(),
        };
        let at = self.nodes.insert(node) as u32;
        self.by_uid.insert(uid, at);
        at
    }

    fn identity(&mut self, of: &Type, object: &ObjectMeta) -> Identity {
        let of = self.of(of);
        let namespace = match self.namespaces.get(&*object.namespace) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<str> = Arc::from(&*object.namespace);
                self.namespaces.insert(new.clone());
                new
            }
        };
        Identity { uid: Uid::from(&*object.uid), of, namespace, name: Box::from(&*object.name) }
    }

    fn owner(&mut self, reference: &OwnerReference) -> Owner {
        let of = Type { api_version: reference.api_version.clone(), kind: reference.kind.clone() };
        Owner {
            uid: Uid::from(&*reference.uid),
            of: self.of(&of),
            name: Box::from(&*reference.name),
            blocks: reference.block_owner_deletion == Some(true),
        }
    }

    fn of(&mut self, of: &Type) -> Arc<Type> {
        if let Some(known) = self.types.get(of) {
            return known.clone();
        }
        let new = Arc::new(of.clone());
        self.types.insert(new.clone());
        new
    }
}

fn misplaced(dependent: &Identity, owner: &Owner) -> WorkItem {
    // as the dependent refers to it
    let owner = Identity {
        uid: owner.uid.clone(),
        of: owner.of.clone(),
        namespace: dependent.namespace.clone(),
        name: owner.name.clone(),
    };
    WorkItem::Misplaced { dependent: dependent.clone(), owner }
}

#[cfg(test)]
mod tests;
