//! The profile of containers that ask for the default one.

use super::calls::Architecture;
use super::profile::{Profile, ProfileArgument, ProfileRule};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
pub const SYS_ADMIN: u64 = 1 << 21;

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
/// Calls of older architectures that are forms of those above: of 32 bits, of fewer arguments, or of several calls in one.
const ALLOWED_FORMS: &str = "
    _llseek _newselect arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush chown32 clock_adjtime64
    clock_getres_time64 clock_gettime64 clock_nanosleep_time64 fadvise64_64 fchown32 fcntl64 fstat64 fstatat64 fstatfs64
    ftruncate64 futex_time64 getegid32 geteuid32 getgid32 getgroups32 getresgid32 getresuid32 getuid32
    io_pgetevents_time64 ipc lchown32 lstat64 mmap2 mq_timedreceive_time64 mq_timedsend_time64 ppoll_time64
    pselect6_time64 recv recvmmsg_time64 rt_sigtimedwait_time64 sched_rr_get_interval_time64 semtimedop_time64 send
    sendfile64 set_tls setfsgid32 setfsuid32 setgid32 setgroups32 setregid32 setresgid32 setresuid32 setreuid32 setuid32
    sigaction signal sigpending sigprocmask sigreturn sigsuspend socketcall stat64 statfs64 sync_file_range2
    timer_gettime64 timer_settime64 timerfd_gettime64 timerfd_settime64 truncate64 ugetrlimit utimensat_time64 waitpid
    modify_ldt riscv_flush_icache riscv_hwprobe";

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
         perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare vhangup",
    ),
    (22, "reboot"),
    (25, "clock_settime settimeofday stime clock_settime64"),
];

/// The default profile for a process with these capabilities.
pub fn default_profile(capabilities: u64) -> Profile {
    let has_admin = capabilities & SYS_ADMIN != 0;
    let mut names: Vec<&str> = ALLOWED.split_whitespace().chain(ALLOWED_FORMS.split_whitespace()).collect();
    // its flags are in memory, where a filter cannot look: libraries go on with clone
    names.retain(|it| has_admin || *it != "clone3");
    for (number, calls) in BY_CAPABILITY {
        if capabilities & (1 << number) != 0 {
            names.extend(calls.split_whitespace());
        }
    }
    let rule = |names: &[&str], action: &str| ProfileRule {
        names: names.iter().map(|it| (*it).to_owned()).collect(),
        action: action.to_owned(),
        ..ProfileRule::default()
    };
    let mut syscalls = vec![rule(&names, "SCMP_ACT_ALLOW")];
    if !has_admin {
        let flags = ProfileArgument {
            index: 0,
            value: NAMESPACE_FLAGS,
            value_two: 0,
            op: "SCMP_CMP_MASKED_EQ".to_owned(),
        };
        syscalls.push(ProfileRule { args: Some(vec![flags]), ..rule(&["clone"], "SCMP_ACT_ALLOW") });
        syscalls.push(ProfileRule { errno_ret: Some(ENOSYS), ..rule(&["clone3"], "SCMP_ACT_ERRNO") });
    }
    let family = Architecture::native().map_or(&[][..], Architecture::family);
    Profile {
        default_action: "SCMP_ACT_ERRNO".to_owned(),
        default_errno_ret: Some(EPERM),
        architectures: Some(family.iter().map(|it| it.name().to_owned()).collect()),
        syscalls: Some(syscalls),
    }
}
