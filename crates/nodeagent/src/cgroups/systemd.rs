//! Slices by the bus of systemd: starts, changes and stops units by D-Bus messages.
//!
//! The connection is made for each call: slices change when pods come and go. Only the few types of messages that these
//! calls need are written and read.

use super::limits::CgroupLimits;
use super::message::{MessageKind, Variant, decode_reply, encode_call};
use super::slices::SliceClient;
use crate::cgroups::files::cpu_weight;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The socket of the system bus.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
const TIMEOUT: Duration = Duration::from_secs(10);
const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const ABSENT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// The longest message that is read.
const MAX_MESSAGE: usize = 1 << 20;

/// See the module.
pub struct SystemdSlices {
    socket: PathBuf,
    /// The user of this process, which the bus checks.
    uid: u32,
}

impl SystemdSlices {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        SystemdSlices { socket: socket.into(), uid: rustix::process::getuid().as_raw() }
    }

    fn call(&self, method: &str, arguments: &[Variant]) -> io::Result<()> {
        let mut bus = Bus::connect(&self.socket, self.uid)?;
        let manager = "org.freedesktop.systemd1.Manager";
        match bus.call("org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager, method, arguments)? {
            None => Ok(()),
            Some(error) => Err(io::Error::other(error)),
        }
    }
}

impl SliceClient for SystemdSlices {
    fn start(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()> {
        let mut properties = vec![
            ("Description".to_owned(), Variant::Text(format!("pods of {unit}"))),
            ("DefaultDependencies".to_owned(), Variant::Bool(false)),
        ];
        for accounting in ["CPUAccounting", "MemoryAccounting", "TasksAccounting"] {
            properties.push((accounting.to_owned(), Variant::Bool(true)));
        }
        properties.extend(limit_properties(limits, is_v2));
        let arguments = [
            Variant::Text(unit.to_owned()),
            Variant::Text("replace".to_owned()),
            Variant::Properties(properties),
            Variant::NoUnits,
        ];
        match self.call("StartTransientUnit", &arguments) {
            Err(error) if error.to_string().starts_with(EXISTS) => Ok(()),
            started => started,
        }
    }

    fn set(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()> {
        let properties = limit_properties(limits, is_v2);
        if properties.is_empty() {
            return Ok(());
        }
        let arguments =
            [Variant::Text(unit.to_owned()), Variant::Bool(true), Variant::Properties(properties)];
        self.call("SetUnitProperties", &arguments)
    }

    fn stop(&self, unit: &str) -> io::Result<()> {
        let arguments = [Variant::Text(unit.to_owned()), Variant::Text("replace".to_owned())];
        match self.call("StopUnit", &arguments) {
            Err(error) if error.to_string().starts_with(ABSENT) => Ok(()),
            stopped => stopped,
        }
    }
}

/// Limits as properties of a unit.
fn limit_properties(limits: &CgroupLimits, is_v2: bool) -> Vec<(String, Variant)> {
    let amount = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    let mut properties = Vec::new();
    let mut add = |name: &str, value: u64| properties.push((name.to_owned(), Variant::U64(value)));
    if let Some(shares) = limits.cpu_shares {
        match is_v2 {
            true => add("CPUWeight", amount(cpu_weight(shares))),
            false => add("CPUShares", amount(shares)),
        }
    }
    if let Some((quota, period)) = limits.cpu_quota {
        let per_second = match quota {
            quota if quota < 0 || period <= 0 => u64::MAX,
            // systemd rounds to a hundredth of a second
            quota => (amount(quota) * 1_000_000 / amount(period)).div_ceil(10_000) * 10_000,
        };
        add("CPUQuotaPerSecUSec", per_second);
        if is_v2 {
            add("CPUQuotaPeriodUSec", amount(period));
        }
    }
    if let Some(memory) = limits.memory.filter(|&memory| memory != 0) {
        add(if is_v2 { "MemoryMax" } else { "MemoryLimit" }, amount(memory));
    }
    if let Some(pids) = limits.pids {
        add("TasksMax", amount(pids));
    }
    properties
}

/// A connection to the bus.
struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

impl Bus {
    fn connect(socket: &std::path::Path, uid: u32) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut bus = Bus { stream: BufReader::new(stream), serial: 0 };
        // the user id in decimal digits, each as two hexadecimal ones
        let id: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        bus.stream.get_mut().write_all(format!("\0AUTH EXTERNAL {id}\r\n").as_bytes())?;
        let mut line = String::new();
        (&mut bus.stream).take(4096).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the bus refused: {}", line.trim()),
            ));
        }
        bus.stream.get_mut().write_all(b"BEGIN\r\n")?;
        bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", &[])?;
        Ok(bus)
    }

    /// Calls a method. Returns the name and text of an error, if it is one.
    fn call(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        method: &str,
        arguments: &[Variant],
    ) -> io::Result<Option<String>> {
        self.serial += 1;
        let message = encode_call(self.serial, [destination, path, interface, method], arguments);
        self.stream.get_mut().write_all(&message)?;
        loop {
            let message = self.read_message()?;
            let reply = decode_reply(&message).ok_or(io::ErrorKind::InvalidData)?;
            if reply.serial != Some(self.serial) {
                continue;
            }
            match reply.kind {
                MessageKind::Return => return Ok(None),
                MessageKind::Error => {
                    return Ok(Some(format!("{}: {}", reply.error.unwrap_or_default(), reply.text)));
                }
                MessageKind::Other => {}
            }
        }
    }

    fn read_message(&mut self) -> io::Result<Vec<u8>> {
        let mut message = vec![0; 16];
        self.stream.read_exact(&mut message)?;
        let length = |at: usize| {
            let bytes: [u8; 4] = message[at..at + 4].try_into().unwrap_or_default();
            u32::from_le_bytes(bytes) as usize
        };
        let rest = length(12).next_multiple_of(8).saturating_add(length(4));
        if rest > MAX_MESSAGE || message[0] != b'l' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = message.len();
        message.resize(start + rest, 0);
        self.stream.read_exact(&mut message[start..])?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn limits_become_properties() {
        let limits = CgroupLimits {
            cpu_shares: Some(307),
            cpu_quota: Some((30_000, 100_000)),
            memory: Some(1 << 20),
            pids: Some(300),
            ..CgroupLimits::default()
        };
        let texts = |is_v2| {
            let all = limit_properties(&limits, is_v2).into_iter();
            all.map(|(name, value)| format!("{name}={value:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            texts(false),
            "CPUShares=U64(307) CPUQuotaPerSecUSec=U64(300000) MemoryLimit=U64(1048576) TasksMax=U64(300)"
        );
        assert_eq!(
            texts(true),
            "CPUWeight=U64(12) CPUQuotaPerSecUSec=U64(300000) CPUQuotaPeriodUSec=U64(100000) MemoryMax=U64(1048576) TasksMax=U64(300)"
        );
    }

    /// A bus that answers each call with an empty return, or with an error to `StopUnit`.
    fn serve(listener: UnixListener) -> Vec<String> {
        let (stream, _) = listener.accept().unwrap();
        let mut bus = Bus { stream: BufReader::new(stream), serial: 0 };
        let mut line = String::new();
        bus.stream.read_line(&mut line).unwrap();
        let mut log = vec![line.trim_matches(['\0', '\r', '\n']).to_owned()];
        bus.stream.get_mut().write_all(b"OK 1234\r\n").unwrap();
        line.clear();
        bus.stream.read_line(&mut line).unwrap();
        while let Ok(message) = bus.read_message() {
            let serial = u32::from_le_bytes(message[8..12].try_into().unwrap());
            let text = String::from_utf8_lossy(&message).into_owned();
            let method = ["Hello", "StopUnit", "StartTransientUnit"].into_iter().find(|it| text.contains(it));
            log.push(method.unwrap_or_default().to_owned());
            let error = (method == Some("StopUnit")).then_some(ABSENT);
            bus.stream.get_mut().write_all(&super::super::message::encode_reply(serial, error)).unwrap();
        }
        log
    }

    #[test]
    fn calls_go_over_the_bus() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let check = |call: &dyn Fn(&SystemdSlices) -> io::Result<()>, expected: [&str; 3]| {
            let _ = std::fs::remove_file(&socket);
            let listener = UnixListener::bind(&socket).unwrap();
            let server = std::thread::spawn(move || serve(listener));
            let slices = SystemdSlices { socket: socket.clone(), uid: 0 };
            call(&slices).unwrap();
            assert_eq!(server.join().unwrap(), expected);
        };
        let auth = "AUTH EXTERNAL 30";
        let start = |it: &SystemdSlices| it.start("a.slice", &CgroupLimits::default(), true);
        check(&start, [auth, "Hello", "StartTransientUnit"]);
        check(&|it: &SystemdSlices| it.stop("a.slice"), [auth, "Hello", "StopUnit"]);
        let none = SystemdSlices::new(dir.path().join("none"));
        assert!(none.stop("a.slice").is_err());
    }
}
