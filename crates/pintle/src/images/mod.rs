//! `pintle images`: the images of the embedded runtime, also while an agent uses them.

mod progress;

use crate::data_dir::default_data_dir;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use env::World;
use nodeagent::assembly::embedded_runtime;
use progress::{ProgressBars, ProgressLine};
use runtime::RegistryAuth;
use runtime::containers::used_layers;
use runtime::images::{ImageReference, ImageStore, Puller, UnpackLimits, export, import_with_progress};
use std::fs::File;
use std::io::{BufWriter, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct ImagesArgs {
    #[command(subcommand)]
    action: Action,

    /// The data directory of the server [default: that of `pintle up`]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "root_dir")]
    data_dir: Option<PathBuf>,

    /// The directory of an agent that runs alone (its --root-dir)
    #[arg(long, value_name = "DIR", global = true)]
    root_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the images
    List,
    /// Pull images from their registries
    Pull(PullArgs),
    /// Import the images of an archive (OCI layout or docker save) or of a directory with an OCI layout
    Import(ImportArgs),
    /// Write images to an archive
    Export(ExportArgs),
    /// Remove images, by name or by id
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
struct PullArgs {
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,

    /// The user of the registry
    #[arg(long, requires = "password_file")]
    username: Option<String>,

    /// The file with the password of the registry
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,

    /// The folder with mirrors and authorities of registries (HOST/hosts.toml)
    #[arg(long, value_name = "DIR", default_value = "/etc/pintle/registries")]
    registries: PathBuf,
}

#[derive(Debug, Args)]
struct ImportArgs {
    #[arg(value_name = "FILE")]
    archive: PathBuf,

    /// The name of images that have none
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
struct ExportArgs {
    #[arg(value_name = "FILE")]
    archive: PathBuf,

    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

/// Runs `pintle images`.
pub async fn images(args: ImagesArgs, world: &World) -> anyhow::Result<()> {
    let agent_dir = match (args.root_dir, args.data_dir) {
        (Some(directory), _) => directory,
        (None, Some(directory)) => directory.join("node"),
        (None, None) => {
            default_data_dir().context("there is no data directory; give one with --data-dir")?.join("node")
        }
    };
    let root = embedded_runtime::root(&agent_dir).join("images");
    let open = || {
        let opened = ImageStore::open(&root, UnpackLimits::default());
        opened.with_context(|| format!("cannot open the images in {}", root.display()))
    };
    match args.action {
        // a look makes no folders
        Action::List if !root.exists() => list(None),
        Action::List => list(Some(&open()?)),
        Action::Pull(args) => pull(args, open()?, world).await,
        Action::Import(args) => {
            let store = open()?;
            let names = tokio::task::spawn_blocking(move || read_archive(&args, &store, &agent_dir));
            for name in names.await?? {
                say(&format!("Imported {name}\n"));
            }
            Ok(())
        }
        Action::Export(args) => write_archive(&args, &open()?),
        Action::Remove(args) => remove(&args, &open()?, &agent_dir),
    }
}

fn list(store: Option<&ImageStore>) -> anyhow::Result<()> {
    let images = store.map(ImageStore::list).transpose()?.unwrap_or_default();
    let mut rows = vec![["NAME".to_owned(), "ID".to_owned(), "SIZE".to_owned()]];
    for image in &images {
        let names = if image.tags.is_empty() { &image.digests } else { &image.tags };
        for name in names {
            rows.push([name.clone(), image.id.hex()[..12].to_owned(), progress::size(image.size)]);
        }
    }
    let widths = [0, 1].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    for [name, id, size] in &rows {
        say(&format!(
            "{name:<name_width$}  {id:<id_width$}  {size}\n",
            name_width = widths[0],
            id_width = widths[1]
        ));
    }
    Ok(())
}

async fn pull(args: PullArgs, store: ImageStore, world: &World) -> anyhow::Result<()> {
    let auth = match (args.username, args.password_file) {
        (Some(username), Some(file)) => {
            let password =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            Some(RegistryAuth {
                username,
                password: password.trim_end().to_owned(),
                ..RegistryAuth::default()
            })
        }
        _ => None,
    };
    let puller = Puller {
        store: Arc::new(store),
        hosts: args.registries,
        agent: concat!("pintle/", env!("CARGO_PKG_VERSION")).to_owned(),
        world: world.clone(),
    };
    for image in args.images {
        let bars = Arc::new(ProgressBars::new());
        let shown = bars.clone();
        let pulled = puller.pull(&image, auth.as_ref(), Arc::new(move |event| shown.show(&event))).await;
        bars.finish();
        let pulled = pulled.with_context(|| format!("cannot pull {image}"))?;
        say(&format!("Pulled {} ({})\n", ImageReference::parse(&image)?, &pulled.id.hex()[..12]));
    }
    Ok(())
}

fn read_archive(args: &ImportArgs, store: &ImageStore, agent_dir: &Path) -> anyhow::Result<Vec<String>> {
    let line = Arc::new(ProgressLine::new());
    let shown = line.clone();
    let progress = Arc::new(move |done, all| shown.show(&progress::copied("read", done, all)));
    let imported = import_with_progress(store, &args.archive, args.name.as_deref(), progress);
    line.finish();
    if imported.is_err() {
        // what was stored before the error; the agent removes it, too
        let _ = store.collect_garbage(|| used_layers(&embedded_runtime::root(agent_dir)));
    }
    imported.with_context(|| format!("cannot import {}", args.archive.display()))
}

fn write_archive(args: &ExportArgs, store: &ImageStore) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", args.archive.display());
    let file = File::create(&args.archive).with_context(failed)?;
    let mut output = BufWriter::new(file);
    let line = Arc::new(ProgressLine::new());
    let shown = line.clone();
    let progress = Arc::new(move |done, all| shown.show(&progress::copied("written", done, all)));
    let exported = export(store, &args.images, &mut output, progress);
    line.finish();
    exported.with_context(failed)?;
    output
        .into_inner()
        .map_err(|why| why.into_error())
        .and_then(|file| file.sync_all())
        .with_context(failed)?;
    say(&format!("Exported {} to {}\n", args.images.join(", "), args.archive.display()));
    Ok(())
}

fn remove(args: &RemoveArgs, store: &ImageStore, agent_dir: &Path) -> anyhow::Result<()> {
    for image in &args.images {
        anyhow::ensure!(store.remove(image)?, "there is no image {image}");
        say(&format!("Removed {image}\n"));
    }
    let used = || used_layers(&embedded_runtime::root(agent_dir));
    let freed = match store.collect_garbage(used)? {
        Some(freed) => freed,
        None => {
            say("Images are being pulled or used; waiting to free their space\n");
            store.wait_and_collect_garbage(used)?
        }
    };
    say(&format!("Freed {}\n", progress::size(freed)));
    Ok(())
}

fn say(text: &str) {
    // a closed terminal is not an error
    let _ = stdout().write_all(text.as_bytes());
}
