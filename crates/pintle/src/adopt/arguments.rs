//! The command line of `pintle adopt`.

use crate::options::Etcd;
use crate::snapshot::OutputFormat;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pintle adopt --dry-run --etcd-servers https://127.0.0.1:2379 --etcd-cafile /etc/kubernetes/pki/etcd/ca.crt \\
      --etcd-certfile /etc/kubernetes/pki/apiserver-etcd-client.crt \\
      --etcd-keyfile /etc/kubernetes/pki/apiserver-etcd-client.key
      The etcd of a cluster that kubeadm made, while that runs.

  pintle adopt --dry-run --etcd-servers http://127.0.0.1:2379 --encryption-provider-config encryption.yaml -o json

The exit status is 0 if a server serves everything as before, 3 if something is in its way, and 1 after an error.
Nothing is written. A server adopts the etcd when it starts on it: pintle up --etcd-servers.";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdoptArgs {
    /// Only look: list what will differ. It is required, since a server adopts an etcd by starting on it
    #[arg(long)]
    pub(super) dry_run: bool,

    /// The EncryptionConfiguration file of the cluster, with the keys of values that are encrypted
    #[arg(long, value_name = "FILE")]
    pub(super) encryption_provider_config: Option<PathBuf>,

    /// The output format
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = OutputFormat::Text)]
    pub(super) output: OutputFormat,

    #[command(flatten)]
    pub(super) etcd: Etcd,
}
