//! The control loops, against a real server: one module for each, or for a few that belong together.

mod autoscalers;
mod cron_jobs;
mod deployments;
mod disruption;
mod jobs;
mod pod_gc;
mod replicas;
mod rollouts;
mod service_accounts;
