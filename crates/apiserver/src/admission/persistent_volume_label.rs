//! PersistentVolumeLabel: adds topology labels and node affinity to cloud volumes.
//!
//! Labels of provisioned volumes are trusted. There is no cloud provider to query for the others, so those
//! are denied.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use names::Names;
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct PersistentVolumeLabel;

/// Volume sources of clouds: the field, its name field, and the name in messages.
const SOURCES: &[(&str, &str, &str)] = &[
    ("awsElasticBlockStore", "volumeID", "AWS EBS volume"),
    ("gcePersistentDisk", "pdName", "GCE PD volume"),
    ("vsphereVolume", "volumePath", "vSphere Volume"),
];
/// A volume that is being provisioned has no zone yet.
const PROVISIONING: &str = "placeholder-for-provisioning";
/// Separator of several zones.
const ZONE_SEPARATOR: &str = "__";

impl SyncAdmission for PersistentVolumeLabel {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "persistentvolumes"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        match topology_labels(object, &write.api.names) {
            Some(topology_labels) => add_affinity(object, topology_labels),
            None => deny_cloud_volume(object),
        }
    }
}

/// The zone and region labels, if the provisioner has set both.
fn topology_labels(volume: &Value, names: &Names) -> Option<[(String, String); 2]> {
    volume.at(&["metadata", "annotations", &names.well_known_under("pv", "provisioned-by")])?;
    let labelled = |domain: &str| {
        let label = |name: &str| {
            let key = names.well_known_under(domain, name);
            let value = volume.at(&["metadata", "labels", &key])?.as_str()?.to_owned();
            Some((key, value))
        };
        Some([label("zone")?, label("region")?])
    };
    labelled("topology").or_else(|| labelled("failure-domain.beta"))
}

/// Adds node affinity for zone and region, unless the volume has it.
fn add_affinity(volume: &mut Value, [zone, region]: [(String, String); 2]) -> Verdict {
    const TERMS: &[&str] = &["spec", "nodeAffinity", "required", "nodeSelectorTerms"];
    let zones: Vec<_> = zone.1.split(ZONE_SEPARATOR).map(str::trim).collect();
    if zones.iter().any(|zone| zone.is_empty()) {
        return Err(format!("failed to convert label string for Zone: {} to a Set", zone.1));
    }
    let mut zones: Vec<Value> = zones.into_iter().map(Value::from).collect();
    zones.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    zones.dedup();
    let mut terms = volume.items(TERMS).to_vec();
    if terms.is_empty() {
        terms.push(Value::map());
    }
    let mentions =
        |term: &Value, key: &str| term.items(&["matchExpressions"]).iter().any(|it| it.text(&["key"]) == key);
    if !terms.iter().any(|term| mentions(term, &zone.0) || mentions(term, &region.0)) {
        for term in &mut terms {
            let mut expressions = term.items(&["matchExpressions"]).to_vec();
            expressions.push(one_of(&zone.0, zones.clone()));
            expressions.push(one_of(&region.0, vec![region.1.as_str().into()]));
            term.set(&["matchExpressions"], expressions);
        }
    }
    volume.set(TERMS, terms);
    Ok(())
}

fn one_of(key: &str, values: Vec<Value>) -> Value {
    let mut expression = Value::map();
    expression.set(&["key"], key);
    expression.set(&["operator"], "In");
    expression.set(&["values"], values);
    expression
}

/// Denies cloud volumes, whose zone cannot be queried.
fn deny_cloud_volume(volume: &Value) -> Verdict {
    for (source, field, called) in SOURCES {
        let Some(volume_source) = volume.at(&["spec", source]).filter(|it| !it.is_null()) else { continue };
        let name = volume_source.text(&[field]);
        if name == PROVISIONING && *source != "vsphereVolume" {
            continue;
        }
        return Err(format!("error querying {called} {name}: there is no cloud provider to ask"));
    }
    Ok(())
}
