//! "Health endpoints", rule by rule.

use super::*;
use http::Method;
use tests::{Cluster, Who};

#[tokio::test]
async fn machines_rely_on_the_code() {
    let cluster = Cluster::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        for who in [Who::Admin, Who::Nobody] {
            let answer = cluster.get(path).who(&who).await.code(200);
            assert_eq!(
                (answer.text().as_str(), answer.header("content-type")),
                ("ok", "text/plain; charset=utf-8")
            );
        }
        assert_eq!(cluster.ask(Method::HEAD, path).await.code(200).text(), "");
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
    for (endpoint, checks) in
        [("livez", &["ping", "log", "etcd"][..]), ("readyz", &["ping", "log", "etcd", "shutdown"])]
    {
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
async fn a_server_that_ends_is_alive_but_not_ready() {
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
