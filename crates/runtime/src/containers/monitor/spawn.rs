//! Starts processes of a pod, in the process namespace that they belong to.

use super::log_file::LogFile;
use super::process::{Control, Output, Process};
use crate::containers::init;
use crate::containers::message::{Inbox, send, set_nonblocking, wait_for};
use crate::containers::namespaces::unshare;
use crate::containers::program::ENVIRONMENT;
use crate::containers::protocol::{InitReply, InitRequest, MonitorConfig, StartRequest, Streams};
use crate::containers::spec::{OciContainer, PidMode, ProcessSpec};
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// The name by which this program is called to become a container's process.
pub const INIT_COMMAND: &str = "runtime-init";

/// See the module.
pub struct Spawner {
    config: MonitorConfig,
    own_pids: OwnedFd,
    /// The first process of a shared process namespace.
    pause: Option<(Pid, OwnedFd)>,
    /// Process namespaces of containers, for processes that join them.
    container_pids: BTreeMap<String, OwnedFd>,
}

/// A new process before it is anything.
struct InitProcess {
    pid: Pid,
    descriptor: OwnedFd,
    control: OwnedFd,
}

fn namespace(pid: Pid, kind: &str) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

impl Spawner {
    pub fn new(config: MonitorConfig) -> io::Result<Self> {
        let own_pids = open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let shares_pids = config.shares_pids;
        let mut spawner = Spawner { config, own_pids, pause: None, container_pids: BTreeMap::new() };
        if shares_pids {
            let request = InitRequest { is_pause: true, ..InitRequest::default() };
            let InitProcess { pid, control, .. } = spawner.spawn(None, true, &request, &[])?;
            // without its first process a namespace takes no others
            match wait_for::<InitReply>(&control, &mut Inbox::default())? {
                Some((InitReply::Ready, _)) => {}
                Some((InitReply::Failed { message }, _)) => return Err(io::Error::other(message)),
                _ => return Err(io::Error::other("the first process of the pod has ended")),
            }
            spawner.pause = Some((pid, namespace(pid, "pid")?));
        }
        Ok(spawner)
    }

    /// Reaps adopted processes that have ended; the others are reaped when their end is recorded.
    pub fn reap_adopted(&self, is_known: impl Fn(i32) -> bool) {
        if !self.config.adopts_processes {
            return;
        }
        let own = rustix::process::getpid().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let pause = self.pause.as_ref().map(|it| it.0.as_raw_nonzero().get());
        for pid in children.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()) {
            if !is_known(pid) && Some(pid) != pause {
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Ends the first process of a shared namespace, and with it the others.
    pub fn end(&mut self) {
        if let Some((pid, _)) = self.pause.take() {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
        let _ = std::fs::remove_file(&self.config.socket);
    }

    /// Starts a process in a process namespace: a given one, a new one or that of the monitor.
    fn spawn(
        &self,
        namespace: Option<&OwnedFd>,
        is_new: bool,
        request: &InitRequest,
        descriptors: &[OwnedFd],
    ) -> io::Result<InitProcess> {
        let flags = SocketFlags::CLOEXEC;
        let (control, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // children of this thread are born there; the monitor itself stays
        if let Some(namespace) = namespace {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        } else if is_new {
            unshare(UnshareFlags::NEWPID)?;
        }
        // what does not soon become another program must not keep the descriptors of the monitor open
        let stays = request.is_pause || request.oci.is_some();
        let mut control = Some(control);
        let spawned = if stays { execute(theirs) } else { copy(theirs, &mut control) };
        if namespace.is_some() || is_new {
            move_into_link_name_space(self.own_pids.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        }
        let (pid, control) = (spawned?, control.ok_or(io::ErrorKind::BrokenPipe)?);
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        send(&control, request, &descriptors)?;
        Ok(InitProcess { pid, descriptor, control })
    }

    /// Starts the process of a container.
    pub fn start(&mut self, start: StartRequest, requester: u64) -> Result<Process, String> {
        let failed = |why: io::Error| format!("start the process: {why}");
        let log = LogFile::open(&start.log)
            .map_err(|why| format!("open the log {}: {why}", start.log.display()))?;
        let (theirs, stdin, outputs) = pipes(&start).map_err(failed)?;
        let streams =
            Streams { stdin: stdin.is_some(), stdout: !start.process.tty, stderr: !start.process.tty };
        let mut request = InitRequest { process: start.process, streams, ..InitRequest::default() };
        let is_private = start.pid == PidMode::Private;
        let joined = match &start.pid {
            PidMode::Private | PidMode::Host => None,
            PidMode::Pod => Some(&self.pause.as_ref().ok_or("the pod shares no processes")?.1),
            PidMode::Target(target) => Some(
                self.container_pids
                    .get(target)
                    .ok_or_else(|| format!("container {target} is not running"))?,
            ),
        };
        let spawned = match start.oci {
            Some(oci) => {
                request.oci = Some(self.oci_container(oci, joined, is_private));
                self.spawn(None, false, &request, &theirs)
            }
            None => self.spawn(joined, is_private, &request, &theirs),
        };
        let spawned = spawned.map_err(failed)?;
        if request.oci.is_none()
            && let Ok(namespace) = namespace(spawned.pid, "pid")
        {
            self.container_pids.insert(start.container.clone(), namespace);
        }
        Ok(Process {
            container: Some(start.container),
            is_container: true,
            // without a namespace of their own, other processes outlive the first
            leaves_processes: !is_private,
            stdin,
            outputs,
            exit_file: start.exit_file,
            has_stdin_once: start.has_stdin_once,
            cgroups: request.process.cgroups,
            oci: request.oci,
            ..Process::new(spawned.pid, spawned.descriptor, Control::new(spawned.control), log, requester)
        })
    }

    /// The container with its namespaces: those of this process, and a process namespace.
    fn oci_container(&self, oci: OciContainer, joined: Option<&OwnedFd>, is_private: bool) -> OciContainer {
        let own = rustix::process::getpid().as_raw_nonzero();
        let kinds = [
            (self.config.has_own_network, "network", "net"),
            (self.config.has_own_ipc, "ipc", "ipc"),
            (self.config.has_own_uts, "uts", "uts"),
        ];
        let mut namespaces: Vec<_> = kinds
            .iter()
            .filter(|it| it.0)
            .map(|(_, kind, file)| ((*kind).to_owned(), format!("/proc/{own}/ns/{file}").into()))
            .collect();
        let joined = joined.map(|it| format!("/proc/{own}/fd/{}", it.as_raw_fd()).into());
        namespaces.extend(joined.map(|it| ("pid".to_owned(), it)));
        OciContainer { namespaces, has_own_pids: is_private, ..oci }
    }

    /// Remembers the process namespace of a container that an external runtime has made.
    pub fn add_container(&mut self, container: &str, pid: i32) {
        if let Some(namespace) = Pid::from_raw(pid).and_then(|it| namespace(it, "pid").ok()) {
            self.container_pids.insert(container.to_owned(), namespace);
        }
    }

    /// Executes a process in a container.
    pub fn exec(
        &self,
        target: &Process,
        process: ProcessSpec,
        (streams, mut descriptors): (Streams, Vec<OwnedFd>),
        requester: u64,
        is_killed_on_close: bool,
    ) -> Result<Process, String> {
        let failed = |why: io::Error| format!("execute the process: {why}");
        let pid = Pid::from_raw(target.pid).ok_or("the container is not running")?;
        let mut request = InitRequest { process, streams, ..InitRequest::default() };
        let spawned = match &target.oci {
            Some(oci) => {
                let running_root = Some(format!("/proc/{}/root", target.pid).into());
                request.oci = Some(OciContainer { running_root, ..oci.clone() });
                self.spawn(None, false, &request, &descriptors)
            }
            None => {
                request.joined = Some(target.pid);
                for kind in ["mnt", "cgroup"] {
                    descriptors.push(namespace(pid, kind).map_err(failed)?);
                }
                let pids = namespace(pid, "pid").map_err(failed)?;
                self.spawn(Some(&pids), false, &request, &descriptors)
            }
        };
        let spawned = spawned.map_err(failed)?;
        let log = LogFile::open("".as_ref()).map_err(failed)?;
        Ok(Process {
            container: target.container.clone(),
            oci: request.oci,
            is_killed_on_close,
            ..Process::new(spawned.pid, spawned.descriptor, Control::new(spawned.control), log, requester)
        })
    }
}

/// Starts this program, which gets its request from a socket.
fn execute(control: OwnedFd) -> io::Result<Pid> {
    // the program of this monitor, also when a newer one has taken its place since
    let mut command = Command::new("/proc/self/exe");
    command.arg(INIT_COMMAND).env_clear().envs(ENVIRONMENT);
    command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
    process_id(command.spawn()?.id())
}

/// The same by a copy of this process, which costs much less than a start of the program. The copy closes the monitor's
/// side of the socket, so that it notices when the monitor is gone.
fn copy(control: OwnedFd, monitors_side: &mut Option<OwnedFd>) -> io::Result<Pid> {
    let pid = process_start::fork(|| {
        drop(monitors_side.take());
        init::run_at(control)
    })?;
    process_id(pid)
}

fn process_id(number: impl TryInto<i32>) -> io::Result<Pid> {
    number.try_into().ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The pipes of a container: the ends for its process, its input, and its outputs.
fn pipes(start: &StartRequest) -> io::Result<(Vec<OwnedFd>, Option<OwnedFd>, Vec<Output>)> {
    if start.process.tty {
        return Ok((Vec::new(), None, Vec::new()));
    }
    let (mut theirs, mut stdin, mut outputs) = (Vec::new(), None, Vec::new());
    if start.has_stdin {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        theirs.push(reader);
        stdin = Some(writer);
    }
    for stream in ["stdout", "stderr"] {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        set_nonblocking(&reader)?;
        theirs.push(writer);
        outputs.push(Output::new(reader, stream));
    }
    Ok((theirs, stdin, outputs))
}
