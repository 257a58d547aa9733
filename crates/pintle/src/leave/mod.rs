//! The command `pintle leave`: takes this machine out of its cluster.
//!
//! ```text
//! cordon ─ evict pods ─ stop the node ─ delete the node object ─ stop remaining pods ─ remove the files
//! ```
//!
//! Invariants: nothing is stopped or removed before the pods are gone, and before it is certain that no data is lost;
//! `--force` goes on without. A run that was interrupted is repeated.
//!
//! | module | what it is |
//! |---|---|
//! | [`drain`] | the pods that move to other nodes |
//! | [`machine`] | processes, pods and files of this machine |

mod drain;
mod machine;

use crate::admin_client::client;
use crate::join::{NodeDirectory, say};
use crate::options::Leave;
use anyhow::Context as _;
use api::core::v1::Node;
use api::meta::v1::DeleteOptions;
use client::{Api, Client, Patch};
use env::World;
use outbound::Target;
use serde_json::json;

pub async fn leave(args: Leave, world: World) -> anyhow::Result<()> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "a node needs root: run this with sudo");
    let directory = NodeDirectory::open(args.data_dir.as_deref())?;
    let node = directory.node();
    anyhow::ensure!(node.is_dir(), "this machine is not a node: there is no {}", node.display());
    anyhow::ensure!(
        !directory.is_of_server(),
        "{} is the data directory of a server, whose node runs with pintle up: stop that instead",
        directory.data_dir.display()
    );
    let volumes = machine::local_volumes(&node);
    anyhow::ensure!(
        args.force || volumes.is_empty(),
        "the data of {} volumes is on this machine only ({}): copy it, delete their claims, or lose it with --force",
        volumes.len(),
        volumes.join(", ")
    );
    let identity = directory.identity(world.now())?;
    anyhow::ensure!(
        args.force || identity.is_some(),
        "the certificate of this node has expired, or it has never had one: go on with --force"
    );
    let member = match identity {
        Some(identity) => Some((cluster_client(&args, &directory, &world)?, identity.name)),
        None => None,
    };
    if let Some((client, name)) = &member {
        match drain_node(client, name, &args, &world).await {
            Err(why) if args.force => say(&format!("going on all the same: {why:#}")),
            drained => drained?,
        }
    }
    machine::stop(&directory, &world).await?;
    say("the node is stopped");
    let is_listed = match &member {
        Some((client, name)) => !delete_node(client, name).await,
        None => false,
    };
    machine::stop_pods(&directory, args.container_runtime_endpoint.as_deref(), &world).await?;
    machine::remove_files(&directory)?;
    say("the files of the node are removed");
    if let (true, Some((_, name))) = (is_listed, &member) {
        say(&format!(
            "the cluster still lists this node: run kubectl delete node {name} where you administer it"
        ));
    }
    Ok(())
}

/// A client with the credentials of the administrator, or of the node.
fn cluster_client(args: &Leave, directory: &NodeDirectory, world: &World) -> anyhow::Result<Client> {
    let target = match &args.kubeconfig {
        Some(file) => Target::from_kubeconfig(file)?,
        None => directory.target()?,
    };
    client(&target, world)
}

/// Moves the pods of the node.
async fn drain_node(client: &Client, name: &str, args: &Leave, world: &World) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client);
    let cordon = Patch::merge(json!({"spec": {"unschedulable": true}}));
    match nodes.patch(name, &cordon).await {
        Err(error) if error.is_not_found() => {
            say(&format!("the cluster does not list the node {name}"));
            return Ok(());
        }
        cordoned => cordoned.with_context(|| format!("cannot cordon the node {name}; go on with --force"))?,
    };
    say(&format!("node {name} takes no new pods"));
    drain::drain(client, name, args, world).await
}

/// Deletes the node object, if the credentials allow it.
async fn delete_node(client: &Client, name: &str) -> bool {
    let nodes: Api<Node> = Api::all(client);
    match nodes.delete(name, &DeleteOptions::default()).await {
        Ok(()) => {
            say(&format!("node {name} is deleted"));
            true
        }
        Err(error) if error.is_not_found() => true,
        Err(why) => {
            tracing::info!(%why, "the node object was not deleted");
            false
        }
    }
}
