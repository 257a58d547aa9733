//! Rotation of log files: a file that is too large is renamed, and the runtime opens a new one.
//!
//! ```text
//! 0.log                           the file that the runtime writes
//! 0.log.20260102-030405           the one before it
//! 0.log.20260102-020405.gz        older ones
//! ```

use crate::filesystem::{Filesystem, unless_absent};
use crate::runtime::{ContainerState, RuntimeError, SharedRuntime};
use env::World;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the sizes of files are looked at.
const INTERVAL: Duration = Duration::from_secs(10);
const COMPRESSED: &str = ".gz";
const TEMPORARY: &str = ".tmp";

/// Rotates the logs of all containers.
pub struct Rotation {
    pub runtime: SharedRuntime,
    pub world: World,
    /// The directory of the log directories of pods.
    pub log_dir: PathBuf,
    /// The size at which a file is rotated.
    pub max_bytes: u64,
    /// Files per container, with the current one.
    pub max_files: usize,
}

impl Rotation {
    pub async fn run(self) {
        loop {
            env::sleep(&self.world, INTERVAL).await;
            if let Err(why) = self.rotate_all().await {
                tracing::debug!(%why, "log files cannot be rotated");
            }
        }
    }

    /// Looks at the files first: most of the time none is too large, and nothing is requested of the runtime.
    async fn rotate_all(&self) -> Result<(), RuntimeError> {
        let (log_dir, max_bytes) = (self.log_dir.clone(), self.max_bytes);
        let found = tokio::task::spawn_blocking(move || large_files(&log_dir, max_bytes)).await;
        let large = found.unwrap_or_default();
        if large.is_empty() {
            return Ok(());
        }
        let containers = self.runtime.containers(None).await?;
        for container in containers.into_iter().filter(|it| it.state == ContainerState::Running) {
            let Ok(status) = self.runtime.container_status(&container.id).await else { continue };
            let path = PathBuf::from(status.log_path);
            if !large.contains(&path) {
                continue;
            }
            if let Err(why) = self.rotate(&container.id, &path).await {
                tracing::warn!(%why, path = %path.display(), "a log file cannot be rotated");
            }
        }
        Ok(())
    }

    async fn rotate(&self, id: &str, path: &Path) -> io::Result<()> {
        let (keep, at) = (self.max_files, path.to_path_buf());
        // compression takes long
        tokio::task::spawn_blocking(move || clean(&at, keep)).await.map_err(io::Error::other)??;
        let rotated =
            PathBuf::from(format!("{}.{}", path.display(), timestamp(env::unix_seconds(&self.world))));
        tokio::fs::rename(path, &rotated).await?;
        if let Err(why) = self.runtime.reopen_log(id).await {
            // the runtime still writes to the same file
            tokio::fs::rename(&rotated, path).await?;
            return Err(io::Error::other(why));
        }
        Ok(())
    }
}

/// The files that containers write, `POD/CONTAINER/ATTEMPT.log`, of at least a size.
fn large_files(log_dir: &Path, max_bytes: u64) -> HashSet<PathBuf> {
    let below = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = below(log_dir.to_owned()).flat_map(|pod| below(pod.path())).flat_map(|it| below(it.path()));
    let is_current = |name: &std::ffi::OsStr| name.as_encoded_bytes().ends_with(b".log");
    files
        .filter(|it| is_current(&it.file_name()) && it.metadata().is_ok_and(|data| data.len() >= max_bytes))
        .map(|it| it.path())
        .collect()
}

/// A time as part of a name: `20260102-030405`.
fn timestamp(unix_seconds: i64) -> String {
    let text = schema::time::format_time(unix_seconds);
    text.replace(['-', ':', 'Z'], "").replace('T', "-")
}

/// Rotated files of a log, the oldest first.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|it| it.to_str())) else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?.path();
        let is_rotated = entry
            .file_name()
            .and_then(|it| it.to_str())
            .and_then(|it| it.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('.'));
        if is_rotated {
            all.push(entry);
        }
    }
    all.sort();
    Ok(all)
}

/// Removes the log of a container that is gone, with its rotated files.
pub fn remove(path: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let rotated = match rotated(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        rotated => rotated?,
    };
    rotated.iter().chain([&path.to_owned()]).try_for_each(|it| unless_absent(filesystem.remove_file(it)))
}

/// Removes temporary and surplus files, and compresses the rest.
fn clean(path: &Path, keep: usize) -> io::Result<()> {
    let is = |path: &Path, suffix: &str| path.to_string_lossy().ends_with(suffix);
    let mut files = Vec::new();
    for file in rotated(path)? {
        if is(&file, TEMPORARY) { std::fs::remove_file(file)? } else { files.push(file) }
    }
    // the current file and the one that is about to be rotated
    let surplus = files.len().saturating_sub(keep.saturating_sub(2));
    for file in files.drain(..surplus) {
        std::fs::remove_file(file)?;
    }
    for file in files.iter().filter(|file| !is(file, COMPRESSED)) {
        compress(file)?;
    }
    Ok(())
}

fn compress(file: &Path) -> io::Result<()> {
    let temporary = PathBuf::from(format!("{}{TEMPORARY}", file.display()));
    let mut source = File::open(file)?;
    let target = File::create(&temporary)?;
    target.set_permissions(source.metadata()?.permissions())?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    std::fs::rename(&temporary, format!("{}{COMPRESSED}", file.display()))?;
    std::fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_files_are_compressed_and_then_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        for suffix in
            ["", ".20200101-000000.gz", ".20200102-000000", ".20200103-000000", ".20200104-000000.tmp"]
        {
            std::fs::write(format!("{}{suffix}", path.display()), "x").unwrap();
        }
        clean(&path, 4).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.20200102-000000.gz", "0.log.20200103-000000.gz"]);
        assert_eq!(timestamp(1_577_836_800), "20200101-000000");
    }

    #[test]
    fn files_that_containers_write_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("n_p_u/c");
        std::fs::create_dir_all(&directory).unwrap();
        for (name, size) in [("0.log", 9), ("1.log", 10), ("1.log.20200101-000000", 99)] {
            std::fs::write(directory.join(name), vec![b'x'; size]).unwrap();
        }
        assert_eq!(large_files(folder.path(), 10), HashSet::from([directory.join("1.log")]));
        remove(&directory.join("1.log"), &crate::filesystem::LinuxFilesystem).unwrap();
        let left: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["0.log"]);
    }
}
