//! The socket at which device plugins register.

use super::checkpoint::FILE;
use super::device_manager::DeviceManager;
use crate::plugin_watcher::{PluginHandler, RegisteredPlugin};
use crate::pod_facts::is_extended_resource;
use crate::resource_managers::unix_server;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use grpc::device_plugin::registration_server::{Registration, RegistrationServer};
use grpc::device_plugin::{Empty, RegisterRequest};
use grpc::tonic::codegen::Service as _;
use grpc::tonic::{Request, Response, Status};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixListener;

/// The name of the socket.
const SOCKET: &str = "kubelet.sock";
const VERSION: &str = "v1beta1";

/// Removes the sockets of the time before the start, by which plugins see that they must register again, and listens.
pub fn bind(directory: &Path) -> io::Result<UnixListener> {
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    for entry in std::fs::read_dir(directory)?.flatten() {
        let is_directory = entry.file_type().is_ok_and(|it| it.is_dir());
        if !is_directory && entry.file_name() != FILE {
            std::fs::remove_file(entry.path())?;
        }
    }
    unix_server::bind(&directory.join(SOCKET))
}

/// Serves registrations.
pub async fn serve(listener: UnixListener, manager: Arc<DeviceManager>) {
    let registrar = Arc::new(Registrar { manager });
    unix_server::serve(listener, move |request| {
        let registrar = registrar.clone();
        async move { RegistrationServer::from_arc(registrar).call(request).await }
    })
    .await;
}

/// Plugins that register by a socket of their own.
impl PluginHandler for DeviceManager {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        if !plugin.versions.iter().any(|it| it == VERSION) {
            let versions = plugin.versions.join(" ");
            return Err(format!(
                "manager version, {VERSION}, is not among plugin supported versions [{versions}]"
            ));
        }
        match is_extended_resource(&plugin.name) {
            true => Ok(()),
            false => Err(format!("invalid name of device plugin socket: {}", plugin.name)),
        }
    }

    fn register<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, Result<(), String>> {
        self.metrics().plugin_registered(&plugin.name);
        DeviceManager::register(self, &plugin.name, &plugin.endpoint).boxed()
    }

    fn deregister<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, ()> {
        DeviceManager::deregister(self, &plugin.name);
        std::future::ready(()).boxed()
    }
}

struct Registrar {
    manager: Arc<DeviceManager>,
}

#[grpc::tonic::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name, .. } = request.into_inner();
        self.manager.metrics().plugin_registered(&resource_name);
        if version != VERSION {
            return Err(Status::unknown(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
            )));
        }
        if !is_extended_resource(&resource_name) {
            return Err(Status::unknown(format!("the ResourceName {resource_name:?} is invalid")));
        }
        let socket = self.manager.directory().join(endpoint);
        self.manager.register(&resource_name, &socket).await.map_err(Status::unknown)?;
        Ok(Response::new(Empty {}))
    }
}
