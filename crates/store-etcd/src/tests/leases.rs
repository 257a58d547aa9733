//! Keys with a lease.

use super::*;

fn at(seconds: u64) -> i64 {
    (START + seconds) as i64
}

async fn put(run: &Running, key: &str, end: u64) -> Revision {
    let write = Write::put(registry(key), Expect::Any, "v").expiring(at(end));
    run.store.write(write).await.unwrap()
}

#[tokio::test]
async fn keys_end_and_their_end_is_reported() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    put(&run, "/soon", 100).await;
    put(&run, "/soon2", 100).await;
    put(&run, "/kept", 100).await;
    put(&run, "/late", 1000).await;
    run.put("/kept", Expect::Any, "for good").await.unwrap();
    etcd.pass(99);
    assert_eq!(etcd.keys(), 4, "not before the TTL");
    etcd.pass(6);
    run.catch_up().await.unwrap();
    let revision = etcd.revision();
    assert_eq!(run.changes()[5..], [format!("{revision} /soon=gone"), format!("{revision} /soon2=gone")]);
    etcd.pass(2000);
    run.catch_up().await.unwrap();
    assert_eq!((etcd.keys(), run.store.stats().live_keys), (1, 1));
}

#[tokio::test]
async fn keys_with_similar_expiry_share_a_lease() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for n in 0..20 {
        // an hour, and a little longer each
        put(&run, &format!("/{n}"), 3600 + n * 3).await;
    }
    assert_eq!(etcd.leases(), [(20, 3660)], "a minute longer than the first TTL");
    put(&run, "/beyond", 3661).await;
    assert_eq!(etcd.leases(), [(20, 3660), (1, 3721)]);
    put(&run, "/short", 10).await;
    assert_eq!(etcd.leases()[2], (1, 10));
    let mut all = tokio::task::JoinSet::new();
    for n in 0..1500 {
        let store = run.store.clone();
        let write = Write::put(format!("/registry/many/{n}"), Expect::Any, "v").expiring(at(7200));
        all.spawn(async move { store.write(write).await.unwrap() });
    }
    all.join_all().await;
    let counts: Vec<_> = etcd.leases()[3..].iter().map(|(keys, _)| *keys).collect();
    assert_eq!(counts, [1000, 500], "a lease has a thousand keys at most");
}

#[tokio::test]
async fn a_lost_lease_is_granted_again() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    put(&run, "/a", 3600).await;
    etcd.lose_leases();
    put(&run, "/b", 3600).await;
    assert_eq!(etcd.leases(), [(1, 3780)].map(|(keys, _)| (keys, 3660)));
}
