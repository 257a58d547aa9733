//! The scheduler's configuration file: `KubeSchedulerConfiguration` of v1, v1beta3 and v1beta2.
//!
//! ```text
//!   text ── decode ──► defaults ──► Configuration ── validate ──► profiles: framework::Profile
//!                                        │  ▲
//!                                 encode │  │ options: flags of the command line
//!                                        ▼  │
//!                          --write-config-to, /configz
//! ```
//!
//! Always true: unknown and duplicate fields are errors, and validation lists all mistakes in upstream's words. All
//! versions become one [`Configuration`]; its version decides only the form in which it is written again.
//!
//! Arguments of plugins stay trees in the normal form of their table until a profile is built from them.

mod args;
mod decode;
mod defaults;
mod encode;
mod error;
mod extender;
mod extension_point;
mod gates;
mod options;
mod plugins;
mod profiles;
mod read;
mod tables;
mod types;
mod validate;
mod validate_args;
mod version;

#[cfg(test)]
mod tests;

pub use args::{Args, ArgsKind};
pub use error::ConfigError;
pub use extender::{Extender, ExtenderTlsConfig, ManagedResource};
pub use extension_point::ExtensionPoint;
pub use gates::Gates;
pub use options::{DeprecatedOptions, LeaderElectionOptions, Options};
pub use plugins::{EnabledPlugin, PluginSelection, PluginSelections};
pub use profiles::extender_order;
pub use types::{ClientConnection, Configuration, LeaderElection, PluginConfig, ProfileConfig};
pub use version::Version;
