//! Where a snapshot comes from: a running server, the store of a stopped one, or an etcd.

use super::file;
use super::progress::Progress;
use crate::admin_client::client;
use crate::data_dir::store_directory;
use crate::files::{self, DirectoryLock};
use anyhow::Context as _;
use bytes::Bytes;
use client::Client;
use env::World;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::Request;
use http_body_util::BodyExt as _;
use outbound::Target;
use std::path::{Path, PathBuf};
use store::snapshot::{Encoder, Summary};
use store::{Engine, Snapshot, Store as _};

/// The path at which a server gives a snapshot.
const PATH: &str = "/store/snapshot";

pub enum Source {
    Server(Client),
    /// A data directory whose server does not run.
    Directory(PathBuf),
}

impl Source {
    /// The server of a kubeconfig.
    pub fn of_server(kubeconfig: &Path, world: &World) -> anyhow::Result<Self> {
        Ok(Self::Server(client(&Target::from_kubeconfig(kubeconfig)?, world)?))
    }

    /// A data directory: its server, if it runs.
    pub fn of_data_dir(directory: &Path, world: &World) -> anyhow::Result<Self> {
        let shown = directory.display();
        anyhow::ensure!(
            directory.is_dir(),
            "there is no data directory {shown}: name one with --data-dir, or a server with --kubeconfig"
        );
        match files::lock_directory(directory) {
            Ok(_) if store_directory(directory).is_dir() => Ok(Self::Directory(directory.to_owned())),
            Ok(_) => anyhow::bail!(
                "{shown} has no store: if its objects are in an etcd, start the server and name it with --kubeconfig"
            ),
            // a server that runs gives the snapshot
            Err(why) => {
                let kubeconfig = directory.join("admin.kubeconfig");
                anyhow::ensure!(
                    kubeconfig.exists(),
                    "{why:#}; or name a kubeconfig with --kubeconfig, since there is no {}",
                    kubeconfig.display()
                );
                Self::of_server(&kubeconfig, world)
            }
        }
    }

    /// Saves it to a file.
    pub async fn save(&self, path: &Path, world: &World) -> anyhow::Result<Summary> {
        let mut progress = Progress::new("Saved", "bytes", world);
        let mut counted = |piece: &Bytes| progress.add(piece.len() as u64);
        match self {
            Self::Server(client) => {
                let request = Request::get(PATH).body(Vec::new())?;
                let body = client.request_body(request).await.context("the server gives no snapshot")?;
                let pieces = body.into_data_stream().map_err(|why| anyhow::anyhow!("the server: {why}"));
                file::write(path, pieces.inspect_ok(&mut counted)).await
            }
            Self::Directory(directory) => {
                let (_engine, snapshot) = open_directory(directory, world).await?;
                let pieces = encode(snapshot, env::unix_seconds(world));
                file::write(path, pieces.inspect_ok(&mut counted)).await
            }
        }
    }
}

/// The store of a stopped server, held open while its snapshot is read.
pub struct OpenStore {
    _engine: Engine,
    _lock: DirectoryLock,
}

/// Opens the store of a data directory.
pub async fn open_directory(directory: &Path, world: &World) -> anyhow::Result<(OpenStore, Snapshot)> {
    let lock = files::lock_directory(directory)?;
    let store = store_directory(directory);
    anyhow::ensure!(store.is_dir(), "{} has no store", directory.display());
    let engine = store::embedded::open(&store, &store::Options::default(), world.clone(), &mut |_| ())?;
    engine.start(Box::new(|_| ()))?;
    let snapshot = engine.snapshot().await?;
    Ok((OpenStore { _engine: engine, _lock: lock }, snapshot))
}

/// All objects of an etcd.
pub async fn open_etcd(options: store_etcd::Options, world: &World) -> anyhow::Result<Snapshot> {
    let (etcd, _) = store_etcd::open(options, world.clone()).await?;
    Ok(etcd.snapshot().await?)
}

/// The bytes of the file of a snapshot.
fn encode(snapshot: Snapshot, taken_at: i64) -> impl Stream<Item = anyhow::Result<Bytes>> {
    let (encoder, first) = Encoder::new(snapshot.revision, taken_at);
    let rest = stream::unfold(Some((snapshot.pages, encoder)), |state| async move {
        let (mut pages, mut encoder) = state?;
        Some(match pages.next().await {
            Some(Ok(page)) => (Ok(encoder.page(&page)), Some((pages, encoder))),
            Some(Err(why)) => (Err(why.into()), None),
            None => (Ok(encoder.finish()), None),
        })
    });
    stream::once(async { Ok(first) }).chain(rest)
}
