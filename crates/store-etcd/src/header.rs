//! Headers of etcd's responses, and revisions.

use grpc::etcd::ResponseHeader;

/// The cluster id and revision that every response carries.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub cluster: u64,
    pub revision: u64,
}

impl From<Option<ResponseHeader>> for Header {
    fn from(header: Option<ResponseHeader>) -> Self {
        let header = header.unwrap_or_default();
        Header { cluster: header.cluster_id, revision: revision(header.revision) }
    }
}

/// A revision as the store counts it; etcd has no negative ones.
pub(crate) fn revision(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
