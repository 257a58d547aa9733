//! What writes must pass.

use super::Wrong;
use apiserver::admission;
use clap::Args;

/// On besides those that are anywhere: an agent of a node keeps to its node.
const ALWAYS: &[&str] = &["NodeRestriction"];

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What writes must pass")]
pub struct Admission {
    /// Admission plugins to switch on besides those that are on anyway, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,

    /// Admission plugins to switch off, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
}

impl Admission {
    pub fn read(&self, _: &mut Wrong) -> admission::Options {
        admission::Options {
            enable: ALWAYS
                .iter()
                .map(|name| (*name).to_owned())
                .chain(self.enable_admission_plugins.clone())
                .collect(),
            disable: self.disable_admission_plugins.clone(),
            ..admission::Options::default()
        }
    }
}
