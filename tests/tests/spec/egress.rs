//! Egress: outgoing calls, direct or through proxies.

use super::admission_webhooks::{MUTATING, VALIDATING, allow, configure, hook, map, message};
use super::*;
use ::metrics::Registry;
use apiserver::egress::Egress;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outbound::{CallError, DialMetrics, Dialer, HttpClient, Limits, Target};
use std::time::Duration;
use tests::{Cluster, EgressProxy, ExtensionServer, HttpsServer, Options, ProxyBehavior, ProxyKind, Reply};

/// A host name that only the proxy resolves.
const BEHIND: &str = "hook.behind.example";

async fn behind(answer: impl Fn(&tests::ReceivedRequest) -> Reply + Send + Sync + 'static) -> HttpsServer {
    HttpsServer::named(BEHIND, answer).await
}

/// The counter of started dials.
fn begun(proxy: &EgressProxy) -> (Dialer, Registry) {
    let (way, registry) = (proxy.dialer(), Registry::default());
    let world: env::World = env::Seeded::new(0, 7);
    if let Dialer::Through(proxy) = &way {
        proxy.begin(&DialMetrics::new(&registry), &world);
    }
    (way, registry)
}

fn target(server: &HttpsServer, way: &Dialer) -> Target {
    Target { url: format!("https://{BEHIND}"), way: way.clone(), ..server.target() }
}

#[tokio::test]
async fn destinations_are_reached_through_the_proxy() {
    for kind in ProxyKind::ALL {
        let server = behind(allow).await;
        let proxy = EgressProxy::start(kind, ProxyBehavior::Good, server.port()).await;
        let egress = Egress { control_plane: proxy.dialer(), ..Egress::default() };
        let cluster = Cluster::with(Options { egress, ..Options::default() }).await;
        let mut named = hook(&server, "a", "/p");
        named["clientConfig"]["url"] = json!(format!("https://{BEHIND}/p"));
        configure(&cluster, VALIDATING, "one", vec![named]).await;
        for name in ["a", "b"] {
            cluster.create(CONFIGMAPS, map(name)).await;
        }
        assert_eq!(server.count(), 2, "{kind:?}");
        // one connection is kept for both
        assert_eq!(proxy.destinations(), [format!("{BEHIND}:443")], "{kind:?}");
        let (protocol, transport) = match kind {
            ProxyKind::Tcp | ProxyKind::Tls => ("http_connect", "tcp"),
            ProxyKind::Socket => ("http_connect", "uds"),
            ProxyKind::Konnectivity => ("grpc", "uds"),
        };
        let metrics = cluster.get("/metrics").await.code(200).text();
        let labels = format!("{{protocol=\"{protocol}\",transport=\"{transport}\"}}");
        for line in ["dial_start_total", "dial_duration_seconds_count"] {
            let line = format!("apiserver_egress_dialer_{line}{labels} 1\n");
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
        }
        assert!(!metrics.contains("dial_failure_count{"));
    }
}

#[tokio::test]
async fn services_use_the_cluster_egress_and_urls_the_controlplane_egress() {
    let server = HttpsServer::named("hook.default.svc", allow).await;
    let beside = HttpsServer::start(allow).await;
    let proxy = EgressProxy::start(ProxyKind::Konnectivity, ProxyBehavior::Good, server.port()).await;
    let egress = Egress { cluster: proxy.dialer(), ..Egress::default() };
    let cluster = Cluster::with(Options { egress, ..Options::default() }).await;
    let spec = json!({"ports": [{"port": 443}], "selector": {"a": "b"}});
    let service = json!({"metadata": {"name": "hook"}, "spec": spec});
    let created = cluster.create("/api/v1/namespaces/default/services", service).await;
    let mut called = hook(&server, "a", "/");
    let named = json!({"namespace": "default", "name": "hook"});
    called["clientConfig"] = json!({"service": named, "caBundle": STANDARD.encode(&server.certificate)});
    configure(&cluster, MUTATING, "service", vec![called]).await;
    configure(&cluster, VALIDATING, "address", vec![hook(&beside, "b", "/")]).await;
    cluster.create(CONFIGMAPS, map("a")).await;
    assert_eq!((server.count(), beside.count()), (1, 1));
    let address = created["spec"]["clusterIP"].as_str().unwrap();
    assert_eq!(proxy.destinations(), [format!("{address}:443")]);
}

#[tokio::test]
async fn extension_servers_use_the_cluster_egress() {
    let extension = ExtensionServer::start("default", "metrics").await;
    let proxy = EgressProxy::start(ProxyKind::Socket, ProxyBehavior::Good, extension.port).await;
    let egress = Egress { cluster: proxy.dialer(), ..Egress::default() };
    let (certificate, key) = extension.proxy.clone();
    let mut options = Options { egress, ..Options::default() };
    options.aggregation.identity = Some((certificate.into_bytes(), key.into_bytes()));
    let cluster = Cluster::with(options).await;
    let service = json!({"metadata": {"name": "metrics"},
        "spec": {"ports": [{"port": 443}], "clusterIP": "10.0.0.77"}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    let endpoints = json!({"metadata": {"name": "metrics"},
        "subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 443}]}]});
    cluster.create("/api/v1/namespaces/default/endpoints", endpoints).await;
    let registered = json!({"metadata": {"name": "v1beta1.metrics.example.com"}, "spec": {
        "group": "metrics.example.com", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "caBundle": STANDARD.encode(&extension.authority),
        "service": {"namespace": "default", "name": "metrics", "port": 443}}});
    cluster.create("/apis/apiregistration.k8s.io/v1/apiservices", registered).await;
    let path = "/apis/metrics.example.com/v1beta1/nodes";
    tests::soon("an answer", async {
        while cluster.get(path).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let dialed = proxy.destinations();
    assert!(!dialed.is_empty() && dialed.iter().all(|it| it == "10.0.0.77:443"), "{dialed:?}");
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let large = "x".repeat(2_500_000);
    for kind in ProxyKind::ALL {
        let content = large.clone();
        let server = behind(move |seen| {
            assert_eq!(seen.body["data"].as_str().map(str::len), Some(2_500_000));
            Reply::Text(200, content.clone())
        })
        .await;
        let proxy = EgressProxy::start(kind, ProxyBehavior::Good, server.port()).await;
        let (way, _) = begun(&proxy);
        let caller = HttpClient::new(&target(&server, &way), Limits::default()).unwrap();
        for _ in 0..3 {
            let body = json!({"data": large}).to_string();
            let answer = caller.post("/", body.into()).await.unwrap();
            assert_eq!(answer.body.len(), large.len(), "{kind:?}");
        }
        assert_eq!(proxy.destinations().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn proxy_failures_are_reported() {
    for kind in ProxyKind::ALL {
        for (conduct, parts) in [
            (ProxyBehavior::Refuse, ["code 403", "no backend"]),
            (
                ProxyBehavior::Cut,
                ["reading HTTP response from CONNECT to hook.behind.example:443", "missing grpc-status"],
            ),
            (ProxyBehavior::Nonsense, ["reading HTTP response from CONNECT", "prox"]),
            (ProxyBehavior::Flood, ["reading HTTP response from CONNECT", "larger than"]),
        ] {
            let server = behind(allow).await;
            let proxy = EgressProxy::start(kind, conduct, server.port()).await;
            let (way, registry) = begun(&proxy);
            let caller = HttpClient::new(&target(&server, &way), Limits::default()).unwrap();
            let why = tests::soon("an error", caller.get("/")).await.unwrap_err().to_string();
            let part = parts[usize::from(kind == ProxyKind::Konnectivity)];
            assert!(why.contains(part), "{kind:?} {conduct:?}: {why}");
            assert_eq!(server.count(), 0);
            let text = registry.text();
            assert!(text.contains("dial_failure_count{") && !text.contains("seconds_count{"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_silent_proxy_times_out() {
    for kind in ProxyKind::ALL {
        let server = behind(allow).await;
        let proxy = EgressProxy::start(kind, ProxyBehavior::Silent, server.port()).await;
        let (way, registry) = begun(&proxy);
        let hasty = Limits { time: Duration::from_millis(300), ..Limits::default() };
        let caller = HttpClient::new(&target(&server, &way), hasty).unwrap();
        let why = caller.get("/").await.unwrap_err();
        assert!(matches!(why, CallError::Timeout(_)), "{kind:?}: {why}");
        // cancelled dials are counted as well
        tests::soon("the failure", async {
            while !registry.text().contains("stage=\"proxy\"") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_cut_by_the_proxy_fails() {
    for kind in ProxyKind::ALL {
        let server = behind(|_| Reply::Text(200, "x".repeat(1_000_000))).await;
        let proxy = EgressProxy::start(kind, ProxyBehavior::CutAfter(100_000), server.port()).await;
        let (way, _) = begun(&proxy);
        let caller = HttpClient::new(&target(&server, &way), Limits::default()).unwrap();
        let why = tests::soon("an error", caller.get("/")).await.unwrap_err();
        assert!(matches!(why, CallError::Lost(_) | CallError::Connection(_)), "{kind:?}: {why}");
    }
}

#[tokio::test]
async fn an_absent_proxy_fails_at_once_for_its_egress_only() {
    let server = HttpsServer::start(allow).await;
    let proxy = EgressProxy::start(ProxyKind::Socket, ProxyBehavior::Good, server.port()).await;
    let egress = Egress { control_plane: proxy.dialer(), ..Egress::default() };
    drop(proxy);
    let cluster = Cluster::with(Options { egress, ..Options::default() }).await;
    cluster.create(CONFIGMAPS, map("before")).await;
    configure(&cluster, VALIDATING, "one", vec![hook(&server, "a", "/")]).await;
    let refused = cluster.post(CONFIGMAPS, map("a")).await.code(500).json();
    let why = message(&refused);
    assert!(why.contains("the proxy at ") && why.contains("cannot be reached"), "{why}");
    let metrics = cluster.get("/metrics").await.code(200).text();
    let failed = "dial_failure_count{protocol=\"http_connect\",stage=\"connect\",transport=\"uds\"} 1\n";
    assert!(metrics.contains(failed), "{metrics}");
}

#[tokio::test]
async fn an_untrusted_proxy_receives_nothing() {
    let server = behind(allow).await;
    let mut proxy = EgressProxy::start(ProxyKind::Tls, ProxyBehavior::Good, server.port()).await;
    let other = EgressProxy::start(ProxyKind::Tls, ProxyBehavior::Good, server.port()).await;
    proxy.target.authorities = other.target.authorities.clone();
    let (way, _) = begun(&proxy);
    let caller = HttpClient::new(&target(&server, &way), Limits::default()).unwrap();
    let why = caller.get("/").await.unwrap_err().to_string();
    assert!(why.contains("certificate"), "{why}");
    // nor does the proxy trust other clients
    proxy.target = Target { authorities: proxy.target.authorities.clone(), ..other.target.clone() };
    proxy.target.identity = None;
    let (way, _) = begun(&proxy);
    let caller = HttpClient::new(&target(&server, &way), Limits::default()).unwrap();
    assert!(caller.get("/").await.is_err());
    assert!(proxy.destinations().is_empty() && other.destinations().is_empty());
}
