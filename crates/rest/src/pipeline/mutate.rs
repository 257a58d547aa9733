//! Stage: mutating admission of a new or next state.

use crate::model::error::ApiError;
use crate::model::metadata::{self, SentFields};
use crate::model::operation::Operation;
use crate::pipeline::api::Api;
use crate::pipeline::own;
use crate::pipeline::request::Write;
use merge::managed;
use schema::{Value, decode};

/// Runs the plugins, and confines the object again if a webhook has changed it.
pub(crate) async fn admit(
    api: &Api,
    write: &mut Write<'_, '_>,
    sent: Option<SentFields>,
) -> Result<(), ApiError> {
    let (Some(old), Some(sent)) = (write.old(), sent) else { return admit_new(api, write).await };
    // a write through a view has been admitted in the form of the view
    if write.view.is_none() {
        // plugins see the server's fields as the client sent them
        metadata::set_sent_fields(&mut write.object, sent);
        let attributes = write.request.attributes(api, Operation::Update, write.request.name);
        api.mutate(&attributes, Some(&mut write.object), Some(old)).await?;
        if attributes.reinvocation.should_reinvoke() {
            confine_again(api, write)?;
        }
        for field in write.ignored_metadata() {
            write.object.unset(&["metadata", field]);
        }
        // a write that changes only the times of its managed fields changes nothing; what the client sent is compared
        if managed::differ_in_times(old, &write.object) {
            if write.request.owned {
                // an applied object is complete only later (`prepare`)
                write.applies_server_fields = metadata::differ_in_server_fields(&write.object, old);
            } else if !write.sends_other_fields(old) {
                managed::keep_times(old, &mut write.object);
            }
        }
        metadata::keep_server_fields(&mut write.object, old);
    }
    Ok(())
}

async fn admit_new(api: &Api, write: &mut Write<'_, '_>) -> Result<(), ApiError> {
    write.sent_name = write.object.text(&["metadata", "name"]).to_owned();
    let attributes = write.request.attributes(api, Operation::Create, &write.sent_name);
    api.mutate(&attributes, Some(&mut write.object), None).await?;
    if attributes.reinvocation.should_reinvoke() {
        confine_again(api, write)?;
    }
    // plugins have seen the status that the client sent
    if write.request.has_status() && !write.resource().hooks.create.keeps_status {
        clear_status(write);
    }
    Ok(())
}

fn confine_again(api: &Api, write: &mut Write<'_, '_>) -> Result<(), ApiError> {
    write.request.place(&mut write.object)?;
    write.request.dedup_owners(&mut write.object, false);
    own::confine(api, write);
    Ok(())
}

/// Sets the status of a new object: empty.
fn clear_status(write: &mut Write<'_, '_>) {
    let field = write.resource().kind.root.field("status");
    let empty: Option<Value> = field.and_then(|(_, field)| decode::zero_when_absent(field));
    match empty {
        Some(empty) => write.object.set(&["status"], empty),
        None => drop(write.object.unset(&["status"])),
    }
}
