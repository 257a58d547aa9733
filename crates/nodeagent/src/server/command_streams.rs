//! Streams of a command between a client's connection and the runtime.
//!
//! ```text
//! client ── SPDY streams or WebSocket channels ──► ClientStreams ◄─ copy ─► ExecStreams ── runtime
//! ```
//!
//! Invariants: the status is sent after all output; the standard input ends with the client's stream.

use super::body::{self, Body};
use super::upgrade::{self, Upgrade, UpgradedIo};
use crate::runtime::{
    ByteReader, ByteWriter, ExecStreams, RuntimeError, SharedRuntime, StreamOptions, TerminalSize,
};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use names::streams::{COMMAND_V1, COMMAND_V1_BASE64, COMMAND_V4, COMMAND_V4_BASE64};
use serde_json::json;
use std::io;
use std::time::Duration;
use streams::protocol::{CommandVersion, channel, header, stream_type};
use streams::spdy::{Connection, Role, Stream};
use streams::websocket::{self, codec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// How long a client may take to open its streams.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The buffer of a WebSocket channel.
const PIPE: usize = 32 << 10;
/// The longest text of a terminal size.
const SIZE_LIMIT: usize = 1024;

const WEBSOCKET_PROTOCOLS: [&str; 4] = [COMMAND_V4, COMMAND_V4_BASE64, COMMAND_V1, COMMAND_V1_BASE64];

/// What the streams are connected to.
pub enum Action {
    Exec { id: String, command: Vec<String> },
    Attach { id: String },
}

impl Action {
    async fn start(
        &self,
        runtime: &SharedRuntime,
        options: StreamOptions,
    ) -> Result<ExecStreams, RuntimeError> {
        match self {
            Action::Exec { id, command } => runtime.exec(id, command, options).await,
            Action::Attach { id } => runtime.attach(id, options).await,
        }
    }

    fn context(&self) -> &'static str {
        match self {
            Action::Exec { .. } => "error executing command in container",
            Action::Attach { .. } => "error attaching to container",
        }
    }
}

/// The client's side.
struct ClientStreams {
    stdin: Option<ByteReader>,
    stdout: Option<ByteWriter>,
    stderr: Option<ByteWriter>,
    resize: Option<ByteReader>,
}

/// Switches protocols and runs the action over the new connection.
pub fn start(
    runtime: SharedRuntime,
    mut request: Request<Incoming>,
    options: StreamOptions,
    action: Action,
    idle_timeout: Duration,
) -> Response<Body> {
    let headers = request.headers();
    let accepted = match upgrade::requested(headers) {
        None => Err(Box::new(body::error(StatusCode::BAD_REQUEST, "Upgrade request required"))),
        Some(Upgrade::Spdy) => {
            let versions = CommandVersion::ALL.map(|(name, _)| name);
            upgrade::spdy(headers, &versions).map(|it| (Upgrade::Spdy, it))
        }
        Some(Upgrade::WebSocket) => {
            upgrade::websocket(headers, &WEBSOCKET_PROTOCOLS).map(|it| (Upgrade::WebSocket, it))
        }
    };
    let (kind, (protocol, response)) = match accepted {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    upgrade::serve(&mut request, idle_timeout, move |io| async move {
        match kind {
            Upgrade::Spdy => over_spdy(io, protocol, runtime, options, action).await,
            Upgrade::WebSocket => over_websocket(io, protocol, runtime, options, action).await,
        }
    });
    response
}

async fn over_spdy(
    io: UpgradedIo,
    protocol: &'static str,
    runtime: SharedRuntime,
    options: StreamOptions,
    action: Action,
) -> io::Result<()> {
    let version = CommandVersion::ALL.iter().find(|(name, _)| *name == protocol).map(|(_, version)| *version);
    let version = version.unwrap_or(CommandVersion::V1);
    let (connection, mut incoming) = Connection::start(io, Role::Server);
    let mut found: [Option<Stream>; 5] = Default::default();
    let wants_resize = options.tty && version.has_resize();
    let wanted = [options.stdin, options.stdout, options.stderr, true, wants_resize];
    let names = [
        stream_type::STDIN,
        stream_type::STDOUT,
        stream_type::STDERR,
        stream_type::ERROR,
        stream_type::RESIZE,
    ];
    let opened = async {
        while found.iter().zip(wanted).any(|(stream, is_wanted)| is_wanted && stream.is_none()) {
            let stream = incoming.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let ty = stream.headers().get(header::STREAM_TYPE).unwrap_or("").to_owned();
            let slot = names.iter().position(|name| **name == ty);
            let slot = slot.ok_or_else(|| io::Error::other(format!("invalid stream type: {ty:?}")))?;
            found[slot] = Some(stream);
        }
        Ok::<(), io::Error>(())
    };
    let late = |_| io::Error::other("timed out waiting for client to create streams");
    env::io::timeout(CREATION_TIMEOUT, opened).await.map_err(late)??;
    let [stdin, stdout, stderr, error, resize] = found;
    let client = ClientStreams {
        stdin: stdin.map(|it| Box::new(it) as ByteReader),
        stdout: stdout.map(|it| Box::new(it) as ByteWriter),
        stderr: stderr.map(|it| Box::new(it) as ByteWriter),
        resize: resize.map(|it| Box::new(it) as ByteReader),
    };
    // a client that goes away ends the command's streams
    let status = tokio::select! {
        status = run(&runtime, options, &action, client) => status,
        () = async { while incoming.next().await.is_some() {} } => return Ok(()),
    };
    if let Some(mut error) = error {
        error.write_all(status_text(&status, version).as_bytes()).await?;
        error.shutdown().await?;
    }
    connection.close(incoming).await;
    Ok(())
}

async fn over_websocket(
    io: UpgradedIo,
    protocol: &'static str,
    runtime: SharedRuntime,
    options: StreamOptions,
    action: Action,
) -> io::Result<()> {
    let version = if protocol.starts_with("v4.") { CommandVersion::V4 } else { CommandVersion::V1 };
    let codec = codec(protocol).ok_or_else(|| io::Error::other("unknown subprotocol"))?;
    let (sender, mut messages) = websocket::start(io, codec);
    // an empty message shows the client that the streams exist
    let first = if options.stdout {
        channel::STDOUT
    } else if options.stderr {
        channel::STDERR
    } else {
        channel::ERROR
    };
    sender.send(first, Bytes::new()).await?;
    let mut copies = tokio::task::JoinSet::new();
    let mut output = |is_wanted: bool, to: u8| {
        is_wanted.then(|| {
            let (ours, mut theirs) = tokio::io::duplex(PIPE);
            let sender = sender.clone();
            copies.spawn(async move {
                let mut piece = vec![0; PIPE];
                while let Ok(count) = theirs.read(&mut piece).await {
                    if count == 0 || sender.send(to, Bytes::copy_from_slice(&piece[..count])).await.is_err() {
                        return;
                    }
                }
            });
            Box::new(ours) as ByteWriter
        })
    };
    let (stdout, stderr) = (output(options.stdout, channel::STDOUT), output(options.stderr, channel::STDERR));
    let (mut stdin_writer, stdin) = tokio::io::duplex(PIPE);
    let (mut resize_writer, resize) = tokio::io::duplex(SIZE_LIMIT);
    let client = ClientStreams {
        stdin: options.stdin.then(|| Box::new(stdin) as ByteReader),
        stdout,
        stderr,
        resize: options.tty.then(|| Box::new(resize) as ByteReader),
    };
    let receive = async {
        while let Some(message) = messages.recv().await {
            // input for a process that has ended is dropped
            let _ = match message.channel {
                channel::STDIN => stdin_writer.write_all(&message.data).await,
                channel::RESIZE => resize_writer.write_all(&message.data).await,
                _ => Ok(()),
            };
        }
    };
    let status = tokio::select! {
        status = run(&runtime, options, &action, client) => status,
        () = receive => return Ok(()),
    };
    while copies.join_next().await.is_some() {}
    let text = status_text(&status, version);
    if !text.is_empty() {
        sender.send(channel::ERROR, text).await?;
    }
    sender.close().await;
    Ok(())
}

/// Connects both sides until the process has ended.
async fn run(
    runtime: &SharedRuntime,
    options: StreamOptions,
    action: &Action,
    client: ClientStreams,
) -> Result<i32, String> {
    let failed =
        |why: RuntimeError| format!("{}: {}", action.context(), plain(&why.message, action.context()));
    let process = action.start(runtime, options).await.map_err(failed)?;
    let ClientStreams { stdin, stdout, stderr, resize } = client;
    let input = async {
        if let (Some(mut from), Some(mut to)) = (stdin, process.stdin) {
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        }
    };
    let sizes = async {
        if let (Some(from), Some(to)) = (resize, process.resize) {
            pass_sizes(from, to).await;
        }
    };
    let outputs = async {
        tokio::join!(copy_output(process.stdout, stdout), copy_output(process.stderr, stderr));
    };
    let ended = async {
        let (exit, ()) = tokio::join!(process.exit, outputs);
        exit
    };
    tokio::pin!(input, sizes, ended);
    let (mut has_input, mut has_sizes) = (true, true);
    loop {
        tokio::select! {
            exit = &mut ended => return exit.map_err(failed),
            () = &mut input, if has_input => has_input = false,
            () = &mut sizes, if has_sizes => has_sizes = false,
        }
    }
}

async fn copy_output(from: Option<ByteReader>, to: Option<ByteWriter>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    }
}

/// Passes terminal sizes on: JSON objects, one after the other.
async fn pass_sizes(mut from: ByteReader, to: mpsc::Sender<TerminalSize>) {
    let mut text = Vec::new();
    while text.len() < SIZE_LIMIT
        && let Ok(byte) = from.read_u8().await
    {
        text.push(byte);
        if byte != b'}' {
            continue;
        }
        let size: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        text.clear();
        let side = |name: &str| size[name].as_u64().and_then(|it| u16::try_from(it).ok());
        if let (Some(width), Some(height)) = (side("Width"), side("Height"))
            && to.send(TerminalSize { width, height }).await.is_err()
        {
            return;
        }
    }
}

/// A message of a runtime without the context that the server adds.
fn plain<'m>(message: &'m str, context: &str) -> &'m str {
    let message = message.strip_prefix("Internal error occurred: ").unwrap_or(message);
    message.strip_prefix(context).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message)
}

/// The text of the error stream.
fn status_text(status: &Result<i32, String>, version: CommandVersion) -> String {
    if !version.has_status() {
        return match status {
            Ok(0) => String::new(),
            Ok(code) => {
                format!("error executing command in container: command terminated with exit code {code}")
            }
            Err(why) => why.clone(),
        };
    }
    let status = match status {
        Ok(0) => json!({ "metadata": {}, "status": "Success" }),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit code {code}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Err(why) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {why}"),
            "reason": "InternalError",
            "details": { "causes": [{ "message": why }] },
            "code": 500,
        }),
    };
    status.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_name_exit_codes_and_errors() {
        let v4 = |status: Result<i32, String>| {
            serde_json::from_str::<serde_json::Value>(&status_text(&status, CommandVersion::V4)).unwrap()
        };
        assert_eq!(v4(Ok(0))["status"], "Success");
        assert_eq!(v4(Ok(7))["details"]["causes"][0]["message"], "7");
        assert_eq!(v4(Err("x".to_owned()))["message"], "Internal error occurred: x");
        assert_eq!(status_text(&Ok(0), CommandVersion::V1), "");
        let context = "error executing command in container";
        let nested = "Internal error occurred: error executing command in container: failed to exec";
        assert_eq!(plain(nested, context), "failed to exec");
        assert_eq!(plain("other", context), "other");
    }
}
