//! The first life of a container's process: it prepares namespaces, filesystem and rights, and then becomes the program.
//!
//! The process has one thread. It is a copy of the monitor or, where it stays for long, this program anew, with a socket to
//! the monitor, on which it gets the [`InitRequest`] and says what goes wrong. Every descriptor is closed at the end, except
//! the three standard streams.

mod exec;
mod failure;
mod identity;
mod oci;
mod pause;
pub(super) mod rootfs;
pub(super) mod seccomp;
pub(super) mod users;

use super::cgroup::group_below;
use super::message::{Inbox, send, wait_for, write};
use super::namespaces::unshare;
use super::protocol::{InitReply, InitRequest, Streams};
use super::spec::ProcessSpec;
use exec::{ExecFailure, Program};
use failure::during;
use identity::Rights;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{DumpableBehavior, set_dumpable_behavior, set_parent_process_death_signal, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Becomes the program of a container, with its socket as the standard input. Returns the exit code if that fails.
pub fn run() -> u8 {
    match fcntl_dupfd_cloexec(stdin(), 3) {
        Ok(control) => run_at(control),
        Err(_) => 1,
    }
}

/// The same with any descriptor as the socket, which is closed when another program is executed.
pub(super) fn run_at(control: OwnedFd) -> u8 {
    let failure = match prepare(&control) {
        Ok(Some((rights, program))) => become_program(&control, &rights, program),
        // an external runtime has started it
        Ok(None) => return 0,
        Err(message) => ExecFailure::Refused(message),
    };
    match failure {
        // a monitor that is gone needs no answer
        ExecFailure::Refused(message) => drop(write(&control, &InitReply::Failed { message })),
        ExecFailure::Format(message) => drop(writeln!(std::io::stderr(), "{message}")),
    }
    1
}

/// Puts the program in the place of this process. Returns why that failed. The filter of system calls may be in force
/// from here on, so everything else is done before.
fn become_program(control: &OwnedFd, rights: &Rights, program: Program) -> ExecFailure {
    let started = process_start::reset_broken_pipe()
        .map_err(during("reset signals"))
        .and_then(|()| send(control, &InitReply::Ready, &[]).map_err(during("answer the monitor")))
        .and_then(|()| rights.give_up());
    match started {
        Ok(()) => program.replace_process(),
        Err(message) => ExecFailure::Refused(message),
    }
}

/// For `map_err`: an error of what happens before the program is looked for.
fn in_init(message: String) -> String {
    format!("error during container init: {message}")
}

fn prepare(control: &OwnedFd) -> Result<Option<(Rights, Program)>, String> {
    // a process of the container that enters its namespaces must not be able to look at this one
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(during("prctl"))?;
    // else it had the name of the monitor, or a descriptor's
    rustix::thread::set_name(c"runtime-init").map_err(during("prctl"))?;
    // without its monitor a container has no log and no exit code
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(during("prctl"))?;
    let request =
        wait_for::<InitRequest>(control, &mut Inbox::default()).map_err(during("read the request"))?;
    let (request, mut descriptors) = request.ok_or("the monitor is gone")?;
    let InitRequest { process, streams, joined, is_pause, oci } = request;
    setsid().map_err(during("setsid"))?;
    if is_pause {
        // the name by which others know the first process of a pod
        rustix::thread::set_name(c"pause").map_err(during("prctl"))?;
        send(control, &InitReply::Ready, &[]).map_err(during("answer the monitor"))?;
        pause::reap()?;
    }
    if let Some(files) = process.open_files {
        process_start::lower_open_files(files).map_err(during("limit the open files"))?;
    }
    if let Some(oci) = oci {
        // the terminal is the external runtime's
        connect_streams(&ProcessSpec { tty: false, ..process.clone() }, streams, descriptors, control)?;
        return oci::run(&oci, &process, control).map(|()| None);
    }
    join_cgroups(&process, joined)?;
    set_oom_score(&process)?;
    if joined.is_some() {
        let kinds = [(LinkNameSpaceType::ControlGroup, "cgroup"), (LinkNameSpaceType::Mount, "mount")];
        for (kind, name) in kinds {
            let namespace = descriptors.pop().ok_or("a namespace is missing")?;
            move_into_link_name_space(namespace.as_fd(), Some(kind))
                .map_err(during(format_args!("enter the {name} namespace")))?;
        }
    } else {
        unshare(UnshareFlags::NEWCGROUP).map_err(during("unshare the cgroup namespace"))?;
    }
    if let Some(root) = &process.root {
        unshare(UnshareFlags::NEWNS).map_err(during("unshare the mount namespace"))?;
        rootfs::enter(root).map_err(in_init)?;
    }
    connect_streams(&process, streams, descriptors, control)?;
    let user = users::resolve(&process.user)?;
    exec::change_directory(&process.cwd).map_err(in_init)?;
    let program = Program::new(&process, &user)?;
    let rights = Rights::of(&process)?;
    identity::assume(&process, &user)?;
    Ok(Some((rights, program)))
}

fn join_cgroups(process: &ProcessSpec, joined: Option<i32>) -> Result<(), String> {
    // zero is the writer
    let join = |file: &Path| std::fs::write(file, "0");
    for file in &process.cgroups {
        let mut outcome = join(file);
        if let (Err(_), Some(pid)) = (&outcome, joined) {
            // the container has divided its group among others
            let table = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            if let Some(below) = group_below(file, &table) {
                outcome = join(&below);
            }
        }
        outcome.map_err(during(format_args!("join {}", file.display())))?;
    }
    Ok(())
}

/// A process without CAP_SYS_RESOURCE may raise its score only; then the score stays.
fn set_oom_score(process: &ProcessSpec) -> Result<(), String> {
    let Some(score) = process.oom_score_adj else { return Ok(()) };
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(why) if why.kind() != std::io::ErrorKind::PermissionDenied => {
            Err(format!("set the OOM score: {why}"))
        }
        _ => Ok(()),
    }
}

/// Puts the streams of the process in their places.
fn connect_streams(
    process: &ProcessSpec,
    streams: Streams,
    descriptors: Vec<OwnedFd>,
    control: &OwnedFd,
) -> Result<(), String> {
    if process.tty {
        return connect_terminal(control).map_err(during("open a terminal"));
    }
    let failed = || during::<Errno>("connect the standard streams");
    let null = || open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let mut descriptors = descriptors.into_iter();
    let mut stream = |is_given: bool| match is_given.then(|| descriptors.next()).flatten() {
        Some(given) => Ok(given),
        None => null(),
    };
    let input = stream(streams.stdin).map_err(failed())?;
    let output = stream(streams.stdout).map_err(failed())?;
    let errors = stream(streams.stderr).map_err(failed())?;
    dup2_stdin(&input)
        .and_then(|()| dup2_stdout(&output))
        .and_then(|()| dup2_stderr(&errors))
        .map_err(failed())
}

/// Opens a terminal of the container, and hands its other side to the monitor.
fn connect_terminal(control: &OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
    let master = open("/dev/pts/ptmx", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let flags =
        rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    send(control, &InitReply::Terminal, &[master.as_fd()])?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    dup2_stdin(&terminal)?;
    dup2_stdout(&terminal)?;
    dup2_stderr(&terminal)?;
    Ok(())
}
