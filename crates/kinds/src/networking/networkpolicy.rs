//! NetworkPolicies: which traffic pods take and send.

use crate::check::{self, Problems};
use crate::{gates, metadata, networking::ingress, node_selection as scheduling, read};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks, replace,
};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::net::IpAddr;
use std::time::Duration;

const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks {
            prepare: Some(prepare),
            validate: Some(|object, _| validate(object)),
            keeps_status: true,
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            validate_state: Some(|new, _, _| validate(new)),
            writes_status: Some(writes_status),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[
                MetadataRules::State,
                MetadataRules::OfKind,
                MetadataRules::Change,
                MetadataRules::OfKind,
            ]),
            error_group: Some(ingress::ERROR_GROUP),
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    restore: Some(restore_status),
    repeated_metadata_errors: RepeatedMetadataErrors(&[]),
    without_table: true,
    ..SubresourceHooks::STATUS
}];

/// Drops the status that a client sends, if the status has a subresource of its own.
fn prepare(policy: &mut Value, context: &Context<'_>) {
    if gates::POLICY_STATUS.is_open(context) {
        policy.set(&["status"], Value::map());
    }
}

/// Without the gate, the status of a policy that has no conditions is written with the rest.
fn writes_status(old: &Value, context: &Context<'_>) -> bool {
    !gates::POLICY_STATUS.is_open(context) && old.items(&["status", "conditions"]).is_empty()
}

/// Without the gate, the subresource can only remove the conditions.
fn restore_status(next: &mut Value, old: &Value, context: &Context<'_>) {
    if !gates::POLICY_STATUS.is_open(context) && !next.items(&["status", "conditions"]).is_empty() {
        replace(next, old, "status");
    }
}

/// The default policy types: ingress, and egress if the policy has egress rules.
fn default(object: &mut Value) {
    if !read::has(object, &["spec"]) || !object.items(&["spec", "policyTypes"]).is_empty() {
        return;
    }
    let mut types = vec![Value::from("Ingress")];
    if !object.items(&["spec", "egress"]).is_empty() {
        types.push("Egress".into());
    }
    object.set(&["spec", "policyTypes"], types);
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    scheduling::label_selector(object.at(&["spec", "podSelector"]), &spec.field("podSelector"), &mut out);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = spec.field(direction);
        for (at, rule) in object.items(&["spec", direction]).iter().enumerate() {
            let path = path.index(at);
            let ports = path.field("ports");
            for (at, one) in rule.items(&["ports"]).iter().enumerate() {
                port(one, &ports.index(at), &mut out);
            }
            let peers_path = path.field(peers);
            for (at, one) in rule.items(&[peers]).iter().enumerate() {
                peer(one, &peers_path.index(at), &mut out);
            }
        }
    }
    policy_types(object.items(&["spec", "policyTypes"]), &spec.field("policyTypes"), &mut out);
    out
}

fn policy_types(types: &[Value], path: &Path<'_>, out: &mut Problems) {
    const ALLOWED: &[&str] = &["Ingress", "Egress"];
    if types.len() > ALLOWED.len() {
        // shown as the servers that clients know print it
        let formatted = check::format_texts(types).replacen("string", "networking.PolicyType", 1);
        out.push(check::invalid_formatted(path, &formatted, "may not specify more than two policyTypes"));
        return;
    }
    for (at, kind) in types.iter().map(read::text).enumerate() {
        if !ALLOWED.contains(&kind) {
            out.push(check::unsupported(&path.index(at), kind, ALLOWED));
        }
    }
}

fn port(one: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(protocol) = read::opt_text(one, &["protocol"])
        && !PROTOCOLS.contains(&protocol)
    {
        out.push(check::unsupported(&path.field("protocol"), protocol, PROTOCOLS));
    }
    let end = read::opt_int(one, &["endPort"]);
    let end_path = path.field("endPort");
    match (one.at(&["port"]).filter(|it| !it.is_null()), end) {
        (Some(Value::String(name)), end) => {
            if let Some(end) = end {
                out.push(check::invalid_int(
                    &end_path,
                    end,
                    "may not be specified when `port` is non-numeric",
                ));
            }
            check::port_name(name, &path.field("port"), out);
        }
        (Some(number), end) => {
            let number = number.as_int().unwrap_or(0);
            check::port_number(number, &path.field("port"), out);
            if let Some(end) = end {
                if end < number {
                    out.push(check::invalid_int(
                        &end_path,
                        number,
                        "must be greater than or equal to `port`",
                    ));
                }
                check::port_number(end, &end_path, out);
            }
        }
        (None, Some(end)) => {
            out.push(check::invalid_int(&end_path, end, "may not be specified when `port` is not specified"));
        }
        (None, None) => {}
    }
}

fn peer(one: &Value, path: &Path<'_>, out: &mut Problems) {
    let mut selects = false;
    for field in ["podSelector", "namespaceSelector"] {
        let selector = one.at(&[field]).filter(|it| !it.is_null());
        selects |= selector.is_some();
        scheduling::label_selector(selector, &path.field(field), out);
    }
    let block = one.at(&["ipBlock"]).filter(|it| !it.is_null());
    if let Some(block) = block {
        ip_block(block, &path.field("ipBlock"), out);
    }
    match (selects, block.is_some()) {
        (false, false) => out.push(Problem::required(path, "must specify a peer")),
        (true, true) => {
            out.push(Problem::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        _ => {}
    }
}

fn ip_block(block: &Value, path: &Path<'_>, out: &mut Problems) {
    let text = block.text(&["cidr"]);
    let cidr = path.field("cidr");
    if text.is_empty() {
        out.push(Problem::required(&cidr, ""));
        return;
    }
    let Some(range) = format::parse_cidr(text) else {
        out.push(Problem::invalid_text(&cidr, text, "not a valid CIDR"));
        return;
    };
    let except = path.field("except");
    for (at, text) in block.items(&["except"]).iter().map(read::text).enumerate() {
        let path = except.index(at);
        let Some(part) = format::parse_cidr(text) else {
            out.push(Problem::invalid_text(&path, text, "not a valid CIDR"));
            return;
        };
        if part.1 <= range.1 || network(part.0, range.1) != network(range.0, range.1) {
            out.push(Problem::invalid_text(&path, text, "must be a strict subset of `cidr`"));
        }
    }
}

/// The first bits of an address, with its family.
fn network(address: IpAddr, bits: u8) -> (bool, u128) {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(it) => {
            (true, u128::from(it.to_bits().checked_shr(32u32.saturating_sub(bits)).unwrap_or(0)))
        }
        IpAddr::V6(it) => (false, it.to_bits().checked_shr(128u32.saturating_sub(bits)).unwrap_or(0)),
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let selector = format_selector(object.at(&["spec", "podSelector"]));
    vec![metadata::name(object), metadata::or(&selector, "<none>"), metadata::age(object, now)]
}

/// A selector as people write it, by key.
fn format_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let labels = read::map(selector, &["matchLabels"]).iter();
    let mut parts: Vec<_> =
        labels.map(|(key, value)| (key.to_owned(), format!("{key}={}", read::text(value)))).collect();
    for one in selector.items(&["matchExpressions"]) {
        let key = one.text(&["key"]);
        let mut values: Vec<_> = one.items(&["values"]).iter().map(read::text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let formatted = match one.text(&["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), formatted));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, formatted)| formatted).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn exceptions_lie_within_their_block() {
        let check = |cidr: &str, except: &str, fine: bool| {
            let block = json(&format!(r#"{{"cidr":"{cidr}","except":["{except}"]}}"#));
            let mut out = Problems::new();
            ip_block(&block, &Path::ROOT.field("ipBlock"), &mut out);
            assert_eq!(out.is_empty(), fine, "{cidr} {except}: {:?}", problems(&out));
        };
        check("10.0.0.0/8", "10.1.0.0/16", true);
        check("0.0.0.0/0", "10.1.0.0/16", true);
        check("::/0", "fd00::/8", true);
        check("10.0.0.0/8", "10.0.0.0/8", false);
        check("10.0.0.0/8", "11.0.0.0/16", false);
        check("::/0", "10.0.0.0/8", false);
    }

    #[test]
    fn selectors_are_formatted_by_key() {
        let selector = json(
            r#"{"matchLabels":{"b":"1"},"matchExpressions":[{"key":"c","operator":"In","values":["y","x"]},
                {"key":"a","operator":"DoesNotExist"}]}"#,
        );
        assert_eq!(format_selector(Some(&selector)), "!a,b=1,c in (x,y)");
        assert_eq!(format_selector(Some(&json("{}"))), "");
    }
}
