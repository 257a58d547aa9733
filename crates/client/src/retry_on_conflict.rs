//! Writes to objects that others write, too: a conflict is retried on the newest state.
//!
//! A write names the resource version that it was decided from, and fails with a conflict if the object has changed. If the
//! change does not affect the decision, the write is repeated on the new state.

use crate::error::{Failure, unless};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// How often a write is made again before the key is looked at anew.
const TRIES: usize = 5;

/// A namespaced kind with a static type.
pub trait NamespacedObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> NamespacedObject for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The API of a kind in the namespace of an object.
pub fn beside<K: NamespacedObject>(client: &Client, object: &impl ResourceExt) -> Api<K> {
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Main,
    Status,
}

/// Writes the status, which is this loop's alone, whatever else changes meanwhile. Nothing where the object is gone.
pub async fn status<K: NamespacedObject>(
    client: &Client,
    object: &K,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    write(client, object, Part::Status, change).await
}

/// Writes an object, unless somebody changed meanwhile what it asks for: then that must be thought about, and the write
/// fails with a conflict. Nothing where the object is gone.
pub async fn object<K: NamespacedObject>(
    client: &Client,
    object: &K,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    write(client, object, Part::Main, change).await
}

async fn write<K: NamespacedObject>(
    client: &Client,
    object: &K,
    part: Part,
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>, Failure> {
    let api: Api<K> = beside(client, object);
    let name = object.name_any();
    let mut next = object.clone();
    let mut tries = 0;
    loop {
        tries += 1;
        change(&mut next);
        let written = match part {
            Part::Main => api.replace(&name, &PostParams::default(), &next).await,
            Part::Status => {
                let body = serde_json::to_vec(&next).map_err(kube::Error::SerdeError)?;
                api.replace_status(&name, &PostParams::default(), body).await
            }
        };
        match unless(404, written) {
            Err(kube::Error::Api(answer)) if answer.code == 409 && tries < TRIES => {
                let Some(now) = unless(404, api.get(&name).await)? else { return Ok(None) };
                if now.uid() != object.uid() {
                    return Ok(None);
                }
                if part == Part::Main && now.meta().generation != object.meta().generation {
                    return Err(kube::Error::Api(answer).into());
                }
                next = now;
            }
            answer => return Ok(answer?),
        }
    }
}
