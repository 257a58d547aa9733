//! `pintle runtime`: the embedded container runtime, served as the CRI v1 to a kubelet, to `crictl`, or to another agent.

use crate::cni_plugin;
use crate::logs::Logs;
use crate::signals::Signals;
use anyhow::Context as _;
use clap::Args;
use env::World;
use nodeagent::assembly::embedded_runtime;
use nodeagent::cri_server::{CriServer, CriServerOptions};
use runtime::containers::cni::CniFolders;
use runtime::containers::{EmbeddedOptions, EmbeddedRuntime};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const RUNTIME_EXAMPLES: &str = "\
Examples:
  pintle runtime
      Serve the CRI at /run/pintle/runtime.sock. Sandboxes get their network from the CNI plugins of the machine.

  kubelet --container-runtime-endpoint unix:///run/pintle/runtime.sock ...
  crictl --runtime-endpoint unix:///run/pintle/runtime.sock pods

Containers go on while the server is stopped, and are found again by the next one.";

/// The flags of `pintle runtime`.
#[derive(Debug, Clone, Args)]
pub struct RuntimeArgs {
    /// The socket of the server: a path, or unix:// with a path
    #[arg(long, value_name = "SOCKET", default_value = "unix:///run/pintle/runtime.sock")]
    listen: String,

    /// The directory of images and containers; pintle images takes it as --root-dir, too
    #[arg(long, value_name = "DIR", default_value = "/var/lib/pintle")]
    root_dir: PathBuf,

    /// The directory of the sockets of pods; its path must be short
    #[arg(long, value_name = "DIR", default_value = "/run/pintle/runtime")]
    run_dir: PathBuf,

    /// The directory of CNI configurations, of which the first counts
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,

    /// The directories of CNI plugins, comma-separated
    #[arg(long, value_name = "DIRS", value_delimiter = ',', default_value = "/opt/cni/bin,/usr/lib/cni")]
    cni_bin_dir: Vec<PathBuf>,

    /// The folder with mirrors and authorities of registries (HOST/hosts.toml)
    #[arg(long, value_name = "DIR", default_value = "/etc/pintle/registries")]
    registries: PathBuf,

    /// The folder with links to external OCI runtimes, by the handlers of runtime classes
    #[arg(long, value_name = "DIR", default_value = "/etc/pintle/runtime-handlers")]
    runtime_handlers: PathBuf,

    /// The address of exec, attach and port-forward streams, over HTTP; port 0 is any
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    stream_address: SocketAddr,

    /// The time without data after which a stream ends; 0 is no limit
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = crate::flags::any_duration)]
    stream_idle_timeout: Duration,

    #[command(flatten)]
    pub logs: Logs,
}

impl RuntimeArgs {
    fn options(&self) -> EmbeddedOptions {
        EmbeddedOptions {
            run: self.run_dir.clone(),
            cni: CniFolders {
                configurations: self.cni_conf_dir.clone(),
                plugins: self.cni_bin_dir.clone(),
                built_in: Some(cni_plugin::BUILT_IN),
            },
            registries: self.registries.clone(),
            handlers: self.runtime_handlers.clone(),
            ..embedded_runtime::options(&self.root_dir, Some(cni_plugin::BUILT_IN))
        }
    }
}

/// Serves the runtime until a signal arrives.
pub async fn runtime_server(args: RuntimeArgs, world: World) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    if let Some(why) = embedded_runtime::missing() {
        anyhow::bail!("this machine cannot run containers: {why}");
    }
    let socket = Path::new(args.listen.strip_prefix("unix://").unwrap_or(&args.listen));
    anyhow::ensure!(socket.is_absolute(), "--listen: {} is no absolute path of a socket", args.listen);
    let options = args.options();
    for directory in [socket.parent(), Some(&options.root)].into_iter().flatten() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    let _lock = lock(&options.root.join("server.lock"))?;
    let opened = EmbeddedRuntime::open(options, world.clone());
    let runtime = opened.context("cannot open the runtime")?;
    let server = CriServer::bind(
        socket,
        CriServerOptions {
            runtime: Arc::new(runtime),
            world,
            stream_address: args.stream_address,
            stream_idle_timeout: args.stream_idle_timeout,
        },
    );
    let server = server.await.with_context(|| format!("cannot listen at {}", socket.display()))?;
    tracing::info!(socket = %socket.display(), "the container runtime is ready");
    tokio::select! {
        () = signals.next() => {}
        () = server.serve() => {}
    }
    tracing::info!("stopped; containers go on");
    Ok(())
}

/// Takes the lock of the runtime's directory, which is released with the file.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.try_lock().map_err(|_| {
        anyhow::anyhow!("another process serves the runtime of this directory ({})", path.display())
    })?;
    Ok(file)
}
