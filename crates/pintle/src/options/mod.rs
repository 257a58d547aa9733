//! Options of the API server, by what they are about.
//!
//! Each group turns its part of the command line into what the server is started with. What is wrong is
//! gathered, so that all of it is told at once.

mod admission;
mod aggregation;
mod apiserver;
mod audit;
mod authentication;
mod authorization;
mod controllers;
mod cors;
mod dialect;
mod etcd;
mod features;
pub mod gates;
mod limits;
mod manifest;
mod observing;
mod oidc;
mod outward;
mod request_headers;
mod service_accounts;
mod serving;
mod store;
mod token_webhook;

pub use admission::Admission;
pub use aggregation::Aggregation;
pub use apiserver::Apiserver;
pub use audit::Audit;
pub use authentication::{Authentication, Authorities};
pub use authorization::Authorization;
pub use controllers::{AuthorityFiles, ControllerManager, FoundOut, Leadership, Loops};
pub use cors::Browsers;
pub use dialect::Dialect;
pub use etcd::Etcd;
pub use features::Features;
pub use limits::Limits;
pub use observing::{Numbers, Observing};
pub use oidc::Oidc;
pub use outward::Outward;
pub use request_headers::RequestHeaders;
pub use service_accounts::ServiceAccounts;
pub use serving::{ServingCertificates, Tls};
pub use store::Store;
pub use token_webhook::TokenWebhook;

use crate::flags::truth;
use std::fmt::{self, Display};
use std::path::Path;

/// What is wrong with the command line, each with the name of its option.
#[derive(Debug, Default)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    pub fn add(&mut self, option: &str, why: impl Display) {
        self.0.push(format!("{option}: {why}"));
    }

    /// A value, unless it is wrong.
    pub fn take<T, E: Display>(&mut self, option: &str, value: Result<T, E>) -> Option<T> {
        value.map_err(|why| self.add(option, why)).ok()
    }

    /// The text of the file that an option names.
    pub fn text(&mut self, option: &str, file: Option<&Path>) -> Option<String> {
        let path = file?;
        let read = std::fs::read_to_string(path);
        self.take(option, read.map_err(|why| format!("cannot read {}: {why}", path.display())))
    }

    /// An error that names everything, if there is anything.
    pub fn check(self) -> Result<(), Problems> {
        if self.0.is_empty() { Ok(()) } else { Err(Problems(self.0)) }
    }
}

/// Everything that is wrong with a command line, one line each.
#[derive(Debug)]
pub struct Problems(pub Vec<String>);

impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Problems {}
