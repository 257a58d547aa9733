//! The errors of requests, with the codes and texts that clients of etcd compare.

use grpc::tonic::{Code, Status};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    #[error("etcdserver: key not found")]
    KeyNotFound,
    #[error("etcdserver: value is provided")]
    ValueProvided,
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    #[error("etcdserver: member not found")]
    MemberNotFound,
    #[error("etcdserver: authentication is not enabled")]
    AuthNotEnabled,
    #[error("etcdserver: server stopped")]
    Stopped,
    /// The file cannot be read or written: the server takes no further writes.
    #[error("etcdserver: {0}")]
    Storage(String),
    #[error("etcdserver: the snapshot failed: {0}")]
    Snapshot(String),
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Self::EmptyKey
            | Self::KeyNotFound
            | Self::ValueProvided
            | Self::LeaseProvided
            | Self::TooManyOps
            | Self::DuplicateKey
            | Self::InvalidSortOption
            | Self::RequestTooLarge => Code::InvalidArgument,
            Self::Compacted | Self::FutureRevision | Self::LeaseTtlTooLarge => Code::OutOfRange,
            Self::NoSpace => Code::ResourceExhausted,
            Self::Corrupt => Code::DataLoss,
            Self::LeaseNotFound | Self::MemberNotFound => Code::NotFound,
            Self::LeaseExists | Self::AuthNotEnabled => Code::FailedPrecondition,
            Self::Stopped | Self::Storage(_) => Code::Unavailable,
            Self::Snapshot(_) => Code::Internal,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Status::new(error.code(), error.to_string())
    }
}

impl From<redb::Error> for Error {
    fn from(error: redb::Error) -> Self {
        Self::Storage(format!("the store's file failed: {error}"))
    }
}
