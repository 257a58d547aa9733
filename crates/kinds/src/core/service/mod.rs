//! Services: one address for many pods.
//!
//! `ranges` and `allocate` allocate addresses and node ports, `families` keeps the address-family fields consistent,
//! `validate` checks, `service_type` has the fields that a type requires. Invariant: a stored service holds the
//! addresses and ports in its fields, and no other service holds them.

mod allocate;
mod families;
mod ranges;
mod service_type;
mod validate;

pub use ranges::PortRange;
pub(crate) use validate::{load_balancer, name, ordinary_address};

use crate::{ServiceOptions, metadata, read};
use allocate::Allocator;
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::Value;
use service_type::{
    has_internal_traffic, kind, needs_address, needs_health_port, needs_node_ports, same, texts,
};
use std::sync::Arc;
use std::time::Duration;

const AFFINITY_TIMEOUT_SECONDS: i64 = 10_800;

pub fn hooks(options: ServiceOptions) -> Hooks {
    let networks: Vec<_> = [Some(options.network), options.second_network].into_iter().flatten().collect();
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks { validate: Some(validate::create), ..CreateHooks::default() },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate_state: Some(|object, _, context| validate::create(object, context)),
            validate: Some(validate::update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            reserve: Some(Arc::new(Allocator::new(&networks, options.node_ports))),
            name_rule: Some(validate::name),
            repeated_metadata_errors: RepeatedMetadataErrors::CHANGE_FIRST,
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(Some(validate::status))];

fn default(object: &mut Value) {
    match object.text(&["spec", "sessionAffinity"]) {
        "None" => {
            object.unset(&["spec", "sessionAffinityConfig"]);
        }
        "ClientIP" => {
            const TIMEOUT: &[&str] = &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"];
            if !read::has(object, TIMEOUT) {
                object.set(TIMEOUT, AFFINITY_TIMEOUT_SECONDS);
            }
        }
        _ => {}
    }
    read::each_mut(object, &["spec", "ports"], |port| {
        let missing = match port.at(&["targetPort"]) {
            Some(Value::String(name)) => name.is_empty(),
            Some(Value::Int(number)) => *number == 0,
            _ => true,
        };
        if missing {
            port.set(&["targetPort"], read::int(port, &["port"]));
        }
    });
    if needs_node_ports(object) && object.text(&["spec", "externalTrafficPolicy"]).is_empty() {
        object.set(&["spec", "externalTrafficPolicy"], "Cluster");
    }
    if has_internal_traffic(object) && !read::has(object, &["spec", "internalTrafficPolicy"]) {
        object.set(&["spec", "internalTrafficPolicy"], "Cluster");
    }
    if kind(object) == "LoadBalancer" && !read::has(object, &["spec", "allocateLoadBalancerNodePorts"]) {
        object.set(&["spec", "allocateLoadBalancerNodePorts"], true);
    }
}

/// Removes fields that the new type does not use, unless the client changed them, too.
fn prepare_update(next: &mut Value, old: &Value, _: &Context<'_>) {
    let lost = |test: fn(&Value) -> bool, next: &Value| test(old) && !test(next);
    if lost(needs_address, next) {
        if families::same_addresses(next, old) {
            next.unset(families::ADDRESS);
            next.unset(families::ADDRESSES);
        }
        for path in [families::FAMILIES, families::POLICY] {
            if same(next, old, path) {
                next.unset(path);
            }
        }
    }
    if lost(needs_node_ports, next) && node_ports(next) == node_ports(old) {
        read::each_mut(next, &["spec", "ports"], |port| {
            port.unset(&["nodePort"]);
        });
    }
    if kind(next) != "LoadBalancer" {
        next.set(&["status", "loadBalancer"], Value::map());
    }
    let is_balanced: fn(&Value) -> bool = |it| kind(it) == "LoadBalancer";
    let dependent: [(fn(&Value) -> bool, &str); 5] = [
        (needs_health_port, "healthCheckNodePort"),
        (is_balanced, "allocateLoadBalancerNodePorts"),
        (is_balanced, "loadBalancerClass"),
        (needs_node_ports, "externalTrafficPolicy"),
        (has_internal_traffic, "internalTrafficPolicy"),
    ];
    for (test, field) in dependent {
        if lost(test, next) && same(next, old, &["spec", field]) {
            next.unset(&["spec", field]);
        }
    }
}

fn node_ports(service: &Value) -> Vec<i64> {
    let mut ports: Vec<_> =
        service.items(&["spec", "ports"]).iter().map(|port| read::int(port, &["nodePort"])).collect();
    ports.retain(|port| *port != 0);
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let address = object.items(families::ADDRESSES).first().map_or("", read::text);
    vec![
        metadata::name(object),
        kind(object).into(),
        metadata::or(address, "<none>"),
        external_addresses(object).into(),
        metadata::or(&format_ports(object), "<none>"),
        metadata::age(object, now),
        metadata::or(&format_labels(object.at(&["spec", "selector"])), "<none>"),
    ]
}

fn external_addresses(object: &Value) -> String {
    let mut addresses = texts(object, &["spec", "externalIPs"]);
    match kind(object) {
        "ClusterIP" | "NodePort" if addresses.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => addresses.join(","),
        "LoadBalancer" => {
            let mut found = balancers(object);
            found.append(&mut addresses);
            if found.is_empty() { "<pending>".to_owned() } else { found.join(",") }
        }
        "ExternalName" => object.text(&["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses or names of load balancers, without duplicates.
pub(crate) fn balancers(object: &Value) -> Vec<String> {
    let ingress = object.items(&["status", "loadBalancer", "ingress"]).iter();
    let mut addresses: Vec<_> = ingress
        .map(|one| match one.text(&["ip"]) {
            "" => one.text(&["hostname"]).to_owned(),
            ip => ip.to_owned(),
        })
        .filter(|text| !text.is_empty())
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn format_ports(object: &Value) -> String {
    let formatted = object.items(&["spec", "ports"]).iter().map(|port| {
        let (number, protocol) = (read::int(port, &["port"]), port.text(&["protocol"]));
        match read::int(port, &["nodePort"]) {
            0 => format!("{number}/{protocol}"),
            node_port => format!("{number}:{node_port}/{protocol}"),
        }
    });
    formatted.collect::<Vec<_>>().join(",")
}

fn format_labels(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_map);
    let formatted = labels.into_iter().flat_map(|it| it.iter());
    let mut formatted: Vec<_> =
        formatted.map(|(key, value)| format!("{key}={}", read::text(value))).collect();
    formatted.sort();
    formatted.join(",")
}
