//! A process of a pod: its start, its output, its end.

use super::log_file::{LineBuffer, LogFile};
use crate::containers::cgroup::{has_oom_kill, processes};
use crate::containers::message::{Inbox, SocketState, set_nonblocking};
use crate::containers::protocol::{ExitRecord, InitReply, StartRecord, Streams, start_file};
use crate::containers::spec::OciContainer;
use env::World;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Bytes of output that are read at once.
const PIECE: usize = 16 * 1024;

/// The socket of a process that is not the program yet.
pub struct Control {
    pub socket: OwnedFd,
    inbox: Inbox,
    is_ready: bool,
    failure: Option<String>,
}

impl Control {
    pub fn new(socket: OwnedFd) -> Self {
        Control { socket, inbox: Inbox::default(), is_ready: false, failure: None }
    }
}

/// An output of a container.
pub struct Output {
    pub source: OwnedFd,
    stream: &'static str,
    line: LineBuffer,
}

impl Output {
    pub fn new(source: OwnedFd, stream: &'static str) -> Self {
        Output { source, stream, line: LineBuffer::default() }
    }
}

/// A client that gets the output of a container.
pub struct Attachment {
    pub connection: u64,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Output that could not be written yet, with its stream.
    pending: VecDeque<(&'static str, Vec<u8>)>,
}

impl Attachment {
    fn target(&self, stream: &str) -> Option<&OwnedFd> {
        match stream {
            "stderr" => self.stderr.as_ref(),
            _ => self.stdout.as_ref(),
        }
    }
}

/// See the module.
pub struct Process {
    /// The container that it is the process of, or that it is executed in.
    pub container: Option<String>,
    pub is_container: bool,
    pub leaves_processes: bool,
    pub is_killed_on_close: bool,
    pub pid: i32,
    pub descriptor: OwnedFd,
    pub control: Option<Control>,
    pub requester: u64,
    pub stdin: Option<OwnedFd>,
    pub has_stdin_once: bool,
    pub terminal: Option<OwnedFd>,
    pub outputs: Vec<Output>,
    pub attachments: Vec<Attachment>,
    pub log: LogFile,
    pub exit_file: PathBuf,
    pub exit_code: Option<i32>,
    pub cgroups: Vec<PathBuf>,
    /// The external runtime that has made it.
    pub oci: Option<OciContainer>,
    /// The process that calls an external runtime, after that has made the container.
    pub caller: Option<i32>,
    pub is_killed_at_start: bool,
}

/// Nanoseconds since the epoch.
pub fn nanos(world: &World) -> i64 {
    let since = world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Whether a read of one of these descriptors returns at once.
fn is_readable(descriptors: &[&OwnedFd]) -> bool {
    let mut polled: Vec<_> = descriptors.iter().map(|it| PollFd::new(*it, PollFlags::IN)).collect();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = poll(&mut polled, Some(&now));
    polled.iter().any(|it| it.revents().contains(PollFlags::IN))
}

/// Waits for the end of a child. Returns its exit code.
fn wait_for(pid: i32) -> Option<i32> {
    let status = waitpid(Pid::from_raw(pid), WaitOptions::empty()).ok()??.1;
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal))
}

impl Process {
    pub fn new(pid: Pid, descriptor: OwnedFd, control: Control, log: LogFile, requester: u64) -> Self {
        Process {
            container: None,
            is_container: false,
            leaves_processes: false,
            is_killed_on_close: false,
            pid: pid.as_raw_nonzero().get(),
            descriptor,
            control: Some(control),
            requester,
            stdin: None,
            has_stdin_once: false,
            terminal: None,
            outputs: Vec::new(),
            attachments: Vec::new(),
            log,
            exit_file: PathBuf::new(),
            exit_code: None,
            cgroups: Vec::new(),
            oci: None,
            caller: None,
            is_killed_at_start: false,
        }
    }

    /// Whether it is this process, or the one that makes it.
    pub fn has_pid(&self, pid: i32) -> bool {
        self.pid == pid || self.caller == Some(pid)
    }

    pub fn is_running_container(&self, name: &str) -> bool {
        self.is_container && self.container.as_deref() == Some(name) && self.exit_code.is_none()
    }

    /// Reads the messages of a new process. `Some` once it is the program, or failed.
    pub fn continue_start(&mut self) -> Option<Result<(), String>> {
        let control = self.control.as_mut()?;
        let received = control.inbox.receive(&control.socket);
        while let Ok(Some((reply, mut descriptors))) = control.inbox.next::<InitReply>() {
            match reply {
                InitReply::Terminal => self.terminal = descriptors.pop(),
                InitReply::Process { pid } => {
                    // a child of this process, so the number stays its own until it is reaped
                    let found = Pid::from_raw(pid).ok_or(Errno::SRCH);
                    match found.and_then(|it| pidfd_open(it, PidfdFlags::empty())) {
                        Ok(descriptor) => {
                            self.caller = Some(std::mem::replace(&mut self.pid, pid));
                            self.descriptor = descriptor;
                        }
                        Err(why) => control.failure = Some(format!("find the process {pid}: {why}")),
                    }
                }
                InitReply::Ready => control.is_ready = true,
                InitReply::Failed { message } => control.failure = Some(message),
            }
        }
        if matches!(received, Ok(SocketState::Data | SocketState::Idle)) {
            return None;
        }
        let (is_ready, failure) = (control.is_ready, control.failure.take());
        self.control = None;
        // it ends with its last message
        if let Some(caller) = self.caller.take() {
            wait_for(caller);
        }
        let outcome = match failure {
            Some(message) => Err(message),
            None if !is_ready => Err("the process ended before it was the program".to_owned()),
            None => self.connect_terminal(),
        };
        if self.is_killed_at_start {
            self.kill();
        }
        Some(outcome)
    }

    /// The output of a container's terminal goes to its log.
    fn connect_terminal(&mut self) -> Result<(), String> {
        if let (true, Some(terminal)) = (self.is_container, &self.terminal) {
            let source = terminal.try_clone().and_then(|it| set_nonblocking(&it).map(|()| it));
            self.outputs.push(Output::new(source.map_err(|why| why.to_string())?, "stdout"));
        }
        Ok(())
    }

    /// The terminal of an executed process belongs to the client.
    pub fn exec_terminal(&mut self) -> Vec<OwnedFd> {
        if self.is_container { Vec::new() } else { self.terminal.take().into_iter().collect() }
    }

    /// Copies output that is there to the log and to clients. An output that ended is closed.
    pub fn copy_output(&mut self, world: &World) {
        let mut buffer = [0; PIECE];
        let mut index = 0;
        while index < self.outputs.len() {
            let output = &mut self.outputs[index];
            match read(&output.source, &mut buffer) {
                Ok(count) if count > 0 => {
                    let stream = output.stream;
                    // a full disk loses the line, not the container
                    let _ = self.log.write(stream, &mut output.line, &buffer[..count], world.now());
                    self.send_to_attachments(stream, &buffer[..count]);
                    index += 1;
                }
                Err(Errno::AGAIN | Errno::INTR) => index += 1,
                // a terminal says so when its last user is gone
                Ok(_) | Err(_) => {
                    let mut ended = self.outputs.remove(index);
                    let _ = self.log.finish(ended.stream, &mut ended.line, world.now());
                }
            }
        }
    }

    fn send_to_attachments(&mut self, stream: &'static str, data: &[u8]) {
        for attachment in &mut self.attachments {
            if attachment.target(stream).is_some() {
                attachment.pending.push_back((stream, data.to_vec()));
            }
        }
        self.flush_attachments();
    }

    /// Writes as much as clients take now. A client that closed its end is dropped.
    pub fn flush_attachments(&mut self) {
        for attachment in &mut self.attachments {
            while let Some((stream, mut data)) = attachment.pending.pop_front() {
                let Some(target) = attachment.target(stream) else { continue };
                match write(target, &data) {
                    Ok(count) if count < data.len() => {
                        attachment.pending.push_front((stream, data.split_off(count)));
                    }
                    Ok(_) => {}
                    Err(Errno::AGAIN | Errno::INTR) => {
                        attachment.pending.push_front((stream, data));
                        break;
                    }
                    Err(_) => {
                        (attachment.stdout, attachment.stderr) = (None, None);
                        attachment.pending.clear();
                    }
                }
            }
        }
    }

    /// The end of a client that does not take more now.
    pub fn blocked_attachment(&self) -> Option<BorrowedFd<'_>> {
        let blocked = |it: &'_ Attachment| it.pending.front().map(|(stream, _)| *stream);
        self.attachments.iter().find_map(|it| it.target(blocked(it)?)).map(AsFd::as_fd)
    }

    /// Adds a client. Returns the descriptor of the input.
    pub fn attach(&mut self, connection: u64, streams: Streams, descriptors: Vec<OwnedFd>) -> Vec<OwnedFd> {
        let mut descriptors = descriptors.into_iter();
        for descriptor in descriptors.as_slice() {
            let _ = set_nonblocking(descriptor);
        }
        let stdout = if streams.stdout { descriptors.next() } else { None };
        let stderr = if streams.stderr { descriptors.next() } else { None };
        self.attachments.push(Attachment { connection, stdout, stderr, pending: VecDeque::new() });
        let input = match &self.terminal {
            // the size of a terminal is set by its descriptor
            Some(terminal) => terminal.try_clone().ok(),
            None if !streams.stdin => None,
            None if self.has_stdin_once => self.stdin.take(),
            None => self.stdin.as_ref().and_then(|it| it.try_clone().ok()),
        };
        input.into_iter().collect()
    }

    pub fn signal(&self, number: i32) -> Result<(), String> {
        let signal = Signal::from_named_raw(number).ok_or_else(|| format!("there is no signal {number}"))?;
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Whether an external runtime is about to make it.
    pub fn is_external_start(&self) -> bool {
        self.oci.is_some() && self.control.is_some()
    }

    pub fn kill(&mut self) {
        if self.is_external_start() {
            // an external runtime that is interrupted leaves its work half done
            self.is_killed_at_start = true;
            return;
        }
        // one that has ended needs no signal
        let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Waits for the end of a process that was killed or has ended.
    pub fn reap(&self) -> Option<i32> {
        wait_for(self.pid)
    }

    /// Records the start of a container, for an agent that was killed before it got the answer.
    pub fn record_start(&self, started_at: i64) {
        if self.is_container {
            let text = serde_json::to_vec(&StartRecord { pid: self.pid, started_at }).unwrap_or_default();
            let path = start_file(&self.exit_file);
            let new = path.with_extension("new");
            // it need not outlive the machine, so it is not synced; without it the container counts as created
            let _ = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        }
    }

    /// Whether the process has ended, so that a wait for it returns at once.
    pub fn has_ended(&self) -> bool {
        is_readable(&[&self.descriptor])
    }

    /// Records the end. Returns whether that is new.
    pub fn end(&mut self, world: &World) -> bool {
        if self.exit_code.is_some() {
            return false;
        }
        let code = self.reap().unwrap_or(255);
        if self.leaves_processes {
            self.kill_group();
        }
        // all that was written before the end is in the pipes
        for _ in 0..64 {
            let before = self.outputs.len();
            self.copy_output(world);
            if self.outputs.is_empty() || before == self.outputs.len() && !self.has_output() {
                break;
            }
        }
        for output in &mut self.outputs {
            let _ = self.log.finish(output.stream, &mut output.line, world.now());
        }
        self.outputs.clear();
        self.stdin = None;
        self.exit_code = Some(code);
        if self.is_container {
            // also if the program has outlived the process that was killed
            let is_oom = has_oom_kill(&self.cgroups);
            let record = ExitRecord { code, finished_at: nanos(world), is_oom };
            let text = serde_json::to_vec(&record).unwrap_or_default();
            // the agent sees a container without a record as lost
            let _ = durable_file::replace(&self.exit_file, text, durable_file::PRIVATE);
        }
        true
    }

    fn has_output(&self) -> bool {
        let sources: Vec<_> = self.outputs.iter().map(|it| &it.source).collect();
        is_readable(&sources)
    }

    /// Ends the other processes of the container.
    fn kill_group(&self) {
        for pid in processes(&self.cgroups) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
