//! Verifies the chain of a client certificate by the rules of Go's `crypto/x509`, which upstream applies.
//!
//! Invariants: each certificate of an accepted chain is within its validity, its subject is the issuer of the one
//! before, it has signed the one before, it has no unknown critical extension, and it allows client authentication
//! if it limits its extended key usages. Issuers may sign certificates. The leaf may have any version, and may be a
//! CA itself. The search stops after [`MAX_SIGNATURES`] signatures.

use super::chain_error::ChainError;
use super::constraints;
use super::signature;
use crate::AuthError;
use std::collections::HashMap;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Version;

/// How many signatures are verified for one chain.
const MAX_SIGNATURES: usize = 100;

/// The CAs of client certificates.
#[derive(Debug, Default)]
pub struct Authorities {
    /// Certificates in DER by subject, in the given order.
    by_subject: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    subjects: Vec<Vec<u8>>,
}

impl Authorities {
    /// Parses certificates in DER.
    pub fn new<C: AsRef<[u8]>>(certificates: impl IntoIterator<Item = C>) -> Result<Self, AuthError> {
        let mut authorities = Authorities::default();
        for der in certificates {
            let der = der.as_ref();
            let (_, certificate) = X509Certificate::from_der(der).map_err(super::malformed)?;
            let subject = certificate.subject().as_raw().to_vec();
            if !authorities.subjects.contains(&subject) {
                authorities.subjects.push(subject.clone());
            }
            authorities.by_subject.entry(subject).or_default().push(der.to_vec());
        }
        Ok(authorities)
    }

    /// The subjects of all CAs in DER, by which clients choose a certificate.
    pub fn subjects(&self) -> &[Vec<u8>] {
        &self.subjects
    }

    /// Verifies that a CA has issued `leaf` for client authentication, directly or through some of `intermediates`.
    /// `now` is in Unix seconds.
    pub fn verify(&self, leaf: &[u8], intermediates: &[&[u8]], now: i64) -> Result<(), ChainError> {
        let leaf = read(leaf)?;
        if !signature::has_supported_key(&leaf) {
            return Err(ChainError::UnsupportedKey);
        }
        check_alone(&leaf, now)?;
        if self.issuers(leaf.subject().as_raw()).any(|root| root == leaf.as_raw()) {
            return check_usage(&[&leaf]);
        }
        let intermediates: Vec<_> = intermediates.iter().filter_map(|der| read(der).ok()).collect();
        let mut search = Search { authorities: self, intermediates: &intermediates, now, signatures: 0 };
        search.extend(&mut vec![&leaf])
    }

    fn issuers(&self, subject: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.by_subject.get(subject).into_iter().flatten().map(Vec::as_slice)
    }
}

/// The search for a path from a certificate to a CA.
struct Search<'a> {
    authorities: &'a Authorities,
    intermediates: &'a [X509Certificate<'a>],
    now: i64,
    signatures: usize,
}

impl<'a> Search<'a> {
    /// Continues from the last certificate of `chain`, which begins with the leaf. The error is that of the most
    /// promising path.
    fn extend(&mut self, chain: &mut Vec<&'a X509Certificate<'a>>) -> Result<(), ChainError> {
        let Some(child) = chain.last().copied() else { return Err(ChainError::UnknownAuthority) };
        let issuer = child.issuer().as_raw();
        let mut failure = ChainError::UnknownAuthority;
        for root in self.authorities.issuers(issuer) {
            let linked = read(root).and_then(|root| {
                self.check_link(chain, &root)?;
                let mut whole: Vec<&X509Certificate<'_>> = chain.clone();
                whole.push(&root);
                check_usage(&whole)
            });
            match linked {
                Ok(()) => return Ok(()),
                Err(why) => failure = why,
            }
            self.check_budget()?;
        }
        for candidate in self.intermediates {
            let repeats = chain.iter().any(|one| {
                one.subject().as_raw() == candidate.subject().as_raw()
                    && one.public_key().raw == candidate.public_key().raw
            });
            if candidate.subject().as_raw() != issuer || repeats {
                continue;
            }
            let linked = match may_issue_as_intermediate(candidate) {
                true => self.check_link(chain, candidate),
                false => Err(ChainError::NotAnAuthority),
            };
            let found = linked.and_then(|()| {
                chain.push(candidate);
                let found = self.extend(chain);
                chain.pop();
                found
            });
            match found {
                Ok(()) => return Ok(()),
                Err(ChainError::UnknownAuthority) => {}
                Err(why) => failure = why,
            }
            self.check_budget()?;
        }
        Err(failure)
    }

    fn check_budget(&self) -> Result<(), ChainError> {
        if self.signatures > MAX_SIGNATURES { Err(ChainError::TooManySignatures) } else { Ok(()) }
    }

    /// Checks that `issuer` may issue the last certificate of `chain`.
    fn check_link(
        &mut self,
        chain: &[&X509Certificate<'_>],
        issuer: &X509Certificate<'_>,
    ) -> Result<(), ChainError> {
        check_alone(issuer, self.now)?;
        let limit = basic_constraints(issuer)?.and_then(|(_, limit)| limit);
        // the certificates between the leaf and this one
        if limit.is_some_and(|limit| chain.len() - 1 > limit as usize) {
            return Err(ChainError::TooManyIntermediates);
        }
        if !may_sign(issuer)? {
            return Err(ChainError::NotAnAuthority);
        }
        constraints::check(issuer, chain)?;
        self.signatures += 1;
        self.check_budget()?;
        match chain.last() {
            Some(child) if signature::is_signed_by(child, issuer) => Ok(()),
            _ => Err(ChainError::BadSignature),
        }
    }
}

fn read(der: &[u8]) -> Result<X509Certificate<'_>, ChainError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(ChainError::Malformed),
    }
}

/// Checks a certificate by itself: its validity and its critical extensions.
fn check_alone(certificate: &X509Certificate<'_>, now: i64) -> Result<(), ChainError> {
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
        return Err(ChainError::OutsideValidity);
    }
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::ParseError { .. } => return Err(ChainError::Malformed),
            ParsedExtension::KeyUsage(_)
            | ParsedExtension::BasicConstraints(_)
            | ParsedExtension::SubjectAlternativeName(_)
            | ParsedExtension::NameConstraints(_)
            | ParsedExtension::CRLDistributionPoints(_)
            | ParsedExtension::AuthorityKeyIdentifier(_)
            | ParsedExtension::SubjectKeyIdentifier(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::CertificatePolicies(_)
            | ParsedExtension::AuthorityInfoAccess(_) => {}
            _ if extension.critical => return Err(ChainError::UnknownCriticalExtension),
            _ => {}
        }
    }
    // a repeated extension is ambiguous
    certificate.extensions_map().map(drop).map_err(|_| ChainError::Malformed)
}

/// The basic constraints: whether it is a CA, and the path length below it.
fn basic_constraints(certificate: &X509Certificate<'_>) -> Result<Option<(bool, Option<u32>)>, ChainError> {
    let constraints = certificate.basic_constraints().map_err(|_| ChainError::Malformed)?;
    Ok(constraints.map(|it| (it.value.ca, it.value.path_len_constraint)))
}

/// Whether its key may sign certificates. Certificates before version 3 have no key usage.
fn may_sign(issuer: &X509Certificate<'_>) -> Result<bool, ChainError> {
    let is_authority = match basic_constraints(issuer)? {
        Some((is_authority, _)) => is_authority,
        None => issuer.version() != X509Version::V3,
    };
    let usage = issuer.key_usage().map_err(|_| ChainError::Malformed)?;
    Ok(is_authority && usage.is_none_or(|it| it.value.flags == 0 || it.value.key_cert_sign()))
}

fn may_issue_as_intermediate(certificate: &X509Certificate<'_>) -> bool {
    matches!(basic_constraints(certificate), Ok(Some((true, _))))
}

/// Checks that every certificate that limits its extended key usages allows client authentication.
fn check_usage(chain: &[&X509Certificate<'_>]) -> Result<(), ChainError> {
    for certificate in chain {
        let usage = certificate.extended_key_usage().map_err(|_| ChainError::Malformed)?;
        if usage.is_some_and(|it| !it.value.any && !it.value.client_auth) {
            return Err(ChainError::WrongUsage);
        }
    }
    Ok(())
}
