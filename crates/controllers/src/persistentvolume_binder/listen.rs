//! The listeners that add claims and volumes to the queues.

use super::binder::Binder;
use super::claim;
use crate::volumes::claims;
use api::Resource;
use client::{Key, Queue};
use std::sync::Arc;

/// Volumes by the claim of their `claimRef`.
pub const BY_CLAIM: &str = "binder/claim";
/// Claims by `volumeName`.
const BY_VOLUME: &str = "binder/volume";
/// Claims that name no volume yet, by class.
pub const PENDING: &str = "binder/pending";
/// The index key of pending claims whose class is not set.
const CLASSLESS: &str = "none";

/// The index key of the pending claims of a class.
pub fn class_key(class: &str) -> String {
    format!("class/{class}")
}

pub(super) fn listen(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let keys = binder.keys.clone();
    binder.claims.index(BY_VOLUME, |claim| {
        let name = &claim.spec.volume_name;
        if name.is_empty() { Vec::new() } else { vec![name.clone()] }
    });
    binder.claims.index(PENDING, move |claim| {
        let is_bound = claim.metadata.annotations.contains_key(&keys.bind_completed);
        if is_bound || !claim.spec.volume_name.is_empty() {
            return Vec::new();
        }
        match keys.class_of_claim(claim) {
            Some(class) => vec![class_key(class)],
            None => vec![class_key(""), CLASSLESS.to_owned()],
        }
    });
    binder.volumes.index(BY_CLAIM, |volume| {
        volume.spec.claim_ref.iter().map(|it| Key::new(&it.namespace, &it.name).to_string()).collect()
    });
    claims::index(&binder.pods);
    listen_to_claims(binder, volume_queue);
    listen_to_volumes(binder, volume_queue);
    listen_to_classes(binder);
}

/// A change of a claim adds the claim, the volume that it names and the volumes that refer to it.
fn listen_to_claims(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let (claim_queue, volume_queue) = (binder.claim_queue.clone(), volume_queue.clone());
    let volumes = binder.volumes.clone();
    let operations = binder.operations.clone();
    binder.claims.listen(move |change| {
        let key = change.key();
        if change.is_deletion() {
            operations.forget(&key);
        }
        let volume_name = &change.object().spec.volume_name;
        if !volume_name.is_empty() {
            volume_queue.add(Key::new("", volume_name));
        }
        volumes.by(BY_CLAIM, &key.to_string()).iter().for_each(|it| volume_queue.add(Key::of(&**it)));
        if !change.is_deletion() {
            claim_queue.add(key);
        }
    });
}

/// A change of a volume updates the free volumes, and adds the volume and the claims that name it.
fn listen_to_volumes(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let (volume_queue, claim_queue) = (volume_queue.clone(), binder.claim_queue.clone());
    let (free_volumes, keys, claims) =
        (binder.free_volumes.clone(), binder.keys.clone(), binder.claims.clone());
    let (operations, world) = (binder.operations.clone(), binder.context.world.clone());
    binder.volumes.listen(move |change| {
        let (key, volume) = (change.key(), change.object());
        match change.is_deletion() {
            true => {
                free_volumes.lock().remove(&key.name);
                operations.done(&key, world.elapsed());
            }
            false => free_volumes.lock().update(volume, &keys),
        }
        claims.by(BY_VOLUME, &key.name).iter().for_each(|it| claim_queue.add(Key::of(&**it)));
        if !change.is_deletion() {
            volume_queue.add(key);
        }
    });
}

/// A new or changed class adds its pending claims; a default class also adds those without a class.
fn listen_to_classes(binder: &Arc<Binder>) {
    let (claim_queue, claims, names) =
        (binder.claim_queue.clone(), binder.claims.clone(), binder.context.names.clone());
    binder.classes.listen(move |change| {
        if change.is_deletion() {
            return;
        }
        let class = change.object();
        let mut pending = claims.by(PENDING, &class_key(class.name()));
        if claim::default_class(std::slice::from_ref(class), &names).is_some() {
            pending.extend(claims.by(PENDING, CLASSLESS));
        }
        pending.iter().for_each(|it| claim_queue.add(Key::of(&**it)));
    });
}
