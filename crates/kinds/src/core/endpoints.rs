//! Endpoints: the addresses behind a service, in groups that share their ports.

use crate::check::{self, Problems};
use crate::core::service::ordinary_address;
use crate::{metadata, read};
use rest::hooks::{CreateHooks, Hooks, ReadHooks, UpdateHooks};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::time::Duration;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
pub(crate) const DISPLAY_LIMIT: usize = 3;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object, None)), ..CreateHooks::default() },
        update: UpdateHooks {
            validate: Some(|new, old, _| validate(new, Some(old))),
            ..UpdateHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn validate(object: &Value, old: Option<&Value>) -> Problems {
    let mut out = Problems::new();
    // an unchanged object that older rules accepted stays valid
    if !old.is_some_and(|old| old.items(&["subsets"]) == object.items(&["subsets"])) {
        subsets(object.items(&["subsets"]), &mut out);
    }
    out
}

fn subsets(subsets: &[Value], out: &mut Problems) {
    let path = Path::ROOT.field("subsets");
    for (at, subset) in subsets.iter().enumerate() {
        let path = path.index(at);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| subset.items(&[list]).is_empty()) {
            out.push(Problem::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for list in lists {
            let path = path.field(list);
            for (at, one) in subset.items(&[list]).iter().enumerate() {
                address(one, &path.index(at), out);
            }
        }
        let (ports, path) = (subset.items(&["ports"]), path.field("ports"));
        for (at, one) in ports.iter().enumerate() {
            port(one, ports.len() > 1, &path.index(at), out);
        }
    }
}

fn address(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let ip = one.text(&["ip"]);
    out.extend(format::ip(ip).iter().map(|why| Problem::invalid_text(&path.field("ip"), ip, why)));
    let hostname = one.text(&["hostname"]);
    if !hostname.is_empty() {
        check::label(hostname, &path.field("hostname"), out);
    }
    if let Some(node) = read::opt_text(one, &["nodeName"]) {
        check::subdomain(node, &path.field("nodeName"), out);
    }
    ordinary_address(ip, &path.field("ip"), out);
}

fn port(one: &Value, needs_name: bool, path: &Path<'_>, out: &mut Problems) {
    match one.text(&["name"]) {
        "" if needs_name => out.push(Problem::required(&path.field("name"), "")),
        "" => {}
        name => check::label(name, &path.field("name"), out),
    }
    check::port_number(read::int(one, &["port"]), &path.field("port"), out);
    check::one_of(one.text(&["protocol"]), PROTOCOLS, &path.field("protocol"), out);
    if let Some(protocol) = read::opt_text(one, &["appProtocol"]) {
        check::qualified_name(protocol, &path.field("appProtocol"), out);
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![metadata::name(object), format_value(object).into(), metadata::age(object, now)]
}

fn format_value(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in object.items(&["subsets"]) {
        let addresses = subset.items(&["addresses"]);
        let ports = subset.items(&["ports"]);
        if ports.is_empty() {
            all.extend(addresses.iter().map(|one| one.text(&["ip"]).to_owned()));
        }
        for port in ports {
            let number = read::int(port, &["port"]);
            all.extend(addresses.iter().map(|one| match one.text(&["ip"]) {
                ip if ip.contains(':') => format!("[{ip}]:{number}"),
                ip => format!("{ip}:{number}"),
            }));
        }
    }
    if object.items(&["subsets"]).is_empty() { "<none>".to_owned() } else { first_few(&all) }
}

/// The first of many, and how many there are besides.
pub(crate) fn first_few(all: &[String]) -> String {
    let formatted = all[..all.len().min(DISPLAY_LIMIT)].join(",");
    match all.len().checked_sub(DISPLAY_LIMIT) {
        Some(more) if more > 0 => format!("{formatted} + {more} more..."),
        _ => formatted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn addresses_must_lead_somewhere() {
        let check = |subset: &str, expected: &[&str]| {
            let object = json(&format!(r#"{{"subsets":[{subset}]}}"#));
            let found = problems(&validate(&object, None));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(expected), "{found}");
            }
            // stored values stay valid
            assert!(validate(&object, Some(&object)).is_empty());
        };
        check(r#"{"addresses":[{"ip":"1.2.3.4"}],"ports":[{"port":1,"protocol":"TCP"}]}"#, &[]);
        check(r#"{"ports":[]}"#, &["subsets[0]: Required value"]);
        check(
            r#"{"addresses":[{"ip":"127.0.0.1"},{"ip":"x"}]}"#,
            &[
                "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback",
                "subsets[0].addresses[1].ip: Invalid value: \"x\": must be a valid IP address, (e.g.",
                "subsets[0].addresses[1].ip: Invalid value: \"x\": must be a valid IP address",
            ],
        );
    }

    #[test]
    fn rows_show_the_first_few() {
        let object =
            json(r#"{"subsets":[{"addresses":[{"ip":"::1"},{"ip":"b"}],"ports":[{"port":1},{"port":2}]}]}"#);
        assert_eq!(format_value(&object), "[::1]:1,b:1,[::1]:2 + 1 more...");
        assert_eq!(format_value(&json("{}")), "<none>");
    }
}
