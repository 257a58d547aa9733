//! Post-start bootstrap: creates the objects of every cluster while requests wait: namespaces, priority
//! classes, roles, flow schemas.

use super::error::StartError;
use super::post_start_hooks::Hook;
use crate::aggregation;
use crate::authorization::roles::{self, Reflector};
use crate::handle::Service;
use crate::loopback;
use crate::options::deployment::BeforeReady;
use crate::self_registration::SelfRegistration;
use crate::self_registration::cluster_keys::{ClusterKeys, Failure};
use auth::Rbac;
use rest::Api;
use schema::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// Inputs of the bootstrap that only some servers have.
pub(super) struct Bootstrap {
    /// The keys that all servers of one etcd share.
    pub keys: Option<ClusterKeys>,
    pub before_ready: Option<BeforeReady>,
    /// Address of the listener.
    pub address: SocketAddr,
}

impl Bootstrap {
    /// Runs all post-start hooks; returns the reflector of roles.
    pub async fn run(
        self,
        service: &Service,
        self_registration: &mut SelfRegistration,
        rbac: Arc<Rbac>,
        api_services: Option<&aggregation::Reflector>,
    ) -> Result<Reflector, StartError> {
        let (api, start) = (&service.api, &service.start);
        create_namespaces(api).await?;
        if let Some(keys) = self.keys {
            keys.publish(api).await.map_err(|failure| match failure {
                Failure::Foreign(keys) => keys.into(),
                Failure::Api(why) => StartError::System { name: "cluster-keys".to_owned(), why },
            })?;
        }
        create_priority_classes(api).await?;
        start.finish(Hook::PriorityClasses);
        roles::ensure(api, &service.gates.enabled_names(&api.opened)).await?;
        let reflector = Reflector::start(api, rbac);
        start.finish(Hook::Roles);
        if let Some(fairness) = &service.access.fairness {
            fairness.begin(api).await;
        }
        start.finish(Hook::Fairness);
        if let Some(api_services) = api_services {
            api_services.begin().await;
        }
        start.finish(Hook::Registration);
        self_registration.begin(api).await;
        if let Some(before_ready) = self.before_ready {
            before_ready(self.address).map_err(StartError::BeforeReady)?;
        }
        start.finish(Hook::Bootstrap);
        Ok(reflector)
    }
}

async fn create_namespaces(api: &Arc<Api>) -> Result<(), StartError> {
    let names = &api.names;
    let namespaces = [
        names.system_namespace(),
        names.public_namespace(),
        names.node_lease_namespace(),
        names::DEFAULT_NAMESPACE.to_owned(),
    ];
    for name in namespaces {
        let mut namespace = Value::map();
        namespace.set(&["metadata", "name"], name);
        create_missing(api, "v1", "namespaces", namespace).await?;
    }
    Ok(())
}

async fn create_priority_classes(api: &Arc<Api>) -> Result<(), StartError> {
    let scheduling = format!("{}/v1", api.names.group("scheduling"));
    for class in kinds::scheduling::priorityclass::system_classes() {
        create_missing(api, &scheduling, "priorityclasses", class).await?;
    }
    Ok(())
}

async fn create_missing(
    api: &Api,
    group_version: &str,
    plural: &str,
    object: Value,
) -> Result<(), StartError> {
    let resources = api.resources();
    let Some(resource) = resources.get(group_version, plural) else { return Ok(()) };
    let name = object.text(&["metadata", "name"]);
    if resource.collection.cache.get("", name).is_some() {
        return Ok(());
    }
    let target = loopback::WriteTarget { resource, namespace: "", name: "", subresource: "" };
    let created = loopback::write(api, target, &object).await.map(drop);
    loopback::ignore_conflict(created).map_err(|why| StartError::System { name: name.to_owned(), why })
}
