//! InterPodAffinity: affinity and anti-affinity to pods in the topology domains of the nodes.

use crate::domain_filter::DomainFilter;
use crate::framework::{FilterResult, MAX_NODE_SCORE, Rejection};
use crate::node_info::{NodeInfo, Slot};
use crate::node_set::NodeSet;
use crate::pod_info::{AffinityTerm, PodInfo};
use crate::selector::{LabelMatcher, Labels};
use crate::snapshot::Snapshot;
use crate::topology::{Domain, KeyId, Topology};

/// Numbers by topology domain.
#[derive(Debug, Clone, Default)]
struct Counts {
    by_key: Vec<(KeyId, Vec<i64>)>,
    /// How many of them are not zero.
    entries: usize,
    /// The domains that became positive or ceased to be since [`Self::take_changes`]; `None` before its first call.
    changes: Option<Vec<(KeyId, Domain)>>,
}

impl Counts {
    fn add_to(&mut self, key: KeyId, domain: Domain, delta: i64) {
        let at = match self.by_key.iter().position(|(known, _)| *known == key) {
            Some(at) => at,
            None => {
                self.by_key.push((key, Vec::new()));
                self.by_key.len() - 1
            }
        };
        let counts = &mut self.by_key[at].1;
        if counts.len() <= domain as usize {
            counts.resize(domain as usize + 1, 0);
        }
        let count = &mut counts[domain as usize];
        let before = *count;
        *count = count.saturating_add(delta);
        self.entries = self.entries + usize::from(*count != 0) - usize::from(before != 0);
        if let Some(changes) = self.changes.as_mut().filter(|_| (before > 0) != (*count > 0)) {
            changes.push((key, domain));
        }
    }

    /// The domains that became positive or ceased to be since the last call; `None` at the first one.
    fn take_changes(&mut self) -> Option<Vec<(KeyId, Domain)>> {
        self.changes.replace(Vec::new())
    }

    fn get(&self, key: KeyId, domain: Domain) -> i64 {
        let counts = self.by_key.iter().find(|(known, _)| *known == key);
        counts.and_then(|(_, counts)| counts.get(domain as usize)).copied().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

/// A term of the pod with its topology key.
#[derive(Debug, Clone)]
struct OwnTerm {
    term: AffinityTerm,
    key: Option<KeyId>,
}

fn own_terms<'a>(terms: impl Iterator<Item = &'a AffinityTerm>, snapshot: &Snapshot) -> Vec<OwnTerm> {
    terms.map(|term| own_term(term, snapshot)).collect()
}

fn own_term(term: &AffinityTerm, snapshot: &Snapshot) -> OwnTerm {
    OwnTerm { term: with_namespaces(term, snapshot), key: snapshot.topology().key(&term.topology_key) }
}

/// The term with the namespaces that its selector selects now. An empty selector stays: it selects all of them.
fn with_namespaces(term: &AffinityTerm, snapshot: &Snapshot) -> AffinityTerm {
    let mut term = term.clone();
    if term.namespace_selector.is_everything() || term.namespace_selector.is_nothing() {
        return term;
    }
    let selected = snapshot.namespaces().filter(|(_, labels)| term.namespace_selector.matches(labels));
    let selected: Vec<String> = selected.map(|(name, _)| name.to_owned()).collect();
    term.namespaces.extend(selected);
    term.namespace_selector = LabelMatcher::NOTHING;
    term
}

#[derive(Debug, Clone, Default)]
pub struct State {
    affinity: Vec<OwnTerm>,
    anti_affinity: Vec<OwnTerm>,
    matches_own_affinity: bool,
    namespace_labels: Labels,
    /// Required anti-affinity of other pods against this one.
    existing_counts: Counts,
    existing_keys: Vec<KeyId>,
    affinity_counts: Counts,
    anti_affinity_counts: Counts,
    /// What the pods of each node added to the counts, by slot.
    shares: Vec<Vec<Share>>,
    filters: Filters,
}

/// Of a class: the nodes that the terms reject.
#[derive(Debug, Clone, Default)]
struct Filters {
    affinity: Vec<DomainFilter>,
    anti_affinity: Vec<DomainFilter>,
    existing: Vec<DomainFilter>,
    /// Whether the affinity was that of the first pod of its group.
    is_first: bool,
}

/// Decides about the domains that changed; about all where the changes are not known.
fn refresh(
    filters: &mut [DomainFilter],
    changes: Option<&[(KeyId, Domain)]>,
    rejects: impl Fn(KeyId, Domain) -> bool,
) {
    for filter in filters {
        let key = filter.key;
        match changes {
            Some(changes) => {
                let own = changes.iter().filter(|(changed, _)| *changed == key);
                own.for_each(|(_, domain)| filter.set(*domain, rejects(key, *domain)));
            }
            None => filter.domains().for_each(|domain| filter.set(domain, rejects(key, domain))),
        }
    }
}

/// What the pods of a node added to one count.
#[derive(Debug, Clone, Copy)]
struct Share {
    kind: Kind,
    key: KeyId,
    domain: Domain,
    count: i64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Existing,
    Affinity,
    AntiAffinity,
}

pub fn pre_filter(pod: &PodInfo, snapshot: &Snapshot) -> Result<State, Rejection> {
    if let Some(error) = pod.affinity_error() {
        return Err(Rejection::unresolvable_with(format!("parsing pod: {error}")));
    }
    let mut state = State {
        affinity: own_terms(pod.required_affinity().iter(), snapshot),
        anti_affinity: own_terms(pod.required_anti_affinity().iter(), snapshot),
        namespace_labels: snapshot.namespace_labels(pod.namespace()).cloned().unwrap_or_default(),
        ..State::default()
    };
    state.matches_own_affinity = matches_all(&state.affinity, pod);
    let topology = snapshot.topology();
    match state.affinity.is_empty() && state.anti_affinity.is_empty() {
        true => state.recount(pod, snapshot.nodes_with_required_anti_affinity(), topology),
        false => state.recount(pod, snapshot.nodes(), topology),
    }
    Ok(state)
}

fn add_share(shares: &mut Vec<Share>, kind: Kind, key: KeyId, topology: &Topology, node: &NodeInfo) {
    let Some(domain) = topology.domain(key, node.slot) else { return };
    let is_same = |share: &&mut Share| {
        std::mem::discriminant(&share.kind) == std::mem::discriminant(&kind) && share.key == key
    };
    match shares.iter_mut().find(is_same) {
        Some(share) => share.count += 1,
        None => shares.push(Share { kind, key, domain, count: 1 }),
    }
}

fn matches_all(terms: &[OwnTerm], other: &PodInfo) -> bool {
    !terms.is_empty() && terms.iter().all(|it| it.term.matches(other, &Labels::new()))
}

impl State {
    /// Counts the pods of nodes anew.
    pub fn recount<'n>(
        &mut self,
        pod: &PodInfo,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        topology: &Topology,
    ) {
        for node in nodes {
            if self.shares.len() <= node.slot {
                self.shares.resize(node.slot + 1, Vec::new());
            }
            for share in std::mem::take(&mut self.shares[node.slot]) {
                self.counts_mut(share.kind).add_to(share.key, share.domain, -share.count);
            }
            let mut shares = Vec::new();
            for other in &node.pods_with_required_anti_affinity {
                self.each_existing(pod, other, topology, |key| {
                    add_share(&mut shares, Kind::Existing, key, topology, node);
                });
            }
            if !self.affinity.is_empty() || !self.anti_affinity.is_empty() {
                for other in &node.pods {
                    self.each_own(other, |kind, key| add_share(&mut shares, kind, key, topology, node));
                }
            }
            for share in &shares {
                self.counts_mut(share.kind).add_to(share.key, share.domain, share.count);
                if matches!(share.kind, Kind::Existing) && !self.existing_keys.contains(&share.key) {
                    self.existing_keys.push(share.key);
                }
            }
            self.shares[node.slot] = shares;
        }
    }

    fn counts_mut(&mut self, kind: Kind) -> &mut Counts {
        match kind {
            Kind::Existing => &mut self.existing_counts,
            Kind::Affinity => &mut self.affinity_counts,
            Kind::AntiAffinity => &mut self.anti_affinity_counts,
        }
    }

    /// Counts another pod on a node, or no longer.
    pub fn update(
        &mut self,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        topology: &Topology,
        delta: i64,
    ) {
        let mut keys = Vec::new();
        self.each_existing(pod, other, topology, |key| keys.push((Kind::Existing, key)));
        self.each_own(other, |kind, key| keys.push((kind, key)));
        for (kind, key) in keys {
            let Some(domain) = topology.domain(key, node.slot) else { continue };
            self.counts_mut(kind).add_to(key, domain, delta);
            if matches!(kind, Kind::Existing) && !self.existing_keys.contains(&key) {
                self.existing_keys.push(key);
            }
        }
    }

    /// Visits the topology keys of another pod's anti-affinity to this pod.
    fn each_existing(
        &self,
        pod: &PodInfo,
        other: &PodInfo,
        topology: &Topology,
        mut visit: impl FnMut(KeyId),
    ) {
        for term in other.required_anti_affinity() {
            if term.matches(pod, &self.namespace_labels) {
                topology.key(&term.topology_key).into_iter().for_each(&mut visit);
            }
        }
    }

    /// Visits the topology keys of this pod's terms that mean another pod.
    fn each_own(&self, other: &PodInfo, mut visit: impl FnMut(Kind, KeyId)) {
        if matches_all(&self.affinity, other) {
            self.affinity.iter().filter_map(|own| own.key).for_each(|key| visit(Kind::Affinity, key));
        }
        for own in &self.anti_affinity {
            if own.term.matches(other, &Labels::new()) {
                own.key.into_iter().for_each(|key| visit(Kind::AntiAffinity, key));
            }
        }
    }

    /// Brings the sets of rejected nodes up to date.
    pub fn refresh(&mut self, snapshot: &Snapshot) {
        let is_first = self.is_first_of_group();
        let filters = &mut self.filters;
        let changes = self.affinity_counts.take_changes();
        if filters.affinity.len() != self.affinity.len() {
            let keys = self.affinity.iter().map(|own| own.key.unwrap_or(KeyId::MAX));
            filters.affinity = keys.map(|key| DomainFilter::new(key, true, snapshot)).collect();
        }
        let changes = changes.filter(|_| filters.is_first == is_first);
        let counts = &self.affinity_counts;
        refresh(&mut filters.affinity, changes.as_deref(), |key, domain| {
            !is_first && counts.get(key, domain) <= 0
        });
        filters.is_first = is_first;
        let changes = self.anti_affinity_counts.take_changes();
        if filters.anti_affinity.len() != self.anti_affinity.len() {
            let keys = self.anti_affinity.iter().map(|own| own.key.unwrap_or(KeyId::MAX));
            filters.anti_affinity = keys.map(|key| DomainFilter::new(key, false, snapshot)).collect();
        }
        let counts = &self.anti_affinity_counts;
        refresh(&mut filters.anti_affinity, changes.as_deref(), |key, domain| counts.get(key, domain) > 0);
        let changes = self.existing_counts.take_changes();
        let counts = &self.existing_counts;
        refresh(&mut filters.existing, changes.as_deref(), |key, domain| counts.get(key, domain) > 0);
        for key in self.existing_keys.iter().skip(filters.existing.len()) {
            let mut added = [DomainFilter::new(*key, false, snapshot)];
            refresh(&mut added, None, |key, domain| counts.get(key, domain) > 0);
            filters.existing.extend(added);
        }
    }

    /// The nodes that each term rejects, as of the last [`Self::refresh`].
    pub fn rejected(&self) -> impl Iterator<Item = &NodeSet> {
        let own = self.filters.affinity.iter().chain(&self.filters.anti_affinity);
        own.chain(&self.filters.existing).map(DomainFilter::rejected)
    }

    /// Whether the pod is the first of a group that attracts itself: it may go anywhere.
    fn is_first_of_group(&self) -> bool {
        self.affinity_counts.is_empty() && self.matches_own_affinity
    }

    fn satisfies_affinity(&self, topology: &Topology, slot: Slot) -> bool {
        let mut pods_exist = true;
        for own in &self.affinity {
            let Some((key, domain)) = own.key.and_then(|key| Some((key, topology.domain(key, slot)?))) else {
                return false;
            };
            pods_exist &= self.affinity_counts.get(key, domain) > 0;
        }
        pods_exist || self.is_first_of_group()
    }

    fn is_repelled(
        counts: &Counts,
        keys: impl Iterator<Item = KeyId>,
        topology: &Topology,
        slot: Slot,
    ) -> bool {
        let mut keys = keys;
        !counts.is_empty()
            && keys.any(|key| topology.domain(key, slot).is_some_and(|domain| counts.get(key, domain) > 0))
    }
}

pub fn filter(state: &State, topology: &Topology, slot: Slot) -> FilterResult {
    if !state.satisfies_affinity(topology, slot) {
        return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
    }
    let own = state.anti_affinity.iter().filter_map(|own| own.key);
    if State::is_repelled(&state.anti_affinity_counts, own, topology, slot) {
        return Err(Rejection::unschedulable("node(s) didn't match pod anti-affinity rules"));
    }
    let existing = state.existing_keys.iter().copied();
    if State::is_repelled(&state.existing_counts, existing, topology, slot) {
        return Err(Rejection::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
    }
    Ok(())
}

/// Sums of weights by topology domain.
#[derive(Debug, Clone, Default)]
pub struct ScoreState {
    own: Vec<(OwnTerm, i64)>,
    hard_weight: i64,
    namespace_labels: Labels,
    sums: Counts,
    /// What the pods of each node added to the sums, by slot.
    shares: Vec<Vec<(KeyId, Domain, i64)>>,
}

pub fn pre_score(pod: &PodInfo, hard_weight: i32, snapshot: &Snapshot) -> Result<ScoreState, Rejection> {
    if let Some(error) = pod.affinity_error() {
        return Err(Rejection::error(format!("failed to parse pod: {error}")));
    }
    let weighted = |terms: &[(AffinityTerm, i32)], sign: i64| -> Vec<(OwnTerm, i64)> {
        terms.iter().map(|(term, weight)| (own_term(term, snapshot), sign * i64::from(*weight))).collect()
    };
    let mut own = weighted(pod.preferred_affinity(), 1);
    own.extend(weighted(pod.preferred_anti_affinity(), -1));
    let mut state = ScoreState {
        own,
        hard_weight: hard_weight.into(),
        namespace_labels: snapshot.namespace_labels(pod.namespace()).cloned().unwrap_or_default(),
        ..ScoreState::default()
    };
    match state.own.is_empty() {
        true => state.recount(pod, snapshot.nodes_with_affinity(), snapshot.topology()),
        false => state.recount(pod, snapshot.nodes(), snapshot.topology()),
    }
    Ok(state)
}

impl ScoreState {
    /// Sums the weights of the pods of nodes anew.
    pub fn recount<'n>(
        &mut self,
        pod: &PodInfo,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        topology: &Topology,
    ) {
        for node in nodes {
            if self.shares.len() <= node.slot {
                self.shares.resize(node.slot + 1, Vec::new());
            }
            for (key, domain, weight) in std::mem::take(&mut self.shares[node.slot]) {
                self.sums.add_to(key, domain, -weight);
            }
            let shares = self.shares_of(pod, node, topology);
            for (key, domain, weight) in &shares {
                self.sums.add_to(*key, *domain, *weight);
            }
            self.shares[node.slot] = shares;
        }
    }

    fn shares_of(&self, pod: &PodInfo, node: &NodeInfo, topology: &Topology) -> Vec<(KeyId, Domain, i64)> {
        let mut shares: Vec<(KeyId, Domain, i64)> = Vec::new();
        let mut add = |key: Option<KeyId>, weight: i64| {
            let Some(key) = key else { return };
            let Some(domain) = topology.domain(key, node.slot) else { return };
            match shares.iter_mut().find(|(known, _, _)| *known == key) {
                Some((_, _, sum)) => *sum = sum.saturating_add(weight),
                None => shares.push((key, domain, weight)),
            }
        };
        if !self.own.is_empty() {
            for other in &node.pods {
                for (own, weight) in &self.own {
                    if own.term.matches(other, &Labels::new()) {
                        add(own.key, *weight);
                    }
                }
            }
        }
        for other in &node.pods_with_affinity {
            let mut add_term = |term: &AffinityTerm, weight: i64| {
                if term.matches(pod, &self.namespace_labels) {
                    add(topology.key(&term.topology_key), weight);
                }
            };
            if self.hard_weight > 0 {
                other.required_affinity().iter().for_each(|term| add_term(term, self.hard_weight));
            }
            other.preferred_affinity().iter().for_each(|(term, weight)| add_term(term, (*weight).into()));
            other
                .preferred_anti_affinity()
                .iter()
                .for_each(|(term, weight)| add_term(term, -i64::from(*weight)));
        }
        shares
    }

    /// The number of topology keys.
    pub fn len(&self) -> usize {
        self.sums.by_key.len()
    }

    /// Appends what [`score`] reads of a node: its sum where each node has a domain of its own, its domain otherwise.
    pub fn append_key(&self, topology: &Topology, slot: Slot, key: &mut Vec<i64>) {
        key.extend(self.sums.by_key.iter().map(|(known, sums)| match topology.domain(*known, slot) {
            None => i64::MIN,
            Some(domain) if topology.is_unique(*known) => sums.get(domain as usize).copied().unwrap_or(0),
            Some(domain) => domain.into(),
        }));
    }

    /// Whether no term matched any pod: then all scores are 0.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }
}

pub fn score(state: &ScoreState, topology: &Topology, slot: Slot) -> i64 {
    let of = |(key, sums): &(KeyId, Vec<i64>)| sums.get(topology.domain(*key, slot)? as usize).copied();
    state.sums.by_key.iter().filter_map(of).fold(0, i64::saturating_add)
}

/// Scales scores, which may be negative, to 0 to 100.
pub fn normalize(state: &ScoreState, scores: &mut [i64]) {
    if state.is_empty() {
        return;
    }
    let (least, most) =
        (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    let range = most.saturating_sub(least);
    for score in scores {
        *score = match range {
            0 => 0,
            range => (MAX_NODE_SCORE as f64 * (score.saturating_sub(least) as f64 / range as f64)) as i64,
        };
    }
}
