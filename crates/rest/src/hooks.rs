//! What a kind adds to the generic verbs: plain functions, each absent unless the kind needs it.

use crate::error::ApiError;
use names::Names;
use schema::Value;
use schema::problem::Problem;
use schema::table::Type;
use schema::time;
use std::time::Duration;

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
}

impl Context<'_> {
    /// Now, as the API writes times.
    pub fn timestamp(&self) -> String {
        time::format_time(self.now)
    }
}

/// The identity behind a write, as far as objects record it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// The behaviour of a kind. Absent is absent: a kind that needs nothing has `Hooks::default()`.
#[derive(Default, Clone)]
pub struct Hooks {
    /// Defaults that depend on other fields; run after the declared ones.
    pub default: Option<fn(&mut Value, &Names)>,
    /// Changes to a new object before it is checked.
    pub prepare_create: Option<fn(&mut Value, &Context<'_>)>,
    /// Changes to the next state of an object before it is checked.
    pub prepare_update: Option<fn(&mut Value, &Value, &Context<'_>)>,
    /// Admission: what the cluster's state makes of the object. Runs before validation and may change it.
    pub admit: Option<fn(&mut Value, Option<&Value>, &Context<'_>) -> Result<(), ApiError>>,
    pub validate_create: Option<fn(&Value, &Context<'_>) -> Vec<Problem>>,
    pub validate_update: Option<fn(&Value, &Value, &Context<'_>) -> Vec<Problem>>,
    /// Things that are allowed but unwise.
    pub warn: Option<fn(&Value, Option<&Value>) -> Vec<String>>,
    /// How names are checked; the default is a DNS subdomain. The flag says that the text is a prefix.
    pub name_rule: Option<fn(&str, bool) -> Vec<String>>,
    /// How long an object is given to stop, in seconds: `(object, asked for)`; absent means at once.
    pub grace: Option<fn(&Value, Option<i64>) -> i64>,
    /// Changes to an object whose deletion begins.
    pub begin_delete: Option<fn(&mut Value, &Context<'_>)>,
    /// Whether a deleted object must stay for now for reasons beyond the finalizers in its metadata.
    pub holds: Option<fn(&Value) -> bool>,
    /// Refuses a delete.
    pub may_delete: Option<fn(&Value, &Context<'_>) -> Result<(), ApiError>>,
    /// Keeps the status that a client gives on creation.
    pub keeps_status_on_create: bool,
    /// Top-level fields that writes of the object itself never own.
    pub unowned: &'static [&'static str],
    /// Deletes answer with the object rather than a `Status`.
    pub delete_returns_object: bool,
    /// What writes to subresources may touch.
    pub subresources: &'static [SubresourceHooks],
    pub actions: &'static [ActionHooks],
    /// Cells of the table form, in the order of the columns, given now.
    pub cells: Option<fn(&Value, Duration) -> Vec<Value>>,
    /// The fields that cells and conditions of a row read, as dotted paths, so that nothing else is decoded for
    /// them; none means all.
    pub row_reads: &'static [&'static str],
    /// What clients should know about a row, beside its cells.
    pub row_conditions: Option<fn(&Value) -> Vec<Value>>,
    /// To and from the stored version, for a version that is not stored.
    pub convert: Option<Conversion>,
    /// Objects live this long; for kinds that expire.
    pub lifetime_seconds: Option<i64>,
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
    pub validate: Option<fn(&Value, &Value, &Context<'_>) -> Vec<Problem>>,
    /// Top-level fields that writes through here never own.
    pub unowned: &'static [&'static str],
}

/// A subresource that is posted to and changes its object, such as an assignment.
pub struct ActionHooks {
    pub name: &'static str,
    /// The type of the body, with its kind and version as clients write them.
    pub body: fn() -> Option<&'static Type>,
    pub kind: &'static str,
    pub api_version: &'static str,
    pub act: fn(object: &mut Value, body: &Value, context: &Context<'_>) -> Result<(), ApiError>,
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
