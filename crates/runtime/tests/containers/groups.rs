//! Containers that change their own control groups.

use super::*;

pub async fn a_container_may_divide_its_control_group() {
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    // a process of version 2 must be in a leaf once memory is divided
    let script = "cd /sys/fs/cgroup; [ -e cgroup.procs ] || cd memory; mkdir first second && echo 1 > first/cgroup.procs \
        && { [ ! -e cgroup.subtree_control ] || echo +memory > cgroup.subtree_control; } && touch /tmp/divided; exec sleep 1000";
    let mut config = container(script);
    config.linux.security.is_privileged = true;
    let id = machine.run(&sandbox, &config).await;
    let run = |command: &'static [&'static str]| {
        let (runtime, id) = (&machine.runtime, id.clone());
        async move { runtime.exec_sync(&id, &words(command), Duration::ZERO).await.unwrap() }
    };
    let ready = run(&["sh", "-c", "while [ ! -e /tmp/divided ]; do sleep 0.01; done"]).await;
    assert_eq!(ready.exit_code, 0);
    let groups = run(&["cat", "/proc/self/cgroup"]).await;
    let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
    // the group of the container's process, seen from the container
    assert!(!has_unified_groups() || groups.lines().any(|it| it == "0::/first"), "{groups}");
    machine.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    machine.runtime.remove_container(&id).await.unwrap();
    machine.finish().await;
}
