//! The identity of the agent: as a client of the API server, and that of its HTTP API.

use super::connection;
use super::parts::{Clients, Parts};
use super::start_error::failed;
use crate::configuration::StartError;
use crate::identity::bootstrap::{Bootstrap, is_valid_kubeconfig, write_kubeconfig};
use crate::identity::{
    CertificateRotation, CertificateStore, CertificateTemplate, PemPair, Purpose, RotationOptions,
    RotationState, serving,
};
use api::core::v1::Node;
use client::{Client, Metrics};
use client::{Rate, transport};
use env::World;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outbound::{ClientIdentity, Credentials, Target, io_text};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the agent runs without a client certificate while the API server answers.
const WITHOUT_CERTIFICATE: Duration = Duration::from_secs(5 * 60);
const CHECK_PERIOD: Duration = Duration::from_secs(10);
const CLIENT_PREFIX: &str = "kubelet-client";
const SERVER_PREFIX: &str = "kubelet-server";

/// The clients of the API server.
pub struct ClientConnection {
    pub clients: Clients,
    /// Keeps the certificate current. It ends when the agent cannot go on.
    pub renewal: BoxFuture<'static, Result<(), StartError>>,
}

/// Connects to the API server: in this process, by the kubeconfig, or as a node that is bootstrapped.
pub async fn connect(
    parts: &Parts,
    metrics: &Metrics,
    node_name: &str,
) -> Result<ClientConnection, StartError> {
    let Parts { configuration, flags, world, .. } = parts;
    let fixed = |clients| ClientConnection { clients, renewal: std::future::pending().boxed() };
    if let Some(clients) = &parts.clients {
        return Ok(fixed(clients.clone()));
    }
    let Some(file) = flags.given("kubeconfig").map(PathBuf::from) else {
        return Ok(fixed(connection::no_server()));
    };
    let bootstrap = flags.given("bootstrap-kubeconfig").map(Path::new);
    // a kubeconfig with a valid certificate needs no other
    let bootstrap = bootstrap.filter(|_| !is_valid_kubeconfig(&file, world.now()));
    if configuration.flag(&["rotateCertificates"]) {
        return rotate(parts, metrics, node_name, &file, bootstrap);
    }
    if let Some(bootstrap) = bootstrap {
        first_certificate(parts, metrics, node_name, &file, bootstrap).await?;
    }
    Ok(fixed(connection::clients(parts, &read(&file)?, metrics)?))
}

fn read(file: &Path) -> Result<Target, StartError> {
    std::fs::metadata(file)
        .map_err(|why| failed(format!("invalid kubeconfig: stat {}: {}", file.display(), io_text(&why))))?;
    Target::from_kubeconfig(file).map_err(|why| failed(format!("invalid kubeconfig: {why}")))
}

fn read_bootstrap(file: &Path) -> Result<Target, StartError> {
    Target::from_kubeconfig(file).map_err(|why| failed(format!("unable to load bootstrap kubeconfig: {why}")))
}

fn certificate_dir(parts: &Parts) -> PathBuf {
    PathBuf::from(parts.flags.text("cert-dir"))
}

/// A client with the credentials of a bootstrap kubeconfig.
fn bootstrap_client(target: &Target, metrics: &Metrics, world: &World) -> Result<Client, StartError> {
    let transport = transport::transport(target, "kubelet", metrics).map_err(failed)?;
    Ok(transport::client(&transport, Rate::default(), world))
}

/// The same server without credentials.
fn without_credentials(target: &Target) -> Target {
    Target { identity: None, identity_files: None, credentials: Credentials::None, ..target.clone() }
}

/// Requests a certificate once, and writes the kubeconfig that names it.
async fn first_certificate(
    parts: &Parts,
    metrics: &Metrics,
    node_name: &str,
    file: &Path,
    bootstrap: &Path,
) -> Result<(), StartError> {
    let target = read_bootstrap(bootstrap)?;
    let client = bootstrap_client(&target, metrics, &parts.world)?;
    let directory = certificate_dir(parts);
    let store = CertificateStore::new(&directory, CLIENT_PREFIX, None);
    let request = Bootstrap {
        client: &client,
        world: &parts.world,
        keys: &parts.keys,
        names: &parts.names,
        node_name,
        store: &store,
        directory: &directory,
    };
    request.run().await.map_err(failed)?;
    write_kubeconfig(file, &without_credentials(&target), &store.current_path())
        .map_err(|why| failed(format!("cannot write the kubeconfig {}: {why}", file.display())))
}

/// Clients with a certificate that is renewed.
fn rotate(
    parts: &Parts,
    metrics: &Metrics,
    node_name: &str,
    file: &Path,
    bootstrap: Option<&Path>,
) -> Result<ClientConnection, StartError> {
    let Parts { world, .. } = parts;
    let directory = certificate_dir(parts);
    let (mut target, first_client) = match bootstrap {
        None => (read(file)?, None),
        Some(bootstrap) => {
            let target = read_bootstrap(bootstrap)?;
            let client = bootstrap_client(&target, metrics, world)?;
            let link = CertificateStore::new(&directory, CLIENT_PREFIX, None).current_path();
            let target = without_credentials(&target);
            write_kubeconfig(file, &target, &link)
                .map_err(|why| failed(format!("cannot write the kubeconfig {}: {why}", file.display())))?;
            (target, Some(client))
        }
    };
    let files = target.identity_files.take();
    let embedded = target.identity.take().filter(|_| files.is_none());
    let identity = ClientIdentity::default();
    target.client_identity = Some(identity.clone());
    let clients = connection::clients(parts, &target, metrics)?;
    let rotation = CertificateRotation::new(RotationOptions {
        store: CertificateStore::new(&directory, CLIENT_PREFIX, files),
        purpose: Purpose::Client,
        signer: Purpose::Client.signer(&parts.names),
        template: watch::channel(Some(CertificateTemplate::of_node(node_name))).1,
        client: clients.api.clone(),
        first_client,
        initial: embedded.map(|(certificate, key)| PemPair { certificate, key }),
        world: world.clone(),
        keys: parts.keys.clone(),
        registry: parts.registry.clone(),
    })
    .map_err(|why| failed(format!("failed to initialize certificate manager: {why}")))?;
    let (present, check) = (present(rotation.state(), identity), check(rotation.state(), world.clone()));
    let renewal = async move {
        tokio::select! {
            () = rotation.run() => Ok(()),
            () = present => Ok(()),
            why = check => Err(why),
        }
    };
    Ok(ClientConnection { clients, renewal: renewal.boxed() })
}

/// Presents the current certificate to the API server.
fn present(
    mut state: watch::Receiver<RotationState>,
    identity: ClientIdentity,
) -> impl Future<Output = ()> + Send {
    let set = move |state: &RotationState| {
        let Some(current) = &state.current else { return };
        if let Err(why) = identity.set(&current.pair.certificate, &current.pair.key) {
            tracing::error!(%why, "the client certificate cannot be used");
        }
    };
    let mut shown = state.borrow_and_update().current.clone();
    set(&state.borrow());
    async move {
        while state.changed().await.is_ok() {
            let current = state.borrow_and_update().clone();
            let is_same = match (&shown, &current.current) {
                (Some(shown), Some(current)) => Arc::ptr_eq(shown, current),
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                // the connections of the former one end
                set(&current);
                shown = current.current;
            }
        }
    }
}

/// Ends when the agent has had no valid certificate for long, or its certificate has ended, although the server answers:
/// a new start may find other credentials.
async fn check(state: watch::Receiver<RotationState>, world: World) -> StartError {
    let mut valid_at = world.elapsed();
    loop {
        env::sleep(&world, CHECK_PERIOD).await;
        let state = state.borrow().clone();
        let now = world.elapsed();
        if state.valid(world.now()).is_some() {
            valid_at = now;
            continue;
        }
        let is_expired = state.current.is_some();
        let is_late = is_expired || now.saturating_sub(valid_at) >= WITHOUT_CERTIFICATE;
        if is_late && state.has_server_answered {
            return failed(match is_expired {
                true => "the client certificate has ended, and the API server gives no other".to_owned(),
                false => {
                    format!("the API server has given no client certificate for {WITHOUT_CERTIFICATE:?}")
                }
            });
        }
    }
}

/// The certificate of the HTTP API, if the API server signs it.
pub struct ServingCertificate {
    pub state: watch::Receiver<RotationState>,
    pub renewal: BoxFuture<'static, ()>,
}

/// Requests the certificate of the HTTP API if the configuration says so.
pub fn serving_certificate(
    parts: &Parts,
    client: &Client,
    node: watch::Receiver<Arc<Node>>,
) -> Result<Option<ServingCertificate>, StartError> {
    let Parts { configuration, gates, world, .. } = parts;
    let is_requested =
        configuration.flag(&["serverTLSBootstrap"]) && gates.is_open("RotateKubeletServerCertificate");
    if !is_requested || !parts.has_api() {
        return Ok(None);
    }
    let file = |field: &str| {
        Some(PathBuf::from(configuration.text(&[field]))).filter(|it| !it.as_os_str().is_empty())
    };
    let files = file("tlsCertFile").zip(file("tlsPrivateKeyFile"));
    let (templates, template) = watch::channel(None);
    let rotation = CertificateRotation::new(RotationOptions {
        store: CertificateStore::new(&certificate_dir(parts), SERVER_PREFIX, files),
        purpose: Purpose::Serving,
        signer: Purpose::Serving.signer(&parts.names),
        template,
        client: client.clone(),
        first_client: None,
        initial: None,
        world: world.clone(),
        keys: parts.keys.clone(),
        registry: parts.registry.clone(),
    })
    .map_err(|why| failed(format!("failed to initialize certificate manager: {why}")))?;
    let state = rotation.state();
    let renewal = async move {
        tokio::join!(serving::follow(node, templates), rotation.run());
    };
    Ok(Some(ServingCertificate { state, renewal: renewal.boxed() }))
}
