//! Serves HTTP. The folders follow a request from the wire to the store:
//!
//! - `serve`: listeners, TLS, HTTP/1.1 and HTTP/2, graceful shutdown
//! - `request`: what is being asked
//! - `filters`: who is calling, and may they
//! - `fairness`: whose request is carried out next
//! - `negotiate`: media types in and out
//! - `handle`: the dispatch over paths and verbs, down into `rest`
//! - `admission`: built-in checks that writes pass
//! - `audit`: the record of what was asked and how it ended
//! - `answers`: kinds that are answered and never kept
//! - `identity`: who is calling, from tokens, certificates and headers
//! - `permission`: the authorizers that know objects
//! - `browsers`: what browsers are told
//! - `gates`: what is done only where it is switched on
//! - `aggregate`: other servers that answer for parts of the API
//! - `describe`: discovery, OpenAPI, version, health, metrics
//!
//! `server` joins them with a store and the built-in kinds.

pub mod admission;
pub mod aggregate;
mod answers;
pub mod audit;
pub mod browsers;
mod cluster_keys;
pub mod deployment;
pub mod describe;
pub mod egress;
mod extend;
pub mod fairness;
mod filters;
pub mod gates;
pub mod handle;
#[cfg(test)]
mod holdings;
pub mod identity;
mod kept;
pub mod limits;
mod negotiate;
pub mod observe;
mod own;
mod own_lease;
mod own_service;
pub mod permission;
mod place;
mod reach;
mod request;
pub mod sealing;
pub mod serve;
pub mod server;
mod start;
mod status;
mod storage_versions;
pub mod trace;
mod upkeep;

pub use cluster_keys::ForeignKeys;
pub use deployment::Deployment;
pub use gates::Gates;
pub use kept::StoreChoice;
pub use negotiate::pretty;
pub use server::{Config, Found, Server, StartError};
