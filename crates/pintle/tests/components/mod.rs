//! Processes of components and clients of their ports.

use outbound::{HttpClient, Limits, Target};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A process, which does not outlive the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // gone already is as good
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub fn terminate(&self) {
        let message = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(message.success());
    }

    pub fn ends(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An API server without loops.
pub fn server(directory: &Path, port: u16) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pintle"));
    command.args(["up", "--components", "apiserver", "--secure-port", &port.to_string(), "--data-dir"]);
    let mut child = command.arg(directory).stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    Process(child)
}

/// A client of the API server, as its administrator.
pub fn caller(directory: &Path) -> HttpClient {
    let limits = Limits { time: Duration::from_secs(10), answer: 16 << 20 };
    HttpClient::from_kubeconfig(&directory.join("admin.kubeconfig"), limits).unwrap()
}

/// Asks until an answer is as it should be.
pub async fn until(what: &str, caller: &HttpClient, path: &str, holds: impl Fn(u16, &str) -> bool) -> String {
    let began = Instant::now();
    loop {
        if let Ok(answer) = caller.get(path).await {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if holds(answer.status.as_u16(), &text) {
                return text;
            }
        }
        assert!(began.elapsed() < TIMEOUT, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn post(caller: &HttpClient, path: &str, object: serde_json::Value) {
    let answer = caller.post(path, object.to_string().into()).await.unwrap();
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
}

/// A client of a component's port: the administrator with a client certificate, or an anonymous one.
pub fn looking(directory: &Path, port: u16, identity: bool) -> HttpClient {
    let read = |name| std::fs::read(directory.join("pki").join(name)).unwrap();
    let identity = identity.then(|| (read("admin.crt"), read("admin.key")));
    let url = format!("https://127.0.0.1:{port}");
    let target = Target { url, insecure: true, identity, ..Target::default() };
    HttpClient::new(&target, Limits::default()).unwrap()
}
