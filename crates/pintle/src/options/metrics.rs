//! Which numbers about the server are shown.

use super::Wrong;
use clap::Args;
use schema::table::Release;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Numbers about the server")]
pub struct Metrics {
    /// Show metrics again that were hidden since the release before this one, which is the only one that can be named. No
    /// metric is hidden at present
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub show_hidden_metrics_for_version: String,
}

impl Metrics {
    pub fn read(&self, wrong: &mut Wrong) {
        let asked = &*self.show_hidden_metrics_for_version;
        let release = kinds::RELEASE;
        let only = Release { minor: release.minor.saturating_sub(1), ..release }.to_string();
        if !asked.is_empty() && asked != only {
            let why = format!("only the release before this one can be named, {only}");
            wrong.add("--show-hidden-metrics-for-version", why);
        }
    }
}
