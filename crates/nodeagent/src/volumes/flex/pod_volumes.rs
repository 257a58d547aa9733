//! The directories of volumes of a pod.

use names::node::CSI_DIRECTORY;
use std::io;
use std::path::{Path, PathBuf};

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
