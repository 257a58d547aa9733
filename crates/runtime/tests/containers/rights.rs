//! What a program may do: set-user-id programs, programs of 32 bits and profiles of system calls. Programs that make one
//! call and end with its answer are written byte by byte, so no compiler is needed.

use super::*;
use std::os::unix::process::ExitStatusExt;

const APP: u32 = 1000;
/// The last byte of that user's number, which is what an exit code has room for.
const APP_EXIT_CODE: i32 = (APP & 0xff) as i32;

/// A program for the processor of this machine that ends with its effective user as the exit code.
fn effective_user_program() -> Vec<u8> {
    #[cfg(target_arch = "x86_64")]
    const CODE: &[u8] = &[
        0xb8, 107, 0, 0, 0, 0x0f, 0x05, // geteuid
        0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, // exit
    ];
    #[cfg(target_arch = "aarch64")]
    const CODE: &[u8] = &[
        0xe8, 0x15, 0x80, 0xd2, 0x01, 0, 0, 0xd4, // geteuid
        0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4, // exit
    ];
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let address = 0x40_0000u64;
    let mut program = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut add = |bytes: &[u8]| program.extend_from_slice(bytes);
    for number in [2u16, machine, 1, 0] {
        add(&number.to_le_bytes());
    }
    for number in [address + 120, 64, 0] {
        add(&number.to_le_bytes());
    }
    for number in [0u16, 0, 64, 56, 1, 0, 0, 0] {
        add(&number.to_le_bytes());
    }
    // the one segment: all of the file, to be read and executed
    for number in [1u32, 5] {
        add(&number.to_le_bytes());
    }
    let size = 120 + CODE.len() as u64;
    for number in [0, address, address, size, size, 4096] {
        add(&number.to_le_bytes());
    }
    add(CODE);
    program
}

/// A program of 32 bits for x86 that ends with the answer of a call as the exit code; errors are positive.
#[cfg(target_arch = "x86_64")]
fn small_program(call: u32, argument: u32) -> Vec<u8> {
    let mut code = vec![0xbb];
    code.extend(argument.to_le_bytes());
    code.push(0xb8);
    code.extend(call.to_le_bytes());
    // int 0x80; the answer, or without its sign, to ebx; exit
    code.extend([0xcd, 0x80, 0x89, 0xc3, 0x85, 0xdb, 0x79, 0x02, 0xf7, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80]);
    let address = 0x40_0000u32;
    let mut program = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut add = |bytes: &[u8]| program.extend_from_slice(bytes);
    for number in [2u16, 3, 1, 0] {
        add(&number.to_le_bytes());
    }
    for number in [address + 84, 52, 0, 0] {
        add(&number.to_le_bytes());
    }
    for number in [52u16, 32, 1, 0, 0, 0] {
        add(&number.to_le_bytes());
    }
    let size = 84 + code.len() as u32;
    for number in [1, 0, address, address, size, size, 5, 4096] {
        add(&number.to_le_bytes());
    }
    add(&code);
    program
}

/// Adds an image with programs in `/bin`.
fn add_image(machine: &Machine, image: &str, programs: &[(&str, Vec<u8>, u32)]) {
    let folder = machine.folder.path().join(image.replace(['/', ':'], "-"));
    fs::create_dir_all(folder.join("files/bin")).unwrap();
    for (name, bytes, mode) in programs {
        let path = folder.join("files/bin").join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
    }
    let archive = folder.join("image.tar");
    make_image_with(&folder, &archive, image, "");
    import(machine.runtime.image_store(), &archive, None).unwrap();
}

/// A container of an image that runs one program as the user `app`.
fn run_as_app(image: &str, program: &str, seccomp: Option<SecurityProfile>) -> ContainerConfig {
    let mut config = ContainerConfig { command: words(&[program]), image: image.into(), ..container("") };
    config.linux.security.run_as_user = Some(APP.into());
    config.linux.security.seccomp = seccomp;
    config
}

async fn exit_code(machine: &Machine, config: &ContainerConfig) -> i32 {
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, config).await;
    let code = machine.wait(&id).await.exit_code;
    machine.runtime.remove_sandbox(&sandbox).await.unwrap();
    code
}

pub async fn set_user_id_programs_have_their_user_under_a_filter() {
    let machine = Machine::new().await;
    let image = "registry.test/rights:1";
    let program = effective_user_program();
    add_image(&machine, image, &[("plain", program.clone(), 0o755), ("set-user-id", program, 0o4755)]);
    for profile in [None, Some(SecurityProfile::RuntimeDefault)] {
        let plain = run_as_app(image, "/bin/plain", profile.clone());
        assert_eq!(exit_code(&machine, &plain).await, APP_EXIT_CODE, "{profile:?}");
        let mut config = run_as_app(image, "/bin/set-user-id", profile.clone());
        assert_eq!(exit_code(&machine, &config).await, 0, "{profile:?}");
        config.linux.security.no_new_privs = true;
        assert_eq!(exit_code(&machine, &config).await, APP_EXIT_CODE, "{profile:?}");
    }
    // commands in a container are under the same filter
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut config = run_as_app(image, "/bin/busybox", Some(SecurityProfile::RuntimeDefault));
    config.args = words(&["sleep", "1000"]);
    let id = machine.run(&sandbox, &config).await;
    let command = words(&["/bin/set-user-id"]);
    assert_eq!(machine.runtime.exec_sync(&id, &command, Duration::ZERO).await.unwrap().exit_code, 0);
    let status = words(&["/bin/busybox", "grep", "-E", "Seccomp:|NoNewPrivs|CapEff", "/proc/self/status"]);
    let status = machine.runtime.exec_sync(&id, &status, Duration::ZERO).await.unwrap().stdout;
    let status = String::from_utf8(status).unwrap();
    assert_eq!(status, "CapEff:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t2\n");
    machine.finish().await;
}

#[cfg(target_arch = "x86_64")]
pub async fn programs_of_32_bits_are_under_the_filter_of_their_calls() {
    const GETUID32: u32 = 199;
    const UNSHARE: u32 = 310;
    const NEW_USER_NAMESPACE: u32 = 0x1000_0000;
    const REFUSED: i32 = 1;
    let machine = Machine::new().await;
    let image = "registry.test/small:1";
    let programs = [
        ("user", small_program(GETUID32, 0), 0o755),
        ("small-unshare", small_program(UNSHARE, NEW_USER_NAMESPACE), 0o755),
    ];
    add_image(&machine, image, &programs);
    let own = machine.folder.path().join("registry.test-small-1/files/bin/user");
    if !Command::new(own).status().is_ok_and(|it| it.signal().is_none()) {
        println!("SKIPPED: this kernel runs no programs of 32 bits");
        return machine.finish().await;
    }
    let default = Some(SecurityProfile::RuntimeDefault);
    assert_eq!(exit_code(&machine, &run_as_app(image, "/bin/user", default.clone())).await, APP_EXIT_CODE);
    assert_eq!(exit_code(&machine, &run_as_app(image, "/bin/small-unshare", default)).await, REFUSED);
    assert_eq!(exit_code(&machine, &run_as_app(image, "/bin/small-unshare", None)).await, 0);
    // a profile that does not name the architecture ends them
    let profile = machine.folder.path().join("one-architecture.json");
    fs::write(
        &profile,
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls":
        [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}"#,
    )
    .unwrap();
    let profile = Some(SecurityProfile::Localhost(profile.display().to_string()));
    assert_eq!(exit_code(&machine, &run_as_app(image, "/bin/user", profile)).await, 128 + 31);
    machine.finish().await;
}

#[cfg(not(target_arch = "x86_64"))]
pub async fn programs_of_32_bits_are_under_the_filter_of_their_calls() {
    println!("SKIPPED: the program of 32 bits is for x86");
}

pub async fn a_filter_allows_the_start_with_fewer_calls_than_runc_makes() {
    let machine = Machine::new().await;
    let image = "registry.test/rights:1";
    add_image(&machine, image, &[("plain", effective_user_program(), 0o755)]);
    let profile = machine.folder.path().join("strict.json");
    let allowed = |names: &str| {
        let text = format!(
            r#"{{"defaultAction": "SCMP_ACT_KILL_PROCESS", "syscalls": [
                {{"names": [{names}], "action": "SCMP_ACT_ALLOW"}},
                {{"names": ["seccomp", "sendmsg"], "action": "SCMP_ACT_TRAP"}}]}}"#
        );
        fs::write(&profile, text).unwrap();
        Some(SecurityProfile::Localhost(profile.display().to_string()))
    };
    let mut config = run_as_app(image, "/bin/plain", allowed(r#""execve", "geteuid", "exit", "capset""#));
    assert_eq!(exit_code(&machine, &config).await, APP_EXIT_CODE);
    // with no_new_privs the filter is the last thing before the program
    config.linux.security.seccomp = allowed(r#""execve", "geteuid", "exit""#);
    config.linux.security.no_new_privs = true;
    assert_eq!(exit_code(&machine, &config).await, APP_EXIT_CODE);
    // the filter is in force
    config.linux.security.seccomp = allowed(r#""execve", "exit""#);
    assert_eq!(exit_code(&machine, &config).await, 128 + 31);
    // a program that cannot be executed is an error of the start, if the filter allows to say so
    let script = "registry.test/script:1";
    add_image(&machine, script, &[("script", b"#!/no/such\n".to_vec(), 0o755)]);
    config = run_as_app(script, "/bin/script", allowed(r#""execve", "write", "exit_group", "capset""#));
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
    let refused = machine.runtime.start_container(&id).await.unwrap_err();
    assert!(refused.message.contains("exec /bin/script: no such file or directory"), "{refused}");
    machine.finish().await;
}

/// A control group of version 2 for one test, which is the root of what its runtime sees.
struct UnifiedGroup(PathBuf);

impl UnifiedGroup {
    fn new(name: &str) -> Option<Self> {
        let roots = [Path::new(CGROUPS).join("unified"), PathBuf::from(CGROUPS)];
        let root = roots.into_iter().find(|it| it.join("cgroup.controllers").exists())?;
        let group = root.join(name.trim_start_matches('/'));
        fs::create_dir(&group).unwrap();
        Some(UnifiedGroup(group))
    }
}

impl Drop for UnifiedGroup {
    fn drop(&mut self) {
        for inner in fs::read_dir(&self.0).into_iter().flatten().flatten().filter(|it| it.path().is_dir()) {
            let _ = fs::remove_dir(inner.path());
        }
        let _ = fs::remove_dir(&self.0);
    }
}

pub async fn devices_are_restricted_by_control_groups_of_both_versions() {
    let mut machine = Machine::new().await;
    // a driver that does not exist is noticed after the control group
    let script = "busybox mknod /tmp/null c 1 3 && echo x > /tmp/null && echo made; \
        busybox mknod /tmp/other c 240 7; busybox mknod /tmp/disk b 8 0; cat /tmp/other /tmp/disk 2>&1; \
        head -c 1 /dev/urandom > /dev/null && echo usual; grep CapBnd /proc/self/status";
    let expected = "made\ncat: can't open '/tmp/other': Operation not permitted\n\
        cat: can't open '/tmp/disk': Operation not permitted\nusual\nCapBnd:\t00000000a80425fb";
    if Path::new(CGROUPS).join("devices").exists() {
        assert_eq!(machine.output(script, |_| {}).await.1, expected, "version 1");
    }
    let Some(group) = UnifiedGroup::new(&format!("{}-unified", machine.cgroup)) else {
        println!("SKIPPED: this machine has no control groups of version 2");
        return machine.finish().await;
    };
    let options = EmbeddedOptions { cgroup_root: group.0.clone(), ..machine.options.clone() };
    machine.runtime = EmbeddedRuntime::open(options, world()).unwrap();
    assert_eq!(machine.output(script, |_| {}).await.1, expected, "version 2");
    // all containers have the same rules, and share a program
    assert_eq!(machine.output(script, |_| {}).await.1, expected, "version 2");
    let (_, output) = machine
        .output("cat /tmp/other", |config| {
            config.command[2] = format!("busybox mknod /tmp/other c 240 7; {} 2>&1", config.command[2]);
            config.linux.security.is_privileged = true;
        })
        .await;
    assert_eq!(output, "cat: can't open '/tmp/other': No such device or address");
    // a command in a container is restricted like its first process
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let command = words(&["sh", "-c", "busybox mknod /tmp/other c 240 7; cat /tmp/other"]);
    let refused = machine.runtime.exec_sync(&id, &command, Duration::ZERO).await.unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(errors, "cat: can't open '/tmp/other': Operation not permitted\n");
    let pods = group.0.join(machine.cgroup.trim_start_matches('/'));
    machine.finish().await;
    // the group of the pod is the agent's; it must be empty
    fs::remove_dir(pods).unwrap();
}

pub async fn a_privileged_container_does_not_write_to_sys() {
    let machine = Machine::new().await;
    let (_, output) = machine
        .output("echo a > /sys/class/net/lo/ifalias; cat /sys/class/net/lo/ifalias", |config| {
            config.command[2] = format!("exec 2>&1; {}", config.command[2]);
            config.linux.security.is_privileged = true;
        })
        .await;
    assert!(output.contains("Read-only file system"), "{output}");
    machine.finish().await;
}

pub async fn a_pod_in_the_ipc_namespace_of_the_machine_has_its_shared_memory() {
    let machine = Machine::new().await;
    let file = PathBuf::from("/dev/shm").join(machine.cgroup.trim_start_matches('/'));
    fs::write(&file, "of the machine\n").unwrap();
    let script = format!("cat {0} && echo of the pod > {0}", file.display());
    let (_, output) = machine.output(&script, |_| {}).await;
    assert!(output.contains("No such file"), "{output}");
    let mut config = machine.sandbox_config();
    config.linux.security.namespaces.ipc = NamespaceMode::Node;
    let sandbox = machine.runtime.run_sandbox(&config, handler()).await.unwrap();
    let mut shared = container(&script);
    shared.linux.security.namespaces.ipc = NamespaceMode::Node;
    let id = machine.runtime.create_container(&sandbox, &shared, &config).await.unwrap();
    machine.runtime.start_container(&id).await.unwrap();
    assert_eq!(machine.wait(&id).await.exit_code, 0);
    assert_eq!(machine.log("0.log")[0].1, "of the machine");
    assert_eq!(fs::read_to_string(&file).unwrap(), "of the pod\n");
    fs::remove_file(&file).unwrap();
    machine.finish().await;
}

pub async fn containers_have_the_limit_of_open_files_that_the_agent_began_with() {
    process_start::lower_open_files(777).unwrap();
    process_start::raise_open_files();
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("ulimit -n; exec sleep 1000")).await;
    let command = words(&["sh", "-c", "ulimit -n; ulimit -n 778 && ulimit -n"]);
    let executed = machine.runtime.exec_sync(&id, &command, Duration::ZERO).await.unwrap();
    assert_eq!(String::from_utf8(executed.stdout).unwrap(), "777\n778\n");
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(machine.log("0.log")[0].1, "777");
    machine.finish().await;
}
