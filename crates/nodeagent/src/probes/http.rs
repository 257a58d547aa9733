//! HTTP requests of probes and hooks, with the headers and error texts of upstream's client.
//!
//! One request per connection. A response is read up to a limit; certificates are not verified, since they are those of
//! containers.

use outbound::Target;
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes of a response's head, and of its body.
const HEAD_LIMIT: usize = 64 << 10;
const BODY_LIMIT: usize = 10 << 10;

/// The error of an HTTPS request to a server that speaks HTTP.
pub const PLAIN_ANSWER: &str = "http: server gave HTTP response to HTTPS client";

/// An HTTP or HTTPS URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub is_https: bool,
    pub host: String,
    pub port: u16,
    /// Whether the text names the port.
    pub has_port: bool,
    /// Path and query, from the slash on.
    pub path: String,
}

impl Url {
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.has_port { format!("{host}:{}", self.port) } else { host }
    }

    /// The target of a redirect.
    pub fn join(&self, location: &str) -> Option<Url> {
        let (is_https, rest) = match location {
            it if it.starts_with("https://") => (true, &it[8..]),
            it if it.starts_with("http://") => (false, &it[7..]),
            it if it.starts_with("//") => (self.is_https, &it[2..]),
            it if it.starts_with('/') => return Some(Url { path: it.to_owned(), ..self.clone() }),
            it => {
                let folder =
                    self.path.split('?').next().and_then(|it| it.rsplit_once('/')).map_or("", |it| it.0);
                return Some(Url { path: format!("{folder}/{it}"), ..self.clone() });
            }
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
            _ => (authority, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        let has_port = port.is_some();
        Some(Url { is_https, host, port: port.unwrap_or(if is_https { 443 } else { 80 }), has_port, path })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub location: Option<String>,
    pub body: String,
}

/// The limit of a request. Upstream's client has two timers for it, with a text each; before the connection stands,
/// either may win. Here they take turns by the number of the run.
#[derive(Debug, Clone, Copy)]
pub struct Timeout {
    pub limit: Duration,
    pub run: u64,
}

/// Sends a GET request with these headers; `Host` among them is the name that is sent. The error is upstream's text
/// after the URL.
pub async fn get(url: &Url, headers: &[(String, String)], timeout: Timeout) -> Result<Response, String> {
    let is_connected = AtomicBool::new(false);
    let exchange = exchange(url, headers, &is_connected);
    match env::io::timeout(timeout.limit, exchange).await {
        Ok(answer) => answer,
        Err(_) => {
            let why = match is_connected.load(Ordering::Relaxed) || timeout.run.is_multiple_of(2) {
                true => "context deadline exceeded",
                false => "net/http: request canceled while waiting for connection",
            };
            Err(format!("{why} (Client.Timeout exceeded while awaiting headers)"))
        }
    }
}

async fn exchange(
    url: &Url,
    headers: &[(String, String)],
    is_connected: &AtomicBool,
) -> Result<Response, String> {
    let host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = url.authority();
    let mut text = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", url.path, host.map_or(&*authority, |it| &it.1));
    for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        let clean = |it: &str| it.replace(['\r', '\n'], " ");
        text.push_str(&format!("{}: {}\r\n", clean(name), clean(value)));
    }
    text.push_str("\r\n");
    let stream = connect(&url.host, url.port).await?;
    if !url.is_https {
        is_connected.store(true, Ordering::Relaxed);
        return converse(stream, &text).await;
    }
    let name = rustls::pki_types::ServerName::try_from(url.host.clone()).map_err(|why| why.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(unverified_tls()?));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|why| match why.to_string() {
        it if it.contains("InvalidContentType") => PLAIN_ANSWER.to_owned(),
        _ => io_text(&why),
    })?;
    is_connected.store(true, Ordering::Relaxed);
    converse(stream, &text).await
}

/// Connects, with the error text of upstream.
pub async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let stream = TcpStream::connect((host, port)).await;
    stream.map_err(|why| format!("dial tcp {shown}: connect: {}", io_text(&why)))
}

/// The text of an I/O error without its code.
fn io_text(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::UnexpectedEof => return "EOF".into(),
        io::ErrorKind::ConnectionRefused => return "connection refused".into(),
        io::ErrorKind::ConnectionReset => return "connection reset by peer".into(),
        io::ErrorKind::HostUnreachable => return "no route to host".into(),
        io::ErrorKind::NetworkUnreachable => return "network is unreachable".into(),
        io::ErrorKind::TimedOut => return "connection timed out".into(),
        _ => {}
    }
    let text = why.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> Result<Response, String> {
    let text = |why: io::Error| io_text(&why);
    stream.write_all(request.as_bytes()).await.map_err(text)?;
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n").or_else(|| find(&bytes, b"\n\n")) {
            break end;
        }
        if bytes.len() > HEAD_LIMIT {
            return Err("net/http: server response headers exceeded limit".to_owned());
        }
        let read = stream.read_buf(&mut bytes).await;
        match read {
            Ok(0) => return Err("EOF".to_owned()),
            Ok(_) => {}
            Err(why) => return Err(text(why)),
        }
    };
    let body = bytes.split_off(head);
    parse(&bytes, body, &mut stream).await
}

fn find(bytes: &[u8], end: &[u8]) -> Option<usize> {
    bytes.windows(end.len()).position(|it| it == end).map(|at| at + end.len())
}

async fn parse(
    head: &[u8],
    mut body: Vec<u8>,
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Response, String> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|it| it.get(2..5)).and_then(|it| it.parse().ok());
    let Some(status) = status else {
        return Err(format!(
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response \"{first}\""
        ));
    };
    let header = |name: &str| {
        let mut pairs = lines.clone().filter_map(|it| it.split_once(':'));
        pairs.find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1.trim().to_owned())
    };
    let length: Option<usize> = header("content-length").and_then(|it| it.parse().ok());
    let is_chunked = header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"));
    let has_body = !matches!(status, 204 | 304) && status >= 200;
    let limit = length.unwrap_or(BODY_LIMIT * 2).min(BODY_LIMIT * 2);
    while has_body && body.len() < limit && !(is_chunked && body.ends_with(b"0\r\n\r\n")) {
        match stream.read_buf(&mut body).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    if is_chunked {
        body = dechunk(&body);
    }
    body.truncate(length.unwrap_or(usize::MAX).min(BODY_LIMIT));
    let body = if has_body { String::from_utf8_lossy(&body).into_owned() } else { String::new() };
    Ok(Response { status, location: header("location"), body })
}

fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end - 2]);
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
        let chunk = &bytes[end..bytes.len().min(end.saturating_add(size))];
        body.extend_from_slice(chunk);
        if size == 0 || chunk.len() < size {
            break;
        }
        bytes = &bytes[(end + size + 2).min(bytes.len())..];
    }
    body
}

/// Certificates of containers are not verified.
fn unverified_tls() -> Result<ClientConfig, String> {
    outbound::tls_config(&Target { insecure: true, ..Target::default() }).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let url = Url {
            is_https: false,
            host: "10.0.0.1".into(),
            port: 8080,
            has_port: true,
            path: "/a/b?x=1".into(),
        };
        let check = |location: &str| url.join(location).unwrap().to_string();
        assert_eq!(check("/c"), "http://10.0.0.1:8080/c");
        assert_eq!(check("c"), "http://10.0.0.1:8080/a/c");
        assert_eq!(check("https://other"), "https://other/");
        assert_eq!(check("http://other:81/x"), "http://other:81/x");
    }

    #[test]
    fn chunks_are_joined() {
        assert_eq!(dechunk(b"2\r\nok\r\n1;x=y\r\n\n\r\n0\r\n\r\n"), b"ok\n");
        assert_eq!(dechunk(b"ffff\r\nshort"), b"short");
    }
}
