//! ComponentStatus: health of the control plane, as far as this process knows it.

use super::sources::Sources;
use rest::{ApiError, Subject, VirtualResource};
use schema::Value;

pub struct Components {
    pub sources: Sources,
}

impl VirtualResource for Components {
    fn all(&self) -> Vec<Value> {
        let problem = |name: &str| {
            let own = self.sources.components.iter().find(|(own, _)| *own == name);
            own.map_or_else(|| Some("not run by this server".to_owned()), |(_, health)| health().err())
        };
        let store = self.sources.store.healthy().err().map(|why| why.to_string());
        vec![
            component("scheduler", problem("scheduler")),
            component("controller-manager", problem("controller-manager")),
            component("etcd-0", store),
        ]
    }

    /// The error of upstream, which is an internal one.
    fn missing(&self, subject: Subject<'_>) -> ApiError {
        ApiError::internal(format!("Component not found: {}", subject.name))
    }
}

fn component(name: &str, problem: Option<String>) -> Value {
    let mut condition = Value::map();
    condition.set(&["type"], "Healthy");
    condition.set(&["status"], if problem.is_none() { "True" } else { "False" });
    condition.set(&["message"], problem.unwrap_or_else(|| "{\"health\":\"true\"}".to_owned()));
    let mut out = Value::map();
    out.set(&["metadata"], Value::map());
    out.set(&["metadata", "name"], name);
    out.set(&["metadata", "creationTimestamp"], Value::Null);
    out.set(&["conditions"], Value::List(vec![condition]));
    out
}
