//! The state of the embedded runtime: what is on disk, and what runs.

use super::cgroup::Cgroups;
use super::cni::CniFolders;
use super::monitor_client::{MonitorClient, during, failed};
use super::overlay_probe::probe_overlay;
use super::program::Program;
use super::protocol::{ExitRecord, Reply, Request, StartRecord, start_file};
use super::record::{ContainerRecord, Durability, SandboxRecord, read, write};
use crate::images::root_dir::remove_tree;
use crate::images::{ImageError, ImageStore, UnpackLimits};
use crate::steps::step;
use crate::{ContainerChange, RuntimeCode, RuntimeError, RuntimeEvent, SandboxConfig};
use env::World;
use parking_lot::Mutex;
use rustix::fs::CWD;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{broadcast, watch};
use tokio::task::spawn_blocking;

const EVENTS: usize = 1024;
/// The time before a monitor that cannot be called is called again.
const FOLLOW_DELAY: Duration = Duration::from_millis(200);

/// Folders and programs of the runtime.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Images, sandboxes and containers; kept over a restart of the machine.
    pub root: PathBuf,
    /// Sockets; its path must be short.
    pub run: PathBuf,
    /// This program.
    pub program: PathBuf,
    pub cni: CniFolders,
    /// The folder of `HOST/hosts.toml`.
    pub registries: PathBuf,
    /// The folder of links to external runtimes, by the handlers of runtime classes.
    pub handlers: PathBuf,
    pub cgroup_root: PathBuf,
    pub limits: UnpackLimits,
    /// The name and version in requests to registries.
    pub agent: String,
}

pub struct State {
    pub options: EmbeddedOptions,
    pub program: Program,
    pub world: World,
    pub images: Arc<ImageStore>,
    pub cgroups: Cgroups,
    pub boot_id: String,
    /// Whether the filesystems of containers are overlays; without, they are copies.
    pub has_overlay: bool,
    pub sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    pub containers: Mutex<BTreeMap<String, Arc<Container>>>,
    pub events: broadcast::Sender<RuntimeEvent>,
    pub garbage: Garbage,
}

pub struct Sandbox {
    pub directory: PathBuf,
    pub run: PathBuf,
    pub monitor: MonitorClient,
    pub record: Mutex<SandboxRecord>,
    writing: Writing,
}

pub struct Container {
    pub directory: PathBuf,
    pub record: Mutex<ContainerRecord>,
    pub ended: watch::Sender<bool>,
    /// It was found, and this agent has not started it: a start that the agent before requested may be under way.
    pub is_found: AtomicBool,
    writing: Writing,
}

/// The right to write a record: held while it is written, so that the latest one is the last, and gone once the record is
/// about to be removed. Taken before the record itself.
#[derive(Default)]
struct Writing(Mutex<bool>);

impl Writing {
    fn run(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let is_over = self.0.lock();
        if *is_over { Ok(()) } else { write() }
    }

    fn end(&self) {
        *self.0.lock() = true;
    }
}

impl Container {
    fn new(directory: PathBuf, record: ContainerRecord) -> Arc<Self> {
        let is_ended = record.exit.is_some();
        let ended = watch::Sender::new(is_ended);
        Arc::new(Container {
            directory,
            record: Mutex::new(record),
            ended,
            is_found: AtomicBool::new(false),
            writing: Writing::default(),
        })
    }

    pub fn exit_file(&self) -> PathBuf {
        self.directory.join("exit.json")
    }

    pub fn save(&self, durability: Durability) -> Result<(), RuntimeError> {
        let write = || {
            let record = self.record.lock().clone();
            write(&self.directory.join("container.json"), &record, durability)
        };
        self.writing.run(write).map_err(during("write the record of a container"))
    }

    /// From now on the record is not written: it is about to be removed, with its directory.
    pub fn end_writing(&self) {
        self.writing.end();
    }

    /// Takes the start that the monitor recorded, if an agent was killed before it had the answer.
    pub fn load_start(&self) {
        if let Ok(Some(start)) = read::<StartRecord>(&start_file(&self.exit_file())) {
            let mut record = self.record.lock();
            if record.start_error.is_empty() {
                (record.process_id, record.started_at) = (start.pid, start.started_at);
            }
        }
    }

    /// Takes the exit that the monitor recorded; one that cannot be read is as good as none.
    pub fn load_exit(&self) {
        if let Ok(Some(exit)) = read::<ExitRecord>(&self.exit_file()) {
            self.record.lock().exit = Some(exit);
            self.ended.send_replace(true);
        }
    }

    /// Completes when the container has ended.
    pub async fn wait(&self) {
        // the sender is in this container
        let _ = self.ended.subscribe().wait_for(|it| *it).await;
    }
}

impl Sandbox {
    pub fn save(&self, durability: Durability) -> Result<(), RuntimeError> {
        let write = || {
            let record = self.record.lock().clone();
            write(&self.directory.join("sandbox.json"), &record, durability)
        };
        self.writing.run(write).map_err(during("write the record of a sandbox"))
    }

    /// As for a container.
    pub fn end_writing(&self) {
        self.writing.end();
    }
}

pub fn not_found(what: &str, id: &str) -> RuntimeError {
    RuntimeError::new(RuntimeCode::NotFound, format!("{what} {id:?} not found"))
}

pub fn image_error(why: &ImageError) -> RuntimeError {
    let code = match why {
        ImageError::NotFound(_) => RuntimeCode::NotFound,
        ImageError::Invalid(_) => RuntimeCode::InvalidArgument,
        _ => RuntimeCode::Unknown,
    };
    RuntimeError::new(code, why.to_string())
}

/// Runs blocking work.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    spawn_blocking(work).await.map_err(|why| failed(why.to_string()))?
}

/// The attempts to remove garbage, and whether a later one is due.
#[derive(Debug, Default)]
pub struct Garbage {
    pub is_due: AtomicBool,
    /// Held for an attempt: one that follows waits, so that it sees what was removed meanwhile.
    pub attempt: Mutex<()>,
}

impl State {
    /// Opens the folders, and finds the sandboxes and containers that are there.
    pub fn open(options: EmbeddedOptions, world: World) -> Result<Arc<Self>, RuntimeError> {
        private_directory(&options.root)?;
        let has_overlay = probe_overlay(&options.root.join("overlay-probe"));
        if !has_overlay {
            tracing::warn!("overlayfs cannot be used here: every container gets a copy of its image");
        }
        State::open_with(options, world, has_overlay)
    }

    pub fn open_with(
        options: EmbeddedOptions,
        world: World,
        has_overlay: bool,
    ) -> Result<Arc<Self>, RuntimeError> {
        for folder in [&options.root, &options.run, &options.root.join("sandboxes")] {
            private_directory(folder)?;
        }
        let images = ImageStore::open(&options.root.join("images"), options.limits)
            .map_err(|why| image_error(&why))?;
        let program = Program::open(&options.program, &options.root.join("program"))
            .map_err(during("mount this program read-only"))?;
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let state = Arc::new(State {
            cgroups: Cgroups::detect(&options.cgroup_root),
            images: Arc::new(images),
            options,
            program,
            world,
            boot_id,
            has_overlay,
            sandboxes: Mutex::default(),
            containers: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
            garbage: Garbage::default(),
        });
        state.load();
        state.collect_garbage_later(Duration::ZERO);
        Ok(state)
    }

    pub fn sandbox_directory(&self, id: &str) -> PathBuf {
        self.options.root.join("sandboxes").join(id)
    }

    /// Sockets have short paths.
    pub fn run_directory(&self, id: &str) -> PathBuf {
        self.options.run.join(&id[..id.len().min(16)])
    }

    pub fn add_sandbox(&self, record: SandboxRecord) -> Arc<Sandbox> {
        let id = record.id.clone();
        let run = self.run_directory(&id);
        let monitor = MonitorClient::new(&run.join("monitor.sock"));
        let directory = self.sandbox_directory(&id);
        let record = Mutex::new(record);
        let sandbox = Arc::new(Sandbox { directory, run, monitor, record, writing: Writing::default() });
        self.sandboxes.lock().insert(id, sandbox.clone());
        sandbox
    }

    pub fn add_container(&self, directory: PathBuf, record: ContainerRecord) -> Arc<Container> {
        let id = record.id.clone();
        let container = Container::new(directory, record);
        self.containers.lock().insert(id, container.clone());
        container
    }

    /// Follows the ends of a sandbox's containers, until its monitor is gone.
    pub fn follow(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let (state, sandbox, world) = (Arc::downgrade(self), sandbox.clone(), self.world.clone());
        tokio::spawn(async move {
            loop {
                follow_once(&state, &sandbox).await;
                // a call that fails while the monitor runs says nothing about the pod
                if sandbox.record.lock().monitor_directory().is_none() {
                    break;
                }
                env::sleep(&world, FOLLOW_DELAY).await;
                if state.strong_count() == 0 {
                    return;
                }
            }
            if let Some(state) = Weak::upgrade(&state) {
                state.lose(&sandbox);
            }
        });
    }

    /// Reports a change of a container.
    pub fn announce(&self, container: &Container, change: ContainerChange) {
        let record = container.record.lock();
        let pod_uid = record.config.labels.get(names::node::POD_UID).cloned().unwrap_or_default();
        let event = RuntimeEvent {
            container_id: record.id.clone(),
            sandbox_id: record.sandbox_id.clone(),
            pod_uid,
            change,
        };
        // without a subscriber the event is of no use
        let _ = self.events.send(event);
    }

    pub fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, RuntimeError> {
        self.sandboxes.lock().get(id).cloned().ok_or_else(|| not_found("sandbox", id))
    }

    pub fn container(&self, id: &str) -> Result<Arc<Container>, RuntimeError> {
        self.containers.lock().get(id).cloned().ok_or_else(|| not_found("container", id))
    }

    pub fn containers_of(&self, sandbox: &Sandbox) -> Vec<Arc<Container>> {
        let id = sandbox.record.lock().id.clone();
        let all: Vec<_> = self.containers.lock().values().cloned().collect();
        all.into_iter().filter(|it| it.record.lock().sandbox_id == id).collect()
    }

    pub fn now(&self) -> i64 {
        let since = self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    pub fn new_id(&self) -> String {
        let mut bytes = [0; 32];
        self.world.fill(&mut bytes);
        bytes.iter().map(|it| format!("{it:02x}")).collect()
    }
}

/// Follows the ends of containers on one connection.
async fn follow_once(state: &Weak<State>, sandbox: &Arc<Sandbox>) {
    let opened = sandbox.monitor.open(Request::Watch, Vec::new()).await;
    let Ok((Reply::Done, _, mut replies)) = opened else { return };
    if let Some(state) = Weak::upgrade(state) {
        // containers that ended before
        for container in state.containers_of(sandbox) {
            container.load_exit();
            if *container.ended.borrow() {
                state.announce(&container, ContainerChange::Stopped);
            }
        }
    }
    while let Some(Reply::Exited { container }) = replies.next().await {
        let Some(state) = Weak::upgrade(state) else { return };
        if let Ok(container) = state.container(&container) {
            container.load_exit();
            state.announce(&container, ContainerChange::Stopped);
        }
    }
}

/// Makes a folder that only root enters, also of one that other users could. A container may leave programs with
/// set-user-id bits below, and names the path of its files in its mount table.
fn private_directory(path: &Path) -> Result<(), RuntimeError> {
    const MODE: u32 = 0o700;
    let made = durable_file::directory(path, MODE)
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(MODE)));
    made.map_err(during("make the folders of the runtime"))
}

/// The control group of a container.
pub fn container_cgroup(sandbox: &SandboxConfig, id: &str) -> String {
    let parent = sandbox.linux.cgroup_parent.trim_end_matches('/');
    format!("{}/{id}", if parent.is_empty() { "/pintle" } else { parent })
}

/// Removes the folders of a sandbox, and its shared memory.
pub fn remove_sandbox_folders(run: &Path, directory: &Path) -> io::Result<()> {
    // it may have no shared memory of its own
    step("unmount shared memory", run);
    let _ = unmount(run.join("shm"), UnmountFlags::DETACH);
    for path in [run, directory] {
        remove_tree(CWD, path.as_os_str().as_bytes(), 0)?;
    }
    Ok(())
}
