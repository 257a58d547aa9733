//! Options about the time of a cluster: `up --clock`, and the command `clock`.

use super::AdminAccess;
use clap::{Args, Subcommand, ValueEnum};

/// The time of a cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct ClockFlags {
    /// The time of the cluster: real, or manual for tests. A manual clock stands still until `pintle clock` moves it, for
    /// the server, the control loops, the scheduler and simulated nodes. Containers of this machine need real time
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t)]
    pub clock: ClockMode,

    /// Draw names and other random choices from this seed, so that the same requests have the same outcome. For tests
    /// with --clock manual alone: who knows the seed knows the tokens
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ClockMode {
    #[default]
    Real,
    Manual,
}

#[derive(Debug, Clone, Args)]
pub struct ClockArgs {
    #[command(subcommand)]
    pub action: ClockAction,
}

#[derive(Debug, Clone, Subcommand)]
pub enum ClockAction {
    /// Print the time of the cluster
    Show(ClockShow),
    /// Move the clock forward, and print what changed on the way
    Advance(ClockAdvance),
    /// Move the clock forward until nothing changes any more, and print what changed
    Settle(ClockSettle),
}

#[derive(Debug, Clone, Args)]
pub struct ClockShow {
    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct ClockAdvance {
    /// By how much, such as 90s or 1h30m
    #[arg(value_name = "DURATION")]
    pub by: String,

    #[command(flatten)]
    pub pace: Pace,

    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct ClockSettle {
    /// How far the clock may move
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub limit: String,

    /// How long nothing must have changed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub quiet: String,

    #[command(flatten)]
    pub pace: Pace,

    #[command(flatten)]
    pub access: AdminAccess,
}

/// How programs outside of the cluster keep up.
#[derive(Debug, Clone, Args)]
pub struct Pace {
    /// Stop each time that the clock has moved by so much
    #[arg(long, value_name = "DURATION", requires = "pause")]
    pub step: Option<String>,

    /// The real time of such a stop, in which operators and other clients can react
    #[arg(long, value_name = "DURATION", requires = "step")]
    pub pause: Option<String>,
}

pub const CLOCK_EXAMPLES: &str = "\
Examples:
  pintle up --ephemeral --clock manual
      A cluster whose time stands still.

  pintle clock settle
      Let the control loops finish what they have begun.

  pintle clock advance 24h
      A day: cron jobs run, tokens expire, time-outs pass.

  pintle clock advance 1h --step 10s --pause 50ms
      An hour in which an operator outside of the process has 50 ms after every ten seconds to react.";
