//! Rotation of log files: a file that is too large is renamed, and the runtime opens a new one.
//!
//! ```text
//! 0.log                           the file that the runtime writes
//! 0.log.20260102-030405           the one before it
//! 0.log.20260102-020405.gz        older ones
//! ```

use crate::runtime::{ContainerState, SharedRuntime};
use env::World;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::{HashMap, HashSet};
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
    /// The size at which a file is rotated.
    pub max_bytes: u64,
    /// Files per container, with the current one.
    pub max_files: usize,
}

impl Rotation {
    pub async fn run(self) {
        let mut paths = HashMap::new();
        loop {
            env::sleep(&self.world, INTERVAL).await;
            if let Err(why) = self.rotate_all(&mut paths).await {
                tracing::debug!(%why, "log files cannot be rotated");
            }
        }
    }

    /// `paths` has the files of containers that were seen before, by id.
    async fn rotate_all(
        &self,
        paths: &mut HashMap<String, PathBuf>,
    ) -> Result<(), crate::runtime::RuntimeError> {
        let containers = self.runtime.containers().await?;
        let running: HashSet<&str> =
            containers.iter().filter(|it| it.state == ContainerState::Running).map(|it| &*it.id).collect();
        paths.retain(|id, _| running.contains(&**id));
        for id in running {
            let path = match paths.get(id) {
                Some(path) => path.clone(),
                None => {
                    let Ok(status) = self.runtime.container_status(id).await else { continue };
                    let path = PathBuf::from(status.log_path);
                    paths.insert(id.to_owned(), path.clone());
                    path
                }
            };
            let Ok(data) = tokio::fs::metadata(&path).await else { continue };
            if data.len() < self.max_bytes {
                continue;
            }
            if let Err(why) = self.rotate(id, &path).await {
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
}
