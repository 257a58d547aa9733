//! The listeners that add claims and volumes to the queues.

use super::binder::Binder;
use super::{bind, claim};
use crate::volumes::{self, claims};
use client::{Key, Queue};
use kube::ResourceExt;
use std::sync::Arc;

/// Volumes by the claim that they refer to.
pub const BY_CLAIM: &str = "binder/claim";
/// Claims by the volume that they name.
const BY_VOLUME: &str = "binder/volume";
/// Claims that name no volume yet, by their class.
pub const WAITING: &str = "binder/waiting";
/// Where claims lie that do not even say that they have no class.
const CLASSLESS: &str = "none";

/// Where the waiting claims of a class lie.
pub fn of_class(class: &str) -> String {
    format!("class/{class}")
}

pub(super) fn listen(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let marks = binder.marks.clone();
    binder.claims.index(BY_VOLUME, |claim| {
        Some(volumes::volume_name(claim).to_owned()).filter(|it| !it.is_empty()).into_iter().collect()
    });
    binder.claims.index(WAITING, move |claim| {
        if !volumes::volume_name(claim).is_empty() || claim.annotations().contains_key(&marks.bind_completed)
        {
            return Vec::new();
        }
        match marks.class_of_claim(claim) {
            Some(class) => vec![of_class(class)],
            None => vec![of_class(""), CLASSLESS.to_owned()],
        }
    });
    binder.volumes.index(BY_CLAIM, |volume| {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let key = bind::claim_ref(volume).map(|it| Key::new(text(&it.namespace), text(&it.name)).to_string());
        key.into_iter().collect()
    });
    claims::index(&binder.pods);
    to_claims(binder, volume_queue);
    to_volumes(binder, volume_queue);
    to_classes(binder);
}

/// A claim is news to itself and to the volumes around it.
fn to_claims(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let (news, to_volumes, around) =
        (binder.claim_queue.clone(), volume_queue.clone(), binder.volumes.clone());
    let operations = binder.operations.clone();
    binder.claims.listen(move |change| {
        let key = change.key();
        if change.is_deletion() {
            operations.forget(&key);
        }
        let named = volumes::volume_name(change.object());
        if !named.is_empty() {
            to_volumes.add(Key::new("", named));
        }
        around.by(BY_CLAIM, &key.to_string()).iter().for_each(|it| to_volumes.add(Key::of(&**it)));
        if !change.is_deletion() {
            news.add(key);
        }
    });
}

/// A volume is news to itself, to those who look for one, and to the claims around it.
fn to_volumes(binder: &Arc<Binder>, volume_queue: &Queue<Key>) {
    let (news, free_volumes, marks) =
        (volume_queue.clone(), binder.free_volumes.clone(), binder.marks.clone());
    let (to_claims, around) = (binder.claim_queue.clone(), binder.claims.clone());
    let (operations, world) = (binder.operations.clone(), binder.context.world.clone());
    binder.volumes.listen(move |change| {
        let (key, volume) = (change.key(), change.object());
        match change.is_deletion() {
            true => {
                free_volumes.lock().remove(&key.name);
                operations.done(&key, world.elapsed());
            }
            false => free_volumes.lock().file(volume, &marks),
        }
        around.by(BY_VOLUME, &key.name).iter().for_each(|it| to_claims.add(Key::of(&**it)));
        if !change.is_deletion() {
            news.add(key);
        }
    });
}

/// A class is news to the claims that wait for it.
fn to_classes(binder: &Arc<Binder>) {
    let (news, around, names) =
        (binder.claim_queue.clone(), binder.claims.clone(), binder.context.names.clone());
    binder.classes.listen(move |change| {
        if change.is_deletion() {
            return;
        }
        let class = change.object();
        let mut waiting = around.by(WAITING, &of_class(&class.name_any()));
        if claim::default_class(std::slice::from_ref(class), &names).is_some() {
            waiting.extend(around.by(WAITING, CLASSLESS));
        }
        waiting.iter().for_each(|it| news.add(Key::of(&**it)));
    });
}
