//! Streams of bytes to processes and ports of a pod.

use super::error::RuntimeError;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub type ByteReader = Box<dyn AsyncRead + Send + Unpin>;
pub type ByteWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of a connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The streams that a caller requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamOptions {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// The streams of a process. With a terminal, the output is all in `stdout`.
pub struct ExecStreams {
    /// `shutdown` closes the process's standard input.
    pub stdin: Option<ByteWriter>,
    pub stdout: Option<ByteReader>,
    pub stderr: Option<ByteReader>,
    /// Sizes of the terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// The exit code, once the process has ended; of an attachment zero, once the streams have ended.
    pub exit: BoxFuture<'static, Result<i32, RuntimeError>>,
}

/// A connection to a port of a pod. `shutdown` closes one direction only.
pub struct PortStream {
    pub data: Box<dyn ByteStream>,
    /// Completes with the connection; an error says why the port cannot be reached.
    pub end: BoxFuture<'static, Result<(), RuntimeError>>,
}

/// Output of a command that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}
