//! The built-in API, declared once in `<group>/<version>.api` and compiled into two products.
//!
//! - [`tables`], from which the server decodes, defaults, validates, merges and encodes;
//! - a struct for every type, in a module per group and version ([`core::v1::Pod`]), for the server's clients:
//!   control loops, scheduler, node agent.
//!
//! A struct holds what the API's Go type holds. `String`, `i32` and `bool` are empty, zero or false where the field is
//! absent; `Option` stands where absent and zero differ; lists and maps are empty where they are absent. So reading is
//! plain:
//!
//! ```
//! use api::core::v1::Pod;
//! use api::{Resource, from_json};
//!
//! let mut pod: Pod = from_json(br#"{"metadata":{"name":"web"},"spec":{"nodeName":"n1","priority":0}}"#)?;
//! assert_eq!((pod.name(), &*pod.spec.node_name, pod.spec.priority), ("web", "n1", Some(0)));
//! assert!(pod.spec.containers.is_empty());
//! pod.metadata.labels.insert("app".into(), "web".into());
//! # Ok::<(), api::ReadError>(())
//! ```
//!
//! Always true: a struct reads every value that the server writes, and writes an object of the same meaning; fields
//! that it does not declare are kept ([`UnknownFields`]).

mod codec;
pub mod node_selector;
mod object;
mod selector;
pub mod tables;
mod watch;

pub use codec::{
    ByteString, Duration, FieldsV1, IntOrString, Json, MicroTime, Quantity, ReadError, Reader, Struct, Time,
    UnknownFields, Value, Writer,
};
pub use object::{Kinded, List, Resource, from_json, from_json_unmanaged, metadata_from_json, to_json};
pub use watch::WatchEvent;

include!(concat!(env!("OUT_DIR"), "/structs.rs"));
