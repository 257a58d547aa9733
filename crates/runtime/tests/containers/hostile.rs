//! Containers and images that attack: each is contained, and nothing is left of it.

use super::*;
use std::os::unix::process::CommandExt;

/// The memory of the monitors that no other process shares, in kB.
fn monitor_memory() -> Vec<u64> {
    let anonymous = |process: PathBuf| {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    monitor_processes().into_iter().filter_map(anonymous).collect()
}

pub async fn a_fork_bomb_ends_with_its_container() {
    let machine = Machine::new().await;
    // the agent limits the processes of a pod in its group
    let root = match has_unified_groups() {
        true => PathBuf::from(CGROUPS),
        false => Path::new(CGROUPS).join("pids"),
    };
    if has_unified_groups() {
        fs::write(root.join("cgroup.subtree_control"), "+pids").unwrap();
    }
    let group = root.join(machine.cgroup.trim_start_matches('/'));
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("pids.max"), "64").unwrap();
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    // a shell that cannot fork ends, and those that are left take its place
    let bomb = "bomb() { while :; do bomb & done; }; bomb & exec sleep 1000";
    let id = machine.run(&sandbox, &container(bomb)).await;
    let count = |file: &str| fs::read_to_string(group.join(file)).unwrap();
    until(|| count("pids.current").trim().parse::<u32>().unwrap() >= 60).await;
    // a command fails or works; it does not hang
    let _ = machine.runtime.exec_sync(&id, &words(&["id"]), Duration::from_secs(5)).await;
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(machine.wait(&id).await.exit_code, 137);
    assert_eq!(count("pids.current").trim(), "0");
    machine.finish().await;
}

pub async fn a_flood_of_output_takes_no_memory() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    // one line that never ends, and many short ones
    let id = machine.run(&sandbox, &container("cat /dev/zero & exec busybox yes >&2")).await;
    let logs = machine.folder.path().join("logs");
    let (log, rotated) = (logs.join("0.log"), logs.join("0.log.1"));
    for _ in 0..4 {
        until(|| fs::metadata(&log).map_or(0, |it| it.len()) >= 16 << 20).await;
        fs::rename(&log, &rotated).unwrap();
        machine.runtime.reopen_log(&id).await.unwrap();
    }
    let used = monitor_memory();
    assert!(!used.is_empty() && used.iter().all(|kb| *kb < 16 << 10), "{used:?}");
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let text = fs::read(&rotated).unwrap();
    let longest = text.split(|it| *it == b'\n').map(<[u8]>::len).max().unwrap();
    assert!(longest < 17 << 10, "{longest}");
    machine.finish().await;
}

pub async fn a_link_that_changes_leads_no_mount_out_of_the_root() {
    let machine = Machine::new().await;
    let root = machine.folder.path();
    let (volume, mounted) = (root.join("volume"), root.join("mounted"));
    fs::create_dir_all(&volume).unwrap();
    fs::create_dir_all(&mounted).unwrap();
    fs::write(mounted.join("proof"), "").unwrap();
    // a place of the machine that the link names
    let outside = root.join("outside");
    fs::create_dir_all(outside.join("in")).unwrap();
    let mount = |host: &Path, target: &str| Mount {
        host_path: host.display().to_string(),
        container_path: target.to_owned(),
        propagation: Propagation::Bidirectional,
        ..Mount::default()
    };
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let script = format!(
        "cd /volume; while :; do rm -rf a; mkdir -p a/in; rm -rf a; ln -s {} a; rm a; ln -s /../../../../.. a; done",
        outside.display()
    );
    let mut racer = container(&script.replace("rm ", "busybox rm ").replace("ln ", "busybox ln "));
    racer.mounts = vec![mount(&volume, "/volume")];
    machine.run(&sandbox, &racer).await;
    for attempt in 1..=30 {
        let mut config = container(":");
        (config.name, config.attempt) = ("d".to_owned(), attempt);
        config.log_path = "1.log".to_owned();
        config.mounts = vec![mount(&volume, "/volume"), mount(&mounted, "/volume/a/in")];
        let id =
            machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
        // the link may be gone at that moment, which is an error
        if machine.runtime.start_container(&id).await.is_ok() {
            machine.wait(&id).await;
        }
        machine.runtime.remove_container(&id).await.unwrap();
        assert!(!outside.join("in/proof").exists() && !Path::new("/in/proof").exists());
    }
    machine.finish().await;
}

pub async fn absurd_configurations_of_images_are_contained() {
    let machine = Machine::new().await;
    let many: Vec<String> = (0..100_000).map(|it| format!("E{it}=x")).collect();
    let many = serde_json::to_string(&many).unwrap();
    let configurations = [
        r#""Env": ["", "=", "no-equals-sign", "A=1", "A=2", "PATH="]"#.to_owned(),
        r#""Env": ["A=\u0000b"]"#.to_owned(),
        format!(r#""Env": {many}"#),
        r#""WorkingDir": "../../../../tmp""#.to_owned(),
        r#""WorkingDir": "/etc/passwd/no-directory""#.to_owned(),
        r#""User": "4294967296:99999999999""#.to_owned(),
        r#""User": "::::""#.to_owned(),
        r#""User": "../../etc/shadow""#.to_owned(),
        r#""StopSignal": "SIGNOTHING""#.to_owned(),
        r#""StopSignal": "99999999999""#.to_owned(),
        r#""Volumes": {"/../../../escape": {}, "": {}, "/proc/self": {}}"#.to_owned(),
        r#""Entrypoint": ["/bin/sh\u0000", "-c"]"#.to_owned(),
    ];
    for (nth, run) in configurations.iter().enumerate() {
        let (folder, archive) =
            (machine.folder.path().join(format!("absurd{nth}")), format!("absurd{nth}.tar"));
        let archive = machine.folder.path().join(archive);
        make_image_with(&folder, &archive, &format!("registry.test/absurd:{nth}"), run);
        import(machine.runtime.image_store(), &archive, None).unwrap();
        let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
        let mut config = container("echo ran");
        config.image = format!("registry.test/absurd:{nth}");
        // refused with an error, or run inside
        if let Ok(id) = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await
            && machine.runtime.start_container(&id).await.is_ok()
        {
            let status = machine.wait(&id).await;
            let shown = &run[..run.len().min(60)];
            assert_eq!(status.exit_code, 0, "{shown}");
        }
        assert!(!Path::new("/escape").exists() && !machine.folder.path().join("escape").exists());
        machine.runtime.remove_sandbox(&sandbox).await.unwrap();
    }
    // the runtime still works
    let (code, output) = machine.output("echo fine", |_| {}).await;
    assert_eq!((code, output.lines().last()), (0, Some("fine")));
    machine.finish().await;
}

pub async fn pipes_in_place_of_files_hang_no_start() {
    let machine = Machine::new().await;
    let limit = Duration::from_secs(60);
    let pipe = machine.folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mount = |target: &str| Mount {
        host_path: pipe.display().to_string(),
        container_path: target.to_owned(),
        ..Mount::default()
    };
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut config = container("exec sleep 1000");
    config.mounts = vec![mount("/etc/passwd"), mount("/etc/group")];
    config.linux.security.run_as_user = Some(1000);
    let id = env::io::timeout(limit, machine.run(&sandbox, &config)).await.expect("the container starts");
    // others look at the files themselves
    let command = words(&["echo", "fine"]);
    let found = env::io::timeout(limit, machine.runtime.exec_sync(&id, &command, Duration::ZERO)).await;
    let found = found.expect("the command starts").unwrap();
    assert_eq!(found.stdout, b"fine\n");
    machine.finish().await;
}

pub async fn a_working_directory_by_a_descriptor_stays_inside() {
    let machine = Machine::new().await;
    let proof = machine.folder.path().join("proof");
    fs::write(&proof, "").unwrap();
    // from the working directory up to any root there is
    let script = format!(
        "p=.; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do p=$p/..; [ -e $p{} ] && echo escaped; done; echo ran",
        proof.display()
    );
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut started = 0;
    for descriptor in 0..20 {
        let mut config = ContainerConfig { log_path: format!("{descriptor}.log"), ..container(&script) };
        (config.name, config.working_dir) = (format!("c{descriptor}"), format!("/proc/self/fd/{descriptor}"));
        let id =
            machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
        // a descriptor that is not there, or no directory, is an error
        if machine.runtime.start_container(&id).await.is_ok() {
            machine.wait(&id).await;
            let lines = machine.log(&config.log_path);
            assert!(lines.iter().all(|it| it.1 != "escaped"), "descriptor {descriptor}: {lines:?}");
            started += 1;
        }
        machine.runtime.remove_container(&id).await.unwrap();
    }
    println!("{started} of 20 descriptors were directories");
    machine.finish().await;
}

pub async fn the_output_of_a_command_is_cut_at_a_limit() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let id = machine.run(&sandbox, &container("exec sleep 1000")).await;
    let command = words(&["sh", "-c", "head -c 41943040 /dev/zero; exit 3"]);
    let found = machine.runtime.exec_sync(&id, &command, Duration::ZERO).await.unwrap();
    assert_eq!((found.stdout.len(), found.exit_code), (16 << 20, 3));
    machine.finish().await;
}

pub async fn users_of_the_machine_do_not_reach_the_files_of_a_container() {
    const OTHER_USER: u32 = 65534;
    let mut machine = Machine::new().await;
    // a machine on which an older agent ran: every user can enter these folders
    let open_to_all = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open_to_all(machine.folder.path());
    let (root, run) = (machine.options.root.clone(), machine.options.run.clone());
    for path in [&root, &root.join("sandboxes"), &run] {
        open_to_all(path);
    }
    machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let script = "for p in /program /dev/shm/program; do busybox cp /bin/busybox $p; busybox chmod 4755 $p; done; \
        echo done > /dev/shm/done; exec sleep 1000";
    let id = machine.run(&sandbox, &container(script)).await;
    let shm = run.join(&sandbox[..16]).join("shm");
    until(|| shm.join("done").exists()).await;
    let upper = root.join("sandboxes").join(&sandbox).join("containers").join(&id).join("upper");
    for program in [upper.join("program"), shm.join("program")] {
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o4001, 0o4001);
        let looked = Command::new("/bin/busybox").arg("stat").arg(&program).uid(OTHER_USER).output().unwrap();
        let why = String::from_utf8_lossy(&looked.stderr).into_owned();
        assert!(why.contains("Permission denied"), "{}: {why}", program.display());
    }
    machine.finish().await;
}
