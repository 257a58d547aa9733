//! How many requests are carried out at a time, and whose.

use super::Wrong;
use apiserver::fairness;
use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How much at a time")]
pub struct Fairness {
    /// Whether requests are told apart by flow schemas and wait for their turn at priority levels
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,

    /// How many requests that only read are carried out at a time. Together with those that write they are the seats
    /// that priority levels share
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pub max_requests_inflight: u32,

    /// How many requests that write are carried out at a time
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
}

impl Fairness {
    pub fn read(&self, wrong: &mut Wrong) -> fairness::Options {
        let (reading, writing) = (self.max_requests_inflight, self.max_mutating_requests_inflight);
        if self.enable_priority_and_fairness && reading.saturating_add(writing) == 0 {
            let why = "with --max-mutating-requests-inflight it must be more than 0 where priority and fairness is on";
            wrong.add("--max-requests-inflight", why);
        }
        fairness::Options {
            on: self.enable_priority_and_fairness,
            reading,
            writing,
            ..fairness::Options::default()
        }
    }
}
