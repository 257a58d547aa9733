use super::decide::AttachmentState;
use super::flex::FlexAttachments;
use crate::testing::object;
use api::core::v1::{FlexVolumeSource, Node};
use client::Queue;
use client::flex_volume::FlexSource;
use env::{Simulated, World};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Records its calls, and fails those that a file of this name exists for.
const DRIVER: &str = r#"#!/bin/sh
dir=$(dirname "$0")
[ "$1" != detach ] || echo "detach $2 $3" >> "$dir/calls"
[ "$1" != attach ] || echo "attach $3" >> "$dir/calls"
[ ! -e "$dir/fail-$1" ] || { echo '{"status":"Failure","message":"busy"}'; exit 1; }
case "$1" in
attach) echo '{"status":"Success","device":"/dev/disk"}';;
isattached) echo "{\"status\":\"Success\",\"attached\":$([ -e "$dir/lost" ] && echo false || echo true)}";;
init|detach) echo '{"status":"Success"}';;
*) echo '{"status":"Not supported"}'; exit 1;;
esac
"#;

struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<Simulated>,
    flex: Arc<FlexAttachments>,
    ended: UnboundedReceiver<bool>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("v~d");
        std::fs::create_dir(&folder).unwrap();
        // another process writes the program: this one may start others meanwhile, and a program that is open for writing
        // cannot be started
        let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
        let written = Command::new("sh").args(["-c", write, "sh", DRIVER]).arg(folder.join("d")).status();
        assert!(written.unwrap().success());
        let clock = Simulated::new(1_700_000_000, 1);
        let world: World = clock.clone();
        let flex = FlexAttachments::new(Some(dir.path()), Queue::new(&world), world);
        let (end, ended) = unbounded_channel();
        flex.on_finish(move |_, _, succeeded| {
            let _ = end.send(succeeded);
        });
        Fixture { dir, clock, flex, ended }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("v~d").join(name)
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.file("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn source() -> FlexSource {
        FlexSource::inline("vol", &FlexVolumeSource { driver: "v/d".to_owned(), ..Default::default() })
    }

    async fn attach(&mut self) -> bool {
        self.flex.attach("n", Self::source());
        self.ended.recv().await.unwrap()
    }

    async fn detach(&mut self) -> bool {
        self.flex.detach("n", "v/d/vol");
        self.ended.recv().await.unwrap()
    }

    fn state(&self, is_desired: bool) -> Option<AttachmentState> {
        let desired = BTreeMap::from([("v/d/vol".to_owned(), Self::source())]);
        self.flex
            .states("n", if is_desired { &desired } else { const { &BTreeMap::new() } })
            .remove("v/d/vol")
    }
}

fn attached() -> Option<AttachmentState> {
    Some(AttachmentState { attached: true, ..AttachmentState::default() })
}

fn terminating() -> Option<AttachmentState> {
    Some(AttachmentState { is_terminating: true, ..AttachmentState::default() })
}

#[tokio::test]
async fn programs_attach_and_detach() {
    let mut fixture = Fixture::new();
    assert!(fixture.attach().await);
    assert_eq!(
        (fixture.state(true), fixture.flex.device("n", "v/d/vol")),
        (attached(), "/dev/disk".to_owned())
    );
    assert_eq!(fixture.flex.nodes_of("v/d/vol"), ["n"]);
    assert_eq!(fixture.flex.counts(), BTreeMap::from([("v/d".to_owned(), 1)]));
    assert!(fixture.detach().await);
    assert_eq!((fixture.state(true), fixture.flex.nodes_of("v/d/vol")), (None, vec![]));
    assert_eq!(fixture.calls(), ["attach n", "detach vol n"]);
}

#[tokio::test]
async fn calls_that_fail_are_repeated_later() {
    let mut fixture = Fixture::new();
    std::fs::write(fixture.file("fail-attach"), "").unwrap();
    assert!(!fixture.attach().await);
    let error = fixture.state(true).unwrap().error.unwrap();
    assert_eq!(error, "attach command failed, status: Failure, reason: busy");
    fixture.clock.advance(Duration::from_millis(500));
    // due again, for a pod that is still there; without one it has to be detached
    assert_eq!(fixture.state(true), None);
    assert!(fixture.state(false).is_some());
    assert!(!fixture.attach().await);
    fixture.clock.advance(Duration::from_millis(500));
    assert!(fixture.state(true).is_some());
    fixture.clock.advance(Duration::from_millis(500));
    std::fs::remove_file(fixture.file("fail-attach")).unwrap();
    assert!(fixture.attach().await);

    std::fs::write(fixture.file("fail-detach"), "").unwrap();
    assert!(!fixture.detach().await);
    assert_eq!(fixture.state(false), terminating());
    fixture.clock.advance(Duration::from_millis(500));
    assert_eq!(
        (fixture.state(true), fixture.flex.device("n", "v/d/vol")),
        (attached(), "/dev/disk".to_owned())
    );
}

#[tokio::test]
async fn the_status_of_a_node_tells_what_is_attached() {
    let fixture = Fixture::new();
    let volumes = json!([{"name": "v/d/vol", "devicePath": "/dev/old"}, {"name": "v/absent/vol", "devicePath": ""},
        {"name": "kubernetes.io/csi/x^y", "devicePath": ""}]);
    let node: Node = object(json!({"metadata": {"name": "n"}, "status": {"volumesAttached": volumes}}));
    fixture.flex.adopt(&node);
    assert_eq!(fixture.flex.counts(), BTreeMap::from([("v/d".to_owned(), 1)]));
    assert_eq!(
        (fixture.state(true), fixture.flex.device("n", "v/d/vol")),
        (attached(), "/dev/old".to_owned())
    );
    // a volume that was lost is attached anew
    fixture.flex.verify_all().await;
    assert_eq!(fixture.state(true), attached());
    std::fs::write(fixture.file("lost"), "").unwrap();
    fixture.flex.verify_all().await;
    assert_eq!(fixture.state(true), None);
    // the status may be older than that
    fixture.flex.adopt(&node);
    assert_eq!(fixture.state(true), None);
}

#[tokio::test]
async fn drivers_that_are_absent_attach_nothing() {
    let fixture = Fixture::new();
    assert!(!fixture.flex.attaches("n", "v/absent") && !fixture.flex.attaches("n", "../v"));
    let world: World = fixture.clock.clone();
    let none = FlexAttachments::new(None, Queue::new(&world), world);
    assert!(!none.attaches("n", "v/d"));
}
