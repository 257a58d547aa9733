//! Objects that call services, and objects whose features behave differently here.

use super::report::{Findings, Severity};
use names::Names;
use schema::Value;
use std::collections::BTreeSet;

/// Volumes that upstream attaches with code of its own, by the field of a persistent volume.
const IN_TREE_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "gcePersistentDisk",
    "glusterfs",
    "portworxVolume",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// See the module.
#[derive(Default)]
pub struct References {
    services: BTreeSet<String>,
    /// Services that objects call, with the objects.
    calls: BTreeSet<(String, String)>,
}

impl References {
    pub fn see(&mut self, resource: &str, object: &Value, findings: &mut Findings) {
        let name = shown(resource, object);
        match resource {
            "services" => {
                self.services
                    .insert(key(object.text(&["metadata", "namespace"]), object.text(&["metadata", "name"])));
            }
            "persistentvolumes" => see_volume(object, &name, findings),
            "pods" => see_pod(object, &name, findings),
            _ if resource.starts_with("storageclasses.") => {
                let provisioner = object.text(&["provisioner"]);
                let in_tree = provisioner.strip_prefix(&Names::kubernetes().well_known(""));
                if in_tree.is_some_and(|it| it != "no-provisioner") {
                    let text = "storage classes whose provisioner is part of upstream's controller manager: volumes are \
                                provisioned by a CSI driver only (docs/differences.md, Controllers: volumes)";
                    findings.add(Severity::Differs, text, name);
                }
            }
            _ if resource.starts_with("apiservices.") => {
                self.add_call(object, &["spec", "service"], &name);
            }
            _ if resource.contains("webhookconfigurations.") => {
                for webhook in object.items(&["webhooks"]) {
                    self.add_call(webhook, &["clientConfig", "service"], &name);
                }
            }
            _ if resource.starts_with("customresourcedefinitions.") => {
                self.add_call(object, &["spec", "conversion", "webhook", "clientConfig", "service"], &name);
            }
            _ => {}
        }
    }

    fn add_call(&mut self, object: &Value, path: &[&str], name: &str) {
        let Some(service) = object.at(path).filter(|it| !it.text(&["name"]).is_empty()) else { return };
        self.calls.insert((key(service.text(&["namespace"]), service.text(&["name"])), name.to_owned()));
    }

    pub fn finish(self, findings: &mut Findings) {
        for (service, object) in self.calls {
            match self.services.contains(&service) {
                false => {
                    let text = "objects that call a service which does not exist: their requests fail, as upstream's do";
                    findings.add(Severity::Note, text, format!("{object}: {service}"));
                }
                true => {
                    let text = "objects that call a service: the server must reach its pods (the pod network or \
                                --egress-selector-config-file)";
                    findings.add(Severity::Note, text, format!("{object}: {service}"));
                }
            }
        }
    }
}

fn see_volume(volume: &Value, name: &str, findings: &mut Findings) {
    let spec = |field: &str| volume.at(&["spec", field]);
    if let Some(field) = IN_TREE_VOLUMES.iter().find(|field| spec(field).is_some()) {
        let text = format!(
            "volumes of the kind {field}: they need its CSI driver (docs/differences.md, Controllers: volumes)"
        );
        findings.add(Severity::Differs, text, name);
    }
    if volume.text(&["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        let text = "volumes with the policy Recycle: they become Failed when they are released (docs/differences.md, \
                    Controllers: volumes)";
        findings.add(Severity::Differs, text, name);
    }
}

fn see_pod(pod: &Value, name: &str, findings: &mut Findings) {
    for volume in pod.items(&["spec", "volumes"]) {
        if volume.at(&["flexVolume"]).is_some() {
            let text = "pods with FlexVolumes: their drivers must be on the machines of the controller manager and of the \
                        node, and volumes do not grow (docs/differences.md, Node agent)";
            findings.add(Severity::Note, text, name);
        }
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// An object in a finding: `deployments.apps default/web`.
pub fn shown(resource: &str, object: &Value) -> String {
    let (namespace, name) = (object.text(&["metadata", "namespace"]), object.text(&["metadata", "name"]));
    match namespace {
        "" => format!("{resource} {name}"),
        namespace => format!("{resource} {}", key(namespace, name)),
    }
}
