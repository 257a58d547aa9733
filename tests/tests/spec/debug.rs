//! Pages that show an operator the inside of a server, and change how much it logs.

use super::*;
use apiserver::observability;
use http::Method;
use std::sync::{Arc, Mutex};
use tests::{Cluster, Options, TestUser, authority};

#[tokio::test]
async fn debug_pages_need_permission() {
    let observability = observability::Options {
        command: ["pintle", "up"].map(str::to_owned).to_vec(),
        ..observability::Options::default()
    };
    let cluster = Cluster::with(Options { observability, ..Options::default() }).await;
    let index = cluster.get("/debug/pprof/").await.code(200).text();
    for page in ["cmdline", "goroutine", "heap", "profile"] {
        assert!(index.contains(page), "{page}: {index}");
    }
    assert_eq!(cluster.get("/debug/pprof").await.code(302).header("location"), "/debug/pprof/");
    assert_eq!(cluster.get("/debug/pprof/cmdline").await.code(200).text(), "pintle\0up");
    assert!(cluster.get("/debug/pprof/goroutine").await.code(200).text().starts_with("tasks: "));
    cluster.named(CONFIGMAPS, "a").await;
    let heap = cluster.get("/debug/pprof/heap").await.code(200).text();
    assert!(heap.lines().any(|line| line.trim().ends_with("/registry/configmaps/")), "{heap}");
    // the profiler is not implemented
    assert!(cluster.get("/debug/pprof/profile?seconds=1").await.code(501).text().contains("profiler"));
    cluster.get("/debug/pprof/other").await.code(404);
    let bob = TestUser::Certificate(authority().client("bob", "staff"));
    for path in ["/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v"] {
        cluster.get(path).user(&bob).await.refused(403, "Forbidden");
    }
}

#[tokio::test]
async fn debug_pages_can_be_disabled() {
    let observability = observability::Options { profiling: false, ..observability::Options::default() };
    let cluster = Cluster::with(Options { observability, ..Options::default() }).await;
    for path in ["/debug/pprof/", "/debug/pprof/cmdline", "/debug/flags"] {
        cluster.get(path).await.code(404);
    }
}

#[tokio::test]
async fn the_log_level_can_be_changed() {
    let set = Arc::new(Mutex::new(Vec::new()));
    let seen = set.clone();
    let change = move |text: &str| {
        let level: u8 = text.parse().map_err(|_| "not a number".to_owned())?;
        seen.lock().unwrap().push(level);
        Ok(level)
    };
    let observability =
        observability::Options { verbosity: Some(Arc::new(change)), ..observability::Options::default() };
    let cluster = Cluster::with(Options { observability, ..Options::default() }).await;
    let put = |body: &'static str| cluster.request(Method::PUT, "/debug/flags/v").body(body);
    assert_eq!(put("4").await.code(200).text(), "successfully set klog.logging.verbosity to 4\n");
    put("much").await.code(400);
    cluster.get("/debug/flags/v").await.code(406);
    cluster.get("/debug/flags/").await.code(200);
    assert_eq!(*set.lock().unwrap(), [4]);
}
