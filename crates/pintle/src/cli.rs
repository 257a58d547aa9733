//! The command line.
//!
//! What always holds: a wrong command line is told in one line with a hint, on stderr, with status 2; help
//! and version go to stdout with status 0.

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use kinds::service::{Network, PortRange};

use crate::options::{
    Admission, Audit, Authentication, Authorization, ControllerManager, Features, Limits, Tls,
};

/// The version line of `pintle version` and `--version`.
pub fn version() -> String {
    format!("pintle {} (Kubernetes API 1.26)", env!("CARGO_PKG_VERSION"))
}

/// A Kubernetes-compatible control plane in one small binary.
#[derive(Debug, Parser)]
#[command(name = "pintle", disable_version_flag = true, subcommand_required = true, after_help = CLI_EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const CLI_EXAMPLES: &str = "\
Examples:
  pintle up                  a control plane on https://127.0.0.1:6443, kept in your data directory
  pintle up --ephemeral      the same, kept in memory and gone when stopped
  pintle up --help           everything that can be set
  pintle convert --help      turn objects between JSON, YAML and protobuf";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a control plane and run until stopped with Ctrl-C
    Up(Box<Up>),
    /// Start the control loops alone, against an API server elsewhere
    ControllerManager(Box<ControllerManager>),
    /// Turn objects between JSON, YAML and protobuf, without a server
    Convert(Convert),
    /// Print the version
    Version,
}

const UP_EXAMPLES: &str = "\
Examples:
  pintle up
      Start on https://127.0.0.1:6443, with certificates and a kubeconfig made by the first start.
      Then, in another terminal:
          export KUBECONFIG=~/.local/share/pintle/admin.kubeconfig
          kubectl get namespaces

  pintle up --ephemeral --secure-port 0 --write-kubeconfig ./test.kubeconfig
      For tests: nothing is kept, any free port is taken, and the kubeconfig says which.

  pintle up --data-dir /var/lib/pintle --bind-address 0.0.0.0 --tls-san cluster.example.org
      For other machines: listen on all addresses, with a certificate for that name.

The log goes to stderr. PINTLE_LOG overrides -v and selects by part of the program:
PINTLE_LOG=warn,apiserver=debug";

#[derive(Debug, Clone, Args)]
#[command(after_help = UP_EXAMPLES)]
pub struct Up {
    /// Where state, certificates and kubeconfig are kept [default: $XDG_DATA_HOME/pintle, or
    /// ~/.local/share/pintle]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,

    /// The address to listen on; the default is reached from this machine only, 0.0.0.0 from everywhere
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind_address: IpAddr,

    /// The port to listen on; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,

    /// A further name or address by which clients reach the server (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub tls_san: Vec<String>,

    /// Where to write the administrator's kubeconfig [default: admin.kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// API versions and resources to serve or not, with commas between: apps/v1=false,
    /// resource.k8s.io/v1alpha1, apps/v1/daemonsets=false, api/all, api/ga, api/beta, api/alpha
    #[arg(long, value_name = "KEY=BOOL", value_delimiter = ',')]
    pub runtime_config: Vec<String>,

    /// Let containers run as if they were the host
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub allow_privileged: bool,

    /// How long events are kept: 1h, 30m, 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    pub event_ttl: Duration,

    /// How many objects a request to delete a whole collection deletes at a time
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1)]
    pub delete_collection_workers: u16,

    /// The range of addresses for services, as network/prefix; with a comma one of each address family
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = network, default_value = "10.0.0.0/16")]
    pub service_cluster_ip_range: Vec<Network>,

    /// The ports on nodes that are given to services, first and last
    #[arg(long, value_name = "FROM-TO", value_parser = port_range, default_value = "30000-32767")]
    pub service_node_port_range: PortRange,

    /// The address by which pods reach the server [default: the one listened on, or that of the way out]
    #[arg(long, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,

    /// Keep everything in memory: nothing is read from or written to disk but the kubeconfig. Without
    /// --write-kubeconfig that one is a temporary file, removed at the end
    #[arg(long)]
    pub ephemeral: bool,

    /// The components to run, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Component::parse, default_value = "apiserver,controller-manager")]
    pub components: Vec<Component>,

    /// Log more: -v what happens, -vv why, -vvv everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub authentication: Authentication,

    #[command(flatten)]
    pub authorization: Authorization,

    #[command(flatten)]
    pub admission: Admission,

    #[command(flatten)]
    pub features: Features,

    #[command(flatten)]
    pub limits: Limits,

    #[command(flatten)]
    pub audit: Audit,
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  pintle convert -f pod.yaml -o json
  pintle convert -f objects.yaml -o json
      Several documents become several JSON texts, one after the other.

  kubectl get pods -o json | pintle convert -f - -o yaml

  pintle convert -f pod.yaml -o protobuf --out pod.pb
  curl ... -H 'Content-Type: application/vnd.kubernetes.protobuf' --data-binary @pod.pb
      What the API takes as protobuf: the four bytes k8s\\0 and an envelope with version and kind.

  etcdctl get /registry/pods/default/web --print-value-only | pintle convert -f - -o yaml
      What a cluster keeps in etcd. The key in front, the line break behind, and base64 are understood too.

The form of the input is seen from its bytes. Nothing is defaulted or checked beyond its type: JSON and YAML
keep every field as it is, also those that the API does not know. Protobuf has no place for unknown fields and
none for kinds that are not built in, so these are refused rather than lost.";

#[derive(Debug, Clone, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct Convert {
    /// What to read: JSON, YAML with one or more documents, or protobuf; - is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: PathBuf,

    /// What to write
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Form::Yaml)]
    pub output: Form,

    /// Where to write it [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A form that objects are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    Json,
    Yaml,
    Protobuf,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).ok_or_else(|| "not a network with a prefix, such as 10.0.0.0/16".to_owned())
}

fn port_range(text: &str) -> Result<PortRange, String> {
    PortRange::parse(text).ok_or_else(|| "not a first and a last port, such as 30000-32767".to_owned())
}

/// A part of the control plane that can be run on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Apiserver,
    /// The control loops.
    ControllerManager,
}

impl Component {
    const ALL: &[(&str, Self)] =
        &[("apiserver", Self::Apiserver), ("controller-manager", Self::ControllerManager)];

    fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, component)| *component).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("no such component; there are {}", names.join(", "))
        })
    }
}

/// Reads a length of time such as `1h30m`, of at least a second.
fn duration(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        length if length >= Duration::from_secs(1) => Ok(length),
        _ => Err("it must be at least a second".to_owned()),
    }
}

/// Reads a length of time such as `1h30m`, which may be none at all.
pub(crate) fn any_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || "a length of time is needed, such as 90s, 30m or 1h30m".to_owned();
    let (mut rest, mut seconds) = (text, 0f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        seconds += number
            * match &rest[digits..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                _ => return Err(wrong()),
            };
        rest = &rest[end..];
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Why nothing is run: help was asked for, or the command line is wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    Help(String),
    Wrong(String),
}

impl Stop {
    /// Tells the user and gives the exit status.
    pub fn tell(&self) -> ExitCode {
        // a terminal that is gone cannot be told
        match self {
            Self::Help(text) => {
                let _ = write!(stdout(), "{text}");
                ExitCode::SUCCESS
            }
            Self::Wrong(text) => {
                let _ = writeln!(stderr(), "pintle: {text}");
                ExitCode::from(2)
            }
        }
    }
}

impl Cli {
    /// Reads the command line, program name first.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let arguments: Vec<_> = arguments.into_iter().collect();
        if arguments.get(1).is_some_and(|first| first == "--version" || first == "-V") {
            return Err(Stop::Help(version() + "\n"));
        }
        Self::try_parse_from(&arguments).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Help(error.to_string()),
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Stop::Wrong("nothing to do: try 'pintle up', or 'pintle --help' for more".to_owned())
            }
            _ => Stop::Wrong(problem_and_hint(&error.to_string(), &arguments)),
        })
    }
}

/// The part of the parser's message that says what is wrong, as one line, and where to read on.
fn problem_and_hint(message: &str, arguments: &[OsString]) -> String {
    let told = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told: Vec<_> = told.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let problem = told.join("; ");
    let problem = problem.strip_prefix("error: ").unwrap_or(&problem);
    let command = arguments
        .get(1)
        .filter(|first| ["up", "convert", "controller-manager"].iter().any(|it| *first == it));
    let command = command.map(|name| format!("{} ", name.display())).unwrap_or_default();
    format!("{problem} (see 'pintle {command}--help')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, Stop> {
        Cli::read(line.split(' ').map(OsString::from))
    }

    fn up(line: &str) -> Up {
        match read(line).unwrap().command {
            Command::Up(up) => *up,
            other => panic!("{other:?}"),
        }
    }

    fn wrong(line: &str) -> String {
        match read(line).unwrap_err() {
            Stop::Wrong(text) => text,
            help => panic!("{help:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_listen_on_this_machine() {
        let up = up("pintle up");
        assert_eq!((up.bind_address.to_string().as_str(), up.secure_port), ("127.0.0.1", 6443));
        assert_eq!(up.components, [Component::Apiserver, Component::ControllerManager]);
        assert_eq!(up.authorization.authorization_mode, [auth::Mode::Node, auth::Mode::Rbac]);
        assert!(!up.ephemeral && up.data_dir.is_none() && up.write_kubeconfig.is_none() && up.verbose == 0);
    }

    #[test]
    fn flags_are_read() {
        let up = up("pintle up --data-dir d --bind-address :: --secure-port 0 --write-kubeconfig k -vv \
                     --components apiserver --tls-san a --tls-san b");
        assert_eq!(up.data_dir, Some("d".into()));
        assert_eq!((up.bind_address.to_string().as_str(), up.secure_port), ("::", 0));
        assert_eq!(up.write_kubeconfig, Some("k".into()));
        assert_eq!((up.tls_san, up.verbose), (vec!["a".to_owned(), "b".to_owned()], 2));
        let up = super::tests::up(
            "pintle up --runtime-config api/all=false,v1 --runtime-config batch/v1=true \
                     --allow-privileged --event-ttl 1h30m",
        );
        assert_eq!(up.runtime_config, ["api/all=false", "v1", "batch/v1=true"]);
        assert!(up.allow_privileged && up.event_ttl == Duration::from_secs(5400));
        assert!(!super::tests::up("pintle up --allow-privileged=false").allow_privileged);
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
            ("pintle up --components apiserver,kubelet", "there are apiserver, controller-manager"),
            ("pintle up --authorization-mode RBAC,Roles", "there are AlwaysAllow, AlwaysDeny, ABAC, Webhook"),
            ("pintle up --event-ttl 5", "a length of time is needed"),
            ("pintle up --event-ttl 1ms", "at least a second"),
            ("pintle up --allow-privileged=perhaps", "perhaps"),
            ("pintle up --ephemeral --data-dir x", "cannot be used with"),
            ("pintle convert -o json", "--filename"),
            ("pintle convert -f x -o xml", "json, yaml, protobuf"),
            ("pintle up --service-cluster-ip-range 10.0.0.0", "such as 10.0.0.0/16"),
            ("pintle up --service-node-port-range 9", "such as 30000-32767"),
        ] {
            let told = wrong(line);
            assert!(told.contains(part) && told.lines().count() == 1, "{line}: {told}");
            assert!(!told.starts_with("error"), "{told}");
        }
        assert!(wrong("pintle up --nonsense").ends_with("(see 'pintle up --help')"));
        assert!(wrong("pintle convert").ends_with("(see 'pintle convert --help')"));
    }

    #[test]
    fn help_teaches_and_is_no_mistake() {
        let Err(Stop::Help(text)) = read("pintle up --help") else { panic!("no help") };
        for part in ["kubectl get namespaces", "~/.local/share/pintle", "6443", "127.0.0.1"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        let Err(Stop::Help(text)) = read("pintle convert --help") else { panic!("no help") };
        assert!(text.contains("etcdctl get") && text.contains("k8s\\0"), "{text}");
        assert_eq!(read("pintle --version").unwrap_err(), Stop::Help(version() + "\n"));
        assert!(matches!(read("pintle version").unwrap().command, Command::Version));
    }
}
