//! Clients with random operations on few objects, and watchers.

mod collection;
mod loader;
mod padding;
mod watcher;

pub use collection::{Collection, send};
pub use loader::Loader;
pub use watcher::{Course, END, Watcher};
