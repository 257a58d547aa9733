//! Stage: the namespace of the request, and default values.

use crate::model::error::ApiError;
use crate::pipeline::request::{Write, WriteRequest};
use names::Names;
use schema::{Value, defaults};

/// Sets the namespace and the defaults, and drops repeated owner references.
pub(crate) fn complete(write: &mut Write<'_, '_>, names: &Names) -> Result<(), ApiError> {
    write.request.place(&mut write.object)?;
    write.request.default(&mut write.object, names);
    write.request.dedup_owners(&mut write.object);
    Ok(())
}

impl WriteRequest<'_> {
    /// Declared defaults, then defaults that depend on other fields.
    pub(crate) fn default(&self, object: &mut Value, names: &Names) {
        defaults::apply(&self.resource.kind.root, object);
        if let Some(default) = self.resource.hooks.decode.default {
            default(object, names);
        }
    }
}
