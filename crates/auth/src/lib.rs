//! Authentication and authorization.
//!
//! Authentication turns credentials into a [`User`]: [`x509`] reads a client certificate, [`impersonate`] reads the
//! impersonation headers. Authorization is an [`Authorizer`]: a function from [`Attributes`] to a [`Decision`];
//! [`rbac`] decides by roles, [`abac`] by a list of policies.
//!
//! Invariants: this crate does no I/O, its only state is the current policy, and it knows neither HTTP nor
//! `Status`.

pub mod abac;
pub mod authorize;
pub mod impersonate;
pub mod rbac;
pub mod tokens;
mod user;
pub mod x509;

pub use abac::Abac;
pub use authorize::{
    AlwaysAllow, AlwaysDeny, Attributes, Authorizer, Chain, Decision, Failure, Mode, forbidden_message,
};
pub use rbac::Rbac;
pub use tokens::Tokens;
pub use user::*;

/// Why credentials or impersonation headers were rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The bytes are not a certificate, or its subject is not text.
    #[error("x509: malformed certificate: {0}")]
    MalformedCertificate(String),
    /// A certificate without a common name: it does not authenticate, and is not an error.
    #[error("x509: certificate has no common name")]
    NoCommonName,
    /// Impersonation of groups, uid or extra without a user.
    #[error("requested [{0}] without impersonating a user")]
    ImpersonationWithoutUser(String),
    /// A header value that is not UTF-8.
    #[error("header {0} is not valid UTF-8")]
    HeaderNotText(String),
}
