//! Selection and opening of the store.

use env::World;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{RecoveredRecord, Revision, SnapshotRecord, Store, StoreError};

/// Values from this size on are compressed in the file. Heartbeats, which are written all the time, are smaller.
const COMPRESS_FROM: usize = 1024;

/// The store to use.
pub enum StoreChoice {
    /// In memory, lost with the process.
    Memory,
    /// In memory, with the values of a snapshot at first.
    Restored {
        /// Revisions continue after it.
        revision: Revision,
        records: Vec<SnapshotRecord>,
    },
    /// In a file below this directory.
    Directory(PathBuf),
    /// In an etcd cluster.
    Etcd(Box<store_etcd::Options>),
    /// In a store that is already open, and empty.
    Opened(Arc<dyn Store>),
}

impl StoreChoice {
    /// Maps keys to their names in that store, where they differ.
    pub(crate) fn renames(&self) -> Option<encryption::Rename> {
        let StoreChoice::Etcd(options) = self else { return None };
        options.renames().map(|rename| Box::new(rename) as encryption::Rename)
    }
}

/// Opens a store with this retention of history, and returns its objects.
pub(crate) async fn open(
    choice: StoreChoice,
    retention: Duration,
    world: &World,
) -> Result<(Arc<dyn Store>, Vec<RecoveredRecord>), StoreError> {
    let options = store::Options {
        retention,
        compress_from: COMPRESS_FROM,
        leave_packed: true,
        ..store::Options::default()
    };
    match choice {
        StoreChoice::Memory => Ok((Arc::new(store::memory::open(&options, world.clone())), Vec::new())),
        StoreChoice::Restored { revision, records } => {
            let (engine, recovered) = store::memory::restore(&options, world.clone(), revision, records)?;
            Ok((Arc::new(engine), recovered))
        }
        StoreChoice::Directory(directory) => {
            let mut recovered = Vec::new();
            let engine = store::embedded::open(&directory, &options, world.clone(), &mut |record| {
                recovered.push(record)
            })?;
            Ok((Arc::new(engine), recovered))
        }
        StoreChoice::Etcd(options) => {
            let (etcd, recovered) = store_etcd::open(*options, world.clone()).await?;
            Ok((Arc::new(etcd), recovered))
        }
        StoreChoice::Opened(store) => Ok((store, Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use names::Names;
    use rest::hooks::Hooks;
    use rest::{Api, Storage};
    use schema::encode::EmptyLists;
    use schema::table::{Kind, Ref};
    use schema::{Value, decode, encode, proto, yaml};
    use std::num::NonZeroU64;
    use store::{BuildId, EncodedBy};

    fn build(number: u64) -> Option<BuildId> {
        NonZeroU64::new(number).map(BuildId)
    }

    /// The object as build 1 serves it after a value was recovered from a store.
    fn served(kind: &'static Kind, value: Vec<u8>, encoded_by: Option<BuildId>) -> Bytes {
        let (names, world): (_, World) = (Names::kubernetes(), env::Simulated::new(0, 1));
        let group = kind.group.full(&names.api_domain);
        let path = if kind.namespaced { "n/o" } else { "o" };
        let record = RecoveredRecord {
            revision: Revision(7),
            key: format!("/registry/{}/{path}", kind.store_key.replace("{group}", &group)).into(),
            value: Some(value.into()),
            previous: None,
            at: 0,
            expires_at: None,
            encoded_by: encoded_by.map(EncodedBy::new),
            history: false,
        };
        let store = Arc::new(store::memory::open(&store::Options::default(), world.clone()));
        let storage = Storage::new(store, vec![record], Default::default(), world.clone()).unwrap();
        let storage = storage.of_build(build(1));
        let api = Api::new(names, storage, world, Vec::new());
        let resource = api.register(Ref::Static(kind), Hooks::default()).unwrap();
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        resource
            .collection
            .cache
            .get(namespace, name)
            .unwrap_or_else(|| panic!("{}", kind.name))
            .json()
            .clone()
    }

    /// The value in the store of an object as it is served: without its revision.
    fn restored(json: &[u8]) -> Vec<u8> {
        let json = String::from_utf8(json.to_vec()).unwrap();
        json.replacen("\"resourceVersion\":\"7\"", "\"resourceVersion\":\"\"", 1).into()
    }

    /// JSON as other writers may encode it: reordered, and with whitespace.
    fn reencode(value: &Value, out: &mut String) {
        match value {
            Value::Map(map) => {
                let mut fields: Vec<_> = map.iter().collect();
                fields.reverse();
                out.push('{');
                for (at, (key, value)) in fields.into_iter().enumerate() {
                    out.push_str(if at == 0 { "\n" } else { " ,\n" });
                    out.push_str(&format!("  {key:?} : "));
                    reencode(value, out);
                }
                out.push_str(" }\n");
            }
            other => out.push_str(&String::from_utf8(encode::untyped(other)).unwrap()),
        }
    }

    #[test]
    fn objects_are_read_in_every_stored_form() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/samples");
        let mut read = 0;
        for file in std::fs::read_dir(samples).unwrap().map(|it| it.unwrap().path()) {
            let text = std::fs::read(&file).unwrap();
            let sample = yaml::parse(&text, yaml::Limits::default()).unwrap().value;
            let version = sample.text(&["apiVersion"]).to_owned();
            let domain = Names::kubernetes().api_domain;
            let is_it = |kind: &&&'static Kind| {
                let group = kind.group.full(&domain);
                let full = if group.is_empty() {
                    kind.version.to_string()
                } else {
                    format!("{group}/{}", kind.version)
                };
                kind.name == sample.text(&["kind"]) && full == version && kind.stored_as.is_none()
            };
            let Some(kind) = kinds::tables::KINDS.iter().find(is_it) else { continue };
            let mut object = decode::tree(sample.clone(), &kind.root).unwrap().value;
            object.set(&["metadata", "name"], "o");
            if kind.namespaced {
                object.set(&["metadata", "namespace"], "n");
            }
            let mut text = String::new();
            reencode(&object, &mut text);
            let message = proto::seal(&object, &kind.root);
            object.set(&["metadata", "resourceVersion"], "");
            let stored = encode::as_stored(&object, &kind.root, EmptyLists::Kept);
            let own = served(kind, stored, None);
            assert!(memchr::memmem::find(&own, br#""resourceVersion":"7""#).is_some(), "{own:?}");
            assert_eq!(served(kind, message, None), own, "{}", kind.name);
            assert_eq!(served(kind, text.into_bytes(), build(2)), own, "{}", kind.name);
            assert_eq!(served(kind, restored(&own), build(1)), own, "{}", kind.name);
            read += 1;
        }
        assert!(read > 40, "{read}");
    }
}
