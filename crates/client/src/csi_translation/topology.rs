//! Zones and regions of a volume, under the keys of its driver.

use api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};
use names::labels::{FAILURE_DOMAIN_REGION, FAILURE_DOMAIN_ZONE, TOPOLOGY_REGION, TOPOLOGY_ZONE};
use std::collections::BTreeSet;

/// What separates zones in one label.
pub const ZONE_SEPARATOR: &str = "__";

/// Names the zones of a volume as its driver does. Zones of its node affinity count more than those of its labels.
pub fn translate_zones(volume: &mut PersistentVolume, key: &str) {
    let (zone, region) = topology_labels(volume);
    if has_values(volume, zone) {
        rename(volume, zone, key);
    } else if let Some(zones) = volume.metadata.labels.get(zone) {
        let zones: Vec<String> = zones.split(ZONE_SEPARATOR).map(str::to_owned).collect();
        add(volume, key, &zones);
    }
    // nodes no longer have the old label
    if region == FAILURE_DOMAIN_REGION {
        rename(volume, region, TOPOLOGY_REGION);
    }
}

/// Names the zone and the region of a volume as its driver does.
pub fn translate_zone_and_region(volume: &mut PersistentVolume, zone_key: &str, region_key: &str) {
    let (zone, region) = topology_labels(volume);
    for (label, key) in [(zone, zone_key), (region, region_key)] {
        if has_values(volume, label) {
            rename(volume, label, key);
        } else if let Some(value) = volume.metadata.labels.get(label).cloned() {
            add(volume, key, &[value]);
        }
    }
}

/// The labels of zone and region that a volume uses.
fn topology_labels(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let (current, old) = ((TOPOLOGY_ZONE, TOPOLOGY_REGION), (FAILURE_DOMAIN_ZONE, FAILURE_DOMAIN_REGION));
    let selects = |key: &str| requirements(volume).any(|it| it.key == key);
    let labels = &volume.metadata.labels;
    let is_old = selects(old.0) || labels.contains_key(old.0) && !labels.contains_key(current.0);
    if !selects(current.0) && is_old { old } else { current }
}

fn terms(volume: &PersistentVolume) -> &[NodeSelectorTerm] {
    let affinity = volume.spec.node_affinity.as_ref();
    affinity.and_then(|it| it.required.as_ref()).map(|it| &*it.node_selector_terms).unwrap_or_default()
}

fn requirements(volume: &PersistentVolume) -> impl Iterator<Item = &NodeSelectorRequirement> {
    terms(volume).iter().flat_map(|term| &term.match_expressions)
}

fn has_values(volume: &PersistentVolume, key: &str) -> bool {
    requirements(volume).any(|it| it.key == key && !it.values.is_empty())
}

fn rename(volume: &mut PersistentVolume, from: &str, to: &str) {
    let required = volume.spec.node_affinity.as_mut().and_then(|it| it.required.as_mut());
    let terms = required.into_iter().flat_map(|it| &mut it.node_selector_terms);
    for requirement in terms.flat_map(|term| &mut term.match_expressions).filter(|it| it.key == from) {
        to.clone_into(&mut requirement.key);
    }
}

/// Adds a requirement to all terms.
fn add(volume: &mut PersistentVolume, key: &str, values: &[String]) {
    let values: BTreeSet<&str> = values.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let requirement = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: values.into_iter().map(str::to_owned).collect(),
        ..NodeSelectorRequirement::default()
    };
    let affinity = volume.spec.node_affinity.get_or_insert_default();
    let terms = &mut affinity.required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.push(requirement.clone());
    }
}
