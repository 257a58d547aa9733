//! Graceful shutdown of a real process under writes: it is no longer ready, serves for the shutdown delay, finishes
//! requests in flight, and has every acknowledged write after a restart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbound::{HttpClient, Limits};

/// A process, which does not outlive the test.
struct Pintle(Child);

impl Drop for Pintle {
    fn drop(&mut self) {
        // gone already is as good
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pintle {
    fn start(directory: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
        command.args(["up", "--components", "apiserver,controller-manager,scheduler", "--secure-port", "0"]);
        command.arg("--data-dir").arg(directory).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert!(message.contains("is ready on https://"), "{message}");
        Pintle(child)
    }

    fn terminate(&self) {
        let message = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(message.success());
    }
}

fn caller(directory: &Path) -> Arc<HttpClient> {
    let limits = Limits { time: Duration::from_secs(60), answer: 16 << 20 };
    Arc::new(HttpClient::from_kubeconfig(&directory.join("admin.kubeconfig"), limits).unwrap())
}

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Writes until the server is gone; returns the names of acknowledged objects.
async fn write(caller: Arc<HttpClient>, writer: usize, written: Arc<AtomicUsize>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        let name = format!("w{writer}-{n}");
        let object = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{}"}}}}"#, "x".repeat(1000));
        match caller.post(CONFIGMAPS, object.into()).await {
            Ok(answer) if answer.status == 201 => {
                written.fetch_add(1, Ordering::Relaxed);
                acknowledged.push(name);
            }
            // refused with 429, or no connection: the write did not happen
            Ok(answer) => {
                assert_eq!(answer.status, 429, "{}", String::from_utf8_lossy(&answer.body));
                break;
            }
            Err(_) => break,
        }
    }
    acknowledged
}

async fn stops_well(options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let mut pintle = Pintle::start(directory.path(), options);
    let caller_of_it = caller(directory.path());
    let written = Arc::<AtomicUsize>::default();
    let writers: Vec<_> =
        (0..8).map(|writer| tokio::spawn(write(caller_of_it.clone(), writer, written.clone()))).collect();
    let watching = tokio::spawn({
        let caller = caller_of_it.clone();
        async move { caller.get("/api/v1/namespaces?watch=1").await }
    });
    let more_than = |count: usize| {
        let written = written.clone();
        async move {
            while written.load(Ordering::Relaxed) <= count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    more_than(50).await;
    pintle.terminate();
    // it is unready at once, and writes go on
    loop {
        let message = caller_of_it.get("/readyz").await.unwrap();
        if message.status == 500 {
            let text = String::from_utf8(message.body.to_vec()).unwrap();
            assert!(text.contains("[-]shutdown failed: reason withheld\n"), "{text}");
            break;
        }
    }
    more_than(written.load(Ordering::Relaxed) + 20).await;
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let watched = watching.await.unwrap().expect("a watch ends whole");
    assert!(watched.status == 200 && watched.body.ends_with(b"}\n"), "{}", watched.status);
    let status = tokio::task::spawn_blocking(move || pintle.0.wait().unwrap()).await.unwrap();
    assert!(status.success(), "{status}");

    let _again = Pintle::start(directory.path(), &[]);
    let list = caller(directory.path()).get(CONFIGMAPS).await.unwrap();
    let text = String::from_utf8(list.body.to_vec()).unwrap();
    let lost: Vec<_> = acknowledged.iter().filter(|name| !text.contains(&format!("\"{name}\""))).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(acknowledged.len() > 70, "{}", acknowledged.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_shutdown() {
    stops_well(&["--shutdown-delay-duration", "1s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_with_retry_after() {
    stops_well(&["--shutdown-delay-duration", "1s", "--shutdown-send-retry-after"]).await;
}
