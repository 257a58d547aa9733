//! "Health endpoints", rule by rule.

use super::*;
use apiserver::deployment::BeforeReady;
use apiserver::serve::Phase;
use apiserver::{Deployment, StoreChoice, limits};
use http::Method;
use std::sync::Arc;
use std::time::Duration;
use store::{BoxFuture, Store, StoreError};
use tests::{Cluster, Options, Protocol, TestUser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn the_status_code_is_the_result() {
    let cluster = Cluster::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        for who in [TestUser::Admin, TestUser::Anonymous] {
            let answer = cluster.get(path).user(&who).await.code(200);
            assert_eq!(
                (answer.text().as_str(), answer.header("content-type")),
                ("ok", "text/plain; charset=utf-8")
            );
        }
        assert_eq!(cluster.request(Method::HEAD, path).await.code(200).text(), "");
    }
}

#[tokio::test]
async fn verbose_prints_a_line_for_each_check() {
    let cluster = Cluster::start().await;
    for endpoint in ["healthz", "livez", "readyz"] {
        let text = cluster.get(&format!("/{endpoint}?verbose")).await.code(200).text();
        let mut lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.pop(), Some(&*format!("{endpoint} check passed")));
        assert!(lines.len() >= 3, "{text}");
        assert!(lines.iter().all(|line| line.starts_with("[+]") && line.ends_with(" ok")), "{text}");
    }
}

#[tokio::test]
async fn the_known_checks_are_there() {
    let cluster = Cluster::start().await;
    for (endpoint, checks) in [
        ("livez", &["ping", "log", "etcd", "autoregister-completion"][..]),
        ("readyz", &["ping", "log", "etcd", "autoregister-completion", "shutdown"]),
    ] {
        let text = cluster.get(&format!("/{endpoint}?verbose")).await.code(200).text();
        for check in checks {
            assert!(text.contains(&format!("[+]{check} ok\n")), "{check} in {text}");
        }
        assert!(text.contains("[+]poststarthook/"), "{text}");
    }
}

#[tokio::test]
async fn a_check_may_be_excluded() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.get("/readyz?exclude=etcd").await.code(200).text(), "ok");
    let text = cluster.get("/readyz?verbose&exclude=etcd&exclude=log").await.code(200).text();
    assert!(text.contains("[+]etcd excluded: ok\n") && text.contains("[+]log excluded: ok\n"), "{text}");
    assert!(text.contains("[+]ping ok\n"), "{text}");
    // a check that does not exist cannot be missing
    assert_eq!(cluster.get("/livez?exclude=bogus").await.code(200).text(), "ok");
}

#[tokio::test]
async fn each_check_answers_alone() {
    let cluster = Cluster::start().await;
    for endpoint in ["livez", "readyz"] {
        let text = cluster.get(&format!("/{endpoint}?verbose")).await.code(200).text();
        for line in text.lines().filter_map(|line| line.strip_prefix("[+]")) {
            let check = line.strip_suffix(" ok").unwrap();
            assert_eq!(cluster.get(&format!("/{endpoint}/{check}")).await.code(200).text(), "ok", "{check}");
        }
    }
    assert_eq!(cluster.get("/livez/bogus").await.code(404).text(), "404 page not found\n");
    cluster.get("/livez/shutdown").await.code(404);
}

#[tokio::test]
async fn a_stopping_server_is_alive_but_not_ready() {
    let cluster = Cluster::start().await;
    cluster.server.service.shutdown.drain();
    let text = cluster.get("/readyz").await.code(500).text();
    assert!(text.contains("[-]shutdown failed: reason withheld\n"), "{text}");
    assert!(text.ends_with("readyz check failed\n"), "{text}");
    cluster.get("/readyz/shutdown").await.code(500);
    cluster.get("/readyz?exclude=shutdown").await.code(200);
    cluster.get("/livez").await.code(200);
    cluster.get("/healthz").await.code(200);
    // requests are still answered while it drains
    cluster.read(NAMESPACES).await;
}

/// A store in memory that can be made to stand still.
struct Standing {
    store: store::Engine,
    still: tokio::sync::watch::Sender<bool>,
}

impl Standing {
    fn new() -> Arc<Self> {
        let world: env::World = env::Seeded::new(tests::NOW, 3);
        let store = store::memory::open(&store::Options::default(), world);
        Arc::new(Standing { store, still: tokio::sync::watch::Sender::new(false) })
    }

    async fn moving(&self) {
        self.still.subscribe().wait_for(|still| !still).await.unwrap();
    }
}

impl Store for Standing {
    fn start(&self, subscriber: store::Subscriber) -> Result<(), StoreError> {
        self.store.start(subscriber)
    }

    fn write(&self, write: store::Write) -> BoxFuture<'_, Result<store::Revision, StoreError>> {
        Box::pin(async move {
            self.moving().await;
            self.store.write(write).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.moving().await;
            self.store.probe().await
        })
    }

    fn revision(&self) -> store::Revision {
        self.store.revision()
    }

    fn oldest(&self) -> store::Revision {
        self.store.oldest()
    }

    fn stats(&self) -> store::Stats {
        self.store.stats()
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.store.healthy()
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<store::Snapshot, StoreError>> {
        self.store.snapshot()
    }

    fn tick(&self) -> BoxFuture<'_, ()> {
        self.store.tick()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

/// Not ready after a moment, not alive after two.
fn strict() -> limits::Options {
    let store_ready_timeout = Duration::from_millis(20);
    limits::Options {
        store_ready_timeout,
        store_health_timeout: 2 * store_ready_timeout,
        ..limits::Options::default()
    }
}

#[tokio::test]
async fn a_hanging_store_fails_the_check_within_its_timeout() {
    let store = Standing::new();
    let options =
        Options { store: StoreChoice::Opened(store.clone()), requests: strict(), ..Options::default() };
    let cluster = Cluster::with(options).await;
    cluster.get("/readyz").await.code(200);
    store.still.send_replace(true);
    let text = cluster.get("/livez").await.code(500).text();
    assert!(text.contains("[-]etcd failed: reason withheld\n") && text.contains("[+]ping ok\n"), "{text}");
    assert!(!text.contains("etcd-readiness"), "{text}");
    let text = cluster.get("/readyz?exclude=etcd&exclude=bogus").await.code(500).text();
    assert!(text.contains("[+]etcd excluded: ok\n[-]etcd-readiness failed: reason withheld\n"), "{text}");
    let end = "warn: some health checks cannot be excluded: no matches for \"bogus\"\nreadyz check failed\n";
    assert!(text.ends_with(end), "{text}");
    for path in ["/livez/etcd", "/readyz/etcd-readiness?exclude=etcd-readiness"] {
        assert_eq!(
            cluster.get(path).await.code(500).text(),
            "internal server error: error getting data from etcd: context deadline exceeded\n"
        );
    }
    assert_eq!(cluster.get("/readyz?exclude=etcd&exclude=etcd-readiness").await.code(200).text(), "ok");
    // reading goes on meanwhile, and all is well when the store is
    cluster.read(NAMESPACES).await;
    store.still.send_replace(false);
    cluster.get("/readyz").await.code(200);
}

#[tokio::test]
async fn a_closed_store_fails_the_check_at_once() {
    let store = Standing::new();
    let options = Options { store: StoreChoice::Opened(store.clone()), ..Options::default() };
    let cluster = Cluster::with(options).await;
    store.close().await;
    let text = cluster.get("/readyz").await.code(500).text();
    assert!(text.contains("[-]etcd failed: reason withheld\n[-]etcd-readiness failed"), "{text}");
    assert_eq!(
        cluster.get("/livez/etcd").await.code(500).text(),
        "internal server error: error getting data from etcd: the store is unavailable: it is closing\n"
    );
}

#[tokio::test]
async fn a_starting_server_is_not_ready_and_queues_requests() {
    let store = Standing::new();
    store.still.send_replace(true);
    let requests = limits::Options { livez_grace: Duration::from_secs(10), ..strict() };
    // the port is known before anything answers on it
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = Options { store: StoreChoice::Opened(store.clone()), requests, port, ..Options::default() };
    let world = env::Seeded::new(tests::NOW, 7);
    let starting = tokio::spawn(Cluster::attempt_in(options, world.clone()));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let ask = |path: &'static str| tests::fetch(address, &TestUser::Admin, path);
    let unfinished = (500, "internal server error: not finished\n".to_owned());
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    const ROLES: &str = "poststarthook/rbac/bootstrap-roles";
    assert_eq!(ask("/readyz/poststarthook/rbac/bootstrap-roles").await, unfinished);
    let (code, text) = ask("/livez?verbose&exclude=etcd").await;
    assert!(code == 200 && text.contains(&format!("[+]{ROLES} ok\n")), "{text}");
    world.advance(Duration::from_secs(11));
    assert_eq!(ask("/livez/poststarthook/rbac/bootstrap-roles").await, unfinished);
    let waiting = tokio::spawn(ask("/api/v1/namespaces/default"));
    // it waits, while other requests are answered
    for _ in 0..10 {
        assert_eq!(ask("/livez/ping").await.0, 200);
    }
    assert!(!waiting.is_finished());
    store.still.send_replace(false);
    assert_eq!(waiting.await.unwrap().0, 200, "a request that came too early is answered when it can be");
    let cluster = starting.await.unwrap().unwrap();
    cluster.get("/livez").await.code(200);
    cluster.get("/readyz").await.code(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_is_not_ready_before_its_kubeconfig_is_written() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (go_on, wait) = std::sync::mpsc::channel();
    let writes: BeforeReady = Box::new(move |address| {
        let _ = sender.send(address);
        wait.recv().map_err(|why| why.to_string())
    });
    let with = |before_ready: BeforeReady| Options {
        deployment: Deployment { before_ready: Some(before_ready), ..Deployment::default() },
        ..Options::default()
    };
    let starting = tokio::spawn(Cluster::attempt(with(writes)));
    let address = receiver.await.unwrap();
    assert_eq!(tests::fetch(address, &TestUser::Admin, "/readyz").await.0, 500);
    go_on.send(()).unwrap();
    starting.await.unwrap().unwrap().get("/readyz").await.code(200);
    let failing = Cluster::attempt(with(Box::new(|_| Err("no room".to_owned())))).await;
    assert_eq!(failing.err().unwrap().to_string(), "no room");
}

#[tokio::test]
async fn a_stopping_server_rejects_new_requests_with_retry_after() {
    let requests = limits::Options { send_retry_after: true, ..limits::Options::default() };
    let cluster = Cluster::with(Options { requests, ..Options::default() }).await;
    let address = cluster.address;
    // a request that is under way when the end comes: its body is not there yet
    let mut slow = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let body = json!({"metadata": {"name": "late"}}).to_string();
    let head = format!(
        "POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    while cluster.server.service.in_flight.total() == 0 {
        tokio::task::yield_now().await;
    }
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    let shutdown = cluster.server.service.shutdown.clone();
    let stopping = tokio::spawn(cluster.stop());
    shutdown.wait_for(Phase::Refusing).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let refused = tests::fetch_response(address, &TestUser::Admin, NAMESPACES, protocol).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, "5"));
        assert_eq!(refused.text(), "The apiserver is shutting down, please try again later.\n");
        assert_eq!(refused.header("connection"), if protocol == Protocol::Http1 { "close" } else { "" });
    }
    let (code, text) = tests::fetch(address, &TestUser::Admin, "/readyz").await;
    assert!(code == 500 && text.contains("[-]shutdown failed"), "{text}");
    assert!(!stopping.is_finished());
    slow.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tests::soon("the late answer", slow.read_to_end(&mut answer)).await;
    assert!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    watch.expect("ADDED", "late").await;
    assert_eq!(watch.next().await, None, "watches end whole");
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_stopping_server_serves_for_the_shutdown_delay() {
    let requests = limits::Options { shutdown_delay: Duration::from_secs(5), ..limits::Options::default() };
    let cluster = Cluster::with(Options { requests, ..Options::default() }).await;
    let address = cluster.address;
    let shutdown = cluster.server.service.shutdown.clone();
    let stopping = tokio::spawn(cluster.stop());
    shutdown.wait_for(Phase::Draining).await;
    assert_eq!(tests::fetch(address, &TestUser::Admin, "/readyz/shutdown").await.0, 500);
    assert_eq!(tests::fetch(address, &TestUser::Admin, "/livez").await.0, 200);
    assert_eq!(tests::fetch(address, &TestUser::Admin, NAMESPACES).await.0, 200);
    assert_eq!(shutdown.phase(), Phase::Draining);
    stopping.await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
