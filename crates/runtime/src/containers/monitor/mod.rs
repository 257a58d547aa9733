//! The monitor of a pod: a small process that outlives the agent, holds the pod's namespaces, starts its processes, writes
//! their logs and records how they end.
//!
//! It has one thread, which waits for all of its descriptors at once. Nothing in it waits for the agent: requests that
//! take long are answered when they are done.

mod connection;
mod inherited;
mod log_file;
mod loopback;
mod process;
mod shutdown;
mod spawn;

pub use spawn::INIT_COMMAND;

use super::init::rootfs::new_filesystem;
use super::namespaces::unshare;
use super::protocol::{MonitorConfig, MonitorStart, Reply, Request};
use connection::Connection;
use env::World;
use process::Process;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::MountAttrFlags;
use rustix::thread::UnshareFlags;
use spawn::Spawner;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

const SIGKILL: i32 = 9;

/// The owner of a descriptor that is ready.
#[derive(Debug, Clone, Copy)]
enum Token {
    Listener,
    Connection(u64),
    Control(u64),
    Exit(u64),
    Output(u64),
    Attachment(u64),
}

struct Monitor {
    /// A network namespace has one such filesystem, and as it was made read-only, privileged containers do not write to it
    /// either. Other runtimes have it from the mount of their pause container.
    _sysfs: Option<OwnedFd>,
    listener: UnixListener,
    spawner: Spawner,
    world: World,
    connections: BTreeMap<u64, Connection>,
    processes: BTreeMap<u64, Process>,
    /// Containers that were killed while they had no process: they are not started any more.
    killed: BTreeSet<String>,
    next_id: u64,
    is_ended: bool,
}

/// Runs a monitor: its configuration comes on the standard input. Returns the exit code.
pub fn run(world: &World) -> u8 {
    let monitor = start(world);
    let answer = match &monitor {
        Ok(_) => MonitorStart::Ready { pid: rustix::process::getpid().as_raw_nonzero().get() },
        Err(message) => MonitorStart::Failed { message: message.clone() },
    };
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let written = writeln!(io::stdout(), "{text}");
    match (monitor, written) {
        (Ok(mut monitor), Ok(())) => monitor.serve(),
        _ => 1,
    }
}

fn start(world: &World) -> Result<Monitor, String> {
    let failed = |action: &'static str| move |why: io::Error| format!("{action}: {why}");
    inherited::close_all().map_err(failed("close inherited descriptors"))?;
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(failed("read the configuration"))?;
    let config: MonitorConfig =
        serde_json::from_slice(&text).map_err(|why| format!("the configuration: {why}"))?;
    std::env::set_current_dir("/").map_err(failed("chdir"))?;
    // executed by a descriptor, it would have the number as its name
    rustix::thread::set_name(c"pintle-monitor").map_err(|why| failed("prctl")(why.into()))?;
    // a terminal that is closed must not end the pods of an agent that ran in it
    rustix::process::setsid().map_err(|why| failed("setsid")(why.into()))?;
    if config.adopts_processes {
        // processes whose parent has ended become children of this one, and their exit codes are known
        let own = Some(rustix::process::getpid());
        rustix::process::set_child_subreaper(own).map_err(|why| failed("prctl")(why.into()))?;
    }
    let flags = [
        (config.has_own_network, UnshareFlags::NEWNET),
        (config.has_own_ipc, UnshareFlags::NEWIPC),
        (config.has_own_uts, UnshareFlags::NEWUTS),
    ];
    let flags = flags.iter().filter(|it| it.0).fold(UnshareFlags::empty(), |all, it| all | it.1);
    unshare(flags).map_err(|why| failed("unshare")(why.into()))?;
    let mut sysfs = None;
    if config.has_own_network {
        loopback::bring_up().map_err(failed("bring up the loopback interface"))?;
        let made = new_filesystem("sysfs", &[("ro", "")], MountAttrFlags::MOUNT_ATTR_RDONLY);
        sysfs = Some(made.map_err(|why| failed("make the filesystem of /sys")(why.into()))?);
    }
    if config.has_own_uts && !config.hostname.is_empty() {
        rustix::system::sethostname(config.hostname.as_bytes())
            .map_err(|why| failed("sethostname")(why.into()))?;
    }
    for (name, value) in &config.sysctls {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        std::fs::write(&path, value).map_err(|why| format!("write the sysctl {name}: {why}"))?;
    }
    let listener = UnixListener::bind(&config.socket).map_err(failed("listen"))?;
    listener.set_nonblocking(true).map_err(failed("listen"))?;
    let spawner = Spawner::new(config).map_err(failed("start the pod"))?;
    Ok(Monitor {
        _sysfs: sysfs,
        listener,
        spawner,
        world: world.clone(),
        connections: BTreeMap::new(),
        processes: BTreeMap::new(),
        killed: BTreeSet::new(),
        next_id: 0,
        is_ended: false,
    })
}

impl Monitor {
    fn serve(&mut self) -> u8 {
        while !self.is_ended {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(_) => return 1,
            };
            for token in ready {
                self.handle(token);
            }
        }
        0
    }

    /// Waits until a descriptor is ready.
    fn wait(&self) -> io::Result<Vec<Token>> {
        let mut tokens = vec![Token::Listener];
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for (id, connection) in &self.connections {
            tokens.push(Token::Connection(*id));
            polled.push(PollFd::new(&connection.socket, PollFlags::IN));
        }
        for (id, process) in &self.processes {
            if let Some(control) = &process.control {
                tokens.push(Token::Control(*id));
                polled.push(PollFd::new(&control.socket, PollFlags::IN));
            }
            if process.exit_code.is_none() {
                tokens.push(Token::Exit(*id));
                polled.push(PollFd::new(&process.descriptor, PollFlags::IN));
            }
            // the output waits for a client that reads slowly
            match process.blocked_attachment() {
                Some(target) => {
                    tokens.push(Token::Attachment(*id));
                    polled.push(PollFd::from_borrowed_fd(target, PollFlags::OUT));
                }
                None => {
                    for output in &process.outputs {
                        tokens.push(Token::Output(*id));
                        polled.push(PollFd::new(&output.source, PollFlags::IN));
                    }
                }
            }
        }
        loop {
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => {}
                other => {
                    other?;
                    break;
                }
            }
        }
        let mut ready = Vec::new();
        for (token, polled) in tokens.into_iter().zip(&polled) {
            if !polled.revents().is_empty() {
                ready.push(token);
            }
        }
        Ok(ready)
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Connection(id) => self.read_requests(id),
            Token::Control(id) => self.continue_start(id),
            Token::Exit(id) => self.end(id),
            Token::Output(id) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.copy_output(&self.world);
                }
            }
            Token::Attachment(id) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.flush_attachments();
                }
                self.finish(id);
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            // reads never block: the socket is read when it is ready
            let id = self.new_id();
            self.connections.insert(id, Connection::new(socket));
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn read_requests(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_open = connection.receive();
        let requests = connection.requests();
        for (request, descriptors) in requests {
            self.handle_request(id, request, descriptors);
        }
        if !is_open {
            self.close(id);
        }
    }

    /// Forgets a client that went away: containers that it attached to go on, commands that it executed may end.
    fn close(&mut self, id: u64) {
        self.connections.remove(&id);
        for process in self.processes.values_mut() {
            process.attachments.retain(|it| it.connection != id);
            if process.requester == id && process.is_killed_on_close {
                process.kill();
            }
        }
    }

    fn reply(&mut self, id: u64, reply: &Reply, descriptors: &[OwnedFd]) {
        if let Some(connection) = self.connections.get(&id) {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            // a client that is gone is noticed when its socket is read
            let _ = super::message::send(&connection.socket, reply, &descriptors);
        }
    }

    fn handle_request(&mut self, id: u64, request: Request, descriptors: Vec<OwnedFd>) {
        let answered = match request {
            Request::Start(start) if self.killed.contains(&start.container) => {
                Err("the container was stopped before its start".to_owned())
            }
            Request::Start(start) => {
                let process = self.spawner.start(*start, id);
                process.map(|process| self.add(process)).map(|()| None)
            }
            Request::Exec { container, process, streams, is_killed_on_close } => match self
                .container(&container)
            {
                Some(target) => {
                    let spawned =
                        self.spawner.exec(target, *process, (streams, descriptors), id, is_killed_on_close);
                    spawned.map(|process| self.add(process)).map(|()| None)
                }
                None => Err(format!("container {container} is not running")),
            },
            Request::Attach { container, streams } => match self.container_mut(&container) {
                Some(process) => {
                    let input = process.attach(id, streams, descriptors);
                    let reply = Reply::Attached {
                        has_stdin: !input.is_empty(),
                        is_terminal: process.terminal.is_some(),
                    };
                    self.reply(id, &reply, &input);
                    Ok(None)
                }
                None => Err(format!("container {container} is not running")),
            },
            Request::Signal { container, signal } => match self.container_mut(&container) {
                Some(process) if signal == SIGKILL => {
                    process.kill();
                    Ok(Some(Reply::Done))
                }
                Some(process) => process.signal(signal).map(|()| Some(Reply::Done)),
                // it has ended, or was never started
                None => {
                    if signal == SIGKILL {
                        self.killed.insert(container);
                    }
                    Ok(Some(Reply::Ended { code: 0 }))
                }
            },
            Request::ReopenLog { container } => match self.container_mut(&container) {
                Some(process) => {
                    process.log.reopen().map(|()| Some(Reply::Done)).map_err(|why| why.to_string())
                }
                None => Err(format!("container {container} is not running")),
            },
            Request::Watch => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_watch = true;
                }
                Ok(Some(Reply::Done))
            }
            Request::Shutdown => {
                self.shut_down();
                Ok(Some(Reply::Done))
            }
        };
        match answered {
            Ok(Some(reply)) => self.reply(id, &reply, &[]),
            Ok(None) => {}
            Err(message) => self.reply(id, &Reply::Failed { message }, &[]),
        }
    }

    fn add(&mut self, process: Process) {
        let id = self.new_id();
        self.processes.insert(id, process);
    }

    fn container(&self, name: &str) -> Option<&Process> {
        self.processes.values().find(|it| it.is_running_container(name))
    }

    fn container_mut(&mut self, name: &str) -> Option<&mut Process> {
        self.processes.values_mut().find(|it| it.is_running_container(name))
    }

    /// Reads the messages of a new process until it is the program.
    fn continue_start(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(outcome) = process.continue_start() else { return };
        let requester = process.requester;
        match outcome {
            Ok(()) => {
                let started_at = process::nanos(&self.world);
                // an exec gets its terminal
                let terminal = process.exec_terminal();
                process.record_start(started_at);
                let reply = Reply::Started { pid: process.pid, started_at };
                if let (true, Some(_), Some(container)) =
                    (process.is_container, &process.oci, process.container.as_deref())
                {
                    self.spawner.add_container(container, process.pid);
                }
                self.reply(requester, &reply, &terminal);
            }
            Err(message) => {
                process.kill();
                process.reap();
                self.processes.remove(&id);
                self.reply(requester, &Reply::Failed { message }, &[]);
            }
        }
    }

    /// A process ended.
    fn end(&mut self, id: u64) {
        // a short program can be over before its start was noticed
        while self.processes.get(&id).is_some_and(|it| it.control.is_some()) {
            self.continue_start(id);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        // what ended may be the call of an external runtime, which has left a process that runs
        if !process.has_ended() || !process.end(&self.world) {
            return;
        }
        let exited = process.container.clone();
        if let (true, Some(container)) = (process.is_container, exited) {
            let watchers: Vec<u64> =
                self.connections.iter().filter(|it| it.1.is_watch).map(|it| *it.0).collect();
            for watcher in watchers {
                self.reply(watcher, &Reply::Exited { container: container.clone() }, &[]);
            }
        }
        self.finish(id);
        self.reap_adopted();
    }

    /// Forgets a process that ended, once all of its output is delivered.
    fn finish(&mut self, id: u64) {
        let Some(process) = self.processes.get(&id) else { return };
        let (Some(code), None) = (process.exit_code, process.blocked_attachment()) else { return };
        let mut waiting: Vec<u64> = process.attachments.iter().map(|it| it.connection).collect();
        if !process.is_container {
            waiting.push(process.requester);
        }
        self.processes.remove(&id);
        for connection in waiting {
            self.reply(connection, &Reply::Ended { code }, &[]);
        }
    }
}
