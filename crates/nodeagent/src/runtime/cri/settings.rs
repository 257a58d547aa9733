//! The runtime's own settings, as far as it tells them: folders of CNI, and the driver of cgroups.

use super::CriRuntime;
use crate::cgroups::name::CgroupDriver;
use crate::runtime::RuntimeError;
use grpc::cri;
use serde_json::Value;
use std::path::PathBuf;

/// See the module. What the runtime does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeSettings {
    pub cni: Option<CniDirectories>,
    pub cgroup_driver: Option<CgroupDriver>,
}

/// The folders of CNI configurations and plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniDirectories {
    pub configurations: PathBuf,
    pub plugins: PathBuf,
}

impl CriRuntime {
    pub async fn settings(&self) -> Result<RuntimeSettings, RuntimeError> {
        let answer = self.call(self.runtime().status(cri::StatusRequest { verbose: true })).await?;
        Ok(answer.info.get("config").map(|config| read(config)).unwrap_or_default())
    }
}

/// Reads containerd's configuration.
fn read(config: &str) -> RuntimeSettings {
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    RuntimeSettings {
        cni: cni_directories(&config["cni"]),
        cgroup_driver: cgroup_driver(&config["containerd"]),
    }
}

/// Newer versions have a list of plugin folders.
fn cni_directories(cni: &Value) -> Option<CniDirectories> {
    let path = |value: &Value| value.as_str().filter(|it| !it.is_empty()).map(PathBuf::from);
    let first = cni["binDirs"].get(0).and_then(path);
    Some(CniDirectories { configurations: path(&cni["confDir"])?, plugins: path(&cni["binDir"]).or(first)? })
}

/// The driver of the default handler; one without the option uses files.
fn cgroup_driver(containerd: &Value) -> Option<CgroupDriver> {
    let name = containerd["defaultRuntimeName"].as_str()?;
    let handler = containerd["runtimes"].get(name)?;
    match handler["options"]["SystemdCgroup"].as_bool() {
        Some(true) => Some(CgroupDriver::Systemd),
        _ => Some(CgroupDriver::Cgroupfs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_from_the_configuration() {
        let found =
            CniDirectories { configurations: "/etc/cni/net.d".into(), plugins: "/usr/lib/cni".into() };
        let old = r#"{"cni": {"binDir": "/usr/lib/cni", "confDir": "/etc/cni/net.d", "confTemplate": ""}}"#;
        assert_eq!(read(old).cni, Some(found.clone()));
        let new =
            r#"{"cni": {"binDir": "", "binDirs": ["/usr/lib/cni", "/x"], "confDir": "/etc/cni/net.d"}}"#;
        assert_eq!(read(new).cni, Some(found));
        for other in ["", "[]", r#"{"cni": {"confDir": "/etc/cni/net.d"}}"#, "a = 1"] {
            assert_eq!(read(other), RuntimeSettings::default());
        }
    }

    #[test]
    fn the_cgroup_driver_is_that_of_the_default_handler() {
        let driver = |options: &str| {
            let text = r#"{"containerd": {"defaultRuntimeName": "runc", "runtimes": {
                "other": {"options": {"SystemdCgroup": true}}, "runc": {"options": OPTIONS}}}}"#;
            read(&text.replace("OPTIONS", options)).cgroup_driver
        };
        assert_eq!(driver(r#"{"SystemdCgroup": true}"#), Some(CgroupDriver::Systemd));
        assert_eq!(driver(r#"{"SystemdCgroup": false}"#), Some(CgroupDriver::Cgroupfs));
        assert_eq!(driver("null"), Some(CgroupDriver::Cgroupfs));
    }
}
