//! Quotas: what is made in a namespace is charged to its quotas before it is stored.
//!
//! Always true: of two writes that would exceed a quota together, one is refused, because the sums are written
//! with the version that they were read at. A write that fails after it was charged stays charged until somebody
//! counts again.

use crate::own;
use ambient::Soon;
use kinds::quota::{Written, charge};
use rest::{Admission, Admitted, ApiError, Interest, Resource};
use schema::{Map, Value};

const PLURAL: &str = "resourcequotas";
const ATTEMPTS: usize = 20;

pub struct Quota;

impl Admission for Quota {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(resource.kind.namespaced)
    }

    fn settle<'a>(
        &'a self,
        write: &'a Admitted<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Soon<'a, Result<(), ApiError>> {
        let quotas = write.api.list_of(PLURAL, Some(write.namespace));
        if quotas.is_empty() {
            return Ok(()).into();
        }
        Soon::later(settle(write, object, old, quotas))
    }
}

async fn settle(
    write: &Admitted<'_>,
    object: &Value,
    old: Option<&Value>,
    mut quotas: Vec<Value>,
) -> Result<(), ApiError> {
    let (group, plural) = (&*write.resource.group, &*write.resource.kind.plural);
    let written = Written { group, plural, object, old };
    for _ in 0..ATTEMPTS {
        let refused = |why: String| {
            let name = object.text(&["metadata", "name"]);
            ApiError::object_forbidden(write.resource.subject(name), &why)
        };
        let changed = charge(&quotas, &written, &write.api.names).map_err(refused)?;
        if write.dry_run {
            return Ok(());
        }
        let mut late = false;
        for (at, used) in changed {
            match tell(write, &quotas[at], used).await {
                Ok(()) => {}
                // somebody else was charged, or the quota is gone: count again
                Err(why) if matches!(why.code, 404 | 409) => {
                    late = true;
                    break;
                }
                Err(why) => return Err(why),
            }
        }
        if !late {
            return Ok(());
        }
        quotas = write.api.list_of(PLURAL, Some(write.namespace));
    }
    Err(ApiError::unavailable("the quotas of the namespace change too quickly"))
}

/// Writes what is used now, unless the quota has changed since it was read.
async fn tell(write: &Admitted<'_>, quota: &Value, used: Map) -> Result<(), ApiError> {
    let resources = write.api.resources();
    let Some(resource) = resources.get("v1", PLURAL) else { return Ok(()) };
    let mut next = quota.clone();
    next.set(&["status", "used"], Value::Map(used));
    let name = quota.text(&["metadata", "name"]);
    let place = own::Place { resource, namespace: write.namespace, name, subresource: "status" };
    own::write(write.api, place, &next).await.map(drop)
}
