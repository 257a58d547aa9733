//! Faults of tokens.

/// Why a token that this server signed is rejected, as TokenReviews show it.
pub(super) type Fault = String;
