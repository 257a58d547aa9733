//! CORS and strict transport security options.

use super::ConfigErrors;
use apiserver::cors::{self, Origin};
use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Browsers")]
pub struct Cors {
    /// Allowed CORS origins, as comma-separated regular expressions: ^https://console\.example\.org$ [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cors_allowed_origins: Vec<String>,

    /// The directives of the Strict-Transport-Security header (HSTS): max-age=SECONDS, includeSubDomains, preload,
    /// comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strict_transport_security_directives: Vec<String>,
}

impl Cors {
    pub fn read(&self, errors: &mut ConfigErrors) -> cors::Options {
        let mut origins = Vec::new();
        for pattern in &self.cors_allowed_origins {
            origins.extend(errors.take("--cors-allowed-origins", Origin::parse(pattern)));
        }
        for directive in &self.strict_transport_security_directives {
            let seconds = directive.strip_prefix("max-age=");
            let known = ["includeSubDomains", "preload"].contains(&&**directive)
                || seconds.is_some_and(|seconds| seconds.parse::<u64>().is_ok());
            if !known {
                let why = "there are max-age=SECONDS, includeSubDomains, preload";
                errors.add(
                    "--strict-transport-security-directives",
                    format!("{directive:?} is unknown; {why}"),
                );
            }
        }
        cors::Options { origins, transport_security: self.strict_transport_security_directives.clone() }
    }
}
