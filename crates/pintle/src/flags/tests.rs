use super::page::{self, own_default, upstream_flags};
use super::*;
use crate::cli::{Cli, Command as CliCommand, EarlyExit};
use crate::options::Apiserver;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;
use std::path::Path;

fn program() -> Command {
    complete(Cli::command())
}

fn read(words: &[&str]) -> Result<Cli, EarlyExit> {
    Cli::read(words.iter().map(OsString::from), crate::config_errors)
}

/// The options of `pintle apiserver` with flags.
fn server(flags: &str) -> Apiserver {
    let words: Vec<_> = ["pintle", "apiserver"].into_iter().chain(flags.split_whitespace()).collect();
    match read(&words).unwrap_or_else(|why| panic!("{flags}: {why:?}")).command {
        CliCommand::Apiserver(server) => *server,
        other => panic!("{other:?}"),
    }
}

fn warnings(flags: &str) -> Vec<String> {
    let words: Vec<_> = ["pintle", "apiserver"].into_iter().chain(flags.split_whitespace()).collect();
    read(&words).unwrap().warnings
}

fn errors(line: &str) -> Vec<String> {
    match read(&line.split_whitespace().collect::<Vec<_>>()) {
        Err(EarlyExit::ConfigErrors(problems)) => problems,
        other => panic!("{line}: {other:?}"),
    }
}

fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let is_called = |it: &&Arg| {
        it.get_long() == Some(name) || it.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    command.get_arguments().find(is_called)
}

/// Flags that the program has without declaring them.
const BUILT_IN: [&str; 2] = ["help", "version"];

#[test]
fn every_flag_of_upstream_is_taken() {
    let program = program();
    for component in COMPONENTS {
        let command = program.find_subcommand(component.command).unwrap();
        let known = upstream_flags(component);
        let at_least = if component.command == "scheduler" { 50 } else { 100 };
        assert!(known.len() > at_least, "{}", known.len());
        let missing: Vec<_> = known
            .iter()
            .map(|it| it.name)
            .filter(|name| !BUILT_IN.contains(name) && find(command, name).is_none())
            .collect();
        assert!(missing.is_empty(), "{} does not take {missing:?}", component.command);
        let unknown: Vec<_> =
            component.ignored().filter(|it| !known.iter().any(|known| known.name == it.name)).collect();
        assert!(unknown.is_empty(), "without effect, but not upstream's either: {unknown:?}");
    }
}

#[test]
fn every_default_of_upstream_can_be_given() {
    for component in COMPONENTS {
        for flag in upstream_flags(component).iter().filter(|it| !BUILT_IN.contains(&it.name)) {
            let own = OWN_DEFAULTS.iter().any(|(name, _)| *name == flag.name);
            if flag.default.is_empty() && (own || !matches!(flag.takes, "string" | "stringSlice")) {
                continue;
            }
            let given = format!("--{}={}", flag.name, flag.default);
            if let Err(why) = read(&["pintle", component.command, &given]) {
                panic!("{given}: {why:?}");
            }
        }
    }
}

/// Flags whose defaults are not upstream's, and why.
const OWN_DEFAULTS: &[(&str, &str)] = &[
    ("audit-log-version", "follows the dialect"),
    ("audit-webhook-version", "follows the dialect"),
    ("cert-dir", "certificates are in the data directory"),
    ("requestheader-extra-headers-prefix", "the usual one, which is the only sensible one"),
    ("requestheader-group-headers", "the usual one"),
    ("requestheader-username-headers", "the usual one"),
    ("service-cluster-ip-range", "upstream has the same one without saying so"),
    ("v", "counted"),
];

#[test]
fn defaults_are_upstreams() {
    let program = program();
    for component in COMPONENTS {
        let command = program.find_subcommand(component.command).unwrap();
        let mut differ = Vec::new();
        for flag in upstream_flags(component).iter().filter(|it| !BUILT_IN.contains(&it.name)) {
            let own = own_default(find(command, flag.name).unwrap());
            let same = own == flag.default
                || own.is_empty() && flag.default == "false"
                || own.parse::<f64>().is_ok_and(|own| flag.default.parse() == Ok(own))
                || any_duration(&own).is_ok_and(|own| any_duration(&flag.default) == Ok(own));
            if !same {
                differ.push(flag.name);
            }
        }
        let all = if component.command == "apiserver" { OWN_DEFAULTS } else { &[("v", "counted")] };
        let expected: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(differ, expected, "{}", component.command);
    }
}

#[test]
fn deprecated_flags_say_so() {
    let program = program();
    for component in COMPONENTS {
        let command = program.find_subcommand(component.command).unwrap();
        for flag in upstream_flags(component).iter().filter(|it| it.deprecated) {
            let argument = find(command, flag.name).unwrap();
            let help = argument.get_help().unwrap().to_string();
            let ignored = component.ignored().any(|it| it.name == flag.name && it.deprecated);
            let alias = argument.get_long() != Some(flag.name);
            assert!(ignored || alias || help.contains("Deprecated: "), "{}", flag.name);
        }
    }
    let message =
        warnings("--admission-control AlwaysAdmit --kubelet-port 1 --audit-webhook-batch-initial-backoff 3s");
    assert_eq!(message.len(), 3, "{message:?}");
    assert!(message.iter().all(|it| it.contains("is deprecated")), "{message:?}");
    assert!(message[2].ends_with("use --audit-webhook-initial-backoff"), "{message:?}");
}

#[test]
fn flags_are_written_as_upstream_does() {
    let one = server(
        "--secure_port 7 --anonymous-auth=F --allow-privileged --audit-log-path - --audit-log-maxsize -1 -v=2 \
         --runtime-config=apps/v1=false,v1 --runtime-config batch/v1=true --service-account-issuer a,b \
         --service-account-issuer c --ephemeral=true --default-not-ready-toleration-seconds=-5",
    );
    assert_eq!((one.secure_port, one.logs.verbosity, one.store.ephemeral), (7, 2, true));
    assert!(!one.authentication.anonymous_auth && one.allow_privileged);
    assert_eq!(one.audit.audit_log_path.as_deref(), Some(Path::new("-")));
    assert_eq!((one.audit.audit_log_maxsize, one.admission.default_not_ready_toleration_seconds), (-1, -5));
    assert_eq!(one.runtime_config, ["apps/v1=false", "v1", "batch/v1=true"]);
    assert_eq!(one.authentication.service_accounts.service_account_issuer, ["a,b", "c"]);
    for (given, level) in
        [("-v", 1), ("-vvv", 3), ("-v3", 3), ("-v 3", 3), ("--v=3", 3), ("--v 3", 3), ("-v=0", 0), ("", 0)]
    {
        assert_eq!(server(given).logs.verbosity, level, "{given}");
    }
    // of several the last one counts
    assert_eq!(server("--secure-port=1 --secure-port=2").secure_port, 2);
    assert!(server("--profiling --profiling=false --allow-privileged=1").allow_privileged);
}

#[test]
fn a_single_component_behaves_like_upstream() {
    let one = server("");
    assert_eq!(one.bind_address.to_string(), "0.0.0.0");
    assert_eq!(one.authorization.authorization_mode, [auth::Mode::AlwaysAllow]);
    let one = server("--bind-address=::1 --authorization-mode=RBAC,Node");
    assert_eq!(one.bind_address.to_string(), "::1");
    assert_eq!(one.authorization.authorization_mode, [auth::Mode::Rbac, auth::Mode::Node]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let message = errors(
        "pintle apiserver --nonsense value --secure-port=x stray --watch-cache=perhaps --kubelet-timeout 5 \
         --etcd-servers=ftp://a:1 --tls-cert-file=/nowhere/a --feature-gates=Nope=true --event-ttl=1ms -v=x \
         --logging-format=json --feature-gates=LoggingBetaOptions=false",
    );
    for part in [
        "--nonsense",
        "'x' for '--secure-port",
        "\"stray\"",
        "'perhaps' for '--watch-cache",
        "'5' for '--kubelet-timeout",
        "--etcd-servers: \"ftp://a:1\" is not a URL",
        "--tls-cert-file: must be given together with",
        "unrecognized feature gate: Nope",
        "at least a second",
        "'-v': must be a whole number",
        "--logging-format: --feature-gates LoggingBetaOptions=true is required for json",
    ] {
        assert_eq!(message.iter().filter(|it| it.contains(part)).count(), 1, "{part} in {message:#?}");
    }
    assert_eq!(message.len(), 11, "{message:#?}");
    assert!(message.iter().all(|it| it.lines().count() == 1), "{message:#?}");
    assert!(message[10].ends_with("(see 'pintle apiserver --help')"), "{message:#?}");
}

#[test]
fn ignored_flags_are_reported_once() {
    let message = warnings("--watch-cache=false --watch-cache=true --cloud-provider x --secure-port=1");
    assert_eq!(message.len(), 2, "{message:?}");
    assert!(message[0].starts_with("--watch-cache has no effect: "), "{message:?}");
    assert!(warnings("--secure-port=1").is_empty());
}

#[test]
fn links_to_the_program_run_components() {
    for called in ["/usr/bin/kube-apiserver", "cluster-apiserver"] {
        let cli = read(&[called, "--secure-port=7"]).unwrap();
        assert!(matches!(cli.command, CliCommand::Apiserver(server) if server.secure_port == 7));
    }
    let message = match read(&["kube-apiserver", "--nonsense"]) {
        Err(EarlyExit::ConfigErrors(message)) => message.join(""),
        other => panic!("{other:?}"),
    };
    assert!(message.ends_with("(see 'kube-apiserver --help')"), "{message}");
    assert!(matches!(read(&["kube-up"]), Err(EarlyExit::ConfigErrors(_))));
    let program = program();
    for (called, command) in
        [("pintle", None), ("kube-nothing", None), ("apiserver", None), ("kube-up", None)]
    {
        assert_eq!(command_of(&program, called), command, "{called}");
    }
}

#[test]
fn no_media_type_is_the_usual_one() {
    assert!(read(&["kube-apiserver", "--storage-media-type="]).is_ok());
    let Err(EarlyExit::ConfigErrors(message)) = read(&["kube-apiserver", "--storage-media-type=text/plain"])
    else {
        panic!("it was taken");
    };
    assert!(message[0].contains("there are application/json"), "{message:?}");
}

#[test]
fn versions_are_reported() {
    let message = |words: &[&str]| match read(words) {
        Err(EarlyExit::Help(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(message(&["pintle", "apiserver", "--version"]), message(&["pintle", "--version"]));
    for link in ["kube-apiserver", "/a/kube-controller-manager", "cluster-apiserver", "kube-scheduler"] {
        assert_eq!(message(&[link, "--version"]), "Kubernetes v1.26.4\n");
    }
    for line in [&["pintle", "--help"][..], &["pintle", "up", "--help"], &["kube-apiserver", "--help"]] {
        assert!(message(line).contains("--version"), "{line:?}");
    }
    assert!(message(&["pintle", "apiserver", "--version=raw"]).contains("\"gitVersion\":\"v1.26"));
    assert!(read(&["pintle", "apiserver", "--version=false"]).is_ok());
    assert!(matches!(read(&["pintle", "apiserver", "--version=x"]), Err(EarlyExit::ConfigErrors(_))));
}

#[test]
fn the_page_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (file, config) = (root.join(page::FILE), page::render(&program()));
    if std::env::var_os(page::WRITE).is_some() {
        std::fs::write(&file, &config).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let line = there.lines().zip(config.lines()).find(|(there, config)| there != config);
    assert!(there == config, "{} is not current, write it with {}=1: {line:?}", page::FILE, page::WRITE);
}

#[test]
fn no_command_line_is_too_strange() {
    let program = program();
    let flags: Vec<String> = program
        .find_subcommand("apiserver")
        .unwrap()
        .get_arguments()
        .filter_map(|it| it.get_long())
        .map(|name| format!("--{name}"))
        .collect();
    let strange = [
        "", "-", "--", "---", "-=", "--=", "--=x", "=", "-v", "-v=", "-vx", "-é", "--é=1", "\u{0}", "x=y",
        "-1", ",",
    ];
    let values =
        ["", "=", "=x", "=-1", "=0", "=true", "=a=b,c", "=,", "=1s", "=\"", "=::", "=10.0.0.0/8", "=é"];
    for seed in 1..100u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut words = vec!["pintle".to_owned(), ["apiserver", "up"][draw(2)].to_owned()];
        for _ in 0..=draw(6) {
            words.push(match draw(4) {
                0 => strange[draw(strange.len())].to_owned(),
                1 => flags[draw(flags.len())].clone(),
                _ => format!("{}{}", flags[draw(flags.len())], values[draw(values.len())]),
            });
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Err(EarlyExit::ConfigErrors(message)) = read(&words) {
            assert!(
                !message.is_empty() && message.iter().all(|it| it.lines().count() == 1),
                "{seed}: {words:?}: {message:#?}"
            );
        }
    }
}
