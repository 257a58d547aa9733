//! The command lines of `pintle snapshot` and `pintle migrate`.

use crate::options::Etcd;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  pintle snapshot save backup.snapshot
      All objects of the cluster in the default data directory, whether its server runs or not.

  pintle snapshot save backup.snapshot --kubeconfig admin.kubeconfig
      Those of a running server, with the embedded store or an etcd.

  pintle snapshot status backup.snapshot
      Verifies the file, and prints its revision, its number of objects and its digest.

  pintle snapshot restore backup.snapshot --data-dir /var/lib/pintle
      A new store with these objects. The server must be stopped, and the directory must have no store.

A snapshot contains every secret of the cluster, encrypted only where encryption at rest is configured. Keep the
certificates and keys in the folder pki of the data directory, too: they are not objects, and not part of it.";

#[derive(Debug, Clone, Args)]
#[command(after_help = SNAPSHOT_EXAMPLES)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum Action {
    /// Save all objects to a file
    Save(SaveArgs),
    /// Make a store with the objects of a file
    Restore(Box<RestoreArgs>),
    /// Verify a file, and print what it contains
    Status(StatusArgs),
}

#[derive(Debug, Clone, Args)]
pub(super) struct SaveArgs {
    /// The file to write
    pub file: PathBuf,

    /// The kubeconfig of an administrator, to ask a running server
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub kubeconfig: Option<PathBuf>,

    /// The data directory of the cluster; if its server runs, the snapshot comes from it, with the administrator's kubeconfig of the
    /// directory [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct RestoreArgs {
    /// The file to read
    pub file: PathBuf,

    /// The data directory in which the store is made [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// By how much the next resource version is higher than that of the file. Clients may have seen later versions than
    /// the file has, and a version must not be given twice. No effect with --etcd-servers
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    pub bump_revision: u64,

    #[command(flatten)]
    pub etcd: Etcd,
}

#[derive(Debug, Clone, Args)]
pub(super) struct StatusArgs {
    /// The file to read
    pub file: PathBuf,

    /// The output format
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Text,
    Json,
}

const MIGRATE_EXAMPLES: &str = "\
Examples:
  pintle migrate --to etcd --etcd-servers http://10.0.0.1:2379,http://10.0.0.2:2379
      From the default data directory to an etcd, so that several servers can share it.

  pintle migrate --to embedded --data-dir /var/lib/pintle --etcd-servers http://127.0.0.1:2379
      Back. The directory must have no store.

All servers must be stopped meanwhile. Nothing is removed from where the objects were. A second run continues: objects
that are already there are left alone, and an object that differs is an error.

resourceVersion is the revision of the store. An etcd counts for itself, so versions may go back when objects move to
one; clients that are connected list again.";

#[derive(Debug, Clone, Args)]
#[command(after_help = MIGRATE_EXAMPLES)]
pub struct MigrateArgs {
    /// Where the objects go
    #[arg(long, value_name = "STORE", value_enum)]
    pub(super) to: Destination,

    /// The data directory of the embedded store [default: $XDG_DATA_HOME/pintle, or ~/.local/share/pintle]
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(super) etcd: Etcd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Destination {
    Etcd,
    Embedded,
}
