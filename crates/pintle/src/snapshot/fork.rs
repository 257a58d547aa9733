//! The state that a cluster in memory begins with: `up --from`, and forks of a running cluster.

use anyhow::Context as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use store::snapshot::Reader;
use store::{Revision, SnapshotRecord};

/// Begins the keys of a snapshot under which the keys and certificates of the cluster are, by the names of their files.
const FILES: &str = "/pintle/pki/";

/// Objects, keys and certificates of a cluster at one revision.
pub struct Fork {
    pub revision: Revision,
    /// The time of the cluster, in Unix seconds.
    pub taken_at: i64,
    pub records: Vec<SnapshotRecord>,
    /// The files of its keys and certificates, by name. A snapshot of a cluster with a data directory has none.
    pub files: Vec<(String, String)>,
}

impl Fork {
    /// Reads the file of a snapshot.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("--from: cannot read {shown}"))?;
        let unusable = || format!("--from: {shown} cannot be used");
        let mut reader = Reader::new(BufReader::with_capacity(1 << 20, file)).with_context(unusable)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().with_context(unusable)? {
            records.push(record);
        }
        let summary = reader.finish().with_context(unusable)?;
        Self::new(summary.revision, summary.taken_at, records)
    }

    /// From the records of a snapshot.
    pub fn new(revision: Revision, taken_at: i64, records: Vec<SnapshotRecord>) -> anyhow::Result<Self> {
        let (files, records): (Vec<_>, _) = records.into_iter().partition(|it| it.key.starts_with(FILES));
        let files = files.into_iter().map(|it| {
            let text =
                String::from_utf8(it.value.to_vec()).with_context(|| format!("{} is no text", it.key))?;
            Ok((it.key[FILES.len()..].to_owned(), text))
        });
        Ok(Fork { revision, taken_at, records, files: files.collect::<anyhow::Result<_>>()? })
    }
}

/// Whether a record of a snapshot is one of the cluster's keys and certificates, which are no objects.
pub fn is_file(record: &SnapshotRecord) -> bool {
    record.key.starts_with(FILES)
}

/// The key of a file in a snapshot.
pub fn key_of_file(name: &str) -> String {
    format!("{FILES}{name}")
}
