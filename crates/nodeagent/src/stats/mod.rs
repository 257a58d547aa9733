//! Usage of the node, its pods and containers: `/stats/summary` and pages of metrics.
//!
//! | module | what it is |
//! |---|---|
//! | `usage` | reads usage of containers from the runtime, and of the node from the kernel |
//! | `rates` | CPU rates from two readings |
//! | `summary` | the summary as JSON |
//! | `metrics` | `/metrics/resource` and `/metrics/cadvisor` |
//!
//! Usage is read when a page is requested, and never else.

mod metrics;
mod rates;
mod summary;
mod usage;

pub use usage::{FilesystemUsage, StatsSources, Usage, filesystem};

use crate::server::MetricsPage;
use bytes::Bytes;

impl Usage {
    /// The text of a page, except of the agent's own metrics.
    pub async fn page(&self, page: MetricsPage) -> Result<Bytes, String> {
        match page {
            MetricsPage::Summary => self.summary().await,
            MetricsPage::Resource => Ok(self.resource_metrics().await),
            MetricsPage::Cadvisor => Ok(self.cadvisor_metrics().await),
            MetricsPage::Agent | MetricsPage::Probes => Err("no such page".to_owned()),
        }
    }
}
