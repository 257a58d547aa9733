//! The store of the API server, on this server.

use std::sync::Arc;

use outbound::Target;
use parking_lot::Mutex;
use store::{Expect, Store, StoreError, Write};

use super::{in_memory, seeded};

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
