//! Who may look at the manager's own port, which the API server is asked about.

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
#[command(next_help_heading = "Who may look at it")]
pub struct Delegation {
    /// The kubeconfig by which the API server is asked whose a token is, and by which authorities clients are known.
    /// Without it who shows a token is nobody in particular
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Do not ask the API server by which authorities clients are known
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub authentication_skip_lookup: bool,

    /// Start even if the API server does not say by which authorities clients are known
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub authentication_tolerate_lookup_failure: bool,

    /// How long it is not asked again whose a token is
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// The kubeconfig by which the API server is asked whether somebody may. Without it nobody may but who is a master
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that everybody may look at, with commas between; * at the end is everything below
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long what is permitted is not asked again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authorization_webhook_cache_authorized_ttl: Duration,

    /// How long what is refused is not asked again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,

    /// The authorities by which clients are known, in PEM, besides those of the API server. Read again when it changes
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// The authorities for proxies that say in headers who is calling, in PEM [default: those of the API server]. Read
    /// again when it changes
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub request_headers: RequestHeaders,
}

/// By whom clients are known: what the operator said, and what the API server says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundOut {
    pub clients: Option<String>,
    pub proxies: Option<String>,
    /// How these say who is calling.
    pub front: FrontProxy,
}

/// The files that an operator named.
#[derive(Debug, Clone, Default)]
pub struct AuthorityFiles {
    clients: Option<PathBuf>,
    proxies: Option<PathBuf>,
}

impl FoundOut {
    /// The same with the authorities that the files hold now. Files that cannot be used change nothing.
    #[must_use]
    pub fn refreshed(&self, files: &AuthorityFiles) -> Self {
        let read = |file: &Option<PathBuf>, last: &Option<String>| {
            let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
            let is_usable = |text: &String| {
                let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
                read.is_ok_and(|all| auth::x509::Authorities::new(&all).is_ok() && !all.is_empty())
            };
            text.filter(is_usable).or_else(|| last.clone())
        };
        FoundOut {
            clients: read(&files.clients, &self.clients),
            proxies: read(&files.proxies, &self.proxies),
            front: self.front.clone(),
        }
    }

    /// With what the API server says, where the operator said nothing.
    #[must_use]
    pub fn with(mut self, told: &ConfigMap) -> Self {
        let data = |key: &str| told.data.get(key).filter(|it| !it.is_empty());
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

    /// How proxies say who is calling, if any may.
    pub fn front_proxy(&self) -> Option<FrontProxy> {
        self.proxies.as_ref().map(|_| self.front.clone())
    }
}

impl Delegation {
    /// By whom clients are known, as far as the operator said.
    pub fn said(&self, wrong: &mut ConfigErrors) -> FoundOut {
        FoundOut {
            clients: wrong.text("--client-ca-file", self.client_ca_file.as_deref()),
            proxies: wrong
                .text("--requestheader-client-ca-file", self.requestheader_client_ca_file.as_deref()),
            front: self.request_headers.read(wrong),
        }
    }

    pub fn files(&self) -> AuthorityFiles {
        AuthorityFiles {
            clients: self.client_ca_file.clone(),
            proxies: self.requestheader_client_ca_file.clone(),
        }
    }

    /// Whom to ask whose a token is.
    pub fn tokens(
        &self,
        names: &Names,
        wrong: &mut ConfigErrors,
    ) -> Option<authentication::webhook::Options> {
        let file = self.authentication_kubeconfig.as_deref()?;
        let path = format!("/apis/{}/v1/tokenreviews", names.group("authentication"));
        let caller = reviews("--authentication-kubeconfig", file, &path, wrong)?;
        Some(authentication::webhook::Options {
            version: Version::V1,
            ttl: self.authentication_token_webhook_cache_ttl,
            ..authentication::webhook::Options::new(caller)
        })
    }

    /// Whom to ask whether somebody may.
    pub fn permissions(
        &self,
        names: &Names,
        wrong: &mut ConfigErrors,
    ) -> Option<authorization::webhook::Options> {
        let file = self.authorization_kubeconfig.as_deref()?;
        let path = format!("/apis/{}/v1/subjectaccessreviews", names.group("authorization"));
        let caller = reviews("--authorization-kubeconfig", file, &path, wrong)?;
        Some(authorization::webhook::Options {
            version: Version::V1,
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            ..authorization::webhook::Options::new(caller)
        })
    }
}

/// Calls the path at which an API server takes reviews.
fn reviews(option: &str, file: &Path, path: &str, wrong: &mut ConfigErrors) -> Option<HttpClient> {
    let mut target = wrong.take(option, Target::from_kubeconfig(file))?;
    target.url = format!("{}{path}", target.url.trim_end_matches('/'));
    wrong.take(option, HttpClient::new(&target, Limits::REVIEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_added_to_what_the_operator_said() {
        let told = serde_json::json!({"metadata": {}, "data": {
            "client-ca-file": "B", "requestheader-client-ca-file": "P",
            "requestheader-allowed-names": "[\"front\"]", "requestheader-username-headers": "[\"X-Remote-User\"]"}});
        let told: ConfigMap = api::from_json(told.to_string().as_bytes()).unwrap();
        let both = FoundOut { clients: Some("A\n".to_owned()), ..FoundOut::default() }.with(&told);
        assert_eq!(both.clients.as_deref(), Some("A\nB"));
        let front = both.front_proxy().unwrap();
        assert_eq!((front.allowed_names, front.username_headers.len()), (vec!["front".to_owned()], 1));
        let own = FoundOut { proxies: Some("Q".to_owned()), ..FoundOut::default() }.with(&told);
        assert_eq!((own.proxies.as_deref(), own.front.allowed_names.len()), (Some("Q"), 0));
        assert!(FoundOut::default().front_proxy().is_none());
    }

    #[test]
    fn files_that_can_be_used_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = AuthorityFiles { clients: Some(folder.path().join("ca.crt")), proxies: None };
        let write = |text: &str| std::fs::write(folder.path().join("ca.crt"), text).unwrap();
        let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
        let said =
            FoundOut { clients: Some("A".to_owned()), proxies: Some("P".to_owned()), ..FoundOut::default() };
        assert_eq!(said.refreshed(&files), said, "a file that is not there");
        for useless in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            write(useless);
            assert_eq!(said.refreshed(&files), said, "{useless}");
        }
        write(&made);
        assert_eq!(said.refreshed(&files), FoundOut { clients: Some(made), ..said.clone() });
    }
}
