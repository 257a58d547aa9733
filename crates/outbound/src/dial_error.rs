//! Errors of connecting, in the words of Go programs: clients and tests of upstream compare them.

use rustls::CertificateError;
use std::error::Error;
use std::io;
use std::path::Path;

/// The text of a failed request to `authority`.
pub fn describe(error: &(dyn Error + 'static), authority: &str) -> String {
    let causes = || causes(error);
    let is_lookup = causes().any(|cause| cause.to_string().starts_with("dns error"));
    if is_lookup {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        return format!("dial tcp: lookup {host}: no such host");
    }
    if let Some(text) = causes().find_map(certificate_error) {
        return text;
    }
    let of_system = causes().filter_map(|cause| cause.downcast_ref::<io::Error>());
    for cause in of_system {
        let text = match cause.kind() {
            io::ErrorKind::ConnectionRefused => "connect: connection refused",
            io::ErrorKind::HostUnreachable => "connect: no route to host",
            io::ErrorKind::NetworkUnreachable => "connect: network is unreachable",
            io::ErrorKind::TimedOut if cause.raw_os_error().is_some() => "connect: connection timed out",
            io::ErrorKind::TimedOut => "i/o timeout",
            io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
            io::ErrorKind::ConnectionReset => return "read: connection reset by peer".to_owned(),
            _ => continue,
        };
        return format!("dial tcp {authority}: {text}");
    }
    if causes()
        .any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message))
    {
        return "EOF".to_owned();
    }
    causes().last().map(ToString::to_string).unwrap_or_default()
}

/// The text of a gRPC call without a connection to the socket at `path`.
pub fn of_socket(why: &io::Error, path: &Path) -> String {
    // an abstract name begins with a zero byte, which Go writes as `@`
    let path = path.to_string_lossy().replacen('\0', "@", 1);
    dialing(&format!("dial unix {path}: connect: {}", io_text(why)))
}

/// The text of a gRPC call without a connection to the server at `authority`.
pub fn of_server(error: &(dyn Error + 'static), authority: &str) -> String {
    match describe(error, authority) {
        why if why.starts_with("x509: ") => {
            format!("connection error: desc = \"transport: authentication handshake failed: {why}\"")
        }
        why => dialing(&why),
    }
}

fn dialing(why: &str) -> String {
    format!("connection error: desc = \"transport: Error while dialing {why}\"")
}

/// An error of the system in the words of Go: in lower case, without its number.
pub fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    let Some((text, _)) = text.split_once(" (os error ") else { return text };
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// An error and its sources.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// Why a server's certificate was not accepted.
fn certificate_error(cause: &(dyn Error + 'static)) -> Option<String> {
    // an error of a handshake is wrapped, maybe twice, without being a source
    let mut inner = cause;
    while let Some(wrapped) = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        inner = wrapped;
    }
    let rustls::Error::InvalidCertificate(why) = inner.downcast_ref::<rustls::Error>()? else { return None };
    Some(match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "x509: certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, .. } => {
            format!("x509: certificate is not valid for {}", expected.to_str())
        }
        other => format!("x509: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_named_as_go_names_them() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(
            describe(&refused, "10.0.0.1:10250"),
            "dial tcp 10.0.0.1:10250: connect: connection refused"
        );
        let late = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(describe(&late, "h:1"), "dial tcp h:1: i/o timeout");
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let unknown = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, unknown));
        assert_eq!(describe(&unknown, "h:1"), "x509: certificate signed by unknown authority");
        assert_eq!(describe(&io::Error::other("odd"), "h:1"), "odd");
        assert_eq!(
            of_server(&refused, "h:1"),
            "connection error: desc = \"transport: Error while dialing dial tcp h:1: connect: connection refused\""
        );
        assert_eq!(
            of_server(&unknown, "h:1"),
            "connection error: desc = \"transport: authentication handshake failed: x509: certificate signed by unknown authority\""
        );
    }
}
