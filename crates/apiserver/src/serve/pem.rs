//! PEM parsing of certificates.

use super::error::ServeError;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fmt;

pub(super) fn certificates(
    subject: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(problem(subject))?;
    match chain.is_empty() {
        true => Err(ServeError::Tls { subject, problem: "no certificate in it".to_owned() }),
        false => Ok(chain),
    }
}

pub(super) fn problem<E: fmt::Display>(subject: &'static str) -> impl Fn(E) -> ServeError {
    move |error| ServeError::Tls { subject, problem: error.to_string() }
}
