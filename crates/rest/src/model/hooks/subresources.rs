//! The hooks of subresources: parts of an object, actions, views of another kind, and virtual subresources.

use super::metadata_errors::{MetadataRules, RepeatedMetadataErrors};
use crate::model::context::Context;
use crate::model::error::ApiError;
use crate::model::view::View;
use crate::model::virtual_resource::VirtualResource;
use schema::Value;
use schema::problem::Problems;
use schema::table::{Kind, Ref, Type};
use std::sync::Arc;

/// All subresources of a kind.
#[derive(Default, Clone)]
pub struct Subresources {
    /// Those that read and write a part of the object.
    pub parts: &'static [SubresourceHooks],
    /// Those that change or remove the object when they are posted to.
    pub actions: &'static [ActionHooks],
    /// Those that show the object as another kind.
    pub views: Vec<View>,
    /// Those whose objects are never stored.
    pub virtuals: Vec<VirtualSubresource>,
}

/// A subresource that reads and writes a part of its object.
pub struct SubresourceHooks {
    pub name: &'static str,
    /// Copies into `next` (the live object) the fields of the submitted object that this subresource can change.
    pub apply: fn(next: &mut Value, submitted: &Value, context: &Context<'_>),
    pub validate: Option<Check>,
    /// Restores fields that this subresource cannot change. Runs after field ownership is recorded.
    pub restore: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Fields, by their paths, that writes of this subresource never own.
    pub unowned: &'static [&'static str],
    pub repeated_metadata_errors: RepeatedMetadataErrors,
    /// Of `uid`, `deletionTimestamp` and `deletionGracePeriodSeconds`, those that a client may send and that are ignored.
    /// A change of the others is an error.
    pub ignored_metadata: &'static [&'static str],
    /// Reads have no table form.
    pub without_table: bool,
}

/// The metadata that a subresource ignores which writes nothing but its own part.
pub const IDENTITY_AND_DELETION: &[&str] = &["uid", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Validates the next state of an object, given the one before.
pub type Check = fn(&Value, &Value, &Context<'_>) -> Problems;

impl SubresourceHooks {
    /// The `status` of most kinds: everything but the spec comes from the client.
    pub const fn status(validate: Option<Check>) -> Self {
        SubresourceHooks { validate, ..Self::STATUS }
    }

    /// The `status` of a kind without rules for it.
    pub const STATUS: SubresourceHooks = SubresourceHooks {
        name: "status",
        apply: apply_status,
        validate: None,
        restore: None,
        unowned: &[],
        repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
        ignored_metadata: &[],
        without_table: false,
    };
}

/// A subresource whose objects are computed from a request and never stored.
#[derive(Clone)]
pub struct VirtualSubresource {
    pub name: &'static str,
    /// The kind of the request and of the response.
    pub kind: Ref<Kind>,
    pub resource: Arc<dyn VirtualResource>,
}

/// The action on another resource that a creation performs.
#[derive(Clone, Copy)]
pub struct ActionTarget {
    /// In the same group and version.
    pub plural: &'static str,
    pub action: &'static str,
    /// Rejects a body before any object is looked up.
    pub check: fn(&Value) -> Result<(), ApiError>,
}

/// A subresource that changes or removes its object when it is posted to, such as a binding or an eviction.
pub struct ActionHooks {
    pub name: &'static str,
    /// The type of the body, with its kind and version as clients write them.
    pub body: fn() -> Option<&'static Type>,
    pub kind: &'static str,
    pub api_version: &'static str,
    /// Other versions that have the same form.
    pub other_versions: &'static [&'static str],
    /// Validates the body without the object.
    pub check: fn(&Value) -> Result<(), ApiError>,
    pub effect: ActionEffect,
}

/// The effect of an action.
pub enum ActionEffect {
    Change(fn(object: &mut Value, body: &Value, context: &Context<'_>) -> Result<(), ApiError>),
    Delete(BudgetedDelete),
}

/// An action that deletes its object if the budget of another object allows it.
pub struct BudgetedDelete {
    /// The field of the body that has the options of the deletion.
    pub options: &'static str,
    /// Finds the budget that the deletion is charged to.
    pub decide: fn(object: &Value, context: &Context<'_>) -> Result<BudgetDecision, ApiError>,
    /// Marks the object when its deletion begins.
    pub mark: fn(object: &mut Value, context: &Context<'_>),
}

/// Whether a deletion is charged to a budget.
pub enum BudgetDecision {
    Free,
    /// Free as long as the object does not change.
    FreeWhileUnchanged,
    Charge(BudgetCharge),
}

/// The object whose status is charged for a deletion.
pub struct BudgetCharge {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
    /// Charges the deletion of the object to the budget; an error if the budget does not allow it.
    pub charge: fn(budget: &mut Value, object: &Value, context: &Context<'_>) -> Result<(), ApiError>,
}

/// Applies the `status` of most kinds: everything but the spec comes from the client.
pub fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
    replace(next, submitted, "metadata");
}

/// Copies one field of the submitted object.
pub fn replace(next: &mut Value, submitted: &Value, field: &'static str) {
    match submitted.at(&[field]) {
        Some(value) => next.set(&[field], value.clone()),
        None => {
            next.unset(&[field]);
        }
    }
}
