//! What the agent does with a plugin of a type.

use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A plugin as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredPlugin {
    pub name: String,
    /// The socket of its service.
    pub endpoint: PathBuf,
    pub versions: Vec<String>,
    /// The socket at which it registered.
    pub socket: PathBuf,
}

/// Takes the plugins of a type.
pub trait PluginHandler: Send + Sync + 'static {
    /// Says why a plugin cannot be used.
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String>;
    fn register<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, Result<(), String>>;
    /// The socket of a registered plugin is gone.
    fn deregister<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, ()>;
}

/// Handlers by type of plugin.
pub type Handlers = BTreeMap<&'static str, Arc<dyn PluginHandler>>;
