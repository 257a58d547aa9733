//! Another server that knows tokens.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::authentication::webhook;
use clap::Args;
use outbound::{Dialer, HttpClient, Limits, Version};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tokens that another server knows")]
pub struct TokenWebhook {
    /// Another server that knows tokens: a kubeconfig that names it and how to call it. It is sent a TokenReview
    /// for every token that nobody here knows, and answers with its status
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// In which version that server is asked: v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: Version,

    /// How long that server is not asked again about a token
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2m0s")]
    pub authentication_token_webhook_cache_ttl: Duration,
}

const FILE: &str = "--authentication-token-webhook-config-file";

impl TokenWebhook {
    pub fn read(&self, way: &Dialer, wrong: &mut ConfigErrors) -> Option<webhook::Options> {
        let file = self.authentication_token_webhook_config_file.as_deref()?;
        let caller = wrong.take(FILE, HttpClient::from_kubeconfig_by(file, Limits::REVIEW, way.clone()))?;
        Some(webhook::Options {
            version: self.authentication_token_webhook_version,
            ttl: self.authentication_token_webhook_cache_ttl,
            ..webhook::Options::new(caller)
        })
    }
}
