//! Options of the pod network.

use super::ConfigErrors;
use crate::logs::Logs;
use clap::Args;
use outbound::Target;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub struct Network {
    /// The kubeconfig of a user that may list and watch nodes, such as the node's own
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,

    /// The name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// The socket of the container runtime [default: the first of the usual ones that exists]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,

    /// The folder of CNI configurations [default: that of the container runtime]
    #[arg(long, value_name = "FOLDER", requires = "cni_bin_dir")]
    pub cni_conf_dir: Option<PathBuf>,

    /// The folder of CNI plugins [default: that of the container runtime]
    #[arg(long, value_name = "FOLDER", requires = "cni_conf_dir")]
    pub cni_bin_dir: Option<PathBuf>,

    /// The folder for the addresses of attached pods; it need not survive a restart of the machine
    #[arg(long, value_name = "FOLDER", default_value = "/run/pintle/pods")]
    pub state_dir: PathBuf,

    #[command(flatten)]
    pub logs: Logs,
}

impl Network {
    pub fn target(&self, errors: &mut ConfigErrors) -> Option<Target> {
        errors.take("--kubeconfig", Target::from_kubeconfig(&self.kubeconfig))
    }
}
