//! Random operations, compared with a model that keeps the whole state of every revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::{Seeded, World};
use grpc::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use grpc::etcd::event::EventType;
use grpc::etcd::range_request::{SortOrder, SortTarget};
use grpc::etcd::request_op::Request as Op;
use grpc::etcd::response_op::Response as OpResponse;
use grpc::etcd::{
    CompactionRequest, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseOp, TxnRequest,
};
use grpc::tonic::Status;

use super::{Kv, WatchStream, directory, options, start};

type Keys = BTreeMap<Bytes, KeyValue>;

/// All states of a store that was never compacted.
struct Model {
    /// By revision; the first is revision 1.
    states: Vec<Keys>,
    compacted: i64,
}

impl Model {
    fn revision(&self) -> i64 {
        self.states.len() as i64
    }

    fn current(&self) -> &Keys {
        self.states.last().unwrap()
    }

    /// Applies operations at the next revision; the count of deleted keys by operation.
    fn apply(&mut self, ops: &[RequestOp]) -> Vec<i64> {
        let (mut keys, revision) = (self.current().clone(), self.revision() + 1);
        let mut counts = Vec::new();
        let mut is_changed = false;
        for op in ops {
            let mut deleted = 0;
            match op.request.as_ref().unwrap() {
                Op::RequestPut(put) => {
                    let before = keys.get(&put.key);
                    let kv = KeyValue {
                        key: put.key.clone(),
                        create_revision: before.map_or(revision, |it| it.create_revision),
                        mod_revision: revision,
                        version: before.map_or(1, |it| it.version + 1),
                        value: put.value.clone(),
                        lease: 0,
                    };
                    keys.insert(put.key.clone(), kv);
                    is_changed = true;
                }
                Op::RequestDeleteRange(delete) => {
                    let before = keys.len();
                    keys.retain(|key, _| !is_within(key, &delete.key, &delete.range_end));
                    deleted = (before - keys.len()) as i64;
                    is_changed |= deleted > 0;
                }
                Op::RequestRange(_) | Op::RequestTxn(_) => {}
            }
            counts.push(deleted);
        }
        if is_changed {
            self.states.push(keys);
        }
        counts
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, &'static str> {
        let at = if request.revision > 0 { request.revision } else { self.revision() };
        if at > self.revision() {
            return Err("etcdserver: mvcc: required revision is a future revision");
        }
        if at < self.compacted {
            return Err("etcdserver: mvcc: required revision has been compacted");
        }
        let state = &self.states[at as usize - 1];
        let all = state.values().filter(|it| is_within(&it.key, &request.key, &request.range_end));
        let all: Vec<_> = all.cloned().collect();
        let count = all.len() as i64;
        let within = |value: i64, min: i64, max: i64| value >= min && (max == 0 || value <= max);
        let mut kvs: Vec<_> = all
            .into_iter()
            .filter(|it| {
                within(it.mod_revision, request.min_mod_revision, request.max_mod_revision)
                    && within(it.create_revision, request.min_create_revision, request.max_create_revision)
            })
            .collect();
        kvs.sort_by(|a, b| {
            let compared = match request.sort_target() {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            };
            if request.sort_order() == SortOrder::Descend { compared.reverse() } else { compared }
        });
        let limit = if request.limit > 0 { request.limit as usize } else { usize::MAX };
        let more = !request.count_only && kvs.len() > limit;
        kvs.truncate(if request.count_only { 0 } else { limit });
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(RangeResponse { header: None, kvs, more, count })
    }
}

fn is_within(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        end => key >= start && key < end,
    }
}

/// Random numbers of a seed.
struct Random(World);

impl Random {
    fn below(&self, limit: u64) -> u64 {
        env::random_u64(&self.0) % limit
    }

    fn key(&self) -> Bytes {
        Bytes::from(format!("k{}", self.below(12)))
    }

    fn range_end(&self) -> Bytes {
        match self.below(4) {
            0 => Bytes::from_static(b"\0"),
            1 => Bytes::from(format!("k{}", self.below(12))),
            _ => Bytes::new(),
        }
    }

    fn value(&self) -> Bytes {
        Bytes::from(self.below(1000).to_string())
    }

    fn read(&self, model: &Model) -> RangeRequest {
        let bound = || if self.below(4) == 0 { self.below(model.revision() as u64 + 2) as i64 } else { 0 };
        RangeRequest {
            key: if self.below(3) == 0 { Bytes::from_static(b"\0") } else { self.key() },
            range_end: self.range_end(),
            limit: if self.below(2) == 0 { self.below(6) as i64 } else { 0 },
            revision: if self.below(2) == 0 { self.below(model.revision() as u64 + 2) as i64 } else { 0 },
            sort_order: self.below(3) as i32,
            sort_target: self.below(5) as i32,
            keys_only: self.below(4) == 0,
            count_only: self.below(8) == 0,
            min_mod_revision: bound(),
            max_mod_revision: bound(),
            min_create_revision: bound(),
            max_create_revision: bound(),
            ..Default::default()
        }
    }

    fn put(&self) -> PutRequest {
        PutRequest { key: self.key(), value: self.value(), prev_kv: true, ..Default::default() }
    }

    fn delete(&self) -> DeleteRangeRequest {
        DeleteRangeRequest { key: self.key(), range_end: self.range_end(), prev_kv: true }
    }

    fn txn(&self, model: &Model) -> TxnRequest {
        let ops = || (0..self.below(4)).map(|_| self.op()).collect();
        let key = self.key();
        let current = model.current().get(&key).map_or(0, |it| it.mod_revision);
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key,
            target_union: Some(TargetUnion::ModRevision(current + (self.below(3) / 2) as i64)),
            range_end: Bytes::new(),
        };
        TxnRequest { compare: vec![compare], success: ops(), failure: ops() }
    }

    fn op(&self) -> RequestOp {
        let request = match self.below(3) {
            0 => Op::RequestDeleteRange(self.delete()),
            1 => Op::RequestRange(RangeRequest { key: self.key(), ..Default::default() }),
            _ => Op::RequestPut(self.put()),
        };
        RequestOp { request: Some(request) }
    }
}

fn compare_range(actual: Result<RangeResponse, Status>, expected: Result<RangeResponse, &str>, what: &str) {
    match (actual, expected) {
        (Ok(actual), Ok(expected)) => {
            assert_eq!(RangeResponse { header: None, ..actual }, expected, "{what}")
        }
        (Err(actual), Err(expected)) => assert_eq!(actual.message(), expected, "{what}"),
        (actual, expected) => panic!("{what}: {actual:?}, expected {expected:?}"),
    }
}

fn deleted(responses: &[ResponseOp]) -> Vec<i64> {
    let count = |it: &ResponseOp| match &it.response {
        Some(OpResponse::ResponseDeleteRange(response)) => response.deleted,
        _ => 0,
    };
    responses.iter().map(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_match_a_model() {
    for seed in 0..4 {
        println!("seed {seed}");
        let random = Random(Seeded::new(0, seed));
        let folder = tempfile::tempdir().unwrap();
        let mut server = start(options(directory(folder.path())), super::seeded()).await;
        let mut kv = Kv::new(&server);
        let mut model = Model { states: vec![Keys::new()], compacted: -1 };
        for step in 0..400 {
            let what = format!("seed {seed}, step {step}");
            match random.below(20) {
                0..=5 => {
                    let request = random.put();
                    let before = model.current().get(&request.key).cloned();
                    model.apply(&[RequestOp { request: Some(Op::RequestPut(request.clone())) }]);
                    let response = kv.put_request(request).await.unwrap();
                    assert_eq!(
                        (response.prev_kv, response.header.unwrap().revision),
                        (before, model.revision()),
                        "{what}"
                    );
                }
                6..=7 => {
                    let request = random.delete();
                    let before = model
                        .current()
                        .values()
                        .filter(|it| is_within(&it.key, &request.key, &request.range_end));
                    let before: Vec<_> = before.cloned().collect();
                    model.apply(&[RequestOp { request: Some(Op::RequestDeleteRange(request.clone())) }]);
                    let response = kv.0.delete_range(request).await.unwrap().into_inner();
                    assert_eq!(
                        (response.prev_kvs, response.header.unwrap().revision),
                        (before, model.revision()),
                        "{what}"
                    );
                }
                8..=11 => {
                    let request = random.txn(&model);
                    let compare = &request.compare[0];
                    let current = model.current().get(&compare.key).map_or(0, |it| it.mod_revision);
                    let holds = compare.target_union == Some(TargetUnion::ModRevision(current));
                    match kv.0.txn(request.clone()).await {
                        Ok(response) => {
                            let response = response.into_inner();
                            let counts = model.apply(if holds { &request.success } else { &request.failure });
                            assert_eq!(
                                (response.succeeded, deleted(&response.responses)),
                                (holds, counts),
                                "{what}"
                            );
                            assert_eq!(response.header.unwrap().revision, model.revision(), "{what}");
                        }
                        Err(status) => {
                            assert_eq!(
                                status.message(),
                                "etcdserver: duplicate key given in txn request",
                                "{what}"
                            );
                        }
                    }
                }
                12 if random.below(4) == 0 => {
                    let revision = random.below(model.revision() as u64 + 2) as i64;
                    let physical = random.below(2) == 0;
                    let result = kv.0.compact(CompactionRequest { revision, physical }).await;
                    let is_valid = revision > model.compacted && revision <= model.revision();
                    assert_eq!(result.is_ok(), is_valid, "{what}: {result:?}");
                    if is_valid {
                        model.compacted = revision;
                    }
                }
                13 if random.below(8) == 0 => {
                    drop(kv);
                    server.stop().await;
                    server = start(options(directory(folder.path())), super::seeded()).await;
                    kv = Kv::new(&server);
                    assert_eq!(server.revision(), model.revision(), "{what}");
                }
                _ => {
                    let request = random.read(&model);
                    compare_range(
                        kv.range(request.clone()).await,
                        model.range(&request),
                        &format!("{what}: {request:?}"),
                    );
                }
            }
        }
        replay(&server, &model, seed).await;
        server.stop().await;
    }
}

/// A watch from the oldest revision leads from the state there to the newest.
async fn replay(server: &crate::Server, model: &Model, seed: u64) {
    let first = model.compacted.max(1) + 1;
    let mut state = model.states[first as usize - 2].clone();
    let mut stream = WatchStream::open(server).await;
    stream.create(first).await;
    let mut revision = first - 1;
    while revision < model.revision() {
        for event in stream.next().await.events {
            let kv = event.kv.clone().unwrap();
            if kv.mod_revision != revision {
                assert_eq!(kv.mod_revision, revision + 1, "seed {seed}: revisions have no gaps");
                assert_eq!(state, model.states[revision as usize - 1], "seed {seed}, revision {revision}");
                revision = kv.mod_revision;
            }
            match event.r#type() {
                EventType::Put => state.insert(kv.key.clone(), kv),
                EventType::Delete => state.remove(&kv.key),
            };
        }
    }
    assert_eq!(&state, model.current(), "seed {seed}");
}
