//! The checks of requests that need no state.

use std::collections::BTreeSet;

use bytes::Bytes;
use grpc::etcd::range_request::{SortOrder, SortTarget};
use grpc::etcd::request_op::Request as Op;
use grpc::etcd::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};

use crate::error::Error;
use crate::key_range::KeyRange;

pub fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let is_sortable =
        SortOrder::try_from(request.sort_order).is_ok() && SortTarget::try_from(request.sort_target).is_ok();
    if is_sortable { Ok(()) } else { Err(Error::InvalidSortOption) }
}

pub fn put(request: &PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

pub fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Checks all operations of a transaction, with the nested ones.
pub fn txn(request: &TxnRequest, max_ops: usize) -> Result<(), Error> {
    check_level(request, max_ops)?;
    for branch in [&request.success, &request.failure] {
        written_keys(branch)?;
    }
    Ok(())
}

fn check_level(request: &TxnRequest, max_ops: usize) -> Result<(), Error> {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    if ops > max_ops {
        return Err(Error::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Op::RequestRange(request)) => range(request)?,
            Some(Op::RequestPut(request)) => put(request)?,
            Some(Op::RequestDeleteRange(request)) => delete_range(request)?,
            // what a level has used up is not there for those below it
            Some(Op::RequestTxn(request)) => check_level(request, max_ops - ops)?,
            // an operation that etcd does not have
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys that a list of operations writes.
#[derive(Default)]
struct WrittenKeys {
    puts: BTreeSet<Bytes>,
    deletes: Vec<KeyRange>,
}

impl WrittenKeys {
    fn is_in_conflict(&self, other: &Self) -> bool {
        let hits = |puts: &BTreeSet<Bytes>, deletes: &[KeyRange]| {
            deletes
                .iter()
                .filter(|range| !range.is_empty())
                .any(|range| puts.range::<[u8], _>(range.bounds()).next().is_some())
        };
        !self.puts.is_disjoint(&other.puts)
            || hits(&self.puts, &other.deletes)
            || hits(&other.puts, &self.deletes)
    }

    fn add(&mut self, other: Self) {
        self.puts.extend(other.puts);
        self.deletes.extend(other.deletes);
    }
}

/// The keys that a list of operations writes. A key that one of them puts and another puts or deletes is an error; the
/// two branches of a nested transaction exclude each other, and may write the same keys.
fn written_keys(ops: &[RequestOp]) -> Result<WrittenKeys, Error> {
    let mut all = WrittenKeys::default();
    for op in ops {
        let mut written = WrittenKeys::default();
        match &op.request {
            Some(Op::RequestPut(request)) => {
                written.puts.insert(request.key.clone());
            }
            Some(Op::RequestDeleteRange(request)) => {
                written.deletes.push(KeyRange::new(&request.key, &request.range_end));
            }
            Some(Op::RequestTxn(request)) => {
                written = written_keys(&request.success)?;
                written.add(written_keys(&request.failure)?);
            }
            Some(Op::RequestRange(_)) | None => {}
        }
        if all.is_in_conflict(&written) {
            return Err(Error::DuplicateKey);
        }
        all.add(written);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_op(key: &'static str) -> RequestOp {
        let request = PutRequest { key: Bytes::from(key), ..Default::default() };
        RequestOp { request: Some(Op::RequestPut(request)) }
    }

    fn delete_op(key: &'static str, end: &'static str) -> RequestOp {
        let request =
            DeleteRangeRequest { key: Bytes::from(key), range_end: Bytes::from(end), prev_kv: false };
        RequestOp { request: Some(Op::RequestDeleteRange(request)) }
    }

    fn txn_op(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        let request = TxnRequest { success, failure, ..Default::default() };
        RequestOp { request: Some(Op::RequestTxn(request)) }
    }

    fn check(success: Vec<RequestOp>) -> Result<(), Error> {
        txn(&TxnRequest { success, ..Default::default() }, 3)
    }

    #[test]
    fn a_key_is_written_once() {
        let duplicate = Err(Error::DuplicateKey);
        assert_eq!(check(vec![put_op("a"), put_op("b")]), Ok(()));
        assert_eq!(check(vec![put_op("a"), put_op("a")]), duplicate);
        assert_eq!(check(vec![put_op("b"), delete_op("a", "c")]), duplicate);
        assert_eq!(check(vec![delete_op("a", "c"), delete_op("b", "d"), put_op("d")]), Ok(()));
        assert_eq!(check(vec![txn_op(vec![put_op("a")], vec![put_op("a"), delete_op("b", "")])]), Ok(()));
        assert_eq!(check(vec![put_op("b"), txn_op(vec![], vec![delete_op("b", "")])]), duplicate);
        assert_eq!(check(vec![put_op("b"), delete_op("c", "a")]), Ok(()));
    }

    #[test]
    fn invalid_operations_are_found_at_every_level() {
        let many = || (0..4).map(|_| delete_op("a", "")).collect::<Vec<_>>();
        assert_eq!(check(many()), Err(Error::TooManyOps));
        assert_eq!(check(vec![txn_op(many(), vec![])]), Err(Error::TooManyOps));
        assert_eq!(check(vec![txn_op(vec![put_op("")], vec![])]), Err(Error::EmptyKey));
        assert_eq!(check(vec![delete_op("", "")]), Err(Error::EmptyKey));
        let ignoring =
            PutRequest { key: "a".into(), value: "v".into(), ignore_value: true, ..Default::default() };
        assert_eq!(put(&ignoring), Err(Error::ValueProvided));
        let unsortable = RangeRequest { key: "a".into(), sort_order: 9, ..Default::default() };
        assert_eq!(range(&unsortable), Err(Error::InvalidSortOption));
    }
}
