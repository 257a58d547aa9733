//! `pintle check`, `pintle completion` and `pintle man` as processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn pintle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pintle")).args(arguments).output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Checks the machine with a data directory; the socket of the runtime is not there.
fn check(data_dir: &Path, more: &[&str]) -> (Output, BTreeMap<String, Value>) {
    let folder = data_dir.to_str().unwrap();
    let socket = format!("unix://{folder}/no.sock");
    let base = ["check", "-o", "json", "--data-dir", folder, "--container-runtime-endpoint", &socket];
    let output = pintle(&[&base[..], more].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let by_name = checks.map(|it| (it["name"].as_str().unwrap().to_owned(), it.clone())).collect();
    assert_eq!(report["ready"], output.status.success());
    (output, by_name)
}

#[test]
fn a_machine_without_a_runtime_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (output, checks) = check(folder.path(), &["--secure-port", &port]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let runtime = &checks["container runtime"];
    assert_eq!(runtime["status"], "missing");
    assert!(runtime["detail"].as_str().unwrap().contains("no.sock"), "{runtime}");
    assert!(runtime["advice"].as_str().unwrap().contains("apt install containerd"), "{runtime}");
    let ports = &checks["ports"];
    assert_eq!(ports["status"], "missing");
    assert!(ports["detail"].as_str().unwrap().contains(&port), "{ports}");
    assert_eq!(checks["data directory"]["status"], "ok");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    // a machine that joins has no API server
    let (_, checks) = check(folder.path(), &["--secure-port", &port, "--for", "join"]);
    assert!(!checks["ports"]["detail"].as_str().unwrap().contains(&port), "{}", checks["ports"]);
}

#[test]
fn configurations_of_the_agent_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.yaml");
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    std::fs::write(&file, format!("{head}evictionHard: {{memory.available: 900Ti}}\n")).unwrap();
    let (_, checks) = check(folder.path(), &["--nodeagent-config", file.to_str().unwrap()]);
    let space = &checks["space"];
    assert_eq!(space["status"], "missing");
    assert!(space["detail"].as_str().unwrap().starts_with("memory.available is "), "{space}");
    std::fs::write(&file, format!("{head}maxPods: -1\n")).unwrap();
    let refused = pintle(&["check", "--nodeagent-config", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("pintle: ") && text(&refused.stderr).contains("maxPods"));
}

#[test]
fn the_text_has_a_line_for_each_check_and_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let output = pintle(&["check", "--data-dir", directory, "--container-runtime-endpoint", "/no.sock"]);
    let shown = text(&output.stdout);
    let (_, checks) = check(folder.path(), &[]);
    for (name, check) in &checks {
        let status = check["status"].as_str().unwrap();
        assert!(shown.contains(&format!("{status:<8} {name} ")), "{name}:\n{shown}");
    }
    assert!(shown.lines().last().unwrap().starts_with("Pods cannot run here by pintle up yet: "), "{shown}");
}

#[test]
fn completions_and_pages_are_written() {
    let output = pintle(&["completion", "bash"]);
    assert!(output.status.success() && text(&output.stdout).contains("complete -F _pintle"));
    assert_eq!(pintle(&["completion", "sh"]).status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    assert!(pintle(&["man", "--dir", folder.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(folder.path().join("pintle-check.1")).unwrap();
    assert!(page.contains("\\-\\-nodeagent\\-config"), "{page}");
}
