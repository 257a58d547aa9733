//! What a kind adds to the generic verbs: plain functions, each absent unless the kind needs it.

use crate::model::error::ApiError;
use crate::model::metrics::Timing;
use crate::model::request_record::RequestRecord;
use crate::model::reserve::Reserve;
use crate::pipeline::view::View;
use crate::storage::read_conversion::Fit;
use crate::storage::stored_version::StoredVersions;
use crate::verbs::virtual_resource::Answer;
use names::Names;
use schema::Value;
use schema::encode::EmptyLists;
use schema::problem::Problems;
use schema::table::{Kind, Ref, Type};
use schema::time;
use std::sync::Arc;
use std::time::Duration;
pub use store::Priority;

/// What a hook may know besides the object.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub names: &'a Names,
    /// Now, in Unix seconds.
    pub now: i64,
    /// Who is writing.
    pub user: &'a Requester,
    /// Looks up an object of another resource by plural, namespace and name.
    pub lookup: &'a dyn Fn(&str, &str, &str) -> Option<Value>,
    /// All objects of another resource, by plural, and by namespace where that is given.
    pub list: &'a dyn Fn(&str, Option<&str>) -> Vec<Value>,
    /// Those of all objects of another resource whose JSON holds a text, which takes no decoding of the others.
    pub containing: &'a dyn Fn(&str, &str) -> Vec<Value>,
    /// Feature gates that are open although they are closed without a decision.
    pub opened: &'a [String],
    /// Feature gates that are closed although they are open without a decision.
    pub closed: &'a [String],
}

impl Context<'_> {
    /// Now, as the API writes times.
    pub fn timestamp(&self) -> String {
        time::format_time(self.now)
    }
}

/// The identity behind a request, as far as objects record it, and what is noted for it.
#[derive(Debug, Clone, Default)]
pub struct Requester {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
    pub notes: Arc<RequestRecord>,
}

/// The behaviour of a kind. Absent is absent: a kind that needs nothing has `Hooks::default()`.
#[derive(Default, Clone)]
pub struct Hooks {
    /// Defaults that depend on other fields; run after the declared ones.
    pub default: Option<fn(&mut Value, &Names)>,
    /// Why an object of this version cannot be converted to the one that is stored.
    pub conversion_error: Option<fn(&Value) -> Option<String>>,
    /// Changes to a new object before it is checked.
    pub prepare_create: Option<fn(&mut Value, &Context<'_>)>,
    /// What a new object gets after it has been checked.
    pub complete: Option<fn(&mut Value)>,
    /// Changes to the next state of an object before it is checked.
    pub prepare_update: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Puts back what no write can change, also not through a subresource, once it is known who wanted to.
    pub restore: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Whether the next state counts as another generation; for kinds where more than the content does.
    pub changes_generation: Option<fn(&Value, &Value) -> bool>,
    /// Takes the scarce things that objects hold. Runs before validation, and not for subresources.
    pub reserve: Option<Arc<dyn Reserve>>,
    pub validate_create: Option<fn(&Value, &Context<'_>) -> Problems>,
    pub validate_update: Option<fn(&Value, &Value, &Context<'_>) -> Problems>,
    /// Finalizers need no domain in front.
    pub plain_finalizers: bool,
    /// The metadata errors that updates repeat.
    pub repeated_metadata_errors: RepeatedMetadataErrors,
    /// The problems of a new object are told twice over: clients know some kinds so.
    pub repeats_create_errors: bool,
    /// Things that are allowed but unwise.
    pub warn: Option<fn(&Value, Option<&Value>) -> Vec<String>>,
    /// How names are checked; the default is a DNS subdomain. The flag says that the text is a prefix.
    pub name_rule: Option<fn(&str, bool) -> Vec<String>>,
    /// An object that comes without a name gets a unique one.
    pub generates_name: bool,
    /// How long an object is given to stop, in seconds: `(object, asked for)`; absent means at once.
    pub grace: Option<fn(&Value, Option<i64>) -> i64>,
    /// Changes to an object whose deletion begins.
    pub begin_delete: Option<fn(&mut Value, &Context<'_>)>,
    /// Whether a deleted object must stay for now for reasons beyond the finalizers in its metadata.
    pub holds: Option<fn(&Value) -> bool>,
    /// Refuses a delete.
    pub may_delete: Option<fn(&Value, &Context<'_>) -> Result<(), ApiError>>,
    /// When writes are committed, among those of other kinds: somebody may be given up when they are late.
    pub priority: Priority,
    /// Empty lists that are always written stay empty when objects are stored; most kinds come back with null.
    pub keeps_empty_lists: bool,
    /// Keeps the status that a client gives on creation.
    pub keeps_status_on_create: bool,
    /// Fields, by their paths, that writes of the object itself never own.
    pub unowned: &'static [&'static str],
    /// Subresources, by name, whose writes leave the record of who owns which field as it is.
    pub unrecorded: &'static [&'static str],
    /// Who writes through a part of an object owns what they ask for, also where it is put back.
    pub owns_asked: bool,
    /// The group by which problems call the kind, where that is not the one it is served in.
    pub told_group: Option<&'static str>,
    /// Deletes answer with the object rather than a `Status`.
    pub delete_returns_object: bool,
    /// Dependents outlive an object whose deletion says nothing about them.
    pub orphans_dependents: bool,
    /// The request that begins a deletion does not note what is to happen to dependents; later ones do.
    pub begins_delete_alone: bool,
    /// Nobody collects dependents, so what is to happen to them is not noted.
    pub uncollected: bool,
    /// What clients should know when their deletion says nothing about dependents.
    pub delete_warning: &'static str,
    /// What writes to subresources may touch.
    pub subresources: &'static [SubresourceHooks],
    pub actions: &'static [ActionHooks],
    /// Subresources that are another kind.
    pub views: Vec<View>,
    /// Cells of the table form, in the order of the columns, given now.
    pub cells: Option<fn(&Value, Duration) -> Vec<Value>>,
    /// The fields that cells and conditions of a row read, as dotted paths, so that nothing else is decoded for
    /// them; none means all.
    pub row_reads: &'static [&'static str],
    /// What clients should know about a row, beside its cells.
    pub row_conditions: Option<fn(&Value) -> Vec<Value>>,
    /// Takes away what metadata does not have where it is shown without the rest of its object.
    pub outline: Option<fn(&mut Value)>,
    /// To and from the stored version, for a version that is not stored.
    pub convert: Option<Conversion>,
    /// How values in the store are read, for built-in kinds.
    pub stored_versions: Option<StoredVersions>,
    /// How the version relates to what is stored, for kinds whose objects are fitted to a table when they are read.
    pub fit: Option<Fit>,
    /// Rules that are made while the server runs; told after all others.
    pub rules: Option<Arc<dyn Rules>>,
    /// How a field selector with an unknown label is refused, where not as usual.
    pub unknown_label: Option<fn(&str) -> String>,
    /// Objects live this long; for kinds that expire.
    pub lifetime_seconds: Option<i64>,
    /// What there is to say about a kind whose objects are never kept.
    pub answer: Option<Arc<dyn Answer>>,
    /// Subresources that are posted to and answered.
    pub parts: Vec<Part>,
    /// Creating such an object is an action on the object of the same name elsewhere.
    pub acts_on: Option<ActsOn>,
}

/// What a kind that is made while the server runs asks of its objects.
pub trait Rules: Send + Sync {
    /// What is wrong with an object, new or next, as it is written through a subresource or (empty) as a whole.
    fn check(&self, object: &Value, old: Option<&Value>, subresource: &str, timing: &Timing<'_>) -> Problems;
}

/// A subresource whose objects are made to be answered and never kept.
#[derive(Clone)]
pub struct Part {
    pub name: &'static str,
    /// What is sent and answered.
    pub kind: Ref<Kind>,
    pub answer: Arc<dyn Answer>,
}

/// Where a creation is carried out: a resource and one of its actions.
#[derive(Clone, Copy)]
pub struct ActsOn {
    /// In the same group and version.
    pub plural: &'static str,
    pub action: &'static str,
    /// Refuses a body before anything is looked up.
    pub check: fn(&Value) -> Result<(), ApiError>,
}

impl Hooks {
    pub(crate) fn empty_lists(&self) -> EmptyLists {
        if self.keeps_empty_lists { EmptyLists::Kept } else { EmptyLists::Null }
    }
}

/// Rules of object metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataRules {
    /// Rules of the next state.
    State,
    /// Rules of the change from the state before.
    Change,
}

/// The metadata errors that an update repeats, in this order. Every update reports them once, as rules of all objects;
/// most kinds of the API check them again as rules of their own, and clients compare the causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedMetadataErrors(pub &'static [MetadataRules]);

impl Default for RepeatedMetadataErrors {
    fn default() -> Self {
        RepeatedMetadataErrors(&[MetadataRules::Change, MetadataRules::State])
    }
}

/// How a version that is not stored is made from the stored one, and back.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(Value) -> Value,
}

/// A subresource that reads and writes a part of its object.
pub struct SubresourceHooks {
    pub name: &'static str,
    /// Puts into `next` (a copy of the live object) what the submitted object may change through here.
    pub apply: fn(next: &mut Value, submitted: &Value, context: &Context<'_>),
    pub validate: Option<Check>,
    /// Fields, by their paths, that writes through here never own.
    pub unowned: &'static [&'static str],
    /// The metadata errors that writes of this part repeat.
    pub repeated_metadata_errors: RepeatedMetadataErrors,
    /// The uid and the deletion fields that a client sends are ignored.
    pub keeps_deletion: bool,
    /// There is no table of the object here.
    pub without_table: bool,
}

/// What is wrong with the next state of an object, given the one before.
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
        unowned: &[],
        repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
        keeps_deletion: false,
        without_table: false,
    };
}

/// A subresource that is posted to and changes its object, such as an assignment, or takes it away.
pub struct ActionHooks {
    pub name: &'static str,
    /// The type of the body, with its kind and version as clients write them.
    pub body: fn() -> Option<&'static Type>,
    pub kind: &'static str,
    pub api_version: &'static str,
    /// Other versions that have the same form.
    pub other_versions: &'static [&'static str],
    /// What can be said of the body without looking at the object.
    pub check: fn(&Value) -> Result<(), ApiError>,
    pub act: Act,
}

/// What an action does.
pub enum Act {
    Change(fn(object: &mut Value, body: &Value, context: &Context<'_>) -> Result<(), ApiError>),
    Remove(Removal),
}

/// An action that deletes its object if some other object can afford it.
pub struct Removal {
    /// Where in the body the options of the deletion are.
    pub options: &'static str,
    /// What stands in the way.
    pub decide: fn(object: &Value, context: &Context<'_>) -> Result<Price, ApiError>,
    /// What is noted on the object when its deletion begins.
    pub mark: fn(object: &mut Value, context: &Context<'_>),
}

/// What a removal costs.
pub enum Price {
    Nothing,
    /// Nothing as long as the object is as it was looked at.
    NothingNow,
    Charged(Charge),
}

/// Another object that pays for a removal through its status.
pub struct Charge {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
    /// Takes the price, unless that object cannot afford it.
    pub pay: fn(payer: &mut Value, object: &Value, context: &Context<'_>) -> Result<(), ApiError>,
}

/// The `status` of most kinds: everything but the spec comes from the client.
pub fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
    replace(next, submitted, "metadata");
}

/// Takes one field of the submitted object over.
pub fn replace(next: &mut Value, submitted: &Value, field: &'static str) {
    match submitted.at(&[field]) {
        Some(value) => next.set(&[field], value.clone()),
        None => {
            next.unset(&[field]);
        }
    }
}
