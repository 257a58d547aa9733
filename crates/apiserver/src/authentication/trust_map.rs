//! The `extension-apiserver-authentication` ConfigMap: authorities and headers by which extension API servers
//! trust this one.
//!
//! Invariant: it contains the authorities and headers of this server, beside those of other servers, except
//! expired certificates. Servers with different authorities so end up with all of them.

use crate::authentication::FrontProxy;
use crate::loopback;
use crate::serve::Authorities;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rest::{Api, ApiError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use schema::{Value, decode, encode};
use std::sync::Arc;

const NAME: &str = "extension-apiserver-authentication";

/// The authorities and headers of this server.
pub struct TrustMap {
    pub authorities: Arc<Authorities>,
    /// Options of front proxies.
    pub front_proxy: Option<FrontProxy>,
}

impl TrustMap {
    /// Creates the ConfigMap, or adds missing data.
    pub async fn ensure(&self, api: &Arc<Api>) -> Result<(), ApiError> {
        let clients = self.authorities.clients();
        let proxies = self.authorities.proxies().zip(self.front_proxy.as_ref());
        if clients.is_none() && proxies.is_none() {
            return Ok(());
        }
        let namespace = api.names.system_namespace();
        let resources = api.resources();
        let Some(resource) = resources.get("v1", "configmaps") else { return Ok(()) };
        let config_map = resource.collection.cache.get(&namespace, NAME);
        let config_map = config_map.and_then(|object| object.value(&resource.collection.kind).ok());
        let now = env::unix_seconds(&api.world);
        let mut object = config_map.clone().unwrap_or_else(Value::map);
        for (key, text) in desired_data(config_map.as_ref(), clients, proxies, now) {
            object.set(&["data", key], text);
        }
        if config_map.as_ref() == Some(&object) {
            return Ok(());
        }
        object.set(&["metadata", "name"], NAME);
        let name = if config_map.is_some() { NAME } else { "" };
        let target = loopback::WriteTarget { resource, namespace: &namespace, name, subresource: "" };
        // a concurrent server writes its own data; the next round adds the rest
        loopback::ignore_conflict(loopback::write(api, target, &object).await.map(drop))
    }
}

/// The data of the ConfigMap, given the `existing` one.
fn desired_data(
    existing: Option<&Value>,
    clients: Option<Vec<u8>>,
    proxies: Option<(Vec<u8>, &FrontProxy)>,
    now: i64,
) -> Vec<(&'static str, String)> {
    let held = |key: &str| existing.map_or("", |it| it.text(&["data", key]));
    let mut out = Vec::new();
    let bundle = |key: &'static str, own: &[u8]| (key, merge_bundles(held(key), own, now));
    if let Some(own) = &clients {
        out.push(bundle("client-ca-file", own));
    }
    if let Some((own, front)) = &proxies {
        out.push(bundle("requestheader-client-ca-file", own));
        let names = |names: &[http::HeaderName]| names.iter().map(canonical).collect::<Vec<_>>();
        let prefixes = front.extra_prefixes.iter().map(|it| canonical_text(it)).collect();
        for (key, own) in [
            ("requestheader-username-headers", names(&front.username_headers)),
            ("requestheader-group-headers", names(&front.group_headers)),
            ("requestheader-extra-headers-prefix", prefixes),
            ("requestheader-allowed-names", front.allowed_names.clone()),
        ] {
            out.push((key, list(held(key), own)));
        }
    }
    out
}

/// The canonical form of a header: `X-Remote-User`.
fn canonical(name: &http::HeaderName) -> String {
    canonical_text(name.as_str())
}

fn canonical_text(name: &str) -> String {
    let mut first = true;
    name.chars()
        .map(|c| {
            let upper_or_lower = if first { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            first = c == '-';
            upper_or_lower
        })
        .collect()
}

/// A JSON list: the existing entries, then the missing own ones.
fn list(held: &str, own: Vec<String>) -> String {
    let held = decode::json_untyped(held.as_bytes()).map(|it| it.value).unwrap_or_default();
    let held = held.as_list().unwrap_or(&[]).iter().filter_map(Value::as_str).map(str::to_owned);
    let mut all: Vec<String> = held.collect();
    all.extend(own.into_iter().filter(|one| !all.contains(one)).collect::<Vec<_>>());
    String::from_utf8_lossy(&encode::untyped(&crate::string_lists::texts(&all))).into_owned()
}

/// The union of both certificate bundles, without duplicates and expired certificates.
fn merge_bundles(held: &str, own: &[u8], now: i64) -> String {
    let mut all: Vec<CertificateDer<'static>> = Vec::new();
    for pem in [held.as_bytes(), own] {
        for certificate in CertificateDer::pem_slice_iter(pem).filter_map(Result::ok) {
            let is_valid = auth::x509::valid_until(&certificate).is_none_or(|until| until >= now);
            if is_valid && !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    all.iter().map(|it| pem(it)).collect()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(days: i64) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = time::OffsetDateTime::UNIX_EPOCH;
        params.not_after = time::OffsetDateTime::UNIX_EPOCH + time::Duration::days(days);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().replace("\r\n", "\n")
    }

    #[test]
    fn values_of_other_servers_are_kept_until_they_expire() {
        let (mine, theirs, old) = (certificate(9), certificate(5), certificate(1));
        let held = format!("{old}{theirs}{mine}");
        assert_eq!(merge_bundles(&held, mine.as_bytes(), 2 * 86_400), format!("{theirs}{mine}"));
        assert_eq!(merge_bundles("", mine.as_bytes(), 0), mine);
        let own = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(list(r#"["c","a"]"#, own()), r#"["c","a","b"]"#);
        assert_eq!(list("", own()), r#"["a","b"]"#);
        assert_eq!(canonical_text("x-remote-extra-"), "X-Remote-Extra-");
    }
}
