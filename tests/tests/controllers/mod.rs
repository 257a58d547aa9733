//! The control loops, against a real server: one module for each, or for a few that belong together.

mod account_tokens;
mod accounts;
mod attachments;
mod autoscalers;
mod bootstrap;
mod certificates;
mod claims;
mod cron_jobs;
mod deployments;
mod disruption;
mod endpoints;
mod garbage;
mod gates;
mod jobs;
mod leader;
mod namespaces;
mod node_ranges;
mod nodes;
mod pod_gc;
mod quotas;
mod replicas;
mod roles;
mod rollouts;
mod root_authority;
mod service_accounts;
mod volumes;
