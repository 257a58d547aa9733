//! The folders of CNI configurations and plugins that the runtime uses.

use super::CriRuntime;
use crate::runtime::RuntimeError;
use grpc::cri;
use serde_json::Value;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniDirectories {
    pub configurations: PathBuf,
    pub plugins: PathBuf,
}

impl CriRuntime {
    /// The folders of the runtime's own configuration; `None` if it does not tell them.
    pub async fn cni_directories(&self) -> Result<Option<CniDirectories>, RuntimeError> {
        let answer = self.call(self.runtime().status(cri::StatusRequest { verbose: true })).await?;
        Ok(answer.info.get("config").and_then(|config| read(config)))
    }
}

/// The folders in containerd's configuration. Newer versions have a list of plugin folders.
fn read(config: &str) -> Option<CniDirectories> {
    let config: Value = serde_json::from_str(config).ok()?;
    let cni = &config["cni"];
    let path = |value: &Value| value.as_str().filter(|it| !it.is_empty()).map(PathBuf::from);
    let first = cni["binDirs"].get(0).and_then(path);
    Some(CniDirectories { configurations: path(&cni["confDir"])?, plugins: path(&cni["binDir"]).or(first)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_from_the_configuration() {
        let found =
            CniDirectories { configurations: "/etc/cni/net.d".into(), plugins: "/usr/lib/cni".into() };
        let old = r#"{"cni": {"binDir": "/usr/lib/cni", "confDir": "/etc/cni/net.d", "confTemplate": ""}}"#;
        assert_eq!(read(old), Some(found.clone()));
        let new =
            r#"{"cni": {"binDir": "", "binDirs": ["/usr/lib/cni", "/x"], "confDir": "/etc/cni/net.d"}}"#;
        assert_eq!(read(new), Some(found));
        for other in ["", "[]", r#"{"cni": {"confDir": "/etc/cni/net.d"}}"#, "a = 1"] {
            assert_eq!(read(other), None);
        }
    }
}
