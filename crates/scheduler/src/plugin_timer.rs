//! Measures how long plugins take. Of ten cycles one is measured: reading the clock costs more than many plugins.

use env::World;

use crate::framework::{Code, Plugin, Rejection};
use crate::metrics::{Metrics, PluginStatus, VolumeStage};

/// The measurements of one cycle.
pub struct PluginTimer {
    metrics: Metrics,
    world: World,
    is_measured: bool,
}

impl PluginTimer {
    pub fn new(metrics: &Metrics, world: &World) -> Self {
        PluginTimer {
            is_measured: metrics.is_cycle_measured(),
            metrics: metrics.clone(),
            world: World::clone(world),
        }
    }

    /// Runs a plugin at an extension point.
    pub fn run<T>(
        &self,
        plugin: Plugin,
        point: &'static str,
        run: impl FnOnce() -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let result = match self.is_measured {
            false => run(),
            true => {
                let began = self.world.elapsed();
                let result = run();
                let took = self.world.elapsed().saturating_sub(began);
                let status = result
                    .as_ref()
                    .map_or_else(|it| PluginStatus::Failure(it.code), |_| PluginStatus::Success);
                self.metrics.record_plugin(plugin.name(), point, status, took);
                result
            }
        };
        if plugin == Plugin::VolumeBinding && result.as_ref().is_err_and(|it| it.code == Code::Error) {
            self.metrics.observe_volume_error(VolumeStage::Predicate);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::Cycle;
    use crate::evaluation::CompiledProfile;
    use crate::pod_info::PodInfo;
    use crate::snapshot::Snapshot;
    use api::from_json;
    use metrics::Registry;
    use std::sync::Arc;

    #[test]
    fn plugins_of_one_cycle_in_ten_are_measured() {
        let registry = Registry::default();
        let world = env::Simulated::new(1, 1);
        let mut cycle = Cycle::new(world, 0).with_metrics(Metrics::new(&registry));
        let mut snapshot = Snapshot::new();
        for name in ["a", "b"] {
            let json =
                format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"pods":"1"}}}}}}"#);
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        let pod = Arc::new(PodInfo::new(Arc::new(
            from_json(br#"{"spec":{"containers":[{"name":"c"}]}}"#).unwrap(),
        )));
        for _ in 0..10 {
            cycle.schedule(&CompiledProfile::default(), &mut snapshot, &(), &pod);
        }
        let text = registry.text();
        let count = |point: &str, plugin: &str, count: u32| {
            let labels = format!("extension_point=\"{point}\",plugin=\"{plugin}\",status=\"Success\"");
            let line = format!("scheduler_plugin_execution_duration_seconds_count{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line} in {text}");
        };
        count("PreFilter", "InterPodAffinity", 1);
        // both nodes
        count("Filter", "NodeResourcesFit", 2);
        count("Score", "NodeResourcesFit", 1);
    }
}
