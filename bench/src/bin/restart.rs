//! A restart beside many objects: fills a data directory through a server, ends the server by SIGKILL, and starts it again.
//!
//! Reports the time and the CPU time until the server is ready, its memory before the end and after the start, what the
//! store's file takes, and what the first and the second list of all objects cost.

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bench::process::{cpu_of, memory_of};
use bench::target::{Sender, Target, TargetArgs};
use bench::{pods, print_line};
use bytes::Bytes;
use clap::Parser;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

const CONCURRENCY: usize = 32;
/// How long the server rests before its memory is read.
const REST: Duration = Duration::from_secs(5);
/// The objects of a page of a list.
const PAGE: u64 = 500;

#[derive(Debug, Parser)]
struct Cli {
    /// The program to measure
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The data directory; one that exists is not filled again
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Pods of about 7.4 kB
    #[arg(long, default_value_t = 0)]
    pods: u64,
    /// Config maps
    #[arg(long, default_value_t = 0)]
    config_maps: u64,
    /// The bytes of each config map
    #[arg(long, default_value_t = 1000)]
    bytes: usize,
    /// How often the server is ended and started
    #[arg(long, default_value_t = 2)]
    starts: usize,
    /// Lists all objects after the last start
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let is_new = !cli.data_dir.exists();
    let mut server = Server::start(&cli).await?;
    if is_new {
        server.fill(&cli).await?;
    }
    server.show("before", &cli).await?;
    for nth in 0..cli.starts {
        server.end().await?;
        server = Server::start(&cli).await?;
        server.show(&format!("start {}", nth + 1), &cli).await?;
    }
    if cli.list {
        for turn in ["first", "second"] {
            for (plural, count) in cli.kinds() {
                server.list(turn, plural, count).await?;
            }
        }
        server.show("listed", &cli).await?;
    }
    server.end().await
}

impl Cli {
    fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [("pods", self.pods), ("configmaps", self.config_maps)].into_iter().filter(|(_, count)| *count > 0)
    }

    fn object(&self, plural: &str, nth: u64) -> Value {
        if plural == "pods" { pod(nth) } else { config_map(nth, self.bytes) }
    }
}

/// A server that runs.
struct Server {
    child: Child,
    pid: u32,
    target: Arc<Target>,
    // the server's words have somewhere to go as long as it runs
    _output: Lines<BufReader<ChildStdout>>,
    ready: Duration,
    cpu_us: u64,
}

impl Server {
    async fn start(cli: &Cli) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let began = Instant::now();
        let mut child = Command::new(&cli.program)
            .args(["up", "--components", "apiserver", "--secure-port", "0", "--data-dir"])
            .arg(&cli.data_dir)
            .arg("--write-kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", cli.program.display()))?;
        let pid = child.id().context("the server has ended")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?).lines();
        let url = loop {
            let line = output.next_line().await?.context("the server did not start")?;
            if let Some((_, rest)) = line.split_once(" is ready on ") {
                break rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
        };
        let (ready, cpu_us) = (began.elapsed(), cpu_of(&[pid])?.unwrap_or(0));
        let text = std::fs::read_to_string(&kubeconfig)?;
        let file = |field: &str| -> anyhow::Result<PathBuf> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(": "));
            let path = folder.path().join(field);
            std::fs::write(&path, STANDARD.decode(line.context("no certificate")?.trim())?)?;
            Ok(path)
        };
        let (cert, key) = (file("client-certificate-data")?, file("client-key-data")?);
        let target = Target::new(&TargetArgs { server: url, cert: Some(cert), key: Some(key), token: None })?;
        Ok(Server { child, pid, target: Arc::new(target), _output: output, ready, cpu_us })
    }

    /// Ends it as a power cut would.
    async fn end(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot end the server")
    }

    async fn fill(&self, cli: &Cli) -> anyhow::Result<()> {
        let mut sender = self.target.connect().await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
        let uri = self.target.uri("/api/v1/namespaces")?;
        let made = self.target.request(Method::POST, uri, namespace.to_string().into())?;
        exchange(&mut sender, made).await?;
        for (plural, count) in cli.kinds() {
            let (began, cpu) = (Instant::now(), cpu_of(&[self.pid])?.unwrap_or(0));
            let uri = self.target.uri(&format!("/api/v1/namespaces/bench/{plural}"))?;
            let (next, bytes) = (Arc::new(AtomicU64::new(0)), cli.bytes);
            let mut workers = JoinSet::new();
            for mut sender in self.target.senders(CONCURRENCY, 4).await? {
                let (target, uri, next) = (self.target.clone(), uri.clone(), next.clone());
                workers.spawn(async move {
                    loop {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        if nth >= count {
                            return anyhow::Ok(());
                        }
                        let object = if plural == "pods" { pod(nth) } else { config_map(nth, bytes) };
                        let request = target.request(Method::POST, uri.clone(), object.to_string().into())?;
                        exchange(&mut sender, request).await?;
                    }
                });
            }
            while let Some(done) = workers.join_next().await {
                done??;
            }
            let cpu = cpu_of(&[self.pid])?.unwrap_or(0) - cpu;
            let seconds = began.elapsed().as_secs_f64();
            print_line!(
                "filled: {count} {plural} in {seconds:.1} s, {:.0} us of CPU each",
                ratio(cpu, count)
            );
        }
        Ok(())
    }

    /// Prints how the start was, and what memory and file are.
    async fn show(&self, what: &str, cli: &Cli) -> anyhow::Result<()> {
        let at_ready = memory_of(&[self.pid])?.unwrap_or(0);
        tokio::time::sleep(REST).await;
        let rested = memory_of(&[self.pid])?.unwrap_or(0);
        let file = std::fs::metadata(cli.data_dir.join("store.redb")).or_else(|_| found(&cli.data_dir))?;
        let mut sender = self.target.connect().await?;
        let mut live = 0;
        for (plural, count) in cli.kinds() {
            let name = cli.object(plural, 0)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let uri = self.target.uri(&format!("/api/v1/namespaces/bench/{plural}/{name}"))?;
            let one = exchange(&mut sender, self.target.request(Method::GET, uri, Bytes::new())?).await?;
            live += one.len() as u64 * count;
        }
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        print_line!(
            "{what}: ready after {:.2} s, {:.2} s of CPU; memory {:.1} MB, rested {:.1} MB ({:.2} of the objects' bytes); \
             file {:.1} MB ({:.2}), blocks {:.1} MB ({:.2})",
            self.ready.as_secs_f64(),
            self.cpu_us as f64 / 1e6,
            megabytes(at_ready),
            megabytes(rested),
            ratio(rested, live),
            megabytes(file.len()),
            ratio(file.len(), live),
            megabytes(file.blocks() * 512),
            ratio(file.blocks() * 512, live),
        );
        Ok(())
    }

    /// Lists all objects, page by page.
    async fn list(&self, turn: &str, plural: &str, count: u64) -> anyhow::Result<()> {
        let mut sender = self.target.connect().await?;
        let (mut next, mut pages, mut slowest) = (String::new(), 0, Duration::ZERO);
        let (began, cpu) = (Instant::now(), cpu_of(&[self.pid])?.unwrap_or(0));
        loop {
            let path = format!("/api/v1/namespaces/bench/{plural}?limit={PAGE}&continue={next}");
            let sent = Instant::now();
            let page = self.target.request(Method::GET, self.target.uri(&path)?, Bytes::new())?;
            let page = exchange(&mut sender, page).await?;
            slowest = slowest.max(sent.elapsed());
            pages += 1;
            let text = &page[..page.len().min(1000)];
            let text = String::from_utf8_lossy(text);
            let token = text.split_once(r#""continue":""#).and_then(|(_, rest)| rest.split_once('"'));
            match token {
                Some((token, _)) if !token.is_empty() => next = token.to_owned(),
                _ => break,
            }
        }
        ensure!(pages >= count / PAGE, "{pages} pages of {count} objects");
        let cpu = cpu_of(&[self.pid])?.unwrap_or(0) - cpu;
        print_line!(
            "{turn} list of {plural}: {pages} pages in {:.2} s, {:.1} us of CPU per object, the slowest page {:.1} ms",
            began.elapsed().as_secs_f64(),
            ratio(cpu, count),
            slowest.as_secs_f64() * 1e3
        );
        Ok(())
    }
}

/// The store's file, below the data directory.
fn found(folder: &Path) -> std::io::Result<std::fs::Metadata> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path().join("store.redb");
        if path.exists() {
            return path.metadata();
        }
    }
    Err(std::io::ErrorKind::NotFound.into())
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

async fn exchange(sender: &mut Sender, request: Request<Full<Bytes>>) -> anyhow::Result<Bytes> {
    let shown = format!("{} {}", request.method(), request.uri());
    sender.ready().await?;
    let answer = sender.send_request(request).await.with_context(|| shown.clone())?;
    let status = answer.status();
    let body = answer.into_body().collect().await.with_context(|| shown.clone())?.to_bytes();
    if ![StatusCode::OK, StatusCode::CREATED].contains(&status) {
        bail!("{shown}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body)
}

/// A pod with text that does not compress. It is stored with about 7.4 kB.
fn pod(nth: u64) -> Value {
    let mut pod = pods::pod(nth);
    pod["metadata"]["annotations"]["example.com/checksum"] = noise(nth, 300).into();
    pod
}

/// A config map of about so many bytes as it is stored, which does not compress.
fn config_map(nth: u64, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("settings-{nth:07}")},
        "data": {"key": noise(nth, bytes.saturating_sub(400))},
    })
}

/// Text that is the same for the same number, and has no repetitions.
fn noise(nth: u64, bytes: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        DIGITS[(state >> 40) as usize % DIGITS.len()] as char
    };
    (0..bytes).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_size_and_names_of_their_own() {
        let pod = |nth| pod(nth).to_string();
        assert!((2500..3500).contains(&pod(0).len()), "{}", pod(0).len());
        assert_ne!(pod(1), pod(2));
        let map = config_map(3, 1000).to_string();
        assert!((600..1000).contains(&map.len()), "{}", map.len());
        assert_eq!(noise(5, 100), noise(5, 100));
        assert_ne!(noise(5, 100), noise(6, 100));
    }
}
