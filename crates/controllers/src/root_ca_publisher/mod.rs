//! Publishes the certificate authority of the API server in a config map of every namespace.

use crate::Context;
use api::core::v1::{ConfigMap, Namespace};
use api::meta::v1::ObjectMeta;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, is_terminating, run};
use metrics::{Descriptor, Family, Histogram, counts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The key of the authority in the config map.
const DATA: &str = "ca.crt";
const DESCRIPTION: &str = "The certificate authority by which pods of this namespace recognize the API server at its \
                           service address. It is not meant for anything else.";

const TOOK: Descriptor =
    Descriptor::alpha("root_ca_cert_publisher_sync_duration_seconds", "Time to reconcile a namespace.")
        .by(&["code"])
        .seconds(&counts::<15>(1_000_000, 2));
const SYNCS: Descriptor =
    Descriptor { name: "root_ca_cert_publisher_sync_total", help: "Reconciliations of namespaces.", ..TOOK };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// In PEM. Without it the controller does nothing.
    pub authority: Option<String>,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { authority: None, workers: 1 }
    }
}

struct Publisher {
    context: Context,
    authority: String,
    name: String,
    /// The key of the annotation that describes the config map.
    description: String,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    took: Family<Histogram>,
}

pub async fn run(context: Context, options: Options) {
    let Some(authority) = options.authority.filter(|it| !it.is_empty()) else {
        tracing::info!(
            controller = "root-ca-cert-publisher",
            "disabled: no certificate authority is configured"
        );
        return std::future::pending().await;
    };
    let queue = Queue::<Key>::new(&context.world);
    let name = context.names.root_authority_map();
    let namespaces = context.informer::<Namespace>();
    let maps = context.informer_of::<ConfigMap>("", &format!("metadata.name={name}"));
    let registry = context.metrics.registry();
    let took = registry.family(TOOK);
    registry.counted(SYNCS, &took);
    let publisher = Arc::new(Publisher {
        took,
        authority,
        name,
        description: context.names.well_known("description"),
        namespaces: namespaces.clone(),
        maps: maps.clone(),
        context,
    });
    let changed = queue.clone();
    namespaces.listen(move |change| {
        if !change.is_deletion() {
            changed.add(change.key());
        }
    });
    let changed = queue.clone();
    maps.listen(move |change| changed.add(Key::new("", change.key().namespace)));
    namespaces.synced().await;
    maps.synced().await;
    run::run(publisher, queue, options.workers).await;
}

impl Reconcile for Publisher {
    type Key = Key;

    fn name(&self) -> &'static str {
        "root-ca-cert-publisher"
    }

    fn queue_name(&self) -> &'static str {
        "root_ca_cert_publisher"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let since = self.context.world.elapsed();
        let result = self.publish(key).await;
        let code = match &result {
            Ok(_) => 200,
            Err(Failure::Api(client::Error::Api(status))) => status.code,
            Err(_) => 500,
        };
        self.took.of(&[&code.to_string()]).took(self.context.world.elapsed().saturating_sub(since));
        result
    }
}

impl Publisher {
    async fn publish(&self, key: &Key) -> Result<Action, Failure> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::AwaitChange) };
        if namespace.status.phase != "Active" {
            return Ok(Action::AwaitChange);
        }
        let current = self.maps.get(&Key::new(&key.name, &self.name));
        let Some(next) = desired_map(current.as_deref(), &self.name, &self.authority, &self.description)
        else {
            return Ok(Action::AwaitChange);
        };
        let maps: Api<ConfigMap> = Api::namespaced(&self.context.client, &key.name);
        let written = match current {
            None => maps.create(&next).await,
            Some(_) => maps.replace(&next).await,
        };
        match written {
            Err(why) if !is_terminating(&why) => Err(why.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}

/// The config map as it should be; `None` if it is so already.
fn desired_map(
    current: Option<&ConfigMap>,
    name: &str,
    authority: &str,
    description: &str,
) -> Option<ConfigMap> {
    let data = BTreeMap::from([(DATA.to_owned(), authority.to_owned())]);
    let annotation = current.and_then(|it| it.metadata.annotations.get(description));
    if current.is_some_and(|it| it.data == data) && annotation.is_some_and(|it| !it.is_empty()) {
        return None;
    }
    let new = || ConfigMap {
        metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let mut next = current.cloned().unwrap_or_else(new);
    next.data = data;
    next.metadata.annotations.insert(description.to_owned(), DESCRIPTION.to_owned());
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_restored_and_not_written_when_they_are_right() {
        let created = desired_map(None, "root", "PEM", "d").unwrap();
        assert_eq!(created.metadata.name, "root");
        assert_eq!(desired_map(Some(&created), "root", "PEM", "d"), None);
        let other = desired_map(Some(&created), "root", "OTHER", "d").unwrap();
        assert_eq!(other.data[DATA], "OTHER");
        let mut changed = created.clone();
        changed.data.insert("more".to_owned(), String::new());
        changed.metadata.annotations = BTreeMap::from([("mine".to_owned(), "x".to_owned())]);
        let restored = desired_map(Some(&changed), "root", "PEM", "d").unwrap();
        assert_eq!(restored.data, created.data);
        assert_eq!(restored.metadata.annotations.len(), 2);
    }
}
