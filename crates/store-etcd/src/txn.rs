//! The transaction of a write: compares one key, then writes it, or reads it where the comparison fails. Further keys
//! may be claimed or released with it.

use bytes::Bytes;
use grpc::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use grpc::etcd::request_op::Request;
use grpc::etcd::response_op::Response;
use grpc::etcd::{self, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp};

use crate::header::Header;

/// A condition on a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// The mod revision is this; 0 if the key does not exist.
    ModIs(u64),
    /// The version (writes since creation) is this; 0 if the key does not exist.
    VersionIs(u64),
    /// The key exists.
    Exists,
}

impl Compare {
    /// Whether it holds for a key with this mod revision, if the key exists. The version is unknown here and is
    /// ignored.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Compare::ModIs(revision) => current.unwrap_or(0) == revision,
            Compare::VersionIs(_) => true,
            Compare::Exists => current.is_some(),
        }
    }

    fn message(self, key: &Bytes) -> etcd::Compare {
        let (result, target, value) = match self {
            Compare::ModIs(revision) => {
                (CompareResult::Equal, CompareTarget::Mod, TargetUnion::ModRevision(revision as i64))
            }
            Compare::VersionIs(version) => {
                (CompareResult::Equal, CompareTarget::Version, TargetUnion::Version(version as i64))
            }
            Compare::Exists => {
                (CompareResult::Greater, CompareTarget::Create, TargetUnion::CreateRevision(0))
            }
        };
        etcd::Compare {
            result: result.into(),
            target: target.into(),
            key: key.clone(),
            target_union: Some(value),
            ..etcd::Compare::default()
        }
    }
}

/// An operation on a key.
#[derive(Clone, Debug)]
pub(crate) enum TxnOp {
    Put { value: Bytes, lease: i64 },
    Delete,
}

impl TxnOp {
    fn message(&self, key: &Bytes) -> RequestOp {
        let request = match self {
            TxnOp::Put { value, lease } => {
                let (key, value) = (key.clone(), value.clone());
                Request::RequestPut(PutRequest { key, value, lease: *lease, ..PutRequest::default() })
            }
            TxnOp::Delete => Request::RequestDeleteRange(DeleteRangeRequest {
                key: key.clone(),
                ..DeleteRangeRequest::default()
            }),
        };
        RequestOp { request: Some(request) }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub key: Bytes,
    pub compare: Vec<Compare>,
    pub op: TxnOp,
    /// Whether the read after a failed comparison omits the value.
    pub keys_only: bool,
    /// Keys that must not exist; the transaction creates them with this key's name as value.
    pub taken: Vec<Bytes>,
    /// Keys that the transaction deletes.
    pub freed: Vec<Bytes>,
}

impl Txn {
    pub(crate) fn message(&self) -> etcd::TxnRequest {
        let absent = self.taken.iter().map(|key| Compare::ModIs(0).message(key));
        let hold = TxnOp::Put { value: self.key.clone(), lease: 0 };
        let taken = self.taken.iter().map(|key| hold.message(key));
        let freed = self.freed.iter().map(|key| TxnOp::Delete.message(key));
        // the reads after a failed comparison, this key first
        let read = |key: &Bytes| {
            let range =
                RangeRequest { key: key.clone(), keys_only: self.keys_only, ..RangeRequest::default() };
            RequestOp { request: Some(Request::RequestRange(range)) }
        };
        etcd::TxnRequest {
            compare: self.compare.iter().map(|it| it.message(&self.key)).chain(absent).collect(),
            success: [self.op.message(&self.key)].into_iter().chain(taken).chain(freed).collect(),
            failure: [&self.key].into_iter().chain(&self.taken).map(read).collect(),
        }
    }
}

/// The response to a [`Txn`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TxnOutcome {
    pub header: Header,
    pub succeeded: bool,
    /// The key, if the comparison failed.
    pub current: Option<KeyValue>,
    /// The keys of `taken` that exist, if the comparison failed.
    pub held: Vec<KeyValue>,
}

impl From<etcd::TxnResponse> for TxnOutcome {
    fn from(response: etcd::TxnResponse) -> Self {
        let mut reads = response.responses.into_iter().filter_map(|op| match op.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs.into_iter().next()),
            _ => None,
        });
        TxnOutcome {
            header: response.header.into(),
            succeeded: response.succeeded,
            current: reads.next().flatten(),
            held: reads.flatten().collect(),
        }
    }
}
