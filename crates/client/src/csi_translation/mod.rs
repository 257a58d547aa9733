//! In-tree volumes as volumes of the CSI drivers that replaced their plugins.
//!
//! A persistent volume or a volume of a pod with the source of such a plugin is served by its driver: [`translate`] and
//! [`translate_inline`] give the persistent volume that the driver gets. The handles, attributes and topologies are
//! those that drivers expect of upstream.
//!
//! | module | what it is |
//! |---|---|
//! | `plugin` | the plugins and their drivers |
//! | `sources` | the CSI source of each plugin's source |
//! | `topology` | zones and regions of a volume under the keys of its driver |
//! | `md5` | the digest in names of Ceph clusters |

mod md5;
mod plugin;
mod sources;
mod topology;

pub use plugin::InTreePlugin;

use api::core::v1::{PersistentVolume, Volume};

/// Why a volume has no form for its driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TranslationError(String);

/// A persistent volume of an in-tree plugin as one of its driver; `None` if it is of no such plugin.
pub fn translate(volume: &PersistentVolume) -> Option<Result<PersistentVolume, TranslationError>> {
    let plugin = InTreePlugin::of(volume)?;
    Some(sources::persistent(plugin, volume).map_err(TranslationError))
}

/// A volume of a pod in `namespace` of an in-tree plugin as a persistent volume of its driver; `None` if it is of no such
/// plugin. Its name is unique per disk.
pub fn translate_inline(
    volume: &Volume,
    namespace: &str,
) -> Option<Result<PersistentVolume, TranslationError>> {
    let plugin = InTreePlugin::of_inline(volume)?;
    Some(sources::inline(plugin, volume, namespace).map_err(TranslationError))
}

#[cfg(test)]
mod tests;
