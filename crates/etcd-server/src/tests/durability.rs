//! What survives: an acknowledged write is in the file, whenever the process ends.

use grpc::etcd::maintenance_client::MaintenanceClient;
use grpc::etcd::{HashKvRequest, SnapshotRequest};
use sha2::{Digest, Sha256};
use std::fs;
use std::sync::Arc;

use ::metrics::Registry;

use super::{Kv, channel, directory, in_memory, options, start};
use crate::{Server, StartError};

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_write_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let server = start(options(directory(&live)), super::seeded()).await;
    let mut kv = Kv::new(&server);
    for at in 0..5 {
        let revision = kv.put("a", ["0", "1", "2", "3", "4"][at]).await;
        // what a process that is killed now would leave
        let image = folder.path().join(format!("image{at}"));
        fs::create_dir(&image).unwrap();
        fs::copy(live.join("store.redb"), image.join("store.redb")).unwrap();
        let recovered = start(options(directory(&image)), super::seeded()).await;
        let value = Kv::new(&recovered).get("a").await;
        assert_eq!((recovered.revision(), value), (revision, Some(at.to_string().into())));
        recovered.stop().await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let options = options(directory(&folder.path().join(name)));
        async { Server::start(options, Arc::new(Registry::default()), super::seeded()).await.err() }
    };
    fs::create_dir_all(folder.path().join("etcd/member/snap")).unwrap();
    let error = open("etcd").await.unwrap().to_string();
    assert!(error.contains("data of an etcd"), "{error}");
    let server = start(options(directory(&folder.path().join("used"))), super::seeded()).await;
    let error = open("used").await.unwrap().to_string();
    assert!(error.contains("in use"), "{error}");
    server.stop().await;
    let damaged = folder.path().join("used/store.redb");
    let length = fs::metadata(&damaged).unwrap().len() as usize;
    fs::write(&damaged, vec![0xa5; length]).unwrap();
    let error = open("used").await.unwrap();
    assert!(matches!(error, StartError::Open(_)) && error.to_string().contains("damaged"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_ends_with_its_hash() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    kv.put("a", "1").await;
    kv.delete("a", "").await;
    let mut maintenance = MaintenanceClient::new(channel(&server));
    let mut parts = maintenance.snapshot(SnapshotRequest {}).await.unwrap().into_inner();
    let (mut file, mut remaining) = (Vec::new(), Vec::new());
    while let Some(part) = parts.message().await.unwrap() {
        file.extend(part.blob);
        remaining.push(part.remaining_bytes);
    }
    let (data, hash) = file.split_at(file.len() - 32);
    assert_eq!((Sha256::digest(data).as_slice(), data.len() % 4096), (hash, 0));
    assert!(remaining.is_sorted_by(|a, b| a >= b) && remaining.last() == Some(&0), "{remaining:?}");
    // what etcd 3.4 answers after the same requests
    let hash = maintenance.hash_kv(HashKvRequest { revision: 0 }).await.unwrap().into_inner();
    assert_eq!((hash.hash, hash.compact_revision), (HASH_OF_ETCD, -1));
    server.stop().await;
}

/// Answered by etcd 3.4.23.
const HASH_OF_ETCD: u32 = 3_520_211_144;
