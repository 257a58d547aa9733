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
pub mod aggregation;
mod apiextensions;
pub mod audit;
pub mod authentication;
pub mod authorization;
mod cluster_keys;
pub mod cors;
pub mod deployment;
pub mod discovery;
pub mod egress;
pub mod encryption_at_rest;
mod filters;
pub mod flowcontrol;
pub mod gates;
pub mod handle;
#[cfg(test)]
mod holdings;
mod identity_lease;
mod kubernetes_service;
pub mod limits;
mod loopback;
mod negotiate;
pub mod observability;
mod open_store;
mod request;
mod reviews;
mod self_registration;
pub mod serve;
pub mod server;
mod service_resolver;
mod start;
mod status;
mod storage_versions;
pub mod trace;
mod webhook_target;

pub use cluster_keys::ForeignKeys;
pub use deployment::Deployment;
pub use gates::Gates;
pub use negotiate::pretty;
pub use open_store::StoreChoice;
pub use server::{Config, Found, Server, StartError};
