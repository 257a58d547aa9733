//! The control loops, against a real server: one module for each, or for a few that belong together.

mod deployments;
mod replicas;
mod rollouts;
mod service_accounts;
