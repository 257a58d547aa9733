//! Aggregation layer: whole API versions that are proxied to other API servers.
//!
//! `local_api_services` maintains the APIServices of local versions, `follow` follows all APIServices,
//! `resolve` resolves their Services, `available` checks availability, `fetch` fetches discovery and OpenAPI
//! documents, and `proxy` proxies requests.
//!
//! Invariants: a proxied request has passed authentication, audit and authorization like any other, and this
//! server, never the client, states the user to the other server. Built-in versions are never proxied. A
//! request only reads the current routes: it takes no lock, and reads no object.

mod aggregated_server;
mod available;
mod fetch;
mod local_api_services;
mod options;
mod proxy;
mod reflector;
mod resolve;
mod routes;

pub(crate) use aggregated_server::RemoteDiscovery;
pub(crate) use local_api_services::priorities;
pub use options::Options;
pub(crate) use proxy::ProxyRequest;
pub(crate) use reflector::Reflector;
pub use routes::Aggregation;
pub(crate) use routes::{Priority, RouteEntry, Routes};
