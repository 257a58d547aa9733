//! The URL at which a request ends, from the objects that it names. Pure.

use super::container;
use super::options::Options;
use rest::ApiError;
use rest::options::Query;
use schema::Value;
use schema::problem::quoted;
use std::net::IpAddr;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub scheme: &'static str,
    /// Host and port, or a host alone.
    pub authority: String,
    /// Path and query, not of a proxy.
    pub path: String,
    /// Whether the server there is the agent of a node.
    pub is_agent: bool,
}

/// Scheme, name and port in the name of a proxied object, such as `https:web:8443`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyName<'a> {
    pub scheme: &'static str,
    pub name: &'a str,
    pub port: &'a str,
}

impl<'a> ProxyName<'a> {
    /// `kind` is the kind in lower case, for the error.
    pub fn parse(text: &'a str, kind: &str) -> Result<Self, ApiError> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            [name] => Some(("http", name, "")),
            [name, port] => Some(("http", name, port)),
            ["" | "http", name, port] => Some(("http", name, port)),
            ["https", name, port] => Some(("https", name, port)),
            _ => None,
        };
        // the port becomes a part of a URL: nothing in it may separate the parts of one
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let parsed = parsed.filter(|(_, name, port)| !name.is_empty() && is_port(port));
        let (scheme, name, port) = parsed
            .ok_or_else(|| ApiError::bad_request(format!("invalid {kind} request {}", quoted(text))))?;
        Ok(ProxyName { scheme, name, port })
    }
}

pub fn host_port(host: &str, port: impl std::fmt::Display) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// The address of the agent of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    /// `http` within this process, where no network is between the two.
    pub scheme: &'static str,
    pub host: String,
    pub port: u16,
}

impl AgentAddress {
    /// The location of a path at the agent.
    pub fn location(&self, path: String) -> Location {
        let authority = host_port(&self.host, self.port);
        Location { scheme: self.scheme, authority, path, is_agent: true }
    }
}

/// The address of the agent of a node.
pub fn agent(node: &Value, options: &Options) -> Result<AgentAddress, ApiError> {
    let port = node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_int);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let port = port.unwrap_or(options.port);
    let name = node.text(&["metadata", "name"]);
    if options.in_process.as_ref().is_some_and(|it| it.contains(name)) {
        return Ok(AgentAddress { scheme: "http", host: name.to_owned(), port });
    }
    let addresses = node.items(&["status", "addresses"]);
    let by_type = |kind: &String| addresses.iter().find(|it| it.text(&["type"]) == kind);
    let host = options.preferred_address_types.iter().find_map(by_type).map(|it| it.text(&["address"]));
    let Some(host) = host else {
        // as upstream prints its list of addresses
        let each = addresses.iter().map(|it| format!("{{{} {}}}", it.text(&["type"]), it.text(&["address"])));
        let each: Vec<String> = each.collect();
        let message = format!("no preferred addresses found; known addresses: [{}]", each.join(" "));
        return Err(ApiError::internal(message));
    };
    if !is_host(host) {
        // a node reports its own address: it must not lead to a path of its choice at another server
        return Err(ApiError::internal(format!("{} of node {} is no address", quoted(host), quoted(name))));
    }
    Ok(AgentAddress { scheme: "https", host: host.to_owned(), port })
}

/// Whether a text is an address or a host name, and nothing more.
fn is_host(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    text.parse::<IpAddr>().is_ok() || !text.is_empty() && text.bytes().all(is_part)
}

/// The name of the node of a pod.
pub fn node_of(pod: &Value) -> Option<&str> {
    Some(pod.text(&["spec", "nodeName"])).filter(|name| !name.is_empty())
}

/// The path of exec or attach at the agent.
pub fn command_path(pod: &Value, subresource: &str, query: &Query) -> Result<String, ApiError> {
    let container = container::resolve(query.get("container").unwrap_or(""), pod)?;
    let mut params = Vec::new();
    for (option, parameter) in [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")]
    {
        if query.flag(option) {
            params.push((parameter, "1"));
        }
    }
    if subresource == "exec" {
        params.extend(query.all("command").map(|word| ("command", word)));
    }
    params.sort_by_key(|(key, _)| *key);
    Ok(format!("/{subresource}/{}/{container}{}", path_of(pod), encode_query(&params)))
}

/// The path of port forwarding at the agent.
pub fn port_forward_path(pod: &Value, query: &Query) -> String {
    let ports: Vec<&str> = query.all("ports").collect();
    let params = if ports.is_empty() { Vec::new() } else { vec![("port", ports.join(","))] };
    let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (*key, value.as_str())).collect();
    format!("/portForward/{}{}", path_of(pod), encode_query(&params))
}

/// Namespace and name of a pod.
pub fn path_of(pod: &Value) -> String {
    format!("{}/{}", pod.text(&["metadata", "namespace"]), pod.text(&["metadata", "name"]))
}

/// A query with its question mark, or nothing.
pub fn encode_query(params: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={}", escape(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Escapes a value of a query.
fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            // writing to a string cannot fail
            _ => drop(write!(out, "%{byte:02X}")),
        }
        out
    })
}

/// The address of a proxied pod.
pub fn pod_address(pod: &Value, port: &str) -> Result<String, ApiError> {
    let first_port = || {
        let containers = pod.items(&["spec", "containers"]).iter();
        let mut ports = containers.filter_map(|it| it.items(&["ports"]).first());
        ports.next().and_then(|it| it.at(&["containerPort"])).and_then(Value::as_int).map(|it| it.to_string())
    };
    let port = if port.is_empty() { first_port() } else { Some(port.to_owned()) };
    let ip = pod.items(&["status", "podIPs"]).first().map_or("", |it| it.text(&["ip"]));
    let ip = if ip.is_empty() { pod.text(&["status", "podIP"]) } else { ip };
    if !ip.parse::<IpAddr>().is_ok_and(is_global_unicast) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    Ok(match port {
        Some(port) => host_port(ip, port),
        None if ip.contains(':') => format!("[{ip}]"),
        None => ip.to_owned(),
    })
}

/// Whether an address may be proxied to: no loopback, no link-local, no multicast. An address of IPv4 is the same one if it
/// is mapped into IPv6.
pub fn is_global_unicast(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    };
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast() && !is_link_local
}

/// The name of the port of a service: a number is looked up, a name is taken as it is.
pub fn service_port_name<'a>(service: &'a Value, name: &str, port: &'a str) -> Result<&'a str, ApiError> {
    let Ok(number) = port.parse::<i64>() else { return Ok(port) };
    let mut ports = service.items(&["spec", "ports"]).iter();
    let found = ports.find(|it| it.at(&["port"]).and_then(Value::as_int) == Some(number));
    found.map(|it| it.text(&["name"])).ok_or_else(|| {
        ApiError::unavailable(format!("no service port {number} found for service {}", quoted(name)))
    })
}

/// Addresses of a port of a service that are pods of its namespace; `is_pod` checks name and address.
pub fn endpoint_addresses(
    endpoints: &Value,
    port: &str,
    is_pod: impl Fn(&str, &str, &str) -> bool,
) -> Vec<String> {
    let subsets = endpoints.items(&["subsets"]).iter();
    let each = subsets.flat_map(|subset| {
        let mut ports = subset.items(&["ports"]).iter();
        let number = ports.find(|it| it.text(&["name"]) == port).and_then(|it| it.at(&["port"]));
        let number = number.and_then(Value::as_int);
        let addresses = subset.items(&["addresses"]).iter();
        addresses.filter_map(move |it| Some((it, number?)))
    });
    let pods = each.filter(|(it, _)| {
        let target = |field: &'static str| it.text(&["targetRef", field]);
        is_pod(target("namespace"), target("name"), it.text(&["ip"]))
    });
    pods.map(|(it, number)| host_port(it.text(&["ip"]), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).unwrap().value
    }

    #[test]
    fn names_carry_scheme_and_port() {
        let parse = |text| ProxyName::parse(text, "pod").map(|it| (it.scheme, it.name, it.port));
        assert_eq!(parse("a").unwrap(), ("http", "a", ""));
        assert_eq!(parse("a:80").unwrap(), ("http", "a", "80"));
        assert_eq!(parse("https:a:").unwrap(), ("https", "a", ""));
        assert_eq!(parse("a:web-1").unwrap(), ("http", "a", "web-1"));
        for bad in ["ftp:a:1", "a:80@localhost", "a:80/x", "a:80?", "a:8 0", "a:[::1]"] {
            let expected = format!("invalid pod request {bad:?}");
            assert_eq!(parse(bad).unwrap_err().message, expected);
        }
    }

    #[test]
    fn the_preferred_address_of_a_node_is_used() {
        let node = value(
            r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"n"}],
               "daemonEndpoints":{"kubeletEndpoint":{"Port":10350}}}}"#,
        );
        let expected = AgentAddress { scheme: "https", host: "n".to_owned(), port: 10350 };
        assert_eq!(agent(&node, &Options::default()).unwrap(), expected);
        let preferred_address_types = vec!["ExternalIP".to_owned()];
        let none = agent(&node, &Options { preferred_address_types, ..Options::default() }).unwrap_err();
        let expected = "no preferred addresses found; known addresses: [{InternalIP 10.0.0.1} {Hostname n}]";
        assert_eq!((none.code, none.message.as_str()), (500, expected));
    }

    #[test]
    fn the_address_of_a_node_is_a_host_alone() {
        let host = |address: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"n"}},"status":{{"addresses":[{{"type":"InternalIP","address":"{address}"}}]}}}}"#
            );
            agent(&value(&text), &Options::default()).map(|it| it.host)
        };
        for good in ["10.0.0.1", "fd00::1", "node-1.example.com", "node_1", "localhost."] {
            assert_eq!(host(good).unwrap(), good);
        }
        for bad in ["", "10.0.0.1:80", "10.0.0.1/exec", "x@10.0.0.1", "a#", "a?b", "a b", "[::1]", "%31"] {
            assert_eq!(host(bad).unwrap_err().message, format!("{bad:?} of node \"n\" is no address"));
        }
    }

    #[test]
    fn options_become_parameters_of_the_agent() {
        let pod = value(r#"{"metadata":{"name":"p","namespace":"d"},"spec":{"containers":[{"name":"c"}]}}"#);
        let query = Query::parse("stdin=true&stdout=true&command=sh&command=-c&command=echo%20a%26b");
        assert_eq!(
            command_path(&pod, "exec", &query).unwrap(),
            "/exec/d/p/c?command=sh&command=-c&command=echo+a%26b&input=1&output=1"
        );
        assert_eq!(command_path(&pod, "attach", &query).unwrap(), "/attach/d/p/c?input=1&output=1");
        assert_eq!(port_forward_path(&pod, &Query::parse("ports=1&ports=2")), "/portForward/d/p?port=1%2C2");
    }

    #[test]
    fn proxied_addresses_are_checked() {
        let pod = |ip: &str| {
            let text = format!(
                r#"{{"spec":{{"containers":[{{"name":"a"}},{{"ports":[{{"containerPort":81}}]}}]}},"status":{{"podIP":"{ip}"}}}}"#
            );
            value(&text)
        };
        assert_eq!(pod_address(&pod("10.1.1.1"), "").unwrap(), "10.1.1.1:81");
        assert_eq!(pod_address(&pod("fd00::1"), "9").unwrap(), "[fd00::1]:9");
        for bad in [
            "127.0.0.1",
            "169.254.1.1",
            "",
            "::1",
            "224.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
        ] {
            assert_eq!(pod_address(&pod(bad), "9").unwrap_err().message, "address not allowed", "{bad}");
        }
    }

    #[test]
    fn services_lead_to_their_pods() {
        let service = value(r#"{"spec":{"ports":[{"name":"web","port":80}]}}"#);
        assert_eq!(service_port_name(&service, "s", "80").unwrap(), "web");
        assert_eq!(service_port_name(&service, "s", "web").unwrap(), "web");
        let none = service_port_name(&service, "s", "81").unwrap_err();
        assert_eq!((none.code, none.message.as_str()), (503, "no service port 81 found for service \"s\""));
        let endpoints = value(
            r#"{"subsets":[{"addresses":[{"ip":"10.1.1.1","targetRef":{"namespace":"d","name":"p"}},{"ip":"10.1.1.2"}],
               "ports":[{"name":"web","port":8080}]}]}"#,
        );
        let found =
            endpoint_addresses(&endpoints, "web", |namespace, name, _| (namespace, name) == ("d", "p"));
        assert_eq!(found, ["10.1.1.1:8080"]);
    }
}
