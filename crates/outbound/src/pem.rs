//! PEM certificates, with errors that name the faulty one.

use crate::error::InvalidTarget;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fmt::Display;

/// The client certificate's name in errors.
pub(crate) const CLIENT_CERTIFICATE: &str = "the client certificate";

pub(crate) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, InvalidTarget> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad(what))?;
    if read.is_empty() {
        return Err(InvalidTarget::Tls { what, why: "there is no certificate in it".to_owned() });
    }
    Ok(read)
}

pub(crate) fn bad<E: Display>(what: &'static str) -> impl Fn(E) -> InvalidTarget {
    move |why| InvalidTarget::Tls { what, why: why.to_string() }
}
