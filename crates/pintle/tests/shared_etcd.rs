//! Control planes that share an etcd, as real processes: one of them runs the control loops, and all have the same keys.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use store_etcd::testing::FakeEtcd;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pintle");
const LEASE: &str = "/registry/leases/kube-system/kube-controller-manager";

/// A process, which does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // gone already is as good
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Ends it as an operator does.
    fn stop(mut self) {
        let message = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(message.success());
        assert!(self.0.wait().unwrap().success());
    }
}

fn up(etcd: &FakeEtcd, directory: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["up", "--components", "apiserver,controller-manager,scheduler", "--secure-port=0"]);
    command.args(["--etcd-servers", &etcd.targets()[0].url, "--data-dir"]);
    command.arg(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a control plane and waits until it is ready.
fn start(etcd: &FakeEtcd, directory: &Path) -> Running {
    wait_for(&mut up(etcd, directory))
}

fn wait_for(command: &mut Command) -> Running {
    let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next();
    let running = Running(child);
    let message = message.expect("it ended at once").unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    running
}

/// Waits until a manager other than `before` holds the lease; gives its name.
fn holder(etcd: &FakeEtcd, before: &str) -> String {
    loop {
        let lease = etcd.get(LEASE).map(|(lease, _)| lease).unwrap_or_default();
        let holder = lease.split("\"holderIdentity\":\"").nth(1).and_then(|it| it.split('"').next());
        match holder {
            Some(holder) if !holder.is_empty() && holder != before => return holder.to_owned(),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leader_runs_the_loops_and_all_share_keys() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    tokio::task::block_in_place(|| {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let first = start(&etcd, &at("first"));
        let leads = holder(&etcd, "");
        let refused = |name: &str| {
            let refused = up(&etcd, &at(name)).output().unwrap();
            assert!(!refused.status.success());
            String::from_utf8_lossy(&refused.stderr).into_owned()
        };
        let message = refused("newcomer");
        assert!(message.contains("--cluster-token-file"), "{message}");
        // a server that has its own keys would not know the tokens of the first
        let mut elsewhere = up(&etcd, &at("stranger"));
        let mut elsewhere =
            Running(elsewhere.arg("--etcd-prefix=/other").stderr(Stdio::inherit()).spawn().unwrap());
        BufReader::new(elsewhere.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        elsewhere.stop();
        let message = refused("stranger");
        assert!(message.contains("kube-system/cluster-keys"), "{message}");
        let second =
            wait_for(up(&etcd, &at("second")).arg("--cluster-token-file").arg(at("first/pki/cluster.token")));
        let authority = |name: &str| std::fs::read(at(name).join("pki/ca.crt")).unwrap();
        assert_eq!(authority("first"), authority("second"));
        assert_eq!(holder(&etcd, ""), leads, "there is one leader");
        // the lease is given back, so that the other one need not wait until it has run out
        first.stop();
        assert_ne!(holder(&etcd, &leads), leads);
        second.stop();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_that_start_at_once_find_nothing_wrong() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    tokio::task::block_in_place(|| {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // makes the keys, in a cluster of its own
        let mut maker = up(&etcd, &at("maker"));
        let mut maker = Running(maker.arg("--etcd-prefix=/other").stderr(Stdio::inherit()).spawn().unwrap());
        BufReader::new(maker.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        maker.stop();
        let start = |name: &str| {
            std::fs::create_dir_all(at(name).join("pki")).unwrap();
            for file in std::fs::read_dir(at("maker/pki")).unwrap().map(Result::unwrap) {
                std::fs::copy(file.path(), at(name).join("pki").join(file.file_name())).unwrap();
            }
            Running(up(&etcd, &at(name)).spawn().unwrap())
        };
        let servers = [start("one"), start("two"), start("three")];
        for mut server in servers {
            let message = BufReader::new(server.0.stdout.take().unwrap()).lines().next();
            assert!(message.unwrap().unwrap().contains("is ready on"));
            let mut log = server.0.stderr.take().unwrap();
            server.stop();
            let mut text = String::new();
            log.read_to_string(&mut text).unwrap();
            let is_race = |line: &&str| line.contains("already exists") || line.contains("has been modified");
            let races: Vec<_> =
                text.lines().filter(|line| line.starts_with(['W', 'E'])).filter(is_race).collect();
            assert!(races.is_empty(), "{races:#?}");
        }
    });
}
