//! A running cluster.

use crate::options::ClusterOptions;
use anyhow::Context as _;
use client::{Client, Metrics};
use client::{Rate, transport};
use http::{Method, Request};
use outbound::Target;
use pintle::{ClusterThread, Instruments, Users};
use schema::Value;
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempPath;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

/// The user agent of the client.
const AGENT: &str = "pintle-test";
/// A test sends as many requests as it likes.
const UNLIMITED: Rate = Rate { per_second: 0.0, burst: 0 };

/// A cluster in the process of the test. It stops when it is dropped, a fork with its parent at the latest.
pub struct Cluster {
    controls: ClusterControls,
    kubeconfig_file: PathBuf,
    owner: Owner,
}

/// What an administrator does with a cluster.
pub struct ClusterControls {
    client: Client,
}

impl Deref for Cluster {
    type Target = ClusterControls;

    fn deref(&self) -> &ClusterControls {
        &self.controls
    }
}

/// Who stops the cluster.
enum Owner {
    Thread(ClusterThread),
    /// A fork, by its name and a client of the cluster that it was made from, with its kubeconfig.
    Parent {
        name: String,
        parent: Client,
        _kubeconfig: TempPath,
    },
}

/// How the clock of a cluster was moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    /// The time of the cluster after it, as text.
    pub now: String,
    /// Whether nothing changed in the end; `None` if this was not waited for.
    pub is_settled: Option<bool>,
    /// The changes on the way, a line each: the type, the resource, and the name with its namespace.
    pub changes: Vec<String>,
}

impl Cluster {
    /// Starts a cluster, and waits until it is ready.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let instruments = options.instruments.clone();
        let thread = pintle::start_cluster(options.into_flags(), instruments).await?;
        let kubeconfig_file = thread.address.kubeconfig_file.clone();
        let controls = ClusterControls { client: client_of(&kubeconfig_file)? };
        Ok(Cluster { controls, kubeconfig_file, owner: Owner::Thread(thread) })
    }

    /// Runs a test in the thread of a cluster that is there for it alone, with requests in memory. With a manual clock, a
    /// seed and the time of its start among the instruments, everything happens in the same order in every run.
    pub async fn run_inside<T, F>(
        options: ClusterOptions,
        test: impl FnOnce(ClusterControls) -> F + Send + 'static,
    ) -> anyhow::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, ended) = oneshot::channel();
        let users = Users::new(move |client| async move {
            // an unused result: the caller is gone
            let _ = sender.send(test(ClusterControls { client }).await);
        });
        let instruments = options.instruments.unwrap_or_else(|| Instruments::new(unbounded_channel().0));
        let instruments = Some(Instruments { users, ..instruments });
        let cluster = Cluster::start(ClusterOptions { instruments, ..options }).await?;
        let outcome = ended.await.context("the test panicked, or the cluster ended: see the log");
        cluster.stop().await?;
        outcome
    }

    /// The file with the administrator's kubeconfig, as long as the cluster runs.
    pub fn kubeconfig_file(&self) -> &Path {
        &self.kubeconfig_file
    }

    /// A cluster of its own with the objects and keys of this one.
    pub async fn fork(&self) -> anyhow::Result<Cluster> {
        let fork = self.send(Method::POST, "/simulation/clusters", Vec::new()).await?;
        let mut file = tempfile::NamedTempFile::new().context("cannot create the kubeconfig")?;
        file.write_all(fork.text(&["kubeconfig"]).as_bytes()).context("cannot write the kubeconfig")?;
        let file = file.into_temp_path();
        let kubeconfig_file = file.to_path_buf();
        let (name, parent) = (fork.text(&["name"]).to_owned(), self.client.clone());
        let owner = Owner::Parent { name, parent, _kubeconfig: file };
        let controls = ClusterControls { client: client_of(&kubeconfig_file)? };
        Ok(Cluster { controls, kubeconfig_file, owner })
    }

    /// Stops the cluster and its forks, and waits for their end.
    pub async fn stop(self) -> anyhow::Result<()> {
        match self.owner {
            Owner::Thread(thread) => {
                thread.stop().await;
                Ok(())
            }
            Owner::Parent { name, parent, .. } => {
                let path = format!("/simulation/clusters/{name}");
                send(&parent, Method::DELETE, &path, Vec::new()).await.map(drop)
            }
        }
    }
}

impl ClusterControls {
    /// A client of the administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Moves a manual clock forward.
    pub async fn advance(&self, by: Duration) -> anyhow::Result<Movement> {
        self.move_clock(&format!("advance={}ns", by.as_nanos())).await
    }

    /// Moves a manual clock forward until nothing changes any more, by 10 minutes at most. It is an error if the cluster
    /// still changes then.
    pub async fn settle(&self) -> anyhow::Result<Movement> {
        let movement = self.move_clock("settle=10m").await?;
        anyhow::ensure!(
            movement.is_settled != Some(false),
            "the cluster still changes: {:?}",
            movement.changes.last()
        );
        Ok(movement)
    }

    /// Replaces the faults that requests meet by those of a `SimulationFaults` document.
    pub async fn set_faults(&self, document: &str) -> anyhow::Result<()> {
        self.send(Method::PUT, "/simulation/faults", document.as_bytes().to_vec()).await.map(drop)
    }

    /// Removes all faults.
    pub async fn clear_faults(&self) -> anyhow::Result<()> {
        self.send(Method::DELETE, "/simulation/faults", Vec::new()).await.map(drop)
    }

    async fn move_clock(&self, query: &str) -> anyhow::Result<Movement> {
        let state = self.send(Method::POST, &format!("/simulation/clock?{query}"), Vec::new()).await?;
        let line = |change: &Value| {
            let [kind, resource, namespace, name] =
                ["type", "resource", "namespace", "name"].map(|field| change.text(&[field]));
            let divider = if namespace.is_empty() { "" } else { "/" };
            format!("{kind} {resource} {namespace}{divider}{name}")
        };
        Ok(Movement {
            now: state.text(&["now"]).to_owned(),
            is_settled: state.at(&["settled"]).and_then(Value::as_bool),
            changes: state.items(&["changes"]).iter().map(line).collect(),
        })
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        send(&self.client, method, path, body).await
    }
}

async fn send(client: &Client, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Value> {
    let request = Request::builder().method(method).uri(path).body(body)?;
    let answer = client.request_bytes(request).await?;
    Ok(schema::decode::json_untyped(&answer).context("the server's answer cannot be read")?.value)
}

fn client_of(kubeconfig: &Path) -> anyhow::Result<Client> {
    let target = Target::from_kubeconfig(kubeconfig)?;
    let transport = transport::transport(&target, AGENT, &Metrics::default())?;
    Ok(transport::client(&transport, UNLIMITED, &pintle::real_world()?))
}
