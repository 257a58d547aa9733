//! The policies of the cluster as tables of one node.
//!
//! A policy is written while it selects a pod of this node. A change of an object reaches the policies, sets and pods
//! that it is about, and [`PolicyState::sync`] yields what has changed since the last call as one batch. Nothing here
//! does I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use client::Key;

use super::family_table::FamilyTable;
use super::membership::{MemberChange, Membership, PodKey, SelectionId};
use super::objects::{Direction, PodInfo, PolicyInfo};
use super::rules::{PolicyRules, combined_chain, pod_map, pod_verdict, policy_chain_name};
use crate::netfilter::{Batch, Chain, Element, Family, Name, Ruleset};

/// See the module.
pub struct PolicyState {
    node: String,
    membership: Membership,
    policies: HashMap<Key, PolicyEntry>,
    /// The policies that isolate the pods of a selection.
    targets: HashMap<SelectionId, Target>,
    tables: Vec<FamilyTable>,
    /// Pods of this node, as their verdicts are.
    isolation: HashMap<PodKey, PodIsolation>,
    /// Pods of this node by address. The last one has it.
    claims: HashMap<IpAddr, BTreeSet<(i64, PodKey)>>,
    /// How many pods use a chain of combined policies.
    combined: HashMap<Name, usize>,
    /// Pods whose verdicts may change.
    marked: BTreeSet<PodKey>,
    written_policies: usize,
    steps: u64,
}

struct PolicyEntry {
    info: PolicyInfo,
    target: SelectionId,
    written: Option<WrittenPolicy>,
}

/// The objects of a policy in the tables.
struct WrittenPolicy {
    chains: BTreeSet<Name>,
    /// The sets that it uses, by table.
    sets: Vec<BTreeSet<Name>>,
}

#[derive(Default)]
struct Target {
    policies: BTreeSet<Key>,
    local_pods: usize,
}

/// The chains of a pod.
#[derive(Default)]
struct PodIsolation {
    addresses: Vec<IpAddr>,
    created: i64,
    chains: BTreeMap<Direction, Name>,
}

impl PolicyState {
    /// The state of a node without pods, with a table for each family.
    pub fn new(node: &str, families: &[Family]) -> Self {
        Self {
            node: node.to_owned(),
            membership: Membership::default(),
            policies: HashMap::new(),
            targets: HashMap::new(),
            tables: families.iter().map(|family| FamilyTable::new(*family)).collect(),
            isolation: HashMap::new(),
            claims: HashMap::new(),
            combined: HashMap::new(),
            marked: BTreeSet::new(),
            written_policies: 0,
            steps: 0,
        }
    }

    /// How many objects and elements all changes so far have looked at.
    pub fn steps(&self) -> u64 {
        self.steps + self.membership.steps()
    }

    /// Whether nothing of any object is kept.
    pub fn is_empty(&self) -> bool {
        let maps = [self.targets.len(), self.policies.len(), self.isolation.len(), self.claims.len()];
        maps == [0; 4] && self.combined.is_empty() && self.membership.is_empty()
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let changes = self.membership.set_namespace(name, labels);
        self.follow(changes);
    }

    /// Sets or removes a pod. Returns whether it differs from what was known, as few writes to a pod do.
    pub fn set_pod(&mut self, key: &PodKey, info: Option<PodInfo>) -> bool {
        let old = self.membership.pod(key).map(Arc::as_ref);
        if old == info.as_ref() {
            return false;
        }
        if [old, info.as_ref()].into_iter().flatten().any(|pod| pod.node == self.node) {
            self.marked.insert(key.clone());
        }
        let changes = self.membership.set_pod(key, info);
        self.follow(changes);
        true
    }

    /// Sets or removes a policy.
    pub fn set_policy(&mut self, key: &Key, info: Option<PolicyInfo>) {
        if self.policies.get(key).map(|entry| &entry.info) == info.as_ref() {
            return;
        }
        let old = self.policies.remove(key);
        if let Some(old) = &old {
            self.mark_local_members(old.target);
            if let Some(target) = self.targets.get_mut(&old.target) {
                target.policies.remove(key);
            }
        }
        if let Some(info) = info {
            let target = self.membership.acquire(&info.target());
            let is_written = self.add_to_target(target, key);
            let written = is_written.then(|| self.write_policy(key, &info));
            self.policies.insert(key.clone(), PolicyEntry { info, target, written });
            self.mark_local_members(target);
        }
        // last, so that what the policy still uses is not removed and added again
        if let Some(old) = old {
            if let Some(written) = old.written {
                let next = self.policies.get(key).and_then(|entry| entry.written.as_ref());
                let stale =
                    written.chains.iter().filter(|chain| next.is_none_or(|it| !it.chains.contains(*chain)));
                let stale: Vec<Name> = stale.cloned().collect();
                stale.iter().for_each(|chain| self.set_chain(chain, None));
                self.release_sets(&written);
            }
            if self.targets.get(&old.target).is_some_and(|target| target.policies.is_empty()) {
                self.targets.remove(&old.target);
            }
            self.membership.release(old.target);
        }
    }

    /// Adds a policy to those of its pods, and returns whether this node has some of them.
    fn add_to_target(&mut self, id: SelectionId, key: &Key) -> bool {
        let target = self.targets.entry(id).or_insert_with(|| {
            let members = self.membership.members(id);
            let local_pods = members.filter(|(_, pod)| pod.node == self.node).count();
            Target { policies: BTreeSet::new(), local_pods }
        });
        target.policies.insert(key.clone());
        target.local_pods > 0
    }

    fn mark_local_members(&mut self, id: SelectionId) {
        let mut count = 0;
        let members = self.membership.members(id).inspect(|_| count += 1);
        self.marked.extend(members.filter(|(_, pod)| pod.node == self.node).map(|(key, _)| key.clone()));
        self.steps += count;
    }

    /// Sets or removes a chain that is the same in all tables.
    fn set_chain(&mut self, name: &Name, chain: Option<Chain>) {
        for table in &mut self.tables {
            table.table.set_chain(name, chain.clone());
        }
    }

    /// Writes the chains of a policy, and the sets that they use.
    fn write_policy(&mut self, key: &Key, info: &PolicyInfo) -> WrittenPolicy {
        self.written_policies += 1;
        let comment = key.to_string();
        let mut written = WrittenPolicy { chains: BTreeSet::new(), sets: Vec::new() };
        for table in &mut self.tables {
            let mut names = BTreeSet::new();
            for direction in info.directions.keys() {
                let rules = PolicyRules::new(info, *direction, table.family, &comment);
                self.steps += 1 + rules.rules.len() as u64;
                let chain = policy_chain_name(key, *direction);
                table.table.set_chain(&chain, Some(Chain::new(rules.rules)));
                written.chains.insert(chain);
                for (name, set) in rules.pod_sets {
                    if names.insert(name.clone()) {
                        self.steps += table.acquire_pods(&name, set, &mut self.membership);
                    }
                }
                for (name, set) in rules.fixed_sets {
                    if names.insert(name.clone()) {
                        self.steps += table.acquire_fixed(&name, set);
                    }
                }
            }
            written.sets.push(names);
        }
        written
    }

    fn release_sets(&mut self, written: &WrittenPolicy) {
        self.written_policies -= 1;
        for (table, names) in self.tables.iter_mut().zip(&written.sets) {
            self.steps += names.len() as u64;
            names.iter().for_each(|name| table.release(name, &mut self.membership));
        }
    }

    /// Follows changes of the members of selections.
    fn follow(&mut self, changes: Vec<MemberChange>) {
        let mut targets = BTreeSet::new();
        for change in changes {
            for table in &mut self.tables {
                self.steps += table.follow(&change);
            }
            let Some(target) = self.targets.get_mut(&change.selection) else { continue };
            let is_local = |pod: &Option<Arc<PodInfo>>| pod.as_ref().is_some_and(|pod| pod.node == self.node);
            let (was_local, is_local) = (is_local(&change.old), is_local(&change.new));
            target.local_pods = target.local_pods + usize::from(is_local) - usize::from(was_local);
            if was_local || is_local {
                targets.insert(change.selection);
                self.marked.insert(change.pod);
            }
        }
        targets.into_iter().for_each(|target| self.update_target(target));
    }

    /// Writes or removes the policies of some pods when this node gets the first or loses the last of them.
    fn update_target(&mut self, id: SelectionId) {
        let Some(target) = self.targets.get(&id) else { return };
        let has_pods = target.local_pods > 0;
        for key in target.policies.clone() {
            self.steps += 1;
            let Some(mut entry) = self.policies.remove(&key) else { continue };
            match (has_pods, entry.written.take()) {
                (true, None) => entry.written = Some(self.write_policy(&key, &entry.info)),
                (false, Some(written)) => {
                    written.chains.iter().for_each(|chain| self.set_chain(chain, None));
                    self.release_sets(&written);
                }
                (_, written) => entry.written = written,
            }
            self.policies.insert(key, entry);
        }
    }

    /// The changes since the last call.
    pub fn sync(&mut self) -> Batch {
        if self.written_policies > 0 {
            self.tables.iter_mut().for_each(FamilyTable::add_base);
        }
        for key in std::mem::take(&mut self.marked) {
            self.update_isolation(&key);
        }
        let mut batch = Batch::default();
        for table in &mut self.tables {
            if self.written_policies == 0 {
                table.table.remove();
            }
            table.table.take_changes(&mut batch);
        }
        batch
    }

    /// All tables, as the kernel has them once every batch is written; none without policies for pods of this node.
    pub fn ruleset(&self) -> Ruleset {
        let tables = self.tables.iter().map(|table| &table.table);
        tables.filter_map(|table| Some((table.id().clone(), table.table()?.clone()))).collect()
    }

    /// The policies that isolate a pod in a direction, by the names of their chains.
    fn isolating_policies(&self, pod: &PodKey, direction: Direction) -> Vec<Name> {
        let targets = self.membership.selections_of(pod).filter_map(|id| self.targets.get(&id));
        let policies: BTreeSet<&Key> = targets.flat_map(|target| &target.policies).collect();
        let isolates = |key: &&&Key| {
            self.policies.get(**key).is_some_and(|entry| entry.info.directions.contains_key(&direction))
        };
        policies.iter().filter(isolates).map(|key| policy_chain_name(key, direction)).collect()
    }

    /// Updates the chains of a pod, and the verdicts for its addresses.
    fn update_isolation(&mut self, key: &PodKey) {
        let old = self.isolation.remove(key).unwrap_or_default();
        let mut new = PodIsolation::default();
        if let Some(pod) = self.membership.pod(key).filter(|pod| pod.node == self.node) {
            new.addresses.clone_from(&pod.addresses);
            new.created = pod.created;
            for direction in [Direction::Ingress, Direction::Egress] {
                let policies = self.isolating_policies(key, direction);
                self.steps += 1 + policies.len() as u64;
                if !policies.is_empty() {
                    let (name, chain) = combined_chain(direction, &policies);
                    new.chains.insert(direction, name.clone());
                    let count = self.combined.entry(name.clone()).or_default();
                    *count += 1;
                    if *count == 1 {
                        self.set_chain(&name, Some(chain));
                    }
                }
            }
        }
        for name in old.chains.values() {
            let Some(count) = self.combined.get_mut(name) else { continue };
            *count -= 1;
            if *count == 0 {
                self.combined.remove(name);
                self.set_chain(name, None);
            }
        }
        for address in &old.addresses {
            if let Some(claims) = self.claims.get_mut(address) {
                claims.remove(&(old.created, key.clone()));
                if claims.is_empty() {
                    self.claims.remove(address);
                }
            }
        }
        for address in &new.addresses {
            self.claims.entry(*address).or_default().insert((new.created, key.clone()));
        }
        let addresses: BTreeSet<IpAddr> = old.addresses.iter().chain(&new.addresses).copied().collect();
        if !new.addresses.is_empty() {
            self.isolation.insert(key.clone(), new);
        }
        addresses.into_iter().for_each(|address| self.write_verdicts(address));
    }

    /// Writes the verdicts of the pod that has an address.
    fn write_verdicts(&mut self, address: IpAddr) {
        let owner = self.claims.get(&address).and_then(BTreeSet::last).map(|(_, pod)| pod);
        let isolation = owner.and_then(|owner| self.isolation.get(owner));
        for table in self.tables.iter_mut().filter(|table| table.family == Family::of(address)) {
            for direction in [Direction::Ingress, Direction::Egress] {
                let chain = isolation.and_then(|isolation| isolation.chains.get(&direction));
                let verdict = chain.map(|chain| Some(pod_verdict(chain)));
                table.table.set_element(&pod_map(direction), Element::value(address.into()), verdict);
            }
        }
    }
}
