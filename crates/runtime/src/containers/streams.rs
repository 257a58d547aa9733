//! Streams to processes of containers.

use super::descriptor_stream::DescriptorStream;
use super::monitor_client::{Replies, during, failed};
use super::port_connection::port_stream;
use super::protocol::{Reply, Request, Streams};
use super::spec::ProcessSpec;
use super::state::State;
use crate::{ExecOutput, ExecStreams, PortStream, RuntimeCode, RuntimeError, StreamOptions, TerminalSize};
use futures_util::FutureExt;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// The most output of a command that is kept.
const OUTPUT_LIMIT: u64 = 16 * 1024 * 1024;

/// The pipes of a process: the agent's ends, and those for the process.
#[derive(Default)]
struct Pipes {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    theirs: Vec<OwnedFd>,
}

impl Pipes {
    fn new(streams: Streams) -> Result<Self, RuntimeError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|why| during("make a pipe")(why.into()));
        let mut pipes = Pipes::default();
        if streams.stdin {
            let (reader, writer) = pipe()?;
            pipes.theirs.push(reader);
            pipes.stdin = Some(writer);
        }
        for (is_requested, own) in [(streams.stdout, &mut pipes.stdout), (streams.stderr, &mut pipes.stderr)]
        {
            if is_requested {
                let (reader, writer) = pipe()?;
                pipes.theirs.push(writer);
                *own = Some(reader);
            }
        }
        Ok(pipes)
    }
}

fn stream(file: OwnedFd) -> Result<DescriptorStream, RuntimeError> {
    DescriptorStream::new(file).map_err(during("open a stream"))
}

fn reader(file: Option<OwnedFd>) -> Result<Option<crate::ByteReader>, RuntimeError> {
    file.map(|it| Ok(Box::new(stream(it)?) as crate::ByteReader)).transpose()
}

fn writer(file: Option<OwnedFd>) -> Result<Option<crate::ByteWriter>, RuntimeError> {
    file.map(|it| Ok(Box::new(stream(it)?) as crate::ByteWriter)).transpose()
}

fn clone(file: &OwnedFd) -> Result<OwnedFd, RuntimeError> {
    file.try_clone().map_err(during("open a stream"))
}

/// Changes the size of a terminal as often as the client says.
fn follow_sizes(terminal: OwnedFd) -> mpsc::Sender<TerminalSize> {
    let (sender, mut receiver) = mpsc::channel::<TerminalSize>(4);
    tokio::spawn(async move {
        while let Some(TerminalSize { width, height }) = receiver.recv().await {
            let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
            // a terminal that is closed has no size
            let _ = tcsetwinsize(&terminal, size);
        }
    });
    sender
}

async fn wait_for_end(mut replies: Replies) -> Result<i32, RuntimeError> {
    match replies.next::<Reply>().await {
        Some(Reply::Ended { code }) => Ok(code),
        _ => Err(failed("the monitor of the pod is gone")),
    }
}

impl State {
    /// A command in the container, with the rights of its process.
    fn exec_process(
        &self,
        id: &str,
        command: &[String],
        tty: bool,
    ) -> Result<(ProcessSpec, String), RuntimeError> {
        let container = self.container(id)?;
        let record = container.record.lock();
        if record.started_at == 0 || record.exit.is_some() {
            return Err(failed(format!("container {id:?} is not running")));
        }
        let mut process = ProcessSpec { args: command.to_vec(), tty, root: None, ..record.process.clone() };
        process.env.extend(tty.then(|| "TERM=xterm".to_owned()));
        Ok((process, record.sandbox_id.clone()))
    }

    pub async fn exec(
        &self,
        id: &str,
        command: &[String],
        options: StreamOptions,
    ) -> Result<ExecStreams, RuntimeError> {
        let (process, sandbox) = self.exec_process(id, command, options.tty)?;
        let is_plain = !options.tty;
        let streams = Streams {
            stdin: is_plain && options.stdin,
            stdout: is_plain && options.stdout,
            stderr: is_plain && options.stderr,
        };
        let pipes = Pipes::new(streams)?;
        let process = Box::new(process);
        let request = Request::Exec { container: id.to_owned(), process, streams, is_killed_on_close: false };
        let opened = self.sandbox(&sandbox)?.monitor.open(request, pipes.theirs).await;
        let (_, mut given, replies) = opened.map_err(|why| exec_failed(&why))?;
        let exit = wait_for_end(replies).boxed();
        if is_plain {
            let (stdin, stdout) = (writer(pipes.stdin)?, reader(pipes.stdout)?);
            return Ok(ExecStreams { stdin, stdout, stderr: reader(pipes.stderr)?, resize: None, exit });
        }
        let terminal = given.pop().ok_or_else(|| failed("the process has no terminal"))?;
        let stdin = if options.stdin { Some(clone(&terminal)?) } else { None };
        let resize = Some(follow_sizes(clone(&terminal)?));
        Ok(ExecStreams { stdin: writer(stdin)?, stdout: reader(Some(terminal))?, stderr: None, resize, exit })
    }

    pub async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, RuntimeError> {
        let (process, sandbox) = self.exec_process(id, command, false)?;
        let streams = Streams { stdin: false, stdout: true, stderr: true };
        let pipes = Pipes::new(streams)?;
        let process = Box::new(process);
        let request = Request::Exec { container: id.to_owned(), process, streams, is_killed_on_close: true };
        let monitor = self.sandbox(&sandbox)?.monitor.clone();
        let (stdout, stderr) = (reader(pipes.stdout)?, reader(pipes.stderr)?);
        let run = async {
            let opened = monitor.open(request, pipes.theirs).await;
            let (_, _, replies) = opened.map_err(|why| exec_failed(&why))?;
            // a process that the command leaves behind may keep the output open, as with other runtimes
            let output = async { tokio::join!(read_limited(stdout), read_limited(stderr)) };
            let (code, (stdout, stderr)) = tokio::join!(wait_for_end(replies), output);
            Ok(ExecOutput { stdout, stderr, exit_code: code? })
        };
        if timeout.is_zero() {
            return run.await;
        }
        // the end of the connection ends the command
        env::timeout(&self.world, timeout, run).await.map_err(|_| {
            let message = format!("command {command:?} timed out after {}s", timeout.as_secs_f64());
            RuntimeError::new(RuntimeCode::DeadlineExceeded, message)
        })?
    }

    pub async fn attach(&self, id: &str, options: StreamOptions) -> Result<ExecStreams, RuntimeError> {
        let sandbox = self.container(id)?.record.lock().sandbox_id.clone();
        let monitor = self.sandbox(&sandbox)?.monitor.clone();
        let streams =
            Streams { stdin: options.stdin, stdout: options.stdout, stderr: options.stderr && !options.tty };
        let outputs = Pipes::new(Streams { stdin: false, ..streams })?;
        let request = Request::Attach { container: id.to_owned(), streams };
        let (_, mut given, replies) = monitor.open(request, outputs.theirs).await?;
        let input = given.pop();
        let resize = match (&input, options.tty) {
            (Some(terminal), true) => Some(follow_sizes(clone(terminal)?)),
            _ => None,
        };
        let input = input.filter(|_| options.stdin);
        let exit = async move { wait_for_end(replies).await.map(|_| 0) };
        let (stdin, stdout, stderr) = (writer(input)?, reader(outputs.stdout)?, reader(outputs.stderr)?);
        Ok(ExecStreams { stdin, stdout, stderr, resize, exit: exit.boxed() })
    }

    pub async fn port_forward(&self, sandbox: &str, port: u16) -> Result<PortStream, RuntimeError> {
        Ok(port_stream(self.connect(sandbox, port).await?))
    }
}

fn exec_failed(why: &RuntimeError) -> RuntimeError {
    let message = format!("failed to exec in container: unable to start container process: {}", why.message);
    RuntimeError::new(why.code, message)
}

async fn read_limited(reader: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Vec<u8> {
    let mut output = Vec::new();
    if let Some(mut reader) = reader {
        let _ = (&mut reader).take(OUTPUT_LIMIT).read_to_end(&mut output).await;
        // the process must not wait for a reader
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    }
    output
}
