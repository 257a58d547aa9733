//! The API server. The folders follow a request from the wire to the store:
//!
//! - `serve`: listeners, TLS, HTTP/1.1 and HTTP/2, graceful shutdown
//! - `request`: the `RequestInfo` of a path, a method and a query
//! - `filters`: CORS, authentication, audit, impersonation, flow control, authorization
//! - `authentication`: users from tokens, certificates and headers
//! - `authorization`: the authorizers, some of which read objects
//! - `flowcontrol`: API priority and fairness
//! - `audit`: audit events and their backends
//! - `negotiate`: media types in and out
//! - `handle`: the dispatch over paths and verbs, down into `rest`
//! - `admission`: admission plugins, webhooks and policies
//! - `reviews`: virtual resources such as SubjectAccessReview
//! - `apiextensions`: custom resource definitions
//! - `aggregation`: API groups that other servers serve
//! - `node_proxy`: logs, exec, attach, port forwarding and proxies, at nodes
//! - `faults`: faults on request, for clusters of tests
//! - `discovery`: discovery, OpenAPI, version, health, metrics
//! - `trace`: spans of requests
//! - `outgoing`: destinations of calls to webhooks and other servers
//! - `self_registration`: objects by which the server describes itself
//! - `loopback`: writes in the server's own name
//! - `options`: limits, feature gates, observability, deployment
//!
//! `server` joins them with a store and the built-in kinds.

pub mod admission;
pub mod aggregation;
mod apiextensions;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod discovery;
mod faults;
mod filters;
pub mod flowcontrol;
pub mod handle;
mod loopback;
mod negotiate;
pub mod node_proxy;
mod options;
mod outgoing;
mod request;
pub mod resource_metrics;
mod reviews;
mod self_registration;
pub mod serve;
pub mod server;
mod string_lists;
#[cfg(test)]
mod tests;
pub mod trace;

pub use faults::Faults;
pub use filters::cors;
pub use negotiate::pretty;
pub use options::deployment::Deployment;
pub use options::gates::Gates;
pub use options::{deployment, gates, limits, observability};
pub use outgoing::egress;
pub use self_registration::ForeignKeys;
pub use server::encryption_at_rest;
pub use server::{AdvertiseOptions, Config, Server, StartError, StoreChoice};
