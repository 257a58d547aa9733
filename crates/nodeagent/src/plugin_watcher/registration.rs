//! The registration of one plugin.

use super::handler::{Handlers, PluginHandler, RegisteredPlugin};
use grpc::plugin_registration::registration_client::RegistrationClient;
use grpc::plugin_registration::{InfoRequest, RegistrationStatus};
use outbound::{Channel, Dialer, Endpoint};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const INFO_TIMEOUT: Duration = Duration::from_secs(1);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a plugin's answer.
const RESPONSE_LIMIT: usize = 1 << 20;

/// Reads the name and type of a plugin, passes it to its handler, and reports the result to the plugin.
pub async fn register(
    socket: &Path,
    handlers: &Handlers,
) -> Result<(RegisteredPlugin, Arc<dyn PluginHandler>), String> {
    let shown = socket.display();
    let channel = Channel::plain(&Endpoint::Unix(socket.to_owned()), Dialer::default());
    let channel = channel.map_err(|why| {
        format!("RegisterPlugin error -- dial failed at socket {shown}, err: failed to dial socket {shown}, err: {why}")
    })?;
    let mut client = RegistrationClient::new(channel.clone()).max_decoding_message_size(RESPONSE_LIMIT);
    let info = channel.within(INFO_TIMEOUT, client.get_info(InfoRequest {})).await.map_err(|why| {
        format!("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {shown}, err: {why}")
    })?;
    let plugin = RegisteredPlugin {
        endpoint: if info.endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(&info.endpoint) },
        name: info.name,
        versions: info.supported_versions,
        socket: socket.to_owned(),
    };
    let outcome = match handlers.get(&*info.r#type) {
        None => Err(format!("no handler registered for plugin type: {} at socket {shown}", info.r#type)),
        Some(handler) => match handler.validate(&plugin) {
            Err(why) => Err(format!("plugin validation failed with err: {why}")),
            Ok(()) => match handler.register(&plugin).await {
                Err(why) => Err(format!("plugin registration failed with err: {why}")),
                Ok(()) => Ok(handler.clone()),
            },
        },
    };
    let error =
        outcome.as_ref().err().map(|why| format!("RegisterPlugin error -- {why}")).unwrap_or_default();
    let status = RegistrationStatus { plugin_registered: outcome.is_ok(), error: error.clone() };
    let notified = channel.within(NOTIFY_TIMEOUT, client.notify_registration_status(status)).await;
    match (outcome, notified) {
        (Ok(handler), notified) => {
            // the plugin is registered even if it does not accept the status
            if let Err(why) = notified {
                tracing::warn!(%why, plugin = plugin.name, "a plugin did not accept the status of its registration");
            }
            Ok((plugin, handler))
        }
        (Err(_), Ok(_)) => Err(error),
        (Err(_), Err(why)) => Err(format!(
            "RegisterPlugin error -- failed to send error at socket {shown}, err: {error}: {why}"
        )),
    }
}
