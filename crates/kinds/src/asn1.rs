//! Errors of malformed certificates and certificate requests, with the API's texts.
//!
//! It checks only the outermost two layers; the parser reports errors in deeper ones.

use x509_parser::error::X509Error;
use x509_parser::nom;

const SEQUENCE: u8 = 16;

/// The beginning of an element.
struct Head {
    class: u8,
    compound: bool,
    tag: u8,
    length: usize,
    /// Bytes before the content.
    size: usize,
}

/// Reads the beginning; tags of more than one byte have no place here.
fn head(bytes: &[u8]) -> Option<Head> {
    let (first, length) = (*bytes.first()?, *bytes.get(1)?);
    let (length, size) = match length {
        0..=0x7f => (usize::from(length), 2),
        0x81..=0x84 => {
            let count = usize::from(length & 0x7f);
            let digits = bytes.get(2..2 + count)?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), 2 + count)
        }
        _ => return None,
    };
    Some(Head { class: first >> 6, compound: first & 0x20 != 0, tag: first & 0x1f, length, size })
}

impl Head {
    fn is_sequence(&self) -> bool {
        self.class == 0 && self.compound && self.tag == SEQUENCE
    }
}

/// The error of a malformed request in its outer layers.
pub(crate) fn broken(der: &[u8]) -> Option<String> {
    let mut rest = der;
    for name in ["certificateRequest", "tbsCertificateRequest"] {
        if rest.is_empty() {
            return Some("asn1: syntax error: sequence truncated".to_owned());
        }
        let Some(found) = head(rest) else {
            return Some("asn1: syntax error: truncated tag or length".to_owned());
        };
        if !found.is_sequence() {
            let Head { class, compound, tag, length, .. } = found;
            return Some(format!(
                "asn1: structure error: tags don't match (16 vs {{class:{class} tag:{tag} length:{length} \
                 isCompound:{compound}}}) {{optional:false explicit:false application:false private:false \
                 defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}} {name} @{}",
                found.size
            ));
        }
        rest = match rest.get(found.size..found.size + found.length) {
            Some(content) => content,
            None => return Some("asn1: syntax error: data truncated".to_owned()),
        };
    }
    None
}

/// The error of a malformed certificate.
pub(crate) fn bad_certificate(der: &[u8], why: &nom::Err<X509Error>) -> String {
    if let nom::Err::Error(X509Error::InvalidAlgorithmIdentifier) = why {
        return "x509: inner and outer signature algorithm identifiers don't match".to_owned();
    }
    let content = |bytes: &[u8]| {
        let head = head(bytes).filter(Head::is_sequence)?;
        bytes.get(head.size..head.size + head.length).map(<[u8]>::to_vec)
    };
    let whole = content(der);
    match whole.as_deref().map(content) {
        Some(None) => "x509: malformed tbs certificate".to_owned(),
        _ => "x509: malformed certificate".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_malformed_requests_match_upstream() {
        let error = |der: &[u8]| broken(der).unwrap_or_default();
        assert_eq!(error(b""), "asn1: syntax error: sequence truncated");
        assert_eq!(error(b"0"), "asn1: syntax error: truncated tag or length");
        assert_eq!(error(b"0\x05\x01"), "asn1: syntax error: data truncated");
        assert!(error(b"junk").starts_with(
            "asn1: structure error: tags don't match (16 vs {class:1 tag:10 length:117 isCompound:true})"
        ));
        assert!(error(b"0\x03\x02\x01\x01").ends_with(" tbsCertificateRequest @2"));
        assert_eq!(error(b"0\x02\x30\x00"), "");
        // a length that no memory could hold is read without being believed
        assert_eq!(error(b"0\x84\xff\xff\xff\xff"), "asn1: syntax error: data truncated");
    }
}
