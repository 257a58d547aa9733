//! The score of VolumeBinding, behind the gate VolumeCapacityPriority: prefers nodes by how full the volumes would be
//! that the pod's claims are bound to there.

use std::collections::BTreeMap;

use api::Quantity;

use crate::framework::profile::UtilizationShapePoint;
use crate::plugins::node_resources::shape_score;
use crate::plugins::volume_binding::PodVolumes;

/// The mean over the storage classes of the volumes that exist already; 0 without any.
pub fn score(shape: &[UtilizationShapePoint], volumes: &PodVolumes) -> i64 {
    let size = |list: &BTreeMap<String, Quantity>| list.get("storage").map_or(0, Quantity::whole);
    let mut by_class: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (claim, volume) in &volumes.bindings {
        let (requested, capacity) = by_class.entry(&volume.spec.storage_class_name).or_default();
        *requested = requested.saturating_add(size(&claim.spec.resources.requests));
        *capacity = capacity.saturating_add(size(&volume.spec.capacity));
    }
    let scores = by_class.values().map(|(requested, capacity)| shape_score(shape, *requested, *capacity));
    match by_class.len() {
        0 => 0,
        classes => (scores.sum::<i64>() as f64 / classes as f64).round() as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    use api::from_json;
    use std::sync::Arc;

    fn volumes(sizes: &[(&str, &str, &str)]) -> PodVolumes {
        let binding = |(class, requested, capacity): &(&str, &str, &str)| {
            let claim = format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{requested}"}}}}}}}}"#);
            let volume = format!(
                r#"{{"spec":{{"storageClassName":"{class}","capacity":{{"storage":"{capacity}"}}}}}}"#
            );
            let claim: PersistentVolumeClaim = from_json(claim.as_bytes()).unwrap();
            let volume: PersistentVolume = from_json(volume.as_bytes()).unwrap();
            (Arc::new(claim), Arc::new(volume))
        };
        PodVolumes { bindings: sizes.iter().map(binding).collect(), provisions: Vec::new() }
    }

    #[test]
    fn fuller_volumes_score_higher_by_the_default_shape() {
        let point = |utilization, score| UtilizationShapePoint { utilization, score };
        let shape = [point(0, 0), point(100, 10)];
        assert_eq!(score(&shape, &volumes(&[])), 0);
        assert_eq!(score(&shape, &volumes(&[("a", "1Gi", "4Gi")])), 25);
        assert_eq!(score(&shape, &volumes(&[("a", "1Gi", "4Gi"), ("a", "3Gi", "4Gi")])), 50);
        assert_eq!(score(&shape, &volumes(&[("a", "1Gi", "4Gi"), ("b", "4Gi", "4Gi")])), 63);
    }
}
