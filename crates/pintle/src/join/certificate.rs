//! The first certificate of the node: requested with the token, and signed by the cluster.

use super::discovery::trusted;
use super::node_directory::NodeDirectory;
use crate::admin_client::client;
use crate::bootstrap::token::BootstrapToken;
use anyhow::Context as _;
use api::core::v1::Node;
use client::{Api, Client};
use env::World;
use names::Names;
use nodeagent::identity::bootstrap::{Bootstrap, BootstrapError, write_kubeconfig};
use nodeagent::identity::signing_request::SigningError;
use nodeagent::identity::{CertificateStore, KeySource};
use outbound::{Credentials, Target};
use std::sync::Arc;
use std::time::Duration;

/// The prefix of the files of client certificates, as the agent names them.
const CLIENT_PREFIX: &str = "kubelet-client";
/// How long the cluster may take to sign.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Obtains the certificate, and writes the kubeconfig that names it.
pub async fn obtain(
    directory: &NodeDirectory,
    (url, authorities): (&str, &str),
    token: &BootstrapToken,
    name: &str,
    names: &Names,
    world: &World,
) -> anyhow::Result<()> {
    let server = trusted(url, authorities);
    let target = Target { credentials: Credentials::Bearer(token.to_string()), ..server.clone() };
    let client = client(&target, world)?;
    check_name(&client, name).await?;
    let pki = directory.certificates();
    let store = CertificateStore::new(&pki, CLIENT_PREFIX, None);
    let keys: KeySource = Arc::new(rcgen::KeyPair::generate);
    let request = Bootstrap {
        client: &client,
        world,
        keys: &keys,
        names,
        node_name: name,
        store: &store,
        directory: &pki,
    };
    match env::timeout(world, TIMEOUT, request.run()).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return Err(advise(&why)),
        Err(_) => anyhow::bail!(
            "the certificate request of this node was not approved within {TIMEOUT:?}: approve it with kubectl \
             certificate approve (kubectl get csr lists it), and run this again; the control loops csrapproving and \
             csrsigning do it by themselves"
        ),
    }
    write_kubeconfig(&directory.kubeconfig(), &server, &store.current_path())
        .with_context(|| format!("cannot write {}", directory.kubeconfig().display()))
}

/// Refuses the name of another machine that is a node.
async fn check_name(client: &Client, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let node = match nodes.get_opt(name).await {
        Ok(node) => node,
        // the token may not read nodes: then names are not compared
        Err(error) if error.is(403) => None,
        Err(error) if error.is(401) => anyhow::bail!(
            "the server does not accept the token: it has expired, or the server was started with \
             --enable-bootstrap-token-auth=false; make a new one with pintle token create"
        ),
        Err(error) => return Err(error).context("cannot ask the server about nodes"),
    };
    let is_ready =
        |node: &Node| node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    anyhow::ensure!(
        !node.is_some_and(|node| is_ready(&node)),
        "there is a node {name} already, and it is Ready: choose another name with --node-name, or remove that node \
         first"
    );
    Ok(())
}

fn advise(why: &BootstrapError) -> anyhow::Error {
    let advice = match why {
        BootstrapError::Signing(SigningError::Api(error)) if error.is(401) => {
            "the token has expired: make a new one with pintle token create"
        }
        BootstrapError::Signing(SigningError::Api(error)) if error.is(403) => {
            "the token may not request certificates: make a new one with pintle token create"
        }
        BootstrapError::Signing(SigningError::Denied { .. } | SigningError::Failed { .. }) => {
            "ask the administrator of the cluster"
        }
        _ => "run this again",
    };
    anyhow::anyhow!("there is no certificate for this node: {why}: {advice}")
}
