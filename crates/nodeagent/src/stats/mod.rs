//! Usage of the node, its pods and containers: `/stats/summary` and pages of metrics.
//!
//! | module | what it is |
//! |---|---|
//! | `usage` | reads usage of containers from the runtime, and of the node from the kernel |
//! | `filesystem` | space and inodes of filesystems |
//! | `rates` | CPU rates from two readings |
//! | `cgroup_usage`, `processes` | usage of cgroups and processes, from the kernel's files |
//! | `system_containers` | usage of cgroups that are no pods |
//! | `volume_usage` | usage of volumes, kept for a while |
//! | `summary` | the summary as JSON |
//! | `exposition` | a page of metrics from a table of families |
//! | `counters`, `probe_counts`, `runtime_meter` | what the agent counts |
//! | `agent_page`, `cadvisor`, `resource` | the pages |
//!
//! Usage is read when a page is requested, and never else.

mod agent_page;
mod cadvisor;
mod cgroup_usage;
pub mod counters;
mod exposition;
mod filesystem;
pub mod probe_counts;
mod processes;
mod rates;
mod resource;
pub mod runtime_meter;
mod summary;
mod system_containers;
mod usage;
mod volume_usage;

pub use cgroup_usage::memory as cgroup_memory;
pub use counters::AgentMetrics;
pub use filesystem::{FilesystemUsage, filesystem};
pub use system_containers::SystemCgroups;
pub use usage::{StatsSources, Usage};
pub use volume_usage::{VolumeUsage, measure_files};

use crate::server::MetricsPage;
use bytes::Bytes;
use summary::Extent;

impl Usage {
    /// The text of a page.
    pub async fn page(&self, page: MetricsPage) -> Result<Bytes, String> {
        match page {
            MetricsPage::Summary => self.summary(Extent::All).await,
            MetricsPage::CpuAndMemory => self.summary(Extent::CpuAndMemory).await,
            MetricsPage::Resource => Ok(self.resource_metrics().await),
            MetricsPage::Cadvisor => Ok(self.cadvisor_metrics().await),
            MetricsPage::Agent => Ok(self.agent_metrics().await),
            MetricsPage::Probes => Ok(self.probe_metrics().into()),
        }
    }
}
