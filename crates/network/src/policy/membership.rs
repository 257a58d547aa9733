//! The pods that selections of policies have, kept up to date as pods, labels and selections change.
//!
//! A selection is known while a policy uses it. Each namespace has an index of the selections that are about its pods,
//! and an index of its pods by label, so a change looks at the selections that may match a pod, or at the pods that may
//! match a selection, and at nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use apimachinery::labels::Selector;
use client::Key;

use super::objects::{NamespaceSelection, PodInfo, PodSelection};
use super::selector_index::{RequiredLabel, SelectorIndex};

/// Namespace and name of a pod.
pub type PodKey = Arc<Key>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectionId(u64);

/// A pod that joins a selection, leaves it, or changes in it.
#[derive(Debug, Clone)]
pub struct MemberChange {
    pub selection: SelectionId,
    pub pod: PodKey,
    pub old: Option<Arc<PodInfo>>,
    pub new: Option<Arc<PodInfo>>,
}

type Labels = BTreeMap<String, String>;

/// See the module.
#[derive(Default)]
pub struct Membership {
    namespaces: HashMap<String, NamespaceEntry>,
    pods: HashMap<PodKey, PodEntry>,
    selections: BTreeMap<SelectionId, SelectionEntry>,
    ids: HashMap<Arc<PodSelection>, SelectionId>,
    /// Selections by labels of namespaces.
    namespace_selectors: SelectorIndex<SelectionId>,
    next_id: u64,
    steps: u64,
}

#[derive(Default)]
struct NamespaceEntry {
    /// Absent while the namespace is unknown.
    labels: Option<Labels>,
    pods: BTreeSet<PodKey>,
    pods_by_label: HashMap<String, HashMap<String, BTreeSet<PodKey>>>,
    selectors: SelectorIndex<SelectionId>,
}

struct PodEntry {
    info: Arc<PodInfo>,
    selections: BTreeSet<SelectionId>,
}

struct SelectionEntry {
    selection: Arc<PodSelection>,
    users: usize,
    namespaces: BTreeSet<String>,
    members: BTreeSet<PodKey>,
}

impl NamespaceEntry {
    fn is_unused(&self) -> bool {
        self.labels.is_none() && self.pods.is_empty() && self.selectors.is_empty()
    }

    fn insert_pod(&mut self, key: &PodKey, labels: &Labels) {
        self.pods.insert(key.clone());
        for (label, value) in labels {
            let values = self.pods_by_label.entry(label.clone()).or_default();
            values.entry(value.clone()).or_default().insert(key.clone());
        }
    }

    fn remove_pod(&mut self, key: &PodKey, labels: &Labels) {
        self.pods.remove(key);
        for (label, value) in labels {
            let Some(values) = self.pods_by_label.get_mut(label) else { continue };
            let Some(pods) = values.get_mut(value) else { continue };
            pods.remove(key);
            if pods.is_empty() {
                values.remove(value);
            }
            if values.is_empty() {
                self.pods_by_label.remove(label);
            }
        }
    }

    /// The pods that a selector may match.
    fn candidates(&self, selector: &Selector) -> Vec<PodKey> {
        let by_label = |key: &str| self.pods_by_label.get(key);
        match RequiredLabel::of(selector) {
            RequiredLabel::Unknown => self.pods.iter().cloned().collect(),
            RequiredLabel::Any(key) => {
                by_label(key).into_iter().flat_map(HashMap::values).flatten().cloned().collect()
            }
            RequiredLabel::Values(key, values) => {
                let by_value = by_label(key);
                let pods = values.iter().filter_map(|value| by_value?.get(value));
                pods.flatten().cloned().collect()
            }
        }
    }
}

impl Membership {
    /// How many objects all changes so far have looked at.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether nothing of any object is kept.
    pub fn is_empty(&self) -> bool {
        let maps = [self.namespaces.len(), self.pods.len(), self.selections.len(), self.ids.len()];
        maps == [0; 4] && self.namespace_selectors.is_empty()
    }

    pub fn pod(&self, key: &PodKey) -> Option<&Arc<PodInfo>> {
        self.pods.get(key).map(|entry| &entry.info)
    }

    /// The selections that a pod is in.
    pub fn selections_of(&self, key: &PodKey) -> impl Iterator<Item = SelectionId> + '_ {
        self.pods.get(key).into_iter().flat_map(|entry| &entry.selections).copied()
    }

    pub fn members(&self, id: SelectionId) -> impl Iterator<Item = (&PodKey, &Arc<PodInfo>)> {
        let members = self.selections.get(&id).into_iter().flat_map(|entry| &entry.members);
        members.filter_map(|key| Some((key, self.pod(key)?)))
    }

    /// One more user of a selection.
    pub fn acquire(&mut self, selection: &PodSelection) -> SelectionId {
        if let Some(id) = self.ids.get(selection) {
            if let Some(entry) = self.selections.get_mut(id) {
                entry.users += 1;
            }
            return *id;
        }
        let id = SelectionId(self.next_id);
        self.next_id += 1;
        let selection = Arc::new(selection.clone());
        let namespaces: Vec<String> = match &selection.namespaces {
            NamespaceSelection::Name(name) => vec![name.clone()],
            NamespaceSelection::Labels(selector) => {
                self.namespace_selectors.insert(selector, id);
                self.steps += self.namespaces.len() as u64;
                let known = self.namespaces.iter();
                let matching = known.filter(|(_, entry)| {
                    entry.labels.as_ref().is_some_and(|labels| selector.matches(labels))
                });
                matching.map(|(name, _)| name.clone()).collect()
            }
        };
        self.ids.insert(selection.clone(), id);
        let entry =
            SelectionEntry { selection, users: 1, namespaces: BTreeSet::new(), members: BTreeSet::new() };
        self.selections.insert(id, entry);
        for namespace in namespaces {
            self.enter(id, &namespace, &mut Vec::new());
        }
        id
    }

    /// One user of a selection fewer.
    pub fn release(&mut self, id: SelectionId) {
        let Some(entry) = self.selections.get_mut(&id) else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        for namespace in entry.namespaces.clone() {
            self.exit(id, &namespace, &mut Vec::new());
        }
        let Some(entry) = self.selections.remove(&id) else { return };
        self.ids.remove(&entry.selection);
        if let NamespaceSelection::Labels(selector) = &entry.selection.namespaces {
            self.namespace_selectors.remove(selector, id);
        }
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> Vec<MemberChange> {
        let entry = self.namespaces.entry(name.to_owned()).or_default();
        let old = std::mem::replace(&mut entry.labels, labels.clone());
        let mut changes = Vec::new();
        if old != labels {
            let before = self.matching_selections(old.as_ref());
            let after = self.matching_selections(labels.as_ref());
            before.difference(&after).for_each(|id| self.exit(*id, name, &mut changes));
            after.difference(&before).for_each(|id| self.enter(*id, name, &mut changes));
        }
        self.drop_unused(name);
        changes
    }

    /// The selections by labels that match those of a namespace.
    fn matching_selections(&mut self, labels: Option<&Labels>) -> BTreeSet<SelectionId> {
        let Some(labels) = labels else { return BTreeSet::new() };
        let candidates: Vec<_> = self.namespace_selectors.candidates(labels).collect();
        self.steps += candidates.len() as u64;
        let is_match = |id: &SelectionId| {
            self.selections.get(id).is_some_and(|entry| match &entry.selection.namespaces {
                NamespaceSelection::Labels(selector) => selector.matches(labels),
                NamespaceSelection::Name(_) => false,
            })
        };
        candidates.into_iter().filter(is_match).collect()
    }

    fn drop_unused(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(NamespaceEntry::is_unused) {
            self.namespaces.remove(namespace);
        }
    }

    /// A selection is about the pods of one more namespace.
    fn enter(&mut self, id: SelectionId, namespace: &str, changes: &mut Vec<MemberChange>) {
        let Some(selection) = self.selections.get_mut(&id) else { return };
        selection.namespaces.insert(namespace.to_owned());
        let pods = &selection.selection.pods;
        let entry = self.namespaces.entry(namespace.to_owned()).or_default();
        entry.selectors.insert(pods, id);
        for key in entry.candidates(pods) {
            self.steps += 1;
            let Some(pod) = self.pods.get_mut(&key).filter(|pod| pods.matches(&pod.info.labels)) else {
                continue;
            };
            pod.selections.insert(id);
            let new = Some(pod.info.clone());
            changes.push(MemberChange { selection: id, pod: key.clone(), old: None, new });
            selection.members.insert(key);
        }
    }

    /// A selection is no longer about the pods of a namespace.
    fn exit(&mut self, id: SelectionId, namespace: &str, changes: &mut Vec<MemberChange>) {
        let Some(selection) = self.selections.get_mut(&id) else { return };
        selection.namespaces.remove(namespace);
        if let Some(entry) = self.namespaces.get_mut(namespace) {
            entry.selectors.remove(&selection.selection.pods, id);
        }
        // keys are in the order of namespaces
        let from = Key::new(namespace, "");
        let members: Vec<PodKey> = selection
            .members
            .range::<Key, _>(from..)
            .take_while(|key| key.namespace == namespace)
            .cloned()
            .collect();
        for key in members {
            self.steps += 1;
            selection.members.remove(&key);
            let Some(pod) = self.pods.get_mut(&key) else { continue };
            pod.selections.remove(&id);
            let old = Some(pod.info.clone());
            changes.push(MemberChange { selection: id, pod: key, old, new: None });
        }
        self.drop_unused(namespace);
    }

    /// Sets or removes a pod.
    pub fn set_pod(&mut self, key: &PodKey, info: Option<PodInfo>) -> Vec<MemberChange> {
        let info = info.map(Arc::new);
        let (old, before) = match self.pods.remove(key) {
            Some(entry) => (Some(entry.info), entry.selections),
            None => (None, BTreeSet::new()),
        };
        let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
        if let Some(old) = &old {
            namespace.remove_pod(key, &old.labels);
        }
        let mut after = BTreeSet::new();
        if let Some(info) = &info {
            namespace.insert_pod(key, &info.labels);
            for id in namespace.selectors.candidates(&info.labels) {
                self.steps += 1;
                let selection = self.selections.get(&id);
                if selection.is_some_and(|entry| entry.selection.pods.matches(&info.labels)) {
                    after.insert(id);
                }
            }
            let entry = PodEntry { info: info.clone(), selections: after.clone() };
            self.pods.insert(key.clone(), entry);
        }
        self.drop_unused(&key.namespace);
        let mut changes = Vec::new();
        for id in before.union(&after) {
            self.steps += 1;
            let Some(selection) = self.selections.get_mut(id) else { continue };
            match after.contains(id) {
                true => _ = selection.members.insert(key.clone()),
                false => _ = selection.members.remove(key),
            }
            changes.push(MemberChange {
                selection: *id,
                pod: key.clone(),
                old: old.clone().filter(|_| before.contains(id)),
                new: info.clone().filter(|_| after.contains(id)),
            });
        }
        changes
    }
}
