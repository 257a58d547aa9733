//! EndpointSlices: a part of the addresses behind a service, all of one family.

use crate::check::{self, Problems};
use crate::core::endpoints::first_few;
use crate::core::service::ordinary_address;
use crate::{gates, metadata, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_ZONES: usize = 8;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(|object, _| validate(object)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State]),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

const GUARDED: &[gates::GatedField] = &[(gates::HINTS, &["endpoints", "*", "hints"])];

fn prepare_create(object: &mut Value, context: &Context<'_>) {
    gates::drop_disabled(object, None, GUARDED, context);
    forget_topology(object);
    forget_emptiness(object);
}

/// An absent list equals an empty one, except for its ownership.
fn forget_emptiness(object: &mut Value) {
    for field in ["endpoints", "ports"] {
        if object.items(&[field]).is_empty() {
            object.set(&[field], Value::Null);
        }
    }
}

/// Topology is read from older objects, and no longer written.
fn forget_topology(object: &mut Value) {
    read::each_mut(object, &["endpoints"], |endpoint| {
        endpoint.unset(&["deprecatedTopology"]);
    });
}

fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    gates::drop_disabled(next, Some(old), GUARDED, context);
    forget_emptiness(next);
    // labels tell which service the slice is of, so they count as content here, and so does the topology
    // that is sent, although it is not kept
    let content = |it: &Value| {
        let fields = ["addressType", "endpoints", "ports"];
        fields.map(|field| it.at(&[field]).cloned())
    };
    let labels = |it: &Value| read::map(it, &["metadata", "labels"]).clone();
    if content(next) != content(old) || labels(next) != labels(old) {
        next.set(&["metadata", "generation"], read::int(old, &["metadata", "generation"]) + 1);
    }
    if next.items(&["endpoints"]) != old.items(&["endpoints"]) {
        forget_topology(next);
    }
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = validate(new);
    let (is, was) = (new.text(&["addressType"]), old.text(&["addressType"]));
    if is != was {
        out.push(Problem::invalid_text(&Path::ROOT.field("addressType"), is, "field is immutable"));
    }
    out
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let family = object.text(&["addressType"]);
    check::one_of(family, ADDRESS_TYPES, &Path::ROOT.field("addressType"), &mut out);
    let path = Path::ROOT.field("endpoints");
    let endpoints = object.items(&["endpoints"]);
    if endpoints.len() > MOST_ENDPOINTS {
        out.push(Problem::too_many(&path, endpoints.len(), MOST_ENDPOINTS));
    } else {
        for (at, one) in endpoints.iter().enumerate() {
            endpoint(one, family, &path.index(at), &mut out);
        }
    }
    ports(object.items(&["ports"]), &Path::ROOT.field("ports"), &mut out);
    out
}

fn endpoint(one: &Value, family: &str, path: &Path<'_>, out: &mut Problems) {
    let addresses = one.items(&["addresses"]);
    let addresses_path = path.field("addresses");
    if addresses.is_empty() {
        out.push(Problem::required(&addresses_path, "must contain at least 1 address"));
    } else if addresses.len() > MOST_ADDRESSES {
        out.push(Problem::too_many(&addresses_path, addresses.len(), MOST_ADDRESSES));
    }
    for (at, text) in addresses.iter().map(read::text).enumerate() {
        address(text, family, &addresses_path.index(at), out);
    }
    if let Some(node) = read::opt_text(one, &["nodeName"]) {
        check::subdomain(node, &path.field("nodeName"), out);
    }
    if let Some(labels) = one.at(&["deprecatedTopology"]) {
        check::labels(labels, &path.field("deprecatedTopology"), out);
    }
    if let Some(hostname) = read::opt_text(one, &["hostname"]) {
        check::label(hostname, &path.field("hostname"), out);
    }
    let (zones, hints) = (one.items(&["hints", "forZones"]), path.field("hints"));
    let zones_path = hints.field("forZones");
    if zones.len() > MOST_ZONES {
        out.push(Problem::too_many(&zones_path, zones.len(), MOST_ZONES));
        return;
    }
    let mut seen = HashSet::new();
    for (at, zone) in zones.iter().map(|it| it.text(&["name"])).enumerate() {
        let path = zones_path.index(at);
        let path = path.field("name");
        if !seen.insert(zone) {
            out.push(check::duplicate_text(&path, zone));
        }
        check::label_value(zone, &path, out);
    }
}

fn address(text: &str, family: &str, path: &Path<'_>, out: &mut Problems) {
    let fits: fn(&IpAddr) -> bool = match family {
        "IPv4" => IpAddr::is_ipv4,
        "IPv6" => IpAddr::is_ipv6,
        "FQDN" => return host(text, path, out),
        _ => return,
    };
    if !format::parse_ip(text).as_ref().is_some_and(fits) {
        out.push(Problem::invalid_text(path, text, &format!("must be a valid {family} address")));
    }
    ordinary_address(text, path, out);
}

/// A name of a host with at least two parts.
fn host(text: &str, path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        out.push(Problem::required(path, ""));
        return;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let wrong = format::dns1123_subdomain(name);
    if !wrong.is_empty() {
        let why = wrong.join(",");
        out.push(Problem::invalid_text(path, name, &why));
        return;
    }
    if name.split('.').count() < 2 {
        let why = "should be a domain with at least two segments separated by dots";
        out.push(Problem::invalid_text(path, name, why));
        return;
    }
    for part in name.split('.') {
        if part.len() > 63 {
            out.push(Problem::invalid_text(path, part, &format::too_long(63)));
        }
    }
}

fn ports(ports: &[Value], path: &Path<'_>, out: &mut Problems) {
    if ports.len() > MOST_PORTS {
        out.push(Problem::too_many(path, ports.len(), MOST_PORTS));
        return;
    }
    let mut seen = HashSet::new();
    for (at, port) in ports.iter().enumerate() {
        let path = path.index(at);
        let name = port.text(&["name"]);
        if !name.is_empty() {
            check::label(name, &path.field("name"), out);
        }
        if !seen.insert(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
        match read::opt_text(port, &["protocol"]) {
            None => out.push(Problem::required(&path.field("protocol"), "")),
            Some(protocol) if !PROTOCOLS.contains(&protocol) => {
                out.push(check::unsupported(&path.field("protocol"), protocol, PROTOCOLS));
            }
            Some(_) => {}
        }
        if let Some(protocol) = read::opt_text(port, &["appProtocol"]) {
            check::qualified_name(protocol, &path.field("appProtocol"), out);
        }
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let ports: Vec<_> = object.items(&["ports"]).iter().map(format_port).collect();
    let addresses = object.items(&["endpoints"]).iter().flat_map(|one| one.items(&["addresses"]));
    let addresses: Vec<_> = addresses.map(|it| read::text(it).to_owned()).collect();
    vec![
        metadata::name(object),
        object.text(&["addressType"]).into(),
        metadata::or(&first_few(&ports), "<unset>"),
        metadata::or(&first_few(&addresses), "<unset>"),
        metadata::age(object, now),
    ]
}

fn format_port(port: &Value) -> String {
    match (read::opt_int(port, &["port"]), read::opt_text(port, &["name"])) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    }
}

/// From `v1beta1`, where zone and node stand among the labels of the topology.
pub(crate) fn convert_v1beta1(object: &mut Value, names: &Names) {
    let (zone, host) = (names.well_known_under("topology", "zone"), names.well_known("hostname"));
    read::each_mut(object, &["endpoints"], |endpoint| {
        let Some(mut topology) = endpoint.unset(&["topology"]) else { return };
        let Some(labels) = topology.as_map_mut() else { return };
        if let Some(zone) = labels.remove(&zone) {
            endpoint.set(&["zone"], zone);
        }
        let node = endpoint.at(&["nodeName"]).filter(|it| !it.is_null());
        if node.is_some() && labels.get(&host) == node {
            labels.remove(&host);
        }
        if !labels.is_empty() {
            endpoint.set(&["deprecatedTopology"], topology);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn addresses_are_of_the_type_of_the_slice() {
        let check = |kind: &str, address: &str, expected: &[&str]| {
            let mut out = Problems::new();
            super::address(address, kind, &Path::ROOT.field("a"), &mut out);
            assert_eq!(problems(&out), expected, "{kind} {address}");
        };
        check("IPv4", "1.2.3.4", &[]);
        check("IPv6", "fd00::1", &[]);
        check("FQDN", "a.b.", &[]);
        check("IPv6", "1.2.3.4", &[r#"a: Invalid value: "1.2.3.4": must be a valid IPv6 address"#]);
        check(
            "IPv4",
            "127.0.0.1",
            &[concat!(
                r#"a: Invalid value: "127.0.0.1": "#,
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            )],
        );
        check(
            "FQDN",
            "a",
            &[concat!(
                r#"a: Invalid value: "a": "#,
                "should be a domain with at least two segments separated by dots"
            )],
        );
    }

    #[test]
    fn labels_and_topology_count_as_content() {
        let old = json(
            r#"{"metadata":{"generation":3},"addressType":"IPv4","endpoints":[{"addresses":["1.2.3.4"]}],"ports":null}"#,
        );
        let check = |change: fn(&mut Value), expected: i64| {
            let mut next = old.clone();
            change(&mut next);
            prepare_update(&mut next, &old, &context());
            assert_eq!(read::int(&next, &["metadata", "generation"]), expected);
            assert_eq!(next.items(&["endpoints"]), old.items(&["endpoints"]));
        };
        check(|_| {}, 3);
        check(|next| next.set(&["metadata", "annotations"], json(r#"{"a":"b"}"#)), 3);
        check(|next| next.set(&["metadata", "labels"], json(r#"{"a":"b"}"#)), 4);
        let topology = |next: &mut Value| {
            read::each_mut(next, &["endpoints"], |it| it.set(&["deprecatedTopology"], json(r#"{"a":"b"}"#)));
        };
        check(topology, 4);
    }
}
