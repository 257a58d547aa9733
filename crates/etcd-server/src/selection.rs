//! The answer to a range request, from the index as far as possible: values are read only for the keys that it has.

use bytes::Bytes;
use grpc::etcd::range_request::{SortOrder, SortTarget};
use grpc::etcd::{KeyValue, RangeRequest, RangeResponse, ResponseHeader};

use crate::error::Error;
use crate::index::{Index, KeyVersion, Revision};
use crate::key_range::KeyRange;

/// Reads the row of a revision.
pub trait Rows {
    fn row(&self, at: Revision) -> Result<KeyValue, Error>;
}

/// The keys of an answer.
pub struct Selection {
    keys: Vec<(Bytes, KeyVersion)>,
    count: usize,
    has_more: bool,
    keys_only: bool,
    /// Sort by value once they are read, and truncate to so many.
    by_value: Option<(SortOrder, usize)>,
}

impl Selection {
    /// Selects keys as they were at a revision.
    pub fn new(index: &Index, request: &RangeRequest, at: i64) -> Self {
        let range = KeyRange::new(&request.key, &request.range_end);
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let order = order(request);
        let is_filtered = is_filtered(request);
        // in the order of keys without filters, keys beyond the limit are only counted
        let early_limit = if order.is_none() && !is_filtered { limit } else { usize::MAX };
        let (mut keys, mut count) = (Vec::new(), 0);
        for (key, version) in index.range(&range, at) {
            count += 1;
            if !request.count_only && keys.len() < early_limit && is_within(request, &version) {
                keys.push((key.clone(), version));
            }
        }
        let mut by_value = None;
        let mut has_more = !request.count_only && early_limit < count;
        match order {
            Some((order, SortTarget::Value)) => by_value = Some((order, limit)),
            order => {
                sort(&mut keys, order);
                has_more |= keys.len() > limit;
                keys.truncate(limit);
            }
        }
        Selection { keys, count, has_more, keys_only: request.keys_only, by_value }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Reads the values.
    pub fn respond(mut self, rows: &dyn Rows, header: ResponseHeader) -> Result<RangeResponse, Error> {
        let mut kvs = Vec::with_capacity(self.keys.len());
        for (key, version) in self.keys {
            kvs.push(match self.keys_only && self.by_value.is_none() {
                true => without_value(key, &version),
                false => rows.row(version.at)?,
            });
        }
        if let Some((order, limit)) = self.by_value {
            kvs.sort_by(|a, b| directed(a.value.cmp(&b.value), order));
            self.has_more = kvs.len() > limit;
            kvs.truncate(limit);
            if self.keys_only {
                kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
            }
        }
        Ok(RangeResponse { header: Some(header), kvs, more: self.has_more, count: self.count as i64 })
    }
}

/// The order to sort in; `None` for that of the index.
fn order(request: &RangeRequest) -> Option<(SortOrder, SortTarget)> {
    match (request.sort_order(), request.sort_target()) {
        (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => None,
        (SortOrder::None, target) => Some((SortOrder::Ascend, target)),
        (order, target) => Some((order, target)),
    }
}

fn is_filtered(request: &RangeRequest) -> bool {
    [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ]
    .iter()
    .any(|bound| *bound != 0)
}

fn is_within(request: &RangeRequest, version: &KeyVersion) -> bool {
    let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    within(version.at.main, request.min_mod_revision, request.max_mod_revision)
        && within(version.created, request.min_create_revision, request.max_create_revision)
}

fn sort(keys: &mut [(Bytes, KeyVersion)], order: Option<(SortOrder, SortTarget)>) {
    let Some((order, target)) = order else { return };
    let field = |version: &KeyVersion| match target {
        SortTarget::Version => version.version,
        SortTarget::Create => version.created,
        SortTarget::Mod => version.at.main,
        SortTarget::Key | SortTarget::Value => 0,
    };
    keys.sort_by(|(key_a, a), (key_b, b)| {
        let by_field = field(a).cmp(&field(b));
        let compared = if target == SortTarget::Key { key_a.cmp(key_b) } else { by_field };
        directed(compared, order)
    });
}

fn directed(compared: std::cmp::Ordering, order: SortOrder) -> std::cmp::Ordering {
    if order == SortOrder::Descend { compared.reverse() } else { compared }
}

fn without_value(key: Bytes, version: &KeyVersion) -> KeyValue {
    KeyValue {
        key,
        create_revision: version.created,
        mod_revision: version.at.main,
        version: version.version,
        value: Bytes::new(),
        lease: version.lease,
    }
}
