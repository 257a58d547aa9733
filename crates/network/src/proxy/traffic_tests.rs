//! Real connections through the rules, between network namespaces: pods of this node (10.1.0.2 and 10.1.0.3), a pod of
//! another node (10.1.1.2) and a machine outside (192.168.1.2). The test's own namespace is the node, 192.168.1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::core::v1::Service;
use api::discovery::v1::EndpointSlice;
use names::Names;

use super::proxy_writer::ProxyWriter;
use super::rules::{LocalSource, RuleOptions};
use super::sctp_peer;
use super::state::{ProxyState, ServiceKey};
use super::testing::{NODE, ServiceBuilder, endpoint, service, slice};
use crate::netfilter::Family;
use crate::netfilter::testing::{in_namespace, run};

const PEER: &str = "PINTLE_TEST_PEER";
/// This long without an answer means that packets are dropped. A rejection that arrives while the client's system call
/// still holds the socket takes effect at the second attempt only, a second later.
const TIMEOUT: Duration = Duration::from_millis(2500);

/// The servers and clients of the tests below, in processes of other namespaces. Without a request it does nothing.
#[test]
fn peer_process() {
    let Ok(request) = std::env::var(PEER) else { return };
    match request.split(' ').collect::<Vec<_>>()[..] {
        ["serve", protocol, address, port] => serve(protocol, address, port.parse().unwrap()),
        ["connect", protocol, address, port] => println!("\nANSWER {}", connect(protocol, address, port)),
        _ => panic!("{request}"),
    }
}

/// Answers with the address of the client.
fn serve(protocol: &str, address: &str, port: u16) {
    let address: IpAddr = address.parse().unwrap();
    if protocol == "sctp" {
        return sctp_peer::serve(address, port);
    }
    if protocol == "udp" {
        let socket = UdpSocket::bind((address, port)).unwrap();
        println!("\nREADY");
        let mut buffer = [0; 64];
        loop {
            let (_, client) = socket.recv_from(&mut buffer).unwrap();
            let _ = socket.send_to(format!("{address} saw {}", client.ip()).as_bytes(), client);
        }
    }
    let listener = TcpListener::bind((address, port)).unwrap();
    println!("\nREADY");
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let client = stream.peer_addr().unwrap().ip();
        let _ = stream.write_all(format!("{address} saw {client}").as_bytes());
    }
}

/// The answer of a server, or how it is missing.
fn connect(protocol: &str, address: &str, port: &str) -> String {
    let address: IpAddr = address.parse().unwrap();
    let to = (address, port.parse().unwrap());
    let outcome = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "refused".to_owned(),
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => "timeout".to_owned(),
        _ => error.to_string(),
    };
    let mut text = String::new();
    if protocol == "sctp" {
        return sctp_peer::connect(address, to.1, TIMEOUT);
    }
    if protocol == "udp" {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(to).unwrap();
        let mut buffer = [0; 64];
        let answer = socket.send(b"?").and_then(|_| socket.recv(&mut buffer));
        return answer.map_or_else(outcome, |length| String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    let stream = TcpStream::connect_timeout(&to.into(), TIMEOUT);
    match stream.and_then(|mut stream| stream.read_to_string(&mut text)) {
        Ok(_) => text,
        Err(error) => outcome(error),
    }
}

/// A process in a namespace.
fn spawn(namespace: &str, request: &str) -> Child {
    let exe = std::env::current_exe().unwrap();
    let module = module_path!().split_once("::").unwrap().1;
    let mut command = match namespace {
        "node" => Command::new(exe),
        _ => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(exe);
            command
        }
    };
    command.args(["--exact", &format!("{module}::peer_process"), "--nocapture"]);
    command.env(PEER, request).stdout(Stdio::piped()).spawn().unwrap()
}

/// The processes of a test, which end with it.
pub(crate) struct Network {
    servers: Vec<Child>,
    state: ProxyState,
    writer: ProxyWriter,
}

impl Drop for Network {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn set(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

impl Network {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl Fn(&mut RuleOptions)) -> Self {
        // names of namespaces are files, of this test alone
        run("mount", "-t tmpfs tmpfs /run");
        set("ipv6/conf/default/accept_dad", "0");
        set("ipv4/ip_forward", "1");
        // a redirect would count against the limit of rejections
        set("ipv4/conf/all/send_redirects", "0");
        set("ipv4/conf/default/send_redirects", "0");
        set("ipv6/conf/all/forwarding", "1");
        set("ipv4/conf/all/route_localnet", "1");
        for (name, ipv4, ipv6) in [
            ("pod1", "10.1.0.2", "fd01::2"),
            ("pod2", "10.1.0.3", "fd01::3"),
            ("remote", "10.1.1.2", "fd01:1::2"),
            ("outside", "192.168.1.2", "fd02::2"),
        ] {
            let (gateway, gateway6) = match name {
                "outside" => ("192.168.1.1", "fd02::1"),
                _ => ("10.1.0.1", "fd01::1"),
            };
            run("ip", &format!("netns add {name}"));
            // addresses are usable at once
            let disable = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
            let status = Command::new("ip").args(["netns", "exec", name, "sh", "-c", disable]).status();
            assert!(status.unwrap().success());
            run("ip", &format!("link add {name} type veth peer name eth0 netns {name}"));
            run("ip", &format!("link set {name} up"));
            run("ip", &format!("addr add {gateway}/32 dev {name}"));
            run("ip", &format!("-6 addr add {gateway6}/128 dev {name} nodad"));
            run("ip", &format!("route add {ipv4}/32 dev {name}"));
            run("ip", &format!("-6 route add {ipv6}/128 dev {name}"));
            let inside = |command: &str| run("ip", &format!("-n {name} {command}"));
            inside("link set lo up");
            inside("link set eth0 up");
            inside(&format!("addr add {ipv4}/32 dev eth0"));
            inside(&format!("-6 addr add {ipv6}/128 dev eth0 nodad"));
            inside(&format!("route add {gateway}/32 dev eth0"));
            inside(&format!("route add default via {gateway} src {ipv4}"));
            inside(&format!("-6 route add {gateway6}/128 dev eth0"));
            inside(&format!("-6 route add default via {gateway6} src {ipv6}"));
        }
        // a node has a route for every destination
        run("ip", "route add default via 192.168.1.2 dev outside onlink");
        run("ip", "-6 route add default via fd02::2 dev outside onlink");
        let options = |family, pods: &str| {
            let local_source = Some(LocalSource::Network(pods.parse().unwrap()));
            let mut options = RuleOptions { local_source, ..RuleOptions::new(family) };
            change(&mut options);
            options
        };
        let both = vec![options(Family::Ipv4, "10.1.0.0/24"), options(Family::Ipv6, "fd01::/64")];
        let mut state = ProxyState::new(Names::kubernetes(), NODE, both);
        state.set_node(None, vec![[192, 168, 1, 1].into()]);
        Self { servers: Vec::new(), state, writer: ProxyWriter::open().unwrap() }
    }

    pub(crate) fn serve(&mut self, namespace: &str, protocol: &str, address: &str, port: u16) {
        let mut child = spawn(namespace, &format!("serve {protocol} {address} {port}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "READY"), "the server in {namespace} ended");
        self.servers.push(child);
    }

    pub(super) fn apply(&mut self, service: &Service, slice: &EndpointSlice) {
        let key: ServiceKey = format!("default/{}", service.metadata.name).into();
        self.state.set_service(&key, Some(service));
        self.state.set_slice(slice, false);
        let changes = self.state.sync();
        self.writer.write(&self.state, &changes).unwrap();
    }

    /// The answer to a client in a namespace: the server's address, and that of the client as the server sees it.
    pub(crate) fn ask(&self, namespace: &str, protocol: &str, address: &str, port: u16) -> String {
        let child = spawn(namespace, &format!("connect {protocol} {address} {port}"));
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let answer = text.lines().find_map(|line| line.strip_prefix("ANSWER "));
        answer.unwrap_or_else(|| panic!("no answer in {text}")).to_owned()
    }
}

fn web() -> Service {
    service("web", "10.96.0.1", 80, "TCP")
}

fn endpoints(addresses: &[&str]) -> EndpointSlice {
    let node = |address: &&str| if address.starts_with("10.1.0.") { NODE } else { "other" };
    let all = addresses.iter().map(|address| endpoint(address, node(address), true, false));
    slice("web", 8080, "TCP", all.collect())
}

#[test]
fn cluster_addresses_reach_all_endpoints() {
    in_namespace(module_path!(), "cluster_addresses_reach_all_endpoints", || {
        let mut network = Network::new();
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        network.apply(&web(), &endpoints(&["10.1.0.2", "10.1.1.2"]));
        // pods keep their address
        let expected = ["10.1.0.2 saw 10.1.0.3", "10.1.1.2 saw 10.1.0.3"];
        let mut found = std::collections::BTreeSet::new();
        for _ in 0..60 {
            let answer = network.ask("pod2", "tcp", "10.96.0.1", 80);
            assert!(expected.contains(&answer.as_str()), "{answer}");
            found.insert(answer);
            if found.len() == 2 {
                break;
            }
        }
        assert_eq!(found.len(), 2, "sixty connections went to one endpoint: {found:?}");
        // others get the node's, as answers have to come back through it
        network.apply(&web(), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "10.96.0.1", 80), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("node", "tcp", "10.96.0.1", 80), "10.1.1.2 saw 10.1.0.1");
        // an endpoint reaches itself
        network.apply(&web(), &endpoints(&["10.1.0.2"]));
        assert_eq!(network.ask("pod1", "tcp", "10.96.0.1", 80), "10.1.0.2 saw 10.1.0.1");
    });
}

#[test]
fn services_without_endpoints_refuse_connections() {
    in_namespace(module_path!(), "services_without_endpoints_refuse_connections", || {
        let mut network = Network::new();
        let service = web().external_ip("1.2.3.4").node_port(30000);
        network.apply(&service, &endpoints(&[]));
        assert_eq!(network.ask("pod1", "tcp", "10.96.0.1", 80), "refused");
        assert_eq!(network.ask("node", "tcp", "10.96.0.1", 80), "refused");
        assert_eq!(network.ask("outside", "tcp", "1.2.3.4", 80), "refused");
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "refused");
        let dns = service_udp();
        network.apply(&dns, &slice("dns", 53, "UDP", Vec::new()));
        assert_eq!(network.ask("pod1", "udp", "10.96.0.10", 53), "refused");
    });
}

fn service_udp() -> Service {
    service("dns", "10.96.0.10", 53, "UDP")
}

#[test]
fn node_ports_follow_the_external_policy() {
    in_namespace(module_path!(), "node_ports_follow_the_external_policy", || {
        let mut network = Network::new();
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        let cluster = || web().node_port(30000);
        network.apply(&cluster(), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("node", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("node", "tcp", "127.0.0.1", 30000), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("pod2", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.1");
        // the policy Local keeps the client's address
        let local = || cluster().external_local();
        network.apply(&local(), &endpoints(&["10.1.0.2", "10.1.1.2"]));
        for _ in 0..5 {
            assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "10.1.0.2 saw 192.168.1.2");
        }
        // without a local endpoint it drops traffic from outside; clients of the node reach the others
        network.apply(&local(), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "timeout");
        assert_eq!(network.ask("node", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("pod2", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.3");
    });
}

#[test]
fn node_ports_are_served_at_the_configured_addresses() {
    in_namespace(module_path!(), "node_ports_are_served_at_the_configured_addresses", || {
        let mut network = Network::with(|options| {
            if options.family == Family::Ipv4 {
                options.node_port_networks = vec!["10.1.0.0/24".parse().unwrap()];
                options.has_localhost_node_ports = false;
            }
        });
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        network.apply(&web().node_port(30000), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "10.1.0.1", 30000), "10.1.1.2 saw 10.1.0.1");
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "refused");
        assert_eq!(network.ask("node", "tcp", "127.0.0.1", 30000), "refused");
    });
}

#[test]
fn external_addresses_and_load_balancers_are_served() {
    in_namespace(module_path!(), "external_addresses_and_load_balancers_are_served", || {
        let mut network = Network::new();
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.apply(&web().external_ip("1.2.3.4"), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "1.2.3.4", 80), "10.1.1.2 saw 10.1.0.1");
        network.apply(&web().load_balancer("1.2.3.5", &[]), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "1.2.3.5", 80), "10.1.1.2 saw 10.1.0.1");
        // source ranges
        let ranged = |ranges: &[&str]| web().load_balancer("1.2.3.5", ranges).node_port(30000);
        network.apply(&ranged(&["10.0.0.0/8", "172.16.0.0/12"]), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("outside", "tcp", "1.2.3.5", 80), "timeout");
        assert_eq!(network.ask("pod2", "tcp", "1.2.3.5", 80), "10.1.1.2 saw 10.1.0.1");
        // node ports are not restricted
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30000), "10.1.1.2 saw 10.1.0.1");
        network.apply(&ranged(&["192.168.1.2/32"]).external_local(), &endpoints(&["10.1.0.2"]));
        assert_eq!(network.ask("outside", "tcp", "1.2.3.5", 80), "10.1.0.2 saw 192.168.1.2");
        assert_eq!(network.ask("pod2", "tcp", "1.2.3.5", 80), "timeout");
    });
}

#[test]
fn the_internal_policy_keeps_traffic_on_the_node() {
    in_namespace(module_path!(), "the_internal_policy_keeps_traffic_on_the_node", || {
        let mut network = Network::new();
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.apply(&web().internal_local(), &endpoints(&["10.1.0.2", "10.1.1.2"]));
        for _ in 0..5 {
            assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), "10.1.0.2 saw 10.1.0.3");
        }
        network.apply(&web().internal_local(), &endpoints(&["10.1.1.2"]));
        assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), "timeout");
    });
}

#[test]
fn terminating_endpoints_serve_until_there_are_others() {
    in_namespace(module_path!(), "terminating_endpoints_serve_until_there_are_others", || {
        let mut network = Network::new();
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        let draining = || endpoint("10.1.0.2", NODE, true, true);
        network.apply(&web(), &slice("web", 8080, "TCP", vec![draining()]));
        assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), "10.1.0.2 saw 10.1.0.3");
        let both = vec![draining(), endpoint("10.1.1.2", "other", true, false)];
        network.apply(&web(), &slice("web", 8080, "TCP", both));
        for _ in 0..5 {
            assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), "10.1.1.2 saw 10.1.0.3");
        }
    });
}

#[test]
fn clients_stay_with_their_endpoint() {
    in_namespace(module_path!(), "clients_stay_with_their_endpoint", || {
        let mut network = Network::new();
        network.serve("pod1", "tcp", "10.1.0.2", 8080);
        network.serve("remote", "tcp", "10.1.1.2", 8080);
        let both = endpoints(&["10.1.0.2", "10.1.1.2"]);
        let sticky = || web().affinity(600).node_port(30000);
        network.apply(&sticky(), &both);
        let first = network.ask("pod2", "tcp", "10.96.0.1", 80);
        // the chance that thirty connections find the same endpoint by themselves is 2^-30
        for _ in 0..30 {
            assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), first);
        }
        // at another address of the service, too
        let server = first.split(' ').next().unwrap().to_owned();
        for _ in 0..5 {
            let answer = network.ask("pod2", "tcp", "192.168.1.1", 30000);
            assert!(answer.starts_with(&server), "{answer} instead of {server}");
        }
        // and when the proxy starts anew
        network.writer = ProxyWriter::open().unwrap();
        network.apply(&sticky(), &both);
        assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), first);
        // unless it is gone
        let other = if server == "10.1.0.2" { "10.1.1.2" } else { "10.1.0.2" };
        network.apply(&sticky(), &endpoints(&[other]));
        let answer = network.ask("pod2", "tcp", "10.96.0.1", 80);
        assert!(answer.starts_with(other), "{answer}");
    });
}

#[test]
fn datagrams_follow_the_endpoints() {
    in_namespace(module_path!(), "datagrams_follow_the_endpoints", || {
        let mut network = Network::new();
        network.serve("pod1", "udp", "10.1.0.2", 5300);
        network.serve("remote", "udp", "10.1.1.2", 5300);
        let of =
            |address: &str, node: &str| slice("dns", 5300, "UDP", vec![endpoint(address, node, true, false)]);
        let socket = UdpSocket::bind("192.168.1.1:0").unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect("10.96.0.10:53").unwrap();
        let mut buffer = [0; 64];
        // a connection is tracked before the service is there
        let _ = socket.send(b"?");
        assert!(socket.recv(&mut buffer).is_err());
        let mut ask = || {
            // an error of an earlier packet may be pending
            let _ = socket.send(b"?");
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}"));
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        network.apply(&service_udp(), &of("10.1.0.2", NODE));
        assert_eq!(ask(), "10.1.0.2 saw 10.1.0.1");
        // the same socket, so the same connection
        network.apply(&service_udp(), &of("10.1.1.2", "other"));
        assert_eq!(ask(), "10.1.1.2 saw 10.1.0.1");
        // a change that leaves the endpoint alone keeps the connection
        let both = vec![endpoint("10.1.0.2", NODE, true, false), endpoint("10.1.1.2", "other", true, false)];
        network.apply(&service_udp(), &slice("dns", 5300, "UDP", both));
        for _ in 0..10 {
            assert_eq!(ask(), "10.1.1.2 saw 10.1.0.1");
        }
    });
}

#[test]
fn both_families_are_served() {
    in_namespace(module_path!(), "both_families_are_served", || {
        let mut network = Network::new();
        network.serve("remote", "tcp", "fd01:1::2", 8080);
        network.serve("pod1", "tcp", "fd01::2", 8080);
        let service = || {
            let mut dual = web().node_port(30000);
            dual.spec.cluster_ips.push("fd96::1".to_owned());
            dual
        };
        let of =
            |address: &str, node: &str| slice("web", 8080, "TCP", vec![endpoint(address, node, true, false)]);
        network.apply(&service(), &of("fd01:1::2", "other"));
        assert_eq!(network.ask("pod2", "tcp", "fd96::1", 80), "fd01:1::2 saw fd01::3");
        let answer = network.ask("outside", "tcp", "fd02::1", 30000);
        assert!(answer == "fd01:1::2 saw fd01::1", "{answer}");
        assert_eq!(network.ask("node", "tcp", "::1", 30000), "refused");
        // the slice has no endpoints of IPv4
        assert_eq!(network.ask("pod2", "tcp", "10.96.0.1", 80), "refused");
        network.apply(&service().external_local(), &of("fd01::2", NODE));
        assert_eq!(network.ask("outside", "tcp", "fd02::1", 30000), "fd01::2 saw fd02::2");
        assert_eq!(network.ask("pod1", "tcp", "fd96::1", 80), "fd01::2 saw fd01::1");
        network.apply(&service(), &slice("web", 8080, "TCP", vec![endpoint("fd01::2", NODE, false, false)]));
        assert_eq!(network.ask("pod2", "tcp", "fd96::1", 80), "refused");
    });
}

#[test]
fn connections_outlive_their_rules() {
    in_namespace(module_path!(), "connections_outlive_their_rules", || {
        let mut network = Network::new();
        // a connection to an echo server in this namespace, by the cluster address
        let listener = TcpListener::bind("10.1.0.1:8080").unwrap();
        network.apply(&web(), &endpoints(&["10.1.0.1"]));
        let mut client = TcpStream::connect("10.96.0.1:80").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        network.apply(&web(), &endpoints(&["10.1.0.2"]));
        client.write_all(b"still here").unwrap();
        let mut buffer = [0; 10];
        server.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"still here");
    });
}
