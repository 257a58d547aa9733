//! Certificates in PEM, with errors that say which one is wrong.

use crate::error::BadTarget;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fmt::Display;

/// What errors call the certificate that is shown.
pub(crate) const CLIENT_CERTIFICATE: &str = "the client certificate";

pub(crate) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, BadTarget> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad(what))?;
    if read.is_empty() {
        return Err(BadTarget::Tls { what, why: "there is no certificate in it".to_owned() });
    }
    Ok(read)
}

pub(crate) fn bad<E: Display>(what: &'static str) -> impl Fn(E) -> BadTarget {
    move |why| BadTarget::Tls { what, why: why.to_string() }
}
