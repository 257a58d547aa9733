//! The volumes that wait for a claim, by what claims look for.
//!
//! ```text
//! class fast, file systems:   [RWO]       5Gi c, 10Gi a, 10Gi b
//!                             [RWO, ROX]  8Gi d
//! a claim for RWO, 6Gi of class fast:  a, since what can do little is taken before what can do more
//! ```
//!
//! What always holds: a volume that was taken is on the shelf again only when the informer shows it as free, so that two
//! claims that are looked at at the same time do not choose the same one. Claims of other classes cost nothing.

use super::bind::{Wish, is_free, modes_of};
use crate::volumes::{self, Marks};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use schema::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Where volumes lie that claims of one sort look for: the class, and whether they are block devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    class: String,
    is_block: bool,
}

/// How many access modes a volume has, and which.
type Modes = (u32, u8);

#[derive(Default)]
pub struct Shelf {
    /// The smallest first.
    places: HashMap<Place, BTreeMap<Modes, BTreeSet<(Quantity, String)>>>,
    /// Where each volume lies.
    by_name: HashMap<String, (Place, Modes, Quantity)>,
}

impl Shelf {
    /// A volume is as it is now: on the shelf if it is free.
    pub fn file(&mut self, volume: &PersistentVolume, marks: &Marks) {
        let name = volume.name_any();
        self.remove(&name);
        let capacity = volume.spec.as_ref().and_then(|it| it.capacity.as_ref());
        let Some(size) = volumes::size(capacity).filter(|_| is_free(volume)) else { return };
        let spec = volume.spec.as_ref();
        let modes = modes_of(spec.and_then(|it| it.access_modes.as_deref()));
        let modes = (modes.count_ones(), modes);
        let is_block = spec.and_then(|it| it.volume_mode.as_deref()) == Some("Block");
        let place = Place { class: marks.class_of_volume(volume).to_owned(), is_block };
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
    pub fn take(&mut self, wish: &Wish<'_>, agrees: impl Fn(&str) -> bool) -> Option<String> {
        let place = Place { class: wish.class.to_owned(), is_block: wish.is_block };
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
        let (mut shelf, marks) = (Shelf::default(), Marks::new(&Names::kubernetes()));
        const ONCE: &[&str] = &["ReadWriteOnce"];
        const BOTH: &[&str] = &["ReadOnlyMany", "ReadWriteOnce"];
        for (name, class, modes, size) in [
            ("a", "fast", ONCE, "10Gi"),
            ("b", "fast", ONCE, "10240Mi"),
            ("c", "fast", ONCE, "5Gi"),
            ("d", "fast", BOTH, "8Gi"),
            ("e", "slow", ONCE, "6Gi"),
        ] {
            shelf.file(&volume(name, class, modes, size, "Available"), &marks);
        }
        shelf.file(&volume("f", "fast", ONCE, "6Gi", "Released"), &marks);
        let take = |shelf: &mut Shelf, modes: &[&str], size: &str, not: &str| {
            let modes: Vec<String> = modes.iter().map(|it| (*it).to_owned()).collect();
            let wish = Wish {
                class: "fast",
                is_block: false,
                modes: modes_of(Some(&modes)),
                size: size.parse().unwrap(),
            };
            shelf.take(&wish, |name| name != not).unwrap_or_default()
        };
        assert_eq!(take(&mut shelf, ONCE, "6Gi", ""), "a");
        assert_eq!(take(&mut shelf, ONCE, "6Gi", "b"), "d");
        assert_eq!(take(&mut shelf, BOTH, "1Gi", ""), "");
        assert_eq!(take(&mut shelf, ONCE, "5Gi", ""), "c");
        assert_eq!(take(&mut shelf, ONCE, "11Gi", ""), "");
        // one that came back is there again, where it belongs by now
        shelf.file(&volume("a", "slow", ONCE, "10Gi", "Available"), &marks);
        assert_eq!(take(&mut shelf, ONCE, "6Gi", ""), "b");
        assert_eq!(take(&mut shelf, ONCE, "1", ""), "");
        shelf.remove("a");
        shelf.remove("e");
        assert!(shelf.places.is_empty() && shelf.by_name.is_empty());
    }
}
