//! Who is believed to be whom.

use super::{ConfigErrors, Oidc, RequestHeaders, ServiceAccounts, TokenWebhook};
use crate::server_config::DeploymentMode;
use apiserver::authentication::{self, FrontProxy};
use auth::Tokens;
use clap::{ArgAction, Args};
use outbound::Dialer;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Who is calling")]
pub struct Authentication {
    /// Further authorities for clients, in PEM, besides the one that is made at the first start: who shows a
    /// certificate of theirs is the user that its common name says, in the groups that its organizations say. Read again
    /// when it changes
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

    /// Further authorities, in PEM, for proxies that say in headers who is calling. Read again when it changes
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

/// Whom the listener asks for certificates of, besides those of the cluster itself, in PEM.
#[derive(Debug, Clone, Default)]
pub struct Authorities {
    pub clients: Option<String>,
    pub client_file: Option<PathBuf>,
    pub proxies: Option<String>,
    pub proxy_file: Option<PathBuf>,
}

impl Authentication {
    /// `way` leads to a server that knows tokens.
    pub fn read(
        &self,
        company: DeploymentMode,
        way: &Dialer,
        wrong: &mut ConfigErrors,
    ) -> (authentication::Options, Authorities) {
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
            client_file: self.client_ca_file.clone(),
            proxy_file: self.requestheader_client_ca_file.clone(),
            clients: certificates(wrong, "--client-ca-file", self.client_ca_file.as_deref()),
            proxies: certificates(
                wrong,
                "--requestheader-client-ca-file",
                self.requestheader_client_ca_file.as_deref(),
            ),
        };
        let options = authentication::Options {
            tokens,
            service_accounts: self.service_accounts.read(wrong),
            audiences: self.api_audiences.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            front_proxy: Some(self.front_proxy(company, wrong)),
            oidc: self.oidc.read(wrong),
            token_webhook: self.token_webhook.read(way, wrong),
            anonymous: self.anonymous_auth,
        };
        (options, authorities)
    }

    fn front_proxy(&self, company: DeploymentMode, wrong: &mut ConfigErrors) -> FrontProxy {
        let mut front = self.request_headers.read(wrong);
        // without further authorities, or with a choice among those they vouch for, this server's own proxy is
        // one of those who may speak
        let own = self.requestheader_client_ca_file.is_none()
            || company != DeploymentMode::Alone && !front.allowed_names.is_empty();
        if own {
            front.allowed_names.push(crate::pki::FRONT_PROXY.to_owned());
        }
        front
    }
}

/// The certificates in a file, which must hold some.
fn certificates(wrong: &mut ConfigErrors, option: &str, file: Option<&Path>) -> Option<String> {
    let text = wrong.text(option, file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let good = match read {
        Ok(some) if some.is_empty() => Err("the file holds no certificate".to_owned()),
        Ok(_) => Ok(text),
        Err(why) => Err(format!("the file cannot be read: {why}")),
    };
    wrong.take(option, good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn read(line: &str) -> Result<(authentication::Options, Authorities), String> {
        let words = ["pintle", "up"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
        let cli = Cli::read(words.map(Into::into)).map_err(|why| format!("{why:?}"))?;
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut wrong = ConfigErrors::default();
        let read = up.server.authentication.read(
            DeploymentMode::SingleFlight { accounts: true },
            &Dialer::Direct,
            &mut wrong,
        );
        wrong.check().map(|()| read).map_err(|why| why.to_string())
    }

    #[test]
    fn every_wrong_option_is_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "nothing\n").unwrap();
        let text = text.display();
        let told = read(&format!(
            "--client-ca-file {text} --requestheader-client-ca-file /nowhere --token-auth-file {text} \
             --service-account-key-file {text} --service-account-signing-key-file {text} \
             --service-account-issuer https://a --service-account-issuer https://a --service-account-issuer a:%zz \
             --service-account-jwks-uri http://a --service-account-max-token-expiration 30m --api-audiences=, \
             --requestheader-username-headers a{{b --requestheader-allowed-names a,"
        ));
        let told = told.err().unwrap();
        for part in [
            "--client-ca-file: the file holds no certificate",
            "--requestheader-client-ca-file: cannot read /nowhere",
            "--token-auth-file: line 1",
            "--service-account-key-file: ",
            "--service-account-signing-key-file: ",
            "--service-account-issuer: \"https://a\" is named twice",
            "--service-account-issuer: \"a:%zz\" has a colon",
            "--service-account-jwks-uri: \"http://a\" is not",
            "--service-account-max-token-expiration: must be between",
            "--api-audiences: \"\" is nobody",
            "--requestheader-username-headers: \"a{b\" is no name",
            "--requestheader-allowed-names: a name is empty",
        ] {
            assert!(told.contains(part), "{part} is not in: {told}");
        }
        assert_eq!(told.lines().count(), 1);
    }

    #[test]
    fn defaults_are_those_that_others_expect() {
        let (options, authorities) = read("").unwrap();
        assert!(options.anonymous && !options.bootstrap_tokens && options.audiences.is_empty());
        let accounts = options.service_accounts;
        assert!(
            accounts.extend && accounts.lookup && accounts.longest.is_none() && accounts.issuers.is_empty()
        );
        assert!(authorities.clients.is_none() && authorities.proxies.is_none());
        let front = options.front_proxy.unwrap();
        assert_eq!(front.allowed_names, ["front-proxy-client"]);
        assert_eq!(
            (front.username_headers[0].as_str(), &*front.extra_prefixes[0]),
            ("x-remote-user", "x-remote-extra-")
        );
        let (options, _) = read(
            "--anonymous-auth=false --enable-bootstrap-token-auth --service-account-extend-token-expiration=false \
             --service-account-max-token-expiration 48h --api-audiences a,b --service-account-issuer plain",
        )
        .unwrap();
        assert!(!options.anonymous && options.bootstrap_tokens && options.audiences == ["a", "b"]);
        assert_eq!(
            (options.service_accounts.extend, options.service_accounts.longest),
            (false, Some(48 * 3600))
        );
    }
}
