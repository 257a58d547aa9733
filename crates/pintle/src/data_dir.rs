//! The data directory of a server: certificates, keys, the kubeconfig, and objects without etcd.
//!
//! Invariants: a directory is locked by one process at a time. An API server with etcd uses a directory only if
//! `--data-dir` names one; otherwise it makes certificates in memory and writes no other files.

use crate::deployment_mode::DeploymentMode;
use crate::files;
use crate::options::Apiserver;
use crate::world;
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// The data directory, or memory.
pub enum DataDir {
    Directory {
        path: PathBuf,
        _claim: files::DirectoryLock,
    },
    Memory {
        /// The temporary file with the administrator's kubeconfig, if there is one.
        temporary_kubeconfig: Option<PathBuf>,
    },
}

impl DataDir {
    /// Creates and locks the directory, if one is needed.
    pub fn prepare(args: &Apiserver, mode: DeploymentMode) -> anyhow::Result<Self> {
        if args.store.ephemeral {
            return Ok(Self::Memory { temporary_kubeconfig: Some(temporary_kubeconfig()?) });
        }
        let needs_none = mode == DeploymentMode::Standalone && !args.etcd.etcd_servers.is_empty();
        let path = match &args.store.data_dir {
            Some(path) => path.clone(),
            None if needs_none => return Ok(Self::Memory { temporary_kubeconfig: None }),
            None => default_data_dir()?,
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        files::private_directory(&path).map_err(|error| {
            let formatted = path.display();
            anyhow::anyhow!(
                "cannot create the data directory {formatted}: {error}; choose another with --data-dir"
            )
        })?;
        let lock_directory = files::lock_directory(&path)?;
        Ok(Self::Directory { path, _claim: lock_directory })
    }

    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } => Some(path),
            Self::Memory { .. } => None,
        }
    }

    /// Whether nothing outlives the process.
    pub fn is_memory(&self) -> bool {
        self.directory().is_none()
    }

    /// The administrator's kubeconfig, if one is written.
    pub fn kubeconfig(&self, args: &Apiserver) -> Option<Kubeconfig> {
        if let Some(path) = &args.write_kubeconfig {
            return Some(Kubeconfig {
                path: std::path::absolute(path).unwrap_or(path.clone()),
                temporary: false,
            });
        }
        match self {
            Self::Directory { path, .. } => {
                Some(Kubeconfig { path: path.join("admin.kubeconfig"), temporary: false })
            }
            Self::Memory { temporary_kubeconfig } => {
                temporary_kubeconfig.clone().map(|path| Kubeconfig { path, temporary: true })
            }
        }
    }
}

/// A new file in the folder of temporary files, unpredictable for other users of it. Clusters with the same seed have
/// different ones.
fn temporary_kubeconfig() -> anyhow::Result<PathBuf> {
    let name = format!("pintle-{:016x}.kubeconfig", env::random_u64(&world::real()?));
    Ok(std::env::temp_dir().join(name))
}

/// The data directory without `--data-dir`.
pub fn default_data_dir() -> anyhow::Result<PathBuf> {
    default_directory(|name| std::env::var_os(name).map(PathBuf::from))
}

/// The folder of the embedded store in a data directory.
pub fn store_directory(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

pub fn default_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let home = || variable("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".local/share"));
    let base = data.or_else(home).context("no home directory for the data directory: set --data-dir")?;
    Ok(base.join("pintle"))
}

/// The file with the administrator's credentials, removed in the end if it is a temporary one.
pub struct Kubeconfig {
    pub path: PathBuf,
    pub temporary: bool,
}

impl Kubeconfig {
    pub fn remove_if_temporary(&self) {
        if self.temporary {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        self.remove_if_temporary();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_kept_where_the_user_keeps_data() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            default_directory(|name| match name {
                "XDG_DATA_HOME" => xdg.map(PathBuf::from),
                "HOME" => home.map(PathBuf::from),
                other => panic!("{other} is not to be read"),
            })
        };
        assert_eq!(with(Some("/x"), Some("/h")).unwrap(), Path::new("/x/pintle"));
        assert_eq!(with(Some(""), Some("/h")).unwrap(), Path::new("/h/.local/share/pintle"));
        assert_eq!(with(None, Some("/h")).unwrap(), Path::new("/h/.local/share/pintle"));
        assert!(with(None, None).unwrap_err().to_string().contains("--data-dir"));
    }

    #[test]
    fn a_temporary_kubeconfig_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        for (temporary, left) in [(true, false), (false, true)] {
            let path = folder.path().join("config");
            std::fs::write(&path, "").unwrap();
            drop(Kubeconfig { path: path.clone(), temporary });
            assert_eq!(path.exists(), left);
        }
    }
}
