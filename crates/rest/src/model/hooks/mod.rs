//! Hooks: the behaviour that a kind adds to the generic verbs, as plain functions.
//!
//! The groups follow the time at which a hook runs:
//!
//! | group | runs |
//! |---|---|
//! | [`decode`](DecodeHooks) | when a body or a value has been decoded |
//! | [`create`](CreateHooks) | in the write pipeline, for a new object |
//! | [`update`](UpdateHooks) | in the write pipeline, for the next state of an object |
//! | [`write`](WriteHooks) | in the write pipeline, for both |
//! | [`delete`](DeleteHooks) | in delete, and when a write removes the last finalizer |
//! | [`storage`](StorageHooks) | at the commit, and when an object is read in another version |
//! | [`read`](ReadHooks) | when objects are selected or shown as rows or metadata |
//! | [`subresources`](Subresources) | when a request names a subresource |
//!
//! Absent is absent: a kind without behaviour has `Hooks::default()`.

mod metadata_errors;
mod subresources;

pub use crate::model::context::{Context, Requester};
pub use crate::model::versions::Conversion;
pub use metadata_errors::{MetadataRules, RepeatedMetadataErrors};
pub use store::Priority;
pub use subresources::{
    ActionEffect, ActionHooks, ActionTarget, BudgetCharge, BudgetDecision, BudgetedDelete, Check,
    IDENTITY_AND_DELETION, SubresourceHooks, Subresources, VirtualSubresource, apply_status, replace,
};

use crate::model::error::ApiError;
use crate::model::metrics::Timing;
use crate::model::reserve::Reserve;
use crate::model::versions::{CustomVersions, StoredVersions};
use crate::model::virtual_resource::VirtualResource;
use names::Names;
use schema::Value;
use schema::encode::EmptyLists;
use schema::problem::Problems;
use std::sync::Arc;
use std::time::Duration;

/// The behaviour of a kind.
#[derive(Default, Clone)]
pub struct Hooks {
    pub decode: DecodeHooks,
    pub create: CreateHooks,
    pub update: UpdateHooks,
    pub write: WriteHooks,
    pub delete: DeleteHooks,
    pub storage: StorageHooks,
    pub read: ReadHooks,
    pub subresources: Subresources,
    /// Handles the verbs of a kind whose objects are never stored.
    pub virtual_resource: Option<Arc<dyn VirtualResource>>,
}

/// Hooks of decoding.
#[derive(Default, Clone)]
pub struct DecodeHooks {
    /// Defaults that depend on other fields; run after the declared ones.
    pub default: Option<fn(&mut Value, &Names)>,
    /// The error of an object of this version that cannot be converted to the stored one.
    pub conversion_error: Option<fn(&Value) -> Option<String>>,
}

/// Hooks of the write pipeline for a new object.
#[derive(Default, Clone)]
pub struct CreateHooks {
    /// Changes a new object before it is validated.
    pub prepare: Option<fn(&mut Value, &Context<'_>)>,
    /// Rules whose problems come before those of the metadata.
    pub validate_first: Option<fn(&Value, &Context<'_>) -> Problems>,
    pub validate: Option<fn(&Value, &Context<'_>) -> Problems>,
    /// Changes a new object after it has been validated.
    pub complete: Option<fn(&mut Value)>,
    /// An object without a name gets a unique one.
    pub generates_name: bool,
    /// The status that a client sends is kept.
    pub keeps_status: bool,
    /// All problems are reported a second time, as upstream reports those of some kinds.
    pub repeats_errors: bool,
    /// A creation is an action on the object of the same name in another resource.
    pub acts_on: Option<ActionTarget>,
}

/// Hooks of the write pipeline for the next state of an object.
#[derive(Default, Clone)]
pub struct UpdateHooks {
    /// Changes the next state before it is validated.
    pub prepare: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Rules of the next state; reported at each [`MetadataRules::OfKind`] among the repeated metadata errors.
    pub validate_state: Option<Check>,
    /// Rules of the change, and those of the state that `validate_state` leaves out; reported at
    /// [`MetadataRules::OfChange`], or last.
    pub validate: Option<Check>,
    /// Restores fields that no write can change, also not through a subresource. Runs after field ownership is
    /// recorded.
    pub restore: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Whether a write of the whole object writes the status of this one, too; absent means that it does not.
    pub writes_status: Option<fn(&Value, &Context<'_>) -> bool>,
    /// Whether the next state is another generation; absent means that any change of the content is.
    pub changes_generation: Option<fn(&Value, &Value) -> bool>,
}

/// Hooks of the write pipeline for new objects and next states alike.
#[derive(Default, Clone)]
pub struct WriteHooks {
    /// Allocates the resources that objects hold. Runs before validation, and not for subresources.
    pub reserve: Option<Arc<dyn Reserve>>,
    /// Rules that are compiled while the server runs; reported after all others.
    pub rules: Option<Arc<dyn Rules>>,
    /// Warnings about an object that is valid.
    pub warn: Option<fn(&Value, Option<&Value>) -> Vec<String>>,
    /// The rule of names; absent means a DNS subdomain. The flag says that the text is a prefix.
    pub name_rule: Option<fn(&str, bool) -> Vec<String>>,
    /// Finalizers need no domain in front.
    pub plain_finalizers: bool,
    pub repeated_metadata_errors: RepeatedMetadataErrors,
    /// Fields, by their paths, that writes of the object itself never own.
    pub unowned: &'static [&'static str],
    /// Subresources, by name, whose writes leave the managed fields as they are.
    pub unrecorded: &'static [&'static str],
    /// A write through a subresource owns every field that it sends, also those that are restored.
    pub owns_sent: bool,
    /// The group that validation errors name, where it is not the group that the kind is served in.
    pub error_group: Option<&'static str>,
}

/// Hooks of deletion.
#[derive(Default, Clone)]
pub struct DeleteHooks {
    /// The grace period of an object in seconds, given the requested one; absent means immediate deletion.
    pub grace: Option<fn(&Value, Option<i64>) -> i64>,
    /// Changes an object whose deletion begins.
    pub begin: Option<fn(&mut Value, &Context<'_>)>,
    /// Whether a deleted object must stay for reasons beyond the finalizers in its metadata.
    pub holds: Option<fn(&Value) -> bool>,
    /// Rejects a deletion.
    pub check: Option<fn(&Value, &Context<'_>) -> Result<(), ApiError>>,
    /// The response is the object rather than a `Status`.
    pub returns_object: bool,
    /// Dependents are orphaned unless the request names a propagation policy.
    pub orphans_dependents: bool,
    /// A request not to orphan dependents (`orphanDependents: false`) waits for them, as foreground deletion does.
    pub waits_for_dependents: bool,
    /// The first request does not record its propagation policy as finalizers; later ones do.
    pub begins_alone: bool,
    /// Dependents are not garbage-collected, so the propagation policy is not recorded.
    pub uncollected: bool,
    /// The warning of a request without a propagation policy.
    pub warning: &'static str,
}

/// Hooks of stored objects.
#[derive(Default, Clone)]
pub struct StorageHooks {
    /// The order of commits relative to other kinds.
    pub priority: Priority,
    /// Empty lists of required fields are stored as they are; those of most kinds become null.
    pub keeps_empty_lists: bool,
    /// Seconds until an object expires.
    pub lifetime_seconds: Option<i64>,
    /// To and from the stored version, for a version that is not stored.
    pub convert: Option<Conversion>,
    /// How values in the store are read, for built-in kinds.
    pub versions: Option<StoredVersions>,
    /// How the version relates to stored objects, for custom kinds.
    pub custom_versions: Option<CustomVersions>,
}

/// Hooks of reads.
#[derive(Default, Clone)]
pub struct ReadHooks {
    /// The cells of a table row, in the order of the columns, given the current time.
    pub cells: Option<fn(&Value, Duration) -> Vec<Value>>,
    /// The fields that `cells` and `row_conditions` read, as dotted paths; empty means all. Only these are decoded.
    pub row_reads: &'static [&'static str],
    /// The conditions of a table row.
    pub row_conditions: Option<fn(&Value) -> Vec<Value>>,
    /// Removes metadata that is not shown without the rest of the object.
    pub outline: Option<fn(&mut Value)>,
    /// The error of a field selector with an unknown label, where it is not the usual one.
    pub unknown_label: Option<fn(&str) -> String>,
}

impl StorageHooks {
    pub(crate) fn empty_lists(&self) -> EmptyLists {
        if self.keeps_empty_lists { EmptyLists::Kept } else { EmptyLists::Null }
    }
}

/// The validation rules of a custom kind.
pub trait Rules: Send + Sync {
    fn check(&self, write: &RuledWrite<'_>, timing: &Timing<'_>) -> Problems;
}

/// A new object or next state of a custom kind.
pub struct RuledWrite<'a> {
    pub object: &'a Value,
    pub old: Option<&'a Value>,
    /// Empty if the whole object is written.
    pub subresource: &'a str,
    /// The problems of its metadata.
    pub metadata: &'a Problems,
}
