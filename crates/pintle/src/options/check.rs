//! Options of the command `check`.

use clap::Args;
use std::path::PathBuf;

pub const CHECK_EXAMPLES: &str = "\
Examples:
  sudo pintle check
      What this machine lacks for pintle up with pods.

  sudo pintle check --for join --data-dir /var/lib/pintle
      What it lacks to join a cluster.

  sudo pintle check --output json
      The same for programs.

Each line is ok, a warning, or missing, with what to do. The exit status is 1 if something is
missing. Nothing of the machine is changed. Without root, what only root can find out is a
warning.";

/// The arguments of `pintle check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The command that is to run on this machine
    #[arg(long = "for", value_name = "COMMAND", value_enum, default_value_t = Role::Up)]
    pub role: Role,

    /// Where state is to be kept [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// The KubeletConfiguration file of the node agent
    #[arg(long, value_name = "FILE")]
    pub nodeagent_config: Option<PathBuf>,

    /// The socket of the container runtime [default: the one that the command would take]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,

    /// The port of the API server
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,

    /// The form of the report
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = CheckOutput::Text)]
    pub output: CheckOutput,
}

/// A form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckOutput {
    Text,
    Json,
}

/// The command that is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// pintle up: a server with a node
    Up,
    /// pintle join: a node of another machine's cluster
    Join,
}

impl Role {
    pub fn command(self) -> &'static str {
        match self {
            Role::Up => "pintle up",
            Role::Join => "pintle join",
        }
    }
}
