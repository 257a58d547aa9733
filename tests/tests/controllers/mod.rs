//! The control loops, against a real server: one module for each, or for a few that belong together.

mod account_tokens;
mod accounts;
mod bootstrap;
mod certificates;
mod deployments;
mod endpoints;
mod garbage;
mod leader;
mod namespaces;
mod quotas;
mod replicas;
mod roles;
mod rollouts;
mod root_authority;
mod service_accounts;
