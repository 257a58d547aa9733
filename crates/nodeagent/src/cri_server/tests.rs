//! A simulated runtime behind the server, called by the agent's own client.

use super::{CriServer, CriServerOptions};
use crate::runtime::cri::CriRuntime;
use crate::runtime::simulated::SimulatedRuntime;
use crate::runtime::*;
use env::{Simulated, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

struct Served {
    runtime: SimulatedRuntime,
    client: CriRuntime,
    _folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let world: World = Simulated::new(1_700_000_000, 1);
    let runtime = SimulatedRuntime::new(world.clone());
    let options = CriServerOptions {
        runtime: Arc::new(runtime.clone()),
        world,
        stream_address: ([127, 0, 0, 1], 0).into(),
        stream_idle_timeout: Duration::ZERO,
    };
    let server = CriServer::bind(&socket, options).await.unwrap();
    let client = CriRuntime::new(&format!("unix://{}", socket.display()), None, None, None).unwrap();
    Served { runtime, client, _folder: folder, server: tokio::spawn(server.serve()) }
}

fn labels(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(names::node::POD_UID.to_owned(), uid.to_owned())])
}

fn sandbox_config(uid: &str) -> SandboxConfig {
    let namespaces = NamespaceOptions { pid: NamespaceMode::Container, ..NamespaceOptions::default() };
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: uid.into(),
        attempt: 2,
        labels: labels(uid),
        linux: SandboxLinux {
            security: LinuxSecurity { namespaces, ..LinuxSecurity::default() },
            ..SandboxLinux::default()
        },
        ..SandboxConfig::default()
    }
}

fn container_config(uid: &str) -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        image: "registry.test/app:1".into(),
        labels: labels(uid),
        ..ContainerConfig::default()
    }
}

#[tokio::test]
async fn states_are_the_same_through_the_socket() {
    let served = serve().await;
    let (direct, client) = (&served.runtime, &served.client);
    assert_eq!(client.version().await, direct.version().await);
    assert_eq!(client.status().await, direct.status().await);
    let config = sandbox_config("u1");
    let sandbox = client.run_sandbox(&config, "").await.unwrap();
    assert_eq!(client.sandbox_status(&sandbox).await, direct.sandbox_status(&sandbox).await);
    let id = client.create_container(&sandbox, &container_config("u1"), &config).await.unwrap();
    client.start_container(&id).await.unwrap();
    assert_eq!(client.container_status(&id).await, direct.container_status(&id).await);
    let other = client.run_sandbox(&sandbox_config("u2"), "").await.unwrap();
    client.create_container(&other, &container_config("u2"), &sandbox_config("u2")).await.unwrap();
    assert_eq!(client.sandboxes(Some("u1")).await, direct.sandboxes(Some("u1")).await);
    assert_eq!(client.containers(Some("u1")).await, direct.containers(Some("u1")).await);
    assert_eq!(client.containers(None).await.unwrap().len(), 2);
    assert_eq!(client.image("registry.test/app:1").await, direct.image("registry.test/app:1").await);
    client.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(client.container_status(&id).await.unwrap().state, ContainerState::Exited);
    client.remove_container(&id).await.unwrap();
    client.stop_sandbox(&sandbox).await.unwrap();
    client.remove_sandbox(&sandbox).await.unwrap();
    assert_eq!(direct.sandboxes(Some("u1")).await.unwrap(), []);
}

#[tokio::test]
async fn absent_objects_are_not_found_or_already_gone() {
    let served = serve().await;
    let client = &served.client;
    assert!(client.sandbox_status("none").await.unwrap_err().is_not_found());
    assert!(client.container_status("none").await.unwrap_err().is_not_found());
    client.stop_container("none", Duration::ZERO).await.unwrap();
    client.remove_container("none").await.unwrap();
    client.stop_sandbox("none").await.unwrap();
    client.remove_sandbox("none").await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_container_is_an_event() {
    let served = serve().await;
    let config = sandbox_config("u1");
    let sandbox = served.client.run_sandbox(&config, "").await.unwrap();
    let id = served.client.create_container(&sandbox, &container_config("u1"), &config).await.unwrap();
    served.client.start_container(&id).await.unwrap();
    let mut events = served.client.events().await.unwrap();
    served.client.stop_container(&id, Duration::ZERO).await.unwrap();
    let event = events.recv().await.unwrap();
    assert_eq!((event.container_id, event.sandbox_id, event.pod_uid), (id, sandbox, "u1".to_owned()));
    assert_eq!(event.change, ContainerChange::Stopped);
}

#[tokio::test]
async fn commands_and_ports_are_streamed() {
    let served = serve().await;
    let client = &served.client;
    let config = sandbox_config("u1");
    let sandbox = client.run_sandbox(&config, "").await.unwrap();
    let id = client.create_container(&sandbox, &container_config("u1"), &config).await.unwrap();
    let options = StreamOptions { stdin: false, stdout: true, stderr: true, tty: false };
    let command = ["exit", "7"].map(str::to_owned);
    let refused = client.exec(&id, &command, options).await.err().unwrap();
    assert_eq!(refused.code, RuntimeCode::FailedPrecondition);
    client.start_container(&id).await.unwrap();
    let mut streams = client.exec(&id, &command, options).await.unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    streams.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    streams.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((&*out, &*err, streams.exit.await.unwrap()), ("out", "err", 7));
    let mut port = client.port_forward(&sandbox, 13).await.unwrap();
    let mut line = String::new();
    port.data.read_to_string(&mut line).await.unwrap();
    assert_eq!(line, "noon\n");
}
