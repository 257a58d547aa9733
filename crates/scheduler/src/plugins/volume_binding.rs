//! VolumeBinding: the claims of a pod, and the volumes that they are or could be bound to on a node.
//!
//! Only decisions are made here. A claim is bound; or it waits for its first consumer, then a volume that fits is
//! chosen for it, or its provisioner is to make one for the chosen node.

use std::sync::Arc;

use api::Quantity;
use api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use api::storage::v1::StorageClass;
use names::labels::{BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER, SELECTED_NODE};

use crate::framework::{Code, Features, FilterResult, Reason, Reasons, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::volume_affinity::VolumeAffinity;
use crate::plugins::volumes::{WAIT_FOR_FIRST_CONSUMER, check_owner, claim_class, volume_class};
use crate::pod_info::PodInfo;
use crate::selector::{LabelMatcher, Labels};
use crate::storage::{Storage, key};

const NODE_CONFLICT: &str = "node(s) had volume node affinity conflict";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// A volume that a claim could be bound to, with its parsed node affinity.
#[derive(Debug, Clone)]
struct Candidate {
    volume: Arc<PersistentVolume>,
    affinity: VolumeAffinity,
    /// The volume names the claim already.
    is_reserved: bool,
}

impl Candidate {
    fn new(volume: &Arc<PersistentVolume>, is_reserved: bool) -> Self {
        Candidate { volume: Arc::clone(volume), affinity: VolumeAffinity::declared(volume), is_reserved }
    }
}

/// A claim that waits for its first consumer.
#[derive(Debug, Clone)]
struct Waiting {
    claim: Arc<PersistentVolumeClaim>,
    selected_node: Option<String>,
    /// Volumes that fit on some node, the smallest first; a reserved one is the only one.
    candidates: Vec<Candidate>,
    class: Option<Arc<StorageClass>>,
    /// The storage that the driver of the class reports, where it reports it.
    capacities: Option<Vec<LabelMatcher>>,
}

#[derive(Debug, Clone, Default)]
pub struct State {
    /// The volumes of bound claims; `None` for one that does not exist.
    bound: Vec<Option<VolumeAffinity>>,
    /// The smallest claims first.
    waiting: Vec<Waiting>,
}

/// The volumes of a pod on the node that was chosen for it.
#[derive(Debug, Clone, Default)]
pub struct PodVolumes {
    /// Claims with the volumes that they are to be bound to.
    pub bindings: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims whose volumes are to be provisioned for the node.
    pub provisions: Vec<Arc<PersistentVolumeClaim>>,
}

impl PodVolumes {
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }

    /// The objects as they are to be written for a pod on `node`.
    pub fn decide(&self, node: &str) -> (Vec<PersistentVolume>, Vec<PersistentVolumeClaim>) {
        let volumes = self.bindings.iter().map(|(claim, volume)| reserve(volume, claim)).collect();
        let claims = self.provisions.iter().map(|claim| {
            let mut claim = PersistentVolumeClaim::clone(claim);
            claim.metadata.annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
            claim
        });
        (volumes, claims.collect())
    }

    /// Counts the decisions before the server has them.
    pub fn assume(&self, storage: &mut Storage, node: &str) {
        let (volumes, claims) = self.decide(node);
        volumes.into_iter().for_each(|volume| storage.volumes.assume(Arc::new(volume)));
        claims.into_iter().for_each(|claim| storage.claims.assume(Arc::new(claim)));
    }

    pub fn restore(&self, storage: &mut Storage) {
        self.bindings.iter().for_each(|(_, volume)| storage.volumes.restore(&key(&**volume)));
        self.provisions.iter().for_each(|claim| storage.claims.restore(&key(&**claim)));
    }
}

fn reserve(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut reserved = volume.clone();
    let meta = &claim.metadata;
    if !is_bound_to(volume, claim) {
        reserved.metadata.annotations.entry(BOUND_BY_CONTROLLER.to_owned()).or_insert_with(|| "yes".into());
    }
    let names_claim = volume.spec.claim_ref.as_ref().is_some_and(|reference| {
        reference.name == meta.name && reference.namespace == meta.namespace && reference.uid == meta.uid
    });
    if !names_claim {
        reserved.spec.claim_ref = Some(Box::new(ObjectReference {
            kind: "PersistentVolumeClaim".to_owned(),
            api_version: "v1".to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        }));
    }
    reserved
}

pub fn pre_filter(pod: &PodInfo, storage: &Storage, features: Features) -> Result<State, Rejection> {
    let reject = Rejection::unresolvable_with;
    let mut mounted_claims = Vec::new();
    for mounted in pod.claims() {
        let name = &mounted.name;
        let key = format!("{}/{name}", pod.namespace());
        let Some(claim) = storage.claims.get_api(&key) else {
            return Err(reject(match mounted.is_ephemeral {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            }));
        };
        if claim.status.phase == "Lost" {
            let volume = &claim.spec.volume_name;
            return Err(reject(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            )));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(reject(format!("persistentvolumeclaim {name:?} is being deleted")));
        }
        if mounted.is_ephemeral {
            check_owner(pod, claim).map_err(reject)?;
        }
        mounted_claims.push(storage.claims.get(&key).unwrap_or(claim));
    }
    sort_claims(mounted_claims, storage, features)
}

fn sort_claims(
    claims: Vec<&Arc<PersistentVolumeClaim>>,
    storage: &Storage,
    features: Features,
) -> Result<State, Rejection> {
    let mut state = State::default();
    let mut unbound_immediate = false;
    for claim in claims {
        if is_fully_bound(claim) {
            let volume = storage.volumes.get(&claim.spec.volume_name);
            state.bound.push(volume.map(|volume| VolumeAffinity::new(volume, features)));
        } else if waits_for_consumer(claim, storage)? && claim.spec.volume_name.is_empty() {
            state.waiting.push(Waiting::new(claim, storage)?);
        } else {
            unbound_immediate = true;
        }
    }
    if unbound_immediate {
        return Err(Rejection::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
    }
    state.waiting.sort_by_key(|waiting| request(&waiting.claim));
    Ok(state)
}

/// Whether the volume controller has finished binding a claim.
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.metadata.annotations.contains_key(BIND_COMPLETED)
}

fn waits_for_consumer(claim: &PersistentVolumeClaim, storage: &Storage) -> Result<bool, Rejection> {
    let name = claim_class(claim);
    let Some(class) = storage.classes.get(name) else { return Ok(false) };
    match class.volume_binding_mode.as_deref() {
        None => Err(Rejection::error(format!("VolumeBindingMode not set for StorageClass {name:?}"))),
        Some(mode) => Ok(mode == WAIT_FOR_FIRST_CONSUMER),
    }
}

fn request(claim: &PersistentVolumeClaim) -> i64 {
    claim.spec.resources.requests.get("storage").map_or(0, Quantity::whole)
}

fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
    })
}

impl Waiting {
    fn new(claim: &Arc<PersistentVolumeClaim>, storage: &Storage) -> Result<Self, Rejection> {
        let selected_node = claim.metadata.annotations.get(SELECTED_NODE).cloned();
        let candidates = match selected_node {
            Some(_) => Vec::new(),
            None => candidates(claim, storage)?,
        };
        let class = storage.classes.get(claim_class(claim)).cloned();
        let capacities = class.as_ref().and_then(|class| capacities(claim, class, storage));
        Ok(Waiting { claim: Arc::clone(claim), selected_node, candidates, class, capacities })
    }

    /// Whether the provisioner can make the volume for a node: by topology, and by free storage.
    fn check_provision(&self, node: &NodeInfo) -> Result<(), Provision> {
        let name = format!("{}/{}", self.claim.metadata.namespace, self.claim.metadata.name);
        let class_name = claim_class(&self.claim);
        if class_name.is_empty() {
            return Err(Provision::Error(format!("no class for claim {name:?}")));
        }
        let Some(class) = &self.class else {
            return Err(Provision::Error(format!("failed to find storage class {class_name:?}")));
        };
        let is_provisioned = !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER;
        if !is_provisioned || !matches_topologies(&class.allowed_topologies, node.labels()) {
            return Err(Provision::Impossible);
        }
        let fits = |nodes: &LabelMatcher| nodes.matches(node.labels());
        match self.capacities.as_ref().is_none_or(|capacities| capacities.iter().any(fits)) {
            true => Ok(()),
            false => Err(Provision::NotEnoughSpace),
        }
    }
}

/// Why a volume cannot be provisioned.
enum Provision {
    Impossible,
    NotEnoughSpace,
    Error(String),
}

/// The volumes that a claim could be bound to, apart from the node.
fn candidates(claim: &PersistentVolumeClaim, storage: &Storage) -> Result<Vec<Candidate>, Rejection> {
    let (class, wanted) = (claim_class(claim), request(claim));
    let selector = claim.spec.selector.as_deref().map(|selector| LabelMatcher::new(Some(selector)));
    let selector = selector.transpose().map_err(|error| {
        let meta = &claim.metadata;
        Rejection::error(format!(
            "error creating internal label selector for claim: {}/{}: {error}",
            meta.namespace, meta.name
        ))
    })?;
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let mut found = Vec::new();
    for volume in storage.volumes.iter().filter(|volume| volume_class(volume) == class) {
        let spec = &volume.spec;
        let is_reserved = is_bound_to(volume, claim);
        let suits = (spec.claim_ref.is_none() || is_reserved)
            && capacity(volume) >= wanted
            && mode(&claim.spec.volume_mode) == mode(&spec.volume_mode)
            && volume.metadata.deletion_timestamp.is_none();
        let is_free = || {
            volume.status.phase == "Available"
                && selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
                && claim.spec.access_modes.iter().all(|mode| spec.access_modes.contains(mode))
        };
        if suits && (is_reserved || is_free()) {
            found.push(Candidate::new(volume, is_reserved));
        }
    }
    if found.iter().any(|candidate| candidate.is_reserved) {
        found.retain(|candidate| candidate.is_reserved);
    }
    found.sort_by(|a, b| {
        let order = |it: &Candidate| (capacity(&it.volume), it.volume.metadata.name.clone());
        order(a).cmp(&order(b))
    });
    Ok(found)
}

fn capacity(volume: &PersistentVolume) -> i64 {
    volume.spec.capacity.get("storage").map_or(0, Quantity::whole)
}

/// The nodes with enough free storage for a claim; `None` if the driver does not report storage.
fn capacities(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    storage: &Storage,
) -> Option<Vec<LabelMatcher>> {
    let size = claim.spec.resources.requests.get("storage")?.whole();
    let driver = storage.csi_drivers.get(&class.provisioner)?;
    if driver.spec.storage_capacity != Some(true) {
        return None;
    }
    let of_class = storage.csi_capacities.values().filter(|it| it.storage_class_name == class.metadata.name);
    let enough = of_class.filter(|it| {
        let limit = it.maximum_volume_size.as_ref().or(it.capacity.as_ref());
        limit.is_some_and(|limit| limit.whole() >= size)
    });
    let nodes = enough.filter_map(|it| LabelMatcher::new(it.node_topology.as_deref()).ok());
    Some(nodes.filter(|nodes| !nodes.is_nothing()).collect())
}

fn matches_topologies(terms: &[TopologySelectorTerm], labels: &Labels) -> bool {
    let matches = |term: &TopologySelectorTerm| {
        !term.match_label_expressions.is_empty()
            && term.match_label_expressions.iter().all(|expression| {
                labels.get(&expression.key).is_some_and(|value| expression.values.contains(value))
            })
    };
    terms.is_empty() || terms.iter().any(matches)
}

pub fn filter(state: &State, node: &NodeInfo, storage: &Storage) -> FilterResult {
    if state.bound.is_empty() && state.waiting.is_empty() {
        return Ok(());
    }
    find_volumes(state, node, storage).map(drop)
}

/// The volumes for a pod on a node.
pub fn find_volumes(state: &State, node: &NodeInfo, storage: &Storage) -> Result<PodVolumes, Rejection> {
    let (mut conflict, mut missing) = (false, false);
    for affinity in &state.bound {
        match affinity {
            None => missing = true,
            Some(affinity) if !affinity.admits(node, storage).map_err(Rejection::error)? => conflict = true,
            Some(_) => continue,
        }
        break;
    }
    let mut volumes = PodVolumes::default();
    let unbound = find_unbound(state, node, storage, &mut volumes);
    let (no_volume, no_space) = match unbound {
        Ok(()) => (false, false),
        Err(Provision::Impossible) => (true, false),
        Err(Provision::NotEnoughSpace) => (false, true),
        Err(Provision::Error(error)) => return Err(Rejection::error(error)),
    };
    let found = [
        (conflict, NODE_CONFLICT),
        (no_volume, BIND_CONFLICT),
        (no_space, NOT_ENOUGH_SPACE),
        (missing, VOLUME_MISSING),
    ];
    let reasons: Vec<Reason> =
        found.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| Reason::Text(text)).collect();
    match reasons.is_empty() {
        true => Ok(volumes),
        false => Err(Rejection { code: Code::UnschedulableAndUnresolvable, reasons: Reasons::Many(reasons) }),
    }
}

fn find_unbound(
    state: &State,
    node: &NodeInfo,
    storage: &Storage,
    volumes: &mut PodVolumes,
) -> Result<(), Provision> {
    let elsewhere = |waiting: &Waiting| waiting.selected_node.as_ref().is_some_and(|it| it != node.name());
    if state.waiting.iter().any(elsewhere) {
        return Err(Provision::Impossible);
    }
    let mut to_provision: Vec<&Waiting> = Vec::new();
    for waiting in &state.waiting {
        let is_taken = |candidate: &Candidate| {
            volumes.bindings.iter().any(|(_, volume)| Arc::ptr_eq(volume, &candidate.volume))
        };
        let is_reachable = |candidate: &Candidate| candidate.affinity.admits(node, storage) == Ok(true);
        let mut candidates = waiting.candidates.iter();
        let free = candidates.find(|candidate| !is_taken(candidate) && is_reachable(candidate));
        match free {
            Some(candidate) => {
                volumes.bindings.push((Arc::clone(&waiting.claim), Arc::clone(&candidate.volume)));
            }
            None => to_provision.push(waiting),
        }
    }
    for waiting in to_provision {
        waiting.check_provision(node)?;
        volumes.provisions.push(Arc::clone(&waiting.claim));
    }
    Ok(())
}

/// The volumes of a pod as the server took them, while the pod waits until they are bound.
#[derive(Debug, Clone, Default)]
pub struct WrittenVolumes {
    pub bindings: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    pub provisions: Vec<Arc<PersistentVolumeClaim>>,
}

/// Whether all volumes of a pod on a node are bound. An error ends the wait: the pod must be scheduled anew.
pub fn check_bindings(
    written: &WrittenVolumes,
    storage: &Storage,
    node: &NodeInfo,
    features: Features,
) -> Result<bool, String> {
    let check_reachable =
        |volume: &PersistentVolume| match VolumeAffinity::new(volume, features).admits(node, storage)? {
            true => Ok(()),
            false => Err(format!(
                "pv {:?} node affinity doesn't match node {:?}: no matching NodeSelectorTerms",
                volume.metadata.name,
                node.name()
            )),
        };
    let is_older =
        |seen: &str, written: &str| seen.parse::<u64>().unwrap_or(0) < written.parse::<u64>().unwrap_or(0);
    let find_claim = |claim: &PersistentVolumeClaim, what: &str| {
        let key = key(claim);
        let found = storage.claims.get_api(&key);
        found
            .ok_or_else(|| format!("failed to check {what}: could not find v1.PersistentVolumeClaim {key:?}"))
    };
    for (claim, volume) in &written.bindings {
        let name = &volume.metadata.name;
        let seen = storage.volumes.get_api(name);
        let seen = seen
            .ok_or_else(|| format!("failed to check binding: could not find v1.PersistentVolume {name:?}"))?;
        let claim = find_claim(claim, "binding")?;
        if is_older(&seen.metadata.resource_version, &volume.metadata.resource_version) {
            return Ok(false);
        }
        check_reachable(seen)?;
        if seen.spec.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {name:?}"));
        }
        if !is_fully_bound(claim) {
            return Ok(false);
        }
    }
    for claim in &written.provisions {
        let seen = find_claim(claim, "provisioning pvc")?;
        let name = &seen.metadata.name;
        if is_older(&seen.metadata.resource_version, &claim.metadata.resource_version) {
            return Ok(false);
        }
        if seen.metadata.annotations.is_empty() {
            return Err(format!("selectedNode annotation reset for PVC {name:?}"));
        }
        if seen.metadata.annotations.get(SELECTED_NODE).is_none_or(|selected| selected != node.name()) {
            return Err(format!("provisioning failed for PVC {name:?}"));
        }
        if !seen.spec.volume_name.is_empty() {
            let Some(volume) = storage.volumes.get_api(&seen.spec.volume_name) else { return Ok(false) };
            check_reachable(volume)?;
        }
        if !is_fully_bound(seen) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn claim(json: &str) -> Arc<PersistentVolumeClaim> {
        Arc::new(from_json(json.as_bytes()).unwrap())
    }

    fn volume(name: &str, size: &str, rest: &str) -> Arc<PersistentVolume> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"5"}},"status":{{"phase":"Available"}},
            "spec":{{"storageClassName":"slow","capacity":{{"storage":"{size}"}},"accessModes":["ReadWriteOnce"]{rest}}}}}"#
        );
        Arc::new(from_json(json.as_bytes()).unwrap())
    }

    fn storage(provisioner: &str) -> Storage {
        let mut storage = Storage::default();
        let class = format!(
            r#"{{"metadata":{{"name":"slow"}},"provisioner":"{provisioner}","volumeBindingMode":"WaitForFirstConsumer"}}"#
        );
        storage.classes.insert("slow".into(), Arc::new(from_json(class.as_bytes()).unwrap()));
        let zone_b = r#","nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["b"]}]}]}}"#;
        storage.volumes.set(volume("big", "9Gi", ""));
        storage.volumes.set(volume("small-b", "2Gi", zone_b));
        storage
    }

    fn node(zone: &str) -> NodeInfo {
        let json = format!(r#"{{"metadata":{{"name":"n","labels":{{"zone":"{zone}"}}}}}}"#);
        NodeInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()), 0)
    }

    fn pod() -> PodInfo {
        let json = br#"{"metadata":{"namespace":"d"},"spec":{"volumes":[
            {"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}"#;
        PodInfo::new(Arc::new(from_json(json).unwrap()))
    }

    const CLAIM: &str = r#"{"metadata":{"name":"c","namespace":"d","uid":"u","resourceVersion":"3"},"spec":{
        "storageClassName":"slow","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#;

    #[test]
    fn the_smallest_reachable_volume_is_chosen() {
        let mut storage = storage(NO_PROVISIONER);
        storage.claims.set(claim(CLAIM));
        let state = pre_filter(&pod(), &storage, Features::default()).unwrap();
        let chosen = |zone: &str| {
            let volumes = find_volumes(&state, &node(zone), &storage).unwrap();
            volumes.bindings.iter().map(|(_, volume)| volume.metadata.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!((chosen("a"), chosen("b")), (vec!["big".to_owned()], vec!["small-b".to_owned()]));
        find_volumes(&state, &node("a"), &storage).unwrap().assume(&mut storage, "n");
        let state = pre_filter(&pod(), &storage, Features::default()).unwrap();
        // a volume that names the claim is the only one
        assert_eq!(find_volumes(&state, &node("b"), &storage).unwrap().bindings[0].1.metadata.name, "big");
        storage.volumes.restore("big");
        assert!(storage.volumes.get("big").unwrap().spec.claim_ref.is_none());
    }

    #[test]
    fn a_wait_ends_when_the_volume_controller_is_done() {
        let mut storage = storage("p");
        storage.claims.set(claim(CLAIM));
        let volumes =
            find_volumes(&pre_filter(&pod(), &storage, Features::default()).unwrap(), &node("a"), &storage)
                .unwrap();
        let (mut written, _) = volumes.decide("n");
        let mut written = written.remove(0);
        written.metadata.resource_version = "6".into();
        let written = Arc::new(written);
        let waiting =
            WrittenVolumes { bindings: vec![(claim(CLAIM), Arc::clone(&written))], provisions: Vec::new() };
        assert_eq!(check_bindings(&waiting, &storage, &node("a"), Features::default()), Ok(false));
        storage.volumes.set(written);
        assert_eq!(check_bindings(&waiting, &storage, &node("a"), Features::default()), Ok(false));
        let bound =
            CLAIM.replace("\"3\"", "\"7\",\"annotations\":{\"pv.kubernetes.io/bind-completed\":\"yes\"}");
        storage.claims.set(claim(&bound.replace("\"spec\":{", "\"spec\":{\"volumeName\":\"big\",")));
        assert_eq!(check_bindings(&waiting, &storage, &node("a"), Features::default()), Ok(true));
        storage.volumes.remove("big");
        let missing = check_bindings(&waiting, &storage, &node("a"), Features::default()).unwrap_err();
        assert_eq!(missing, "failed to check binding: could not find v1.PersistentVolume \"big\"");
    }

    #[test]
    fn volumes_of_migrated_plugins_are_where_their_drivers_say() {
        const ZONE: &str = "topology.kubernetes.io/zone";
        let bound = CLAIM
            .replace(r#""uid":"u","#, r#""uid":"u","annotations":{"pv.kubernetes.io/bind-completed":"yes"},"#)
            .replace(r#""storageClassName":"slow","#, r#""storageClassName":"slow","volumeName":"disk","#);
        let mut storage = storage(NO_PROVISIONER);
        storage.claims.set(claim(&bound));
        let disk = |id: &str| {
            let affinity = format!(
                r#","awsElasticBlockStore":{{"volumeID":"{id}"}},"nodeAffinity":{{"required":{{"nodeSelectorTerms":[
                {{"matchExpressions":[{{"key":"{ZONE}","operator":"In","values":["a"]}}]}}]}}}}"#
            );
            volume("disk", "2Gi", &affinity)
        };
        storage.volumes.set(disk("vol-1"));
        let node = |label: &str| {
            let json = format!(r#"{{"metadata":{{"name":"n","labels":{{"{label}":"a"}}}}}}"#);
            NodeInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()), 0)
        };
        let (own, of_driver) = (node(ZONE), node("topology.ebs.csi.aws.com/zone"));
        let reaches = |storage: &Storage, node: &NodeInfo| {
            let state = pre_filter(&pod(), storage, Features::default()).unwrap();
            filter(&state, node, storage).is_ok()
        };
        assert!(reaches(&storage, &own) && !reaches(&storage, &of_driver));
        let csi_node = r#"{"metadata":{"name":"n","annotations":{
            "storage.alpha.kubernetes.io/migrated-plugins":"kubernetes.io/gce-pd,kubernetes.io/aws-ebs"}}}"#;
        storage.csi_nodes.insert("n".into(), Arc::new(from_json(csi_node.as_bytes()).unwrap()));
        assert!(!reaches(&storage, &own) && reaches(&storage, &of_driver));
        // a volume that has no form for the driver is an error there
        storage.volumes.remove("disk");
        storage.volumes.set(disk("aws://a/b/c"));
        let state = pre_filter(&pod(), &storage, Features::default()).unwrap();
        let error = filter(&state, &own, &storage).unwrap_err();
        assert_eq!(error.code, Code::Error);
        storage.csi_nodes.clear();
        assert!(reaches(&storage, &own));
    }
}
