//! FlexVolume: programs that mount volumes, below `volumePluginDir`.
//!
//! ```text
//! <volumePluginDir>/<vendor>~<driver>/<driver> init
//! <volumePluginDir>/<vendor>~<driver>/<driver> mount <directory> <options as JSON>
//! <volumePluginDir>/<vendor>~<driver>/<driver> unmount <directory>
//! ```
//!
//! A program prints JSON: `{"status": "Success"}`, `Failure` with a message, or `Not supported`. Programs that attach
//! volumes to nodes are refused: no controller runs them.
//!
//! | module | what it is |
//! |---|---|
//! | `driver` | the programs, and calls to them |
//! | `volume` | a volume of a pod as its objects describe it, and its options |

mod driver;
#[cfg(test)]
mod tests;
mod volume;

pub use volume::FlexVolume;

use super::mounts::MountedVolume;
use super::ownership::set_group;
use crate::filesystem::Filesystem;
use crate::objects::ObjectSource;
use driver::{CallError, FlexDrivers};
use names::node::CSI_DIRECTORY;
use outbound::io_text;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The mode of a new directory at which a volume is mounted, less the mask of the process.
const NEW_MODE: u32 = 0o750;

/// The volumes of programs.
pub struct FlexVolumes {
    drivers: FlexDrivers,
    filesystem: Arc<dyn Filesystem>,
    objects: Arc<dyn ObjectSource>,
}

impl FlexVolumes {
    pub fn new(directory: &Path, filesystem: Arc<dyn Filesystem>, objects: Arc<dyn ObjectSource>) -> Self {
        FlexVolumes { drivers: FlexDrivers::new(directory), filesystem, objects }
    }

    pub fn has_driver(&self, volume: &FlexVolume) -> bool {
        self.drivers.program(&volume.driver).is_ok()
    }

    /// Mounts a volume in the directory of volumes of its pod. It may be there already. The error is the text of an event.
    pub async fn mount(&self, volume: &FlexVolume, directory: &Path) -> Result<MountedVolume, String> {
        let name = &volume.spec_name;
        let path = volume.path(directory);
        let mounted = self.set_up(volume, &path).await;
        mounted.map_err(|why| format!("MountVolume.SetUp failed for volume {name:?} : {why}"))?;
        Ok(MountedVolume::new(path, volume.is_readonly, !volume.is_readonly))
    }

    async fn set_up(&self, volume: &FlexVolume, path: &Path) -> Result<(), String> {
        let capabilities = self.drivers.capabilities(&volume.driver).await.map_err(|why| why.to_string())?;
        if capabilities.attaches {
            return Err(format!(
                "FlexVolume driver {:?} attaches volumes, which is not supported",
                volume.driver
            ));
        }
        self.filesystem.create_dir_all(path, NEW_MODE).map_err(|why| io_text(&why))?;
        if self.filesystem.is_mount_point(path).map_err(|why| io_text(&why))? {
            return Ok(());
        }
        let mounted = self.call_mount(volume, path).await;
        if mounted.is_err() {
            // a directory with something in it stays
            let _ = self.filesystem.remove_dir(path);
        }
        mounted?;
        match volume.group.filter(|_| capabilities.takes_group && !volume.is_readonly) {
            Some((group, policy)) => {
                let (filesystem, path) = (self.filesystem.clone(), path.to_owned());
                let work = move || set_group(&path, group, false, policy, &*filesystem);
                let done = tokio::task::spawn_blocking(work).await;
                done.map_err(|why| why.to_string())?.map_err(|why| io_text(&why))
            }
            None => Ok(()),
        }
    }

    async fn call_mount(&self, volume: &FlexVolume, path: &Path) -> Result<(), String> {
        let options = volume.options(&*self.objects).await?;
        let path = path.to_string_lossy();
        let called = self.drivers.call(&volume.driver, &["mount", &path, &options]).await;
        called.map(drop).map_err(|why| why.to_string())
    }

    /// Has programs unmount the volumes of a pod. A volume whose program is gone, or cannot do it, is left to the caller.
    pub async fn unmount_all(&self, directory: &Path) -> Result<(), String> {
        for (driver, path) in volumes_below(directory).map_err(|why| io_text(&why))? {
            let called = self.drivers.call(&driver, &["unmount", &path.to_string_lossy()]).await;
            match called {
                Ok(_) | Err(CallError::NotSupported | CallError::NoDriver) => {}
                Err(why) => return Err(format!("{}: {why}", path.display())),
            }
        }
        Ok(())
    }
}

/// Drivers and paths of the volumes of programs in the directory of volumes of a pod.
pub fn volumes_below(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for plugin in entries(directory)? {
        let Some(name) = plugin.file_name().and_then(|it| it.to_str()) else { continue };
        if !is_built_in(name) {
            let driver = name.replace('~', "/");
            found.extend(entries(&plugin)?.into_iter().map(|path| (driver.clone(), path)));
        }
    }
    Ok(found)
}

/// Whether a directory is one of a plugin that is no program.
fn is_built_in(name: &str) -> bool {
    CSI_DIRECTORY.strip_suffix("csi").is_some_and(|prefix| name.starts_with(prefix))
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let mut paths: Vec<PathBuf> =
                entries?.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
            paths.sort();
            Ok(paths)
        }
    }
}
