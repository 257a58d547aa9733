//! Static pods of a URL, read in intervals.
//!
//! A server of HTTPS is verified with the authorities of the operating system: what it says runs with all rights.

use super::static_pods::{StaticPlace, StaticSource, read};
use super::{PodChange, PodSet};
use crate::probes::http::Url;
use bytes::Bytes;
use env::World;
use http::header::{
    AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use outbound::{HttpClient, Limits, Target};
use std::time::Duration;
use tokio::sync::mpsc;

/// The time of a request with its redirects, and the longest document.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 10 << 20 };
/// Requests that redirects may cause.
const REQUESTS: usize = 10;
/// Headers that are for the host of the URL alone.
const SENSITIVE: &[HeaderName] = &[AUTHORIZATION, COOKIE, WWW_AUTHENTICATE];

/// Reads a URL.
pub struct UrlSource {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub node: String,
    pub interval: Duration,
    pub world: World,
}

impl UrlSource {
    pub async fn run(self, changes: mpsc::UnboundedSender<PodChange>) {
        let (mut set, mut last, mut is_first) = (PodSet::default(), Bytes::new(), true);
        let documents = match Documents::new(&self.url, &self.headers, None) {
            Ok(documents) => documents,
            Err(why) => {
                tracing::error!(url = %self.url, %why, "the URL of static pods is invalid");
                return;
            }
        };
        loop {
            match documents.read().await {
                Ok(document) if document.is_empty() => set.replace([], &changes),
                Ok(document) => {
                    if document != last {
                        let place = StaticPlace {
                            node: self.node.clone(),
                            source: StaticSource::Url,
                            origin: self.url.clone(),
                            seen: api::Time::from(self.world.now()).to_string(),
                        };
                        match read(&document, &place) {
                            Ok(pods) => set.replace(pods, &changes),
                            Err(why) => tracing::error!(url = %self.url, %why, "static pods cannot be read"),
                        }
                        last = document;
                    }
                }
                Err(why) => tracing::warn!(url = %self.url, %why, "no static pods"),
            }
            if std::mem::take(&mut is_first) {
                let _ = changes.send(PodChange::Synced);
            }
            env::sleep(&self.world, self.interval).await;
        }
    }
}

/// The documents at a URL.
struct Documents {
    client: HttpClient,
    url: Url,
    headers: HeaderMap,
}

impl Documents {
    /// `authorities` are those of the operating system if it is absent.
    fn new(url: &str, headers: &[(String, String)], authorities: Option<Vec<u8>>) -> Result<Self, String> {
        let base =
            Url { is_https: false, host: String::new(), port: 0, has_port: false, path: String::new() };
        let url = base.join(url).filter(|it| !it.host.is_empty()).ok_or("it has no host")?;
        // also for HTTP, which may redirect to HTTPS
        let verified = Url { is_https: true, ..url.clone() }.to_string();
        let target = Target { url: verified, authorities, ..Target::default() };
        let client = HttpClient::new(&target, LIMITS).map_err(|why| why.to_string())?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName =
                name.parse().map_err(|_| format!("the header {name:?} has no valid name"))?;
            let value =
                HeaderValue::from_str(value).map_err(|_| format!("the header {name} has no valid value"))?;
            map.append(name, value);
        }
        // the client knows the host
        map.remove(HOST);
        Ok(Documents { client, url, headers: map })
    }

    async fn read(&self) -> Result<Bytes, String> {
        let read = env::io::timeout(LIMITS.time, self.follow()).await;
        read.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }

    /// Reads the document, wherever redirects lead.
    async fn follow(&self) -> Result<Bytes, String> {
        let (mut url, mut headers) = (self.url.clone(), self.headers.clone());
        for _ in 0..REQUESTS {
            let response = self.client.fetch_with(&url.to_string(), &headers).await;
            let response = response.map_err(|why| why.to_string())?;
            let location = response.headers.get(LOCATION).and_then(|it| it.to_str().ok());
            match (response.status.as_u16(), location) {
                (200, _) => return Ok(response.body),
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    url = url.join(location).ok_or_else(|| format!("invalid redirect to {location:?}"))?;
                    headers = self.headers_for(&url);
                }
                (status, _) => return Err(format!("status {status}")),
            }
        }
        Err(format!("stopped after {REQUESTS} redirects"))
    }

    /// The headers for another place: secrets go to the same host and to names below it.
    fn headers_for(&self, url: &Url) -> HeaderMap {
        let mut headers = self.headers.clone();
        let (first, next) = (self.url.authority(), url.authority());
        if next != first && !next.ends_with(&format!(".{first}")) {
            SENSITIVE.iter().for_each(|name| drop(headers.remove(name)));
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::https_server::serve_https;

    /// A certificate for the address of tests with its key.
    fn certificate() -> String {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        made.cert.pem() + &made.signing_key.serialize_pem()
    }

    fn reply(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
            body.len()
        )
    }

    fn documents(port: u16, path: &str, pem: Option<&str>) -> Documents {
        let headers = [("Authorization", "secret"), ("X", "a"), ("X", "b"), ("Host", "other")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let url = format!("https://127.0.0.1:{port}{path}");
        Documents::new(&url, &headers, pem.map(|it| it.as_bytes().to_vec())).unwrap()
    }

    #[tokio::test]
    async fn static_pods_are_read_from_a_verified_server_alone() {
        let pem = certificate();
        let answer = |head: &str| {
            let head = head.to_lowercase();
            assert!(
                head.starts_with("get /pods?x=1 http/1.1\r\n") && head.contains("host: 127.0.0.1:"),
                "{head}"
            );
            assert!(
                head.contains("authorization: secret\r\n") && head.contains("x: a\r\nx: b\r\n"),
                "{head}"
            );
            reply("200 OK", "", "pods")
        };
        let port = serve_https(pem.as_bytes(), answer).await;
        assert_eq!(documents(port, "/pods?x=1", Some(&pem)).read().await.as_deref(), Ok(&b"pods"[..]));
        for unknown in [None, Some(&*certificate())] {
            let why = documents(port, "/pods?x=1", unknown).read().await.unwrap_err();
            assert!(why.contains("certificate"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_redirect_to_another_host_loses_credentials() {
        let pem = certificate();
        let other = serve_https(pem.as_bytes(), |head| match head.to_lowercase().contains("authorization") {
            true => reply("500 Error", "", ""),
            false => reply("200 OK", "", "moved"),
        });
        let other = other.await;
        let port = serve_https(pem.as_bytes(), move |head| match head.split(' ').nth(1).unwrap() {
            "/same" => reply("302 Found", "location: kept\r\n", ""),
            "/kept" if head.to_lowercase().contains("authorization: secret") => reply("200 OK", "", "kept"),
            "/other" => {
                reply("308 Permanent Redirect", &format!("location: https://127.0.0.1:{other}/\r\n"), "")
            }
            "/loop" => reply("307 Temporary Redirect", "location: /loop\r\n", ""),
            "/large" => reply("200 OK", "", &"x".repeat(LIMITS.answer + 1)),
            _ => reply("404 Not Found", "", "none"),
        });
        let port = port.await;
        let read = async |path: &str| documents(port, path, Some(&pem)).read().await;
        assert_eq!(read("/same").await.as_deref(), Ok(&b"kept"[..]));
        assert_eq!(read("/other").await.as_deref(), Ok(&b"moved"[..]));
        assert_eq!(read("/loop").await, Err("stopped after 10 redirects".to_owned()));
        assert_eq!(read("/none").await, Err("status 404".to_owned()));
        assert!(read("/large").await.unwrap_err().contains("10485760"));
    }
}
