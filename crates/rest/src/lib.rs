//! The generic verbs over any table.
//!
//! Four layers; a layer imports from those above it in this table and never from those below:
//!
//! | layer | content |
//! |---|---|
//! | `model` | the vocabulary: API errors, options, objects, selectors, metadata rules, and the [`hooks`] of a kind |
//! | `storage` | the store with its caches, collections and [`Resource`]s, objects in their versions, the registry |
//! | `pipeline` | the stages of a write: decode, default, own, mutate, prepare, validate, commit; the [`Api`] with its admission plugins |
//! | `verbs` | get, list, watch, create, update, patch, apply, delete, deletecollection, connect, actions, virtual resources |
//!
//! Invariant: nothing here names a kind. A Pod and a custom resource are both a [`Resource`]; the behaviour that a kind
//! adds is in its [`hooks::Hooks`].

mod model;
mod pipeline;
pub mod storage;
mod verbs;

pub use model::error::{ApiError, Cause, Details, Subject};
pub use model::form::{Form, api_version};
pub use model::hooks::{Hooks, Requester};
pub use model::object::Object;
pub use model::operation::{Interest, Operation};
pub use model::request_record::{AuditDetail, ObjectReference, RecordedObjects, RequestRecord, Step};
pub use model::virtual_resource::{VirtualRead, VirtualRequest, VirtualResource};
pub use model::{error, hooks, metadata, metrics, options, reserve, selector, versions, view};
pub use pipeline::api::{Admission, AdmissionAttributes, Api, RequestOptions};
pub use pipeline::commit::store_error;
pub use pipeline::decode::{Format, Input};
pub use pipeline::request::{WriteOutcome, WriteRequest};
pub use storage::Storage;
pub use storage::collection::Collection;
pub use storage::registry::Resources;
pub use storage::resource::Resource;
pub use verbs::connect::ConnectRequest;
pub use verbs::delete::DeleteOutcome;
pub use verbs::list::Page;
pub use verbs::patch::PatchKind;
pub use verbs::watch::{Change, Watch, WatchEvent};
