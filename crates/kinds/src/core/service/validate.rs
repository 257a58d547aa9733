//! Validation of services, one function for each group of fields, in the order of the reported problems.

use super::families::{self, ADDRESSES, FAMILIES, POLICY};
use super::service_type::{
    has_internal_traffic, kind, needs_address, needs_health_port, needs_node_ports, same, texts,
};
use crate::check::{self, Problems};
use crate::read;
use rest::hooks::Context;
use schema::problem::{Problem, Reason};
use schema::table::Format;
use schema::{Path, Value, format};
use std::collections::HashSet;
use std::net::IpAddr;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const TRAFFIC: &[&str] = &["Cluster", "Local"];
const NODE_AGENT_PORT: i64 = 10250;
const MOST_AFFINITY_SECONDS: i64 = 86_400;

/// Names become host names: the older, stricter form of a label.
pub(crate) fn name(name: &str, prefix: bool) -> Vec<String> {
    let name = if prefix { name.strip_suffix('-').filter(|it| !it.is_empty()).unwrap_or(name) } else { name };
    check::why(Format::Dns1035Label, name)
}

pub(super) fn create(object: &Value, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    validate(object, context, &mut out);
    out
}

fn validate(object: &Value, context: &Context<'_>, out: &mut Problems) {
    let spec = Path::ROOT.field("spec");
    by_type(object, &spec, out);
    ports(object, &spec, out);
    if let Some(selector) = object.at(&["spec", "selector"]) {
        check::labels(selector, &spec.field("selector"), out);
    }
    affinity(object, &spec, out);
    out.extend(families::related(object));
    external_addresses(object, &spec.field("externalIPs"), out);
    check::one_of(kind(object), TYPES, &spec.field("type"), out);
    node_ports(object, &spec, out);
    repeated_ports(object, &spec, out);
    source_ranges(object, context, &spec, out);
    balancer_fields(object, &spec, out);
    balancer_class(object, &spec, out);
    external_traffic(object, &spec, out);
    let path = spec.field("internalTrafficPolicy");
    match read::opt_text(object, &["spec", "internalTrafficPolicy"]) {
        None if has_internal_traffic(object) => out.push(Problem::required(&path, "")),
        Some(policy) if !TRAFFIC.contains(&policy) => out.push(check::unsupported(&path, policy, TRAFFIC)),
        _ => {}
    }
}

fn by_type(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let headless = families::is_headless(object);
    if object.items(&["spec", "ports"]).is_empty() && !headless && needs_address(object) {
        out.push(Problem::required(&spec.field("ports"), ""));
    }
    match kind(object) {
        kind @ ("LoadBalancer" | "NodePort") => {
            let path = spec.field("ports");
            let exposed = object.items(&["spec", "ports"]).iter().enumerate();
            for (at, _) in exposed
                .filter(|(_, port)| kind == "LoadBalancer" && read::int(port, &["port"]) == NODE_AGENT_PORT)
            {
                let why =
                    format!("may not expose port {NODE_AGENT_PORT} externally since it is used by kubelet");
                out.push(check::invalid_int(&path.index(at), NODE_AGENT_PORT, &why));
            }
            if headless {
                let why = format!("may not be set to 'None' for {kind} services");
                out.push(Problem::invalid_text(&spec.field("clusterIPs").index(0), families::NONE, &why));
            }
        }
        "ExternalName" => {
            for (path, field) in
                [(ADDRESSES, "clusterIPs"), (FAMILIES, "ipFamilies"), (POLICY, "ipFamilyPolicy")]
            {
                let given = object.at(path).is_some_and(|it| match it {
                    Value::List(items) => !items.is_empty(),
                    other => !other.is_null(),
                });
                if given {
                    let why = "may not be set for ExternalName services";
                    out.push(Problem::forbidden(&spec.field(field), why));
                }
            }
            let path = spec.field("externalName");
            let name = object.text(&["spec", "externalName"]);
            match name.strip_suffix('.').unwrap_or(name) {
                "" => out.push(Problem::required(&path, "")),
                name => check::subdomain(name, &path, out),
            }
        }
        _ => {}
    }
}

fn ports(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("ports");
    let ports = object.items(&["spec", "ports"]);
    let mut names = HashSet::new();
    for (at, port) in ports.iter().enumerate() {
        let path = path.index(at);
        match port.text(&["name"]) {
            "" if ports.len() > 1 => out.push(Problem::required(&path.field("name"), "")),
            "" => {}
            name => {
                check::label(name, &path.field("name"), out);
                if !names.insert(name) {
                    out.push(check::duplicate_text(&path.field("name"), name));
                }
            }
        }
        check::port_number(read::int(port, &["port"]), &path.field("port"), out);
        check::one_of(port.text(&["protocol"]), PROTOCOLS, &path.field("protocol"), out);
        check::port(port.at(&["targetPort"]), &path.field("targetPort"), out);
        if let Some(protocol) = read::opt_text(port, &["appProtocol"]) {
            check::qualified_name(protocol, &path.field("appProtocol"), out);
        }
    }
}

fn affinity(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let affinity = object.text(&["spec", "sessionAffinity"]);
    check::one_of(affinity, &["ClientIP", "None"], &spec.field("sessionAffinity"), out);
    let path = spec.field("sessionAffinityConfig");
    let config = object.at(&["spec", "sessionAffinityConfig"]).filter(|it| !it.is_null());
    match (affinity, config) {
        ("ClientIP", Some(config)) => {
            const WHY: &str = "when session affinity type is ClientIP";
            let path = path.field("clientIP");
            if !read::has(config, &["clientIP"]) {
                out.push(Problem::required(&path, WHY));
                return;
            }
            let path = path.field("timeoutSeconds");
            match read::opt_int(config, &["clientIP", "timeoutSeconds"]) {
                None => out.push(Problem::required(&path, WHY)),
                Some(seconds) if !(1..=MOST_AFFINITY_SECONDS).contains(&seconds) => {
                    let why = format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}");
                    out.push(check::invalid_int(&path, seconds, &why));
                }
                Some(_) => {}
            }
        }
        ("ClientIP", None) => {
            out.push(Problem::required(&path, "when session affinity type is ClientIP"));
        }
        ("None", Some(_)) => {
            out.push(Problem::forbidden(&path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
}

fn external_addresses(object: &Value, path: &Path<'_>, out: &mut Problems) {
    for (at, text) in object.items(&["spec", "externalIPs"]).iter().map(read::text).enumerate() {
        let path = path.index(at);
        let why = format::ip(text);
        if why.is_empty() {
            ordinary_address(text, &path, out);
        }
        out.extend(why.iter().map(|why| Problem::invalid_text(&path, text, why)));
    }
}

/// An address that traffic can be sent to from elsewhere.
pub(crate) fn ordinary_address(text: &str, path: &Path<'_>, out: &mut Problems) {
    let mut refuse = |why: &str| out.push(Problem::invalid_text(path, text, why));
    let Some(address) = format::parse_ip(text) else {
        return refuse("must be a valid IP address");
    };
    if address.is_unspecified() {
        refuse(&format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(it) => (it.is_link_local(), it.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(it) => (it.is_unicast_link_local(), it.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn node_ports(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("ports");
    let with_node_port = || {
        let ports = object.items(&["spec", "ports"]).iter().enumerate();
        ports.filter(|(_, port)| read::int(port, &["nodePort"]) != 0)
    };
    if kind(object) == "ClusterIP" {
        for (at, _) in with_node_port() {
            let why = "may not be used when `type` is 'ClusterIP'";
            out.push(Problem::forbidden(&path.index(at).field("nodePort"), why));
        }
    }
    let mut seen = HashSet::new();
    for (at, port) in with_node_port() {
        let node_port = read::int(port, &["nodePort"]);
        if !seen.insert((port.text(&["protocol"]), node_port)) {
            out.push(Problem::duplicate(&path.index(at).field("nodePort"), &Value::Int(node_port)));
        }
    }
}

fn repeated_ports(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("ports");
    let mut seen = HashSet::new();
    for (at, port) in object.items(&["spec", "ports"]).iter().enumerate() {
        let (protocol, number) = (port.text(&["protocol"]), read::int(port, &["port"]));
        if !seen.insert((protocol, number)) {
            // shown as the servers that clients know print it
            let message = format!(
                "Duplicate value: core.ServicePort{{Name:\"\", Protocol:{protocol:?}, \
                 AppProtocol:(*string)(nil), Port:{number}, TargetPort:intstr.IntOrString{{Type:0, IntVal:0, \
                 StrVal:\"\"}}, NodePort:0}}"
            );
            out.push(Problem { reason: Reason::Duplicate, field: path.index(at).to_string(), message });
        }
    }
}

/// Checks the source ranges of a load balancer: the field, or the older annotation.
fn source_ranges(object: &Value, context: &Context<'_>, spec: &Path<'_>, out: &mut Problems) {
    let key = format!("service.beta.{}/load-balancer-source-ranges", context.names.well_known_domain);
    let ranges = texts(object, &["spec", "loadBalancerSourceRanges"]);
    let annotation = read::opt_text(object, &["metadata", "annotations", &key]);
    let metadata = Path::ROOT.field("metadata");
    let annotations = metadata.field("annotations");
    let (path, formatted, sound) = match annotation {
        _ if !ranges.is_empty() => {
            let sound = ranges.iter().all(|it| format::parse_cidr(it.trim()).is_some());
            (spec.field("LoadBalancerSourceRanges"), format!("[{}]", ranges.join(" ")), sound)
        }
        Some(text) => {
            let given = text.trim();
            let sound =
                given.is_empty() || given.split(',').all(|it| format::parse_cidr(it.trim()).is_some());
            (annotations.key(&key), text.to_owned(), sound)
        }
        None => return,
    };
    if kind(object) != "LoadBalancer" {
        out.push(Problem::forbidden(&path, "may only be used when `type` is 'LoadBalancer'"));
    }
    if !sound {
        let why = "must be a list of IP ranges. For example, 10.240.0.0/24,10.250.0.0/24 ";
        out.push(Problem::invalid_text(&path, &formatted, why));
    }
}

fn balancer_fields(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("allocateLoadBalancerNodePorts");
    let given = read::has(object, &["spec", "allocateLoadBalancerNodePorts"]);
    match (kind(object) == "LoadBalancer", given) {
        (false, true) => {
            out.push(Problem::forbidden(&path, "may only be used when `type` is 'LoadBalancer'"));
        }
        (true, false) => {
            out.push(Problem::required(&path, "field is required when `type` is 'LoadBalancer'"));
        }
        _ => {}
    }
}

fn balancer_class(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("loadBalancerClass");
    match read::opt_text(object, &["spec", "loadBalancerClass"]) {
        Some(class) if kind(object) == "LoadBalancer" => check::qualified_name(class, &path, out),
        Some(_) => out.push(Problem::forbidden(&path, "may only be used when `type` is 'LoadBalancer'")),
        None => {}
    }
}

fn external_traffic(object: &Value, spec: &Path<'_>, out: &mut Problems) {
    let path = spec.field("externalTrafficPolicy");
    let policy = object.text(&["spec", "externalTrafficPolicy"]);
    if needs_node_ports(object) {
        check::one_of(policy, TRAFFIC, &path, out);
    } else if !policy.is_empty() {
        let why = "may only be set when `type` is 'NodePort' or 'LoadBalancer'";
        out.push(Problem::invalid_text(&path, policy, why));
    }
    let path = spec.field("healthCheckNodePort");
    match read::int(object, &["spec", "healthCheckNodePort"]) {
        0 if needs_health_port(object) => out.push(Problem::required(&path, "")),
        0 => {}
        port if needs_health_port(object) => check::port_number(port, &path, out),
        port => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            out.push(check::invalid_int(&path, port, why));
        }
    }
}

pub(super) fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    if needs_address(new) && needs_address(old) {
        let headless = [new, old].map(families::is_headless);
        if headless != [true, true] {
            kept(new, old, &CLUSTER_ADDRESSES, &mut out);
        }
        if headless == [false, false] {
            kept(new, old, &ADDRESS_FAMILIES, &mut out);
        }
    }
    let both_balanced = [new, old].iter().all(|it| kind(it) == "LoadBalancer");
    if both_balanced && !same(new, old, &["spec", "loadBalancerClass"]) {
        let class = read::opt_text(new, &["spec", "loadBalancerClass"]).unwrap_or("null");
        out.push(Problem::invalid_text(&spec.field("loadBalancerClass"), class, "may not change once set"));
    }
    balancer_class(new, &spec, &mut out);
    let changed = !same(new, old, &["spec", "healthCheckNodePort"]);
    if needs_health_port(new) && needs_health_port(old) && changed {
        out.push(Problem::forbidden(&spec.field("healthCheckNodePort"), "field is immutable"));
    }
    out
}

/// A list of one or two of which the first never changes.
struct ImmutableField {
    path: &'static [&'static str],
    field: &'static str,
    type_name: &'static str,
    name: &'static str,
    /// Clients know all changes of some as changes of the first.
    reported_as_first: bool,
}

const CLUSTER_ADDRESSES: ImmutableField = ImmutableField {
    path: ADDRESSES,
    field: "clusterIPs",
    type_name: "string",
    name: "clusterIP",
    reported_as_first: false,
};
const ADDRESS_FAMILIES: ImmutableField = ImmutableField {
    path: FAMILIES,
    field: "ipFamilies",
    type_name: "core.IPFamily",
    name: "ipFamily",
    reported_as_first: true,
};

fn kept(new: &Value, old: &Value, what: &ImmutableField, out: &mut Problems) {
    let spec = Path::ROOT.field("spec");
    let path = spec.field(what.field);
    let (is, was) = (new.items(what.path), old.items(what.path));
    let formatted = check::format_texts(is).replacen("string", what.type_name, 1);
    let mut refuse =
        |at: usize, why: &str| out.push(check::invalid_formatted(&path.index(at), &formatted, why));
    const CHANGED: &str = "may not change once set";
    if is.len() == was.len() {
        for at in (0..is.len()).filter(|at| is[*at] != was[*at]) {
            refuse(if what.reported_as_first { 0 } else { at }, CHANGED);
        }
        return;
    }
    if is.is_empty() {
        refuse(0, &format!("primary {} can not be unset", what.name));
    }
    if let (Some(is), Some(was)) = (is.first(), was.first())
        && is != was
    {
        refuse(0, CHANGED);
    }
    let policy = new.text(POLICY);
    if was.len() > is.len() && is.len() == 1 && policy != "SingleStack" {
        let why = format!("must be set to 'SingleStack' when releasing the secondary {}", what.name);
        out.push(Problem::invalid_text(&spec.field("ipFamilyPolicy"), policy, &why));
    }
}

pub(super) fn status(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    load_balancer(new, &mut out);
    out
}

/// Checks the ingress addresses of a load balancer.
pub(crate) fn load_balancer(object: &Value, out: &mut Problems) {
    let status = Path::ROOT.field("status");
    let path = status.field("loadBalancer");
    let path = path.field("ingress");
    for (at, one) in object.items(&["status", "loadBalancer", "ingress"]).iter().enumerate() {
        let path = path.index(at);
        let (ip, hostname) = (one.text(&["ip"]), one.text(&["hostname"]));
        if !ip.is_empty() && format::parse_ip(ip).is_none() {
            out.push(Problem::invalid_text(&path.field("ip"), ip, "must be a valid IP address"));
        }
        if !hostname.is_empty() {
            check::subdomain(hostname, &path.field("hostname"), out);
            if format::parse_ip(hostname).is_some() {
                let why = "must be a DNS name, not an IP address";
                out.push(Problem::invalid_text(&path.field("hostname"), hostname, why));
            }
        }
    }
}
