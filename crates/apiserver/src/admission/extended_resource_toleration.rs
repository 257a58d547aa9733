//! Who asks for a resource that only some nodes have tolerates that these are kept for it.

use super::plain::{Decide, Verdict, containers, is};
use rest::{Admitted, Interest, Resource};
use schema::Value;
use std::collections::BTreeSet;

pub struct ExtendedResourceToleration;

impl Decide for ExtendedResourceToleration {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn change(&self, _: &Admitted<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        let requests = containers(object).filter(|(list, ..)| *list != "ephemeralContainers");
        let requests = requests.filter_map(|(_, _, it)| it.at(&["resources", "requests"])?.as_map());
        let names = requests.flat_map(|requests| requests.keys());
        let asked: BTreeSet<String> =
            names.filter(|name| kinds::is_extended_resource(name)).map(str::to_owned).collect();
        for name in asked {
            tolerate(object, &name);
        }
        Ok(())
    }
}

fn tolerate(pod: &mut Value, name: &str) {
    let mut wanted = Value::map();
    wanted.set(&["key"], name);
    wanted.set(&["operator"], "Exists");
    wanted.set(&["effect"], "NoSchedule");
    let mut tolerations = pod.items(&["spec", "tolerations"]).to_vec();
    let same = |it: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| it.text(&[field]) == wanted.text(&[field]))
    };
    // the same but for a time limit is made the one without
    match tolerations.iter().position(same) {
        Some(at) => tolerations[at] = wanted,
        None => tolerations.push(wanted),
    }
    pod.set(&["spec", "tolerations"], tolerations);
}
