//! Adapter for plugins that decide synchronously, from the object and the caches.

use env::MaybeReady;
use rest::hooks::Context;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;

/// The reason of a denial: the text after `pods "x" is forbidden`.
pub type Verdict = Result<(), String>;

/// A synchronous plugin. It does not handle deletions.
pub trait SyncAdmission: Send + Sync {
    fn interest(&self, resource: &Resource) -> Interest;

    /// An error of the plugin itself, which is no denial.
    fn failure(&self, _object: &Value) -> Option<String> {
        None
    }

    /// May change the object before it is validated.
    fn change(&self, _: &AdmissionAttributes<'_>, _object: &mut Value, _old: Option<&Value>) -> Verdict {
        Ok(())
    }

    /// Checks the object after validation.
    fn review(&self, _: &AdmissionAttributes<'_>, _object: &Value, _old: Option<&Value>) -> Verdict {
        Ok(())
    }
}

/// Adapts a synchronous plugin to the chain.
pub struct SyncPlugin<T>(pub T);

impl<T: SyncAdmission> Admission for SyncPlugin<T> {
    fn interest(&self, resource: &Resource) -> Interest {
        self.0.interest(resource)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let Some(object) = object else { return Ok(()).into() };
        if let Some(why) = self.0.failure(object) {
            return Err(ApiError::internal(why)).into();
        }
        let verdict = self.0.change(write, object, old);
        verdict.map_err(|why| write.forbidden(Some(object), &why)).into()
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        if let Some(why) = self.0.failure(object) {
            return Err(ApiError::internal(why)).into();
        }
        let verdict = self.0.review(write, object, old);
        verdict.map_err(|why| write.forbidden(Some(object), &why)).into()
    }
}

/// Whether a resource is this built-in one, in any version.
pub fn is(resource: &Resource, group: &str, plural: &str) -> bool {
    resource.kind.plural == plural && *resource.kind.group.stem == *group
}

/// Runs work with access to the caches.
pub fn with_context<T>(write: &AdmissionAttributes<'_>, work: impl FnOnce(&Context<'_>) -> T) -> T {
    write.api.with_context(write.user, work)
}

/// All containers of a pod, init containers first.
pub fn containers(pod: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    lists.flat_map(|list| {
        pod.items(&["spec", list]).iter().enumerate().map(move |(at, container)| (list, at, container))
    })
}
