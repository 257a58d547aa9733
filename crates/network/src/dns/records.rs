//! The records of services, as an immutable snapshot that is replaced when a service or a slice changes.
//!
//! Example: the headless service `db` in `shop` with the endpoint 10.244.0.7, host name `db-0`, port `sql` 5432/TCP gives
//!
//! ```text
//! services["db.shop"]  = Headless [ { label: "db-0", address: 10.244.0.7, ports: [sql tcp 5432] } ]
//! pointers[10.244.0.7] = [ ("db.shop", db-0.db.shop.svc.cluster.local.) ]
//! ```
//!
//! Invariants: readers load the snapshot without a lock. A change publishes one snapshot, in which only the entries of
//! one service or namespace differ; the rest is shared with the snapshot before.

use api::Resource;
use api::core::v1::Service;
use api::discovery::v1::EndpointSlice;
use arc_swap::{ArcSwap, Guard};
use client::Key;
use hickory_proto::rr::Name;
use imbl::{HashMap as SharedMap, HashSet as SharedSet};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// A port of a service or an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Empty for a port without a name.
    pub name: Box<str>,
    /// In lower case: `tcp`.
    pub protocol: Box<str>,
    pub number: u16,
}

impl Port {
    fn new(name: &str, protocol: &str, number: i32) -> Option<Self> {
        let protocol = if protocol.is_empty() { "tcp".to_owned() } else { protocol.to_ascii_lowercase() };
        Some(Port { name: name.into(), protocol: protocol.into(), number: u16::try_from(number).ok()? })
    }
}

/// An endpoint of a headless service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadlessEndpoint {
    /// The host name of the endpoint, or its address with dashes.
    pub label: Box<str>,
    pub address: IpAddr,
    pub ports: Arc<[Port]>,
}

/// The records of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceRecords {
    Cluster {
        addresses: Box<[IpAddr]>,
        ports: Box<[Port]>,
    },
    Headless(Box<[HeadlessEndpoint]>),
    /// The service stands for another name.
    Alias(Name),
}

/// See the module.
#[derive(Clone, Default)]
pub struct Snapshot {
    namespaces: SharedSet<Box<str>>,
    /// By `service.namespace`.
    services: SharedMap<Box<str>, Arc<ServiceRecords>>,
    /// Names of addresses, each with the service that it is of.
    pointers: SharedMap<IpAddr, Arc<[(Box<str>, Name)]>>,
    /// The serial number of the zone.
    pub serial: u32,
}

impl Snapshot {
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// The records of `service.namespace`.
    pub fn service(&self, key: &str) -> Option<&Arc<ServiceRecords>> {
        self.services.get(key)
    }

    pub fn names_of(&self, address: &IpAddr) -> impl Iterator<Item = &Name> {
        self.pointers.get(address).into_iter().flat_map(|it| it.iter().map(|(_, name)| name))
    }
}

/// The parts of a service that its records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSource {
    /// The cluster addresses; empty for a headless service.
    addresses: Box<[IpAddr]>,
    ports: Box<[Port]>,
    external_name: Option<Box<str>>,
    /// Whether endpoints that are not ready have records.
    has_unready_records: bool,
}

impl ServiceSource {
    pub fn new(service: &Service) -> Self {
        let spec = &service.spec;
        let is_alias = spec.type_ == "ExternalName";
        let texts: Vec<&String> = match spec.cluster_ips.is_empty() {
            true => vec![&spec.cluster_ip],
            false => spec.cluster_ips.iter().collect(),
        };
        ServiceSource {
            addresses: texts.into_iter().filter_map(|it| it.parse().ok()).collect(),
            ports: spec.ports.iter().filter_map(|it| Port::new(&it.name, &it.protocol, it.port)).collect(),
            external_name: is_alias.then(|| spec.external_name.as_str().into()),
            has_unready_records: spec.publish_not_ready_addresses,
        }
    }

    /// Whether the records come from slices.
    fn is_headless(&self) -> bool {
        self.addresses.is_empty() && self.external_name.is_none()
    }
}

/// The parts of a slice that records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceSource {
    endpoints: Box<[SliceEndpoint]>,
    ports: Arc<[Port]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SliceEndpoint {
    address: IpAddr,
    hostname: Option<Box<str>>,
    is_ready: bool,
}

impl SliceSource {
    pub fn new(slice: &EndpointSlice) -> Self {
        let endpoints = slice.endpoints.iter().flat_map(|endpoint| {
            let hostname = endpoint.hostname.as_deref().filter(|it| !it.is_empty());
            endpoint.addresses.iter().filter_map(move |address| {
                Some(SliceEndpoint {
                    address: address.parse().ok()?,
                    hostname: hostname.map(|it| it.to_ascii_lowercase().into()),
                    is_ready: endpoint.conditions.ready != Some(false),
                })
            })
        });
        let ports = slice.ports.iter().filter_map(|port| {
            let text = |it: &Option<String>| it.clone().unwrap_or_default();
            Port::new(&text(&port.name), &text(&port.protocol), port.port?)
        });
        SliceSource { endpoints: endpoints.collect(), ports: ports.collect() }
    }
}

/// The label of an endpoint without a host name: its address with dashes.
fn dashed(address: &IpAddr) -> Box<str> {
    address.to_string().replace(['.', ':'], "-").into()
}

/// The records that a service and its slices give; `None` where an alias is no name.
fn service_records<'a>(
    service: &ServiceSource,
    slices: impl Iterator<Item = &'a SliceSource>,
) -> Option<ServiceRecords> {
    if let Some(name) = &service.external_name {
        return match name.parse() {
            // an address as a name is what it says
            Ok(address) => {
                Some(ServiceRecords::Cluster { addresses: [address].into(), ports: service.ports.clone() })
            }
            Err(_) => {
                let mut name = Name::from_ascii(&**name).ok()?;
                name.set_fqdn(true);
                Some(ServiceRecords::Alias(name))
            }
        };
    }
    if !service.is_headless() {
        let (addresses, ports) = (service.addresses.clone(), service.ports.clone());
        return Some(ServiceRecords::Cluster { addresses, ports });
    }
    let mut endpoints: Vec<HeadlessEndpoint> = Vec::new();
    for slice in slices {
        let published = slice.endpoints.iter().filter(|it| it.is_ready || service.has_unready_records);
        endpoints.extend(published.map(|it| HeadlessEndpoint {
            label: it.hostname.clone().unwrap_or_else(|| dashed(&it.address)),
            address: it.address,
            ports: slice.ports.clone(),
        }));
    }
    // while a slice is split an endpoint may be in two
    endpoints.sort_by(|a, b| (a.address, &a.label).cmp(&(b.address, &b.label)));
    endpoints.dedup_by(|a, b| a.address == b.address && a.label == b.label && a.ports == b.ports);
    Some(ServiceRecords::Headless(endpoints.into()))
}

/// The objects that the snapshot comes from.
#[derive(Default)]
struct Sources {
    services: HashMap<Box<str>, ServiceSource>,
    /// By service and name.
    slices: HashMap<Box<str>, BTreeMap<Box<str>, SliceSource>>,
}

/// The records of the cluster. Writers call the `set` functions with each change.
pub struct Records {
    /// `svc.cluster.local.`
    services_domain: Name,
    snapshot: ArcSwap<Snapshot>,
    sources: Mutex<Sources>,
}

/// `service.namespace`: neither contains a dot.
fn key_text(key: &Key) -> Box<str> {
    format!("{}.{}", key.name, key.namespace).into()
}

impl Records {
    /// `zone` is the domain of the cluster; `serial` the first serial number, which should grow from start to start.
    pub fn new(zone: &Name, serial: u32) -> Self {
        let services_domain = zone.prepend_label("svc").unwrap_or_else(|_| zone.clone());
        let snapshot = Snapshot { serial, ..Snapshot::default() };
        Records { services_domain, snapshot: ArcSwap::from_pointee(snapshot), sources: Mutex::default() }
    }

    /// The current snapshot.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub fn set_namespace(&self, name: &str, exists: bool) {
        let _lock = self.sources.lock();
        let mut next = Snapshot::clone(&self.snapshot.load());
        match exists {
            true => next.namespaces.insert(name.into()),
            false => next.namespaces.remove(name),
        };
        self.publish(next);
    }

    /// A service as it is now; `None` if it is gone.
    pub fn set_service(&self, key: &Key, service: Option<ServiceSource>) {
        let mut sources = self.sources.lock();
        let key = key_text(key);
        let old = match service {
            Some(service) => {
                sources.services.insert(key.clone(), service.clone()).filter(|it| *it == service)
            }
            None => {
                sources.services.remove(&key);
                None
            }
        };
        // a change of its status or labels changes no record
        if old.is_none() {
            self.update(&sources, key);
        }
    }

    /// A slice of a service as it is now; `None` if it is gone.
    pub fn set_slice(&self, service: &Key, name: &str, slice: Option<SliceSource>) {
        let mut sources = self.sources.lock();
        let key = key_text(service);
        let slices = sources.slices.entry(key.clone()).or_default();
        let is_same = slices.get(name) == slice.as_ref();
        match slice {
            Some(slice) => drop(slices.insert(name.into(), slice)),
            None => drop(slices.remove(name)),
        }
        if slices.is_empty() {
            sources.slices.remove(&key);
        }
        let is_headless = sources.services.get(&key).is_some_and(ServiceSource::is_headless);
        if is_headless && !is_same {
            self.update(&sources, key);
        }
    }

    /// Publishes the records of a service anew.
    fn update(&self, sources: &Sources, key: Box<str>) {
        let slices = sources.slices.get(&key).into_iter().flat_map(BTreeMap::values);
        let records = sources.services.get(&key).and_then(|service| service_records(service, slices));
        let mut next = Snapshot::clone(&self.snapshot.load());
        let old = match &records {
            Some(records) => next.services.insert(key.clone(), Arc::new(records.clone())),
            None => next.services.remove(&key),
        };
        if old.as_deref() == records.as_ref() {
            return;
        }
        for (address, _) in old.iter().flat_map(|it| self.pointers(&key, it)) {
            let rest = next.pointers.get(&address).into_iter().flat_map(|it| it.iter());
            let rest: Arc<[_]> = rest.filter(|(service, _)| *service != key).cloned().collect();
            match rest.is_empty() {
                true => next.pointers.remove(&address),
                false => next.pointers.insert(address, rest),
            };
        }
        for (address, name) in records.iter().flat_map(|it| self.pointers(&key, it)) {
            let pointer = (key.clone(), name);
            let known = next.pointers.get(&address).map(|it| &**it).unwrap_or_default();
            if !known.contains(&pointer) {
                let all = known.iter().cloned().chain([pointer]).collect();
                next.pointers.insert(address, all);
            }
        }
        self.publish(next);
    }

    /// The addresses of a service, with their names.
    fn pointers(&self, key: &str, records: &ServiceRecords) -> Vec<(IpAddr, Name)> {
        let name = |label: Option<&str>| {
            let labels = label.into_iter().chain(key.split('.')).map(str::as_bytes);
            Name::from_labels(labels).and_then(|it| it.append_domain(&self.services_domain)).ok()
        };
        match records {
            ServiceRecords::Cluster { addresses, .. } => {
                addresses.iter().filter_map(|it| Some((*it, name(None)?))).collect()
            }
            ServiceRecords::Headless(endpoints) => {
                endpoints.iter().filter_map(|it| Some((it.address, name(Some(&it.label))?))).collect()
            }
            ServiceRecords::Alias(_) => Vec::new(),
        }
    }

    fn publish(&self, mut next: Snapshot) {
        next.serial = next.serial.wrapping_add(1);
        self.snapshot.store(Arc::new(next));
    }
}

/// The service that a slice belongs to, by its label.
pub fn service_of(slice: &EndpointSlice, label: &str) -> Option<Key> {
    let service = slice.metadata.labels.get(label).filter(|it| !it.is_empty())?;
    Some(Key::new(slice.namespace(), service))
}
