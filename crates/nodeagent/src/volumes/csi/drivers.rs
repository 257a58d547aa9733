//! The CSI drivers that are registered on the node.

use super::node_info::NodeInfoWriter;
use super::service::{CallObserver, NodeClient, NodeService};
use crate::plugin_watcher::{PluginHandler, RegisteredPlugin};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node::CSI_PLUGIN;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers of a version, the major one first.
type Version = Vec<u64>;

struct Driver {
    service: Arc<dyn NodeService>,
    version: Version,
    /// The socket at which it registered.
    socket: PathBuf,
}

/// See the module.
pub struct CsiDrivers {
    drivers: RwLock<BTreeMap<String, Driver>>,
    /// Absent without an API server.
    node_info: Option<Arc<NodeInfoWriter>>,
    observer: CallObserver,
}

impl CsiDrivers {
    pub fn new(node_info: Option<Arc<NodeInfoWriter>>, observer: CallObserver) -> Self {
        CsiDrivers { drivers: RwLock::default(), node_info, observer }
    }

    /// Drivers without an observer.
    #[cfg(test)]
    pub fn unobserved(node_info: Option<Arc<NodeInfoWriter>>) -> Self {
        CsiDrivers::new(node_info, Arc::new(|_: &str, _: &'static str, _: grpc::tonic::Code, _| {}))
    }

    /// The service of a driver, or an error that says that there is none.
    pub fn service(&self, name: &str) -> Result<Arc<dyn NodeService>, String> {
        let drivers = self.drivers.read();
        let driver = drivers.get(name).map(|it| it.service.clone());
        driver.ok_or_else(|| format!("driver name {name} not found in the list of registered CSI drivers"))
    }

    /// Adds a driver without a socket.
    #[cfg(test)]
    pub fn insert(&self, name: &str, service: Arc<dyn NodeService>) {
        let driver = Driver { service, version: vec![1], socket: PathBuf::new() };
        self.drivers.write().insert(name.to_owned(), driver);
    }

    /// Removes all drivers.
    #[cfg(test)]
    pub fn clear(&self) {
        self.drivers.write().clear();
    }

    fn check(&self, caller: &str, plugin: &RegisteredPlugin) -> Result<Version, String> {
        let RegisteredPlugin { name, versions, .. } = plugin;
        let failed = |why: String| format!("{CSI_PLUGIN}: {caller} for CSI driver {name:?} failed. {why}");
        if versions.is_empty() {
            return Err(failed("Plugin returned an empty list for supported versions".to_owned()));
        }
        let highest = highest_version(versions).map_err(|why| {
            failed(format!("None of the versions specified {versions:?} are supported. err={why}"))
        })?;
        match self.drivers.read().get(name) {
            Some(driver) if driver.version >= highest => Err(failed(format!(
                "Another driver with the same name is already registered with a higher supported version: \"{}\"",
                version_text(&driver.version)
            ))),
            _ => Ok(highest),
        }
    }

    /// Forgets a driver, if it is the one of this socket.
    fn remove(&self, plugin: &RegisteredPlugin) -> bool {
        let mut drivers = self.drivers.write();
        let is_own = drivers.get(&plugin.name).is_some_and(|it| it.socket == plugin.socket);
        is_own && drivers.remove(&plugin.name).is_some()
    }

    async fn uninstall(&self, plugin: &RegisteredPlugin) {
        if !self.remove(plugin) {
            return;
        }
        if let Some(node_info) = &self.node_info
            && let Err(why) = node_info.uninstall(&plugin.name).await
        {
            tracing::warn!(driver = plugin.name, %why, "a CSI driver that has gone is still in the node's objects");
        }
    }
}

impl PluginHandler for CsiDrivers {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        let checked = self.check("ValidatePlugin", plugin);
        checked.map(drop).map_err(|why| {
            let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
            format!("validation failed for CSI Driver {name} at endpoint {endpoint}: {why}")
        })
    }

    fn register<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let version = self.check("RegisterPlugin", plugin)?;
            let client = NodeClient::new(&plugin.endpoint)?.observed(&plugin.name, self.observer.clone());
            let service: Arc<dyn NodeService> = Arc::new(client);
            let driver = Driver { service: service.clone(), version, socket: plugin.socket.clone() };
            self.drivers.write().insert(plugin.name.clone(), driver);
            let installed = match (service.info().await, &self.node_info) {
                (Err(why), _) => Err(why.to_string()),
                (Ok(info), Some(node_info)) => node_info.install(&plugin.name, info).await,
                (Ok(_), None) => Ok(()),
            };
            if installed.is_err() {
                self.uninstall(plugin).await;
            }
            installed
        }
        .boxed()
    }

    fn deregister<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, ()> {
        self.uninstall(plugin).boxed()
    }
}

/// The numbers of a version: `v1.2.3-x` is 1, 2 and 3.
fn parse_version(text: &str) -> Result<Version, String> {
    let error = || format!("could not parse {text:?} as version");
    let text_numbers = text.trim().trim_start_matches('v');
    let end = text_numbers.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text_numbers.len());
    let numbers: Result<Version, _> =
        text_numbers[..end].trim_end_matches('.').split('.').map(str::parse).collect();
    let numbers = numbers.map_err(|_| error())?;
    if numbers.len() < 2 { Err(error()) } else { Ok(numbers) }
}

fn version_text(version: &[u64]) -> String {
    version.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// The highest version up to 1.x, which must be one of 1.x.
fn highest_version(versions: &[String]) -> Result<Version, String> {
    let (mut highest, mut error): (Option<Version>, _) = (None, None);
    for text in versions.iter().rev() {
        match parse_version(text) {
            Err(why) => error = Some(why),
            Ok(version) if version[0] > 1 => {}
            Ok(version) => highest = highest.max(Some(version)),
        }
    }
    match highest {
        None => Err(format!(
            "could not find a highest supported version from versions ([{}]) reported by this driver: {}",
            versions.join(" "),
            error.as_deref().unwrap_or("<nil>")
        )),
        Some(version) if version[0] != 1 => Err(format!(
            "highest supported version reported by driver is {}, must be v1.x",
            version_text(&version)
        )),
        Some(version) => Ok(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(versions: &[&str]) -> RegisteredPlugin {
        RegisteredPlugin {
            name: "d".to_owned(),
            endpoint: PathBuf::from("/e"),
            versions: versions.iter().map(|it| (*it).to_owned()).collect(),
            socket: PathBuf::from("/s"),
        }
    }

    #[test]
    fn drivers_need_a_version_of_csi_1() {
        let drivers = CsiDrivers::unobserved(None);
        for (versions, expected) in [
            (&["1.0.0"][..], Ok(())),
            (&["v1.3", "2.0.0", "0.3.0"], Ok(())),
            (&[], Err("empty list for supported versions")),
            (&["0.3.0"], Err("highest supported version reported by driver is 0.3.0, must be v1.x")),
            (&["x"], Err("reported by this driver: could not parse \"x\" as version")),
            (&["2.0.0"], Err("from versions ([2.0.0]) reported by this driver: <nil>")),
        ] {
            match (drivers.validate(&plugin(versions)), expected) {
                (Ok(()), Ok(())) => {}
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (result, _) => panic!("{versions:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_name_belongs_to_the_first_driver_unless_the_next_is_newer() {
        let drivers = CsiDrivers::unobserved(None);
        let service: Arc<dyn NodeService> = Arc::new(NodeClient::new(std::path::Path::new("/none")).unwrap());
        drivers.insert("d", service);
        let error = drivers.validate(&plugin(&["1"])).unwrap_err();
        assert!(error.contains("None of the versions"), "{error}");
        drivers.drivers.write().get_mut("d").unwrap().version = vec![1, 2, 0];
        let error = drivers.validate(&plugin(&["1.2.0"])).unwrap_err();
        assert!(error.ends_with("already registered with a higher supported version: \"1.2.0\""), "{error}");
        assert_eq!(drivers.validate(&plugin(&["1.3.0"])), Ok(()));
        // a plugin of another socket does not end it
        assert!(!drivers.remove(&plugin(&["1.2.0"])));
        assert!(drivers.service("d").is_ok());
    }
}
