//! Users of client certificates: the common name is the user name, each organization a group.
//!
//! Invariant: the names of a certificate count only after [`Authorities`] has verified its chain, once per
//! connection.

mod chain;
mod chain_error;
mod constraints;
mod signature;

#[cfg(test)]
mod tests;

pub use chain::Authorities;
pub use chain_error::ChainError;
pub use signature::{Handshake, HandshakeDigest, verify_handshake};

use std::net::IpAddr;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::{AuthError, User};

/// The user of a verified leaf certificate, in the group of authenticated users.
pub fn identify(leaf_der: &[u8]) -> Result<User, AuthError> {
    let (_, certificate) = X509Certificate::from_der(leaf_der).map_err(malformed)?;
    let subject = certificate.subject();
    // a subject may repeat the attribute; the last one counts, as it does upstream
    let name = match subject.iter_common_name().last() {
        Some(attribute) => text(attribute)?,
        None => return Err(AuthError::NoCommonName),
    };
    if name.is_empty() {
        return Err(AuthError::NoCommonName);
    }
    let groups = subject.iter_organization().map(text).collect::<Result<_, _>>()?;
    Ok(User { groups, ..User::named(name) }.authenticated())
}

/// The common name, which may be empty.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().last();
    Some(name.map(text).transpose().ok()?.unwrap_or_default())
}

/// The end of a certificate's validity, in Unix seconds.
pub fn valid_until(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The `SubjectPublicKeyInfo` of a certificate.
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate.tbs_certificate.subject_pki.raw)
}

/// The DNS names and IP addresses of a certificate, as text; empty if it cannot be parsed.
pub fn names(leaf_der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf_der) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|one| text(one).ok());
    let mut names: Vec<String> = common.collect();
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return names };
    names.extend(alternatives.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }));
    names
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, AuthError> {
    attribute.as_str().map(str::to_owned).map_err(malformed)
}

fn malformed(problem: impl std::fmt::Display) -> AuthError {
    AuthError::MalformedCertificate(problem.to_string())
}
