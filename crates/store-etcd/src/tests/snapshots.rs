//! Snapshots of an etcd.

use super::*;
use futures_util::TryStreamExt;

#[tokio::test]
async fn a_snapshot_has_all_keys_of_one_revision() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for n in 0..250 {
        run.put(&format!("/{n:03}"), Expect::Any, "before").await.unwrap();
    }
    let expiring = Write::put(registry("/expiring"), Expect::Any, "v").expiring((START + 100) as i64);
    run.store.write(expiring).await.unwrap();
    let snapshot = run.store.snapshot().await.unwrap();
    assert_eq!(snapshot.revision, run.store.revision());
    // the second page is read after these
    run.put("/249", Expect::Any, "after").await.unwrap();
    run.delete("/248", Expect::Any).await.unwrap();
    run.put("/250", Expect::Any, "after").await.unwrap();
    let records: Vec<_> = snapshot.pages.try_collect::<Vec<_>>().await.unwrap().concat();
    let expected: Vec<_> = (0..250).map(|n| registry(&format!("/{n:03}"))).collect();
    let (expiring, others): (Vec<_>, Vec<_>) = records.into_iter().partition(|it| it.expires_at.is_some());
    assert_eq!(others.iter().map(|it| it.key.to_string()).collect::<Vec<_>>(), expected);
    assert!(others.iter().all(|it| it.value == "before"));
    let ends: Vec<_> = expiring.iter().map(|it| (&*it.key, it.expires_at)).collect();
    // a lease lasts a twentieth longer than requested
    assert_eq!(ends, [("/registry/expiring", Some((START + 105) as i64))]);
}

#[tokio::test]
async fn a_key_whose_lease_has_ended_is_left_out() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let expiring = Write::put(registry("/a"), Expect::Any, "v").expiring((START + 100) as i64);
    run.store.write(expiring).await.unwrap();
    run.put("/b", Expect::Any, "v").await.unwrap();
    etcd.lose_leases();
    let pages = run.store.snapshot().await.unwrap().pages;
    let records = pages.try_collect::<Vec<_>>().await.unwrap().concat();
    assert_eq!(records.iter().map(|it| &*it.key).collect::<Vec<_>>(), ["/registry/b"]);
}
