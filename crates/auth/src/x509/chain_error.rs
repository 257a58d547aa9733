//! Errors of client certificate verification.

/// Why a chain is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("the certificate is signed by an unknown authority")]
    UnknownAuthority,
    #[error("a certificate of the chain cannot be read")]
    Malformed,
    #[error("a certificate of the chain has expired or is not yet valid")]
    OutsideValidity,
    #[error("a certificate of the chain has a critical extension that is not understood")]
    UnknownCriticalExtension,
    #[error("an issuer of the chain may not sign certificates")]
    NotAnAuthority,
    #[error("an issuer of the chain allows fewer certificates below it")]
    TooManyIntermediates,
    #[error("a signature of the chain is not valid, or its algorithm is not supported")]
    BadSignature,
    #[error("a certificate of the chain is not for clients")]
    WrongUsage,
    #[error("an issuer of the chain does not allow the names of the certificate")]
    NameNotPermitted,
    #[error("the key of the certificate is not supported")]
    UnsupportedKey,
    #[error("the chain takes too long to verify")]
    TooManySignatures,
}
