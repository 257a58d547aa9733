//! Encodes certificates.
//!
//! Only the subject, the alternative names and the key come from the request; subject and names are encoded again from
//! their parsed form. The certificate is never an authority, whatever the request says.

use crate::csr::{CertificateRequest, Subject};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::SignatureScheme;
use std::collections::BTreeSet;
use std::net::IpAddr;
use time::OffsetDateTime;
use yasna::models::{GeneralizedTime, ObjectIdentifier, UTCTime};
use yasna::{DERWriter, DERWriterSeq, Tag};

/// The contents of a certificate to issue.
#[derive(Clone, Copy)]
pub struct CertificateTemplate<'a> {
    pub request: &'a CertificateRequest,
    pub usages: &'a BTreeSet<&'a str>,
    /// All in Unix seconds.
    pub now: i64,
    pub not_before: i64,
    pub not_after: i64,
    /// Unique for an authority.
    pub serial: [u8; 16],
}

/// The issuer of a certificate.
pub struct Issuer<'a> {
    /// Its name, as it is encoded in its certificate.
    pub name: &'a [u8],
    pub key_id: Option<&'a [u8]>,
    pub scheme: SignatureScheme,
}

const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];
const CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const AUTHORITY_KEY: &[u64] = &[2, 5, 29, 35];
const EXTENDED_USAGE: &[u64] = &[2, 5, 29, 37];
/// The prefix of the object identifiers of extended key usages.
const PURPOSES: [u64; 8] = [1, 3, 6, 1, 5, 5, 7, 3];

/// Key usages, by bit.
const BITS: &[(&str, u8)] = &[
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Extended key usages, by the last number of their object identifier.
const EXTENDED: &[(&str, u64)] = &[
    ("server auth", 1),
    ("client auth", 2),
    ("code signing", 3),
    ("email protection", 4),
    ("s/mime", 4),
    ("ipsec end system", 5),
    ("ipsec tunnel", 6),
    ("ipsec user", 7),
    ("timestamping", 8),
    ("ocsp signing", 9),
];

/// Extended key usages with other object identifiers.
const OTHER_EXTENDED: &[(&str, &[u64])] = &[
    ("any", &[2, 5, 29, 37, 0]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

/// Encodes the part of a certificate that is signed.
pub fn body(template: &CertificateTemplate<'_>, issuer: &Issuer<'_>) -> Result<Vec<u8>, String> {
    let usages = Usages::parse(template.usages)?;
    let (not_before, not_after) = (moment(template.not_before)?, moment(template.not_after)?);
    let algorithm = algorithm(issuer.scheme)?;
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            // version 3
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&template.serial, true);
            writer.next().write_der(&algorithm);
            writer.next().write_der(issuer.name);
            writer.next().write_sequence(|writer| {
                time(writer.next(), not_before);
                time(writer.next(), not_after);
            });
            subject(writer.next(), &template.request.subject);
            writer.next().write_der(&template.request.public_key);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| extensions(writer, template, &usages, issuer));
            });
        });
    }))
}

/// Encodes a certificate from its signed part and the signature.
pub fn signed(body: &[u8], scheme: SignatureScheme, signature: &[u8]) -> Result<Vec<u8>, String> {
    let algorithm = algorithm(scheme)?;
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(body);
            writer.next().write_der(&algorithm);
            writer.next().write_bitvec_bytes(signature, signature.len() * 8);
        });
    }))
}

/// Encodes a certificate in PEM.
pub fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn algorithm(scheme: SignatureScheme) -> Result<Vec<u8>, String> {
    let (oid, has_parameters): (&[u64], bool) = match scheme {
        SignatureScheme::RSA_PKCS1_SHA256 => (&[1, 2, 840, 113_549, 1, 1, 11], true),
        SignatureScheme::ECDSA_NISTP256_SHA256 => (&[1, 2, 840, 10_045, 4, 3, 2], false),
        SignatureScheme::ECDSA_NISTP384_SHA384 => (&[1, 2, 840, 10_045, 4, 3, 3], false),
        SignatureScheme::ED25519 => (&[1, 3, 101, 112], false),
        other => return Err(format!("certificates are not signed with {other:?}")),
    };
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&ObjectIdentifier::from_slice(oid));
            if has_parameters {
                writer.next().write_null();
            }
        });
    }))
}

fn moment(unix: i64) -> Result<OffsetDateTime, String> {
    let moment = OffsetDateTime::from_unix_timestamp(unix);
    moment
        .ok()
        .filter(|it| (1950..=9999).contains(&it.year()))
        .ok_or_else(|| "a certificate cannot encode this time".to_owned())
}

/// Years until 2049 have two digits.
fn time(writer: DERWriter<'_>, moment: OffsetDateTime) {
    match moment.year() {
        1950..2050 => writer.write_utctime(&UTCTime::from_datetime(moment)),
        _ => writer.write_generalized_time(&GeneralizedTime::from_datetime(moment)),
    }
}

fn subject(writer: DERWriter<'_>, subject: &Subject) {
    let one = |text: &String| if text.is_empty() { Vec::new() } else { vec![text.clone()] };
    let parts: [(u64, Vec<String>); 9] = [
        (6, subject.countries.clone()),
        (10, subject.organizations.clone()),
        (11, subject.units.clone()),
        (7, subject.localities.clone()),
        (8, subject.provinces.clone()),
        (9, subject.streets.clone()),
        (17, subject.postal_codes.clone()),
        (3, one(&subject.common_name)),
        (5, one(&subject.serial_number)),
    ];
    writer.write_sequence_of(|writer| {
        for (number, texts) in parts.iter().filter(|(_, texts)| !texts.is_empty()) {
            writer.next().write_set_of(|writer| {
                for text in texts {
                    writer.next().write_sequence(|writer| {
                        writer.next().write_oid(&ObjectIdentifier::from_slice(&[2, 5, 4, *number]));
                        if is_printable(text) {
                            writer.next().write_printable_string(text);
                        } else {
                            writer.next().write_utf8_string(text);
                        }
                    });
                }
            });
        }
    });
}

/// Whether a text is a valid PrintableString.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&c))
}

fn extensions(
    writer: &mut DERWriterSeq<'_>,
    template: &CertificateTemplate<'_>,
    usages: &Usages,
    issuer: &Issuer<'_>,
) {
    if let Some((bytes, length)) = usages.bits() {
        extension(writer, KEY_USAGE, true, |writer| writer.write_bitvec_bytes(&bytes, length));
    }
    if !usages.purposes.is_empty() {
        extension(writer, EXTENDED_USAGE, false, |writer| {
            writer.write_sequence_of(|writer| {
                for purpose in &usages.purposes {
                    writer.next().write_oid(&ObjectIdentifier::from_slice(purpose));
                }
            });
        });
    }
    // an empty sequence: not an authority
    extension(writer, CONSTRAINTS, true, |writer| writer.write_sequence(|_| ()));
    if let Some(id) = issuer.key_id {
        extension(writer, AUTHORITY_KEY, false, |writer| {
            writer.write_sequence(|writer| {
                writer.next().write_tagged_implicit(Tag::context(0), |writer| writer.write_bytes(id));
            });
        });
    }
    let request = template.request;
    let names = request.dns_names.len() + request.emails.len() + request.addresses.len() + request.uris.len();
    if names > 0 {
        // critical if they are the only identity (RFC 5280, 4.2.1.6)
        let critical = request.subject == Subject::default();
        extension(writer, ALTERNATIVE_NAMES, critical, |writer| {
            writer.write_sequence_of(|writer| alternative_names(writer, request));
        });
    }
}

fn alternative_names(writer: &mut DERWriterSeq<'_>, request: &CertificateRequest) {
    let mut put = |tag: u64, bytes: &[u8]| {
        writer.next().write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(bytes));
    };
    request.dns_names.iter().for_each(|name| put(2, name.as_bytes()));
    request.emails.iter().for_each(|name| put(1, name.as_bytes()));
    for address in &request.addresses {
        match address {
            IpAddr::V4(address) => put(7, &address.octets()),
            IpAddr::V6(address) => put(7, &address.octets()),
        }
    }
    request.uris.iter().for_each(|name| put(6, name.as_bytes()));
}

fn extension(
    writer: &mut DERWriterSeq<'_>,
    oid: &[u64],
    critical: bool,
    content: impl FnOnce(DERWriter<'_>),
) {
    writer.next().write_sequence(|writer| {
        writer.next().write_oid(&ObjectIdentifier::from_slice(oid));
        if critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&yasna::construct_der(content));
    });
}

/// Usages as they are encoded.
struct Usages {
    set: BTreeSet<u8>,
    purposes: Vec<Vec<u64>>,
}

impl Usages {
    fn parse(names: &BTreeSet<&str>) -> Result<Self, String> {
        let (mut set, mut purposes) = (BTreeSet::new(), Vec::new());
        let mut unknown = Vec::new();
        for name in names {
            if let Some((_, bit)) = BITS.iter().find(|(known, _)| known == name) {
                set.insert(*bit);
            } else if let Some((_, last)) = EXTENDED.iter().find(|(known, _)| known == name) {
                purposes.push([&PURPOSES[..], &[*last]].concat());
            } else if let Some((_, oid)) = OTHER_EXTENDED.iter().find(|(known, _)| known == name) {
                purposes.push(oid.to_vec());
            } else {
                unknown.push(*name);
            }
        }
        if !unknown.is_empty() {
            return Err(format!("unrecognized usage values: {unknown:?}"));
        }
        purposes.sort();
        purposes.dedup();
        Ok(Usages { set, purposes })
    }

    /// The bits, and their number.
    fn bits(&self) -> Option<(Vec<u8>, usize)> {
        let last = usize::from(*self.set.last()?);
        let mut bytes = vec![0; last / 8 + 1];
        for bit in &self.set {
            bytes[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
        }
        Some((bytes, last + 1))
    }
}

#[cfg(test)]
mod tests;
