//! The store of the API server, on this server.

use std::sync::Arc;
use std::time::Duration;

use grpc::etcd::alarm_request::AlarmAction;
use grpc::etcd::maintenance_client::MaintenanceClient;
use grpc::etcd::{AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest};
use outbound::Target;
use parking_lot::Mutex;
use store::{Expect, Store, StoreError, Write};

use super::{Kv, Limits, Options, channel, directory, in_memory, options, seeded, start};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_the_api_server_works_on_it() {
    let server = in_memory().await;
    let url = format!("http://{}", server.addresses()[0]);
    let options = store_etcd::Options {
        servers: vec![Target { url, ..Target::default() }],
        compaction_interval: None,
        size_poll_interval: None,
        ..store_etcd::Options::default()
    };
    let (store, recovered) = store_etcd::open(options.clone(), seeded()).await.unwrap();
    assert!(recovered.is_empty());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let subscriber = seen.clone();
    store
        .start(Box::new(move |changes| {
            subscriber.lock().extend(changes.iter().map(|it| (it.key.to_string(), it.revision.0)));
        }))
        .unwrap();
    let first = store.write(Write::put("/registry/a", Expect::Absent, "1")).await.unwrap();
    let conflict = store.write(Write::put("/registry/a", Expect::Absent, "2")).await;
    assert!(
        matches!(conflict, Err(StoreError::Conflict { current: Some(it), .. }) if it == first),
        "{conflict:?}"
    );
    let second = store.write(Write::put("/registry/a", Expect::Revision(first), "2")).await.unwrap();
    let third =
        store.write(Write::put("/registry/b", Expect::Any, "3").expiring(1_700_000_100)).await.unwrap();
    let fourth = store.write(Write::delete("/registry/a", Expect::Revision(second))).await.unwrap();
    let changes =
        [("/registry/a", first), ("/registry/a", second), ("/registry/b", third), ("/registry/a", fourth)];
    let changes = changes.map(|(key, revision)| (key.to_owned(), revision.0));
    assert_eq!(*seen.lock(), changes);
    store.close().await;
    let (store, recovered) = store_etcd::open(options, seeded()).await.unwrap();
    assert_eq!(
        recovered.iter().map(|it| (&*it.key, it.revision)).collect::<Vec<_>>(),
        [("/registry/b", third)]
    );
    store.close().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_the_api_server_reports_the_quota_until_the_alarm_is_disarmed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { quota_bytes: 8 << 20, ..Limits::default() };
    let server = start(Options { limits, ..options(directory(folder.path())) }, seeded()).await;
    let url = format!("http://{}", server.addresses()[0]);
    let options = store_etcd::Options {
        servers: vec![Target { url, ..Target::default() }],
        compaction_interval: None,
        size_poll_interval: None,
        ..store_etcd::Options::default()
    };
    let (store, _) = store_etcd::open(options, seeded()).await.unwrap();
    store.start(Box::new(|_| ())).unwrap();
    let put = || Write::put("/registry/large", Expect::Any, vec![1; 1 << 20]);
    let mut puts = 0;
    let refused = loop {
        match store.write(put()).await {
            Ok(_) => puts += 1,
            Err(why) => break why,
        }
        assert!(puts < 100);
    };
    assert!(refused.to_string().contains("disarm the alarm"), "{refused}");
    assert_eq!((store.stats().full, store.healthy()), (true, Err(refused)));
    let revision = store.write(Write::delete("/registry/large", Expect::Any)).await.unwrap().0 as i64;
    assert!(store.stats().full, "a deletion alone gives no space back");
    // as the error says: compact, defragment, disarm; no write of this server shows that it helped
    Kv::new(&server).0.compact(CompactionRequest { revision, physical: true }).await.unwrap();
    let mut maintenance = MaintenanceClient::new(channel(&server));
    maintenance.defragment(DefragmentRequest {}).await.unwrap();
    let disarm = AlarmRequest {
        action: AlarmAction::Deactivate.into(),
        alarm: AlarmType::Nospace.into(),
        member_id: 0,
    };
    maintenance.alarm(disarm).await.unwrap();
    while store.healthy().is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!store.stats().full);
    store.write(put()).await.unwrap();
    store.close().await;
    server.stop().await;
}
