//! The stages of a write, from the body of a request to the store.

pub mod admission;
pub mod api;
pub mod decode;
pub mod decode_options;
pub mod view;
pub mod write;
