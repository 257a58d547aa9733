//! Streams to the streaming server of a CRI runtime, which serves them over SPDY at a URL for one use.

use crate::runtime::{
    ByteStream, ExecStreams, PortStream, RuntimeCode, RuntimeError, StreamOptions, TerminalSize,
};
use api::meta::v1::Status;
use futures_util::FutureExt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use streams::protocol::{self, CommandVersion, header, stream_type};
use streams::spdy::{Connection, Headers, Incoming, Role, Stream};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer to the upgrade, and of an error stream.
const HEAD_LIMIT: u64 = 64 << 10;
const ERROR_LIMIT: u64 = 1 << 20;
/// The reason of a Status that holds an exit code.
const EXIT_CODE: &str = "ExitCode";

fn failed(why: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::new(RuntimeCode::Unknown, why.to_string())
}

/// Connects to a URL and upgrades to SPDY.
async fn connect(url: &str, version: &str) -> Result<(Connection, Incoming), RuntimeError> {
    let rest =
        url.strip_prefix("http://").ok_or_else(|| failed(format!("unsupported streaming URL {url}")))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let exchange = async {
        let mut stream = BufReader::new(TcpStream::connect(authority).await?);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 0\r\nConnection: Upgrade\r\n\
             Upgrade: {}\r\n{}: {version}\r\n\r\n",
            protocol::SPDY,
            protocol::VERSION
        );
        stream.write_all(request.as_bytes()).await?;
        let status = read_head(&mut stream).await?;
        if !status.contains(" 101 ") {
            return Err(io::Error::other(format!("unable to upgrade connection: {}", status.trim())));
        }
        Ok(stream)
    };
    let stream = env::io::timeout(CONNECT_TIMEOUT, exchange).await;
    let stream = stream.map_err(|_| failed("the streaming server did not answer"))?.map_err(failed)?;
    Ok(Connection::start(stream, Role::Client))
}

/// Reads the head of a response; returns its first line.
async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let (mut first, mut left) = (None, HEAD_LIMIT);
    loop {
        let mut line = String::new();
        let count = (&mut *stream).take(left).read_line(&mut line).await?;
        left = left.saturating_sub(count as u64);
        if count == 0 || left == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.trim().is_empty() {
            return Ok(first.unwrap_or_default());
        }
        first.get_or_insert(line);
    }
}

async fn open(connection: &Connection, headers: &[(&str, &str)]) -> Result<Stream, RuntimeError> {
    connection.open(Headers::new(headers.iter().copied())).await.map_err(failed)
}

pub(super) async fn exec(url: &str, options: StreamOptions) -> Result<ExecStreams, RuntimeError> {
    let version = CommandVersion::ALL[0].0;
    let (connection, incoming) = connect(url, version).await?;
    let stream = async |kind: &str, is_wanted: bool| match is_wanted {
        true => open(&connection, &[(header::STREAM_TYPE, kind)]).await.map(Some),
        false => Ok(None),
    };
    let error = stream(stream_type::ERROR, true).await?;
    let stdin = stream(stream_type::STDIN, options.stdin).await?;
    let stdout = stream(stream_type::STDOUT, options.stdout).await?;
    let stderr = stream(stream_type::STDERR, options.stderr && !options.tty).await?;
    let resize = stream(stream_type::RESIZE, options.tty).await?.map(forward_sizes);
    let exit = async move {
        let mut text = Vec::new();
        if let Some(error) = error {
            let _ = error.take(ERROR_LIMIT).read_to_end(&mut text).await;
        }
        let exit = exit_code(&text);
        connection.close(incoming).await;
        exit
    };
    Ok(ExecStreams {
        stdin: stdin.map(|it| Box::new(it) as _),
        stdout: stdout.map(|it| Box::new(it) as _),
        stderr: stderr.map(|it| Box::new(it) as _),
        resize,
        exit: exit.boxed(),
    })
}

fn forward_sizes(mut stream: Stream) -> mpsc::Sender<TerminalSize> {
    let (sender, mut sizes) = mpsc::channel::<TerminalSize>(4);
    tokio::spawn(async move {
        while let Some(TerminalSize { width, height }) = sizes.recv().await {
            let line = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
            if stream.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    sender
}

/// The exit code in the Status of the error stream; an empty one is a success.
fn exit_code(text: &[u8]) -> Result<i32, RuntimeError> {
    if text.is_empty() {
        return Ok(0);
    }
    let Ok(status) = api::from_json::<Status>(text) else {
        return Err(failed(String::from_utf8_lossy(text)));
    };
    if status.status == "Success" {
        return Ok(0);
    }
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let code = causes.filter(|it| it.reason == EXIT_CODE).find_map(|it| it.message.parse().ok());
    code.ok_or_else(|| failed(status.message))
}

pub(super) async fn port_forward(url: &str, port: u16) -> Result<PortStream, RuntimeError> {
    let (connection, incoming) = connect(url, protocol::PORT_FORWARD_V1).await?;
    let port = port.to_string();
    let headers = |kind| [(header::STREAM_TYPE, kind), (header::PORT, &*port), (header::REQUEST_ID, "0")];
    let mut error = open(&connection, &headers(stream_type::ERROR)).await?;
    let _ = error.shutdown().await;
    let data = open(&connection, &headers(stream_type::DATA)).await?;
    let end = async move {
        let mut text = Vec::new();
        let _ = error.take(ERROR_LIMIT).read_to_end(&mut text).await;
        match text.is_empty() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&text))),
        }
    };
    let data: Box<dyn ByteStream> = Box::new(PortData { data, _connection: (connection, incoming) });
    Ok(PortStream { data, end: end.boxed() })
}

/// A data stream that keeps its connection.
struct PortData {
    data: Stream,
    _connection: (Connection, Incoming),
}

impl AsyncRead for PortData {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.data).poll_read(cx, into)
    }
}

impl AsyncWrite for PortData {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.data).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.data).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.data).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_read_from_statuses() {
        let code = |text: &str| exit_code(text.as_bytes());
        assert_eq!(code(""), Ok(0));
        assert_eq!(code(r#"{"metadata":{},"status":"Success"}"#), Ok(0));
        let failure = r#"{"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(code(failure), Ok(3));
        assert_eq!(code("gone").map_err(|it| it.message), Err("gone".to_owned()));
    }
}
