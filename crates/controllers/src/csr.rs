//! Requests for certificates, as the loops about them see them: what is asked for, and what was decided.
//!
//! What always holds: the subject is read as it will be written, so that a loop judges the names that those who believe
//! the certificate will see; of a common name that is there twice the last counts, everywhere.

use crate::Context;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition as Condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::{DateTime, Utc};
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

/// The group that every node's agent is in, and what the names of agents begin with.
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

/// Reads the request in its PEM block. Its signature is looked at only by who issues.
pub fn read(pem: &[u8]) -> Result<CertificateRequest, String> {
    let der = block(pem)?;
    asked(&parse(&der)?)
}

/// The same, signed by the key that the certificate is asked for.
pub fn read_signed(pem: &[u8]) -> Result<CertificateRequest, String> {
    let der = block(pem)?;
    let request = parse(&der)?;
    let signed = request.verify_signature();
    signed.map_err(|why| format!("unable to verify certificate request signature: {why}"))?;
    asked(&request)
}

fn block(pem: &[u8]) -> Result<CertificateSigningRequestDer<'static>, String> {
    CertificateSigningRequestDer::from_pem_slice(pem)
        .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())
}

fn parse<'a>(der: &'a CertificateSigningRequestDer<'_>) -> Result<X509CertificationRequest<'a>, String> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err("there is something behind the certificate request".to_owned()),
        Err(why) => Err(format!("malformed certificate request: {why}")),
    }
}

fn asked(request: &X509CertificationRequest<'_>) -> Result<CertificateRequest, String> {
    let info = &request.certification_request_info;
    let mut asked = CertificateRequest {
        subject: subject(&info.subject),
        public_key: info.subject_pki.raw.to_vec(),
        ..CertificateRequest::default()
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => asked.dns_names.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => asked.emails.push((*name).to_owned()),
                GeneralName::URI(name) => asked.uris.push((*name).to_owned()),
                GeneralName::IPAddress(octets) => asked.addresses.push(address(octets)?),
                // nobody here writes others
                _ => {}
            }
        }
    }
    Ok(asked)
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

/// A string in whatever alphabet it is written.
fn text_of(value: &Any<'_>) -> String {
    if value.tag() == Tag::BmpString {
        let units: Vec<u16> =
            value.data.chunks(2).map(|it| u16::from_be_bytes([it[0], *it.get(1).unwrap_or(&0)])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value.data).into_owned()
}

/// What is wrong with a request for the certificate by which a node's agent shows who it is.
pub fn agent_client_problem(asked: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
    let told = agent_problem(asked)
        .or_else(|| not_allowed("DNS", &asked.dns_names))
        .or_else(|| not_allowed("Email", &asked.emails))
        .or_else(|| not_allowed("IP", &asked.addresses))
        .or_else(|| not_allowed("URI", &asked.uris))
        .or_else(|| agent_name_problem(asked));
    told.or_else(|| usages_problem(usages, "client auth"))
}

/// What is wrong with a request for the certificate that a node's agent shows to its clients.
pub fn agent_serving_problem(asked: &CertificateRequest, usages: &BTreeSet<&str>) -> Option<String> {
    let nameless = asked.dns_names.is_empty() && asked.addresses.is_empty();
    let told = agent_problem(asked)
        .or_else(|| nameless.then(|| "DNS or IP subjectAltName is required".to_owned()))
        .or_else(|| not_allowed("Email", &asked.emails))
        .or_else(|| not_allowed("URI", &asked.uris))
        .or_else(|| usages_problem(usages, "server auth"));
    told.or_else(|| agent_name_problem(asked))
}

/// What is wrong with the usages of a certificate for clients of the API server.
pub fn client_problem(usages: &BTreeSet<&str>) -> Option<String> {
    let allowed = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Some(format!("invalid usage for client certificate: {other}"));
    }
    let missing = !usages.contains("client auth");
    missing.then(|| "missing required usage for client certificate: client auth".to_owned())
}

fn agent_problem(asked: &CertificateRequest) -> Option<String> {
    (asked.subject.organizations != [NODES]).then(|| format!("subject organization is not {NODES}"))
}

fn agent_name_problem(asked: &CertificateRequest) -> Option<String> {
    let other = !asked.subject.common_name.starts_with(NODE_PREFIX);
    other.then(|| format!("subject common name does not begin with {NODE_PREFIX} "))
}

fn not_allowed<T>(kind: &str, found: &[T]) -> Option<String> {
    (!found.is_empty()).then(|| format!("{kind} subjectAltNames are not allowed"))
}

/// Keys that cannot encipher need not say that they do.
fn usages_problem(usages: &BTreeSet<&str>, purpose: &str) -> Option<String> {
    let all = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let without = BTreeSet::from(["digital signature", purpose]);
    let told = || {
        let listed: Vec<_> = all.iter().copied().collect();
        format!("usages did not match [{}]", listed.join(" "))
    };
    (*usages != all && *usages != without).then(told)
}

/// The usages that are asked for.
pub fn usages(request: &CertificateSigningRequest) -> BTreeSet<&str> {
    request.spec.usages.iter().flatten().map(String::as_str).collect()
}

/// The condition of a type, where it is true.
pub fn condition<'a>(request: &'a CertificateSigningRequest, kind: &str) -> Option<&'a Condition> {
    let all = request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    all.iter().find(|it| it.type_ == kind && it.status == "True")
}

/// Whether somebody decided, whatever it was.
pub fn is_decided(request: &CertificateSigningRequest) -> bool {
    condition(request, APPROVED).is_some() || condition(request, DENIED).is_some()
}

pub fn is_approved(request: &CertificateSigningRequest) -> bool {
    condition(request, APPROVED).is_some() && condition(request, DENIED).is_none()
}

/// The certificate in PEM, once there is one.
pub fn issued(request: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    (!certificate.0.is_empty()).then_some(&certificate.0[..])
}

/// Until when a certificate is good, in Unix seconds.
pub fn good_until(pem: &[u8]) -> Option<i64> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The request with one more condition.
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
        reason: Some(reason.to_owned()),
        message: Some(message.into()),
        last_update_time: Some(Time(DateTime::<Utc>::from(context.world.now()))),
        last_transition_time: None,
    };
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    request
}

#[cfg(test)]
pub(crate) mod tests;
