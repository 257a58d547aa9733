//! DynamicResources, behind the gate DynamicResourceAllocation: the resource claims of a pod, and the nodes where they
//! are allocated or can be.
//!
//! Only decisions are made here. A claim that is allocated already is reserved for the pod. For a claim that is
//! allocated for its first consumer, the scheduler and the resource drivers settle on a node by an object PodScheduling:
//! the scheduler writes the nodes that it could use and the one that it prefers, the drivers answer which are
//! unsuitable, and at last allocate. Until then every attempt to schedule the pod fails.

use std::sync::Arc;

use api::core::v1::{Pod, PodResourceClaim};
use api::meta::v1::{ObjectMeta, OwnerReference};
use api::node_selector::NodeMatcher;
use api::resource::v1alpha1::{PodScheduling, ResourceClaim, ResourceClaimConsumerReference, ResourceClass};
use names::labels::{RESOURCE_CLAIM_KIND, RESOURCE_CLASS_KIND};

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::storage::ResourceStore;

const IMMEDIATE: &str = "Immediate";
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// The reason of a node where an allocated claim cannot be used.
const NOT_AVAILABLE: &str = "resourceclaim not available on the node";
/// The limit of `spec.potentialNodes`.
const MAX_POTENTIAL_NODES: usize = 128;

/// A claim of the pod.
#[derive(Debug, Clone)]
struct PodClaim {
    /// Its name within the pod.
    name: String,
    claim: Arc<ResourceClaim>,
    /// Where it can be used; `None` for everywhere.
    available_on: Option<NodeMatcher>,
    class: Option<Arc<ResourceClass>>,
}

impl PodClaim {
    fn is_allocated(&self) -> bool {
        self.claim.status.allocation.is_some()
    }

    fn is_available(&self, node: &NodeInfo) -> bool {
        self.available_on.as_ref().is_none_or(|nodes| nodes.matches(node.name(), node.labels()))
    }

    fn is_delayed(&self) -> bool {
        self.claim.spec.allocation_mode == WAIT_FOR_FIRST_CONSUMER
    }
}

/// What is prepared for a pod; empty for a pod without claims.
#[derive(Debug, Clone, Default)]
pub struct State {
    claims: Vec<PodClaim>,
    scheduling: Option<Arc<PodScheduling>>,
}

impl State {
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }
}

/// The requests that reserve the claims of a pod for its node.
#[derive(Debug, Clone, Default)]
pub struct Reservation {
    /// Claims with the pod among their consumers.
    pub claims: Vec<ResourceClaim>,
    /// Claims that the pod had reserved before, without it: to be written if the pod is not bound.
    pub releases: Vec<ResourceClaim>,
    /// To be created if it has no uid, else updated.
    pub scheduling: Option<PodScheduling>,
    /// Why the pod has to wait once this is written.
    pub waits: Option<&'static str>,
    /// Whether the pod has claims.
    pub is_needed: bool,
}

/// The name of the claim that a pod refers to.
fn claim_name(pod: &Pod, reference: &PodResourceClaim) -> String {
    match &reference.source.resource_claim_name {
        Some(name) => name.clone(),
        None => format!("{}-{}", pod.metadata.name, reference.name),
    }
}

fn is_controlled_by(metadata: &ObjectMeta, pod: &Pod) -> bool {
    let controller = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| owner.uid == pod.metadata.uid)
}

fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.status.reserved_for.iter().any(|consumer| consumer.uid == pod.metadata.uid)
}

/// Finds the claims of a pod: all must exist, and none may wait for its driver or be used up.
pub fn pre_filter(pod: &PodInfo, store: &ResourceStore) -> Result<State, Rejection> {
    let mut claims = Vec::new();
    for reference in &pod.pod.spec.resource_claims {
        let claim = find_claim(&pod.pod, reference, store).map_err(Rejection::unresolvable_with)?;
        let class = store.classes.get(&claim.spec.resource_class_name).cloned();
        let allocation = claim.status.allocation.as_ref();
        let nodes = allocation.and_then(|allocation| allocation.available_on_nodes.as_ref());
        let available_on = nodes.map(|nodes| NodeMatcher::new(nodes));
        claims.push(PodClaim { name: reference.name.clone(), available_on, class, claim });
    }
    for PodClaim { claim, .. } in &claims {
        let allocation = claim.status.allocation.as_ref();
        if claim.spec.allocation_mode == IMMEDIATE && allocation.is_none() {
            return Err(Rejection::unresolvable("unallocated immediate resourceclaim"));
        }
        if claim.status.deallocation_requested {
            return Err(Rejection::unresolvable("resourceclaim must be reallocated"));
        }
        let is_usable = |shareable: bool| {
            shareable || claim.status.reserved_for.is_empty() || is_reserved_for(claim, &pod.pod)
        };
        if allocation.is_some_and(|allocation| !is_usable(allocation.shareable)) {
            return Err(Rejection::unresolvable("resourceclaim in use"));
        }
    }
    let key = format!("{}/{}", pod.namespace(), pod.name());
    Ok(State { claims, scheduling: store.schedulings.get(&key).cloned() })
}

fn find_claim(
    pod: &Pod,
    reference: &PodResourceClaim,
    store: &ResourceStore,
) -> Result<Arc<ResourceClaim>, String> {
    let name = claim_name(pod, reference);
    let namespace = &pod.metadata.namespace;
    let is_ephemeral = reference.source.resource_claim_template_name.is_some();
    let Some(claim) = store.claims.get(&format!("{namespace}/{name}")) else {
        return Err(match is_ephemeral {
            true => format!("waiting for dynamic resource controller to create the resourceclaim {name:?}"),
            false => format!("{RESOURCE_CLAIM_KIND} {name:?} not found"),
        });
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("resourceclaim {name:?} is being deleted"));
    }
    if is_ephemeral && !is_controlled_by(&claim.metadata, pod) {
        let pod_name = &pod.metadata.name;
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
        ));
    }
    Ok(Arc::clone(claim))
}

/// The answers of the drivers for a pod; an error for an object that belongs to another pod.
fn scheduling(state: &State, pod: &Pod) -> Result<Option<Arc<PodScheduling>>, String> {
    match &state.scheduling {
        Some(known) if !is_controlled_by(&known.metadata, pod) => Err(format!(
            "PodScheduling object with UID {} is not owned by Pod {}/{}",
            known.metadata.uid, pod.metadata.namespace, pod.metadata.name
        )),
        known => Ok(known.clone()),
    }
}

pub fn filter(state: &State, pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    let mut is_available = true;
    for claim in &state.claims {
        if claim.is_allocated() {
            is_available &= claim.is_available(node);
        } else {
            check_unallocated(state, claim, pod, node)?;
        }
    }
    if is_available { Ok(()) } else { Err(Rejection::unresolvable(NOT_AVAILABLE)) }
}

/// Whether a driver could allocate a claim for a node.
fn check_unallocated(state: &State, claim: &PodClaim, pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    let name = &claim.claim.spec.resource_class_name;
    let class = claim.class.as_ref().ok_or_else(|| {
        Rejection::error(format!("look up resource class: {RESOURCE_CLASS_KIND} {name:?} not found"))
    })?;
    let nodes = class.suitable_nodes.as_ref();
    if nodes.is_some_and(|nodes| !NodeMatcher::new(nodes).matches(node.name(), node.labels())) {
        return Err(Rejection::unresolvable("excluded by resource class node filter"));
    }
    let scheduling = scheduling(state, &pod.pod).map_err(Rejection::error)?;
    let answers = scheduling.iter().flat_map(|it| &it.status.resource_claims);
    let mut of_claim = answers.filter(|answer| answer.name == claim.name);
    match of_claim.any(|answer| answer.unsuitable_nodes.iter().any(|one| one == node.name())) {
        true => Err(Rejection::unresolvable("resourceclaim cannot be allocated for the node (unsuitable)")),
        false => Ok(()),
    }
}

/// The outcome of the search for a claim whose deallocation could make room for a pod.
#[derive(Debug)]
pub enum Deallocation {
    /// The claim as it is to be written.
    Claim(Box<ResourceClaim>),
    /// Why there is none.
    Refused(&'static str),
}

/// Finds an allocated claim that only this pod uses and that was not available on one of the nodes that failed for it.
pub fn deallocate<'n>(
    state: &State,
    pod: &PodInfo,
    failed: impl Iterator<Item = (&'n NodeInfo, &'n Rejection)>,
) -> Deallocation {
    if state.is_empty() {
        return Deallocation::Refused("no new claims to deallocate");
    }
    let is_for_claims = |rejection: &Rejection| rejection.message() == NOT_AVAILABLE;
    let nodes: Vec<&NodeInfo> =
        failed.filter(|(_, rejection)| is_for_claims(rejection)).map(|(node, _)| node).collect();
    let lacks = |claim: &PodClaim, node: &NodeInfo| claim.is_allocated() && !claim.is_available(node);
    let helps = |node: &NodeInfo, claim: &PodClaim| {
        // upstream looks at the mode of as many claims as are not available
        let count = state.claims.iter().filter(|claim| lacks(claim, node)).count();
        lacks(claim, node) && state.claims.iter().take(count).any(PodClaim::is_delayed)
    };
    let is_free = |claim: &ResourceClaim| match &*claim.status.reserved_for {
        [] => true,
        [only] => only.uid == pod.uid(),
        _ => false,
    };
    let found = state.claims.iter().find(|it| is_free(&it.claim) && nodes.iter().any(|node| helps(node, it)));
    match found {
        None => Deallocation::Refused("still not schedulable"),
        Some(found) => {
            let mut claim = ResourceClaim::clone(&found.claim);
            claim.status.deallocation_requested = true;
            claim.status.reserved_for = Vec::new();
            Deallocation::Claim(Box::new(claim))
        }
    }
}

/// The requests that reserve the claims of a pod for a node. `feasible` are the names of all nodes that would do.
pub fn reserve(state: &State, pod: &PodInfo, node: &str, feasible: &[&str]) -> Result<Reservation, String> {
    if state.is_empty() {
        return Ok(Reservation::default());
    }
    let pod = &*pod.pod;
    let known = scheduling(state, pod)?;
    let (reserved, others): (Vec<&PodClaim>, Vec<&PodClaim>) =
        state.claims.iter().filter(|it| it.is_allocated()).partition(|it| is_reserved_for(&it.claim, pod));
    let mut reservation = Reservation {
        claims: others.iter().map(|it| with_consumer(&it.claim, pod)).collect(),
        releases: reserved.iter().map(|it| without_consumer(&it.claim, pod)).collect(),
        is_needed: true,
        ..Reservation::default()
    };
    let pending: Vec<&PodClaim> = state.claims.iter().filter(|it| !it.is_allocated()).collect();
    if pending.is_empty() {
        return Ok(reservation);
    }
    let answers = |it: &&PodClaim| {
        known.iter().flat_map(|known| &known.status.resource_claims).any(|answer| answer.name == it.name)
    };
    let is_answered = pending.iter().all(answers);
    let mut scheduling = known.as_deref().cloned().unwrap_or_else(|| new_scheduling(pod));
    let is_changed = set_potential_nodes(&mut scheduling, node, feasible);
    // with more claims, drivers answer before one of them allocates
    let starts = pending.len() == 1 || is_answered;
    if starts {
        scheduling.spec.selected_node = node.to_owned();
    }
    reservation.scheduling = (starts || is_changed).then_some(scheduling);
    reservation.waits = Some(match starts {
        true => "waiting for resource driver to allocate resource",
        false => "waiting for resource driver to provide information",
    });
    Ok(reservation)
}

fn with_consumer(claim: &ResourceClaim, pod: &Pod) -> ResourceClaim {
    let mut claim = claim.clone();
    claim.status.reserved_for.push(ResourceClaimConsumerReference {
        resource: "pods".to_owned(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ResourceClaimConsumerReference::default()
    });
    claim
}

fn without_consumer(claim: &ResourceClaim, pod: &Pod) -> ResourceClaim {
    let mut claim = claim.clone();
    claim.status.reserved_for.retain(|consumer| consumer.uid != pod.metadata.uid);
    claim
}

fn new_scheduling(pod: &Pod) -> PodScheduling {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    PodScheduling {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            owner_references: vec![owner],
            ..ObjectMeta::default()
        },
        ..PodScheduling::default()
    }
}

/// Names the nodes that drivers are to answer for. Returns whether something changed.
fn set_potential_nodes(scheduling: &mut PodScheduling, node: &str, feasible: &[&str]) -> bool {
    let listed = &mut scheduling.spec.potential_nodes;
    // a single node is not scored, and so is named only if none is
    let is_listed = match feasible.len() {
        0 | 1 => !listed.is_empty(),
        _ => feasible.iter().all(|name| listed.iter().any(|one| one == name)),
    };
    if is_listed {
        return false;
    }
    *listed = match feasible.len() {
        0 | 1 => vec![node.to_owned()],
        _ => feasible.iter().take(MAX_POTENTIAL_NODES).map(|name| (*name).to_owned()).collect(),
    };
    listed.sort();
    true
}

#[cfg(test)]
mod tests;
