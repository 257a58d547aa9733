//! ImageLocality: prefers nodes that have the images of the pod already.

use crate::framework::MAX_NODE_SCORE;
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;

const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * 1024 * 1024;

/// The images of a pod's containers, as nodes list them.
pub fn images(pod: &PodInfo) -> Vec<String> {
    pod.pod.spec.containers.iter().map(|container| normalize_name(&container.image)).collect()
}

/// By the sizes of the images that are there, each scaled by the share of nodes that have it.
pub fn score(images: &[String], node: &NodeInfo, node_count: usize) -> i64 {
    if images.is_empty() || node.images.is_empty() || node_count == 0 {
        return 0;
    }
    let states = images.iter().filter_map(|image| node.images.get(image));
    let scaled = states.map(|image| (image.size as f64 * (image.nodes as f64 / node_count as f64)) as i64);
    let sum = scaled.fold(0, i64::saturating_add);
    let max = MAX_CONTAINER_THRESHOLD.saturating_mul(images.len() as i64);
    (i128::from(MAX_NODE_SCORE) * i128::from(sum.clamp(MIN_THRESHOLD, max) - MIN_THRESHOLD)
        / i128::from(max - MIN_THRESHOLD)) as i64
}

/// Adds `:latest` to a name without a tag.
fn normalize_name(name: &str) -> String {
    let (colon, slash) = (name.rfind(':'), name.rfind('/'));
    if colon <= slash { format!("{name}:latest") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_registry_is_no_tag() {
        assert_eq!(normalize_name("a"), "a:latest");
        assert_eq!(normalize_name("a:1"), "a:1");
        assert_eq!(normalize_name("r:5000/a"), "r:5000/a:latest");
        assert_eq!(normalize_name("r:5000/a@sha256:0"), "r:5000/a@sha256:0");
    }
}
