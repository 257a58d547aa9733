//! Options of the commands `completion` and `man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

pub const COMPLETION_EXAMPLES: &str = "\
Examples:
  pintle completion bash >/etc/bash_completion.d/pintle
  pintle completion zsh >\"${fpath[1]}/_pintle\"
  pintle completion fish >~/.config/fish/completions/pintle.fish
      Completions for new shells.

  source <(pintle completion bash)
      Completions for this shell.";

/// The arguments of `pintle completion`.
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// The arguments of `pintle man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// The folder in which the pages are written, one for each command; it must exist
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}
