//! Who is believed to be whom.

use super::{ServiceAccounts, Wrong};
use crate::cli::any_duration;
use apiserver::identity::{self, FrontProxy, webhook};
use auth::Tokens;
use call::{Caller, Limits, Version};
use clap::{ArgAction, Args};
use http::HeaderName;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Who is calling")]
pub struct Authentication {
    /// Further authorities for clients, in PEM, besides the one that is made at the first start: who shows a
    /// certificate of theirs is the user that its common name says, in the groups that its organizations say
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// A file of bearer tokens, one line each: token,user,uid,"group,group"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Answer those who show nothing as the user system:anonymous, in the group system:unauthenticated
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub anonymous_auth: bool,

    /// For whom tokens must be meant that are shown to this server, with commas between [default: the issuers of
    /// its own tokens]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// Believe the tokens by which new nodes introduce themselves: secrets of the type bootstrap.kubernetes.io/token
    /// in the namespace kube-system
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_bootstrap_token_auth: bool,

    /// Further authorities, in PEM, for proxies that say in headers who is calling
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// The common names of such proxies, with commas between; without any, all with a certificate of those further
    /// authorities
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers in which proxies name the user; the first that is there counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,

    /// Headers in which proxies name the user's groups
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,

    /// What headers begin with in which proxies say something else about the user
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Another server that knows tokens: a kubeconfig that names it and how to call it. It is sent a TokenReview
    /// for every token that nobody else knows, and answers with its status
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// In which version that server is asked: v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: Version,

    /// How long that server is not asked again about a token
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2m")]
    pub authentication_token_webhook_cache_ttl: Duration,

    #[command(flatten)]
    pub service_accounts: ServiceAccounts,
}

/// Whom the listener asks for certificates of, besides those of the cluster itself, in PEM.
#[derive(Debug, Clone, Default)]
pub struct Authorities {
    pub clients: Option<String>,
    pub proxies: Option<String>,
}

const WEBHOOK_FILE: &str = "--authentication-token-webhook-config-file";

impl Authentication {
    pub fn read(&self, wrong: &mut Wrong) -> (identity::Options, Authorities) {
        let tokens = wrong.text("--token-auth-file", self.token_auth_file.as_deref());
        let tokens = tokens.and_then(|text| wrong.take("--token-auth-file", Tokens::parse(&text)));
        let tokens = tokens.unwrap_or_default();
        for odd in &tokens.oddities {
            tracing::warn!(%odd, "--token-auth-file has a line that is odd");
        }
        for audience in self.api_audiences.iter().filter(|it| it.trim().is_empty()) {
            wrong.add("--api-audiences", format!("{audience:?} is nobody"));
        }
        let authorities = Authorities {
            clients: certificates(wrong, "--client-ca-file", self.client_ca_file.as_deref()),
            proxies: certificates(
                wrong,
                "--requestheader-client-ca-file",
                self.requestheader_client_ca_file.as_deref(),
            ),
        };
        let options = identity::Options {
            tokens,
            service_accounts: self.service_accounts.read(wrong),
            audiences: self.api_audiences.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            front_proxy: Some(self.front_proxy(wrong)),
            token_webhook: self.token_webhook(wrong),
            anonymous: self.anonymous_auth,
        };
        (options, authorities)
    }

    fn front_proxy(&self, wrong: &mut Wrong) -> FrontProxy {
        let mut headers = |option: &str, texts: &[String]| -> Vec<HeaderName> {
            let mut read = Vec::new();
            for text in texts {
                let name = HeaderName::from_bytes(text.trim().as_bytes());
                read.extend(wrong.take(option, name.map_err(|_| format!("{text:?} is no name of a header"))));
            }
            read
        };
        let username_headers =
            headers("--requestheader-username-headers", &self.requestheader_username_headers);
        let group_headers = headers("--requestheader-group-headers", &self.requestheader_group_headers);
        let extra = headers("--requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix);
        let extra_prefixes = extra.into_iter().map(|name| name.as_str().to_owned()).collect();
        let mut allowed_names = self.requestheader_allowed_names.clone();
        if allowed_names.iter().any(|name| name.trim().is_empty()) {
            wrong.add("--requestheader-allowed-names", "a name is empty");
        }
        // without further authorities, or with a choice among those they vouch for, this server's own proxy is
        // one of those who may speak
        if self.requestheader_client_ca_file.is_none() || !allowed_names.is_empty() {
            allowed_names.push(crate::pki::FRONT_PROXY.to_owned());
        }
        FrontProxy { allowed_names, username_headers, group_headers, extra_prefixes }
    }

    fn token_webhook(&self, wrong: &mut Wrong) -> Option<webhook::Options> {
        let file = self.authentication_token_webhook_config_file.as_deref()?;
        let caller = wrong.take(WEBHOOK_FILE, Caller::from_kubeconfig(file, Limits::REVIEW))?;
        Some(webhook::Options {
            version: self.authentication_token_webhook_version,
            ttl: self.authentication_token_webhook_cache_ttl,
            ..webhook::Options::new(caller)
        })
    }
}

/// The certificates in a file, which must hold some.
fn certificates(wrong: &mut Wrong, option: &str, file: Option<&Path>) -> Option<String> {
    let text = wrong.text(option, file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let good = match read {
        Ok(some) if some.is_empty() => Err("the file holds no certificate".to_owned()),
        Ok(_) => Ok(text),
        Err(why) => Err(format!("the file cannot be read: {why}")),
    };
    wrong.take(option, good)
}
