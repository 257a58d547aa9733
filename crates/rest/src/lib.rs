//! The generic verbs over any table, one file per verb.
//!
//! Always true: nothing here names a kind. A Pod and a custom resource are both a [`Resource`]; what a kind
//! adds is in its [`hooks::Hooks`].

mod action;
mod admission;
pub mod api;
mod apply;
mod budgeted_delete;
mod connect;
mod create;
mod delete;
mod deletecollection;
pub mod error;
mod get;
pub mod hooks;
pub mod input;
mod input_options;
mod list;
pub mod metadata;
pub mod metrics;
pub mod object;
pub mod options;
mod patch;
pub mod read_conversion;
mod request_record;
pub mod reserve;
pub mod resource;
pub mod selector;
pub mod storage;
pub mod stored_version;
mod update;
pub mod view;
pub mod virtual_resource;
mod watch;
mod write;

pub use admission::{Admission, AdmissionAttributes, Form, Given, Interest, Operation, Rounds};
pub use api::Api;
pub use connect::Connecting;
pub use delete::Deleted;
pub use error::{ApiError, Cause, Details, Subject};
pub use hooks::{Hooks, Requester};
pub use list::Page;
pub use object::Object;
pub use patch::PatchKind;
pub use request_record::{Named, RequestRecord, Shown, Step, Traffic};
pub use resource::{Collection, Resource};
pub use storage::Storage;
pub use virtual_resource::{Answer, Asking};
pub use watch::{Change, Seen, Watch};
pub use write::{WriteOutcome, WriteRequest, store_error};
