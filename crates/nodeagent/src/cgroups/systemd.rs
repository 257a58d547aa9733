//! Slices by the bus of systemd: starts, changes and stops units by D-Bus messages.
//!
//! The connection is made for each call: slices change when pods come and go.

use super::limits::CgroupLimits;
use super::slices::SliceClient;
use crate::cgroups::files::cpu_weight;
use crate::dbus::{Bus, CallError, Method, Value};
use std::io;
use std::path::PathBuf;

const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const ABSENT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// See the module.
pub struct SystemdSlices {
    socket: PathBuf,
}

impl SystemdSlices {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        SystemdSlices { socket: socket.into() }
    }

    fn call(&self, member: &str, arguments: &[Value]) -> Result<(), CallError> {
        let method = Method {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member,
        };
        Bus::connect(&self.socket)?.call(method, arguments).map(drop)
    }
}

impl SliceClient for SystemdSlices {
    fn start(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()> {
        let mut properties = vec![
            ("Description".to_owned(), Value::Text(format!("pods of {unit}"))),
            ("DefaultDependencies".to_owned(), Value::Bool(false)),
        ];
        for accounting in ["CPUAccounting", "MemoryAccounting", "TasksAccounting"] {
            properties.push((accounting.to_owned(), Value::Bool(true)));
        }
        properties.extend(limit_properties(limits, is_v2));
        let arguments = [
            Value::Text(unit.to_owned()),
            Value::Text("replace".to_owned()),
            Value::Properties(properties),
            Value::NoUnits,
        ];
        match self.call("StartTransientUnit", &arguments) {
            Err(error) if error.is(EXISTS) => Ok(()),
            started => started.map_err(io::Error::other),
        }
    }

    fn set(&self, unit: &str, limits: &CgroupLimits, is_v2: bool) -> io::Result<()> {
        let properties = limit_properties(limits, is_v2);
        if properties.is_empty() {
            return Ok(());
        }
        let arguments = [Value::Text(unit.to_owned()), Value::Bool(true), Value::Properties(properties)];
        self.call("SetUnitProperties", &arguments).map_err(io::Error::other)
    }

    fn stop(&self, unit: &str) -> io::Result<()> {
        let arguments = [Value::Text(unit.to_owned()), Value::Text("replace".to_owned())];
        match self.call("StopUnit", &arguments) {
            Err(error) if error.is(ABSENT) => Ok(()),
            stopped => stopped.map_err(io::Error::other),
        }
    }
}

/// Limits as properties of a unit.
fn limit_properties(limits: &CgroupLimits, is_v2: bool) -> Vec<(String, Value)> {
    let amount = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    let mut properties = Vec::new();
    let mut add = |name: &str, value: u64| properties.push((name.to_owned(), Value::U64(value)));
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
    if let Some(memory) = limits.memory_min.filter(|_| is_v2) {
        add("MemoryMin", amount(memory));
    }
    if let Some(pids) = limits.pids {
        add("TasksMax", amount(pids));
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dbus::testing::{Answer, FakeService};

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

    #[test]
    fn calls_go_over_the_bus() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let service = FakeService::new(|call| match &*call.member {
            "StopUnit" => Answer::Error(ABSENT),
            "SetUnitProperties" => Answer::Error("a.b"),
            _ => Answer::Value(None),
        });
        service.listen(&socket);
        let slices = SystemdSlices::new(&socket);
        let limits = CgroupLimits { pids: Some(3), ..CgroupLimits::default() };
        slices.start("a.slice", &limits, true).unwrap();
        slices.stop("a.slice").unwrap();
        assert_eq!(slices.set("a.slice", &limits, true).unwrap_err().to_string(), "a.b: why");
        let calls: Vec<String> = service.calls().into_iter().filter(|it| it.ends_with("Unit")).collect();
        assert_eq!(calls, ["StartTransientUnit", "StopUnit"]);
        assert!(service.calls()[0].starts_with("AUTH EXTERNAL 3"), "{:?}", service.calls());
        let none = SystemdSlices::new(dir.path().join("none"));
        assert!(none.stop("a.slice").is_err());
    }
}
