//! The files that make a container runtime use the plugin: a CNI configuration, and links to this program.
//!
//! A configuration of another network is left alone and used: then this one is not installed, or removed if it was.

use super::super::cni::{LOOPBACK, PLUGIN};
use apimachinery::net::Network;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};

/// The file of the configuration.
const FILE: &str = "10-pintle.conflist";

/// The version of the configuration: runtimes with older libraries read it too.
const VERSION: &str = "0.4.0";

/// The folders of the container runtime, and this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniPaths {
    /// The folder of configurations.
    pub configurations: PathBuf,
    /// The folder of plugins.
    pub plugins: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// The folder of the plugin's record.
    pub state: PathBuf,
}

/// The configuration of another network, if there is one. Of several, runtimes use the first by name.
pub fn other_configuration(paths: &CniPaths) -> io::Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(&paths.configurations) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    let mut others = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().unwrap_or_default();
        let is_configuration = ["conf", "conflist", "json"].iter().any(|it| extension == *it);
        if is_configuration && path.file_name().is_some_and(|name| name != FILE) {
            others.push(path);
        }
    }
    Ok(others.into_iter().min())
}

/// Writes the configuration and the links, as far as they differ. Returns whether the configuration was written.
pub fn install(paths: &CniPaths, ranges: &[Network], mtu: u32) -> io::Result<bool> {
    durable_file::directory(&paths.plugins, 0o755)?;
    link_program(paths, PLUGIN)?;
    if is_ours_to_link(&paths.plugins.join(LOOPBACK), &paths.program) {
        link_program(paths, LOOPBACK)?;
    }
    durable_file::directory(&paths.configurations, 0o755)?;
    let path = paths.configurations.join(FILE);
    let content = configuration(paths, ranges, mtu);
    if std::fs::read_to_string(&path).is_ok_and(|current| current == content) {
        return Ok(false);
    }
    durable_file::replace(&path, content, durable_file::READABLE)?;
    Ok(true)
}

/// Removes the configuration: pods that are attached stay attached.
pub fn withdraw(paths: &CniPaths) -> io::Result<()> {
    durable_file::remove(&paths.configurations.join(FILE))
}

fn configuration(paths: &CniPaths, ranges: &[Network], mtu: u32) -> String {
    let ranges: Vec<_> = ranges.iter().map(Network::to_string).collect();
    let content = json!({
        "cniVersion": VERSION,
        "name": "pintle",
        "plugins": [{
            "type": PLUGIN,
            "capabilities": {"portMappings": true},
            "ranges": ranges,
            "mtu": mtu,
            "stateDir": paths.state.to_string_lossy(),
        }],
    });
    format!("{content:#}\n")
}

fn link_program(paths: &CniPaths, name: &str) -> io::Result<()> {
    let link = paths.plugins.join(name);
    match std::fs::read_link(&link) {
        Ok(target) if target == paths.program => Ok(()),
        _ => durable_file::replace_link(&link, &paths.program),
    }
}

/// Whether a path is free, or a link to this program under an earlier path.
fn is_ours_to_link(path: &Path, program: &Path) -> bool {
    match std::fs::read_link(path) {
        Ok(target) => target.file_name() == program.file_name() || !path.exists(),
        Err(why) => why.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::fs::{read_dir, read_link, write};

    fn paths(folder: &Path) -> CniPaths {
        CniPaths {
            configurations: folder.join("net.d"),
            plugins: folder.join("bin"),
            program: folder.join("pintle"),
            state: "/run/pods".into(),
        }
    }

    #[test]
    fn the_runtime_finds_configuration_and_plugins() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        let ranges = ["10.1.0.0/24", "fd00:1::/64"].map(|it| Network::parse(it).unwrap());
        assert_eq!(other_configuration(&paths).unwrap(), None);
        assert!(install(&paths, &ranges, 1450).unwrap());
        assert!(!install(&paths, &ranges, 1450).unwrap());
        assert!(install(&paths, &ranges, 1500).unwrap());
        assert_eq!(other_configuration(&paths).unwrap(), None);
        for name in [PLUGIN, LOOPBACK] {
            assert_eq!(read_link(paths.plugins.join(name)).unwrap(), paths.program);
        }
        let file = paths.configurations.join(FILE);
        let content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(content["plugins"][0]["ranges"], json!(["10.1.0.0/24", "fd00:1::/64"]));
        assert_eq!(content["plugins"][0]["mtu"], 1500);
        assert_eq!(read_dir(&paths.configurations).unwrap().count(), 1);
        withdraw(&paths).unwrap();
        withdraw(&paths).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let paths = paths(folder.path());
        std::fs::create_dir_all(&paths.plugins).unwrap();
        std::fs::create_dir_all(&paths.configurations).unwrap();
        write(paths.plugins.join(LOOPBACK), "a program").unwrap();
        for name in ["README", "50-other.conflist", "20-first.conf", "calico.kubeconfig"] {
            write(paths.configurations.join(name), "{}").unwrap();
        }
        assert_eq!(other_configuration(&paths).unwrap(), Some(paths.configurations.join("20-first.conf")));
        install(&paths, &[], 1500).unwrap();
        assert_eq!(std::fs::read(paths.plugins.join(LOOPBACK)).unwrap(), b"a program");
    }

    #[test]
    fn links_follow_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let old = paths(folder.path());
        install(&old, &[], 1500).unwrap();
        let new = CniPaths { program: folder.path().join("new/pintle"), ..old.clone() };
        install(&new, &[], 1500).unwrap();
        for name in [PLUGIN, LOOPBACK] {
            assert_eq!(read_link(new.plugins.join(name)).unwrap(), new.program);
        }
    }
}
