//! The volumes without a claim, by the properties that claims require.
//!
//! ```text
//! class fast, file systems:   [RWO]       5Gi c, 10Gi a, 10Gi b
//!                             [RWO, ROX]  8Gi d
//! a claim for RWO, 6Gi of class fast:  a, because volumes with fewer access modes are taken first
//! ```
//!
//! A volume that was taken is free again only when the informer shows it as free, so that two claims that are
//! reconciled at the same time do not choose the same one. Volumes of other classes are not visited.

use super::bind::{VolumeQuery, is_block, is_free, mode_bits};
use crate::volumes::{self, AnnotationKeys};
use api::core::v1::PersistentVolume;
use api::{Quantity, Resource};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A group of volumes that satisfy the same claims: their class, and whether they are block devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    class: String,
    is_block: bool,
}

/// The number of access modes of a volume, and their bits.
type Modes = (u32, u8);

#[derive(Default)]
pub struct FreeVolumes {
    /// In each set the smallest first.
    groups: HashMap<Group, BTreeMap<Modes, BTreeSet<(Quantity, String)>>>,
    /// The position of each volume in `groups`.
    by_name: HashMap<String, (Group, Modes, Quantity)>,
}

impl FreeVolumes {
    /// Adds a volume if it is free, else removes it.
    pub fn update(&mut self, volume: &PersistentVolume, keys: &AnnotationKeys) {
        let name = volume.name();
        self.remove(name);
        let Some(size) = volumes::size(&volume.spec.capacity).filter(|_| is_free(volume)) else { return };
        let modes = mode_bits(&volume.spec.access_modes);
        let modes = (modes.count_ones(), modes);
        let class = keys.class_of_volume(volume).to_owned();
        let group = Group { class, is_block: is_block(&volume.spec.volume_mode) };
        let volumes = self.groups.entry(group.clone()).or_default().entry(modes).or_default();
        volumes.insert((size.clone(), name.to_owned()));
        self.by_name.insert(name.to_owned(), (group, modes, size.clone()));
    }

    pub fn remove(&mut self, name: &str) {
        let Some((group, modes, size)) = self.by_name.remove(name) else { return };
        let Some(by_modes) = self.groups.get_mut(&group) else { return };
        if let Some(volumes) = by_modes.get_mut(&modes) {
            volumes.remove(&(size, name.to_owned()));
            if volumes.is_empty() {
                by_modes.remove(&modes);
            }
        }
        if by_modes.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// Takes the best volume for a claim: with the fewest access modes, then the smallest that is large enough, among
    /// those that `is_selected` accepts by name.
    pub fn take(&mut self, query: &VolumeQuery<'_>, is_selected: impl Fn(&str) -> bool) -> Option<String> {
        let group = Group { class: query.class.to_owned(), is_block: query.is_block };
        let allows = |modes: &Modes| modes.1 & query.modes == query.modes;
        let by_modes = self.groups.get(&group)?.iter().filter(|(modes, _)| allows(modes));
        let mut large_enough =
            by_modes.flat_map(|(_, volumes)| volumes.range((query.size.clone(), String::new())..));
        let name = large_enough.find(|(_, name)| is_selected(name))?.1.clone();
        self.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use names::Names;
    use serde_json::json;

    fn volume(name: &str, class: &str, modes: &[&str], size: &str, phase: &str) -> PersistentVolume {
        object(json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": modes, "capacity": {"storage": size}},
            "status": {"phase": phase}
        }))
    }

    #[test]
    fn the_smallest_of_the_simplest_is_taken_once() {
        let (mut free_volumes, keys) = (FreeVolumes::default(), AnnotationKeys::new(&Names::kubernetes()));
        const ONCE: &[&str] = &["ReadWriteOnce"];
        const BOTH: &[&str] = &["ReadOnlyMany", "ReadWriteOnce"];
        for (name, class, modes, size) in [
            ("a", "fast", ONCE, "10Gi"),
            ("b", "fast", ONCE, "10240Mi"),
            ("c", "fast", ONCE, "5Gi"),
            ("d", "fast", BOTH, "8Gi"),
            ("e", "slow", ONCE, "6Gi"),
        ] {
            free_volumes.update(&volume(name, class, modes, size, "Available"), &keys);
        }
        free_volumes.update(&volume("f", "fast", ONCE, "6Gi", "Released"), &keys);
        let take = |free_volumes: &mut FreeVolumes, modes: &[&str], size: &str, not: &str| {
            let modes: Vec<String> = modes.iter().map(|it| (*it).to_owned()).collect();
            let size = size.parse().unwrap();
            let query = VolumeQuery { class: "fast", is_block: false, modes: mode_bits(&modes), size };
            free_volumes.take(&query, |name| name != not).unwrap_or_default()
        };
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", ""), "a");
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", "b"), "d");
        assert_eq!(take(&mut free_volumes, BOTH, "1Gi", ""), "");
        assert_eq!(take(&mut free_volumes, ONCE, "5Gi", ""), "c");
        assert_eq!(take(&mut free_volumes, ONCE, "11Gi", ""), "");
        // a volume that is free again is in its new class
        free_volumes.update(&volume("a", "slow", ONCE, "10Gi", "Available"), &keys);
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", ""), "b");
        assert_eq!(take(&mut free_volumes, ONCE, "1", ""), "");
        free_volumes.remove("a");
        free_volumes.remove("e");
        assert!(free_volumes.groups.is_empty() && free_volumes.by_name.is_empty());
    }
}
