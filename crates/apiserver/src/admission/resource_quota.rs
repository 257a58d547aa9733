//! ResourceQuota: charges new objects to the quotas of their namespace before they are stored.
//!
//! Invariants: of two writes that would exceed a quota together, one is denied, because usage is written with
//! the resourceVersion that it was read at. Writes of one namespace are serialized, so that they do not
//! conflict with each other. A write that fails after it was charged stays charged until the next recount.

use super::configuration::{self, ConfigErrors, Part};
use crate::loopback;
use apimachinery::quota::{LimitedResource, QuotaRequest, Refusal, Scope, charge, follows_changes};
use env::MaybeReady;
use names::Names;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::Mutex;

const PLURAL: &str = "resourcequotas";
/// Attempts after conflicting writes of the usage.
const ATTEMPTS: usize = 20;
const LOCKS: usize = 64;

pub struct ResourceQuota {
    /// Resources that require a quota.
    limited: Vec<LimitedResource>,
    /// Locks; namespaces with the same hash share one.
    locks: Vec<Mutex<()>>,
}

impl ResourceQuota {
    pub fn new(names: &Names, configuration: &Value) -> Result<Self, String> {
        let locks = (0..LOCKS).map(|_| Mutex::new(())).collect();
        Ok(ResourceQuota { limited: limited(names, configuration)?, locks })
    }

    async fn charge(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let turn = lock_of(write.namespace);
        let _turn = self.locks[turn].lock().await;
        let (group, plural) = (&*write.resource.group, &*write.resource.kind.plural);
        let written = QuotaRequest { group, plural, object, old };
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let quotas = write.api.list_of(PLURAL, Some(write.namespace));
            let changed = charge(&quotas, &written, &self.limited, &write.api.names);
            let changed = changed.map_err(|refusal| match refusal {
                Refusal::Forbidden(why) => write.forbidden(Some(object), &why),
                Refusal::Uncovered(why) => ApiError::internal(why),
            })?;
            if write.dry_run {
                return Ok(());
            }
            match write_usage(write, &quotas, changed).await {
                Ok(()) => return Ok(()),
                // a conflict, or the quota is gone: read again
                Err(why) if matches!(why.code, 404 | 409) => last = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(last.unwrap_or_else(|| ApiError::unavailable("the quotas of the namespace change too quickly")))
    }
}

impl Admission for ResourceQuota {
    fn interest(&self, resource: &Resource) -> Interest {
        let updates = Interest::UPDATE.when(follows_changes(&resource.group, &resource.kind.plural));
        // events are many and short-lived
        let counted = resource.kind.namespaced && resource.kind.plural != "events";
        Interest::CREATE.and(updates).when(counted)
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        if self.limited.is_empty() && !write.api.any_of(PLURAL, write.namespace) {
            return Ok(()).into();
        }
        MaybeReady::later(self.charge(write, object, old))
    }
}

fn lock_of(namespace: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    hasher.finish() as usize % LOCKS
}

/// Writes the usage, unless a quota has changed since it was read.
async fn write_usage(
    write: &AdmissionAttributes<'_>,
    quotas: &[Value],
    changed: Vec<(usize, Map)>,
) -> Result<(), ApiError> {
    let resources = write.api.resources();
    let Some(resource) = resources.get("v1", PLURAL) else { return Ok(()) };
    for (at, used) in changed {
        let mut next = quotas[at].clone();
        next.set(&["status", "used"], Value::Map(used));
        let name = quotas[at].text(&["metadata", "name"]);
        let target =
            loopback::WriteTarget { resource, namespace: write.namespace, name, subresource: "status" };
        loopback::write(write.api, target, &next).await?;
    }
    Ok(())
}

/// The resources that require a quota, from the configuration.
fn limited(names: &Names, configuration: &Value) -> Result<Vec<LimitedResource>, String> {
    if configuration.is_null() {
        return Ok(Vec::new());
    }
    let form = |group: &str, version: &str, kind| (format!("{}/{version}", names.group(group)), kind);
    let forms = [
        form("apiserver.config", "v1", "ResourceQuotaConfiguration"),
        form("resourcequota.admission", "v1beta1", "Configuration"),
        form("resourcequota.admission", "v1alpha1", "Configuration"),
    ];
    let mut problems = ConfigErrors::default();
    let whole = configuration::whole_of(configuration, &forms, &["limitedResources"], &mut problems);
    let fields = ["apiGroup", "resource", "matchContains", "matchScopes"];
    let limited = whole.parts("limitedResources", &fields, &mut problems);
    let limited = limited.iter().map(|part| limited_resource(part, &mut problems)).collect();
    problems.into_result(limited)
}

fn limited_resource(part: &Part<'_>, problems: &mut ConfigErrors) -> LimitedResource {
    let plural = part.text("resource", problems).unwrap_or_default().to_owned();
    if plural.is_empty() {
        problems.add(&part.at("resource"), "Required value");
    }
    let scopes = part.parts("matchScopes", &["scopeName", "operator", "values"], problems);
    let scopes = scopes.iter().map(|scope| Scope {
        name: scope.text("scopeName", problems).unwrap_or_default().to_owned(),
        operator: scope.text("operator", problems).unwrap_or_default().to_owned(),
        values: scope.texts("values", problems).into_iter().map(str::to_owned).collect(),
    });
    let scopes = scopes.collect();
    let contains = part.texts("matchContains", problems).into_iter().map(str::to_owned).collect();
    let group = part.text("apiGroup", problems).unwrap_or_default().to_owned();
    LimitedResource { group, plural, contains, scopes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_strictly() {
        let read = |text: &str| {
            let configuration = schema::decode::json_untyped(text.as_bytes()).expect("JSON").value;
            limited(&Names::kubernetes(), &configuration)
        };
        let of = |rest: &str| {
            format!(
                r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration",{rest}}}"#
            )
        };
        let one =
            read(&of(r#""limitedResources":[{"resource":"pods","matchContains":["cpu"],"matchScopes":[
                {"scopeName":"PriorityClass","operator":"In","values":["a"]}]}]"#));
        let one = one.unwrap();
        assert_eq!(
            (one[0].plural.as_str(), one[0].scopes[0].to_string()),
            ("pods", "{PriorityClass In [a]}".into())
        );
        let problems = read(&of(r#""limitedResources":[{"apiGroup":"x","matchContains":"cpu"}],"foo":1"#));
        let problems = problems.unwrap_err();
        for part in ["limitedResources[0].resource: Required", "limitedResources[0].matchContains", "foo"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(read(r#"{"kind":"Configuration"}"#).is_err());
    }
}
