//! logind: holds a lock that delays the shutdown of the machine, and announces the shutdown.
//!
//! The delay has a limit in logind's configuration. If the pods need longer, the agent writes a file that raises it and
//! has logind read its configuration again.

use crate::dbus::connection::BUS;
use crate::dbus::{Bus, CallError, MessageKind, Method, Value};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
/// The signal before a shutdown, and after one that was cancelled.
const ANNOUNCEMENT: &str = "PrepareForShutdown";
const OVERRIDE: &str = "99-kubelet.conf";
const HANGUP: i32 = 1;

/// The lock: the shutdown waits until it is dropped, or its delay ends.
pub type InhibitorLock = OwnedFd;

/// See the module.
#[derive(Debug, Clone)]
pub struct Logind {
    /// The socket of the system bus.
    pub socket: PathBuf,
    /// The directory of logind's configuration files.
    pub directory: PathBuf,
}

/// Announcements of logind: whether the machine shuts down. They end with the connection.
pub struct Announcements {
    receiver: mpsc::UnboundedReceiver<bool>,
    stream: UnixStream,
}

impl Announcements {
    /// The next one; `None` if the connection is lost.
    pub async fn next(&mut self) -> Option<bool> {
        self.receiver.recv().await
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        // ends the thread; a connection that is closed already is no error
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn method(member: &str) -> Method<'_> {
    Method { destination: SERVICE, path: PATH, interface: INTERFACE, member }
}

impl Logind {
    /// The longest delay of a shutdown.
    pub fn delay(&self) -> Result<Duration, CallError> {
        let get = Method { interface: "org.freedesktop.DBus.Properties", ..method("Get") };
        let arguments = [Value::Text(INTERFACE.to_owned()), Value::Text("InhibitDelayMaxUSec".to_owned())];
        match Bus::connect(&self.socket)?.call(get, &arguments)?.as_ref().map(Value::inner) {
            Some(Value::U64(micros)) => Ok(Duration::from_micros(*micros)),
            other => {
                let why = format!("InhibitDelayMaxUSec is {other:?}");
                Err(io::Error::new(io::ErrorKind::InvalidData, why).into())
            }
        }
    }

    /// Writes a file that raises the longest delay, and has logind read it.
    pub fn raise_delay(&self, delay: Duration) -> Result<(), CallError> {
        let text = format!("# written by the node agent\n[Login]\nInhibitDelayMaxSec={}\n", delay.as_secs());
        durable_file::replace(&self.directory.join(OVERRIDE), text, durable_file::READABLE)?;
        let kill = Method {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member: "KillUnit",
        };
        let arguments = [
            Value::Text("systemd-logind.service".to_owned()),
            Value::Text("all".to_owned()),
            Value::I32(HANGUP),
        ];
        Bus::connect(&self.socket)?.call(kill, &arguments).map(drop)
    }

    /// Takes the lock.
    pub fn inhibit(&self) -> Result<InhibitorLock, CallError> {
        let arguments = ["shutdown", "kubelet", "pods of the node have to end first", "delay"];
        let arguments = arguments.map(|it| Value::Text(it.to_owned()));
        Bus::connect(&self.socket)?.call_for_descriptor(method("Inhibit"), &arguments)
    }

    /// Follows the announcements of shutdowns.
    pub fn announcements(&self) -> Result<Announcements, CallError> {
        let mut bus = Bus::connect(&self.socket)?;
        let rule = format!("type='signal',interface='{INTERFACE}',member='{ANNOUNCEMENT}',path='{PATH}'");
        bus.call(Method { member: "AddMatch", ..BUS }, &[Value::Text(rule)])?;
        bus.wait_long()?;
        let stream = bus.handle()?;
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("logind".to_owned()).spawn(move || {
            while let Ok(message) = bus.next_message() {
                let is_announcement = message.kind == MessageKind::Signal
                    && message.interface == INTERFACE
                    && message.member == ANNOUNCEMENT;
                if let Some(Value::Bool(is_shutting_down)) = message.value.filter(|_| is_announcement)
                    && sender.send(is_shutting_down).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Announcements { receiver, stream })
    }
}
