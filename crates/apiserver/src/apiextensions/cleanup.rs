//! The end of a definition: all of its objects are deleted, then it goes itself.
//!
//! Objects go the way of every deletion: those with finalizers stay until whoever put them there is done, and the
//! definition with them. Nothing is asked again and again: the next step is taken when an object has gone.

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

/// How often a step that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether the objects of a definition are to be deleted.
pub(super) fn is_due(definition: &Value, names: &Names) -> bool {
    let own = kinds::apiextensions::finalizer(names);
    let marked = definition.items(&["metadata", "finalizers"]).iter().any(|it| it.as_str() == Some(&own));
    marked && !definition.text(&["metadata", "deletionTimestamp"]).is_empty()
}

/// Deletes all objects, waits until they are gone, and lets the definition go. `objects` is the stored version.
pub(super) async fn run(
    api: &Arc<Api>,
    definitions: &Arc<Resource>,
    name: &str,
    objects: Option<&Arc<Resource>>,
) {
    if let Some(objects) = objects {
        let begun = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        tell(api, definitions, name, begun).await;
        while let Err(why) = delete_all(api, objects).await {
            tracing::warn!(name, %why, "an object of a definition that is going away stays");
            let told = format!("could not issue all deletes: {why}");
            tell(api, definitions, name, ("InstanceDeletionFailed", &told)).await;
            tokio::time::sleep(AGAIN).await;
        }
    }
    while let Err(why) = let_go(api, definitions, name).await {
        tracing::warn!(name, %why, "a definition that is going away stays");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Says in the status of the definition how far its end has come.
async fn tell(api: &Api, definitions: &Arc<Resource>, name: &str, (reason, message): (&str, &str)) {
    let now = time::format_time(env::unix_seconds(&api.world));
    loop {
        let Some(object) = definitions.collection.cache.get("", name) else { return };
        let Ok(mut definition) = definitions.tree(&object) else { return };
        let mut status = definition.at(&["status"]).cloned().unwrap_or_else(Value::map);
        naming::set_condition(&mut status, ("Terminating", "True", reason, message), &now);
        definition.set(&["status"], status);
        let place = loopback::Place { resource: definitions, namespace: "", name, subresource: "status" };
        match loopback::write(api, place, &definition).await {
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
        let (options, user) = (DeleteOptions::default(), loopback::itself());
        for object in &left {
            match api.delete(objects, &object.namespace, &object.name, &options, &user).await {
                Err(why) if why.code != 404 => return Err(why),
                _ => {}
            }
        }
        // those that are left are waited for; new ones cannot come
        while cache.snapshot().range(None, None).next().is_some() {
            match poll_fn(|cx| watcher.poll_recv(cx)).await {
                Some(Ok(_)) => {}
                // begun anew
                Some(Err(_)) => break,
                // nobody tells any more what happens, least of all that they are gone: the server is about to end
                None => {
                    tokio::time::sleep(AGAIN).await;
                    break;
                }
            }
        }
    }
}

/// Takes the finalizer away, upon which the definition is gone.
async fn let_go(api: &Api, definitions: &Arc<Resource>, name: &str) -> Result<(), ApiError> {
    let finalizer = kinds::apiextensions::finalizer(&api.names);
    loop {
        let Some(object) = definitions.collection.cache.get("", name) else { return Ok(()) };
        let mut definition = definitions.tree(&object)?;
        let mut left = definition.items(&["metadata", "finalizers"]).to_vec();
        left.retain(|it| it.as_str() != Some(&finalizer));
        definition.set(&["metadata", "finalizers"], left);
        let place = loopback::Place { resource: definitions, namespace: "", name, subresource: "" };
        match loopback::write(api, place, &definition).await {
            Err(why) if why.code == 409 => tokio::task::yield_now().await,
            Err(why) if why.code != 404 => return Err(why),
            _ => return Ok(()),
        }
    }
}
