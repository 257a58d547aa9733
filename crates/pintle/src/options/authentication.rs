//! Who is believed to be whom.

use super::Wrong;
use apiserver::identity;
use auth::Tokens;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Who is calling")]
pub struct Authentication {
    /// A file of bearer tokens, one line each: token,user,uid,"group,group"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// The private key that signs tokens of service accounts, in PEM: RSA or P-256 [default: one of its own]
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// What the issuer of these tokens calls itself, and for whom they are meant unless they say otherwise
    /// [default: https://kubernetes.default.svc]
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Option<String>,
}

impl Authentication {
    pub fn read(&self, wrong: &mut Wrong) -> identity::Options {
        let tokens = wrong.text("--token-auth-file", self.token_auth_file.as_deref());
        let tokens = tokens.and_then(|text| wrong.take("--token-auth-file", Tokens::parse(&text)));
        let key = self.service_account_signing_key_file.as_deref();
        identity::Options {
            tokens: tokens.unwrap_or_default(),
            signing_key: wrong.text("--service-account-signing-key-file", key),
            issuer: self.service_account_issuer.clone(),
        }
    }
}
