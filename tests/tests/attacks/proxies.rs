//! Proxies, endpoints and addresses of nodes as ways to servers that a client cannot reach itself.
//!
//! A server on the loopback of this machine counts the requests that reach it: none does.

use super::arena::{Arena, Attack, Attacker, attack};
use super::*;
use std::net::{IpAddr, UdpSocket};
use tests::{HttpsServer, Protocol, Reply, TestUser, authority};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const NOT_ALLOWED: &str = "address not allowed";

fn by_proxy_user(name: &'static str) -> Attack {
    attack(name).by(Attacker::ProxyUser)
}

async fn with_canary() -> (Arena, HttpsServer) {
    let canary = HttpsServer::start(|_| Reply::Text(200, "reached".to_owned())).await;
    (Arena::start().await, canary)
}

/// A pod that reports an address.
async fn pod_at(arena: &Arena, name: &str, ip: &str) {
    arena.cluster.create(PODS, pod(name, "n")).await;
    let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
    arena.cluster.patch(&format!("{PODS}/{name}/status"), status).await.code(200);
}

/// A node that reports an address, with a pod of the same name on it.
async fn node_at(arena: &Arena, name: &str, address: &str, port: u16) {
    arena.cluster.named(NODES, name).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    arena.cluster.patch(&format!("{NODES}/{name}/status"), status).await.code(200);
    arena.cluster.create(PODS, pod(name, name)).await;
}

#[tokio::test]
async fn pods_are_not_proxied_to_local_addresses() {
    let (arena, canary) = with_canary().await;
    let port = canary.port();
    let mut attacks = Vec::new();
    for (at, (name, ip)) in [
        ("the proxy of a pod at the loopback", "127.0.0.1"),
        ("the proxy of a pod at another address of the loopback", "127.8.8.8"),
        ("the proxy of a pod at the loopback of IPv6", "::1"),
        ("the proxy of a pod at the loopback as mapped into IPv6", "::ffff:127.0.0.1"),
        ("the proxy of a pod at the address of a metadata service", "169.254.169.254"),
        ("the proxy of a pod at a metadata service as mapped into IPv6", "::ffff:169.254.169.254"),
        ("the proxy of a pod at a link-local address of IPv6", "fe80::1"),
        ("the proxy of a pod at no address", "0.0.0.0"),
        ("the proxy of a pod at no address of IPv6", "::"),
        ("the proxy of a pod at a multicast address", "224.0.0.1"),
        ("the proxy of a pod at the broadcast address", "255.255.255.255"),
    ]
    .into_iter()
    .enumerate()
    {
        let pod = format!("p{at}");
        pod_at(&arena, &pod, ip).await;
        let case = by_proxy_user(name).get(format!("{PODS}/https:{pod}:{port}/proxy/"));
        attacks.push(case.refused(400, "BadRequest", NOT_ALLOWED));
    }
    arena.run("Proxies of pods at local addresses", attacks).await;
    assert_eq!(canary.count(), 0);
}

#[tokio::test]
async fn names_of_proxied_objects_hold_no_addresses() {
    let (arena, canary) = with_canary().await;
    let port = canary.port();
    pod_at(&arena, "p", "192.0.2.1").await;
    node_at(&arena, "far", "192.0.2.1", 10250).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    arena.cluster.create(SERVICES, service).await;
    let of_pod = |name, id: &str| by_proxy_user(name).get(format!("{PODS}/{id}/proxy/"));
    let of_node = |name, id: &str| by_proxy_user(name).get(format!("{NODES}/{id}/proxy/"));
    let of_service = |name, id: &str| by_proxy_user(name).get(format!("{SERVICES}/{id}/proxy/"));
    let invalid = |case: Attack, message| case.refused(400, "BadRequest", message);
    let attacks = vec![
        invalid(of_pod("a pod port with another host behind it", "p:80@localhost"), "invalid pod request"),
        invalid(of_pod("a pod port with an escaped host", "p:80%40localhost"), "invalid pod request"),
        invalid(of_pod("a pod port with a query", "p:80%3f"), "invalid pod request"),
        invalid(of_pod("a pod port with a fragment", "p:80%23"), "invalid pod request"),
        invalid(of_pod("a pod port with a line break", "p:80%0d%0ax:y"), "invalid pod request"),
        invalid(of_pod("a pod with a scheme of files", "file:p:80"), "invalid pod request"),
        invalid(of_pod("a pod without a name", "http::80"), "invalid pod request"),
        invalid(
            of_pod("a pod with an address as its port", &format!("p:127.0.0.1:{port}")),
            "invalid pod request",
        ),
        of_pod("a pod with an address as its name", &format!("https:127.0.0.1:{port}"))
            .refused(404, "NotFound", ""),
        invalid(
            of_node("a node port with another host behind it", "far:80@localhost"),
            "invalid node request",
        ),
        of_node("a node with an address as its name", &format!("127.0.0.1:{port}"))
            .refused(404, "NotFound", ""),
        invalid(
            of_service("a service port with another host behind it", "s:80@localhost"),
            "invalid service request",
        ),
        of_service("a service without endpoints", "s:web").refused(404, "NotFound", ""),
    ];
    arena.run("Names of proxied objects", attacks).await;
    assert_eq!(canary.count(), 0);
}

#[tokio::test]
async fn a_node_sends_the_server_to_no_other_place() {
    let (arena, canary) = with_canary().await;
    let port = canary.port();
    let mut attacks = Vec::new();
    for (at, (name, address)) in [
        ("another port of a node at the loopback", "127.0.0.1"),
        ("another port of a node at the name of the loopback", "localhost"),
        ("another port of a node at the loopback in short", "127.1"),
        ("another port of a node at the loopback as a number", "2130706433"),
        ("another port of a node at the loopback as mapped into IPv6", "::ffff:127.0.0.1"),
        ("another port of a node at a metadata service", "169.254.169.254"),
    ]
    .into_iter()
    .enumerate()
    {
        let node = format!("local-{at}");
        node_at(&arena, &node, address, 10250).await;
        let case = by_proxy_user(name).get(format!("{NODES}/https:{node}:{port}/proxy/"));
        attacks.push(case.refused(400, "BadRequest", NOT_ALLOWED));
    }
    let target = |rest: &str| format!("127.0.0.1:{port}{rest}");
    for (at, (name, address)) in [
        (
            "the log of a pod whose node has a path as its address",
            target("/exec/kube-system/x/c?command=sh&x="),
        ),
        ("the log of a pod whose node has a fragment in its address", target("/x#")),
        ("the log of a pod whose node has a user in its address", format!("x@{}", target("/"))),
        ("the log of a pod whose node has a port in its address", target("")),
        ("the log of a pod whose node has a blank in its address", "127.0.0.1 x".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let node = format!("odd-{at}");
        node_at(&arena, &node, &address, port).await;
        let case = by_proxy_user(name).get(format!("{PODS}/{node}/log"));
        attacks.push(case.refused(500, "", "is no address"));
    }
    arena.run("Addresses of nodes", attacks).await;
    assert_eq!(canary.count(), 0);
}

#[tokio::test]
async fn endpoints_hold_no_local_addresses() {
    let (arena, canary) = with_canary().await;
    let port = canary.port();
    let endpoints = |name: &str, ip: &str| json!({"metadata": {"name": name}, "subsets": [{"addresses": [{"ip": ip}], "ports": [{"port": port}]}]});
    let by_owner = |name, ip: &str| {
        let case = attack(name).by(Attacker::Owner).post(ENDPOINTS, endpoints("e", ip));
        case.refused(422, "Invalid", "subsets[0].addresses[0].ip")
    };
    // endpoints without a pod behind them, and with a pod of another namespace
    arena.cluster.create(ENDPOINTS, endpoints("free", "192.0.2.1")).await;
    let mut foreign = endpoints("foreign", "192.0.2.1");
    foreign["subsets"][0]["addresses"][0]["targetRef"] =
        json!({"kind": "Pod", "namespace": "other", "name": "x"});
    arena.cluster.create(ENDPOINTS, foreign).await;
    let proxied = |name, service: &str| {
        let case = by_proxy_user(name).get(format!("{SERVICES}/https:{service}:/proxy/"));
        case.refused(503, "ServiceUnavailable", "no endpoints available for service")
    };
    let attacks = vec![
        by_owner("an endpoint at the loopback", "127.0.0.1"),
        by_owner("an endpoint at the loopback of IPv6", "::1"),
        by_owner("an endpoint at the loopback as mapped into IPv6", "::ffff:127.0.0.1"),
        by_owner("an endpoint at a metadata service", "169.254.169.254"),
        by_owner("an endpoint at a metadata service as mapped into IPv6", "::ffff:169.254.169.254"),
        by_owner("an endpoint at a multicast address", "224.0.0.1"),
        by_owner("an endpoint at no address", "0.0.0.0"),
        by_owner("an endpoint that is a name", "localhost"),
        proxied("the proxy of a service whose endpoint is no pod", "free"),
        proxied("the proxy of a service whose endpoint is a pod of another namespace", "foreign"),
    ];
    arena.run("Endpoints", attacks).await;
    assert_eq!(canary.count(), 0);
}

/// An address of this machine that is not its loopback.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // finds the route, and sends nothing
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|it| it.ip()).filter(|it| !it.is_loopback())
}

#[tokio::test]
async fn proxied_servers_get_no_credentials() {
    let arena = Arena::start().await;
    let handler = |_: &tests::ReceivedRequest| Reply::Text(200, "page".to_owned());
    let loopback = HttpsServer::start(handler).await;
    // the agent of a node may be at the loopback; a pod is at another address, if this machine has one
    node_at(&arena, "agent", "127.0.0.1", loopback.port()).await;
    let mut servers = vec![(format!("{NODES}/agent/proxy/x"), loopback)];
    if let Some(ip) = address() {
        let server = HttpsServer::at(ip, "pod", handler).await;
        pod_at(&arena, "reached", &ip.to_string()).await;
        servers.push((format!("{PODS}/https:reached:{}/proxy/x", server.port()), server));
    }
    let masters = TestUser::Certificate(authority().client("root", "system:masters"));
    for (path, server) in servers {
        let request = arena.cluster.get(&path).user(&masters).protocol(Protocol::Http1);
        let request = request
            .header("authorization", "Bearer secret-token")
            .header("impersonate-user", "proxy-user")
            .header("impersonate-group", "system:masters")
            .header("impersonate-extra-scopes", "view")
            .header("proxy-authorization", "Basic c2VjcmV0")
            .header(
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io",
            );
        request.await.code(200);
        let received = server.requests().pop().unwrap();
        for (name, value) in &received.headers {
            let (name, value) = (name.as_str(), value.to_str().unwrap());
            assert!(!name.starts_with("impersonate-") && !name.contains("authorization"), "{path}: {name}");
            assert!(
                !value.contains("secret-token") && !value.contains("c2VjcmV0"),
                "{path}: {name}: {value}"
            );
        }
    }
}
