//! Static pods of a directory, or of one file.
//!
//! The directory is read in intervals; a file that has not changed is not parsed again.

use super::static_pods::{StaticPlace, StaticSource, read};
use super::{PodChange, PodSet};
use api::core::v1::Pod;
use env::World;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Reads a directory or a file.
pub struct FileSource {
    pub path: PathBuf,
    pub node: String,
    pub interval: Duration,
    pub world: World,
}

type Stamp = (Option<SystemTime>, u64);

impl FileSource {
    pub async fn run(self, changes: mpsc::UnboundedSender<PodChange>) {
        let mut set = PodSet::default();
        let mut known: HashMap<PathBuf, (Stamp, Vec<Arc<Pod>>)> = HashMap::new();
        let mut is_first = true;
        loop {
            let files = list(&self.path);
            let mut read_now = HashMap::new();
            for (path, stamp) in files {
                let pods = match known.remove(&path) {
                    Some((before, pods)) if before == stamp => pods,
                    before => match self.read(&path) {
                        Ok(pods) => pods,
                        Err(why) => {
                            tracing::error!(path = %path.display(), %why, "a file of static pods cannot be read");
                            // a half-written file does not end its pods
                            before.map(|it| it.1).unwrap_or_default()
                        }
                    },
                };
                read_now.insert(path, (stamp, pods));
            }
            known = read_now;
            set.replace(known.values().flat_map(|it| it.1.iter().cloned()), &changes);
            if std::mem::take(&mut is_first) {
                let _ = changes.send(PodChange::Synced);
            }
            env::sleep(&self.world, self.interval).await;
        }
    }

    fn read(&self, path: &Path) -> Result<Vec<Arc<Pod>>, String> {
        let text = std::fs::read(path).map_err(|why| why.to_string())?;
        let place = StaticPlace {
            node: self.node.clone(),
            source: StaticSource::File,
            origin: path.display().to_string(),
            seen: api::Time::from(self.world.now()).to_string(),
        };
        read(&text, &place)
    }
}

/// Files that do not begin with a dot.
fn list(path: &Path) -> Vec<(PathBuf, Stamp)> {
    let stamp = |path: &Path| {
        let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((meta.modified().ok(), meta.len()))
    };
    if let Some(stamp) = stamp(path) {
        return vec![(path.to_owned(), stamp)];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let named = entries.filter(|it| !it.file_name().to_string_lossy().starts_with('.'));
    named.filter_map(|it| Some((it.path(), stamp(&it.path())?))).collect()
}
