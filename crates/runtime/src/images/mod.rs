//! Images without a daemon: content by digest, archives, registries, unpacked layers.

mod compression;
mod content;
mod copy_progress;
mod digest;
mod error;
mod export;
mod flatten;
mod import;
mod layers;
mod manifest;
mod records;
pub mod reference;
mod registry;
pub(crate) mod root_dir;
mod store;
mod tar;
mod tar_writer;
mod unpack;

#[cfg(test)]
mod tests;

pub use content::{BlobWriter, ContentStore, Ingest};
pub use copy_progress::CopyProgress;
pub use digest::Digest;
pub use error::ImageError;
pub use export::export;
pub use flatten::{copy_directory, flatten};
pub use import::{import, import_with_progress};
pub use layers::{LayerStore, Usage};
pub use manifest::{Descriptor, ImageConfig, Manifest, Platform, RunConfig};
pub use reference::ImageReference;
pub use registry::{PullEvent, PullProgress, PulledImage, Puller};
pub use store::{Image, ImageStore, ParsedImage, UsedLayers};
pub use unpack::UnpackLimits;
