//! Options of the commands about nodes of a cluster: `token`, `join` and `leave`.

use crate::flags::any_duration;
use crate::logs::Logs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
pub struct Token {
    #[command(subcommand)]
    pub action: TokenAction,
}

#[derive(Debug, Clone, Subcommand)]
pub enum TokenAction {
    /// Create a token and print the command with which a machine joins
    Create(TokenCreate),
    /// List the tokens, without their secrets
    List(TokenList),
    /// Delete tokens
    Delete(TokenDelete),
}

/// The cluster, and the administrator's credentials.
#[derive(Debug, Clone, Args)]
pub struct AdminAccess {
    /// The administrator's kubeconfig [default: $KUBECONFIG, or admin.kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The data directory of the server [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct TokenCreate {
    /// How long the token is valid; 0 for ever
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "24h")]
    pub ttl: Duration,

    /// A note for the list of tokens
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,

    /// The URL of the server as new nodes reach it [default: the address that the server advertises]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct TokenList {
    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct TokenDelete {
    /// The tokens, or their first six characters
    #[arg(value_name = "TOKEN", required = true)]
    pub tokens: Vec<String>,

    #[command(flatten)]
    pub access: AdminAccess,
}

#[derive(Debug, Clone, Args)]
pub struct Join {
    /// The URL of the API server. A machine that is a node already continues without it, or moves to this address of
    /// the same cluster
    #[arg(value_name = "URL")]
    pub server: Option<String>,

    /// The token of pintle token create; a machine that is a node already needs none
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,

    /// The hash of the cluster's authority, sha256: and 64 hexadecimal digits; may be given several times
    #[arg(long = "discovery-token-ca-cert-hash", value_name = "HASH")]
    pub authority_hashes: Vec<String>,

    /// The name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Where certificates, pods and volumes of the node are kept [default: $XDG_DATA_HOME/pintle, or
    /// ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// The KubeletConfiguration file of the node agent
    #[arg(long, value_name = "FILE")]
    pub nodeagent_config: Option<PathBuf>,

    /// The container runtime of this machine: auto (a containerd, CRI-O or cri-dockerd that serves the CRI, otherwise
    /// embedded), embedded (in this process), or the socket of another one
    #[arg(long, value_name = "auto|embedded|PATH", default_value = "auto")]
    pub runtime: String,

    /// The socket of the container runtime, in place of --runtime
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,

    #[command(flatten)]
    pub logs: Logs,
}

#[derive(Debug, Clone, Args)]
pub struct Leave {
    /// The administrator's kubeconfig, to delete the node object; a node cannot delete its own [default: the node's
    /// credentials, which can move its pods]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The data directory of the node [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// How long disruption budgets and pods that stop may take
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10m")]
    pub timeout: Duration,

    /// Leave although data or pods are lost: volumes that are folders of this machine, and pods that no controller
    /// creates elsewhere. Goes on if the cluster cannot be reached
    #[arg(long)]
    pub force: bool,

    /// The socket of the container runtime [default: the first of the usual ones that exists]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,
}
