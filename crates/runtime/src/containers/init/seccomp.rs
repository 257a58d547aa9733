//! System call filters: the default one, and profiles in the form of the OCI.
//!
//! A filter has one action for the calls that it lists and one for the others; the kernel takes the strictest answer of
//! all filters. So a profile becomes one filter for its default, and one for each other action. The library that loads
//! filters sets `no_new_privs` with them.

use super::failure::during;
use crate::containers::spec::Seccomp;
use seccompiler::{BpfProgram, Error, TargetArch, apply_filter, compile_from_json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
const SYS_ADMIN: u64 = 1 << 21;
/// The library's words for a call that the architecture does not have.
const UNKNOWN_CALL: &str = "Invalid syscall name: ";

/// Calls that every container may make.
const ALLOWED: &str = "
    accept accept4 access adjtimex alarm arch_prctl bind brk capget capset chdir chmod chown clock_adjtime clock_getres
    clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
    epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat
    fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
    getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
    getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
    io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self
    lchown lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier
    memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr
    mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall
    munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause personality pidfd_open pidfd_send_signal
    pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease
    pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
    remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
    rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
    semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid
    setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid
    setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socket socketpair splice stat statfs
    statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
    umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
    process_vm_readv process_vm_writev clone3";

/// Calls that come with a capability, by its number.
const BY_CAPABILITY: [(u32, &str); 8] = [
    (2, "open_by_handle_at"),
    (16, "delete_module finit_module init_module"),
    (17, "ioperm iopl"),
    (18, "chroot"),
    (20, "acct"),
    (
        21,
        "bpf clone fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount open_tree \
         perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount2 unshare vhangup",
    ),
    (22, "reboot"),
    (25, "clock_settime settimeofday stime"),
];

/// A filter: an action for the calls that it lists, and one for all others.
struct Filter {
    listed: Value,
    others: Value,
    /// Names with conditions on arguments.
    calls: Vec<(String, Option<Value>)>,
}

/// Loads the filters of a process.
pub fn apply(seccomp: &Seccomp, capabilities: u64) -> Result<(), String> {
    for program in compile(seccomp, capabilities)? {
        apply_filter(&program).map_err(during("load a system call filter"))?;
    }
    Ok(())
}

/// Whether a profile can be used.
pub fn check_profile(text: &str) -> Result<(), String> {
    compile(&Seccomp::Profile(text.to_owned()), 0).map(drop)
}

/// The filter of a process as `linux.seccomp` of the OCI; none for a process without one.
pub fn oci_profile(seccomp: &Seccomp, capabilities: u64) -> Result<Option<Value>, String> {
    match seccomp {
        Seccomp::Unconfined => Ok(None),
        Seccomp::Profile(text) => {
            serde_json::from_str(text).map(Some).map_err(during("read the seccomp profile"))
        }
        Seccomp::Default => Ok(Some(default_profile(capabilities))),
    }
}

fn default_profile(capabilities: u64) -> Value {
    let has_admin = capabilities & SYS_ADMIN != 0;
    let mut names: Vec<_> = ALLOWED.split_whitespace().filter(|it| has_admin || *it != "clone3").collect();
    for (number, calls) in BY_CAPABILITY {
        if capabilities & (1 << number) != 0 {
            names.extend(calls.split_whitespace());
        }
    }
    let mut rules = vec![json!({"names": names, "action": "SCMP_ACT_ALLOW"})];
    if !has_admin {
        let flags =
            json!([{"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": NAMESPACE_FLAGS, "valueTwo": 0}]);
        rules.push(json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": flags}));
        rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}));
    }
    json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": EPERM, "syscalls": rules})
}

fn compile(seccomp: &Seccomp, capabilities: u64) -> Result<Vec<BpfProgram>, String> {
    let filters = match seccomp {
        Seccomp::Unconfined => Vec::new(),
        Seccomp::Default => default_filters(capabilities),
        Seccomp::Profile(text) => profile_filters(text)?,
    };
    filters.into_iter().map(Filter::compile).collect()
}

fn default_filters(capabilities: u64) -> Vec<Filter> {
    let plain = |name: &str| (name.to_owned(), None);
    let mut calls: Vec<_> = ALLOWED.split_whitespace().map(plain).collect();
    for (number, names) in BY_CAPABILITY {
        if capabilities & (1 << number) != 0 {
            calls.extend(names.split_whitespace().map(plain));
        }
    }
    let allow = json!("allow");
    if capabilities & SYS_ADMIN != 0 {
        return vec![Filter { listed: allow, others: json!({"errno": EPERM}), calls }];
    }
    let condition = json!([{"index": 0, "type": "qword", "op": {"masked_eq": NAMESPACE_FLAGS}, "val": 0}]);
    calls.push(("clone".to_owned(), Some(condition)));
    // its flags are in memory, where a filter cannot look: libraries go on with clone
    let clone3 =
        Filter { listed: json!({"errno": ENOSYS}), others: allow.clone(), calls: vec![plain("clone3")] };
    vec![Filter { listed: allow, others: json!({"errno": EPERM}), calls }, clone3]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    syscalls: Vec<ProfileRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProfileRule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<ProfileArgument>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProfileArgument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

fn profile_filters(text: &str) -> Result<Vec<Filter>, String> {
    let profile: Profile = serde_json::from_str(text).map_err(during("read the seccomp profile"))?;
    let default = action(&profile.default_action, profile.default_errno_ret)?;
    let mut by_action: BTreeMap<String, (Value, Vec<(String, Option<Value>)>)> = BTreeMap::new();
    let mut listed = Vec::new();
    for rule in &profile.syscalls {
        let action = action(&rule.action, rule.errno_ret)?;
        let conditions = rule.args.as_ref().filter(|it| !it.is_empty());
        let conditions =
            conditions.map(|it| it.iter().map(condition).collect::<Result<Vec<_>, _>>()).transpose()?;
        let conditions = conditions.map(Value::from);
        let calls = rule.names.iter().map(|name| (name.clone(), conditions.clone()));
        listed.extend(calls.clone());
        by_action.entry(action.to_string()).or_insert((action, Vec::new())).1.extend(calls);
    }
    let allow = json!("allow");
    let mut filters = Vec::new();
    if default != allow {
        filters.push(Filter { listed: allow.clone(), others: default, calls: listed });
    }
    let stricter = by_action.into_values().filter(|(action, _)| *action != allow);
    filters.extend(stricter.map(|(action, calls)| Filter { listed: action, others: allow.clone(), calls }));
    Ok(filters)
}

fn action(name: &str, errno: Option<u32>) -> Result<Value, String> {
    Ok(match name {
        "SCMP_ACT_ALLOW" => json!("allow"),
        "SCMP_ACT_LOG" => json!("log"),
        "SCMP_ACT_TRAP" => json!("trap"),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => json!("kill_thread"),
        "SCMP_ACT_KILL_PROCESS" => json!("kill_process"),
        "SCMP_ACT_ERRNO" => json!({"errno": errno.unwrap_or(EPERM)}),
        "SCMP_ACT_TRACE" => json!({"trace": errno.unwrap_or(0)}),
        other => return Err(format!("the seccomp profile has the unknown action {other:?}")),
    })
}

fn condition(argument: &ProfileArgument) -> Result<Value, String> {
    let ProfileArgument { index, value, value_two, op } = argument;
    let (op, value) = match op.as_str() {
        "SCMP_CMP_EQ" => (json!("eq"), value),
        "SCMP_CMP_NE" => (json!("ne"), value),
        "SCMP_CMP_LT" => (json!("lt"), value),
        "SCMP_CMP_LE" => (json!("le"), value),
        "SCMP_CMP_GT" => (json!("gt"), value),
        "SCMP_CMP_GE" => (json!("ge"), value),
        "SCMP_CMP_MASKED_EQ" => (json!({"masked_eq": value}), value_two),
        other => return Err(format!("the seccomp profile has the unknown comparison {other:?}")),
    };
    Ok(json!({"index": index, "type": "qword", "op": op, "val": value}))
}

impl Filter {
    /// Calls that this architecture does not have are left out.
    fn compile(mut self) -> Result<BpfProgram, String> {
        let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(during("system call filters"))?;
        loop {
            // a call without conditions makes its conditions moot
            let plain: Vec<_> =
                self.calls.iter().filter(|it| it.1.is_none()).map(|it| it.0.clone()).collect();
            self.calls.retain(|(name, conditions)| conditions.is_none() || !plain.contains(name));
            let rules = self.calls.iter().map(|(name, conditions)| match conditions {
                Some(conditions) => json!({"syscall": name, "args": conditions}),
                None => json!({"syscall": name}),
            });
            let rules: Vec<Value> = rules.collect();
            let text =
                json!({"f": {"mismatch_action": self.others, "match_action": self.listed, "filter": rules}});
            match compile_from_json(text.to_string().as_bytes(), arch) {
                Ok(mut programs) => {
                    return programs.remove("f").ok_or_else(|| "no system call filter".to_owned());
                }
                Err(Error::JsonFrontend(why)) => {
                    // the type of this error is private
                    let why = why.to_string();
                    let name = why.strip_prefix(UNKNOWN_CALL).and_then(|it| it.split(' ').next());
                    let name =
                        name.ok_or_else(|| format!("the system call filter is invalid: {why}"))?.to_owned();
                    self.calls.retain(|(it, _)| *it != name);
                }
                Err(why) => return Err(format!("the system call filter cannot be compiled: {why}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_filter_compiles_with_any_capabilities() {
        for capabilities in [0, SYS_ADMIN, u64::MAX] {
            let programs = compile(&Seccomp::Default, capabilities).unwrap();
            assert!(programs.iter().all(|it| (3..4096).contains(&it.len())), "{capabilities:x}");
        }
        assert!(compile(&Seccomp::Unconfined, 0).unwrap().is_empty());
    }

    #[test]
    fn profiles_become_a_filter_for_each_action() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [
                {"names": ["read", "write", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["personality"], "action": "SCMP_ACT_ALLOW",
                 "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
                {"names": ["mkdir"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
        assert_eq!(compile(&Seccomp::Profile(text.to_owned()), 0).unwrap().len(), 2);
        let allow = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}"#;
        assert_eq!(compile(&Seccomp::Profile(allow.to_owned()), 0).unwrap().len(), 1);
        for bad in ["", "{}", r#"{"defaultAction": "SCMP_ACT_WAIT"}"#] {
            assert!(check_profile(bad).is_err(), "{bad}");
        }
    }
}
