//! The volumes that wait for a claim, by what claims look for.
//!
//! ```text
//! class fast, file systems:   [RWO]       5Gi c, 10Gi a, 10Gi b
//!                             [RWO, ROX]  8Gi d
//! a claim for RWO, 6Gi of class fast:  a, since what can do little is taken before what can do more
//! ```
//!
//! What always holds: a volume that was taken is free again here only when the informer shows it as free, so that two
//! claims that are looked at at the same time do not choose the same one. Claims of other classes cost nothing.

use super::bind::{VolumeQuery, is_free, modes_of};
use crate::volumes::{self, AnnotationKeys};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use schema::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A group of volumes that satisfy the same claims: their class, and whether they are block devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    class: String,
    is_block: bool,
}

/// How many access modes a volume has, and which.
type Modes = (u32, u8);

#[derive(Default)]
pub struct FreeVolumes {
    /// The smallest first.
    places: HashMap<Group, BTreeMap<Modes, BTreeSet<(Quantity, String)>>>,
    /// Where each volume lies.
    by_name: HashMap<String, (Group, Modes, Quantity)>,
}

impl FreeVolumes {
    /// Updates a volume: it is found here if it is free.
    pub fn file(&mut self, volume: &PersistentVolume, marks: &AnnotationKeys) {
        let name = volume.name_any();
        self.remove(&name);
        let capacity = volume.spec.as_ref().and_then(|it| it.capacity.as_ref());
        let Some(size) = volumes::size(capacity).filter(|_| is_free(volume)) else { return };
        let spec = volume.spec.as_ref();
        let modes = modes_of(spec.and_then(|it| it.access_modes.as_deref()));
        let modes = (modes.count_ones(), modes);
        let is_block = spec.and_then(|it| it.volume_mode.as_deref()) == Some("Block");
        let place = Group { class: marks.class_of_volume(volume).to_owned(), is_block };
        let there = self.places.entry(place.clone()).or_default().entry(modes).or_default();
        there.insert((size.clone(), name.clone()));
        self.by_name.insert(name, (place, modes, size));
    }

    pub fn remove(&mut self, name: &str) {
        let Some((place, modes, size)) = self.by_name.remove(name) else { return };
        let Some(by_modes) = self.places.get_mut(&place) else { return };
        if let Some(there) = by_modes.get_mut(&modes) {
            there.remove(&(size, name.to_owned()));
            if there.is_empty() {
                by_modes.remove(&modes);
            }
        }
        if by_modes.is_empty() {
            self.places.remove(&place);
        }
    }

    /// Takes the best volume for a claim: of those with the fewest modes the smallest that is large enough, if the
    /// claim's selector agrees.
    pub fn take(&mut self, wish: &VolumeQuery<'_>, agrees: impl Fn(&str) -> bool) -> Option<String> {
        let place = Group { class: wish.class.to_owned(), is_block: wish.is_block };
        let fitting = |modes: &Modes| modes.1 & wish.modes == wish.modes;
        let by_modes = self.places.get(&place)?.iter().filter(|(modes, _)| fitting(modes));
        let mut large_enough =
            by_modes.flat_map(|(_, there)| there.range((wish.size.clone(), String::new())..));
        let name = large_enough.find(|(_, name)| agrees(name))?.1.clone();
        self.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;
    use serde_json::json;

    fn volume(name: &str, class: &str, modes: &[&str], size: &str, phase: &str) -> PersistentVolume {
        let json = json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": modes, "capacity": {"storage": size}},
            "status": {"phase": phase}
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_smallest_of_the_simplest_is_taken_once() {
        let (mut free_volumes, marks) = (FreeVolumes::default(), AnnotationKeys::new(&Names::kubernetes()));
        const ONCE: &[&str] = &["ReadWriteOnce"];
        const BOTH: &[&str] = &["ReadOnlyMany", "ReadWriteOnce"];
        for (name, class, modes, size) in [
            ("a", "fast", ONCE, "10Gi"),
            ("b", "fast", ONCE, "10240Mi"),
            ("c", "fast", ONCE, "5Gi"),
            ("d", "fast", BOTH, "8Gi"),
            ("e", "slow", ONCE, "6Gi"),
        ] {
            free_volumes.file(&volume(name, class, modes, size, "Available"), &marks);
        }
        free_volumes.file(&volume("f", "fast", ONCE, "6Gi", "Released"), &marks);
        let take = |free_volumes: &mut FreeVolumes, modes: &[&str], size: &str, not: &str| {
            let modes: Vec<String> = modes.iter().map(|it| (*it).to_owned()).collect();
            let wish = VolumeQuery {
                class: "fast",
                is_block: false,
                modes: modes_of(Some(&modes)),
                size: size.parse().unwrap(),
            };
            free_volumes.take(&wish, |name| name != not).unwrap_or_default()
        };
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", ""), "a");
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", "b"), "d");
        assert_eq!(take(&mut free_volumes, BOTH, "1Gi", ""), "");
        assert_eq!(take(&mut free_volumes, ONCE, "5Gi", ""), "c");
        assert_eq!(take(&mut free_volumes, ONCE, "11Gi", ""), "");
        // one that came back is there again, where it belongs by now
        free_volumes.file(&volume("a", "slow", ONCE, "10Gi", "Available"), &marks);
        assert_eq!(take(&mut free_volumes, ONCE, "6Gi", ""), "b");
        assert_eq!(take(&mut free_volumes, ONCE, "1", ""), "");
        free_volumes.remove("a");
        free_volumes.remove("e");
        assert!(free_volumes.places.is_empty() && free_volumes.by_name.is_empty());
    }
}
