//! Who is believed to be whom.

use super::Wrong;
use crate::cli::any_duration;
use apiserver::identity::{self, webhook};
use auth::Tokens;
use call::{Caller, Limits, Version};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

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
}

const WEBHOOK_FILE: &str = "--authentication-token-webhook-config-file";

impl Authentication {
    pub fn read(&self, wrong: &mut Wrong) -> identity::Options {
        let tokens = wrong.text("--token-auth-file", self.token_auth_file.as_deref());
        let tokens = tokens.and_then(|text| wrong.take("--token-auth-file", Tokens::parse(&text)));
        let key = self.service_account_signing_key_file.as_deref();
        identity::Options {
            tokens: tokens.unwrap_or_default(),
            signing_key: wrong.text("--service-account-signing-key-file", key),
            issuer: self.service_account_issuer.clone(),
            token_webhook: self.token_webhook(wrong),
        }
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
