//! An agent that is killed before each of its steps: nothing is left of it, and everything can be done again.
//!
//! A process of this program pulls an image, makes a pod of it, starts, enters, stops and removes it, and ends itself
//! before its n-th step, for every n until it completes. Another pod runs all the time.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tracing::span;

/// The name by which this program is the agent that ends itself; folder, group, handler and step come after it.
pub const CRASH_COMMAND: &str = "crash";
const PULLED: &str = "pulled.test/image:1";

/// Ends the process at a step.
struct StepCounter {
    left: AtomicU64,
}

impl tracing::Subscriber for StepCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == runtime::steps::TARGET
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The agent of the test.
pub fn run_crashing_agent() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let (root, cgroup) = (PathBuf::from(&arguments[0]), &arguments[1]);
    BY_RUNC.store(!arguments[2].is_empty(), Ordering::Relaxed);
    let left = AtomicU64::new(arguments[3].parse().unwrap());
    tracing::subscriber::set_global_default(StepCounter { left }).unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    threads.block_on(async {
        let runtime = EmbeddedRuntime::open(options(&root), world()).unwrap();
        let config = SandboxConfig { uid: "u2".into(), ..sandbox_config(&root, cgroup) };
        runtime.pull(PULLED, None, &config).await.unwrap();
        let sandbox = runtime.run_sandbox(&config, handler()).await.unwrap();
        let image = ContainerConfig {
            image: PULLED.into(),
            log_path: "1.log".into(),
            ..container("exec sleep 1000")
        };
        let id = runtime.create_container(&sandbox, &image, &config).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        runtime.exec_sync(&id, &words(&["id"]), Duration::ZERO).await.unwrap();
        runtime.stop_container(&id, Duration::ZERO).await.unwrap();
        runtime.remove_container(&id).await.unwrap();
        runtime.stop_sandbox(&sandbox).await.unwrap();
        runtime.remove_sandbox(&sandbox).await.unwrap();
        runtime.remove_image(PULLED).await.unwrap();
    });
    ExitCode::SUCCESS
}

/// A registry with one image, at an address that the folder of registries names.
async fn serve_image(machine: &Machine) {
    let folder = machine.folder.path().join("pulled");
    fs::create_dir_all(folder.join("files/etc")).unwrap();
    // a layer that the other image does not have
    fs::write(folder.join("files/etc/pulled"), "").unwrap();
    make_image_with(&folder, &machine.folder.path().join("pulled.tar"), PULLED, r#""Cmd": ["/bin/sh"]"#);
    let (config, layer) =
        (fs::read(folder.join("config.json")).unwrap(), fs::read(folder.join("layer.tar")).unwrap());
    let described = |kind: &str, data: &[u8]| {
        let (digest, size) = (Digest::of(data), data.len());
        serde_json::json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest.to_string(), "size": size})
    };
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &config),
        "layers": [described("layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut answers = BTreeMap::new();
    for data in [config, layer] {
        answers.insert(format!("/v2/image/blobs/{}", Digest::of(&data)), data);
    }
    for name in ["1".to_owned(), Digest::of(&manifest).to_string()] {
        answers.insert(format!("/v2/image/manifests/{name}"), manifest.clone());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hosts = machine.options.registries.join("pulled.test");
    fs::create_dir_all(&hosts).unwrap();
    let text = format!("[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    fs::write(hosts.join("hosts.toml"), text).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
            let answer = match answers.get(path) {
                Some(data) => {
                    let kind = "application/vnd.oci.image.manifest.v1+json";
                    let text = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        data.len()
                    );
                    [text.as_bytes(), data].concat()
                }
                None => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
            };
            // an agent that was killed reads no more
            let _ = stream.write_all(&answer).await;
        }
    });
}

/// Everything of a machine that an agent could leave behind.
fn inventory(machine: &Machine) -> BTreeSet<String> {
    fn names(path: &Path, depth: usize, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            found.insert(entry.path().display().to_string());
            if depth > 0 && entry.file_type().is_ok_and(|it| it.is_dir()) {
                names(&entry.path(), depth - 1, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    names(&machine.options.root, 4, &mut found);
    names(&machine.options.run, 2, &mut found);
    for group in group_directories(&machine.cgroup) {
        found.extend(fs::read_dir(group).into_iter().flatten().flatten().filter_map(|it| {
            let is_group = it.file_type().is_ok_and(|it| it.is_dir());
            is_group.then(|| it.path().display().to_string())
        }));
    }
    let own = machine.folder.path().display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|it| it.contains(&own));
    found.extend(mounts.filter_map(|it| it.split(' ').nth(4)).map(|it| format!("mount {it}")));
    found
}

/// Removes the pods of an agent that was killed, and pulls again.
async fn recover(machine: &mut Machine, kept: &str) {
    machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    for sandbox in machine.runtime.sandboxes(None).await.unwrap().iter().filter(|it| it.id != kept) {
        // as an agent does, container by container
        for container in machine.runtime.containers(None).await.unwrap() {
            if container.sandbox_id == sandbox.id {
                machine.runtime.stop_container(&container.id, Duration::ZERO).await.unwrap();
                machine.runtime.remove_container(&container.id).await.unwrap();
            }
        }
        machine.runtime.stop_sandbox(&sandbox.id).await.unwrap();
        machine.runtime.remove_sandbox(&sandbox.id).await.unwrap();
    }
    machine.runtime.pull(PULLED, None, &machine.sandbox_config()).await.unwrap();
    machine.runtime.remove_image(PULLED).await.unwrap();
}

pub async fn an_agent_may_be_killed_at_every_step() {
    let mut machine = Machine::new().await;
    serve_image(&machine).await;
    let kept = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&kept, &container("exec sleep 1000")).await;
    recover(&mut machine, &kept).await;
    let before = inventory(&machine);
    let started_at = machine.runtime.container_status(&id).await.unwrap().started_at;
    let mut steps = 0u64;
    loop {
        steps += 1;
        let status = Command::new(std::env::current_exe().unwrap())
            .args([CRASH_COMMAND, &machine.folder.path().display().to_string(), &machine.cgroup, handler()])
            .arg(steps.to_string())
            .stderr(Stdio::inherit())
            .status()
            .unwrap();
        let is_complete = status.success();
        assert!(is_complete || status.code().is_none(), "step {steps}: {status}");
        recover(&mut machine, &kept).await;
        until(|| monitor_processes().len() == 1).await;
        let after = inventory(&machine);
        let (more, less): (Vec<_>, Vec<_>) =
            (after.difference(&before).collect(), before.difference(&after).collect());
        assert!(more.is_empty() && less.is_empty(), "killed at step {steps}: left {more:?}, lost {less:?}");
        let found = machine.runtime.container_status(&id).await.unwrap();
        assert_eq!((found.state, found.started_at), (ContainerState::Running, started_at), "step {steps}");
        if is_complete {
            break;
        }
    }
    println!("killed at {} steps", steps - 1);
    assert!(steps > 50, "the steps of the agent are not reported: {steps}");
    let output = machine.runtime.exec_sync(&id, &words(&["hostname"]), Duration::ZERO).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "pod-host");
    machine.finish().await;
}
