//! Leases, by a clock that the test moves.

use std::time::Duration;

use env::Simulated;
use grpc::etcd::lease_client::LeaseClient;
use grpc::etcd::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    PutRequest,
};

use super::{Kv, WatchStream, channel, directory, options, start};

fn put(key: &'static str, lease: i64) -> PutRequest {
    PutRequest { key: key.into(), value: "v".into(), lease, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_go_with_their_lease_at_one_revision() {
    let world = Simulated::new(1_700_000_000, 1);
    let folder = tempfile::tempdir().unwrap();
    let server = start(options(directory(folder.path())), world.clone()).await;
    let (mut kv, mut leases) = (Kv::new(&server), LeaseClient::new(channel(&server)));
    let granted = leases.lease_grant(LeaseGrantRequest { id: 0, ttl: 10 }).await.unwrap().into_inner();
    let short = leases.lease_grant(LeaseGrantRequest { id: 9, ttl: 1 }).await.unwrap().into_inner();
    assert_eq!((granted.ttl, short.id, short.ttl), (10, 9, 2), "a lease has a shortest life");
    let exists = leases.lease_grant(LeaseGrantRequest { id: 9, ttl: 1 }).await.unwrap_err();
    assert_eq!(exists.message(), "etcdserver: lease already exists");
    for key in ["a", "b", "c"] {
        kv.put_request(put(key, granted.id)).await.unwrap();
    }
    // a put without the lease detaches the key
    kv.put("c", "kept").await;
    let ignoring = PutRequest { value: "w".into(), ignore_lease: true, ..put("b", 0) };
    kv.put_request(ignoring).await.unwrap();
    let missing = kv.put_request(put("d", 77)).await.unwrap_err();
    assert_eq!(missing.message(), "etcdserver: requested lease not found");

    let ask = LeaseTimeToLiveRequest { id: granted.id, keys: true };
    world.advance(Duration::from_secs(4));
    let left = leases.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((left.ttl, left.granted_ttl, left.keys), (6, 10, vec!["a".into(), "b".into()]));
    let request = LeaseKeepAliveRequest { id: granted.id };
    let mut alive =
        leases.lease_keep_alive(futures_util::stream::iter([request])).await.unwrap().into_inner();
    assert_eq!(alive.message().await.unwrap().unwrap().ttl, 10);
    let gone = LeaseKeepAliveRequest { id: 9 };
    let mut ended = leases.lease_keep_alive(futures_util::stream::iter([gone])).await.unwrap().into_inner();
    assert_eq!(ended.message().await.unwrap().unwrap().ttl, 0);

    // after a restart it lasts its whole life again
    world.advance(Duration::from_secs(9));
    server.stop().await;
    let server = start(options(directory(folder.path())), world.clone()).await;
    let (mut kv, mut leases) = (Kv::new(&server), LeaseClient::new(channel(&server)));
    let left = leases.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((left.ttl, left.keys.len()), (10, 2));
    let before = server.revision();
    let mut stream = WatchStream::open(&server).await;
    stream.create(0).await;
    world.advance(Duration::from_secs(11));
    let response = stream.next().await;
    let deleted: Vec<_> = response.events.iter().map(|it| it.kv.clone().unwrap()).collect();
    let deleted: Vec<_> = deleted.iter().map(|kv| (kv.key.clone(), kv.mod_revision)).collect();
    assert_eq!(deleted, [("a".into(), before + 1), ("b".into(), before + 1)]);
    assert_eq!(kv.get("c").await, Some("kept".into()));
    assert_eq!(leases.lease_time_to_live(ask).await.unwrap().into_inner().ttl, -1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lease_takes_its_keys() {
    let server = super::in_memory().await;
    let (mut kv, mut leases) = (Kv::new(&server), LeaseClient::new(channel(&server)));
    leases.lease_grant(LeaseGrantRequest { id: 5, ttl: 100 }).await.unwrap();
    kv.put_request(put("a", 5)).await.unwrap();
    let listed = leases.lease_leases(LeaseLeasesRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.leases.iter().map(|it| it.id).collect::<Vec<_>>(), [5]);
    let revoked = leases.lease_revoke(LeaseRevokeRequest { id: 5 }).await.unwrap().into_inner();
    assert_eq!((revoked.header.unwrap().revision, kv.get("a").await), (3, None));
    let again = leases.lease_revoke(LeaseRevokeRequest { id: 5 }).await.unwrap_err();
    assert_eq!(again.message(), "etcdserver: requested lease not found");
    let endless = leases.lease_grant(LeaseGrantRequest { id: 0, ttl: i64::MAX }).await.unwrap_err();
    assert_eq!(endless.message(), "etcdserver: too large lease TTL");
    server.stop().await;
}
