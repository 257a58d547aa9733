//! Requests that end at a node: logs, exec, attach and port forwarding at its agent; proxies to pods, services and
//! nodes.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | the options of connections to agents |
//! | `location` | the URL of a request, from the objects that it names; pure |
//! | `container` | the container that a request names |
//! | `transport` | clients of agents and of pods |
//! | `forward` | forwards a request, or joins both connections once it is upgraded |
//! | `links` | rewrites the links of pages |
//! | `response` | rewrites redirects, and turns errors of agents into those of this server |
//!
//! Invariants: a request has passed authentication, authorization and admission before; the client's credentials end
//! here. Bodies and upgraded connections are streamed. Agents must present a certificate of the configured authority,
//! if there is one.

pub(crate) mod container;
mod forward;
mod links;
pub(crate) mod location;
mod log;
mod options;
mod response;
mod transport;

#[cfg(test)]
mod tests;

pub(crate) use forward::{NodeProxy, NodeRequest};
pub(crate) use location::{Location, ProxyName};
pub(crate) use log::LogOptions;
pub use options::Options;
