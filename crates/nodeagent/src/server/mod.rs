//! The HTTP API of the agent.
//!
//! ```text
//! accept ─ TLS ─ client certificate ─ HTTP ─ route ─ authentication ─ authorization ─ handler
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `listener` | ports and connections: 10250 with TLS, 10248 for health, the read-only port |
//! | `tls` | certificates of both sides |
//! | `authentication`, `authorization` | the user of a request, and whether it may; reviews of the API server, cached |
//! | `routes` | paths and methods |
//! | `handlers` | pods, health, configuration, debug flags |
//! | `container_logs`, `log_files` | logs of containers, files of the node |
//! | `commands`, `command_streams` | exec, attach and run: between HTTP and the runtime's streams |
//! | `port_forward` | ports of pods |
//! | `profiles` | what the process shows of itself |
//! | `idle` | the end of streams without data |
//! | `checkpoint` | archives of containers, behind a feature gate |
//! | `local_volumes` | folders of local volumes |
//!
//! Invariants: a path that does not exist is 404 before authentication; every other request is authorized. A panic of
//! a handler ends its connection only. Streams hold a few kilobytes each.

mod authentication;
mod authorization;
pub(crate) mod body;
mod checkpoint;
pub(crate) mod command_streams;
mod commands;
mod container_logs;
mod handlers;
mod idle;
pub(crate) mod listener;
mod local_volumes;
mod log_files;
mod pod_view;
mod port;
pub(crate) mod port_forward;
mod profiles;
mod query;
mod request_span;
mod routes;
mod service;
mod tls;
mod upgrade;
mod user;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace_tests;

pub use authentication::{AuthenticationOptions, ClientReviews, Reviews, SubjectAccess};
pub use authorization::AuthorizationOptions;
pub use listener::{Bound, ServerOptions, bind, serve, serve_in_process};
pub use pod_view::PodView;
pub use service::{MetricsPage, ServerDeps};
pub use tls::TlsOptions;
pub use user::ReviewedUser;
