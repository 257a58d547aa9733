//! The control loops, against a real server: one module for each, or for a few that belong together.

mod deployments;
mod endpoints;
mod garbage;
mod namespaces;
mod quotas;
mod replicas;
mod roles;
mod rollouts;
mod service_accounts;
