//! Stage: the namespace of the request, and default values.

use crate::model::error::ApiError;
use crate::pipeline::request::Write;
use names::Names;

/// Sets the namespace and the defaults, and drops repeated owner references.
pub(crate) fn complete(write: &mut Write<'_, '_>, names: &Names) -> Result<(), ApiError> {
    let resource = write.request.resource.clone();
    write.request.place(&mut write.object)?;
    // an apply to an existing object has set the defaults, if it changes anything; a view changes one field of an
    // object as it was read
    if write.base.is_none() || write.view.is_none() && !write.request.owned {
        resource.default(&mut write.object, names);
    }
    let is_new = write.old().is_none();
    write.request.dedup_owners(&mut write.object, is_new);
    Ok(())
}
