//! `pintle snapshot` and `pintle migrate`: all objects of a cluster in a file, or from one store to another.
//!
//! A snapshot is of one revision, and is taken while the server runs. What is written is read back before it counts.
//! Values that are encrypted at rest stay encrypted. Certificates and keys are files, not objects: they are in no snapshot, but
//! in those of a cluster in memory, which has no files. They are for `up --from`; `restore` leaves them out.

mod arguments;
mod file;
mod fork;
mod progress;
mod source;
mod target;

pub use arguments::{MigrateArgs, OutputFormat, SnapshotArgs};
pub use fork::{Fork, key_of_file};
pub use source::open_etcd;

use crate::data_dir::default_data_dir;
use crate::options::{ConfigErrors, Etcd};
use anyhow::Context as _;
use arguments::{Action, Destination, RestoreArgs, SaveArgs, StatusArgs};
use env::World;
use file::describe;
use futures_util::TryStreamExt as _;
use outbound::Dialer;
use source::Source;
use std::fs::File;
use std::io::{BufReader, Write as _, stdout};
use std::path::PathBuf;
use std::time::Duration;
use store::snapshot::Reader;
use store::{Revision, Snapshot};

/// Runs `pintle snapshot`.
pub async fn snapshot(args: SnapshotArgs, world: &World) -> anyhow::Result<()> {
    match args.action {
        Action::Save(args) => save(args, world).await,
        Action::Restore(args) => restore(*args, world).await,
        Action::Status(args) => status(&args),
    }
}

async fn save(args: SaveArgs, world: &World) -> anyhow::Result<()> {
    let source = match &args.kubeconfig {
        Some(kubeconfig) => Source::of_server(kubeconfig, world)?,
        None => Source::of_data_dir(&data_dir(args.data_dir)?, world)?,
    };
    let summary = source.save(&args.file, world).await?;
    say(&format!("Saved {} to {}\n", describe(&summary), args.file.display()));
    Ok(())
}

fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let summary = file::verify(&args.file)?;
    match args.output {
        OutputFormat::Text => say(&format!("{}: {}\n", args.file.display(), describe(&summary))),
        OutputFormat::Json => {
            let json = serde_json::json!({
                "revision": summary.revision.0,
                "takenAt": schema::time::format_time(summary.taken_at),
                "objects": summary.records,
                "bytes": summary.bytes,
                "sha256": file::hex(&summary.digest),
            });
            say(&format!("{json}\n"));
        }
    }
    Ok(())
}

async fn restore(args: RestoreArgs, world: &World) -> anyhow::Result<()> {
    // the whole file is checked before anything is made of it
    let summary = file::verify(&args.file)?;
    let opened = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let records = file::pages(Reader::new(BufReader::new(opened))?)
        .map_ok(|page| page.into_iter().filter(|it| !fork::is_file(it)).collect());
    let snapshot = Snapshot { revision: summary.revision, pages: Box::pin(records) };
    let restored = match etcd_options(&args.etcd)? {
        Some(options) => target::write_to_etcd(options, snapshot, world).await?,
        None => {
            let directory = data_dir(args.data_dir)?;
            let newest = Revision(summary.revision.0.saturating_add(args.bump_revision));
            target::write_to_directory(&directory, newest, snapshot, world).await?
        }
    };
    say(&format!("Restored {restored} objects of revision {}.\n", summary.revision));
    Ok(())
}

/// Runs `pintle migrate`.
pub async fn migrate(args: MigrateArgs, world: &World) -> anyhow::Result<()> {
    let directory = data_dir(args.data_dir)?;
    let options = etcd_options(&args.etcd)?.context("--etcd-servers names the etcd: it is required")?;
    let moved = match args.to {
        Destination::Etcd => {
            let (_engine, snapshot) = source::open_directory(&directory, world).await?;
            target::write_to_etcd(options, snapshot, world).await?
        }
        Destination::Embedded => {
            let snapshot = source::open_etcd(options, world).await?;
            let newest = snapshot.revision;
            target::write_to_directory(&directory, newest, snapshot, world).await?
        }
    };
    let next = match args.to {
        Destination::Etcd => "Start the servers with these --etcd-servers and this data directory.",
        Destination::Embedded => "Start one server with this data directory, without --etcd-servers.",
    };
    say(&format!("Moved {moved} objects; the old ones are still where they were. {next}\n"));
    Ok(())
}

fn data_dir(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = given.map_or_else(default_data_dir, Ok)?;
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// The etcd of the flags, if they name one.
pub fn etcd_options(args: &Etcd) -> anyhow::Result<Option<store_etcd::Options>> {
    if args.etcd_servers.is_empty() {
        return Ok(None);
    }
    let mut errors = ConfigErrors::default();
    let options = args.read(Duration::ZERO, &Dialer::Direct, &mut errors);
    errors.check()?;
    Ok(options)
}

/// Writes to the terminal; a closed one is not an error.
fn say(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
