//! Delegated authentication and authorization of the manager's port.

use super::super::{ConfigErrors, RequestHeaders};
use crate::flags::any_duration;
use api::core::v1::ConfigMap;
use apiserver::authentication::{self, FrontProxy};
use apiserver::authorization;
use clap::{ArgAction, Args};
use http::HeaderName;
use names::Names;
use outbound::{HttpClient, Limits, Target, Version};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authentication and authorization of the port")]
pub struct Delegation {
    /// The kubeconfig for token reviews and for the client authorities of the API server. Without it, requests with
    /// tokens are anonymous
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Do not read the client authorities from the API server
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub authentication_skip_lookup: bool,

    /// Start even if the client authorities cannot be read from the API server
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub authentication_tolerate_lookup_failure: bool,

    /// How long token reviews are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// The kubeconfig for subject access reviews. Without it only system:masters is authorized
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that need no authorization, comma-separated; * at the end for everything below
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long allowing access reviews are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authorization_webhook_cache_authorized_ttl: Duration,

    /// How long denying access reviews are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,

    /// Certificate authorities of clients, in PEM, besides those of the API server. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Certificate authorities of front proxies, in PEM [default: those of the API server]. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub request_headers: RequestHeaders,
}

/// The trusted client authorities: from flags, and from the API server's config map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTrust {
    pub clients: Option<String>,
    pub proxies: Option<String>,
    /// The headers in which front proxies pass the user.
    pub front: FrontProxy,
}

/// The authority files of the flags.
#[derive(Debug, Clone, Default)]
pub struct AuthorityFiles {
    clients: Option<PathBuf>,
    proxies: Option<PathBuf>,
}

impl ClientTrust {
    /// Reads the authority files again. Unusable files change nothing.
    #[must_use]
    pub fn reload(&self, files: &AuthorityFiles) -> Self {
        let read = |file: &Option<PathBuf>, last: &Option<String>| {
            let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
            let is_usable = |text: &String| {
                let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
                read.is_ok_and(|all| auth::x509::Authorities::new(&all).is_ok() && !all.is_empty())
            };
            text.filter(is_usable).or_else(|| last.clone())
        };
        ClientTrust {
            clients: read(&files.clients, &self.clients),
            proxies: read(&files.proxies, &self.proxies),
            front: self.front.clone(),
        }
    }

    /// Adds the authorities of the API server's config map; flags take precedence.
    #[must_use]
    pub fn merge(mut self, map: &ConfigMap) -> Self {
        let data = |key: &str| map.data.get(key).filter(|it| !it.is_empty());
        if let Some(more) = data("client-ca-file") {
            let own = self.clients.take().unwrap_or_default();
            self.clients = Some(format!("{}\n{more}", own.trim_end()));
        }
        if self.proxies.is_none()
            && let Some(proxies) = data("requestheader-client-ca-file")
        {
            let list = |key: &str| -> Vec<String> {
                data(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
            };
            let headers = |key: &str| -> Vec<HeaderName> {
                list(key).iter().filter_map(|name| name.to_lowercase().parse().ok()).collect()
            };
            let prefixes = list("requestheader-extra-headers-prefix");
            self.proxies = Some(proxies.clone());
            self.front = FrontProxy {
                allowed_names: list("requestheader-allowed-names"),
                username_headers: headers("requestheader-username-headers"),
                group_headers: headers("requestheader-group-headers"),
                extra_prefixes: prefixes.iter().map(|it| it.to_lowercase()).collect(),
            };
        }
        self
    }

    /// The front proxy configuration, if there are front proxy authorities.
    pub fn front_proxy(&self) -> Option<FrontProxy> {
        self.proxies.as_ref().map(|_| self.front.clone())
    }
}

impl Delegation {
    /// The client authorities of the flags.
    pub fn client_trust(&self, errors: &mut ConfigErrors) -> ClientTrust {
        ClientTrust {
            clients: errors.text("--client-ca-file", self.client_ca_file.as_deref()),
            proxies: errors
                .text("--requestheader-client-ca-file", self.requestheader_client_ca_file.as_deref()),
            front: self.request_headers.read(errors),
        }
    }

    pub fn files(&self) -> AuthorityFiles {
        AuthorityFiles {
            clients: self.client_ca_file.clone(),
            proxies: self.requestheader_client_ca_file.clone(),
        }
    }

    /// The webhook that reviews tokens.
    pub fn token_reviews(
        &self,
        names: &Names,
        errors: &mut ConfigErrors,
    ) -> Option<authentication::webhook::Options> {
        let file = self.authentication_kubeconfig.as_deref()?;
        let path = format!("/apis/{}/v1/tokenreviews", names.group("authentication"));
        let caller = reviews("--authentication-kubeconfig", file, &path, errors)?;
        Some(authentication::webhook::Options {
            version: Version::V1,
            ttl: self.authentication_token_webhook_cache_ttl,
            ..authentication::webhook::Options::new(caller)
        })
    }

    /// The webhook that reviews access.
    pub fn access_reviews(
        &self,
        names: &Names,
        errors: &mut ConfigErrors,
    ) -> Option<authorization::webhook::Options> {
        let file = self.authorization_kubeconfig.as_deref()?;
        let path = format!("/apis/{}/v1/subjectaccessreviews", names.group("authorization"));
        let caller = reviews("--authorization-kubeconfig", file, &path, errors)?;
        Some(authorization::webhook::Options {
            version: Version::V1,
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            ..authorization::webhook::Options::new(caller)
        })
    }
}

/// A client of an API server's review endpoint.
fn reviews(option: &str, file: &Path, path: &str, errors: &mut ConfigErrors) -> Option<HttpClient> {
    let mut target = errors.take(option, Target::from_kubeconfig(file))?;
    target.url = format!("{}{path}", target.url.trim_end_matches('/'));
    errors.take(option, HttpClient::new(&target, Limits::REVIEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_of_the_cluster_extend_the_flags() {
        let map = serde_json::json!({"metadata": {}, "data": {
            "client-ca-file": "B", "requestheader-client-ca-file": "P",
            "requestheader-allowed-names": "[\"front\"]", "requestheader-username-headers": "[\"X-Remote-User\"]"}});
        let map: ConfigMap = api::from_json(map.to_string().as_bytes()).unwrap();
        let both = ClientTrust { clients: Some("A\n".to_owned()), ..ClientTrust::default() }.merge(&map);
        assert_eq!(both.clients.as_deref(), Some("A\nB"));
        let front = both.front_proxy().unwrap();
        assert_eq!((front.allowed_names, front.username_headers.len()), (vec!["front".to_owned()], 1));
        let own = ClientTrust { proxies: Some("Q".to_owned()), ..ClientTrust::default() }.merge(&map);
        assert_eq!((own.proxies.as_deref(), own.front.allowed_names.len()), (Some("Q"), 0));
        assert!(ClientTrust::default().front_proxy().is_none());
    }

    #[test]
    fn files_that_can_be_used_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = AuthorityFiles { clients: Some(folder.path().join("ca.crt")), proxies: None };
        let write = |text: &str| std::fs::write(folder.path().join("ca.crt"), text).unwrap();
        let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
        let client_trust = ClientTrust {
            clients: Some("A".to_owned()),
            proxies: Some("P".to_owned()),
            ..ClientTrust::default()
        };
        assert_eq!(client_trust.reload(&files), client_trust, "a file that is not there");
        for useless in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            write(useless);
            assert_eq!(client_trust.reload(&files), client_trust, "{useless}");
        }
        write(&made);
        assert_eq!(client_trust.reload(&files), ClientTrust { clients: Some(made), ..client_trust.clone() });
    }
}
