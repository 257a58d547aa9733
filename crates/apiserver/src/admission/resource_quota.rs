//! ResourceQuota: charges new objects to the quotas of their namespace before they are stored.
//!
//! Always true: of two writes that would exceed a quota together, one is refused, because the sums are written
//! with the version that they were read at. Writes of one namespace take turns, so that none of them is told of
//! the others. A write that fails after it was charged stays charged until somebody counts again.

use super::configuration::{self, Part, Wrong};
use crate::loopback;
use apimachinery::quota::{LimitedResource, QuotaRequest, Refusal, Scope, charge, follows_changes};
use env::MaybeReady;
use names::Names;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::Mutex;

const PLURAL: &str = "resourcequotas";
/// How often the sums are read again when somebody else has written them.
const ATTEMPTS: usize = 20;
const TURNS: usize = 64;

pub struct ResourceQuota {
    /// What nobody gets without a quota for it.
    limited: Vec<LimitedResource>,
    /// Namespaces that have the same number wait for each other.
    turns: Vec<Mutex<()>>,
}

impl ResourceQuota {
    pub fn new(names: &Names, told: &Value) -> Result<Self, String> {
        let turns = (0..TURNS).map(|_| Mutex::new(())).collect();
        Ok(ResourceQuota { limited: limited(names, told)?, turns })
    }

    async fn charge(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let turn = turn_of(write.namespace);
        let _turn = self.turns[turn].lock().await;
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
            match tell(write, &quotas, changed).await {
                Ok(()) => return Ok(()),
                // somebody else wrote it, or the quota is gone: count again
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
        // events are many and soon gone
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

fn turn_of(namespace: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    hasher.finish() as usize % TURNS
}

/// Writes what is used now, unless a quota has changed since it was read.
async fn tell(
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
        let place = loopback::Place { resource, namespace: write.namespace, name, subresource: "status" };
        loopback::write(write.api, place, &next).await?;
    }
    Ok(())
}

/// What the configuration says nobody gets without a quota.
fn limited(names: &Names, told: &Value) -> Result<Vec<LimitedResource>, String> {
    if told.is_null() {
        return Ok(Vec::new());
    }
    let form = |group: &str, version: &str, kind| (format!("{}/{version}", names.group(group)), kind);
    let forms = [
        form("apiserver.config", "v1", "ResourceQuotaConfiguration"),
        form("resourcequota.admission", "v1beta1", "Configuration"),
        form("resourcequota.admission", "v1alpha1", "Configuration"),
    ];
    let mut wrong = Wrong::default();
    let whole = configuration::whole_of(told, &forms, &["limitedResources"], &mut wrong);
    let fields = ["apiGroup", "resource", "matchContains", "matchScopes"];
    let limited = whole.parts("limitedResources", &fields, &mut wrong);
    let limited = limited.iter().map(|part| one_limited(part, &mut wrong)).collect();
    wrong.unless(limited)
}

fn one_limited(part: &Part<'_>, wrong: &mut Wrong) -> LimitedResource {
    let plural = part.text("resource", wrong).unwrap_or_default().to_owned();
    if plural.is_empty() {
        wrong.say(&part.at("resource"), "Required value");
    }
    let scopes = part.parts("matchScopes", &["scopeName", "operator", "values"], wrong);
    let scopes = scopes.iter().map(|scope| Scope {
        name: scope.text("scopeName", wrong).unwrap_or_default().to_owned(),
        operator: scope.text("operator", wrong).unwrap_or_default().to_owned(),
        values: scope.texts("values", wrong).into_iter().map(str::to_owned).collect(),
    });
    let scopes = scopes.collect();
    let contains = part.texts("matchContains", wrong).into_iter().map(str::to_owned).collect();
    let group = part.text("apiGroup", wrong).unwrap_or_default().to_owned();
    LimitedResource { group, plural, contains, scopes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_strictly() {
        let read = |text: &str| {
            let told = schema::decode::json_untyped(text.as_bytes()).expect("JSON").value;
            limited(&Names::kubernetes(), &told)
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
        let wrong = read(&of(r#""limitedResources":[{"apiGroup":"x","matchContains":"cpu"}],"foo":1"#));
        let wrong = wrong.unwrap_err();
        for part in ["limitedResources[0].resource: Required", "limitedResources[0].matchContains", "foo"] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        assert!(read(r#"{"kind":"Configuration"}"#).is_err());
    }
}
