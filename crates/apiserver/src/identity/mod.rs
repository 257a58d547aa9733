//! Who is calling: everything that turns a token, a certificate or a header into a user.
//!
//! What always holds: what cannot be believed is refused, never taken for nobody; nothing about tokens or keys
//! is logged.

mod chain;
pub mod service_accounts;
pub mod webhook;

pub use chain::{Chain, Refusal};

use auth::Tokens;

/// What the operator decided about who is believed.
#[derive(Default)]
pub struct Options {
    /// Bearer tokens that are known from the start.
    pub tokens: Tokens,
    /// The private key, in PEM, that signs tokens of service accounts; without one none are given out.
    pub signing_key: Option<String>,
    /// What the issuer of these tokens calls itself, when it is not as usual.
    pub issuer: Option<String>,
    /// Another server that knows tokens.
    pub token_webhook: Option<webhook::Options>,
}
