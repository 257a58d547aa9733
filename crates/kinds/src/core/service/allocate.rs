//! The allocator of service addresses and node ports.
//!
//! The allocations of a service are a function of its stored state ([`allocations`]): a write takes the allocations
//! that only the new state has, and releases the allocations that only the old state has once it is durable. The
//! record is in memory, is rebuilt from the stored services at the start, and follows the writes of other processes.
//! Each allocation has a name ([`Allocations::names`]), by which the store decides between two writes that take the
//! same one.

use super::families::{self, ADDRESS, ADDRESSES, FAMILIES, NONE};
use super::ranges::{Addresses, PortRange, Ports, Refusal};
use super::service_type::{needs_address, needs_health_port, needs_node_ports, texts, wants_node_ports};
use crate::{check, read};
use apimachinery::net::{Family, Network};
use parking_lot::Mutex;
use rest::error::{ApiError, Subject};
use rest::reserve::{Claims, Range, Reservation, Reserve, ReserveRequest};
use schema::problem::Problems;
use schema::{Path, Value, format};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses and ports of all services.
pub struct Allocator(Arc<Mutex<State>>);

struct State {
    /// At most one of each family, the default first.
    addresses: Vec<Addresses>,
    ports: Ports,
}

/// The allocations of one service, or of one write.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Allocations {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

impl Allocations {
    /// The allocations that `other` does not have.
    fn beyond(&self, other: &Allocations) -> Allocations {
        Allocations { addresses: &self.addresses - &other.addresses, ports: &self.ports - &other.ports }
    }

    fn names(&self) -> Vec<String> {
        let addresses = self.addresses.iter().map(|it| format!("address/{it}"));
        addresses.chain(self.ports.iter().map(|it| format!("port/{it}"))).collect()
    }
}

fn allocations(service: &Value) -> Allocations {
    let mut held = Allocations::default();
    if needs_address(service) {
        held.addresses = texts(service, ADDRESSES).iter().filter_map(|it| format::parse_ip(it)).collect();
    }
    if needs_node_ports(service) {
        held.ports.extend(node_ports(service));
    }
    if needs_health_port(service) {
        held.ports.extend(Some(read::int(service, HEALTH_PORT)).filter(|port| *port != 0));
    }
    held
}

const HEALTH_PORT: &[&str] = &["spec", "healthCheckNodePort"];

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    service.items(&["spec", "ports"]).iter().map(node_port).filter(|port| *port != 0)
}

fn node_port(port: &Value) -> i64 {
    read::int(port, &["nodePort"])
}

impl State {
    fn give_back(&mut self, held: &Allocations) {
        for address in &held.addresses {
            self.addresses.iter_mut().for_each(|one| one.give_back(address));
        }
        held.ports.iter().for_each(|port| self.ports.give_back(*port));
    }

    /// Takes an address; returns whether it was free, `None` outside of the ranges.
    fn recover_address(&mut self, address: &IpAddr) -> Option<bool> {
        self.addresses.iter_mut().find_map(|one| one.recover(address))
    }

    fn of(&mut self, family: Family) -> Option<&mut Addresses> {
        self.addresses.iter_mut().find(|one| one.network.family() == family)
    }

    fn families(&self) -> Vec<Family> {
        self.addresses.iter().map(|one| one.network.family()).collect()
    }
}

impl Allocator {
    /// The default family is that of the first network.
    pub fn new(networks: &[Network], ports: PortRange) -> Self {
        let addresses = networks.iter().map(|network| Addresses::new(*network)).collect();
        Allocator(Arc::new(Mutex::new(State { addresses, ports: Ports::new(ports) })))
    }
}

impl Reserve for Allocator {
    fn recover(&self, object: &Value) {
        let held = allocations(object);
        let mut state = self.0.lock();
        // addresses outside of the configured ranges are not tracked
        for address in &held.addresses {
            if state.recover_address(address) == Some(false) {
                tracing::warn!(%address, "two services have the same address");
            }
        }
        for port in &held.ports {
            if state.ports.recover(*port) == Some(false) {
                tracing::warn!(port, "two services have the same node port");
            }
        }
    }

    fn seen(&self, object: &Value) {
        let held = allocations(object);
        let mut state = self.0.lock();
        for address in &held.addresses {
            state.recover_address(address);
        }
        for port in &held.ports {
            state.ports.recover(*port);
        }
    }

    fn reserve(
        &self,
        next: &mut Value,
        old: Option<&Value>,
        request: &ReserveRequest<'_>,
    ) -> Result<Reservation, ApiError> {
        if let Some(old) = old {
            keep_given(next, old);
        }
        families::link_addresses(next, old);
        let mut state = self.0.lock();
        families::fill(next, old, &state.families()).map_err(|problems| invalid(next, problems))?;
        let mut attempt = AllocationAttempt { state: &mut state, request, taken: Allocations::default() };
        let outcome = attempt.addresses(next, old).and_then(|()| attempt.ports(next, old));
        let taken = attempt.taken;
        if request.dry_run {
            return outcome.map(|()| Reservation::new(|_| {}));
        }
        if let Err(why) = outcome {
            state.give_back(&taken);
            return Err(why);
        }
        drop(state);
        let before = old.map(allocations).unwrap_or_default();
        let after = allocations(next);
        let free = before.beyond(&after);
        let named = Claims { taken: after.beyond(&before).names(), freed: free.names() };
        let state = self.0.clone();
        let settle = move |durable| state.lock().give_back(if durable { &free } else { &taken });
        Ok(Reservation::new(settle).naming(named))
    }

    fn release(&self, last: &Value) -> Reservation {
        let (state, held) = (self.0.clone(), allocations(last));
        let named = Claims { taken: Vec::new(), freed: held.names() };
        let settle = move |durable| {
            if durable {
                state.lock().give_back(&held);
            }
        };
        Reservation::new(settle).naming(named)
    }

    fn ranges(&self) -> Vec<Range> {
        self.0.lock().addresses.iter().map(Addresses::range).collect()
    }
}

/// Keeps the allocations of the old state if the client left them out.
fn keep_given(next: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(next) {
        if next.text(ADDRESS).is_empty() {
            let address = old.text(ADDRESS);
            if !address.is_empty() {
                next.set(ADDRESS, address);
            }
        }
        if next.items(ADDRESSES).is_empty() && !old.items(ADDRESSES).is_empty() {
            next.set(ADDRESSES, old.items(ADDRESSES).to_vec());
        }
    }
    if needs_node_ports(old) && needs_node_ports(next) {
        keep_node_ports(next, old);
    }
    if needs_health_port(old) && needs_health_port(next) && read::int(next, HEALTH_PORT) == 0 {
        next.set(HEALTH_PORT, read::int(old, HEALTH_PORT));
    }
}

/// A port keeps its node port by its name, unless another port claims that one now.
fn keep_node_ports(next: &mut Value, old: &Value) {
    let now: BTreeSet<i64> = node_ports(next).collect();
    let claimed: BTreeSet<i64> = node_ports(old).filter(|port| now.contains(port)).collect();
    let by_name: HashMap<&str, i64> =
        old.items(&["spec", "ports"]).iter().map(|port| (port.text(&["name"]), node_port(port))).collect();
    read::each_mut(next, &["spec", "ports"], |port| {
        let before = by_name.get(port.text(&["name"])).copied().unwrap_or(0);
        if node_port(port) == 0 && before != 0 && !claimed.contains(&before) {
            port.set(&["nodePort"], before);
        }
    });
}

/// One write that takes its allocations.
struct AllocationAttempt<'a> {
    state: &'a mut State,
    request: &'a ReserveRequest<'a>,
    taken: Allocations,
}

impl AllocationAttempt<'_> {
    fn random(&self) -> u64 {
        env::random_u64(self.request.world)
    }

    fn addresses(&mut self, next: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        if families::stays_preferring(next, old) || !needs_address(next) || next.text(ADDRESS) == NONE {
            return Ok(());
        }
        let families = texts(next, FAMILIES);
        let first = match old {
            Some(old) if needs_address(old) => {
                let before = old.items(FAMILIES).len();
                // only a second family is new to a service that has an address
                if families::is_headless(old) || before != 1 || families.len() != 2 {
                    return Ok(());
                }
                1
            }
            _ => 0,
        };
        let mut addresses = texts(next, ADDRESSES);
        addresses.resize(addresses.len().max(families.len()), String::new());
        next.set(ADDRESSES, addresses.iter().map(|it| it.as_str().into()).collect::<Vec<Value>>());
        for at in first..families.len() {
            let Some(family) = Family::named(&families[at]) else { continue };
            addresses[at] = self.address(next, family, &addresses[at])?;
        }
        if let Some(address) = addresses.first() {
            next.set(ADDRESS, address.as_str());
        }
        next.set(ADDRESSES, addresses.into_iter().map(Value::from).collect::<Vec<_>>());
        Ok(())
    }

    /// The requested address, or a free one.
    fn address(&mut self, next: &Value, family: Family, wanted: &str) -> Result<String, ApiError> {
        let random = self.random();
        let dry_run = self.request.dry_run;
        let Some(range) = self.state.of(family) else {
            return Err(ApiError::internal_error(format!("no range for {} addresses", family.name())));
        };
        if wanted.is_empty() {
            // a dry run allocates nothing, and cannot know later free addresses
            let found = if dry_run { Ok(range.network.base()) } else { range.take_any(random) };
            let address = found.map_err(|_| {
                ApiError::internal_error("failed to allocate a serviceIP: range is full".to_owned())
            })?;
            if !dry_run {
                self.taken.addresses.insert(address);
            }
            return Ok(address.to_string());
        }
        let refused = match format::parse_ip(wanted) {
            Some(address) if dry_run && range.covers(&address) => None,
            Some(address) => match range.take(&address) {
                Ok(()) => {
                    self.taken.addresses.insert(address);
                    None
                }
                Err(Refusal::Taken | Refusal::Full) => Some("provided IP is already allocated".to_owned()),
                Err(Refusal::OutOfRange) => Some(format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                    range.network
                )),
            },
            None => Some("provided IP is not in the valid range".to_owned()),
        };
        match refused {
            None => Ok(wanted.to_owned()),
            Some(why) => {
                let path = Path::ROOT.field("spec");
                let path = path.field("clusterIPs");
                let formatted = check::format_texts(next.items(ADDRESSES));
                let why = format!("failed to allocate IP {wanted}: {why}");
                Err(invalid(next, Problems::from(check::invalid_formatted(&path, &formatted, &why))))
            }
        }
    }

    fn ports(&mut self, next: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        if needs_node_ports(next) {
            match old {
                None => self.first_ports(next)?,
                Some(old) => self.next_ports(next, old)?,
            }
        }
        if needs_health_port(next) && !old.is_some_and(needs_health_port) {
            let wanted = read::int(next, HEALTH_PORT);
            let port = if wanted == 0 { self.any_port() } else { self.port(wanted).map(|()| wanted) };
            let port = port.map_err(|why| {
                let what = if wanted == 0 { "a" } else { "requested" };
                let why = self.refusal_text(why);
                ApiError::internal_error(format!(
                    "failed to allocate {what} HealthCheck NodePort {wanted}: {why}"
                ))
            })?;
            next.set(HEALTH_PORT, port);
        }
        Ok(())
    }

    /// Ports of a new service. Those with the same number, of several protocols, share a node port.
    fn first_ports(&mut self, next: &mut Value) -> Result<(), ApiError> {
        let wants = wants_node_ports(next);
        let mut ports = next.items(&["spec", "ports"]).to_vec();
        let mut requested = HashMap::new();
        for port in ports.iter().filter(|port| node_port(port) != 0) {
            requested.entry(read::int(port, &["port"])).or_insert_with(|| node_port(port));
        }
        let mut given: HashMap<i64, i64> = HashMap::new();
        for (at, port) in ports.iter_mut().enumerate() {
            let (number, wanted) = (read::int(port, &["port"]), node_port(port));
            if wanted == 0 && !wants {
                continue;
            }
            let taken = match given.get(&number) {
                Some(shared) if wanted == 0 || wanted == *shared => *shared,
                Some(_) => self.named_port(next, at, wanted)?,
                None => {
                    let taken = match requested.get(&number) {
                        Some(wanted) => self.named_port(next, at, *wanted)?,
                        None => self.new_port()?,
                    };
                    given.insert(number, taken);
                    taken
                }
            };
            port.set(&["nodePort"], taken);
        }
        next.set(&["spec", "ports"], ports);
        Ok(())
    }

    /// Ports of a service that has some already.
    fn next_ports(&mut self, next: &mut Value, old: &Value) -> Result<(), ApiError> {
        let wants = wants_node_ports(next);
        let before: BTreeSet<i64> = node_ports(old).collect();
        let (mut seen, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        let mut ports = next.items(&["spec", "ports"]).to_vec();
        for (at, port) in ports.iter_mut().enumerate() {
            let wanted = node_port(port);
            if wanted == 0 && !wants {
                continue;
            }
            let taken = if wanted == 0 {
                self.new_port()?
            } else if before.contains(&wanted) || numbers.contains(&wanted) {
                wanted
            } else {
                self.named_port(next, at, wanted)?
            };
            port.set(&["nodePort"], taken);
            numbers.insert(taken);
            let protocol = port.text(&["protocol"]).to_owned();
            if !seen.insert((protocol.clone(), taken)) {
                return Err(ApiError::internal(format!("duplicate nodePort: {{{protocol} {taken}}}")));
            }
        }
        next.set(&["spec", "ports"], ports);
        Ok(())
    }

    fn named_port(&mut self, next: &Value, at: usize, wanted: i64) -> Result<i64, ApiError> {
        self.port(wanted).map_err(|why| {
            let path = Path::ROOT.field("spec");
            let path = path.field("ports");
            let path = path.index(at);
            let problem = check::invalid_int(&path.field("nodePort"), wanted, &self.refusal_text(why));
            invalid(next, Problems::from(problem))
        })?;
        Ok(wanted)
    }

    fn new_port(&mut self) -> Result<i64, ApiError> {
        self.any_port().map_err(|why| {
            ApiError::internal_error(format!("failed to allocate a nodePort: {}", self.refusal_text(why)))
        })
    }

    fn port(&mut self, wanted: i64) -> Result<(), Refusal> {
        if self.request.dry_run {
            if self.state.ports.has(wanted) || self.taken.ports.contains(&wanted) {
                return Err(Refusal::Taken);
            }
        } else {
            self.state.ports.take(wanted)?;
        }
        self.taken.ports.insert(wanted);
        Ok(())
    }

    fn any_port(&mut self) -> Result<i64, Refusal> {
        let port = if self.request.dry_run {
            // invalid numbers, since a dry run does not look for free ones
            let highest = i64::from(self.state.ports.range.last) + 1;
            self.taken.ports.last().copied().unwrap_or(highest) + 1
        } else {
            let random = self.random();
            self.state.ports.take_any(random)?
        };
        self.taken.ports.insert(port);
        Ok(port)
    }

    fn refusal_text(&self, why: Refusal) -> String {
        match why {
            Refusal::Taken => "provided port is already allocated".to_owned(),
            Refusal::Full => "range is full".to_owned(),
            Refusal::OutOfRange => format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.state.ports.range
            ),
        }
    }
}

fn invalid(service: &Value, problems: Problems) -> ApiError {
    let name = service.text(&["metadata", "name"]);
    ApiError::invalid(Subject { group: "", kind: "Service", name }, problems)
}
