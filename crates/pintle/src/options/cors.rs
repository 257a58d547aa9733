//! What browsers are told.

use super::ConfigErrors;
use apiserver::cors::{self, Origin};
use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What browsers are told")]
pub struct Browsers {
    /// Pages that may call the server from a browser, as patterns of their origins with commas between:
    /// ^https://console\.example\.org$ [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cors_allowed_origins: Vec<String>,

    /// Tell browsers to use TLS only: max-age=SECONDS, includeSubDomains, preload, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strict_transport_security_directives: Vec<String>,
}

impl Browsers {
    pub fn read(&self, wrong: &mut ConfigErrors) -> cors::Options {
        let mut origins = Vec::new();
        for pattern in &self.cors_allowed_origins {
            origins.extend(wrong.take("--cors-allowed-origins", Origin::parse(pattern)));
        }
        for directive in &self.strict_transport_security_directives {
            let seconds = directive.strip_prefix("max-age=");
            let known = ["includeSubDomains", "preload"].contains(&&**directive)
                || seconds.is_some_and(|seconds| seconds.parse::<u64>().is_ok());
            if !known {
                let why = "there are max-age=SECONDS, includeSubDomains, preload";
                wrong.add(
                    "--strict-transport-security-directives",
                    format!("{directive:?} is unknown; {why}"),
                );
            }
        }
        cors::Options { origins, transport_security: self.strict_transport_security_directives.clone() }
    }
}
