//! Runs one kind of write many times without a network, for tools that count instructions: on a machine that
//! others use, time says little and their number says all.
//!
//!     valgrind --tool=callgrind target/release/work create 200
//!
//! `get` and `audited` are reads through the whole pipeline, without and with a record of each.
//!
//! What it does not do: HTTP, TLS and the disk are left out. The store is the one in memory.

mod read;

use anyhow::{Context, bail};
use clap::Parser;
use env::{Seeded, World};
use names::Names;
use rest::options::WriteOptions;
use rest::{Api, PatchKind, Requester, Resource, Storage, WriteOutcome, WriteRequest};
use rest::{Format, Input};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Cli {
    /// create, merge, apply, update, cells, get or audited.
    what: String,
    /// How often.
    times: usize,
}

const POD: &str = include_str!("pod.json");
/// As many objects as a few clients would write to in turn.
const OBJECTS: usize = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Cli { what, times } = Cli::parse();
    if matches!(&*what, "get" | "audited") {
        let reads = read::Reads::new(what == "audited").await?;
        for _ in 0..times {
            reads.read().await?;
            // the audit log gets a turn after each request, as in the server
            tokio::task::yield_now().await;
        }
        let events = reads.end().await?;
        anyhow::ensure!(what == "get" || events == 2 * times + 2, "{events} events were written");
        return Ok(());
    }
    let bench = Bench::new()?;
    if what != "create" {
        for nth in 0..OBJECTS {
            let body = pod(nth, 0);
            let wrote =
                if what == "apply" { bench.apply(nth, body).await? } else { bench.create(body).await? };
            anyhow::ensure!(wrote.created, "an object was there already");
        }
    }
    for turn in 1..=times {
        let nth = turn % OBJECTS;
        match &*what {
            "create" => drop(bench.create(pod(turn, 0)).await?),
            "apply" => drop(bench.apply(nth, pod(nth, turn)).await?),
            "merge" => drop(bench.merge(nth, turn).await?),
            "update" => drop(bench.update(nth, turn).await?),
            "cells" => bench.cells(nth)?,
            other => bail!("{other:?} is none of create, merge, apply, update, cells, get, audited"),
        }
    }
    Ok(())
}

fn name(nth: usize) -> String {
    format!("checkout-7d9c5b8f6d-{nth:06}")
}

fn pod(nth: usize, turn: usize) -> String {
    POD.trim().replace("@NAME@", &name(nth)).replace("@SEQ@", &turn.to_string())
}

struct Bench {
    api: Api,
    pods: Arc<Resource>,
    user: Requester,
}

impl Bench {
    fn new() -> anyhow::Result<Bench> {
        let world: World = Seeded::new(1_700_000_000, 1);
        let store = Arc::new(store::memory::open(&store::Options::default(), world.clone()));
        let storage = Storage::new(store, Vec::new(), Default::default(), world.clone())?;
        let api = Api::new(Names::kubernetes(), storage, world, Vec::new());
        for (kind, hooks) in kinds::builtin() {
            api.register(kind, hooks)?;
        }
        let pods = api.resources().get("v1", "pods").context("there are no pods")?.clone();
        Ok(Bench { api, pods, user: Requester::default() })
    }

    fn writing<'a>(&'a self, name: &'a str, options: &'a WriteOptions) -> WriteRequest<'a> {
        WriteRequest {
            resource: &self.pods,
            namespace: "default",
            name,
            subresource: "",
            options,
            user: &self.user,
            manager: "bench",
            owned: false,
            warnings: Vec::new(),
        }
    }

    async fn create(&self, body: String) -> anyhow::Result<WriteOutcome> {
        let options = WriteOptions::default();
        anyhow_result(self.api.create(&mut self.writing("", &options), &json(body)).await)
    }

    async fn apply(&self, nth: usize, body: String) -> anyhow::Result<WriteOutcome> {
        let (name, options) = (name(nth), WriteOptions { force: Some(true), ..WriteOptions::default() });
        anyhow_result(self.api.apply(&mut self.writing(&name, &options), &json(body)).await)
    }

    async fn merge(&self, nth: usize, turn: usize) -> anyhow::Result<WriteOutcome> {
        let (name, options) = (name(nth), WriteOptions::default());
        let patch = format!(r#"{{"metadata":{{"annotations":{{"bench/seq":"{turn}"}}}}}}"#);
        anyhow_result(
            self.api.patch(&mut self.writing(&name, &options), PatchKind::Merge, &json(patch)).await,
        )
    }

    async fn update(&self, nth: usize, turn: usize) -> anyhow::Result<WriteOutcome> {
        let (name, options) = (name(nth), WriteOptions::default());
        let current = self.pods.collection.cache.get("default", &name).context("the pod is gone")?;
        let body = String::from_utf8(current.json().to_vec())?;
        let body = body.replacen(
            "\"annotations\":{",
            &format!("\"annotations\":{{\"a{}\":\"{turn}\",", turn % 3),
            1,
        );
        anyhow_result(self.api.update(&mut self.writing(&name, &options), &json(body)).await)
    }

    fn cells(&self, nth: usize) -> anyhow::Result<()> {
        let current = self.pods.collection.cache.get("default", &name(nth)).context("the pod is gone")?;
        let value =
            schema::decode::canonical_parts(current.json(), &self.pods.kind.root, &self.pods.row_reads)?;
        let cells = self.pods.hooks.read.cells.context("pods have no cells")?;
        std::hint::black_box(cells(&value, Duration::from_secs(1_700_000_100)));
        Ok(())
    }
}

fn json(body: String) -> Input {
    Input { bytes: body.into(), format: Format::Json }
}

fn anyhow_result(written: Result<WriteOutcome, rest::ApiError>) -> anyhow::Result<WriteOutcome> {
    written.map_err(|why| anyhow::anyhow!("{}", why.message))
}
