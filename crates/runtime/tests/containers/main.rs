//! Tests of containers with the kernel. They need root and `/bin/busybox`, and are left out with a line if there is none.
//!
//! The program of these tests is also the monitor of their pods and the first process of their containers. Control groups
//! and folders are the tests' own; networks are those of the pods.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "tests fail by panicking, and say what they leave out"
)]

mod crash;
mod declared;
mod garbage;
mod groups;
mod hostile;
mod rights;
mod starts;

use crash::{CRASH_COMMAND, an_agent_may_be_killed_at_every_step, run_crashing_agent};
use declared::{
    a_user_that_the_image_lacks_is_an_error_of_the_creation,
    volumes_of_an_image_are_beside_the_files_of_the_container,
};
use env::World;
use garbage::{
    an_image_that_is_removed_stays_for_the_container_that_is_made_of_it,
    garbage_is_removed_once_no_image_is_pulled_and_at_the_start,
};
use groups::a_container_may_divide_its_control_group;
use hostile::{
    a_flood_of_output_takes_no_memory, a_fork_bomb_ends_with_its_container,
    a_link_that_changes_leads_no_mount_out_of_the_root, a_working_directory_by_a_descriptor_stays_inside,
    absurd_configurations_of_images_are_contained, pipes_in_place_of_files_hang_no_start,
    the_output_of_a_command_is_cut_at_a_limit, users_of_the_machine_do_not_reach_the_files_of_a_container,
};
use rights::{
    a_filter_allows_the_start_with_fewer_calls_than_runc_makes,
    a_pod_in_the_ipc_namespace_of_the_machine_has_its_shared_memory,
    a_privileged_container_does_not_write_to_sys,
    containers_have_the_limit_of_open_files_that_the_agent_began_with,
    devices_are_restricted_by_control_groups_of_both_versions,
    programs_of_32_bits_are_under_the_filter_of_their_calls,
    set_user_id_programs_have_their_user_under_a_filter,
};
use runtime::containers::cni::CniFolders;
use runtime::containers::{EmbeddedOptions, EmbeddedRuntime, INIT_COMMAND, MONITOR_COMMAND, init, monitor};
use runtime::images::{Digest, UnpackLimits, import};
use runtime::*;
use starts::{
    a_handler_is_done_before_its_monitor_looks, a_start_under_way_ends_with_a_removal_by_the_next_agent,
    a_start_under_way_ends_with_its_monitor,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const IMAGE: &str = "registry.test/busybox:1";
const CGROUPS: &str = "/sys/fs/cgroup";
const RUNC: &str = "/usr/sbin/runc";
/// The name by which this program is an agent that runs pods until it is killed; the folder and the group come after it.
const AGENT_COMMAND: &str = "agent";

/// The real clock; ids are random enough for one run.
struct TestWorld {
    clock: env::TokioClock,
}

impl env::Env for TestWorld {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> env::Sleep {
        self.clock.sleep_until(at)
    }

    fn fill(&self, buffer: &mut [u8]) {
        use std::io::Read;
        fs::File::open("/dev/urandom").unwrap().read_exact(buffer).unwrap();
    }
}

fn world() -> World {
    Arc::new(TestWorld { clock: env::TokioClock::start() })
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(INIT_COMMAND) => return init::run().into(),
        Some(MONITOR_COMMAND) => return monitor::run(&world()).into(),
        Some(AGENT_COMMAND) => return run_agent(),
        Some(CRASH_COMMAND) => return run_crashing_agent(),
        _ => {}
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/bin/busybox").exists() {
        println!("SKIPPED: tests of containers need root and /bin/busybox");
        return ExitCode::SUCCESS;
    }
    let (mut filter, mut skipped) = (None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--skip" => skipped.extend(arguments.next()),
            flag if flag.starts_with('-') => {}
            name => filter = Some(name.to_owned()),
        }
    }
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut passed, mut failures) = (0, Vec::new());
    let own = tests().into_iter().map(|(name, test)| (name.to_owned(), test, ""));
    let external = tests().into_iter().map(|(name, test)| (format!("{name}_by_runc"), test, "runc"));
    let external = external.filter(|it| !has_own_runtime(&it.0));
    if !Path::new(RUNC).exists() {
        println!("SKIPPED: tests of containers by an external runtime need {RUNC}");
    }
    for (name, test, handler) in own.chain(external.filter(|_| Path::new(RUNC).exists())) {
        let is_named = |part: &String| name.contains(part.as_str());
        if !filter.as_ref().is_none_or(is_named) || skipped.iter().any(is_named) {
            continue;
        }
        BY_RUNC.store(!handler.is_empty(), Ordering::Relaxed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            threads.block_on(async {
                let limit = Duration::from_secs(600);
                env::io::timeout(limit, test()).await.map_err(|_| ()).expect("the test ends");
            });
        }));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        match outcome {
            Ok(()) => passed += 1,
            Err(_) => failures.push(name),
        }
    }
    println!("{passed} passed, {} failed", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the containers of the test that runs are made by runc.
static BY_RUNC: AtomicBool = AtomicBool::new(false);

/// The handler of the sandboxes of the test that runs.
fn handler() -> &'static str {
    if BY_RUNC.load(Ordering::Relaxed) { "runc" } else { "" }
}

/// Tests of what only the embedded runtime does, that name their handler, or that would take minutes with another one.
fn has_own_runtime(name: &str) -> bool {
    [
        "the_program_cannot",
        "a_handler_is",
        "an_agent_may_be_killed",
        "a_filter_allows",
        "devices_are",
        "pipes_in",
    ]
    .iter()
    .any(|it| name.starts_with(it))
}

type Test = fn() -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

macro_rules! list {
    ($($name:ident),* $(,)?) => {
        fn tests() -> Vec<(&'static str, Test)> {
            vec![$((stringify!($name), || Box::pin($name()))),*]
        }
    };
}

list![
    output_and_exit_code_are_recorded,
    a_container_sees_its_own_processes_and_network,
    no_descriptor_is_leaked,
    users_and_capabilities_are_those_of_the_configuration,
    the_default_seccomp_profile_is_in_force,
    set_user_id_programs_have_their_user_under_a_filter,
    programs_of_32_bits_are_under_the_filter_of_their_calls,
    a_filter_allows_the_start_with_fewer_calls_than_runc_makes,
    devices_are_restricted_by_control_groups_of_both_versions,
    a_privileged_container_does_not_write_to_sys,
    a_pod_in_the_ipc_namespace_of_the_machine_has_its_shared_memory,
    containers_have_the_limit_of_open_files_that_the_agent_began_with,
    mounts_are_where_they_belong,
    commands_are_executed,
    a_command_that_takes_too_long_is_killed,
    a_container_is_stopped_with_its_signal,
    a_program_that_is_missing_is_an_error_of_the_start,
    containers_outlive_the_agent,
    a_start_under_way_ends_with_a_removal_by_the_next_agent,
    a_start_under_way_ends_with_its_monitor,
    a_handler_is_done_before_its_monitor_looks,
    attached_clients_get_the_output,
    terminals_work,
    containers_of_a_pod_share_processes,
    too_much_memory_ends_a_container,
    a_container_may_divide_its_control_group,
    the_program_cannot_be_written_by_a_container,
    volumes_of_an_image_are_beside_the_files_of_the_container,
    a_user_that_the_image_lacks_is_an_error_of_the_creation,
    copied_filesystems_work,
    a_killed_agent_leaves_nothing_behind,
    containers_end_with_a_killed_monitor,
    a_fork_bomb_ends_with_its_container,
    a_flood_of_output_takes_no_memory,
    a_link_that_changes_leads_no_mount_out_of_the_root,
    absurd_configurations_of_images_are_contained,
    pipes_in_place_of_files_hang_no_start,
    a_working_directory_by_a_descriptor_stays_inside,
    the_output_of_a_command_is_cut_at_a_limit,
    users_of_the_machine_do_not_reach_the_files_of_a_container,
    an_image_that_is_removed_stays_for_the_container_that_is_made_of_it,
    garbage_is_removed_once_no_image_is_pulled_and_at_the_start,
    a_handler_is_an_external_runtime,
    an_agent_may_be_killed_at_every_step,
];

struct Machine {
    folder: tempfile::TempDir,
    runtime: EmbeddedRuntime,
    options: EmbeddedOptions,
    cgroup: String,
}

impl Machine {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let plugins = root.join("plugins");
        fs::create_dir_all(&plugins).unwrap();
        let plugin = "#!/bin/sh\ncat > /dev/null\necho '{\"ips\": [{\"address\": \"10.9.8.7/24\"}]}'\n";
        fs::write(plugins.join("fake"), plugin).unwrap();
        fs::set_permissions(plugins.join("fake"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(root.join("net.d")).unwrap();
        let list = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "fake"}]}"#;
        fs::write(root.join("net.d/10-test.conflist"), list).unwrap();
        fs::create_dir(root.join("handlers")).unwrap();
        std::os::unix::fs::symlink(RUNC, root.join("handlers/runc")).unwrap();
        let options = options(root);
        let runtime = EmbeddedRuntime::open(options.clone(), world()).unwrap();
        let archive = root.join("image.tar");
        make_image(&root.join("image"), &archive);
        assert_eq!(import(runtime.image_store(), &archive, None).unwrap(), [IMAGE]);
        let cgroup = format!("/pintle-test-{}", &runtime_id(root));
        Machine { folder, runtime, options, cgroup }
    }

    fn sandbox_config(&self) -> SandboxConfig {
        sandbox_config(self.folder.path(), &self.cgroup)
    }

    async fn run(&self, sandbox: &str, config: &ContainerConfig) -> String {
        let id = self.runtime.create_container(sandbox, config, &self.sandbox_config()).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    async fn wait(&self, id: &str) -> ContainerStatus {
        wait(&self.runtime, id).await
    }

    fn log(&self, name: &str) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.folder.path().join("logs").join(name)).unwrap();
        let line = |line: &str| {
            let mut parts = line.splitn(4, ' ').skip(1);
            let stream = parts.next().unwrap().to_owned();
            (stream, parts.nth(1).unwrap_or_default().to_owned())
        };
        text.lines().map(line).collect()
    }

    /// The output of a shell command in a new container of a new sandbox.
    async fn output(&self, script: &str, change: impl FnOnce(&mut ContainerConfig)) -> (i32, String) {
        let sandbox = self.runtime.run_sandbox(&self.sandbox_config(), handler()).await.unwrap();
        let mut config = container(script);
        change(&mut config);
        let id = self.run(&sandbox, &config).await;
        let status = self.wait(&id).await;
        let lines: Vec<_> = self.log("0.log").into_iter().map(|it| it.1).collect();
        fs::remove_file(self.folder.path().join("logs/0.log")).unwrap();
        self.runtime.remove_sandbox(&sandbox).await.unwrap();
        (status.exit_code, lines.join("\n"))
    }

    /// Removes everything, and looks for what is left.
    async fn finish(self) {
        for sandbox in self.runtime.sandboxes(None).await.unwrap() {
            self.runtime.stop_sandbox(&sandbox.id).await.unwrap();
            self.runtime.remove_sandbox(&sandbox.id).await.unwrap();
        }
        let left: Vec<_> = fs::read_dir(self.options.root.join("sandboxes")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let own = self.folder.path().display().to_string();
        let left: Vec<_> = mounts.lines().filter(|it| it.contains(&own)).collect();
        assert!(left.is_empty(), "{left:?}");
        for group in group_directories(&self.cgroup).iter().filter(|it| it.exists()) {
            // the group of the pod is the agent's; it must be empty
            fs::remove_dir(group).unwrap();
        }
    }
}

/// The directories of a control group: one for each controller of version 1.
fn group_directories(group: &str) -> Vec<PathBuf> {
    let roots = match has_unified_groups() {
        true => vec![PathBuf::from(CGROUPS)],
        false => fs::read_dir(CGROUPS).unwrap().flatten().map(|it| it.path()).collect(),
    };
    roots.into_iter().map(|it| it.join(group.trim_start_matches('/'))).collect()
}

/// Whether the machine has version 2 of control groups alone.
fn has_unified_groups() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").exists()
}

fn options(root: &Path) -> EmbeddedOptions {
    EmbeddedOptions {
        root: root.join("lib"),
        run: root.join("run"),
        program: std::env::current_exe().unwrap(),
        cni: CniFolders {
            configurations: root.join("net.d"),
            plugins: vec![root.join("plugins")],
            built_in: None,
        },
        registries: root.join("registries"),
        handlers: root.join("handlers"),
        cgroup_root: CGROUPS.into(),
        limits: UnpackLimits::default(),
        agent: "test".to_owned(),
    }
}

fn sandbox_config(root: &Path, cgroup: &str) -> SandboxConfig {
    let log_directory = root.join("logs");
    fs::create_dir_all(&log_directory).unwrap();
    let namespaces = NamespaceOptions { pid: NamespaceMode::Container, ..NamespaceOptions::default() };
    SandboxConfig {
        name: "pod".into(),
        uid: "u1".into(),
        namespace: "ns".into(),
        hostname: "pod-host".into(),
        log_directory: log_directory.display().to_string(),
        linux: SandboxLinux {
            cgroup_parent: cgroup.to_owned(),
            security: LinuxSecurity { namespaces, ..LinuxSecurity::default() },
            ..SandboxLinux::default()
        },
        ..SandboxConfig::default()
    }
}

fn runtime_id(root: &Path) -> String {
    Digest::of(root.display().to_string().as_bytes()).hex()[..12].to_owned()
}

async fn wait(runtime: &EmbeddedRuntime, id: &str) -> ContainerStatus {
    // subscribed before the look, so that no end is missed
    let mut events = runtime.events().await.unwrap();
    loop {
        let status = runtime.container_status(id).await.unwrap();
        if status.state == ContainerState::Exited {
            return status;
        }
        events.recv().await.unwrap();
    }
}

fn make_image(folder: &Path, archive: &Path) {
    make_image_with(folder, archive, IMAGE, r#""Cmd": ["/bin/sh"], "Env": ["FROM_IMAGE=yes"]"#);
}

/// An archive as of `docker save`, made with tar; `run` is the inside of the configuration.
fn make_image_with(folder: &Path, archive: &Path, image: &str, run: &str) {
    let files = folder.join("files");
    for name in ["bin", "etc", "tmp"] {
        fs::create_dir_all(files.join(name)).unwrap();
    }
    fs::copy("/bin/busybox", files.join("bin/busybox")).unwrap();
    for name in [
        "sh", "cat", "id", "ls", "sleep", "hostname", "ps", "touch", "unshare", "readlink", "tail", "echo",
        "stty", "grep", "head", "mkdir", "ip", "mount", "tty",
    ] {
        std::os::unix::fs::symlink("busybox", files.join("bin").join(name)).unwrap();
    }
    fs::write(
        files.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n",
    )
    .unwrap();
    fs::write(files.join("etc/group"), "root:x:0:\napp:x:1000:\nteam:x:50:app\n").unwrap();
    let tar = |output: &Path, folder: &Path, names: &[&str]| {
        let status =
            Command::new("tar").arg("-cf").arg(output).arg("-C").arg(folder).args(names).status().unwrap();
        assert!(status.success());
    };
    tar(&folder.join("layer.tar"), &files, &["."]);
    let diff_id = Digest::of(&fs::read(folder.join("layer.tar")).unwrap());
    let config =
        format!(r#"{{"config": {{{run}}}, "rootfs": {{"type": "layers", "diff_ids": ["{diff_id}"]}}}}"#);
    fs::write(folder.join("config.json"), config).unwrap();
    let manifest =
        format!(r#"[{{"Config": "config.json", "RepoTags": ["{image}"], "Layers": ["layer.tar"]}}]"#);
    fs::write(folder.join("manifest.json"), manifest).unwrap();
    tar(archive, folder, &["layer.tar", "config.json", "manifest.json"]);
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|it| (*it).to_owned()).collect()
}

fn container(script: &str) -> ContainerConfig {
    let namespaces = NamespaceOptions { pid: NamespaceMode::Container, ..NamespaceOptions::default() };
    ContainerConfig {
        name: "c".into(),
        image: IMAGE.into(),
        command: words(&["/bin/sh", "-c", script]),
        log_path: "0.log".into(),
        linux: ContainerLinux {
            security: LinuxSecurity { namespaces, ..LinuxSecurity::default() },
            ..ContainerLinux::default()
        },
        ..ContainerConfig::default()
    }
}

async fn output_and_exit_code_are_recorded() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let status = machine.runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!((status.ips, status.info.is_ready), (vec!["10.9.8.7".to_owned()], true));
    let mut events = machine.runtime.events().await.unwrap();
    let mut config = container("echo out $A $FROM_IMAGE; echo err >&2; printf end; exit 3");
    config.envs = vec![("A".into(), "b".into())];
    let id = machine.run(&sandbox, &config).await;
    let status = machine.wait(&id).await;
    assert_eq!((status.exit_code, &*status.reason), (3, "Error"));
    assert!(status.created_at <= status.started_at && status.started_at <= status.finished_at);
    let mut log = machine.log("0.log");
    log.sort();
    let entry = |stream: &str, line: &str| (stream.to_owned(), line.to_owned());
    assert_eq!(log, [entry("stderr", "err"), entry("stdout", "end"), entry("stdout", "out b yes")]);
    assert_eq!(events.recv().await.unwrap().container_id, id);
    let listed = machine.runtime.containers(None).await.unwrap();
    assert_eq!((listed.len(), listed[0].state), (1, ContainerState::Exited));
    machine.finish().await;
}

async fn a_container_sees_its_own_processes_and_network() {
    let machine = Machine::new().await;
    let script = "echo $$; hostname; ls /sys/class/net; ps | grep -c busybox; cat /etc/hostname; echo x > /etc/new; echo $HOME";
    let (code, output) = machine.output(script, |_| {}).await;
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(code, 0, "{output}");
    assert_eq!((lines[0], lines[1], lines[2]), ("1", "pod-host", "lo"), "{output}");
    assert!(lines.contains(&"/root"), "{output}");
    let (_, output) =
        machine.output("ip addr show lo | grep -c 127.0.0.1; ls -a /.. | head -3", |_| {}).await;
    assert!(output.starts_with('1'), "{output}");
    machine.finish().await;
}

async fn no_descriptor_is_leaked() {
    // one that the agent would have had from its parent: it is not closed by exec
    let (flags, mode) = (rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    let _inherited = rustix::fs::open("/dev/null", flags, mode).unwrap();
    let machine = Machine::new().await;
    // the shell opens the folder as one more
    let (_, output) = machine.output("exec ls /proc/self/fd", |_| {}).await;
    assert_eq!(output, "0\n1\n2\n3");
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let found =
        machine.runtime.exec_sync(&id, &words(&["ls", "/proc/self/fd"]), Duration::ZERO).await.unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "0\n1\n2\n3\n");
    let found = machine.runtime.exec_sync(&id, &words(&["ls", "/proc/1/fd"]), Duration::ZERO).await.unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "0\n1\n2\n");
    machine.finish().await;
}

async fn users_and_capabilities_are_those_of_the_configuration() {
    let machine = Machine::new().await;
    let script = "id; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; touch /tmp/x || echo denied";
    let (_, output) = machine
        .output(script, |config| {
            config.linux.security.run_as_username = "app".into();
            config.linux.security.supplemental_groups = vec![77];
            config.linux.security.no_new_privs = true;
        })
        .await;
    assert!(output.contains("uid=1000(app) gid=1000(app) groups=50(team),77,1000(app)"), "{output}");
    assert!(
        output.contains("CapEff:\t0000000000000000") && output.contains("CapBnd:\t00000000a80425fb"),
        "{output}"
    );
    assert!(output.contains("NoNewPrivs:\t1") && output.contains("denied"), "{output}");
    let (_, output) =
        machine.output(script, |config| config.linux.security.capabilities.drop = words(&["ALL"])).await;
    assert!(output.contains("uid=0(root)") && output.contains("CapEff:\t0000000000000000"), "{output}");
    machine.finish().await;
}

async fn the_default_seccomp_profile_is_in_force() {
    let machine = Machine::new().await;
    let script =
        "grep Seccomp: /proc/self/status; unshare -U sh -c 'echo allowed' 2>/dev/null || echo refused";
    let (_, output) = machine.output(script, |_| {}).await;
    assert_eq!(output, "Seccomp:\t0\nallowed");
    let (_, output) = machine
        .output(script, |config| config.linux.security.seccomp = Some(SecurityProfile::RuntimeDefault))
        .await;
    assert_eq!(output, "Seccomp:\t2\nrefused");
    machine.finish().await;
}

async fn mounts_are_where_they_belong() {
    let machine = Machine::new().await;
    let volume = machine.folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "from the volume").unwrap();
    let mount = |target: &str, source: PathBuf, is_readonly: bool| Mount {
        container_path: target.into(),
        host_path: source.display().to_string(),
        is_readonly,
        ..Mount::default()
    };
    let script = "cat /data/deep/file /one; echo; echo x > /data/deep/new && echo written; echo x > /ro/new || echo read-only; \
        echo x > /new || echo root read-only; cat /proc/kcore | head -c1; ls /proc/acpi; echo x > /proc/sys/kernel/hostname || echo sys; \
        ls /dev; echo shm > /dev/shm/x; cat /etc/resolv.conf";
    let (_, output) = machine
        .output(script, |config| {
            config.mounts = vec![
                mount("/ro", volume.clone(), true),
                mount("/data/deep", volume.clone(), false),
                mount("/one", volume.join("file"), false),
            ];
            let security = &mut config.linux.security;
            security.readonly_rootfs = true;
            security.masked_paths = words(&["/proc/kcore", "/proc/acpi", "/proc/missing"]);
            security.readonly_paths = words(&["/proc/sys", "/proc/missing"]);
        })
        .await;
    assert!(output.contains("from the volumefrom the volume"), "{output}");
    for line in ["written", "read-only", "root read-only", "sys", "null", "shm"] {
        assert!(output.lines().any(|it| it.trim() == line), "{line}: {output}");
    }
    assert!(volume.join("new").exists());
    machine.finish().await;
}

async fn commands_are_executed() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let run = |command: &'static [&'static str]| {
        let (runtime, id) = (&machine.runtime, id.clone());
        async move { runtime.exec_sync(&id, &words(command), Duration::ZERO).await }
    };
    let output = run(&["sh", "-c", "echo out; echo err >&2; hostname; exit 5"]).await.unwrap();
    assert_eq!(
        (&*output.stdout, &*output.stderr, output.exit_code),
        (&b"out\npod-host\n"[..], &b"err\n"[..], 5)
    );
    let missing = run(&["nothing"]).await.unwrap_err();
    assert!(missing.message.contains("exec: \"nothing\": executable file not found in $PATH"), "{missing}");
    let options = StreamOptions { stdin: true, stdout: true, stderr: true, tty: false };
    let mut streams = machine.runtime.exec(&id, &words(&["cat"]), options).await.unwrap();
    let mut stdin = streams.stdin.take().unwrap();
    stdin.write_all(b"to cat").await.unwrap();
    stdin.shutdown().await.unwrap();
    let mut text = String::new();
    streams.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!((text.as_str(), streams.exit.await.unwrap()), ("to cat", 0));
    let stats = machine.runtime.container_stats().await.unwrap();
    assert!(stats[0].memory.as_ref().unwrap().usage_bytes.unwrap() > 0);
    assert!(stats[0].cpu.as_ref().unwrap().usage_core_nano_seconds.unwrap() > 0);
    machine.finish().await;
}

async fn a_command_that_takes_too_long_is_killed() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let command = words(&["sleep", "777"]);
    let late = machine.runtime.exec_sync(&id, &command, Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(late.code, RuntimeCode::DeadlineExceeded);
    loop {
        let list = machine.runtime.exec_sync(&id, &words(&["ps"]), Duration::ZERO).await.unwrap();
        if !String::from_utf8_lossy(&list.stdout).contains("777") {
            break;
        }
    }
    machine.finish().await;
}

async fn a_container_is_stopped_with_its_signal() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let polite = container("trap 'echo bye; exit 7' TERM; touch /tmp/up; while :; do sleep 0.05; done");
    let id = machine.run(&sandbox, &polite).await;
    // the trap is set once its file is there
    let ready = words(&["sh", "-c", "while [ ! -e /tmp/up ]; do sleep 0.01; done"]);
    machine.runtime.exec_sync(&id, &ready, Duration::ZERO).await.unwrap();
    machine.runtime.stop_container(&id, Duration::from_secs(30)).await.unwrap();
    assert_eq!(machine.runtime.container_status(&id).await.unwrap().exit_code, 7);
    let deaf = ContainerConfig { log_path: "1.log".into(), ..container("trap '' TERM; sleep 1000") };
    let id = machine.run(&sandbox, &deaf).await;
    machine.runtime.stop_container(&id, Duration::from_millis(200)).await.unwrap();
    assert_eq!(machine.runtime.container_status(&id).await.unwrap().exit_code, 137);
    machine.runtime.stop_container("missing", Duration::ZERO).await.unwrap();
    machine.finish().await;
}

async fn a_program_that_is_missing_is_an_error_of_the_start() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let config = ContainerConfig { command: words(&["/no/such"]), ..container("") };
    let id = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
    let refused = machine.runtime.start_container(&id).await.unwrap_err();
    assert!(refused.message.contains("stat /no/such: no such file or directory"), "{refused}");
    let status = machine.runtime.container_status(&id).await.unwrap();
    assert_eq!((status.exit_code, &*status.reason), (128, "StartError"));
    let missing = ContainerConfig { image: "registry.test/other:1".into(), ..container("") };
    let refused = machine.runtime.create_container(&sandbox, &missing, &machine.sandbox_config()).await;
    assert_eq!(refused.unwrap_err().code, RuntimeCode::NotFound);
    machine.finish().await;
}

async fn containers_outlive_the_agent() {
    let mut machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let script = "echo before; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo after; exit 9";
    let id = machine.run(&sandbox, &container(script)).await;
    machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    let status = machine.runtime.container_status(&id).await.unwrap();
    assert_eq!(status.state, ContainerState::Running);
    machine.runtime.exec_sync(&id, &words(&["touch", "/tmp/go"]), Duration::ZERO).await.unwrap();
    // it ends while no agent runs
    let exit =
        machine.options.root.join("sandboxes").join(&sandbox).join("containers").join(&id).join("exit.json");
    while !exit.exists() {
        env::io::sleep(Duration::from_millis(5)).await;
    }
    machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    assert_eq!(machine.wait(&id).await.exit_code, 9);
    let lines: Vec<_> = machine.log("0.log").into_iter().map(|it| it.1).collect();
    assert_eq!(lines, ["before", "after"]);
    machine.finish().await;
}

async fn attached_clients_get_the_output() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let config =
        ContainerConfig { stdin: true, stdin_once: true, ..container("read line; echo got $line; exec cat") };
    let id = machine.run(&sandbox, &config).await;
    let options = StreamOptions { stdin: true, stdout: true, stderr: true, tty: false };
    let mut streams = machine.runtime.attach(&id, options).await.unwrap();
    let mut stdin = streams.stdin.take().unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    let mut buffer = [0; 10];
    let mut stdout = streams.stdout.take().unwrap();
    stdout.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"got hello\n");
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(streams.exit.await.unwrap(), 0);
    assert_eq!(machine.log("0.log")[0].1, "got hello");
    machine.finish().await;
}

async fn terminals_work() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let config = ContainerConfig { tty: true, ..container("tty; exec sleep 1000") };
    let id = machine.run(&sandbox, &config).await;
    let options = StreamOptions { stdin: true, stdout: true, stderr: false, tty: true };
    let mut streams = machine.runtime.exec(&id, &words(&["sh"]), options).await.unwrap();
    let size = TerminalSize { width: 91, height: 33 };
    streams.resize.as_ref().unwrap().send(size).await.unwrap();
    let mut stdin = streams.stdin.take().unwrap();
    stdin
        .write_all(b"while [ \"$(stty size)\" != '33 91' ]; do :; done; echo done-$((1+1)); exit 4\n")
        .await
        .unwrap();
    let mut text = Vec::new();
    streams.stdout.take().unwrap().read_to_end(&mut text).await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("done-2"), "{}", String::from_utf8_lossy(&text));
    assert_eq!(streams.exit.await.unwrap(), 4);
    assert!(machine.log("0.log")[0].1.starts_with("/dev/pts/0"));
    machine.finish().await;
}

async fn containers_of_a_pod_share_processes() {
    let machine = Machine::new().await;
    let mut sandbox_config = machine.sandbox_config();
    sandbox_config.linux.security.namespaces.pid = NamespaceMode::Pod;
    let sandbox = machine.runtime.run_sandbox(&sandbox_config, handler()).await.unwrap();
    let shared = |script: &str, log: &str| {
        let mut config = ContainerConfig { log_path: log.into(), ..container(script) };
        config.linux.security.namespaces.pid = NamespaceMode::Pod;
        config
    };
    let one = machine.run(&sandbox, &shared("exec sleep 4321", "0.log")).await;
    let two = machine.run(&sandbox, &shared("sleep 1234 & exec sleep 5678", "1.log")).await;
    let list = machine.runtime.exec_sync(&two, &words(&["ps"]), Duration::ZERO).await.unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("sleep 4321") && list.contains("sleep 5678"), "{list}");
    machine.runtime.stop_container(&two, Duration::ZERO).await.unwrap();
    let list = machine.runtime.exec_sync(&one, &words(&["ps"]), Duration::ZERO).await.unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("sleep 4321") && !list.contains("sleep 1234"), "{list}");
    machine.finish().await;
}

async fn too_much_memory_ends_a_container() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut config = container("exec tail /dev/zero");
    config.linux.resources.memory_limit = 16 << 20;
    config.linux.resources.memory_swap_limit = 16 << 20;
    let id = machine.run(&sandbox, &config).await;
    let status = machine.wait(&id).await;
    assert_eq!((status.exit_code, &*status.reason), (137, "OOMKilled"));
    machine.finish().await;
}

async fn the_program_cannot_be_written_by_a_container() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let before = Digest::of(&fs::read(std::env::current_exe().unwrap()).unwrap());
    // a script whose interpreter is the program that enters the container
    let script = "echo '#!/proc/self/exe' > /bin/trap; busybox chmod +x /bin/trap; exec sleep 1000";
    let id = machine.run(&sandbox, &container(script)).await;
    while machine
        .runtime
        .exec_sync(&id, &words(&["ls", "/bin/trap"]), Duration::ZERO)
        .await
        .unwrap()
        .exit_code
        != 0
    {}
    let watcher = "while :; do for p in /proc/[0-9]*; do case $(readlink $p/exe) in */busybox) ;; *) \
        echo x >> $p/exe && echo written;; esac; done; done";
    let options = StreamOptions::default();
    let _watcher = machine.runtime.exec(&id, &words(&["sh", "-c", watcher]), options).await.unwrap();
    for _ in 0..10 {
        let _ = machine.runtime.exec_sync(&id, &words(&["/bin/trap"]), Duration::from_secs(5)).await;
    }
    assert_eq!(Digest::of(&fs::read(std::env::current_exe().unwrap()).unwrap()), before);
    machine.finish().await;
}

async fn copied_filesystems_work() {
    let mut machine = Machine::new().await;
    machine.runtime = EmbeddedRuntime::open_without_overlay(machine.options.clone(), world()).unwrap();
    let (code, output) =
        machine.output("echo x > /new; cat /new /etc/passwd; grep ' / ' /proc/mounts", |_| {}).await;
    assert!(code == 0 && output.contains("app:x:1000") && !output.contains("overlay"), "{output}");
    machine.finish().await;
}

/// An agent that makes, starts, stops and removes pods again and again. It says when it begins.
fn run_agent() -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let root = PathBuf::from(arguments.next().unwrap());
    let cgroup = arguments.next().unwrap();
    BY_RUNC.store(!arguments.next().unwrap().is_empty(), Ordering::Relaxed);
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(async {
        let runtime = EmbeddedRuntime::open(options(&root), world()).unwrap();
        let config = sandbox_config(&root, &cgroup);
        println!("begins");
        loop {
            let sandbox = runtime.run_sandbox(&config, handler()).await.unwrap();
            let id =
                runtime.create_container(&sandbox, &container("exec sleep 1000"), &config).await.unwrap();
            runtime.start_container(&id).await.unwrap();
            runtime.exec_sync(&id, &words(&["id"]), Duration::ZERO).await.unwrap();
            runtime.stop_container(&id, Duration::ZERO).await.unwrap();
            runtime.remove_container(&id).await.unwrap();
            runtime.stop_sandbox(&sandbox).await.unwrap();
            runtime.remove_sandbox(&sandbox).await.unwrap();
        }
    })
}

/// Waits for a condition of the kernel or of a file, of which there are no events.
async fn until(is_met: impl Fn() -> bool) {
    // minutes: a test that waits in vain ends, and shows what it has left
    for _ in 0..40_000 {
        if is_met() {
            return;
        }
        env::io::sleep(Duration::from_millis(5)).await;
    }
    panic!("a condition is not met");
}

/// Monitors, and processes that they started and that are not another program yet. Tests run one after the other.
fn monitor_processes() -> Vec<PathBuf> {
    let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let own = file(Path::new("/proc/self/exe"));
    let is_monitor = |process: &PathBuf| {
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        let name = command.split(|it| *it == 0).nth(1).unwrap_or_default();
        [MONITOR_COMMAND, INIT_COMMAND].iter().any(|it| it.as_bytes() == name)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|it| it.path());
    entries.filter(|it| is_monitor(it) && file(&it.join("exe")) == own).collect()
}

async fn a_killed_agent_leaves_nothing_behind() {
    let mut machine = Machine::new().await;
    for moment in 0..30u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([AGENT_COMMAND, &machine.folder.path().display().to_string(), &machine.cgroup, handler()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        // a moment of its work: a whole round takes about 100 ms, with runc 500
        let moment = moment * if handler().is_empty() { 5 } else { 20 };
        env::io::sleep(Duration::from_millis(moment)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
        for sandbox in machine.runtime.sandboxes(None).await.unwrap() {
            machine.runtime.stop_sandbox(&sandbox.id).await.unwrap();
            machine.runtime.remove_sandbox(&sandbox.id).await.unwrap();
        }
        let left: Vec<_> = fs::read_dir(&machine.options.run).unwrap().collect();
        assert!(left.is_empty(), "killed after {moment} ms: {left:?}");
        until(|| monitor_processes().is_empty()).await;
    }
    machine.finish().await;
}

async fn a_handler_is_an_external_runtime() {
    let machine = Machine::new().await;
    let config = machine.sandbox_config();
    let refused = machine.runtime.run_sandbox(&config, "other").await.unwrap_err();
    assert_eq!(refused.message, "failed to get sandbox runtime: no runtime for \"other\" is configured");
    if !Path::new(RUNC).exists() {
        return machine.finish().await;
    }
    let sandbox = machine.runtime.run_sandbox(&config, "runc").await.unwrap();
    assert_eq!(machine.runtime.sandbox_status(&sandbox).await.unwrap().info.handler, "runc");
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let root = machine.options.run.join(&sandbox[..16]).join("oci");
    let state = || Command::new(RUNC).arg("--root").arg(&root).args(["state", &id]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&state().stdout).unwrap();
    assert_eq!((&found["id"], &found["status"]), (&id.clone().into(), &"running".into()));
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(machine.wait(&id).await.exit_code, 137);
    machine.runtime.remove_container(&id).await.unwrap();
    assert!(!state().status.success());
    machine.finish().await;
}

async fn containers_end_with_a_killed_monitor() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut config = container("exec sleep 1000");
    config.linux.security.run_as_username = "app".into();
    let id = machine.run(&sandbox, &config).await;
    for process in monitor_processes() {
        let pid = process.file_name().unwrap().to_str().unwrap().parse().ok();
        rustix::process::kill_process(
            pid.and_then(rustix::process::Pid::from_raw).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }
    let status = machine.wait(&id).await;
    assert_eq!((status.exit_code, &*status.reason), (255, "Unknown"));
    assert!(!machine.runtime.sandbox_status(&sandbox).await.unwrap().info.is_ready);
    // a control group with processes could not be removed
    machine.finish().await;
}
