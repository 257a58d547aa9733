//! The generic verbs over any table, one file per verb.
//!
//! Always true: nothing here names a kind. A Pod and a custom resource are both a [`Resource`]; what a kind
//! adds is in its [`hooks::Hooks`].

mod act;
mod admission;
pub mod answer;
pub mod api;
mod apply;
mod connect;
mod create;
mod delete;
mod deletecollection;
pub mod error;
pub mod fit;
mod get;
pub mod hooks;
pub mod input;
mod input_options;
mod list;
pub mod measure;
pub mod metadata;
mod notes;
pub mod object;
pub mod options;
mod patch;
mod remove;
pub mod reserve;
pub mod resource;
pub mod selector;
pub mod storage;
pub mod stored_version;
mod update;
pub mod view;
mod watch;
mod write;

pub use admission::{Admission, Admitted, Form, Given, Interest, Operation, Rounds};
pub use answer::{Answer, Asking};
pub use api::Api;
pub use connect::Connecting;
pub use delete::Deleted;
pub use error::{ApiError, Cause, Details, Subject};
pub use hooks::{Hooks, Requester};
pub use list::Page;
pub use notes::{Named, Notes, Shown, Step, Traffic};
pub use object::Object;
pub use patch::PatchKind;
pub use resource::{Collection, Resource};
pub use storage::Storage;
pub use watch::{Change, Seen, Watch};
pub use write::{Writing, Written, store_error};
