use super::*;
use crate::dbus::testing::{Answer, FakeService};
use crate::dbus::{Method, Value};
use crate::pod::testing::{TestNode, pod_of, settle};
use client::Note;
use metrics::Registry;
use parking_lot::Mutex;
use shutdown_times::ShutdownTimes;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;

const ANNOUNCEMENT: Method<'static> = Method {
    destination: "",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
    member: "PrepareForShutdown",
};

/// logind, with a longest delay that follows its configuration file.
#[derive(Clone)]
struct FakeLogind {
    service: FakeService,
    /// The other ends of locks.
    locks: Arc<Mutex<Vec<UnixStream>>>,
}

impl FakeLogind {
    fn new(directory: &Path) -> Self {
        let locks: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
        let (taken, file) = (locks.clone(), directory.join("99-kubelet.conf"));
        let service = FakeService::new(move |call| match &*call.member {
            "Get" => {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let seconds =
                    text.split("InhibitDelayMaxSec=").nth(1).map_or(5, |it| it.trim().parse().unwrap());
                Answer::Value(Some(Value::Variant(Box::new(Value::U64(seconds * 1_000_000)))))
            }
            "Inhibit" => {
                assert_eq!(call.value, Some(Value::Text("shutdown".to_owned())));
                let (own, theirs) = UnixStream::pair().unwrap();
                taken.lock().push(own);
                Answer::Descriptor(OwnedFd::from(theirs))
            }
            "KillUnit" => Answer::Value(None),
            _ => Answer::Error("org.freedesktop.DBus.Error.UnknownMethod"),
        });
        FakeLogind { service, locks }
    }

    async fn announce(&self, is_shutting_down: bool, changes: &mut watch::Receiver<bool>) {
        self.service.signal(ANNOUNCEMENT, &Value::Bool(is_shutting_down));
        let noticed = changes.wait_for(|it| *it == is_shutting_down);
        env::io::timeout(Duration::from_secs(60), noticed).await.unwrap().unwrap();
    }

    /// Waits until a lock is released.
    async fn released(&self, index: usize) {
        let mut lock = self.locks.lock()[index].try_clone().unwrap();
        let waiting = tokio::task::spawn_blocking(move || lock.read(&mut [0]).unwrap());
        assert_eq!(env::io::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap(), 0);
    }

    fn is_held(&self, index: usize) -> bool {
        let mut lock = self.locks.lock()[index].try_clone().unwrap();
        lock.set_nonblocking(true).unwrap();
        let is_held = lock.read(&mut [0]).is_err();
        lock.set_nonblocking(false).unwrap();
        is_held
    }
}

const SPEC: &str = r#""terminationGracePeriodSeconds":20,"containers":[{"name":"a","image":"x"}]"#;

/// Ends a node with a pod of each group by a service of logind.
async fn shut_down(socket: &Path, folder: &Path, logind: &FakeLogind) {
    let mut node = TestNode::new().await;
    node.workers.set(pod_of("low", &format!("{{{SPEC}}}")));
    node.workers.set(pod_of("high", &format!(r#"{{"priority":2000001000,{SPEC}}}"#)));
    node.until("running", |node| ["low", "high"].iter().all(|it| node.status(it).phase == "Running")).await;
    let is_shutting_down = watch::Sender::new(false);
    let mut changes = is_shutting_down.subscribe();
    let notes: Arc<Mutex<Vec<Note>>> = Arc::default();
    let noted = notes.clone();
    let second = Duration::from_secs(1);
    let shutdown = GracefulShutdown::new(ShutdownOptions {
        logind: Logind { socket: socket.to_owned(), directory: folder.to_owned() },
        world: node.clock.clone(),
        periods: by_critical(second * 15, second * 5),
        workers: node.workers.clone(),
        events: Arc::new(move |note| noted.lock().push(note)),
        is_shutting_down,
        times: ShutdownTimes::new(folder, &Registry::default()),
        marks_disruptions: true,
    });
    let running = tokio::spawn(shutdown.run());
    logind.service.called("Inhibit", 1).await;
    let written = std::fs::read_to_string(folder.join("99-kubelet.conf")).unwrap();
    assert!(written.ends_with("[Login]\nInhibitDelayMaxSec=15\n"), "{written}");
    logind.announce(true, &mut changes).await;
    // the less important pod first
    for (uid, other) in [("low", Some("high")), ("high", None)] {
        for _ in 0..1000 {
            settle().await;
            node.forget_ended();
            if node.is_finished(uid) {
                break;
            }
            assert!(logind.is_held(0));
            node.clock.advance(Duration::from_millis(50));
        }
        assert!(node.is_finished(uid), "{uid}");
        let status = node.status(uid);
        assert_eq!((&*status.phase, &*status.reason), ("Failed", "Terminated"));
        assert_eq!(status.message, "Pod was terminated in response to imminent node shutdown.");
        let mark = status.conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
        assert_eq!((&*mark.status, &*mark.reason), ("True", "TerminationByKubelet"));
        assert!(mark.last_transition_time.is_some());
        assert!(other.is_none_or(|other| node.status(other).phase == "Running"));
    }
    settle().await;
    node.forget_ended();
    logind.released(0).await;
    assert_eq!(notes.lock().iter().map(|it| it.reason).collect::<Vec<_>>(), ["NodeShutdown"]);
    let times = std::fs::read_to_string(folder.join("graceful_node_shutdown_state")).unwrap();
    assert!(times.contains("\"endTime\":\"2001-"), "{times}");
    // a shutdown that is cancelled takes the lock again
    logind.announce(false, &mut changes).await;
    logind.service.called("Inhibit", 2).await;
    assert!(logind.is_held(1));
    running.abort();
}

#[tokio::test]
async fn pods_end_before_the_machine_does() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("bus");
    let logind = FakeLogind::new(folder.path());
    logind.service.listen(&socket);
    shut_down(&socket, folder.path(), &logind).await;
}

/// The same over a real bus, if there is one.
#[tokio::test]
async fn logind_is_reached_over_a_bus_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("bus");
    let config = format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig><type>session</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>
        <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
        <allow own="*"/></policy></busconfig>"#,
        socket.display()
    );
    std::fs::write(folder.path().join("bus.conf"), config).unwrap();
    let daemon = tokio::process::Command::new("dbus-daemon")
        .arg(format!("--config-file={}", folder.path().join("bus.conf").display()))
        .args(["--nofork", "--print-address"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut daemon) = daemon else {
        println!("SKIPPED: there is no dbus-daemon");
        return;
    };
    // it prints the address once it listens
    let mut output = BufReader::new(daemon.stdout.take().unwrap());
    let mut address = String::new();
    env::io::timeout(Duration::from_secs(60), output.read_line(&mut address)).await.unwrap().unwrap();
    assert!(address.starts_with("unix:path="), "{address:?}");
    let logind = FakeLogind::new(folder.path());
    logind.service.join(&socket, "org.freedesktop.login1");
    logind.service.join(&socket, "org.freedesktop.systemd1");
    shut_down(&socket, folder.path(), &logind).await;
}
