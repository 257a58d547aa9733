//! Static pods of a directory, or of one file.
//!
//! The directory is read when the kernel reports a change, and in intervals; a file that has not changed is not parsed
//! again.

use super::static_pods::{StaticPlace, StaticSource, read};
use super::{PodChange, PodSet};
use crate::file_watch::FileWatch;
use api::core::v1::Pod;
use env::World;
use std::collections::BTreeMap;
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
        // in the order of names: of two pods with the same name the first one counts
        let mut known: BTreeMap<PathBuf, (Stamp, Vec<Arc<Pod>>)> = BTreeMap::new();
        let mut is_first = true;
        let mut watch = None;
        loop {
            // before the list, so that no change is missed
            watch = watch.or_else(|| FileWatch::new(&self.path).ok());
            let files = list(&self.path);
            let mut read_now = BTreeMap::new();
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
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            let is_usable = tokio::select! {
                is_usable = changed => is_usable,
                () = env::sleep(&self.world, self.interval) => watch.is_some(),
            };
            // a directory that was replaced has a watch of its own
            if !is_usable || !self.path.exists() {
                watch = None;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_file_is_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let world: World = env::Simulated::new(1_700_000_000, 1);
        let (path, node) = (dir.path().to_owned(), "n".to_owned());
        let source = FileSource { path, node, interval: Duration::from_secs(20), world };
        let (sender, mut changes) = mpsc::unbounded_channel();
        let task = tokio::spawn(source.run(sender));
        assert!(matches!(changes.recv().await, Some(PodChange::Synced)));
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x"},
            "spec":{"containers":[{"name":"c","image":"i"}]}}"#;
        // written apart and moved, as editors do
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pod).unwrap();
        std::fs::copy(file.path(), dir.path().join(".hidden")).unwrap();
        std::fs::rename(dir.path().join(".hidden"), dir.path().join("p.json")).unwrap();
        let Some(PodChange::Set(pod)) = changes.recv().await else { panic!("no pod") };
        assert_eq!(pod.metadata.name, "p-n");
        std::fs::remove_file(dir.path().join("p.json")).unwrap();
        assert!(matches!(changes.recv().await, Some(PodChange::Removed(_))));
        task.abort();
    }
}
