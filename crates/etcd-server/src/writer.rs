//! The changes of one batch: requests are applied one after the other, to the index and to a transaction of the file.
//!
//! A request either changes nothing and returns an error, or is applied as a whole at one revision. An
//! [`Error::Storage`] ends the batch and all writing.

use bytes::Bytes;
use grpc::Message;
use grpc::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use grpc::etcd::request_op::Request as Op;
use grpc::etcd::response_op::Response as OpResponse;
use grpc::etcd::{
    AlarmType, Compare, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use redb::{ReadableTable, Table, WriteTransaction};

use crate::database::{LEASES, Meta, ROWS, RowKey, decode_row, write_meta};
use crate::error::Error;
use crate::history::RevisionChanges;
use crate::index::{KeyVersion, Revision};
use crate::key_range::KeyRange;
use crate::selection::{Rows, Selection};
use crate::shared::{Shared, check_revision};

/// The longest life of a lease, in seconds.
const MAX_LEASE_TTL: i64 = 9_000_000_000;

/// See the module.
pub struct Writer<'s, 't> {
    shared: &'s Shared,
    rows: Table<'t, RowKey, &'static [u8]>,
    leases: Table<'t, i64, i64>,
    /// The revision of the last request.
    revision: i64,
    /// The changes of the request that is being applied.
    current: Vec<KeyValue>,
    changes: Vec<RevisionChanges>,
    is_changed: bool,
    has_compacted: bool,
}

impl Rows for Writer<'_, '_> {
    fn row(&self, at: Revision) -> Result<KeyValue, Error> {
        decode_row(self.rows.get((at.main, at.sub)), at)
    }
}

impl<'s, 't> Writer<'s, 't> {
    pub fn new(shared: &'s Shared, transaction: &'t WriteTransaction, revision: i64) -> Result<Self, Error> {
        let open = || -> Result<_, redb::Error> {
            Ok((transaction.open_table(ROWS)?, transaction.open_table(LEASES)?))
        };
        let (rows, leases) = open()?;
        Ok(Self {
            shared,
            rows,
            leases,
            revision,
            current: Vec::new(),
            changes: Vec::new(),
            is_changed: false,
            has_compacted: false,
        })
    }

    /// Closes the tables: whether there is anything to commit, the new revision, and the changes up to it.
    pub fn finish(self, transaction: &WriteTransaction) -> Result<(bool, i64, Vec<RevisionChanges>), Error> {
        let Self { shared, rows, leases, revision, changes, is_changed, .. } = self;
        drop((rows, leases));
        if is_changed {
            let meta = Meta { revision, ..shared.state.read().meta(shared) };
            write_meta(transaction, meta)?;
        }
        Ok((is_changed, revision, changes))
    }

    pub fn has_compacted(&self) -> bool {
        self.has_compacted
    }

    pub fn compacted(&self) -> i64 {
        self.shared.state.read().compacted
    }

    /// Removes rows that a compaction has taken out of the index.
    pub fn remove_rows(&mut self, rows: &[Revision]) -> Result<(), Error> {
        for at in rows {
            self.rows.remove((at.main, at.sub)).map_err(redb::Error::from)?;
            self.is_changed = true;
        }
        Ok(())
    }

    pub fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Error> {
        self.check_put(request)?;
        self.check_space()?;
        let mut response = self.apply_put(request)?;
        response.header = Some(self.end_request());
        Ok(response)
    }

    pub fn delete_range(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        let mut response = self.apply_delete(request)?;
        response.header = Some(self.end_request());
        Ok(response)
    }

    /// Applies a transaction. All of its conditions, those of nested ones too, are about the state before it.
    pub fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        let mut branches = Vec::new();
        self.choose_branches(request, &mut branches)?;
        self.check_branches(request, &mut branches.iter())?;
        let mut response = self.apply_txn(request, &mut branches.iter())?;
        response.header = Some(self.end_request());
        Ok(response)
    }

    /// Forgets the history before a revision.
    pub fn compact(&mut self, revision: i64) -> Result<ResponseHeader, Error> {
        let mut state = self.shared.state.write();
        if revision <= state.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        state.compacted = revision;
        drop(state);
        (self.has_compacted, self.is_changed) = (true, true);
        Ok(self.end_request())
    }

    /// Adds a lease, with an id of the server's choice if it is 0. Returns the id and its life.
    pub fn grant_lease(&mut self, id: i64, ttl: i64) -> Result<(i64, i64, ResponseHeader), Error> {
        if ttl > MAX_LEASE_TTL {
            return Err(Error::LeaseTtlTooLarge);
        }
        self.check_space()?;
        let ttl = ttl.max(self.shared.limits.min_lease_ttl);
        let mut leases = self.shared.leases.lock();
        let is_free = |id: i64| id != 0 && leases.get(id).is_none();
        let id = match id {
            0 => loop {
                let id = (env::random_u64(&self.shared.world) >> 1).cast_signed();
                if is_free(id) {
                    break id;
                }
            },
            id if is_free(id) => id,
            _ => return Err(Error::LeaseExists),
        };
        leases.grant(id, ttl, self.shared.world.elapsed());
        drop(leases);
        self.leases.insert(id, ttl).map_err(redb::Error::from)?;
        self.is_changed = true;
        self.shared.leases_changed.notify_one();
        Ok((id, ttl, self.end_request()))
    }

    /// Ends a lease, and deletes its keys at one revision.
    pub fn revoke_lease(&mut self, id: i64) -> Result<ResponseHeader, Error> {
        let lease = self.shared.leases.lock().revoke(id).ok_or(Error::LeaseNotFound)?;
        self.leases.remove(id).map_err(redb::Error::from)?;
        self.is_changed = true;
        for key in lease.keys {
            self.apply_delete(&DeleteRangeRequest { key, ..Default::default() })?;
        }
        Ok(self.end_request())
    }

    /// The same for a lease that has ended; one that was renewed meanwhile is left alone. Returns whether it
    /// was ended.
    pub fn expire_lease(&mut self, id: i64) -> Result<bool, Error> {
        let now = self.shared.world.elapsed();
        let has_ended = self.shared.leases.lock().get(id).is_some_and(|lease| lease.expires_at <= now);
        if has_ended {
            self.revoke_lease(id)?;
        }
        Ok(has_ended)
    }

    /// Raises or clears an alarm. Returns whether that is a change.
    pub fn set_alarm(&mut self, alarm: AlarmType, is_raised: bool) -> bool {
        let mut state = self.shared.state.write();
        let bit = 1 << alarm as u32;
        let alarms = if is_raised { state.alarms | bit } else { state.alarms & !bit };
        let is_change = std::mem::replace(&mut state.alarms, alarms) != alarms;
        self.is_changed |= is_change;
        is_change
    }

    /// Counts a request, and gives its changes a revision.
    fn end_request(&mut self) -> ResponseHeader {
        self.shared.state.write().applied += 1;
        if !self.current.is_empty() {
            self.revision += 1;
            let changes = std::mem::take(&mut self.current);
            self.changes.push(RevisionChanges { revision: self.revision, changes });
        }
        self.shared.header(self.revision)
    }

    /// The revision that a read of this request sees.
    fn visible(&self) -> i64 {
        self.revision + i64::from(!self.current.is_empty())
    }

    /// The header inside of a transaction's response.
    fn inner_header(&self) -> ResponseHeader {
        ResponseHeader { revision: self.visible(), ..Default::default() }
    }

    fn check_space(&mut self) -> Result<(), Error> {
        let is_full = self.shared.database.size() > self.shared.limits.quota_bytes;
        if is_full && self.set_alarm(AlarmType::Nospace, true) {
            tracing::warn!("the file is larger than --quota-backend-bytes: keys are no longer put");
        }
        let is_raised = self.shared.state.read().alarms & (1 << AlarmType::Nospace as u32) != 0;
        if is_raised { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn check_put(&self, request: &PutRequest) -> Result<(), Error> {
        let needs_key = request.ignore_value || request.ignore_lease;
        if needs_key && self.shared.state.read().index.get(&request.key, self.visible()).is_none() {
            return Err(Error::KeyNotFound);
        }
        if request.lease != 0 && self.shared.leases.lock().get(request.lease).is_none() {
            return Err(Error::LeaseNotFound);
        }
        Ok(())
    }

    fn apply_put(&mut self, request: &PutRequest) -> Result<PutResponse, Error> {
        let before = self.shared.state.read().index.get(&request.key, self.visible());
        let previous = match before {
            Some(before) if request.prev_kv || request.ignore_value => Some(self.row(before.at)?),
            _ => None,
        };
        let value = match &previous {
            Some(previous) if request.ignore_value => previous.value.clone(),
            _ => request.value.clone(),
        };
        let old_lease = before.map_or(0, |it| it.lease);
        let main = self.revision + 1;
        let kv = KeyValue {
            key: request.key.clone(),
            create_revision: before.map_or(main, |it| it.created),
            mod_revision: main,
            version: before.map_or(1, |it| it.version + 1),
            value,
            lease: if request.ignore_lease { old_lease } else { request.lease },
        };
        self.shared.leases.lock().attach(&kv.key, old_lease, kv.lease);
        self.append(kv.encode_to_vec(), kv)?;
        self.shared.metrics.puts.inc();
        let prev_kv = previous.filter(|_| request.prev_kv);
        Ok(PutResponse { header: Some(self.inner_header()), prev_kv })
    }

    fn apply_delete(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        let range = KeyRange::new(&request.key, &request.range_end);
        let live: Vec<(Bytes, KeyVersion)> = {
            let state = self.shared.state.read();
            state.index.range(&range, self.visible()).map(|(key, it)| (key.clone(), it)).collect()
        };
        let deleted = live.len() as i64;
        let mut prev_kvs = Vec::new();
        for (key, version) in live {
            if request.prev_kv {
                prev_kvs.push(self.row(version.at)?);
            }
            self.shared.leases.lock().attach(&key, version.lease, 0);
            let row = KeyValue { key, ..Default::default() };
            let bytes = row.encode_to_vec();
            self.append(bytes, KeyValue { mod_revision: self.revision + 1, ..row })?;
            self.shared.metrics.deletes.inc();
        }
        Ok(DeleteRangeResponse { header: Some(self.inner_header()), deleted, prev_kvs })
    }

    /// Adds a change of the current request to file and index.
    fn append(&mut self, row: Vec<u8>, kv: KeyValue) -> Result<(), Error> {
        let at = Revision { main: self.revision + 1, sub: self.current.len() as u32 };
        self.rows.insert((at.main, at.sub), row.as_slice()).map_err(redb::Error::from)?;
        let KeyValue { create_revision: created, version, lease, .. } = kv;
        self.shared.state.write().index.push(&kv.key, KeyVersion { at, created, version, lease });
        self.current.push(kv);
        self.is_changed = true;
        Ok(())
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let state = self.shared.state.read();
        let at = check_revision(request.revision, self.visible(), state.compacted)?;
        let selection = Selection::new(&state.index, request, at);
        drop(state);
        selection.respond(self, self.inner_header())
    }

    /// Decides the branch of a transaction and of those nested in it, in the order in which they are applied.
    fn choose_branches(&self, request: &TxnRequest, branches: &mut Vec<bool>) -> Result<(), Error> {
        let mut holds = true;
        for compare in &request.compare {
            holds = holds && self.compare(compare)?;
        }
        branches.push(holds);
        for op in branch(request, holds) {
            if let Some(Op::RequestTxn(nested)) = &op.request {
                self.choose_branches(nested, branches)?;
            }
        }
        Ok(())
    }

    /// Checks the operations that are going to be applied, so that none of them fails half way.
    fn check_branches(
        &mut self,
        request: &TxnRequest,
        branches: &mut std::slice::Iter<'_, bool>,
    ) -> Result<(), Error> {
        let holds = branches.next().copied().unwrap_or_default();
        for op in branch(request, holds) {
            match &op.request {
                Some(Op::RequestRange(request)) => {
                    check_revision(request.revision, self.revision, self.compacted())?;
                }
                Some(Op::RequestPut(request)) => {
                    self.check_put(request)?;
                    self.check_space()?;
                }
                Some(Op::RequestTxn(nested)) => self.check_branches(nested, branches)?,
                Some(Op::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn apply_txn(
        &mut self,
        request: &TxnRequest,
        branches: &mut std::slice::Iter<'_, bool>,
    ) -> Result<TxnResponse, Error> {
        let succeeded = branches.next().copied().unwrap_or_default();
        let mut responses = Vec::new();
        for op in branch(request, succeeded) {
            let response = match &op.request {
                Some(Op::RequestRange(request)) => OpResponse::ResponseRange(self.range(request)?),
                Some(Op::RequestPut(request)) => OpResponse::ResponsePut(self.apply_put(request)?),
                Some(Op::RequestDeleteRange(request)) => {
                    OpResponse::ResponseDeleteRange(self.apply_delete(request)?)
                }
                Some(Op::RequestTxn(nested)) => OpResponse::ResponseTxn(self.apply_txn(nested, branches)?),
                None => continue,
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        Ok(TxnResponse { header: Some(self.inner_header()), succeeded, responses })
    }

    /// Whether every key of a condition compares as it says. A key that does not exist has no value, which compares
    /// with none; its numbers are 0.
    fn compare(&self, compare: &Compare) -> Result<bool, Error> {
        let range = KeyRange::new(&compare.key, &compare.range_end);
        let versions: Vec<KeyVersion> = {
            let state = self.shared.state.read();
            state.index.range(&range, self.revision).map(|(_, version)| version).collect()
        };
        if versions.is_empty() {
            let absent = KeyVersion { at: Revision { main: 0, sub: 0 }, created: 0, version: 0, lease: 0 };
            return Ok(compare.target() != CompareTarget::Value && compare_number(compare, &absent));
        }
        for version in versions {
            let holds = match compare.target() {
                CompareTarget::Value => {
                    let expected = match &compare.target_union {
                        Some(TargetUnion::Value(value)) => value.clone(),
                        _ => Bytes::new(),
                    };
                    matches_result(compare, self.row(version.at)?.value.cmp(&expected))
                }
                _ => compare_number(compare, &version),
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn branch(request: &TxnRequest, holds: bool) -> &[RequestOp] {
    if holds { &request.success } else { &request.failure }
}

fn compare_number(compare: &Compare, version: &KeyVersion) -> bool {
    let actual = match compare.target() {
        CompareTarget::Version => version.version,
        CompareTarget::Create => version.created,
        CompareTarget::Mod => version.at.main,
        CompareTarget::Lease => version.lease,
        CompareTarget::Value => return false,
    };
    let expected = match (compare.target(), &compare.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(it)))
        | (CompareTarget::Create, Some(TargetUnion::CreateRevision(it)))
        | (CompareTarget::Mod, Some(TargetUnion::ModRevision(it)))
        | (CompareTarget::Lease, Some(TargetUnion::Lease(it))) => *it,
        _ => 0,
    };
    matches_result(compare, actual.cmp(&expected))
}

fn matches_result(compare: &Compare, ordering: std::cmp::Ordering) -> bool {
    match compare.result() {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}
