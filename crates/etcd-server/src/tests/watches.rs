//! Watches over the wire.

use std::time::Duration;

use env::Simulated;
use grpc::etcd::event::EventType;
use grpc::etcd::watch_create_request::FilterType;
use grpc::etcd::watch_request::RequestUnion;
use grpc::etcd::{
    CompactionRequest, PutRequest, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest,
};

use super::{Kv, WatchStream, in_memory, options, start};
use crate::{Limits, Location};

fn all() -> WatchCreateRequest {
    WatchCreateRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_a_stream_get_their_own_changes() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    kv.put("a", "1").await;
    let mut stream = WatchStream::open(&server).await;
    let one = stream.create_as(WatchCreateRequest { key: "a".into(), ..Default::default() }).await;
    let chosen = WatchCreateRequest {
        key: "b".into(),
        range_end: "c".into(),
        watch_id: 7,
        prev_kv: true,
        ..Default::default()
    };
    let two = stream.create_as(chosen.clone()).await;
    assert_eq!((one.watch_id, two.watch_id, one.header.unwrap().revision), (0, 7, 2));
    let again = stream.create_as(chosen).await;
    assert!(again.canceled && again.cancel_reason.contains("duplicate watch ID"), "{again:?}");
    kv.put("b", "2").await;
    kv.put("b", "3").await;
    kv.put("a", "4").await;
    kv.delete("b", "").await;
    let mut received = Vec::new();
    while received.len() < 4 {
        let response = stream.next().await;
        for event in response.events {
            let previous = event.prev_kv.as_ref().map(|it| it.value.clone()).unwrap_or_default();
            let kv = event.kv.clone().unwrap();
            received.push((response.watch_id, event.r#type(), kv.value, previous, kv.mod_revision));
        }
    }
    received.sort_by_key(|it| it.4);
    assert_eq!(
        received,
        [
            (7, EventType::Put, "2".into(), "".into(), 3),
            (7, EventType::Put, "3".into(), "2".into(), 4),
            (0, EventType::Put, "4".into(), "".into(), 5),
            (7, EventType::Delete, "".into(), "3".into(), 6),
        ]
    );
    stream.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 7 }));
    let canceled = stream.next().await;
    assert!(canceled.canceled && canceled.watch_id == 7, "{canceled:?}");
    kv.put("b", "5").await;
    kv.put("a", "6").await;
    assert_eq!(stream.next().await.events[0].kv.as_ref().unwrap().mod_revision, 8);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_leave_out_changes() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    let mut stream = WatchStream::open(&server).await;
    stream.create_as(WatchCreateRequest { filters: vec![FilterType::Noput.into()], ..all() }).await;
    kv.put("a", "1").await;
    kv.delete("a", "").await;
    let response = stream.next().await;
    assert_eq!((response.events.len(), response.events[0].r#type()), (1, EventType::Delete));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_start_cancels_the_watch() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    for _ in 0..5 {
        kv.put("a", "1").await;
    }
    kv.0.compact(CompactionRequest { revision: 5, physical: true }).await.unwrap();
    let mut stream = WatchStream::open(&server).await;
    let created = stream.create(3).await;
    let canceled = stream.next().await;
    assert_eq!(
        (canceled.watch_id, canceled.canceled, canceled.compact_revision, canceled.cancel_reason.as_str()),
        (created.watch_id, true, 5, "etcdserver: mvcc: required revision has been compacted")
    );
    stream.create(5).await;
    let revisions = stream.next().await.events.into_iter().map(|it| it.kv.unwrap().mod_revision);
    assert_eq!(revisions.collect::<Vec<_>>(), [5, 6]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_the_revision_that_all_watches_have() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    for _ in 0..1200 {
        kv.put("a", "1").await;
    }
    let mut stream = WatchStream::open(&server).await;
    stream.create(1).await;
    stream.send(RequestUnion::ProgressRequest(WatchProgressRequest {}));
    let mut events = 0;
    let progress = loop {
        let response = stream.next().await;
        if response.events.is_empty() {
            break response;
        }
        events += response.events.len();
    };
    assert_eq!((events, progress.watch_id, progress.header.unwrap().revision), (1200, -1, 1201));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_watches_are_notified() {
    let world = Simulated::new(1_700_000_000, 1);
    let server = start(options(Location::Memory), world.clone()).await;
    let mut kv = Kv::new(&server);
    let mut stream = WatchStream::open(&server).await;
    let request = WatchCreateRequest { key: "a".into(), progress_notify: true, ..Default::default() };
    stream.create_as(request).await;
    kv.put("b", "1").await;
    // the change of another key moves the watch on without an event
    let mut stream_of_all = WatchStream::open(&server).await;
    stream_of_all.create(2).await;
    assert_eq!(stream_of_all.next().await.events.len(), 1);
    let notified = loop {
        world.advance(Duration::from_secs(601));
        let next = env::io::timeout(Duration::from_millis(50), stream.responses.message()).await;
        if let Ok(next) = next {
            break next.unwrap().unwrap();
        }
    };
    assert_eq!((notified.watch_id, notified.events.len(), notified.header.unwrap().revision), (0, 0, 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_responses_come_in_fragments() {
    let limits = Limits { max_request_bytes: 1000, ..Limits::default() };
    let server = start(crate::Options { limits, ..options(Location::Memory) }, super::seeded()).await;
    let mut kv = Kv::new(&server);
    for at in 0..10 {
        let request =
            PutRequest { key: format!("k{at}").into(), value: vec![b'v'; 400].into(), ..Default::default() };
        kv.put_request(request).await.unwrap();
    }
    let mut stream = WatchStream::open(&server).await;
    stream.create_as(WatchCreateRequest { start_revision: 1, fragment: true, ..all() }).await;
    let mut sizes = Vec::new();
    loop {
        let response = stream.next().await;
        sizes.push(response.events.len());
        if !response.fragment {
            break;
        }
    }
    assert_eq!(sizes, [2; 5]);
    server.stop().await;
}
