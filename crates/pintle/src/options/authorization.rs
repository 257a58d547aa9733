//! Who may do what.

use super::Wrong;
use apiserver::permission;
use auth::Mode;
use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What they may do")]
pub struct Authorization {
    /// How it is decided what callers may do, with commas between: Node (agents of nodes, and what concerns their
    /// node), RBAC (roles), AlwaysAllow, AlwaysDeny. Whoever is in the group system:masters may do everything
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = mode, default_value = "Node,RBAC")]
    pub authorization_mode: Vec<Mode>,
}

impl Authorization {
    pub fn read(&self, wrong: &mut Wrong) -> permission::Options {
        let modes = &self.authorization_mode;
        if modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode)) {
            wrong.add("--authorization-mode", "names a mode twice");
        }
        permission::Options { modes: modes.clone() }
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    let known = Mode::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, mode)| *mode).ok_or_else(|| {
        let names: Vec<_> = Mode::ALL.iter().map(|(name, _)| *name).collect();
        format!("no such mode; there are {}", names.join(", "))
    })
}
