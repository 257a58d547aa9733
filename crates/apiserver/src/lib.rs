//! Serves HTTP. The folders follow a request from the wire to the store:
//!
//! - `serve`: listeners, TLS, HTTP/1.1 and HTTP/2, graceful shutdown
//! - `request`: what is being asked
//! - `filters`: who is calling, and may they
//! - `negotiate`: media types in and out
//! - `handle`: the dispatch over paths and verbs, down into `rest`
//! - `admission`: built-in checks that writes pass
//! - `answers`: kinds that are answered and never kept
//! - `roles`: those that every cluster has, and the policy that follows all of them
//! - `service_accounts`: their tokens
//! - `describe`: discovery, OpenAPI, version, health, metrics
//!
//! `server` joins them with a store and the built-in kinds.

mod admission;
mod answers;
pub mod describe;
mod filters;
pub mod handle;
#[cfg(test)]
mod holdings;
mod negotiate;
mod own;
mod own_service;
mod request;
mod roles;
pub mod serve;
pub mod server;
pub mod service_accounts;
mod status;

pub use negotiate::pretty;
pub use server::{Config, Server, StartError, StoreChoice};
