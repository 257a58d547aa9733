//! Messages to systemd, or another supervisor that speaks its protocol: datagrams to the socket of `NOTIFY_SOCKET`.

use nodeagent::assembly::Supervisor;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The supervisor that the environment names.
pub fn supervisor() -> Option<Supervisor> {
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty())?;
    let watched = std::env::var("WATCHDOG_PID").ok();
    let is_other = watched.is_some_and(|it| it != std::process::id().to_string());
    let micros = std::env::var("WATCHDOG_USEC").ok().filter(|_| !is_other);
    Some(to(socket, micros.as_deref()))
}

fn to(socket: OsString, watchdog_micros: Option<&str>) -> Supervisor {
    let notify = move |message: &str| {
        if let Err(why) = send(&socket, message) {
            tracing::warn!(%why, message, "the supervisor was not notified");
        }
    };
    let micros = watchdog_micros.and_then(|it| it.parse().ok()).filter(|it| *it > 0);
    Supervisor { notify: Box::new(notify), watchdog: micros.map(Duration::from_micros) }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_datagrams() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("pintle-test-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&named).unwrap(), format!("@{name}").into()),
        ] {
            let supervisor = to(socket, Some("30000000"));
            assert_eq!(supervisor.watchdog, Some(Duration::from_secs(30)));
            (supervisor.notify)("READY=1");
            let mut buffer = [0; 32];
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
        assert_eq!(to("x".into(), Some("0")).watchdog, None);
    }
}
