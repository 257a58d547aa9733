//! Virtual resources: kinds whose objects are computed for a request and never stored, such as access reviews.

use crate::model::context::Requester;
use crate::model::error::{ApiError, Subject};
use crate::model::object::Object;
use env::{MaybeReady, World};
use names::Names;
use schema::Value;
use std::sync::Arc;

/// Handles the verbs of a virtual resource. A verb that the kind does not serve keeps its default.
pub trait VirtualResource: Send + Sync {
    /// The response to a creation, given the object that was sent.
    fn create<'a>(&'a self, _: Value, _: &'a VirtualRequest<'a>) -> MaybeReady<'a, Result<Value, ApiError>> {
        Err(ApiError::method_not_allowed()).into()
    }

    /// Completes the object that was sent before validating admission sees it.
    fn prepare(&self, _: &mut Value, _: &VirtualRequest<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// All current objects, with their metadata.
    fn all(&self) -> Vec<Value> {
        Vec::new()
    }

    /// The current objects that a read may show, with their metadata; others may be among them. By default all.
    fn read<'a>(&'a self, _: &'a VirtualRead<'a>) -> MaybeReady<'a, Result<Vec<Value>, ApiError>> {
        Ok(self.all()).into()
    }

    /// The error of a name that no object has.
    fn missing(&self, subject: Subject<'_>) -> ApiError {
        ApiError::not_found(subject)
    }
}

/// A read of a virtual resource.
pub struct VirtualRead<'a> {
    /// The namespace, or empty for all.
    pub namespace: &'a str,
    /// The one object that is read, if the request names it.
    pub name: Option<&'a str>,
    /// Whether the label selector of the request matches an object, which may be of another kind.
    pub selects: &'a (dyn Fn(&Value) -> bool + Sync),
    /// The present, in the form of the API.
    pub now: &'a str,
}

/// Finds an object of another resource in the cache, by plural, namespace and name.
pub type Find<'a> = dyn Fn(&str, &str, &str) -> Option<Arc<Object>> + Sync + 'a;

/// Finds and decodes such an object.
pub type Lookup<'a> = dyn Fn(&str, &str, &str) -> Option<Value> + Sync + 'a;

/// A request to a virtual resource.
pub struct VirtualRequest<'a> {
    /// The resource, and the object whose subresource is requested (empty otherwise).
    pub subject: Subject<'a>,
    pub namespace: &'a str,
    pub user: &'a Requester,
    pub names: &'a Names,
    pub world: &'a World,
    pub find: &'a Find<'a>,
    pub lookup: &'a Lookup<'a>,
}
