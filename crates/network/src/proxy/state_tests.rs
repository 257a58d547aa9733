use super::proxy_writer::ProxyWriter;
use super::rules::{LocalSource, RuleOptions, table_id};
use super::state::{ProxyState, ServiceKey};
use super::testing::{NODE, ServiceBuilder, endpoint, service, slice};
use crate::netfilter::testing::in_namespace;
use crate::netfilter::{Change, Connection, Data, Family, FieldType, Ruleset, SyncKind};
use api::core::v1::Service;
use api::discovery::v1::EndpointSlice;
use names::Names;
use std::collections::BTreeMap;

fn key(name: &str) -> ServiceKey {
    format!("default/{name}").into()
}

fn options() -> RuleOptions {
    let pods = LocalSource::Network("10.1.0.0/24".parse().unwrap());
    RuleOptions { local_source: Some(pods), ..RuleOptions::new(Family::Ipv4) }
}

fn state() -> ProxyState {
    let both = vec![options(), RuleOptions::new(Family::Ipv6)];
    ProxyState::new(Names::kubernetes(), NODE, both)
}

/// The elements of the IPv4 table, one in a line.
fn elements(ruleset: &Ruleset) -> Vec<String> {
    let table = &ruleset[&table_id(Family::Ipv4)];
    let mut lines = Vec::new();
    for (name, set) in &table.sets {
        if matches!(&**name, "chains" | "refusals") {
            continue;
        }
        let data_types = [FieldType::Ipv4Address, FieldType::Port];
        // a number stands for a verdict
        let numbers =
            &table.sets[if name.ends_with("no-endpoints") { "refusals" } else { "chains" }].elements;
        for (element, data) in &set.elements {
            let fields = |value: &crate::netfilter::Value, types: &[FieldType]| {
                let fields = value.fields(types).unwrap();
                fields.iter().map(|field| format!("{field:?}")).collect::<Vec<_>>().join(" ")
            };
            let from = fields(&element.from, &set.set_type.key);
            let to = element.to.as_ref().map(|to| format!(" to {}", fields(to, &set.set_type.key)));
            let data = data.as_ref().map(|data| match data {
                Data::Verdict(verdict) => format!(": {verdict:?}"),
                Data::Value(value) if value.as_bytes().len() == 4 => {
                    match &numbers[&crate::netfilter::Element::value(value.clone())] {
                        Some(Data::Verdict(verdict)) => format!(": {verdict:?}"),
                        data => panic!("{data:?}"),
                    }
                }
                Data::Value(value) => format!(": {}", fields(value, &data_types)),
            });
            lines.push(format!("{name} {from}{}{}", to.unwrap_or_default(), data.unwrap_or_default()));
        }
    }
    let shorten = |line: String| {
        let pieces = ["Address(", "Protocol(Protocol(", "Port(", "Number(", "Goto(", "\"", ")"];
        pieces.iter().fold(line, |line, piece| line.replace(piece, ""))
    };
    lines.into_iter().map(shorten).collect()
}

/// Applies a service and its slice to an empty state.
fn check(service: &Service, slice: EndpointSlice, expected: &[&str]) {
    let mut state = state();
    state.set_node(Some("zone-a".to_owned()), vec![[192, 168, 1, 1].into()]);
    state.set_service(&key(&service.metadata.name), Some(service));
    state.set_slice(&slice, false);
    state.sync();
    assert_eq!(elements(&state.ruleset()), expected, "{:?}", service.spec);
}

fn two(port: i32, protocol: &str) -> EndpointSlice {
    let endpoints = vec![endpoint("10.1.0.2", NODE, true, false), endpoint("10.1.1.2", "other", true, false)];
    slice("web", port, protocol, endpoints)
}

fn remote() -> EndpointSlice {
    slice("web", 8080, "TCP", vec![endpoint("10.1.1.2", "other", true, false)])
}

const WEB: &str = "10.96.0.1";

#[test]
fn addresses_lead_to_endpoints() {
    check(
        &service("web", WEB, 80, "TCP"),
        two(8080, "TCP"),
        &[
            "endpoints 10.96.0.1 6 80 0: 10.1.0.2 8080",
            "endpoints 10.96.0.1 6 80 1: 10.1.1.2 8080",
            "hairpin 10.1.0.2 10.1.0.2",
            "services 10.96.0.1 6 80: cluster-2",
        ],
    );
    check(
        &service("web", WEB, 80, "TCP").external_ip("1.2.3.4").node_port(30000),
        remote(),
        &[
            "endpoints 1.2.3.4 6 80 0: 10.1.1.2 8080",
            "endpoints 10.96.0.1 6 80 0: 10.1.1.2 8080",
            "node-port-endpoints 6 30000 0: 10.1.1.2 8080",
            "node-ports 6 30000: node-port-external-1",
            "services 1.2.3.4 6 80: external-1",
            "services 10.96.0.1 6 80: cluster-1",
        ],
    );
}

#[test]
fn local_policies_use_local_endpoints() {
    check(
        &service("web", WEB, 80, "TCP").node_port(30000).external_local(),
        two(8080, "TCP"),
        &[
            "endpoints 10.96.0.1 6 80 0: 10.1.0.2 8080",
            "endpoints 10.96.0.1 6 80 1: 10.1.1.2 8080",
            "hairpin 10.1.0.2 10.1.0.2",
            "node-port-endpoints 6 30000 0: 10.1.0.2 8080",
            "node-port-endpoints 6 30000 1: 10.1.1.2 8080",
            "node-port-external-local 6 30000",
            "node-port-local 6 30000: node-port-local-1",
            "node-port-local-endpoints 6 30000 0: 10.1.0.2 8080",
            "node-port-short-circuit 6 30000: node-port-short-circuit-2",
            "services 10.96.0.1 6 80: cluster-2",
        ],
    );
    // without local endpoints, traffic from elsewhere is dropped
    check(
        &service("web", WEB, 80, "TCP").external_ip("1.2.3.4").internal_local(),
        remote(),
        &[
            "endpoints 1.2.3.4 6 80 0: 10.1.1.2 8080",
            "no-endpoints 10.96.0.1 6 80: Drop",
            "services 1.2.3.4 6 80: external-1",
        ],
    );
    check(
        &service("web", WEB, 80, "TCP").load_balancer("1.2.3.4", &[]).external_local().internal_local(),
        remote(),
        &[
            "endpoints 1.2.3.4 6 80 0: 10.1.1.2 8080",
            "external-local 1.2.3.4 6 80",
            "no-endpoints 1.2.3.4 6 80: Drop",
            "no-endpoints 10.96.0.1 6 80: Drop",
            "short-circuit 1.2.3.4 6 80: short-circuit-1",
        ],
    );
}

#[test]
fn services_without_endpoints_are_rejected() {
    let none = slice("web", 8080, "TCP", vec![endpoint("10.1.0.2", NODE, false, false)]);
    check(
        &service("web", WEB, 80, "TCP").load_balancer("1.2.3.4", &["10.0.0.0/8"]).node_port(30000),
        none,
        &[
            "no-endpoints 1.2.3.4 6 80: reject",
            "no-endpoints 10.96.0.1 6 80: reject",
            "node-port-no-endpoints 6 30000: reject",
        ],
    );
}

#[test]
fn source_ranges_protect_the_addresses_of_load_balancers() {
    let web = || service("web", WEB, 80, "TCP");
    check(
        &web().load_balancer("1.2.3.4", &["10.0.0.0/8", "10.1.0.0/16", " fd00::/8", "172.16.0.1/32"]),
        remote(),
        &[
            "endpoints 1.2.3.4 6 80 0: 10.1.1.2 8080",
            "endpoints 10.96.0.1 6 80 0: 10.1.1.2 8080",
            "firewalled 1.2.3.4 6 80",
            "services 1.2.3.4 6 80: external-1",
            "services 10.96.0.1 6 80: cluster-1",
            "source-ranges 1.2.3.4 6 80 10.0.0.0 to 1.2.3.4 6 80 10.255.255.255",
            "source-ranges 1.2.3.4 6 80 172.16.0.1",
        ],
    );
    // the node is in a range, so its own requests to the address are allowed, too
    check(
        &web().load_balancer("1.2.3.4", &["192.168.1.0/24"]),
        remote(),
        &[
            "endpoints 1.2.3.4 6 80 0: 10.1.1.2 8080",
            "endpoints 10.96.0.1 6 80 0: 10.1.1.2 8080",
            "firewalled 1.2.3.4 6 80",
            "services 1.2.3.4 6 80: external-1",
            "services 10.96.0.1 6 80: cluster-1",
            "source-ranges 1.2.3.4 6 80 1.2.3.4",
            "source-ranges 1.2.3.4 6 80 192.168.1.0 to 1.2.3.4 6 80 192.168.1.255",
        ],
    );
}

#[test]
fn affinity_has_chains_and_sets_of_the_service() {
    let mut state = state();
    let web = service("web", WEB, 80, "TCP").affinity(100);
    state.set_service(&key("web"), Some(&web));
    state.set_slice(&two(8080, "TCP"), false);
    state.sync();
    let ruleset = state.ruleset();
    let table = &ruleset[&table_id(Family::Ipv4)];
    let of = |names: Vec<&crate::netfilter::Name>| -> Vec<String> {
        let own = names.into_iter().filter(|name| name.contains("default/web"));
        own.map(|name| name.to_string()).collect()
    };
    assert_eq!(
        of(table.chains.keys().collect()),
        [
            "affinity-cluster-default/web/tcp/80",
            "endpoint-default/web/tcp/80/10.1.0.2/8080",
            "endpoint-default/web/tcp/80/10.1.1.2/8080",
        ]
    );
    assert_eq!(
        of(table.sets.keys().collect()),
        ["clients-default/web/tcp/80/10.1.0.2/8080", "clients-default/web/tcp/80/10.1.1.2/8080"]
    );
    // one rule for each client set, and one for each choice
    assert_eq!(table.chains["affinity-cluster-default/web/tcp/80"].rules.len(), 4);
}

#[test]
fn headless_services_and_those_of_other_proxies_are_skipped() {
    let mut headless = service("web", "None", 80, "TCP");
    headless.spec.cluster_ips = vec!["None".to_owned()];
    check(&headless, remote(), &[]);
    let mut external = service("web", "", 80, "TCP");
    external.spec.type_ = "ExternalName".to_owned();
    check(&external, remote(), &[]);
    let mut other = service("web", WEB, 80, "TCP");
    let label = Names::kubernetes().well_known_under("service", "service-proxy-name");
    other.metadata.labels.insert(label.clone(), "custom".to_owned());
    check(&other, remote(), &[]);
}

#[test]
fn the_first_service_has_an_address_that_two_claim() {
    let mut state = state();
    for (name, ip) in [("b", "10.96.0.2"), ("a", "10.96.0.1")] {
        let claims = service(name, ip, 80, "TCP").external_ip("1.2.3.4");
        state.set_service(&key(name), Some(&claims));
        let address = format!("10.1.1.{}", name.as_bytes()[0]);
        state.set_slice(&slice(name, 80, "TCP", vec![endpoint(&address, "other", true, false)]), false);
        state.sync();
    }
    let endpoint_of = |state: &ProxyState| {
        let all = elements(&state.ruleset());
        all.into_iter().filter(|line| line.starts_with("endpoints 1.2.3.4")).collect::<Vec<_>>()
    };
    assert_eq!(endpoint_of(&state), ["endpoints 1.2.3.4 6 80 0: 10.1.1.97 80"]);
    state.set_service(&key("a"), None);
    state.sync();
    assert_eq!(endpoint_of(&state), ["endpoints 1.2.3.4 6 80 0: 10.1.1.98 80"]);
}

#[test]
fn an_endpoint_more_changes_few_elements() {
    let mut state = state();
    state.set_service(&key("web"), Some(&service("web", WEB, 80, "TCP")));
    let many = |count: u8| {
        let all = (0..count).map(|at| endpoint(&format!("10.1.1.{at}"), "other", true, false));
        slice("web", 80, "TCP", all.collect())
    };
    state.set_slice(&many(100), false);
    state.sync();
    state.set_slice(&many(101), false);
    let counts: Vec<_> = state
        .sync()
        .batch
        .changes
        .iter()
        .map(|change| match change {
            Change::AddElements { elements, .. } => elements.len(),
            Change::DeleteElements { elements, .. } => elements.len(),
            _ => 1,
        })
        .collect();
    // the new chain cluster-101 and its number, the number of the service, the endpoint
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    // a chain that another service has is there already: no verdict map changes, which the kernel would check whole
    let before = elements(&state.ruleset());
    state.set_service(&key("other"), Some(&service("other", "10.96.0.9", 80, "TCP")));
    let mut others = many(100);
    others.metadata.name = "other-1".to_owned();
    others.metadata.labels.values_mut().for_each(|name| *name = "other".to_owned());
    state.set_slice(&others, false);
    state.sync();
    state.set_slice(&many(100), false);
    state.sync();
    state.set_slice(&many(101), false);
    state.set_service(&key("third"), Some(&service("third", "10.96.0.10", 80, "TCP")));
    let is_verdict_map = |set: &str| set.ends_with("affinity") || matches!(set, "chains" | "refusals");
    state.sync();
    assert_eq!(elements(&state.ruleset()).len(), before.len() + 102);
    others.endpoints.extend(many(101).endpoints.pop());
    state.set_slice(&others, false);
    let batch = state.sync().batch;
    assert!(!batch.is_empty());
    for change in batch.changes {
        match change {
            Change::AddElements { set, .. } => assert!(!is_verdict_map(&set), "{set}"),
            Change::AddChain { chain, .. } | Change::AddRule { chain, .. } => panic!("{chain}"),
            _ => (),
        }
    }
    // the same state again is no change
    assert!(!state.set_slice(&many(101), false));
    assert!(state.sync().batch.is_empty());
}

#[test]
fn health_checks_count_local_endpoints_that_are_ready() {
    let mut state = state();
    let mut web = service("web", WEB, 80, "TCP").load_balancer("1.2.3.4", &[]).external_local();
    web.spec.health_check_node_port = 31000;
    state.set_service(&key("web"), Some(&web));
    assert_eq!(state.health_checks()[&key("web")].local_endpoints, 0);
    state.set_slice(&two(8080, "TCP"), false);
    assert_eq!(
        (state.health_checks()[&key("web")].port, state.health_checks()[&key("web")].local_endpoints),
        (31000, 1)
    );
    state.set_slice(&slice("web", 80, "TCP", vec![endpoint("10.1.0.2", NODE, true, true)]), false);
    assert_eq!(state.health_checks()[&key("web")].local_endpoints, 0);
}

/// A generator of small random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// The objects of a random cluster.
#[derive(Default)]
struct Cluster {
    services: BTreeMap<u64, Service>,
    slices: BTreeMap<(u64, bool), EndpointSlice>,
}

impl Cluster {
    /// Changes an object at random, in the state as well.
    fn step(&mut self, random: &mut Random, state: &mut ProxyState) {
        let number = random.below(6);
        let name = format!("s{number}");
        let protocol = if number.is_multiple_of(3) { "UDP" } else { "TCP" };
        if random.below(3) == 0 {
            if random.below(4) == 0 {
                self.services.remove(&number);
            } else {
                self.services.insert(number, random_service(number, protocol, random));
            }
            state.set_service(&key(&name), self.services.get(&number));
            return;
        }
        let is_ipv6 = random.below(4) == 0;
        let count = random.below(5);
        let random_endpoint = |at: u64| {
            let (local, host) = (random.chance(), random.below(6) + at % 2 * 10);
            let address = if is_ipv6 { format!("fd01::{host}") } else { format!("10.1.0.{host}") };
            endpoint(&address, if local { NODE } else { "other" }, random.below(4) > 0, random.below(4) == 0)
        };
        let endpoints: Vec<_> = (0..count).map(random_endpoint).collect();
        let is_deleted = endpoints.is_empty();
        let mut changed = slice(&name, 8080, protocol, endpoints);
        changed.metadata.name = format!("{name}-{is_ipv6}");
        match is_deleted {
            true => _ = self.slices.remove(&(number, is_ipv6)),
            false => _ = self.slices.insert((number, is_ipv6), changed.clone()),
        }
        state.set_slice(&changed, is_deleted);
    }

    /// A state that gets all objects at once.
    fn fresh_state(&self) -> ProxyState {
        let mut state = state();
        for (number, service) in &self.services {
            state.set_service(&key(&format!("s{number}")), Some(service));
        }
        for slice in self.slices.values() {
            state.set_slice(slice, false);
        }
        state.sync();
        state
    }
}

fn random_service(number: u64, protocol: &str, random: &mut Random) -> Service {
    let mut service = service(&format!("s{number}"), &format!("10.96.0.{number}"), 80, protocol);
    service.spec.cluster_ips.push(format!("fd96::{number}"));
    if random.chance() {
        // two services may claim the same address
        service = service.external_ip(&format!("1.2.3.{}", random.below(3)));
    }
    if random.chance() {
        service = service.node_port(30000 + i32::try_from(random.below(3)).unwrap());
    }
    if random.chance() {
        let ranges: &[&str] = if random.chance() { &["10.0.0.0/8", "192.168.0.0/16"] } else { &[] };
        service = service.load_balancer(&format!("1.2.4.{number}"), ranges);
    }
    if random.chance() {
        service = service.external_local();
    }
    if random.below(4) == 0 {
        service = service.internal_local();
    }
    if random.below(4) == 0 {
        service = service.affinity(if random.chance() { 10 } else { 20 });
    }
    service
}

/// A ruleset with the endpoints of each frontend in the order of their addresses instead of their history.
fn sorted_slots(mut ruleset: Ruleset) -> Ruleset {
    for table in ruleset.values_mut() {
        for (name, set) in &mut table.sets {
            if !name.ends_with("endpoints") || name.contains("no-endpoints") {
                continue;
            }
            let mut by_frontend: BTreeMap<Vec<u8>, (Vec<_>, Vec<_>)> = BTreeMap::new();
            for (element, data) in std::mem::take(&mut set.elements) {
                let bytes = element.from.as_bytes();
                let lists = by_frontend.entry(bytes[..bytes.len() - 4].to_vec()).or_default();
                lists.0.push(element);
                lists.1.push(data);
            }
            for (elements, mut data) in by_frontend.into_values() {
                data.sort();
                set.elements.extend(elements.into_iter().zip(data));
            }
        }
        // chains of affinity list endpoints in the same order
        for (name, chain) in &mut table.chains {
            if name.starts_with("affinity-") {
                chain.rules.clear();
            }
        }
    }
    ruleset
}

#[test]
fn changes_lead_to_the_same_rules_as_a_fresh_start() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut cluster, mut state) = (Cluster::default(), state());
        for _ in 0..40 {
            for _ in 0..=random.below(3) {
                cluster.step(&mut random, &mut state);
            }
            state.sync();
            let scratch = cluster.fresh_state();
            assert!(sorted_slots(state.ruleset()) == sorted_slots(scratch.ruleset()), "seed {seed}");
        }
    }
}

#[test]
fn batches_make_the_kernel_have_the_ruleset() {
    in_namespace(module_path!(), "batches_make_the_kernel_have_the_ruleset", || {
        for seed in 0..6 {
            println!("seed {seed}");
            let mut random = Random(1000 + seed);
            let (mut cluster, mut state) = (Cluster::default(), state());
            let mut writer = ProxyWriter::open().unwrap();
            let mut reader = Connection::open().unwrap();
            for step in 0..25 {
                for _ in 0..=random.below(3) {
                    cluster.step(&mut random, &mut state);
                }
                let changes = state.sync();
                let kind = writer.write(&state, &changes).unwrap();
                let expected = if step == 0 { SyncKind::Full } else { SyncKind::Partial };
                assert_eq!(kind, expected, "seed {seed}, step {step}");
                let desired = state.ruleset();
                let ids: Vec<_> = desired.keys().cloned().collect();
                assert!(reader.read(&ids).unwrap().0 == desired, "seed {seed}, step {step}");
            }
            // a process that starts anew finds the tables of another state, and changes them
            let fresh = cluster.fresh_state();
            let mut writer = ProxyWriter::open().unwrap();
            writer.write(&fresh, &Default::default()).unwrap();
            let desired = fresh.ruleset();
            let ids: Vec<_> = desired.keys().cloned().collect();
            assert!(reader.read(&ids).unwrap().0 == desired, "seed {seed}");
        }
        assert!(ProxyWriter::open().unwrap().remove_tables().unwrap());
        assert!(!ProxyWriter::open().unwrap().remove_tables().unwrap());
    });
}

#[test]
fn a_failed_change_is_followed_by_a_full_sync() {
    in_namespace(module_path!(), "a_failed_change_is_followed_by_a_full_sync", || {
        let mut state = state();
        let mut writer = ProxyWriter::open().unwrap();
        state.set_service(&key("web"), Some(&service("web", WEB, 80, "TCP")));
        let changes = state.sync();
        assert_eq!(writer.write(&state, &changes).unwrap(), SyncKind::Full);
        // another program deletes the tables
        ProxyWriter::open().unwrap().remove_tables().unwrap();
        state.set_slice(&two(8080, "TCP"), false);
        let changes = state.sync();
        assert_eq!(writer.write(&state, &changes).unwrap(), SyncKind::Full);
        let desired = state.ruleset();
        let ids: Vec<_> = desired.keys().cloned().collect();
        assert!(Connection::open().unwrap().read(&ids).unwrap().0 == desired);
    });
}
