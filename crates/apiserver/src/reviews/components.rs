//! ComponentStatus: health of the control plane.
//!
//! Upstream calls the ports of a scheduler and a controller manager on its own machine. Here they run in the process of a
//! server, of another server of the same store, or alone: one that shares a store holds a lease, and renews it. An etcd
//! answers for itself, with each of its servers.

use super::sources::Sources;
use crate::self_registration::identity_lease::{has_expired, unix_micros};
use env::MaybeReady;
use rest::{Api, ApiError, Subject, VirtualRead, VirtualResource};
use schema::Value;

const COMPONENTS: [&str; 2] = ["scheduler", "controller-manager"];

pub struct Components {
    pub sources: Sources,
}

impl VirtualResource for Components {
    fn read<'a>(&'a self, request: &'a VirtualRead<'a>) -> MaybeReady<'a, Result<Vec<Value>, ApiError>> {
        MaybeReady::later(async { Ok(self.statuses(request.name).await) })
    }

    /// The error of upstream, which is an internal one.
    fn missing(&self, subject: Subject<'_>) -> ApiError {
        ApiError::internal(format!("Component not found: {}", subject.name))
    }
}

impl Components {
    async fn statuses(&self, name: Option<&str>) -> Vec<Value> {
        let mut all: Vec<Value> =
            COMPONENTS.iter().map(|component| status(component, self.component(component))).collect();
        // an etcd that does not answer takes its time
        if !name.is_some_and(|name| COMPONENTS.contains(&name)) {
            let members = self.sources.store.members().await.into_iter().enumerate();
            all.extend(members.map(|(at, health)| {
                let health = health.map(|()| r#"{"health":"true","reason":""}"#.to_owned());
                status(&format!("etcd-{at}"), health.map_err(|why| why.to_string()))
            }));
        }
        all
    }

    /// The health of a component; the text says where it runs, or why it does not.
    fn component(&self, component: &str) -> Result<String, String> {
        let own = self.sources.components.iter().find(|(own, _)| *own == component);
        match (own, self.sources.objects.api()) {
            (Some((_, health)), _) => health().map(|()| "ok".to_owned()),
            (None, Some(api)) => lease_holder(&api, component),
            (None, None) => Err("the server starts".to_owned()),
        }
    }
}

/// The process that holds the lease of a component.
fn lease_holder(api: &Api, component: &str) -> Result<String, String> {
    let (namespace, name) = (api.names.system_namespace(), format!("{}-{component}", api.names.prefix));
    let lease = api.lookup("leases", &namespace, &name);
    let holder = lease.as_ref().map(|it| it.text(&["spec", "holderIdentity"])).unwrap_or_default();
    let Some(lease) = lease.as_ref().filter(|_| !holder.is_empty()) else {
        return Err(format!("no process runs it: none holds the lease {namespace}/{name}"));
    };
    if has_expired(lease, unix_micros(api)) {
        let renewed = lease.text(&["spec", "renewTime"]);
        return Err(format!(
            "no process runs it: {holder} renewed the lease {namespace}/{name} last at {renewed}"
        ));
    }
    Ok(format!("ok: {holder}"))
}

fn status(name: &str, health: Result<String, String>) -> Value {
    let mut condition = Value::map();
    condition.set(&["type"], "Healthy");
    condition.set(&["status"], if health.is_ok() { "True" } else { "False" });
    condition.set(&["message"], health.unwrap_or_else(|problem| problem));
    let mut out = Value::map();
    out.set(&["metadata"], Value::map());
    out.set(&["metadata", "name"], name);
    out.set(&["metadata", "creationTimestamp"], Value::Null);
    out.set(&["conditions"], Value::List(vec![condition]));
    out
}
