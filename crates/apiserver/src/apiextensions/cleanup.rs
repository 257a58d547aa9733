//! Deletion of a CustomResourceDefinition: deletes its objects, then removes its finalizer.
//!
//! Objects are deleted like any others: those with finalizers stay until these are removed, and the
//! definition with them. There is no polling: the next step follows the deletion of the last object.

use crate::loopback;
use cache::Interest;
use kinds::apiextensions::naming;
use names::Names;
use rest::options::DeleteOptions;
use rest::{Api, ApiError, Object, Resource};
use schema::{Value, time};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// Delay before a failed step is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Whether the objects of a definition must be deleted.
pub(super) fn is_due(definition: &Value, names: &Names) -> bool {
    let own = kinds::apiextensions::finalizer(names);
    let marked = definition.items(&["metadata", "finalizers"]).iter().any(|it| it.as_str() == Some(&own));
    marked && !definition.text(&["metadata", "deletionTimestamp"]).is_empty()
}

/// Deletes all objects, waits until they are gone, and removes the finalizer. `objects` is the stored
/// version.
pub(super) async fn run(
    api: &Arc<Api>,
    definitions: &Arc<Resource>,
    name: &str,
    objects: Option<&Arc<Resource>>,
) {
    if let Some(objects) = objects {
        let begun = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        write_condition(api, definitions, name, begun).await;
        while let Err(why) = delete_all(api, objects).await {
            tracing::warn!(name, %why, "an object of a terminating CustomResourceDefinition could not be deleted");
            let message = format!("could not issue all deletes: {why}");
            write_condition(api, definitions, name, ("InstanceDeletionFailed", &message)).await;
            env::sleep(&api.world, RETRY_DELAY).await;
        }
    }
    while let Err(why) = remove_finalizer(api, definitions, name).await {
        tracing::warn!(name, %why, "the finalizer of a terminating CustomResourceDefinition could not be removed");
        env::sleep(&api.world, RETRY_DELAY).await;
    }
}

/// Writes the `Terminating` condition of the definition.
async fn write_condition(
    api: &Api,
    definitions: &Arc<Resource>,
    name: &str,
    (reason, message): (&str, &str),
) {
    let now = time::format_time(env::unix_seconds(&api.world));
    loop {
        let Some(object) = definitions.collection.cache.get("", name) else { return };
        let Ok(mut definition) = definitions.tree(&object) else { return };
        let mut status = definition.at(&["status"]).cloned().unwrap_or_else(Value::map);
        naming::set_condition(&mut status, ("Terminating", "True", reason, message), &now);
        definition.set(&["status"], status);
        let target =
            loopback::WriteTarget { resource: definitions, namespace: "", name, subresource: "status" };
        match loopback::write(api, target, &definition).await {
            Err(why) if why.code == 409 => tokio::task::yield_now().await,
            _ => return,
        }
    }
}

async fn delete_all(api: &Arc<Api>, objects: &Arc<Resource>) -> Result<(), ApiError> {
    let cache = &objects.collection.cache;
    loop {
        let (mut watcher, snapshot) = cache.watch_now(Interest::All);
        let left: Vec<Arc<Object>> = snapshot.range(None, None).map(|(_, object)| object.clone()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let (options, user) = (DeleteOptions::default(), loopback::own_user());
        for object in &left {
            match api.delete(objects, &object.namespace, &object.name, &options, &user).await {
                Err(why) if why.code != 404 => return Err(why),
                _ => {}
            }
        }
        // objects with finalizers are awaited; new ones cannot be created
        while cache.snapshot().range(None, None).next().is_some() {
            match poll_fn(|cx| watcher.poll_recv(cx)).await {
                Some(Ok(_)) => {}
                // resubscribe
                Some(Err(_)) => break,
                // the watch has ended because the server stops
                None => {
                    env::sleep(&api.world, RETRY_DELAY).await;
                    break;
                }
            }
        }
    }
}

/// Removes the finalizer, after which the definition is gone.
async fn remove_finalizer(api: &Api, definitions: &Arc<Resource>, name: &str) -> Result<(), ApiError> {
    let finalizer = kinds::apiextensions::finalizer(&api.names);
    loop {
        let Some(object) = definitions.collection.cache.get("", name) else { return Ok(()) };
        let mut definition = definitions.tree(&object)?;
        let mut left = definition.items(&["metadata", "finalizers"]).to_vec();
        left.retain(|it| it.as_str() != Some(&finalizer));
        definition.set(&["metadata", "finalizers"], left);
        let target = loopback::WriteTarget { resource: definitions, namespace: "", name, subresource: "" };
        match loopback::write(api, target, &definition).await {
            Err(why) if why.code == 409 => tokio::task::yield_now().await,
            Err(why) if why.code != 404 => return Err(why),
            _ => return Ok(()),
        }
    }
}
