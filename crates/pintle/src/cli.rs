//! The command line: commands, help texts, version.
//!
//! Invariants: all errors of a command line are reported on stderr, one line each, the last with a hint, with exit
//! status 2; help and version go to stdout with status 0.

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::adopt::AdoptArgs;
use crate::assets::{ASSETS_EXAMPLES, AssetsArgs};
use crate::deployment_mode::DeploymentMode;
use crate::dns::{Dns, DnsFlags};
use crate::etcd_server;
use crate::flags::{self, ParseError, ParsedLine};
use crate::images::ImagesArgs;
use crate::options::{
    Apiserver, CHECK_EXAMPLES, CLOCK_EXAMPLES, COMPLETION_EXAMPLES, CheckArgs, ClockArgs, ClockFlags,
    ClockMode, CompletionArgs, ControllerManager, Controllers, FAULTS_EXAMPLES, FaultFlags, FaultsArgs, Join,
    LeaderElection, Leave, ManArgs, Network, Scheduler, Token,
};
use crate::runtime_server::{RUNTIME_EXAMPLES, RuntimeArgs};
use crate::snapshot::{MigrateArgs, SnapshotArgs};

/// The version line of `pintle version` and `--version`.
pub fn version() -> String {
    format!("pintle {} (Kubernetes API 1.26)", env!("CARGO_PKG_VERSION"))
}

/// The version line for links with an upstream name: tools parse it.
fn upstream_version() -> String {
    format!("Kubernetes {}", apiserver::discovery::version::compatible())
}

/// A Kubernetes-compatible control plane in one small binary.
#[derive(Debug, Parser)]
#[command(name = "pintle", disable_version_flag = true, subcommand_required = true, after_help = CLI_EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Warnings about the given flags, for the log.
    #[arg(skip)]
    pub warnings: Vec<String>,
}

const CLI_EXAMPLES: &str = "\
Examples:
  pintle up                  a control plane on https://127.0.0.1:6443, stored in your data directory
  pintle up --ephemeral      the same in memory, gone when stopped
  pintle up --help           all flags
  pintle apiserver --help    the API server alone
  pintle controller-manager --help
                             the control loops alone
  pintle scheduler --help    the scheduler alone
  pintle nodeagent --help    the pods of this node
  pintle dns --help          cluster DNS alone
  pintle network --help      the pod network of this node
  pintle token --help        tokens with which machines join
  pintle join --help         make this machine a node of a cluster
  pintle leave --help        take it out again
  pintle images --help       images of the embedded runtime
  pintle runtime --help      the embedded runtime for a kubelet or crictl
  pintle convert --help      convert objects between JSON, YAML and protobuf
  pintle snapshot --help     save and restore all objects
  pintle migrate --help      from the embedded store to an etcd, and back
  pintle adopt --help        from an upstream cluster, without its objects being moved
  pintle clock --help        the time of a cluster for tests
  pintle faults --help       faults that requests to it meet
  pintle etcd --help         the etcd v3 API from an embedded store
  pintle assets --help       for test suites that start kube-apiserver and etcd
  pintle check               what this machine lacks for running pods
  pintle completion --help   completions for your shell";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a control plane and run until stopped with Ctrl-C
    #[command(after_help = UP_EXAMPLES)]
    Up(Box<Up>),
    /// Start the API server alone
    #[command(after_help = APISERVER_EXAMPLES)]
    Apiserver(Box<Apiserver>),
    /// Start the control loops alone, against another API server
    #[command(after_help = CONTROLLER_MANAGER_EXAMPLES)]
    ControllerManager(Box<ControllerManager>),
    /// Start the scheduler alone, against another API server
    #[command(after_help = SCHEDULER_EXAMPLES)]
    Scheduler(Box<Scheduler>),
    /// Run the pods of this node
    #[command(disable_help_flag = true)]
    Nodeagent(Nodeagent),
    /// Start cluster DNS alone, against another API server
    #[command(after_help = DNS_EXAMPLES)]
    Dns(Box<Dns>),
    /// Manage the tokens with which machines join the cluster
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(Token),
    /// Make this machine a node of a cluster, and run it until stopped with Ctrl-C
    #[command(after_help = JOIN_EXAMPLES)]
    Join(Box<Join>),
    /// Move the pods of this machine to other nodes, and take it out of its cluster
    Leave(Leave),
    /// Keep the pod network of this node: addresses of pods, and routes to the pods of other nodes
    #[command(after_help = NETWORK_EXAMPLES)]
    Network(Box<Network>),
    /// Serve the addresses of services on this node
    #[command(disable_help_flag = true)]
    Proxy(Proxy),
    /// Serve the etcd v3 API from an embedded store
    #[command(disable_help_flag = true)]
    Etcd(Etcd),
    /// Make a directory with links named kube-apiserver and etcd, for KUBEBUILDER_ASSETS
    #[command(after_help = ASSETS_EXAMPLES)]
    Assets(AssetsArgs),
    /// Convert objects between JSON, YAML and protobuf, without a server
    Convert(Convert),
    /// List, pull, import, export and remove the images of the embedded runtime
    Images(ImagesArgs),
    /// Serve the embedded container runtime as the CRI
    #[command(after_help = RUNTIME_EXAMPLES)]
    Runtime(Box<RuntimeArgs>),
    /// Save, check or restore all objects of a cluster
    Snapshot(SnapshotArgs),
    /// Move all objects between the embedded store and an etcd
    Migrate(Box<MigrateArgs>),
    /// List what will differ if a server takes over the etcd of an upstream cluster
    Adopt(Box<AdoptArgs>),
    /// Show or move the clock of a cluster that was started with --clock manual
    #[command(after_help = CLOCK_EXAMPLES)]
    Clock(ClockArgs),
    /// Show or replace the faults that requests to a cluster for tests meet
    #[command(after_help = FAULTS_EXAMPLES)]
    Faults(FaultsArgs),
    /// Say what this machine lacks for running pods, and how to get it
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Print the completions of a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(CompletionArgs),
    /// Write the manual pages
    Man(ManArgs),
    /// Print the version
    Version,
}

const UP_EXAMPLES: &str = "\
Examples:
  pintle up
      Start on https://127.0.0.1:6443, with certificates and a kubeconfig made at the first start.
      Then, in another terminal:
          export KUBECONFIG=~/.local/share/pintle/admin.kubeconfig
          kubectl get namespaces

  pintle up --ephemeral --secure-port 0 --write-kubeconfig ./test.kubeconfig
      For tests: no state is kept, the port is chosen by the system and written to the kubeconfig.

  pintle up --etcd-servers http://10.0.0.1:2379 --cluster-token-file token --data-dir /var/lib/pintle
      One of several servers on an etcd. The first is started without a token, and makes one: pki/cluster.token in its
      data directory.

  pintle up --data-dir /var/lib/pintle --bind-address 0.0.0.0 --tls-san cluster.example.org
      For other machines: listen on all addresses, with a certificate for that name.

The log goes to stderr. PINTLE_LOG overrides -v and sets levels of modules:
PINTLE_LOG=warn,apiserver=debug";

#[derive(Debug, Clone, Args)]
pub struct Up {
    /// The KubeSchedulerConfiguration file of the scheduler: profiles, plugins, extenders
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,

    /// The KubeletConfiguration file of the node agent
    #[arg(long, value_name = "FILE")]
    pub nodeagent_config: Option<PathBuf>,

    /// The KubeProxyConfiguration file of the service proxy
    #[arg(long, value_name = "FILE")]
    pub proxy_config: Option<PathBuf>,

    /// The number of simulated nodes: their pods run without containers, as their annotations say
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,

    /// The SimulationProfile file: shapes of simulated nodes, and how pods behave on them
    #[arg(long, value_name = "FILE")]
    pub simulation_profile: Option<PathBuf>,

    /// The container runtime of this machine: auto (a containerd, CRI-O or cri-dockerd that serves the CRI, otherwise
    /// embedded), embedded (in this process), or the socket of another one
    #[arg(long, value_name = "auto|embedded|PATH", default_value = "auto")]
    pub runtime: String,

    /// The components to run, comma-separated [default: apiserver,controller-manager,scheduler, and
    /// nodeagent,network,proxy,dns,metrics where the process is root and the kernel has what containers need]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Component::parse)]
    pub components: Option<Vec<Component>>,

    /// The file with the token of the cluster in an etcd: a further server takes authorities and keys from there with it.
    /// The first server makes one, cluster.token in the folder pki of its data directory
    #[arg(long, value_name = "FILE")]
    pub cluster_token_file: Option<PathBuf>,

    /// Begin with the objects of this file of pintle snapshot save, and with the keys and certificates in it. A manual
    /// clock begins with its time. For clusters in memory
    #[arg(long, value_name = "FILE", requires = "ephemeral", conflicts_with = "etcd_servers")]
    pub from: Option<PathBuf>,

    #[command(flatten)]
    pub clock: ClockFlags,

    #[command(flatten)]
    pub faults: FaultFlags,

    #[command(flatten)]
    pub dns: DnsFlags,

    #[command(flatten)]
    pub server: Apiserver,

    #[command(flatten)]
    pub loops: Controllers,

    #[command(flatten)]
    pub leader_election: LeaderElection,
}

impl Up {
    /// The deployment mode of the API server.
    pub fn mode(&self) -> DeploymentMode {
        DeploymentMode::AllInOne { runs_controllers: self.runs(Component::ControllerManager) }
    }

    /// Whether a component is to run. Those of a machine run by default where they can, unless nodes are simulated.
    pub fn runs(&self, component: Component) -> bool {
        let is_of_test = self.simulates_nodes() || self.clock.clock == ClockMode::Manual;
        match &self.components {
            Some(components) => components.contains(&component),
            None => !is_of_test || component.follows_clock(),
        }
    }

    /// Whether it is a cluster for tests, whose behaviour its users may change.
    pub fn is_simulation(&self) -> bool {
        self.simulates_nodes() || self.clock.clock == ClockMode::Manual || self.faults.faults.is_some()
    }

    fn simulates_nodes(&self) -> bool {
        self.nodes.is_some() || self.simulation_profile.is_some()
    }
}

const APISERVER_EXAMPLES: &str = "\
Examples:
  pintle apiserver --tls-cert-file server.crt --tls-private-key-file server.key --client-ca-file ca.crt \\
      --service-account-issuer https://cluster.example.org --service-account-signing-key-file sa.key \\
      --service-account-key-file sa.pub --authorization-mode Node,RBAC --data-dir /var/lib/pintle
      The API server as a component of a cluster: it uses only the given certificates and keys, and trusts only
      the given client authority.

  pintle apiserver --data-dir /var/lib/pintle --authorization-mode Node,RBAC
      The first start makes the missing certificates and keys, and a kubeconfig for the administrator.

All flags of upstream's API server are accepted, in its syntax, with its defaults; docs/flags.md lists those without
effect. A link to this program named kube-apiserver or cluster-apiserver runs this command.";

const CONTROLLER_MANAGER_EXAMPLES: &str = "\
Examples:
  pintle controller-manager --kubeconfig manager.kubeconfig --use-service-account-credentials \\
      --authentication-kubeconfig manager.kubeconfig --authorization-kubeconfig manager.kubeconfig \\
      --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key \\
      --service-account-private-key-file sa.key --root-ca-file ca.crt
      All control loops against the API server of the kubeconfig, each with its own service account.

  pintle controller-manager --kubeconfig admin.kubeconfig --controllers '*,-deployment' --leader-elect=false
      All control loops but one, without leader election.

All flags of upstream's controller manager are accepted, in its syntax, with its defaults; docs/flags.md lists those
without effect. A link to this program named kube-controller-manager or cluster-controller-manager runs this command.";

const SCHEDULER_EXAMPLES: &str = "\
Examples:
  pintle scheduler --write-config-to scheduler.yaml
      Write the default configuration, and quit. Change in it: clientConnection.kubeconfig, the profiles with their
      plugins and arguments, extenders. Fields that are left out keep their defaults.

  pintle scheduler --config scheduler.yaml --authentication-kubeconfig scheduler.kubeconfig \\
      --authorization-kubeconfig scheduler.kubeconfig
      Schedule the pods of the API server that the configuration names. All mistakes of the file are reported.

  pintle scheduler --kubeconfig admin.kubeconfig --leader-elect=false
      The default profile, without leader election.

  kubectl describe pod NAME
      The event FailedScheduling says why a pod waits; its condition PodScheduled has the same message.

All flags of upstream's scheduler are accepted, in its syntax, with its defaults; docs/flags.md lists those without
effect. A link to this program named kube-scheduler or cluster-scheduler runs this command.";
/// The node agent parses its own command line: its flags override the fields of its configuration file.
#[derive(Debug, Clone, Args)]
pub struct Nodeagent {
    /// The flags of upstream's kubelet; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub arguments: Vec<String>,
}

impl Nodeagent {
    /// The arguments of the agent, if a command line runs it: `pintle nodeagent`, or a link named like the agent.
    fn find(arguments: &[OsString], called: &str) -> Option<Self> {
        let names = [names::Names::kubernetes(), names::Names::neutral("", "")];
        let skipped = match arguments.get(1) {
            _ if names.iter().any(|it| it.agent == called) => 1,
            Some(word) if word == "nodeagent" => 2,
            _ => return None,
        };
        let rest = arguments.iter().skip(skipped);
        Some(Nodeagent { arguments: rest.map(|it| it.to_string_lossy().into_owned()).collect() })
    }
}

const DNS_EXAMPLES: &str = "\
Examples:
  pintle dns --kubeconfig dns.kubeconfig --cluster-ip 10.96.0.10
      Answer for the services and pods of the cluster on this node's address, port 10053, and add this server to the
      service kube-dns, which is created if there is none. Its user needs list and watch of services, endpointslices,
      namespaces and nodes, and in the system namespace all verbs of services and endpointslices.

  pintle dns --kubeconfig dns.kubeconfig --announce=false --dns-bind-address 127.0.0.1:5353
      Look names up by hand: dig @127.0.0.1 -p 5353 kubernetes.default.svc.cluster.local

  pintle dns --kubeconfig dns.kubeconfig --dns-stub-domain corp.example=10.1.0.53 --dns-upstream 9.9.9.9
      Names of one domain from a server of their own, all others from another.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  pintle token create
      Create a token for a day, and print the command that makes another machine a node. The server must listen on an
      address that the machine reaches: pintle up --bind-address 0.0.0.0

  pintle token create --ttl 30m --description 'for the new rack'
  pintle token list
  pintle token delete abcdef";

const JOIN_EXAMPLES: &str = "\
Examples:
  pintle join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:...
      The line that pintle token create prints. The hash proves that the server is the right one.

  pintle join
      Continue after a stop: the machine has its own certificate by then.

  pintle join https://10.0.0.2:6443
      Continue after the server has got another address.";

const NETWORK_EXAMPLES: &str = "\
Examples:
  pintle network --kubeconfig /var/lib/kubelet/kubeconfig
      Beside a node agent of its own process. Nodes must have pod ranges (--allocate-node-cidrs of the controller
      manager). A CNI configuration of another network is left alone, and used.

The program is its own CNI plugin: links named pintle-cni and loopback in the folder of plugins lead to it.";

/// The service proxy parses its own command line: its flags are fields of its configuration file.
#[derive(Debug, Clone, Args)]
pub struct Proxy {
    /// The flags of upstream's proxy; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub arguments: Vec<String>,
}

impl Proxy {
    /// The arguments of the proxy, if a command line runs it: `pintle proxy`, or a link such as `kube-proxy`.
    fn find(arguments: &[OsString], called: &str) -> Option<Self> {
        let names = [names::Names::kubernetes(), names::Names::neutral("", "")];
        let skipped = match arguments.get(1) {
            _ if names.iter().any(|it| format!("{}-proxy", it.prefix) == called) => 1,
            Some(word) if word == "proxy" => 2,
            _ => return None,
        };
        let rest = arguments.iter().skip(skipped);
        Some(Proxy { arguments: rest.map(|it| it.to_string_lossy().into_owned()).collect() })
    }
}

/// The etcd server parses its own command line, in Go's syntax.
#[derive(Debug, Clone, Args)]
pub struct Etcd {
    /// The flags of etcd; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub arguments: Vec<String>,
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  pintle convert -f pod.yaml -o json
  pintle convert -f objects.yaml -o json
      Several documents become a sequence of JSON texts.

  kubectl get pods -o json | pintle convert -f - -o yaml

  pintle convert -f pod.yaml -o protobuf --out pod.pb
  curl ... -H 'Content-Type: application/vnd.kubernetes.protobuf' --data-binary @pod.pb
      The protobuf format of the API: the four bytes k8s\\0 and an envelope with version and kind.

  etcdctl get /registry/pods/default/web --print-value-only | pintle convert -f - -o yaml
      A value of a cluster in etcd. A preceding key, a trailing newline, and base64 are accepted.

The format of the input is detected. Objects are not defaulted, and validated only by type: JSON and YAML keep every
field, also unknown ones. Protobuf cannot encode unknown fields and kinds that are not built in, so these are errors.";

#[derive(Debug, Clone, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct Convert {
    /// The input file: JSON, YAML with one or more documents, or protobuf; - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: PathBuf,

    /// The output format
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Format::Yaml)]
    pub output: Format,

    /// The output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// A component of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Apiserver,
    /// The control loops.
    ControllerManager,
    Scheduler,
    /// The pods of this machine.
    Nodeagent,
    /// Cluster DNS.
    Dns,
    /// The addresses of pods.
    Network,
    /// The resource metrics API: usage of nodes and pods.
    Metrics,
    /// The addresses of services, on this machine.
    Proxy,
}

impl Component {
    const ALL: &[(&str, Self)] = &[
        ("apiserver", Self::Apiserver),
        ("controller-manager", Self::ControllerManager),
        ("scheduler", Self::Scheduler),
        ("nodeagent", Self::Nodeagent),
        ("dns", Self::Dns),
        ("network", Self::Network),
        ("metrics", Self::Metrics),
        ("proxy", Self::Proxy),
    ];

    /// Whether it goes by the clock of the cluster alone, rather than by that of the machine.
    pub fn follows_clock(self) -> bool {
        matches!(self, Self::Apiserver | Self::ControllerManager | Self::Scheduler | Self::Metrics)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, component)| *component).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("unknown component; the components are {}", names.join(", "))
        })
    }
}

/// The outcome of a command line that runs nothing: help or version, or errors.
#[derive(Debug, PartialEq, Eq)]
pub enum EarlyExit {
    Help(String),
    ConfigErrors(Vec<String>),
}

impl EarlyExit {
    /// Prints the text or the errors and returns the exit status.
    pub fn report(&self) -> ExitCode {
        // a closed terminal is not an error
        match self {
            Self::Help(text) => {
                let _ = write!(stdout(), "{text}");
                ExitCode::SUCCESS
            }
            Self::ConfigErrors(problems) => {
                for problem in problems {
                    let _ = writeln!(stderr(), "pintle: {problem}");
                }
                ExitCode::from(2)
            }
        }
    }
}

impl Cli {
    /// Parses the command line, program name first; a program name such as `kube-apiserver` selects a command. If some
    /// flags are invalid, `check` reports the errors in the values of the others, so that one run shows all of them.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        check: impl Fn(&Command) -> Vec<String>,
    ) -> Result<Self, EarlyExit> {
        let mut arguments: Vec<_> = arguments.into_iter().collect();
        let program = flags::complete(Self::command());
        let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        let called = called.to_string_lossy().into_owned();
        if let Some(agent) = Nodeagent::find(&arguments, &called) {
            return Ok(Self { command: Command::Nodeagent(agent), warnings: Vec::new() });
        }
        if let Some(proxy) = Proxy::find(&arguments, &called) {
            return Ok(Self { command: Command::Proxy(proxy), warnings: Vec::new() });
        }
        if let Some(arguments) = etcd_server::is_called(&arguments, &called) {
            return Ok(Self { command: Command::Etcd(Etcd { arguments }), warnings: Vec::new() });
        }
        let linked = flags::command_of(&program, &called);
        if let Some(command) = linked {
            arguments.insert(1, command.into());
        }
        let version = if linked.is_some() { upstream_version() } else { version() };
        if let Some(version) = version_exit(&arguments, version) {
            return version;
        }
        let help = match arguments.get(1).and_then(|name| program.find_subcommand(name)) {
            _ if linked.is_some() => format!("{called} --help"),
            Some(command) => format!("pintle {} --help", command.get_name()),
            None => "pintle --help".to_owned(),
        };
        match flags::read(&program, &arguments) {
            Ok(ParsedLine { matches, warnings }) => {
                let cli = Self::from_matches(&matches)
                    .map_err(|why| EarlyExit::ConfigErrors(vec![why.to_string()]))?;
                Ok(Self { warnings, ..cli })
            }
            Err(ParseError::Help(text)) => Err(EarlyExit::Help(text)),
            Err(ParseError::ConfigErrors(mut problems, rest)) => {
                let rest = rest.and_then(|matches| Self::from_matches(&matches).ok());
                problems.extend(rest.map(|cli| check(&cli.command)).unwrap_or_default());
                if let Some(last) = problems.last_mut() {
                    last.push_str(&format!(" (see '{help}')"));
                }
                Err(EarlyExit::ConfigErrors(problems))
            }
        }
    }
}

impl Cli {
    fn from_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut cli = Self::from_arg_matches(matches)?;
        if let (Command::Scheduler(args), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            args.note_given(matches);
        }
        Ok(cli)
    }
}

/// The version text, if `--version` is given; `--version=raw` prints all fields.
fn version_exit(arguments: &[OsString], version: String) -> Option<Result<Cli, EarlyExit>> {
    let words = arguments.iter().skip(1).take_while(|word| *word != "--");
    let value = words.filter_map(|word| word.to_str()).find_map(|word| match word {
        "--version" => Some("true"),
        "-V" if arguments.len() == 2 => Some("true"),
        _ => word.strip_prefix("--version="),
    })?;
    let text = match value {
        "raw" => String::from_utf8_lossy(&apiserver::discovery::version::json()).into_owned(),
        _ => match flags::parse_bool(value) {
            Some(true) => version,
            Some(false) => return None,
            None => {
                return Some(Err(EarlyExit::ConfigErrors(vec![
                    "--version takes true, false or raw".to_owned(),
                ])));
            }
        },
    };
    Some(Err(EarlyExit::Help(text + "\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, EarlyExit> {
        Cli::read(line.split(' ').map(OsString::from), crate::config_errors)
    }

    fn up(line: &str) -> Up {
        match read(line).unwrap().command {
            Command::Up(up) => *up,
            other => panic!("{other:?}"),
        }
    }

    fn errors(line: &str) -> String {
        match read(line).unwrap_err() {
            EarlyExit::ConfigErrors(problems) => problems.join("\n"),
            help => panic!("{help:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        flags::complete(Cli::command()).debug_assert();
    }

    #[test]
    fn defaults_listen_on_this_machine() {
        let up = up("pintle up");
        assert_eq!((up.server.bind_address.to_string().as_str(), up.server.secure_port), ("127.0.0.1", 6443));
        assert!(up.components.is_none() && Component::ALL.iter().all(|(_, it)| up.runs(*it)));
        assert_eq!(up.server.authorization.authorization_mode, [auth::Mode::Node, auth::Mode::Rbac]);
        let Apiserver { store, write_kubeconfig, logs, .. } = &up.server;
        assert!(
            !store.ephemeral && store.data_dir.is_none() && write_kubeconfig.is_none() && logs.verbosity == 0
        );
    }

    #[test]
    fn components_are_chosen() {
        let up = up("pintle up --components apiserver,nodeagent");
        assert!(up.runs(Component::Apiserver) && up.runs(Component::Nodeagent));
        assert!(!up.runs(Component::Scheduler) && !up.runs(Component::ControllerManager));
    }

    #[test]
    fn links_named_like_the_proxy_run_it() {
        for line in
            ["pintle proxy --cleanup -v=2", "/bin/kube-proxy --cleanup -v=2", "cluster-proxy --cleanup -v=2"]
        {
            let Command::Proxy(proxy) = read(line).unwrap().command else { panic!("{line}") };
            assert_eq!(proxy.arguments, ["--cleanup", "-v=2"]);
        }
    }

    #[test]
    fn flags_are_read() {
        let up = &up("pintle up --data-dir d --bind-address :: --secure-port 0 --write-kubeconfig k -vv \
                     --components apiserver --tls-san a --tls-san b")
        .server;
        assert_eq!(up.store.data_dir, Some("d".into()));
        assert_eq!((up.bind_address.to_string().as_str(), up.secure_port), ("::", 0));
        assert_eq!(up.write_kubeconfig, Some("k".into()));
        assert_eq!((&up.tls_san, up.logs.verbosity), (&vec!["a".to_owned(), "b".to_owned()], 2));
        let up = &super::tests::up(
            "pintle up --runtime-config api/all=false,v1 --runtime-config batch/v1=true \
                     --allow-privileged --event-ttl 1h30m",
        )
        .server;
        assert_eq!(up.runtime_config, ["api/all=false", "v1", "batch/v1=true"]);
        assert!(up.allow_privileged && up.event_ttl.as_secs() == 5400);
        assert!(!super::tests::up("pintle up --allow-privileged=false").server.allow_privileged);
    }

    #[test]
    fn mistakes_are_one_line_with_a_hint() {
        for (line, part) in [
            ("pintle", "try 'pintle up'"),
            ("pintle down", "unrecognized subcommand 'down'"),
            ("pintle up --epemeral", "--ephemeral"),
            ("pintle up --secure-port 70000", "70000"),
            ("pintle up --bind-address here", "here"),
            ("pintle up --secure-port", "a value is required"),
            ("pintle up --components apiserver,kubelet", "the components are apiserver, controller-manager"),
            (
                "pintle up --authorization-mode RBAC,Roles",
                "the modes are AlwaysAllow, AlwaysDeny, ABAC, Webhook",
            ),
            ("pintle up --event-ttl 5", "not a duration"),
            ("pintle up --event-ttl 1ms", "at least a second"),
            ("pintle up --allow-privileged=perhaps", "perhaps"),
            ("pintle up --ephemeral --data-dir x", "cannot be used with"),
            ("pintle convert -o json", "--filename"),
            ("pintle convert -f x -o xml", "json, yaml, protobuf"),
            ("pintle up --service-cluster-ip-range 10.0.0.0", "such as 10.0.0.0/16"),
            ("pintle up --service-node-port-range 9-8", "such as 30000-32767"),
        ] {
            let message = errors(line);
            assert!(message.contains(part) && message.lines().count() == 1, "{line}: {message}");
            assert!(!message.starts_with("error"), "{message}");
        }
        assert!(errors("pintle up --nonsense").ends_with("(see 'pintle up --help')"));
        assert!(errors("pintle convert").ends_with("(see 'pintle convert --help')"));
    }

    #[test]
    fn help_teaches_and_is_no_mistake() {
        let Err(EarlyExit::Help(text)) = read("pintle up --help") else { panic!("no help") };
        for part in ["kubectl get namespaces", "~/.local/share/pintle", "6443", "127.0.0.1"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        let Err(EarlyExit::Help(text)) = read("pintle convert --help") else { panic!("no help") };
        assert!(text.contains("etcdctl get") && text.contains("k8s\\0"), "{text}");
        assert_eq!(read("pintle --version").unwrap_err(), EarlyExit::Help(version() + "\n"));
        assert!(matches!(read("pintle version").unwrap().command, Command::Version));
    }
}
