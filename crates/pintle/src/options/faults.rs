//! Options about faults on request: `up --faults`, and the command `faults`.

use super::AdminAccess;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Default, Args)]
pub struct FaultFlags {
    /// Faults that requests meet, for tests: a SimulationFaults file, or its text in braces; '{}' for none until pintle
    /// faults sets some. Every user of such a cluster may see errors
    #[arg(long, value_name = "FILE|TEXT")]
    pub faults: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct FaultsArgs {
    #[command(subcommand)]
    pub action: FaultsAction,
}

#[derive(Debug, Clone, Subcommand)]
pub enum FaultsAction {
    /// Print the rules, and how often each has matched and fired
    Show(FaultsShow),
    /// Replace the rules
    Set(FaultsSet),
    /// Remove all rules
    Clear(FaultsShow),
}

#[derive(Debug, Clone, Args)]
pub struct FaultsShow {
    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct FaultsSet {
    /// A SimulationFaults file, or its text in braces; - for standard input
    #[arg(value_name = "FILE|TEXT")]
    pub faults: String,

    #[command(flatten)]
    pub access: AdminAccess,
}

pub const FAULTS_EXAMPLES: &str = "\
Examples:
  pintle up --ephemeral --nodes 3 --faults faults.yaml
      A cluster whose requests meet the faults of a file.

  pintle faults set '{rules: [{verbs: [update], resources: [deployments], status: 409, rate: 0.3}]}'
      Three of ten updates of deployments are conflicts.

  pintle faults set '{rules: [{watch: {afterEvents: 5, end: Expired}}]}'
      Watches end with the error 410 after five events.

  pintle faults show
  pintle faults clear";
