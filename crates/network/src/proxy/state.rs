//! The services and endpoints of the cluster, and the rules that follow from them.
//!
//! Changes of objects mark their service; [`ProxyState::sync`] computes the fragments of marked services, compares them
//! with the ones before, and yields the difference as one batch. [`ProxyState::ruleset`] is the same state as a whole.
//! Nothing here does I/O. State that was handed out counts as written: after a failure the whole ruleset is compared
//! with the kernel's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::core::v1::Service;
use api::discovery::v1::EndpointSlice;
use names::Names;

use super::endpoint::{SliceInfo, Topology, endpoints_of, usable_endpoints};
use super::fragment::{Fragment, Frontend, PortRules, Slots, frontends};
use super::rules::{RuleOptions, SetId, SharedChain, base_table, number_key, set_types, table_id};
use super::service::{ServiceInfo, is_handled_by_others, service_info};
use crate::netfilter::{
    Batch, Chain, Data, Difference, Element, Family, Field, Protocol, Ruleset, Set, SetType, Transition,
    Value, Verdict,
};

/// `namespace/name` of a service.
pub type ServiceKey = Arc<str>;

/// Tracked connections of UDP that may go the wrong way: those to a frontend that end at none of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleDatagrams {
    pub family: Family,
    pub frontend: Frontend,
    pub endpoints: BTreeSet<IpAddr>,
}

/// What a sync changes.
#[derive(Debug, Default, PartialEq)]
pub struct SyncChanges {
    pub batch: Batch,
    /// Connections to delete once the batch is written.
    pub stale: Vec<StaleDatagrams>,
}

/// The port on which a service reports its local endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    pub port: u16,
    pub local_endpoints: usize,
}

/// See the module.
pub struct ProxyState {
    names: Names,
    topology: Topology,
    node_addresses: Vec<IpAddr>,
    families: Vec<FamilyState>,
    services: HashMap<ServiceKey, ServiceEntry>,
    /// Services that report their local endpoints.
    health_checked: BTreeSet<ServiceKey>,
    marked: BTreeSet<ServiceKey>,
}

/// A service with its slices; the one may be there without the others.
#[derive(Default)]
struct ServiceEntry {
    /// By family, in the order of the state's families.
    infos: Vec<Option<ServiceInfo>>,
    slices: BTreeMap<String, SliceInfo>,
}

impl ServiceEntry {
    fn is_unused(&self) -> bool {
        self.slices.is_empty() && self.infos.iter().all(Option::is_none)
    }
}

impl ProxyState {
    /// A state with one table for each family of the options.
    pub fn new(names: Names, node_name: &str, options: Vec<RuleOptions>) -> Self {
        Self {
            names,
            topology: Topology { node_name: node_name.to_owned(), zone: None },
            node_addresses: Vec::new(),
            families: options.into_iter().map(FamilyState::new).collect(),
            services: HashMap::new(),
            health_checked: BTreeSet::new(),
            marked: BTreeSet::new(),
        }
    }

    pub fn families(&self) -> impl Iterator<Item = Family> {
        self.families.iter().map(|family| family.options.family)
    }

    pub fn has_changes(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Sets the node's zone and addresses, which the rules of all services depend on.
    pub fn set_node(&mut self, zone: Option<String>, addresses: Vec<IpAddr>) {
        if self.topology.zone != zone || self.node_addresses != addresses {
            self.topology.zone = zone;
            self.node_addresses = addresses;
            self.marked.extend(self.services.keys().cloned());
        }
    }

    /// Sets or removes a service. Returns whether the rules may change.
    pub fn set_service(&mut self, key: &ServiceKey, service: Option<&Service>) -> bool {
        let info = |family: &FamilyState| service_info(service?, family.options.family, &self.names);
        let infos: Vec<_> = self.families.iter().map(info).collect();
        let is_empty = infos.iter().all(Option::is_none);
        if is_empty && !self.services.contains_key(key) {
            return false;
        }
        let entry = self.services.entry(key.clone()).or_default();
        if entry.infos == infos || is_empty && entry.infos.is_empty() {
            return false;
        }
        match infos.iter().flatten().any(|info| info.health_check_node_port.is_some()) {
            true => _ = self.health_checked.insert(key.clone()),
            false => _ = self.health_checked.remove(key),
        }
        entry.infos = infos;
        self.marked.insert(key.clone())
    }

    /// Sets or removes an endpoint slice. Returns whether the rules may change.
    pub fn set_slice(&mut self, slice: &EndpointSlice, is_deleted: bool) -> bool {
        let label = self.names.well_known("service-name");
        let Some(service) = slice.metadata.labels.get(&label).filter(|name| !name.is_empty()) else {
            return false;
        };
        let key: ServiceKey = format!("{}/{service}", slice.metadata.namespace).into();
        let is_handled = !is_deleted && !is_handled_by_others(&slice.metadata.labels, &self.names);
        let info = is_handled.then(|| SliceInfo::read(slice, &self.topology.node_name)).flatten();
        let entry = self.services.entry(key.clone()).or_default();
        let name = &slice.metadata.name;
        let is_changed = match info {
            Some(info) => {
                entry.slices.get(name) != Some(&info) && {
                    entry.slices.insert(name.clone(), info);
                    true
                }
            }
            None => entry.slices.remove(name).is_some(),
        };
        if is_changed {
            self.marked.insert(key);
        } else if entry.is_unused() {
            self.services.remove(&key);
        }
        is_changed
    }

    /// The changes since the last call.
    pub fn sync(&mut self) -> SyncChanges {
        let marked = std::mem::take(&mut self.marked);
        let mut changes = SyncChanges::default();
        for (index, family) in self.families.iter_mut().enumerate() {
            let context = Context {
                index,
                services: &self.services,
                topology: &self.topology,
                node_addresses: &self.node_addresses,
            };
            family.sync(&marked, &context, &mut changes);
        }
        for key in marked {
            if self.services.get(&key).is_some_and(ServiceEntry::is_unused) {
                self.services.remove(&key);
            }
        }
        changes
    }

    /// All tables, as the kernel has them once every batch is written.
    pub fn ruleset(&self) -> Ruleset {
        self.families.iter().map(FamilyState::table).collect()
    }

    /// The health checks of services, by service.
    pub fn health_checks(&self) -> BTreeMap<ServiceKey, HealthCheck> {
        let of_service = |key: &ServiceKey| {
            let entry = self.services.get(key)?;
            let port = entry.infos.iter().flatten().find_map(|info| info.health_check_node_port)?;
            let count = |family| local_ready_addresses(entry, family).len();
            let local_endpoints = self.families().map(count).max().unwrap_or_default();
            Some((key.clone(), HealthCheck { port, local_endpoints }))
        };
        self.health_checked.iter().filter_map(of_service).collect()
    }

    /// The number of service ports with a policy Local, endpoints elsewhere and none here: internal and external.
    pub fn without_local_endpoints(&self) -> (u32, u32) {
        self.families.iter().fold((0, 0), |(internal, external), family| {
            (internal + family.no_local_internal, external + family.no_local_external)
        })
    }
}

/// Addresses of ready endpoints on this node.
fn local_ready_addresses(entry: &ServiceEntry, family: Family) -> BTreeSet<IpAddr> {
    let slices = entry.slices.values().filter(|slice| slice.family == family && !slice.ports.is_empty());
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    let ready = endpoints.filter(|(_, endpoint)| endpoint.is_local && endpoint.is_ready);
    ready.map(|(address, _)| *address).collect()
}

/// The state of the cluster for the rules of one family.
struct Context<'a> {
    index: usize,
    services: &'a HashMap<ServiceKey, ServiceEntry>,
    topology: &'a Topology,
    node_addresses: &'a [IpAddr],
}

/// The rules of one family.
struct FamilyState {
    options: RuleOptions,
    set_types: Vec<Arc<SetType>>,
    services: HashMap<ServiceKey, ServiceRules>,
    /// Services that claim a frontend. The first has it.
    claims: HashMap<Frontend, BTreeSet<ServiceKey>>,
    /// How many services use a chain.
    shared_chains: BTreeMap<SharedChain, usize>,
    /// How many services have an endpoint on this node.
    hairpin: BTreeMap<IpAddr, usize>,
    /// The sums of these counts of all services.
    no_local_internal: u32,
    no_local_external: u32,
}

#[derive(Default)]
struct ServiceRules {
    fragment: Fragment,
    /// By port, as they are in the elements.
    slots: BTreeMap<(Protocol, u16), Slots>,
    claims: BTreeSet<Frontend>,
}

/// The difference between old and new fragments of the services of a sync.
#[derive(Default)]
struct FragmentChanges {
    table: Difference<SetId>,
    stale: Vec<(Frontend, BTreeSet<IpAddr>)>,
}

impl FragmentChanges {
    fn add(&mut self, old: &Fragment, new: &Fragment) {
        compare(&old.elements, &new.elements, &mut self.table.elements);
        compare(&old.chains, &new.chains, &mut self.table.chains);
        compare(&old.sets, &new.sets, &mut self.table.sets);
        let empty = BTreeSet::new();
        let frontends: BTreeSet<_> = old.datagrams.keys().chain(new.datagrams.keys()).collect();
        for frontend in frontends {
            let before = old.datagrams.get(frontend).unwrap_or(&empty);
            let after = new.datagrams.get(frontend).unwrap_or(&empty);
            // without endpoints before, connections may be tracked without any translation
            if before.is_empty() && !after.is_empty() || before.iter().any(|address| !after.contains(address))
            {
                self.stale.push((*frontend, after.clone()));
            }
        }
    }
}

fn compare<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    changes: &mut BTreeMap<K, Transition<V>>,
) {
    for (key, value) in old.iter().filter(|(key, value)| new.get(*key) != Some(*value)) {
        let change = changes.entry(key.clone()).or_default();
        change.old = Some(value.clone());
    }
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(*value)) {
        let change = changes.entry(key.clone()).or_default();
        change.new = Some(value.clone());
    }
}

impl FamilyState {
    fn new(options: RuleOptions) -> Self {
        Self {
            set_types: set_types(options.family),
            options,
            services: HashMap::new(),
            claims: HashMap::new(),
            shared_chains: BTreeMap::new(),
            hairpin: BTreeMap::new(),
            no_local_internal: 0,
            no_local_external: 0,
        }
    }

    fn sync(&mut self, marked: &BTreeSet<ServiceKey>, context: &Context<'_>, changes: &mut SyncChanges) {
        let mut affected = marked.clone();
        for key in marked {
            self.update_claims(key, context, &mut affected);
        }
        let mut difference = FragmentChanges::default();
        for key in &affected {
            self.update_service(key, context, &mut difference);
        }
        let family = self.options.family;
        let set = |id: &SetId| Some((id.name().into(), self.set_types.get(*id as usize)?.clone()));
        difference.table.write(&table_id(family), set, &mut changes.batch);
        let stale = difference.stale.into_iter();
        changes.stale.extend(stale.map(|(frontend, endpoints)| StaleDatagrams {
            family,
            frontend,
            endpoints,
        }));
    }

    /// Updates the claims of a service. Services that get or lose a frontend by that are affected.
    fn update_claims(
        &mut self,
        key: &ServiceKey,
        context: &Context<'_>,
        affected: &mut BTreeSet<ServiceKey>,
    ) {
        let info = context.info(key);
        let new: BTreeSet<Frontend> =
            info.into_iter().flat_map(|info| &info.ports).flat_map(frontends).collect();
        let rules = self.services.entry(key.clone()).or_default();
        let old = std::mem::replace(&mut rules.claims, new.clone());
        for frontend in old.difference(&new) {
            if let Some(claims) = self.claims.get_mut(frontend) {
                claims.remove(key);
                affected.extend(claims.first().cloned());
                if claims.is_empty() {
                    self.claims.remove(frontend);
                }
            }
        }
        for frontend in new.difference(&old) {
            let claims = self.claims.entry(*frontend).or_default();
            affected.extend(claims.first().cloned());
            claims.insert(key.clone());
        }
    }

    fn update_service(&mut self, key: &ServiceKey, context: &Context<'_>, difference: &mut FragmentChanges) {
        let mut fragment = Fragment::default();
        let mut slots = BTreeMap::new();
        let previous = self.services.remove(key).unwrap_or_default();
        if let Some(info) = context.info(key) {
            let is_owner = |frontend: &Frontend| {
                self.claims.get(frontend).and_then(BTreeSet::first).is_some_and(|owner| owner == key)
            };
            let entry = context.services.get(key);
            let slices = || entry.into_iter().flat_map(|entry| entry.slices.values());
            for port in &info.ports {
                let endpoints = endpoints_of(port, self.options.family, slices());
                let zone = context.topology.zone.as_deref().filter(|zone| !zone.is_empty());
                let usable = usable_endpoints(&endpoints, port, zone, self.options.has_terminating_fallback);
                let id = (port.protocol, port.port);
                let next = previous.slots.get(&id).cloned().unwrap_or_default().next(&usable);
                let local = endpoints.iter().filter(|(_, endpoint)| endpoint.is_local);
                let rules = PortRules {
                    service: key,
                    port,
                    slots: &next,
                    has_endpoints: usable.has_any,
                    local_addresses: &local.map(|(target, _)| target.address).collect(),
                    options: &self.options,
                    node_addresses: context.node_addresses,
                };
                rules.add_to(&mut fragment, is_owner);
                slots.insert(id, next);
            }
        }
        let (old, new) = (&previous.fragment, &fragment);
        self.no_local_internal = self.no_local_internal + new.no_local_internal - old.no_local_internal;
        self.no_local_external = self.no_local_external + new.no_local_external - old.no_local_external;
        difference.add(&previous.fragment, &fragment);
        self.count_chains(&previous.fragment, &fragment, &mut difference.table);
        self.count_hairpin(&previous.fragment, &fragment, &mut difference.table);
        if context.info(key).is_some() {
            self.services.insert(key.clone(), ServiceRules { fragment, slots, claims: previous.claims });
        }
    }

    fn count_chains(&mut self, old: &Fragment, new: &Fragment, difference: &mut Difference<SetId>) {
        for chain in new.shared_chains.difference(&old.shared_chains) {
            let count = self.shared_chains.entry(chain.clone()).or_default();
            *count += 1;
            if *count == 1 {
                let rules = Chain::new(chain.rules(&self.options));
                difference.chains.entry(chain.name()).or_default().new = Some(rules);
                let element = difference.elements.entry((SetId::Chains, number_key(chain.number())));
                element.or_default().new = Some(chain_data(chain));
            }
        }
        for chain in old.shared_chains.difference(&new.shared_chains) {
            let Some(count) = self.shared_chains.get_mut(chain) else { continue };
            *count -= 1;
            if *count == 0 {
                self.shared_chains.remove(chain);
                let change = difference.chains.entry(chain.name()).or_default();
                let element = difference.elements.entry((SetId::Chains, number_key(chain.number())));
                let element = element.or_default();
                // unless another service of this sync was the first to use it
                if change.new.take().is_none() || change.old.is_some() {
                    change.old = Some(Chain::new(chain.rules(&self.options)));
                    element.old = Some(chain_data(chain));
                }
                element.new = None;
            }
        }
    }

    fn count_hairpin(&mut self, old: &Fragment, new: &Fragment, difference: &mut Difference<SetId>) {
        for address in new.hairpin.difference(&old.hairpin) {
            let count = self.hairpin.entry(*address).or_default();
            *count += 1;
            if *count == 1 {
                difference.elements.entry((SetId::Hairpin, pair(*address))).or_default().new = Some(None);
            }
        }
        for address in old.hairpin.difference(&new.hairpin) {
            let Some(count) = self.hairpin.get_mut(address) else { continue };
            *count -= 1;
            if *count == 0 {
                self.hairpin.remove(address);
                let change = difference.elements.entry((SetId::Hairpin, pair(*address))).or_default();
                if change.new.take().is_none() {
                    change.old = Some(None);
                }
            }
        }
    }

    fn table(&self) -> (crate::netfilter::TableId, crate::netfilter::Table) {
        let mut table = base_table(&self.options);
        let shared = self.shared_chains.keys();
        table.chains.extend(shared.map(|chain| (chain.name(), Chain::new(chain.rules(&self.options)))));
        let mut insert = |set: SetId, key: &Element, data: &Option<Data>| {
            if let Some(set) = table.sets.get_mut(set.name()) {
                set.elements.insert(key.clone(), data.clone());
            }
        };
        for chain in self.shared_chains.keys() {
            insert(SetId::Chains, &number_key(chain.number()), &chain_data(chain));
        }
        for address in self.hairpin.keys() {
            insert(SetId::Hairpin, &pair(*address), &None);
        }
        for rules in self.services.values() {
            for ((set, key), data) in &rules.fragment.elements {
                insert(*set, key, data);
            }
        }
        for fragment in self.services.values().map(|rules| &rules.fragment) {
            table.chains.extend(fragment.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
            let sets = fragment.sets.iter();
            table.sets.extend(sets.map(|(name, set_type)| (name.clone(), Set::new(set_type.clone()))));
        }
        (table_id(self.options.family), table)
    }
}

impl Context<'_> {
    fn info(&self, key: &ServiceKey) -> Option<&ServiceInfo> {
        self.services.get(key)?.infos.get(self.index)?.as_ref()
    }
}

/// The verdict of a chain's number.
fn chain_data(chain: &SharedChain) -> Option<Data> {
    Some(Data::Verdict(Verdict::Goto(chain.name())))
}

/// An endpoint, paired with itself.
fn pair(address: IpAddr) -> Element {
    Element::value(Value::new(&[Field::Address(address), Field::Address(address)]))
}
