//! Starts that are under way while something else happens.

use super::*;
use rustix::process::{Pid, Signal, kill_process};

/// Processes of a container, by its control group.
fn processes_of(container: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|it| it.path());
    let is_inside = |it: &PathBuf| {
        let groups = fs::read_to_string(it.join("cgroup")).unwrap_or_default();
        groups.contains(container) && state_of(it).is_some_and(|it| it != 'Z')
    };
    processes.filter(is_inside).collect()
}

/// The letter of a process's state.
fn state_of(process: &Path) -> Option<char> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn signal(process: &Path, signal: Signal) {
    let pid = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn has_name(process: &Path, name: &str) -> bool {
    fs::read_to_string(process.join("comm")).is_ok_and(|it| it.trim() == name)
}

fn groups_of(machine: &Machine, container: &str) -> Vec<PathBuf> {
    let pods = fs::read_dir(CGROUPS).unwrap().flatten().map(|it| it.path());
    let own = format!("{}/{container}", machine.cgroup.trim_start_matches('/'));
    pods.map(|it| it.join(&own)).filter(|it| it.exists()).collect()
}

pub async fn a_start_under_way_ends_with_a_removal_by_the_next_agent() {
    let mut machine = Machine::new().await;
    for round in 0..12 {
        let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
        let config = container("exec sleep 1000");
        let id =
            machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
        // the next agent finds a container that was not started
        let next = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
        let before = Arc::new(std::mem::replace(&mut machine.runtime, next));
        let starting = tokio::spawn({
            let (before, id) = (before.clone(), id.clone());
            async move { before.start_container(&id).await }
        });
        match round % 3 {
            // the request may or may not have come
            0 => {}
            1 => {
                until(|| {
                    monitor_processes().iter().any(|it| has_name(it, INIT_COMMAND)) || starting.is_finished()
                })
                .await
            }
            _ => until(|| starting.is_finished()).await,
        }
        // its request goes on without it, and it writes nothing any more
        starting.abort();
        assert!(
            starting.await.map_or_else(|why| why.is_cancelled(), |started| started.is_ok()),
            "round {round}"
        );
        if round % 2 == 0 {
            machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
            assert_eq!(processes_of(&id), Vec::<PathBuf>::new(), "round {round}");
        }
        machine.runtime.remove_container(&id).await.unwrap();
        let left = (processes_of(&id), groups_of(&machine, &id));
        assert_eq!(left, (Vec::new(), Vec::new()), "round {round}");
        drop(before);
        machine.runtime.remove_sandbox(&sandbox).await.unwrap();
    }
    machine.finish().await;
}

pub async fn a_start_under_way_ends_with_its_monitor() {
    let mut machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let mut config = container("exec sleep 1000");
    config.linux.security.run_as_username = "app".into();
    let id = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
    let next = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    let before = std::mem::replace(&mut machine.runtime, next);
    before.start_container(&id).await.unwrap();
    drop(before);
    for process in monitor_processes() {
        signal(&process, Signal::KILL);
    }
    until(|| monitor_processes().is_empty()).await;
    machine.runtime.remove_container(&id).await.unwrap();
    assert_eq!((processes_of(&id), groups_of(&machine, &id)), (Vec::new(), Vec::new()));
    machine.finish().await;
}

/// On a busy machine the call of an external runtime is over before the monitor has read that there is a process.
pub async fn a_handler_is_done_before_its_monitor_looks() {
    let machine = Machine::new().await;
    if !Path::new(RUNC).exists() {
        return machine.finish().await;
    }
    // a runtime that waits until the monitor stands still
    let (called, go) = (machine.folder.path().join("called"), machine.folder.path().join("go"));
    let program = machine.options.handlers.join("late");
    let script = format!(
        "#!/bin/sh\ntouch {}\nwhile [ ! -e {} ]; do sleep 0.01; done\nexec {RUNC} \"$@\"\n",
        called.display(),
        go.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), "late").await.unwrap();
    let monitor = monitor_processes().pop().unwrap();
    let config = container("exec sleep 1000");
    let id = machine.runtime.create_container(&sandbox, &config, &machine.sandbox_config()).await.unwrap();
    let runtime = Arc::new(machine.runtime);
    let starting = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.start_container(&id).await }
    });
    until(|| called.exists()).await;
    signal(&monitor, Signal::STOP);
    let callers: Vec<_> = monitor_processes().into_iter().filter(|it| has_name(it, INIT_COMMAND)).collect();
    assert_eq!(callers.len(), 1);
    fs::write(&go, "").unwrap();
    until(|| state_of(&callers[0]).is_none_or(|it| it == 'Z')).await;
    signal(&monitor, Signal::CONT);
    let limit = Duration::from_secs(60);
    env::io::timeout(limit, starting).await.expect("the start is answered").unwrap().unwrap();
    let command = runtime.exec_sync(&id, &words(&["echo", "fine"]), limit).await.unwrap();
    assert_eq!(command.stdout, b"fine\n");
    let machine = Machine { runtime: Arc::into_inner(runtime).unwrap(), ..machine };
    machine.finish().await;
}
