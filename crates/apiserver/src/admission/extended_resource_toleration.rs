//! ExtendedResourceToleration: tolerates the taints of the extended resources that a pod requests.

use super::sync_plugin::{SyncAdmission, Verdict, containers, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;
use std::collections::BTreeSet;

pub struct ExtendedResourceToleration;

impl SyncAdmission for ExtendedResourceToleration {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn change(&self, _: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        let requests = containers(object).filter(|(list, ..)| *list != "ephemeralContainers");
        let requests = requests.filter_map(|(_, _, it)| it.at(&["resources", "requests"])?.as_map());
        let names = requests.flat_map(|requests| requests.keys());
        let requested: BTreeSet<String> =
            names.filter(|name| kinds::is_extended_resource(name)).map(str::to_owned).collect();
        if !requested.is_empty() {
            tolerate(object, requested);
        }
        Ok(())
    }
}

fn tolerate(pod: &mut Value, mut names: BTreeSet<String>) {
    let toleration_of = |name: &str| {
        let mut toleration_of = Value::map();
        toleration_of.set(&["key"], name);
        toleration_of.set(&["operator"], "Exists");
        toleration_of.set(&["effect"], "NoSchedule");
        toleration_of
    };
    let mut tolerations = pod.items(&["spec", "tolerations"]).to_vec();
    for toleration in &mut tolerations {
        let text = |field: &str| toleration.text(&[field]);
        let same = (text("operator"), text("value"), text("effect")) == ("Exists", "", "NoSchedule");
        // an equal toleration with a time limit is replaced by one without
        if same && let Some(name) = names.take(text("key")) {
            *toleration = toleration_of(&name);
        }
    }
    tolerations.extend(names.iter().map(|name| toleration_of(name)));
    pod.set(&["spec", "tolerations"], tolerations);
}
