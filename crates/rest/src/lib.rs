//! The generic verbs over any table, one file per verb.
//!
//! Always true: nothing here names a kind. A Pod and a custom resource are both a [`Resource`]; what a kind
//! adds is in its [`hooks::Hooks`].

mod model;
mod pipeline;
pub mod storage;
mod verbs;

pub use model::error::{ApiError, Cause, Details, Subject};
pub use model::hooks::{Hooks, Requester};
pub use model::object::Object;
pub use model::request_record::{Named, RequestRecord, Shown, Step, Traffic};
pub use model::{error, hooks, metadata, metrics, options, reserve, selector};
pub use pipeline::admission::{Admission, AdmissionAttributes, Form, Given, Interest, Operation, Rounds};
pub use pipeline::api::{Api, Resources};
pub use pipeline::decode::{Format, Input};
pub use pipeline::view;
pub use pipeline::write::{WriteOutcome, WriteRequest, store_error};
pub use storage::Storage;
pub use storage::resource::{Collection, Resource};
pub use storage::{read_conversion, resource, stored_version};
pub use verbs::connect::Connecting;
pub use verbs::delete::Deleted;
pub use verbs::list::Page;
pub use verbs::patch::PatchKind;
pub use verbs::virtual_resource::{Answer, Asking};
pub use verbs::watch::{Change, Seen, Watch};
