//! The command `pintle adopt --dry-run`: what becomes of an etcd that an upstream cluster wrote, if a server starts on it.
//!
//! ```text
//! etcd ─ pages of records ─ decrypt ─► Inspection (a function of keys and values) ─► Report ─► text or JSON, exit status
//! ```
//!
//! Invariant: nothing is written. Adopting itself needs no command: `pintle up --etcd-servers` serves what it finds.
//!
//! | module | what it is |
//! |---|---|
//! | [`inspection`] | reads each record as a server would, and collects what stands out |
//! | [`catalog`] | which kind a key belongs to |
//! | [`references`] | objects that call services, and the features that behave differently here |
//! | [`cluster`] | the flags that servers of the cluster need |
//! | [`report`] | the result as text and JSON |

mod arguments;
mod catalog;
mod cluster;
mod inspection;
mod references;
mod report;

pub use arguments::AdoptArgs;

use crate::options::ConfigErrors;
use crate::snapshot::{OutputFormat, etcd_options, open_etcd};
use anyhow::Context as _;
use apiserver::encryption_at_rest::reading_keyring;
use encryption::{Configuration, Rules};
use env::World;
use futures_util::StreamExt as _;
use inspection::Inspection;
use names::Names;
use std::io::{Write as _, stdout};
use std::process::ExitCode;

/// The exit status if a server would not start, or would not serve everything as before.
const FINDINGS: u8 = 3;

pub async fn adopt(args: AdoptArgs, world: &World) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.dry_run,
        "a server adopts an etcd when it starts on it (pintle up --etcd-servers): add --dry-run to see what will differ"
    );
    let options = etcd_options(&args.etcd)?.context("--etcd-servers names the etcd: it is required")?;
    let names = Names::kubernetes();
    let configuration = read_encryption(&args, &names)?;
    let rename = options.renames().map(|it| Box::new(it) as encryption::Rename);
    let keyring = reading_keyring(configuration.as_ref(), &names, world, rename);
    let mut snapshot = open_etcd(options, world).await?;
    let mut inspection = Inspection::new(&names);
    while let Some(page) = snapshot.pages.next().await {
        for record in page? {
            let value = keyring.decrypt(&record.key, &record.value).await;
            inspection.add(&record, value);
        }
    }
    let report = inspection.finish(snapshot.revision);
    let text = match args.output {
        OutputFormat::Text => report.text(),
        OutputFormat::Json => format!("{}\n", report.json()),
    };
    // a closed terminal is not an error
    let _ = stdout().write_all(text.as_bytes());
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// The encryption configuration, as a server would read it.
fn read_encryption(args: &AdoptArgs, names: &Names) -> anyhow::Result<Option<Configuration>> {
    let Some(file) = &args.encryption_provider_config else { return Ok(None) };
    const OPTION: &str = "--encryption-provider-config";
    let mut errors = ConfigErrors::default();
    let text = errors.text(OPTION, Some(file.as_path()));
    let rules = Rules { reloads: false, second_version: true };
    let read = text.and_then(|text| errors.take(OPTION, Configuration::read(text.as_bytes(), names, rules)));
    errors.check()?;
    Ok(read)
}
