//! NodeRestriction: limits kubelets to writes of their own node and its pods.
//!
//! The node authorizer decides which kinds a kubelet may write; this plugin checks their content: its own
//! node, without labels and taints that steer pods; mirror pods that reference nothing else; the status of
//! pods on its node; tokens bound to them; its lease; its CSINode.

use super::sync_plugin::is;
use crate::authorization::node::node_of;
use env::MaybeReady;
use kinds::core::pod::references::{self, ReferenceKind};
use names::Names;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource, Subject};
use schema::problem::quoted;
use schema::{Map, Value};
use std::collections::BTreeSet;

pub struct NodeRestriction;

impl Admission for NodeRestriction {
    fn interest(&self, resource: &Resource) -> Interest {
        const KINDS: &[(&str, &str)] = &[
            ("", "pods"),
            ("", "nodes"),
            ("", "persistentvolumeclaims"),
            ("", "serviceaccounts"),
            ("coordination", "leases"),
            ("storage", "csinodes"),
        ];
        let writes = Interest::CREATE.and(Interest::UPDATE).and(Interest::DELETE).and(Interest::PARTS);
        writes.when(KINDS.iter().any(|(group, plural)| is(resource, group, plural)))
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        match node_of(&write.user.name, &write.user.groups) {
            None => Ok(()).into(),
            Some(node) => Write { write, node, object: object.as_deref(), old }.check().into(),
        }
    }
}

/// A write of a kubelet.
struct Write<'a> {
    write: &'a AdmissionAttributes<'a>,
    node: &'a str,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
}

type CheckResult = Result<(), ApiError>;

impl Write<'_> {
    fn check(&self) -> CheckResult {
        let (write, node) = (self.write, self.node);
        if node.is_empty() {
            return self.refuse(&format!("could not determine node from user {}", quoted(&write.user.name)));
        }
        let kind = &write.resource.kind;
        match (&*kind.group.stem, &*kind.plural, write.subresource) {
            ("", "pods", "") => self.pod(),
            ("", "pods", "status") => self.pod_status(),
            ("", "pods", "eviction") => self.eviction(),
            ("", "pods", other) => self.refuse(&format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            )),
            ("", "nodes", _) => self.node_object(),
            ("", "persistentvolumeclaims", "status") => self.claim_status(),
            ("", "persistentvolumeclaims", _) => self.refuse("may only update PVC status"),
            ("", "serviceaccounts", "token") if write.operation == Operation::Create => self.token(),
            ("coordination", "leases", _) => {
                let namespace = write.api.names.node_lease_namespace();
                if write.namespace != namespace {
                    let why = format!("can only access leases in the {namespace:?} system namespace");
                    return self.refuse(&why);
                }
                self.same_name("can only access node lease with the same name as the requesting node")
            }
            ("storage", "csinodes", _) => {
                self.same_name("can only access CSINode with the same name as the requesting node")
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, why: &str) -> CheckResult {
        Err(self.write.forbidden(self.object, why))
    }

    fn same_name(&self, why: &str) -> CheckResult {
        if self.write.name == self.node { Ok(()) } else { self.refuse(why) }
    }

    /// Whether a pod is on the node.
    fn has(&self, pod: &Value) -> bool {
        pod.text(&["spec", "nodeName"]) == self.node
    }

    fn pod(&self) -> CheckResult {
        let node = self.node;
        match (self.write.operation, self.object, self.old) {
            (Operation::Create, Some(pod), _) => self.mirror(pod),
            (Operation::Delete, _, Some(pod)) if self.has(pod) => Ok(()),
            (Operation::Delete, ..) => {
                self.refuse(&format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            _ => {
                let operation = self.write.operation.name();
                self.refuse(&format!(
                    "unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods"
                ))
            }
        }
    }

    /// A mirror pod must not reference objects that the kubelet could then read.
    fn mirror(&self, pod: &Value) -> CheckResult {
        let node = self.node;
        let annotation = self.write.api.names.well_known("config.mirror");
        if pod.at(&["metadata", "annotations", &annotation]).is_none() {
            return self.refuse(&format!(
                "pod does not have {annotation:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if !self.has(pod) {
            return self
                .refuse(&format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        self.check_owner(pod)?;
        let refers = |to: ReferenceKind| references::any(pod, |kind, _| kind == to);
        for (to, text) in [
            (ReferenceKind::ServiceAccount, "a service account"),
            (ReferenceKind::Secret, "secrets"),
            (ReferenceKind::ConfigMap, "configmaps"),
        ] {
            if refers(to) {
                return self.refuse(&format!("node {node:?} can not create pods that reference {text}"));
            }
        }
        let claims = |volume: &Value| volume.at(&["persistentVolumeClaim"]).is_some_and(|it| !it.is_null());
        if pod.items(&["spec", "volumes"]).iter().any(claims) {
            return self
                .refuse(&format!("node {node:?} can not create pods that reference persistentvolumeclaims"));
        }
        Ok(())
    }

    /// A mirror pod is owned by its node, without blocking the node's deletion.
    fn check_owner(&self, pod: &Value) -> CheckResult {
        let node = self.node;
        let owner = match pod.items(&["metadata", "ownerReferences"]) {
            [owner] => owner,
            [] => {
                return self.refuse(&format!(
                    "node {node:?} can only create pods with an owner reference set to itself"
                ));
            }
            _ => {
                return self.refuse(&format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        if [owner.text(&["apiVersion"]), owner.text(&["kind"]), owner.text(&["name"])] != ["v1", "Node", node]
        {
            return self.refuse(&format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        let is_true = |field: &str| owner.at(&[field]).and_then(Value::as_bool) == Some(true);
        if !is_true("controller") {
            return self.refuse(&format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if is_true("blockOwnerDeletion") {
            return self
                .refuse(&format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let existing = self.find("nodes", "node", "", node)?;
        let (is, text) = (existing.text(&["metadata", "uid"]), owner.text(&["uid"]));
        if is != text {
            // in upstream's order
            return self.refuse(&format!("node {node} UID mismatch: expected {text} got {is}"));
        }
        Ok(())
    }

    fn find(&self, plural: &str, text: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let object = self.write.api.lookup(plural, namespace, name);
        object.ok_or_else(|| ApiError::not_found(Subject { group: "", kind: text, name }))
    }

    fn pod_status(&self) -> CheckResult {
        let node = self.node;
        let (Operation::Update, Some(pod), Some(old)) = (self.write.operation, self.object, self.old) else {
            return self.refuse(&format!("unexpected operation {:?}", self.write.operation.name()));
        };
        if !self.has(old) {
            return self.refuse(&format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if labels(Some(pod)) != labels(Some(old)) {
            return self.refuse(&format!("node {node:?} cannot update labels through pod status"));
        }
        Ok(())
    }

    fn eviction(&self) -> CheckResult {
        // an eviction is not a write of the pod
        if self.write.operation != Operation::Create {
            return Ok(());
        }
        let pod = self.find("pods", "pod", self.write.namespace, self.write.name)?;
        if self.has(&pod) {
            return Ok(());
        }
        self.refuse(&format!("node {} can only evict pods with spec.nodeName set to itself", self.node))
    }

    fn node_object(&self) -> CheckResult {
        let (write, node) = (self.write, self.node);
        let names = &write.api.names;
        let changed = |object: Option<&Value>, old: Option<&Value>| {
            let forbidden: Vec<_> =
                changed_labels(object, old).into_iter().filter(|label| !may_label(label, names)).collect();
            Some(forbidden.join(", ")).filter(|text| !text.is_empty())
        };
        let owners = |object: Option<&Value>| {
            object.map(|it| it.items(&["metadata", "ownerReferences"]).to_vec()).unwrap_or_default()
        };
        // an owner that does not exist would make the garbage collector delete the node, and with it taints
        // and labels
        if write.operation != Operation::Delete && owners(self.object) != owners(self.old) {
            return self.refuse(&format!("node {node:?} is not allowed to modify ownerReferences"));
        }
        let source = |object: Option<&Value>| object.and_then(|it| it.at(&["spec", "configSource"])).cloned();
        if write.operation == Operation::Create {
            if source(self.object).is_some() {
                return self.refuse(&format!(
                    "node {node:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            if let Some(text) = changed(self.object, None) {
                return self
                    .refuse(&format!("node {node:?} is not allowed to set the following labels: {text}"));
            }
        }
        if write.name != node {
            return self.refuse(&format!("node {node:?} is not allowed to modify node {:?}", write.name));
        }
        if write.operation != Operation::Update {
            return Ok(());
        }
        let next = source(self.object);
        if next.is_some() && next != source(self.old) {
            return self.refuse(&format!(
                "node {node:?} is not allowed to update configSource to a new non-nil configSource"
            ));
        }
        let taints = |object: Option<&Value>| {
            object.map(|it| it.items(&["spec", "taints"]).to_vec()).unwrap_or_default()
        };
        if taints(self.object) != taints(self.old) {
            return self.refuse(&format!("node {node:?} is not allowed to modify taints"));
        }
        if let Some(text) = changed(self.object, self.old) {
            return self.refuse(&format!("is not allowed to modify labels: {text}"));
        }
        Ok(())
    }

    fn claim_status(&self) -> CheckResult {
        let (Operation::Update, Some(claim), Some(old)) = (self.write.operation, self.object, self.old)
        else {
            return self.refuse(&format!("unexpected operation {:?}", self.write.operation.name()));
        };
        let rest_of = |claim: &Value| {
            let mut rest = claim.clone();
            rest.unset(&["metadata", "resourceVersion"]);
            rest.unset(&["metadata", "managedFields"]);
            rest.unset(&["status", "capacity"]);
            rest.unset(&["status", "conditions"]);
            rest
        };
        if rest_of(claim) == rest_of(old) {
            return Ok(());
        }
        self.refuse(&format!(
            "node {:?} is not allowed to update fields other than status.capacity and status.conditions",
            self.node
        ))
    }

    /// Tokens are for pods on this node.
    fn token(&self) -> CheckResult {
        let reference = self.object.and_then(|request| request.at(&["spec", "boundObjectRef"]));
        let reference = reference.filter(|it| {
            it.text(&["apiVersion"]) == "v1" && it.text(&["kind"]) == "Pod" && !it.text(&["name"]).is_empty()
        });
        let Some(reference) = reference else {
            return self.refuse("node requested token not bound to a pod");
        };
        let uid = reference.text(&["uid"]);
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.find("pods", "pod", self.write.namespace, reference.text(&["name"]))?;
        if pod.text(&["metadata", "uid"]) != uid {
            return self.refuse(&format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ));
        }
        if !self.has(&pod) {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        Ok(())
    }
}

fn labels(object: Option<&Value>) -> Map {
    let labels = object.and_then(|it| it.at(&["metadata", "labels"])).and_then(Value::as_map);
    labels.cloned().unwrap_or_default()
}

/// Labels that are added, removed or changed, in order.
fn changed_labels(object: Option<&Value>, old: Option<&Value>) -> BTreeSet<String> {
    let (next, old) = (labels(object), labels(old));
    let keys = next.keys().chain(old.keys());
    keys.filter(|key| next.get(key) != old.get(key)).map(str::to_owned).collect()
}

/// System labels that a kubelet may set.
const OWN_LABELS: &[(&str, &str)] = &[
    ("", "hostname"),
    ("", "os"),
    ("", "arch"),
    ("topology", "zone"),
    ("topology", "region"),
    ("failure-domain.beta", "zone"),
    ("failure-domain.beta", "region"),
    ("beta", "instance-type"),
    ("beta", "os"),
    ("beta", "arch"),
];

/// Whether a kubelet may set a label on its node: none with the restriction prefix, and only some system
/// labels.
fn may_label(label: &str, names: &Names) -> bool {
    let Some((of, _)) = label.split_once('/') else { return true };
    let within =
        |domain: &str| of.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let domain = &*names.well_known_domain;
    if within(&format!("node-restriction.{domain}")) {
        return false;
    }
    if !within(domain) && !within(&names.api_domain) {
        return true;
    }
    let own = |(under, name): &(&str, &str)| match *under {
        "" => label == names.well_known(name),
        under => label == names.well_known_under(under, name),
    };
    within(&format!("{}.{domain}", names.agent))
        || within(&format!("node.{domain}"))
        || OWN_LABELS.iter().any(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_steer_pods_are_not_an_agents_to_set() {
        let names = Names::kubernetes();
        let may = |label: &str| may_label(label, &names);
        for label in [
            "anything",
            "example.com/x",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
            "node.kubernetes.io/x",
            "a.node.kubernetes.io/x",
            "kubelet.kubernetes.io/x",
            "beta.kubernetes.io/arch",
            "notkubernetes.io/x",
        ] {
            assert!(may(label), "{label}");
        }
        for label in [
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
            "kubernetes.io/x",
            "a.kubernetes.io/x",
            "k8s.io/x",
            "node.k8s.io/x",
            "node-role.kubernetes.io/master",
            "topology.kubernetes.io/other",
        ] {
            assert!(!may(label), "{label}");
        }
    }
}
