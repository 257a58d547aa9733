//! Streams of simulated containers.
//!
//! On a simulated node `cat` copies its input, and every other command writes the output that the behaviour of the
//! container has, or itself. In tests of the agent:
//!
//! | command | what it does |
//! |---|---|
//! | `cat` | copies its input to its output |
//! | `exit N` | writes `out` and `err`, and exits with the code N |
//! | another one | cannot be started |
//!
//! Port 9 refuses connections, port 13 sends a line and closes; every other port echoes.

use super::behaviour::Behaviour;
use crate::runtime::{ExecStreams, PortStream, RuntimeCode, RuntimeError, StreamOptions};
use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

const PIPE: usize = 4096;

fn failed(message: &str) -> RuntimeError {
    RuntimeError::new(RuntimeCode::Unknown, message)
}

/// The output and the exit code of a command on a simulated node.
pub fn simulated_output(behaviour: &Behaviour, command: &[String]) -> (Vec<u8>, i32) {
    let exec = &behaviour.exec;
    let mut output = exec.output.clone().unwrap_or_else(|| command.join(" "));
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    (output.into_bytes(), exec.exit_code)
}

/// A command on a simulated node.
pub fn simulated_exec(behaviour: &Behaviour, command: &[String], options: StreamOptions) -> ExecStreams {
    let is_copy = options.stdin && command == ["cat"] && behaviour.exec.output.is_none();
    let (text, code) = simulated_output(behaviour, command);
    let (stdin, mut input) = tokio::io::duplex(PIPE);
    let (stdout, mut output) = tokio::io::duplex(PIPE);
    let process = tokio::spawn(async move {
        // a client that is gone ends the command
        let _ = match is_copy {
            true => tokio::io::copy(&mut input, &mut output).await.map(drop),
            false => output.write_all(&text).await,
        };
        code
    });
    ExecStreams {
        stdin: options.stdin.then(|| Box::new(stdin) as _),
        stdout: options.stdout.then(|| Box::new(stdout) as _),
        stderr: options.stderr.then(|| Box::new(tokio::io::empty()) as _),
        resize: None,
        exit: async move { process.await.map_err(|why| failed(&why.to_string())) }.boxed(),
    }
}

pub fn exec(command: &[String], options: StreamOptions) -> Result<ExecStreams, RuntimeError> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let (stdin, mut input) = tokio::io::duplex(PIPE);
    let (stdout, mut output) = tokio::io::duplex(PIPE);
    let (stderr, mut errors) = tokio::io::duplex(PIPE);
    let code = match words[..] {
        ["cat"] => None,
        ["exit", code] => Some(code.parse::<i32>().map_err(|why| failed(&why.to_string()))?),
        _ => return Err(failed("failed to exec in container: no such file or directory")),
    };
    let process = tokio::spawn(async move {
        match code {
            None => {
                let _ = tokio::io::copy(&mut input, &mut output).await;
                0
            }
            Some(code) => {
                let _ = output.write_all(b"out").await;
                let _ = errors.write_all(b"err").await;
                code
            }
        }
    });
    Ok(ExecStreams {
        stdin: options.stdin.then(|| Box::new(stdin) as _),
        stdout: options.stdout.then(|| Box::new(stdout) as _),
        stderr: options.stderr.then(|| Box::new(stderr) as _),
        resize: None,
        exit: async move { process.await.map_err(|why| failed(&why.to_string())) }.boxed(),
    })
}

pub fn port_forward(port: u16) -> PortStream {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    if port == 9 {
        drop(theirs);
        let end = async { Err(failed("connection refused")) }.boxed();
        return PortStream { data: Box::new(ours), end };
    }
    let echo = tokio::spawn(async move {
        if port == 13 {
            let mut theirs = theirs;
            let _ = theirs.write_all(b"noon\n").await;
            return;
        }
        let (mut reader, mut writer) = tokio::io::split(theirs);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        let _ = writer.shutdown().await;
    });
    let end = async move { echo.await.map_err(|why| failed(&why.to_string())) }.boxed();
    PortStream { data: Box::new(ours), end }
}
