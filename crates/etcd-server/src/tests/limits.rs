//! Limits of requests and of the file.

use bytes::Bytes;
use grpc::etcd::alarm_request::AlarmAction;
use grpc::etcd::maintenance_client::MaintenanceClient;
use grpc::etcd::request_op::Request as Op;
use grpc::etcd::{
    AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest, PutRequest, RangeRequest, RequestOp,
    StatusRequest, TxnRequest,
};
use grpc::tonic::Code;

use super::{Kv, channel, directory, in_memory, options, start};
use crate::{Limits, Options};

fn put_op(request: PutRequest) -> RequestOp {
    RequestOp { request: Some(Op::RequestPut(request)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_codes_and_texts_of_etcd() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    let key = Bytes::from("a");
    let mut refused = Vec::new();
    for request in [
        PutRequest::default(),
        PutRequest { key: key.clone(), ignore_value: true, ..Default::default() },
        PutRequest { key: key.clone(), value: "v".into(), ignore_value: true, ..Default::default() },
        PutRequest { key: key.clone(), value: vec![0; 2 << 20].into(), ..Default::default() },
    ] {
        let status = kv.put_request(request).await.unwrap_err();
        refused.push((status.code(), status.message().to_owned()));
    }
    for revision in [7, -1] {
        let range = kv.range(RangeRequest { key: key.clone(), revision, ..Default::default() }).await;
        refused.extend(range.err().map(|status| (status.code(), status.message().to_owned())));
    }
    let many = (0..129).map(|at| put_op(PutRequest { key: format!("k{at}").into(), ..Default::default() }));
    let status = kv.0.txn(TxnRequest { success: many.collect(), ..Default::default() }).await.unwrap_err();
    refused.push((status.code(), status.message().to_owned()));
    let expected = [
        (Code::InvalidArgument, "etcdserver: key is not provided"),
        (Code::InvalidArgument, "etcdserver: key not found"),
        (Code::InvalidArgument, "etcdserver: value is provided"),
        (Code::InvalidArgument, "etcdserver: request is too large"),
        (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
    ];
    assert_eq!(refused, expected.map(|(code, text)| (code, text.to_owned())));
    assert_eq!(server.revision(), 1, "a refused request changes nothing");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_operation_undoes_a_transaction() {
    let server = in_memory().await;
    let mut kv = Kv::new(&server);
    let missing = PutRequest { key: "b".into(), ignore_lease: true, ..Default::default() };
    let first = PutRequest { key: "a".into(), ..Default::default() };
    let nested = TxnRequest { success: vec![put_op(missing)], ..Default::default() };
    let nested = RequestOp { request: Some(Op::RequestTxn(nested)) };
    let request = TxnRequest { success: vec![put_op(first), nested], ..Default::default() };
    let status = kv.0.txn(request).await.unwrap_err();
    assert_eq!((status.message(), kv.get("a").await), ("etcdserver: key not found", None));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_takes_deletions() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { quota_bytes: 8 << 20, ..Limits::default() };
    let server = start(Options { limits, ..options(directory(folder.path())) }, super::seeded()).await;
    let (mut kv, mut maintenance) = (Kv::new(&server), MaintenanceClient::new(channel(&server)));
    let large = PutRequest { key: "large".into(), value: vec![1; 1 << 20].into(), ..Default::default() };
    let mut puts = 0;
    let status = loop {
        match kv.put_request(large.clone()).await {
            Ok(_) => puts += 1,
            Err(status) => break status,
        }
        assert!(puts < 100);
    };
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded")
    );
    let get = AlarmRequest::default();
    let alarms = maintenance.alarm(get).await.unwrap().into_inner().alarms;
    assert_eq!(alarms.iter().map(|it| it.alarm()).collect::<Vec<_>>(), [AlarmType::Nospace]);
    let status = maintenance.status(StatusRequest {}).await.unwrap().into_inner();
    assert!(status.errors[0].contains("NOSPACE"), "{status:?}");
    let revision = kv.delete("large", "").await.header.unwrap().revision;
    kv.0.compact(CompactionRequest { revision, physical: true }).await.unwrap();
    maintenance.defragment(DefragmentRequest {}).await.unwrap();
    let smaller = maintenance.status(StatusRequest {}).await.unwrap().into_inner();
    assert!(smaller.db_size < status.db_size && smaller.db_size_in_use <= smaller.db_size, "{smaller:?}");
    let clear = AlarmRequest {
        action: AlarmAction::Deactivate.into(),
        alarm: AlarmType::Nospace.into(),
        member_id: 0,
    };
    maintenance.alarm(clear).await.unwrap();
    kv.put("a", "1").await;
    assert!(maintenance.alarm(get).await.unwrap().into_inner().alarms.is_empty());
    server.stop().await;
}
