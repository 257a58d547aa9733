//! Errors of the plugin, in the form of the CNI specification.

use super::super::attachments::RangeExhausted;
use super::super::netlink::NetlinkError;
use serde_json::{Value, json};
use std::io;

/// Error codes of the specification; those of plugins begin at 100.
pub mod code {
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    pub const INVALID_ENVIRONMENT: u32 = 4;
    pub const IO_FAILURE: u32 = 5;
    pub const UNDECODABLE_CONTENT: u32 = 6;
    pub const INVALID_CONFIGURATION: u32 = 7;
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// The kernel refused a change.
    pub const NETWORK_FAILURE: u32 = 100;
    /// CHECK: the container is not attached as its result says.
    pub const NOT_ATTACHED: u32 = 101;
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniError {
    pub code: u32,
    pub message: String,
    pub details: String,
}

impl CniError {
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        CniError { code, message: message.into(), details: String::new() }
    }

    pub fn with_details(self, details: impl Into<String>) -> Self {
        CniError { details: details.into(), ..self }
    }

    /// A failure to read or write files.
    pub fn io(message: impl Into<String>, why: &io::Error) -> Self {
        CniError::new(code::IO_FAILURE, message).with_details(why.to_string())
    }

    pub fn encode(&self, version: &str) -> Value {
        let mut error = json!({"cniVersion": version, "code": self.code, "msg": self.message});
        if !self.details.is_empty() {
            error["details"] = self.details.clone().into();
        }
        error
    }
}

impl From<NetlinkError> for CniError {
    fn from(why: NetlinkError) -> Self {
        CniError::new(code::NETWORK_FAILURE, why.to_string())
    }
}

impl From<RangeExhausted> for CniError {
    fn from(why: RangeExhausted) -> Self {
        CniError::new(code::TRY_AGAIN_LATER, why.to_string())
    }
}
