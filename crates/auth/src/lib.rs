//! Who is calling, and may they.
//!
//! Authentication turns what a connection or request shows into a [`User`]: [`x509`] reads a client
//! certificate, [`impersonate`] reads the headers with which one user asks to act as another. Authorization
//! is an [`Authorizer`]: a function from [`Attributes`] to a [`Decision`]; [`rbac`] decides by roles,
//! [`abac`] by a list of policies.
//!
//! What always holds: nothing here does I/O, the only state is the policy of the moment, and nothing here knows HTTP or renders a
//! `Status`. A certificate's chain is checked where the TLS connection is made; this crate only reads names.

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

/// Why a caller's claim about who it is could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The bytes are not a certificate, or its subject holds something that is not text.
    #[error("x509: malformed certificate: {0}")]
    MalformedCertificate(String),
    /// A certificate that names nobody: it neither identifies nor offends.
    #[error("x509: certificate has no common name")]
    NoCommonName,
    /// Impersonation of groups, uid or extra without saying whose they are.
    #[error("requested [{0}] without impersonating a user")]
    ImpersonationWithoutUser(String),
    /// A header value that is not UTF-8.
    #[error("header {0} is not valid UTF-8")]
    HeaderNotText(String),
}
