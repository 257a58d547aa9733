//! Authentication options.

use super::{ConfigErrors, Oidc, RequestHeaders, ServiceAccounts, TokenWebhook};
use crate::deployment_mode::DeploymentMode;
use apiserver::authentication::{self, FrontProxy};
use auth::Tokens;
use clap::{ArgAction, Args};
use outbound::Dialer;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authentication")]
pub struct Authentication {
    /// Further certificate authorities for clients, in PEM, besides the one made at the first start. The common name of
    /// a client certificate is the user name, its organizations are the groups. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// A file of bearer tokens, one line each: token,user,uid,"group,group"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Treat requests without credentials as the user system:anonymous, in the group system:unauthenticated
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub anonymous_auth: bool,

    /// The audiences that a token must name to be accepted, comma-separated [default: the service account issuers]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// Accept bootstrap tokens of new nodes: secrets of the type bootstrap.kubernetes.io/token in the namespace
    /// kube-system
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub enable_bootstrap_token_auth: bool,

    /// Further certificate authorities, in PEM, for front proxies that pass the user in headers. Reloaded when it
    /// changes
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub request_headers: RequestHeaders,

    #[command(flatten)]
    pub service_accounts: ServiceAccounts,

    #[command(flatten)]
    pub oidc: Oidc,

    #[command(flatten)]
    pub token_webhook: TokenWebhook,
}

/// The operator's certificate authorities for clients and front proxies, in PEM.
#[derive(Debug, Clone, Default)]
pub struct Authorities {
    pub clients: Option<String>,
    pub client_file: Option<PathBuf>,
    pub proxies: Option<String>,
    pub proxy_file: Option<PathBuf>,
}

impl Authentication {
    /// `way` is the dialer of the token webhook.
    pub fn read(
        &self,
        mode: DeploymentMode,
        way: &Dialer,
        errors: &mut ConfigErrors,
    ) -> (authentication::Options, Authorities) {
        let tokens = errors.text("--token-auth-file", self.token_auth_file.as_deref());
        let tokens = tokens.and_then(|text| errors.take("--token-auth-file", Tokens::parse(&text)));
        let tokens = tokens.unwrap_or_default();
        for odd in &tokens.warnings {
            tracing::warn!(%odd, "--token-auth-file: unusual line");
        }
        for audience in self.api_audiences.iter().filter(|it| it.trim().is_empty()) {
            errors.add("--api-audiences", format!("{audience:?} is empty"));
        }
        let authorities = Authorities {
            client_file: self.client_ca_file.clone(),
            proxy_file: self.requestheader_client_ca_file.clone(),
            clients: certificates(errors, "--client-ca-file", self.client_ca_file.as_deref()),
            proxies: certificates(
                errors,
                "--requestheader-client-ca-file",
                self.requestheader_client_ca_file.as_deref(),
            ),
        };
        let options = authentication::Options {
            tokens,
            service_accounts: self.service_accounts.read(errors),
            audiences: self.api_audiences.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            front_proxy: Some(self.front_proxy(mode, errors)),
            oidc: self.oidc.read(errors),
            token_webhook: self.token_webhook.read(way, errors),
            anonymous: self.anonymous_auth,
        };
        (options, authorities)
    }

    fn front_proxy(&self, mode: DeploymentMode, errors: &mut ConfigErrors) -> FrontProxy {
        let mut front = self.request_headers.read(errors);
        // without further authorities, or with a choice among those they vouch for, this server's own proxy is
        // one of the allowed names
        let own = self.requestheader_client_ca_file.is_none()
            || mode != DeploymentMode::Standalone && !front.allowed_names.is_empty();
        if own {
            front.allowed_names.push(crate::pki::FRONT_PROXY.to_owned());
        }
        front
    }
}

/// Reads a file that must contain certificates.
fn certificates(errors: &mut ConfigErrors, option: &str, file: Option<&Path>) -> Option<String> {
    let text = errors.text(option, file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let good = match read {
        Ok(some) if some.is_empty() => Err("the file contains no certificate".to_owned()),
        Ok(_) => Ok(text),
        Err(why) => Err(format!("the file cannot be read: {why}")),
    };
    errors.take(option, good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn read(line: &str) -> Result<(authentication::Options, Authorities), String> {
        let words = ["pintle", "up"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
        let cli = Cli::read(words.map(Into::into), crate::config_errors).map_err(|why| format!("{why:?}"))?;
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut errors = ConfigErrors::default();
        let read = up.server.authentication.read(
            DeploymentMode::AllInOne { runs_controllers: true },
            &Dialer::Direct,
            &mut errors,
        );
        errors.check().map(|()| read).map_err(|why| why.to_string())
    }

    #[test]
    fn every_wrong_option_is_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "nothing\n").unwrap();
        let text = text.display();
        let message = read(&format!(
            "--client-ca-file {text} --requestheader-client-ca-file /nowhere --token-auth-file {text} \
             --service-account-key-file {text} --service-account-signing-key-file {text} \
             --service-account-issuer https://a --service-account-issuer https://a --service-account-issuer a:%zz \
             --service-account-jwks-uri http://a --service-account-max-token-expiration 30m --api-audiences=, \
             --requestheader-username-headers a{{b --requestheader-allowed-names a,"
        ));
        let message = message.err().unwrap();
        for part in [
            "--client-ca-file: the file contains no certificate",
            "--requestheader-client-ca-file: cannot read /nowhere",
            "--token-auth-file: line 1",
            "--service-account-key-file: ",
            "--service-account-signing-key-file: ",
            "--service-account-issuer: \"https://a\" is repeated",
            "--service-account-issuer: \"a:%zz\" contains a colon",
            "--service-account-jwks-uri: \"http://a\" is not",
            "--service-account-max-token-expiration: must be between",
            "--api-audiences: \"\" is empty",
            "--requestheader-username-headers: \"a{b\" is not a header name",
            "--requestheader-allowed-names: a name is empty",
        ] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        assert_eq!(message.lines().count(), 1);
    }

    #[test]
    fn defaults_are_those_that_others_expect() {
        let (options, authorities) = read("").unwrap();
        assert!(options.anonymous && options.bootstrap_tokens && options.audiences.is_empty());
        let accounts = options.service_accounts;
        assert!(
            accounts.extend
                && accounts.lookup
                && accounts.max_seconds.is_none()
                && accounts.issuers.is_empty()
        );
        assert!(authorities.clients.is_none() && authorities.proxies.is_none());
        let front = options.front_proxy.unwrap();
        assert_eq!(front.allowed_names, ["front-proxy-client"]);
        assert_eq!(
            (front.username_headers[0].as_str(), &*front.extra_prefixes[0]),
            ("x-remote-user", "x-remote-extra-")
        );
        let (options, _) = read(
            "--anonymous-auth=false --enable-bootstrap-token-auth=false --service-account-extend-token-expiration=false \
             --service-account-max-token-expiration 48h --api-audiences a,b --service-account-issuer plain",
        )
        .unwrap();
        assert!(!options.anonymous && !options.bootstrap_tokens && options.audiences == ["a", "b"]);
        assert_eq!(
            (options.service_accounts.extend, options.service_accounts.max_seconds),
            (false, Some(48 * 3600))
        );
    }
}
