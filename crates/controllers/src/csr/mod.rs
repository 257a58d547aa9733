//! Certificate signing requests: parsing, checks and conditions, for the controllers that approve, sign and delete
//! them.
//!
//! The subject is parsed as it will be written, so that checks apply to the names that a verifier of the certificate
//! will see; of several common names the last one is used everywhere.

use crate::Context;
use api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition as Condition};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use std::collections::BTreeSet;
use std::net::IpAddr;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

pub const APPROVED: &str = "Approved";
pub const DENIED: &str = "Denied";
pub const FAILED: &str = "Failed";

/// The group of kubelets, and the prefix of their user names.
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// A parsed certificate request (PKCS #10).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateRequest {
    pub subject: Subject,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    /// The structure with the public key.
    pub public_key: Vec<u8>,
}

/// The parts of a subject that certificates are written with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    pub countries: Vec<String>,
    pub organizations: Vec<String>,
    pub units: Vec<String>,
    pub localities: Vec<String>,
    pub provinces: Vec<String>,
    pub streets: Vec<String>,
    pub postal_codes: Vec<String>,
    pub common_name: String,
    pub serial_number: String,
}

/// Parses the PEM block of a request, without its signature.
pub fn parse(pem: &[u8]) -> Result<CertificateRequest, String> {
    let der = pem_block(pem)?;
    extract(&parse_der(&der)?)
}

/// Parses a request, and verifies that its own key signed it.
pub fn parse_signed(pem: &[u8]) -> Result<CertificateRequest, String> {
    let der = pem_block(pem)?;
    let request = parse_der(&der)?;
    let signature = request.verify_signature();
    signature.map_err(|why| format!("unable to verify certificate request signature: {why}"))?;
    extract(&request)
}

fn pem_block(pem: &[u8]) -> Result<CertificateSigningRequestDer<'static>, String> {
    CertificateSigningRequestDer::from_pem_slice(pem)
        .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())
}

fn parse_der<'a>(der: &'a CertificateSigningRequestDer<'_>) -> Result<X509CertificationRequest<'a>, String> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err("trailing data after the certificate request".to_owned()),
        Err(why) => Err(format!("malformed certificate request: {why}")),
    }
}

fn extract(request: &X509CertificationRequest<'_>) -> Result<CertificateRequest, String> {
    let info = &request.certification_request_info;
    let mut extracted = CertificateRequest {
        subject: subject(&info.subject),
        public_key: info.subject_pki.raw.to_vec(),
        ..CertificateRequest::default()
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => extracted.dns_names.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => extracted.emails.push((*name).to_owned()),
                GeneralName::URI(name) => extracted.uris.push((*name).to_owned()),
                GeneralName::IPAddress(octets) => extracted.addresses.push(address(octets)?),
                // certificates are issued without other names
                _ => {}
            }
        }
    }
    Ok(extracted)
}

fn address(octets: &[u8]) -> Result<IpAddr, String> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let any = four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from));
    any.map_err(|_| format!("malformed certificate request: an IP address of {} bytes", octets.len()))
}

fn subject(name: &X509Name<'_>) -> Subject {
    let mut subject = Subject::default();
    for attribute in name.iter_attributes() {
        let text = text_of(attribute.attr_value());
        match attribute.attr_type().to_id_string().as_str() {
            "2.5.4.3" => subject.common_name = text,
            "2.5.4.5" => subject.serial_number = text,
            "2.5.4.6" => subject.countries.push(text),
            "2.5.4.7" => subject.localities.push(text),
            "2.5.4.8" => subject.provinces.push(text),
            "2.5.4.9" => subject.streets.push(text),
            "2.5.4.10" => subject.organizations.push(text),
            "2.5.4.11" => subject.units.push(text),
            "2.5.4.17" => subject.postal_codes.push(text),
            _ => {}
        }
    }
    subject
}

/// A string of any of the ASN.1 string types.
fn text_of(value: &Any<'_>) -> String {
    if value.tag() == Tag::BmpString {
        let units: Vec<u16> =
            value.data.chunks(2).map(|it| u16::from_be_bytes([it[0], *it.get(1).unwrap_or(&0)])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value.data).into_owned()
}

/// Why a request is not valid for the client certificate of a kubelet.
pub fn agent_client_problem(request: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
    let names = agent_problem(request)
        .or_else(|| not_allowed("DNS", &request.dns_names))
        .or_else(|| not_allowed("Email", &request.emails))
        .or_else(|| not_allowed("IP", &request.addresses))
        .or_else(|| not_allowed("URI", &request.uris))
        .or_else(|| agent_name_problem(request));
    names.or_else(|| usages_problem(usages, "client auth"))
}

/// Why a request is not valid for the serving certificate of a kubelet.
pub fn agent_serving_problem(request: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
    let nameless = request.dns_names.is_empty() && request.addresses.is_empty();
    let names = agent_problem(request)
        .or_else(|| nameless.then(|| "DNS or IP subjectAltName is required".to_owned()))
        .or_else(|| not_allowed("Email", &request.emails))
        .or_else(|| not_allowed("URI", &request.uris))
        .or_else(|| usages_problem(usages, "server auth"));
    names.or_else(|| agent_name_problem(request))
}

/// Why usages are not valid for a client certificate of the API server.
pub fn client_problem(usages: &BTreeSet<&str>) -> Option<String> {
    let allowed = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Some(format!("invalid usage for client certificate: {other}"));
    }
    let missing = !usages.contains("client auth");
    missing.then(|| "missing required usage for client certificate: client auth".to_owned())
}

fn agent_problem(request: &CertificateRequest) -> Option<String> {
    (request.subject.organizations != [NODES]).then(|| format!("subject organization is not {NODES}"))
}

fn agent_name_problem(request: &CertificateRequest) -> Option<String> {
    let other = !request.subject.common_name.starts_with(NODE_PREFIX);
    other.then(|| format!("subject common name does not begin with {NODE_PREFIX} "))
}

fn not_allowed<T>(kind: &str, found: &[T]) -> Option<String> {
    (!found.is_empty()).then(|| format!("{kind} subjectAltNames are not allowed"))
}

/// `key encipherment` is optional, because not every type of key can do it.
fn usages_problem(usages: &BTreeSet<&str>, purpose: &str) -> Option<String> {
    let all = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let without = BTreeSet::from(["digital signature", purpose]);
    let message = || {
        let listed: Vec<_> = all.iter().copied().collect();
        format!("usages did not match [{}]", listed.join(" "))
    };
    (*usages != all && *usages != without).then(message)
}

/// The requested usages.
pub fn usages(request: &CertificateSigningRequest) -> BTreeSet<&str> {
    request.spec.usages.iter().map(String::as_str).collect()
}

/// The condition of a type, if it is true.
pub fn condition<'a>(request: &'a CertificateSigningRequest, kind: &str) -> Option<&'a Condition> {
    request.status.conditions.iter().find(|it| it.type_ == kind && it.status == "True")
}

/// Whether the request was approved or denied.
pub fn is_decided(request: &CertificateSigningRequest) -> bool {
    condition(request, APPROVED).is_some() || condition(request, DENIED).is_some()
}

pub fn is_approved(request: &CertificateSigningRequest) -> bool {
    condition(request, APPROVED).is_some() && condition(request, DENIED).is_none()
}

/// The issued certificate in PEM.
pub fn issued(request: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = &request.status.certificate.0;
    (!certificate.is_empty()).then_some(certificate)
}

/// When a certificate expires, in Unix seconds.
pub fn expiry(pem: &[u8]) -> Option<i64> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The request with a further condition.
pub fn with_condition(
    request: &CertificateSigningRequest,
    context: &Context,
    kind: &str,
    reason: &str,
    message: impl Into<String>,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let condition = Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        last_update_time: Some(context.time()),
        ..Condition::default()
    };
    request.status.conditions.push(condition);
    request
}

#[cfg(test)]
pub(crate) mod tests;
