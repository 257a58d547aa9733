//! Errors of the runtime as statuses of gRPC.

use crate::runtime::{RuntimeCode, RuntimeError};
use grpc::tonic::{Code, Status};

/// For `map_err`: the status of an error.
pub fn rpc_status(why: RuntimeError) -> Status {
    let code = match why.code {
        RuntimeCode::Unknown => Code::Unknown,
        RuntimeCode::InvalidArgument => Code::InvalidArgument,
        RuntimeCode::DeadlineExceeded => Code::DeadlineExceeded,
        RuntimeCode::NotFound => Code::NotFound,
        RuntimeCode::AlreadyExists => Code::AlreadyExists,
        RuntimeCode::PermissionDenied => Code::PermissionDenied,
        RuntimeCode::ResourceExhausted => Code::ResourceExhausted,
        RuntimeCode::FailedPrecondition => Code::FailedPrecondition,
        RuntimeCode::Unimplemented => Code::Unimplemented,
        RuntimeCode::Internal => Code::Internal,
        RuntimeCode::Unavailable => Code::Unavailable,
    };
    Status::new(code, why.message)
}

/// The status of a request without a field that it must have.
pub fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("{field} is not specified"))
}
