//! AlwaysPullImages: sets `imagePullPolicy: Always` on all containers, so that a node checks pull credentials each
//! time.

use super::sync_plugin::{SyncAdmission, Verdict, containers, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;
use schema::problem::quoted;
use std::collections::HashSet;

pub struct AlwaysPullImages;

impl SyncAdmission for AlwaysPullImages {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn change(&self, _: &AdmissionAttributes<'_>, object: &mut Value, old: Option<&Value>) -> Verdict {
        if brings_no_images(object, old) {
            return Ok(());
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            let containers = object.at_mut(&["spec", list]).and_then(Value::as_list_mut);
            for container in containers.into_iter().flatten() {
                container.set(&["imagePullPolicy"], "Always");
            }
        }
        Ok(())
    }

    /// Checks that no later plugin has undone it.
    fn review(&self, _: &AdmissionAttributes<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        if brings_no_images(object, old) {
            return Ok(());
        }
        let other = containers(object).find(|(_, _, it)| it.text(&["imagePullPolicy"]) != "Always");
        other.map_or(Ok(()), |(list, at, container)| {
            let policy = container.text(&["imagePullPolicy"]);
            let path = format!("spec.{list}[{at}].imagePullPolicy");
            Err(format!("{path}: Unsupported value: {}: supported values: \"Always\"", quoted(policy)))
        })
    }
}

/// Whether an update adds no image to those of the old pod.
fn brings_no_images(object: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let had: HashSet<&str> = containers(old).map(|(_, _, it)| it.text(&["image"])).collect();
    containers(object).all(|(_, _, it)| had.contains(it.text(&["image"])))
}
