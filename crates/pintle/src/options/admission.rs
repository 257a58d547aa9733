//! What writes must pass.

use super::Wrong;
use apiserver::admission;
use clap::Args;

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
            enable: self.enable_admission_plugins.clone(),
            disable: self.disable_admission_plugins.clone(),
            ..admission::Options::default()
        }
    }
}
