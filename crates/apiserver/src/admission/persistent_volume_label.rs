//! Volumes of clouds are labelled with where they are, which the cloud has to say.
//!
//! There is no cloud here that could be asked, so volumes that would need one are refused; all others pass.

use super::plain::{Decide, Verdict, is};
use rest::{Admitted, Interest, Resource};
use schema::Value;

pub struct PersistentVolumeLabel;

/// The sources that are asked about: the field, what names the volume, and what the cloud calls it.
const SOURCES: &[(&str, &str, &str)] = &[
    ("awsElasticBlockStore", "volumeID", "AWS EBS volume"),
    ("gcePersistentDisk", "pdName", "GCE PD volume"),
    ("vsphereVolume", "volumePath", "vSphere Volume"),
];
/// A volume that is being made has no place yet.
const BEING_MADE: &str = "placeholder-for-provisioning";

impl Decide for PersistentVolumeLabel {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "persistentvolumes"))
    }

    fn change(&self, write: &Admitted<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        if is_labelled(object, write) {
            return Ok(());
        }
        for (source, field, called) in SOURCES {
            let Some(volume) = object.at(&["spec", source]).filter(|it| !it.is_null()) else { continue };
            let name = volume.text(&[field]);
            if name == BEING_MADE {
                return Ok(());
            }
            return Err(format!("error querying {called} {name}: there is no cloud provider to ask"));
        }
        Ok(())
    }
}

/// Whether whoever made the volume has said where it is, and may be believed.
fn is_labelled(volume: &Value, write: &Admitted<'_>) -> bool {
    let names = &write.api.names;
    let has = |part: &str, key: &str| volume.at(&["metadata", part, key]).is_some();
    let label = |key: String| has("labels", &key);
    let made_here = has("annotations", &names.well_known_under("pv", "provisioned-by"));
    let newer = ["zone", "region"].map(|it| label(names.well_known_under("topology", it)));
    let older = ["zone", "region"].map(|it| label(names.well_known_under("failure-domain.beta", it)));
    made_here && (newer == [true; 2] || older == [true; 2])
}
