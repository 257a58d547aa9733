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
        let (enable, mut disable) =
            (self.enable_admission_plugins.clone(), self.disable_admission_plugins.clone());
        // as long as no component makes the accounts of namespaces, no pod could be made with this on
        if !enable.iter().any(|name| name == "ServiceAccount") {
            disable.push("ServiceAccount".to_owned());
        }
        admission::Options { enable, disable, ..admission::Options::default() }
    }
}
