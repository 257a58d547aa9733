//! Every namespace has a config map with the authority by which its pods know the API server.

use crate::Context;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, is_terminating, run};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use metrics::{About, Family, Histogram, counts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the config map holds the authority under.
const DATA: &str = "ca.crt";
const DESCRIPTION: &str = "The certificate authority by which pods of this namespace recognize the API server at its \
                           service address. It is not meant for anything else.";

const TOOK: About =
    About::alpha("root_ca_cert_publisher_sync_duration_seconds", "How long looks at namespaces took.")
        .by(&["code"])
        .seconds(&counts::<15>(1_000_000, 2));
const LOOKS: About =
    About { name: "root_ca_cert_publisher_sync_total", help: "Looks at namespaces.", ..TOOK };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// In PEM. Without it nothing is published.
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
    /// The annotation that says what the map is for.
    description: String,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    took: Family<Histogram>,
}

pub async fn run(context: Context, options: Options) {
    let Some(authority) = options.authority.filter(|it| !it.is_empty()) else {
        tracing::info!(
            controller = "root-ca-cert-publisher",
            "has nothing to do: there is no authority to publish"
        );
        return std::future::pending().await;
    };
    let queue = Queue::<Key>::default();
    let name = context.names.root_authority_map();
    let namespaces = context.informer::<Namespace>();
    let maps = context.informer_of::<ConfigMap>("", &format!("metadata.name={name}"));
    let registry = context.metrics.registry();
    let took = registry.family(TOOK);
    registry.counted(LOOKS, &took);
    let this = Arc::new(Publisher {
        took,
        authority,
        name,
        description: context.names.well_known("description"),
        namespaces: namespaces.clone(),
        maps: maps.clone(),
        context,
    });
    let news = queue.clone();
    namespaces.listen(move |change| {
        if !change.is_deletion() {
            news.add(change.key());
        }
    });
    let news = queue.clone();
    maps.listen(move |change| news.add(Key::new("", change.key().namespace)));
    namespaces.synced().await;
    maps.synced().await;
    run::run(this, queue, options.workers).await;
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
        let looked = self.look(key).await;
        let code = match &looked {
            Ok(_) => 200,
            Err(Failure::Api(kube::Error::Api(answer))) => answer.code,
            Err(_) => 500,
        };
        self.took.of(&[&code.to_string()]).took(self.context.world.elapsed().saturating_sub(since));
        looked
    }
}

impl Publisher {
    async fn look(&self, key: &Key) -> Result<Action, Failure> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::AwaitChange) };
        if namespace.status.as_ref().and_then(|it| it.phase.as_deref()) != Some("Active") {
            return Ok(Action::AwaitChange);
        }
        let there = self.maps.get(&Key::new(&key.name, &self.name));
        let Some(next) = wanted(there.as_deref(), &self.name, &self.authority, &self.description) else {
            return Ok(Action::AwaitChange);
        };
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), &key.name);
        let written = match there {
            None => api.create(&PostParams::default(), &next).await,
            Some(_) => api.replace(&self.name, &PostParams::default(), &next).await,
        };
        match written {
            Err(why) if !is_terminating(&why) => Err(why.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}

/// The map as it should be; nothing when it is.
fn wanted(there: Option<&ConfigMap>, name: &str, authority: &str, description: &str) -> Option<ConfigMap> {
    let data = Some(BTreeMap::from([(DATA.to_owned(), authority.to_owned())]));
    let described = there.and_then(|it| it.metadata.annotations.as_ref()?.get(description));
    if there.is_some_and(|it| it.data == data) && described.is_some_and(|it| !it.is_empty()) {
        return None;
    }
    let made = || ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let mut next = there.cloned().unwrap_or_else(made);
    next.data = data;
    let annotations = next.metadata.annotations.get_or_insert_default();
    annotations.insert(description.to_owned(), DESCRIPTION.to_owned());
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_mended_and_left_alone_when_they_are_right() {
        let made = wanted(None, "root", "PEM", "d").unwrap();
        assert_eq!(made.metadata.name.as_deref(), Some("root"));
        assert_eq!(wanted(Some(&made), "root", "PEM", "d"), None);
        let other = wanted(Some(&made), "root", "OTHER", "d").unwrap();
        assert_eq!(other.data.as_ref().unwrap()[DATA], "OTHER");
        let mut changed = made.clone();
        changed.data.as_mut().unwrap().insert("more".to_owned(), String::new());
        changed.metadata.annotations = Some(BTreeMap::from([("mine".to_owned(), "x".to_owned())]));
        let mended = wanted(Some(&changed), "root", "PEM", "d").unwrap();
        assert_eq!(mended.data, made.data);
        assert_eq!(mended.metadata.annotations.unwrap().len(), 2);
    }
}
