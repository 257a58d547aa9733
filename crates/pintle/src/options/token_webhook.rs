//! Token webhook options.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::authentication::webhook;
use clap::Args;
use outbound::{Dialer, HttpClient, Limits, Version};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Token authentication webhook")]
pub struct TokenWebhook {
    /// The kubeconfig of the token authentication webhook. It gets a TokenReview for every token that no other
    /// authenticator accepts
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,

    /// The API version of the reviews sent to the webhook: v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: Version,

    /// How long the webhook's answers about tokens are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2m0s")]
    pub authentication_token_webhook_cache_ttl: Duration,
}

const FILE: &str = "--authentication-token-webhook-config-file";

impl TokenWebhook {
    pub fn read(&self, way: &Dialer, errors: &mut ConfigErrors) -> Option<webhook::Options> {
        let file = self.authentication_token_webhook_config_file.as_deref()?;
        let caller = errors.take(FILE, HttpClient::from_kubeconfig_by(file, Limits::REVIEW, way.clone()))?;
        Some(webhook::Options {
            version: self.authentication_token_webhook_version,
            ttl: self.authentication_token_webhook_cache_ttl,
            ..webhook::Options::new(caller)
        })
    }
}
