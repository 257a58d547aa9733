//! Stops a command at SIGINT, SIGTERM and, on request, at the end of standard input.

use std::io::{Read, stdin};

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    stdin_end: Option<oneshot::Receiver<()>>,
}

impl Signals {
    /// Listens from now on; a signal no longer terminates the process.
    pub fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            stdin_end: None,
        })
    }

    /// Treats the end of standard input as a signal, too. What is written there is dropped.
    pub fn add_stdin_end(&mut self) -> anyhow::Result<()> {
        let (sender, receiver) = oneshot::channel();
        // a thread of its own: the process ends without waiting for it, unlike for a read of the runtime
        let watch = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            drop_all(&mut stdin().lock());
            drop(sender);
        });
        watch.context("cannot start a thread for standard input")?;
        self.stdin_end = Some(receiver);
        Ok(())
    }

    pub async fn next(&mut self) {
        let stdin_end = async {
            match self.stdin_end.as_mut() {
                Some(end) => drop(end.await),
                None => std::future::pending().await,
            }
        };
        let is_stdin = tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => false,
            () = stdin_end => true,
        };
        // it ends once
        if is_stdin {
            self.stdin_end = None;
        }
    }
}

/// Reads to the end, or to an error: input that cannot be read tells nothing about its writer, as if it were gone.
fn drop_all(input: &mut impl Read) {
    let mut buffer = [0; 256];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return,
            Ok(_) | Err(_) => {}
        }
    }
}
