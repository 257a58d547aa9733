use super::page::{self, known, own_default};
use super::*;
use crate::cli::{Cli, Command as Asked, Stop};
use crate::options::Apiserver;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;
use std::path::Path;

fn program() -> Command {
    complete(Cli::command())
}

fn read(words: &[&str]) -> Result<Cli, Stop> {
    Cli::read(words.iter().map(OsString::from))
}

/// What `pintle apiserver` makes of flags.
fn server(flags: &str) -> Apiserver {
    let words: Vec<_> = ["pintle", "apiserver"].into_iter().chain(flags.split_whitespace()).collect();
    match read(&words).unwrap_or_else(|why| panic!("{flags}: {why:?}")).command {
        Asked::Apiserver(server) => *server,
        other => panic!("{other:?}"),
    }
}

fn warnings(flags: &str) -> Vec<String> {
    let words: Vec<_> = ["pintle", "apiserver"].into_iter().chain(flags.split_whitespace()).collect();
    read(&words).unwrap().warnings
}

fn wrong(line: &str) -> Vec<String> {
    match read(&line.split_whitespace().collect::<Vec<_>>()) {
        Err(Stop::ConfigErrors(problems)) => problems,
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
        let known = known(component);
        assert!(known.len() > 100, "{}", known.len());
        let missing: Vec<_> = known
            .iter()
            .map(|it| it.name)
            .filter(|name| !BUILT_IN.contains(name) && find(command, name).is_none())
            .collect();
        assert!(missing.is_empty(), "{} does not take {missing:?}", component.command);
        let unknown: Vec<_> =
            component.idle().filter(|it| !known.iter().any(|known| known.name == it.name)).collect();
        assert!(unknown.is_empty(), "without effect, but not upstream's either: {unknown:?}");
    }
}

#[test]
fn every_default_of_upstream_can_be_given() {
    for component in COMPONENTS {
        for flag in known(component).iter().filter(|it| !BUILT_IN.contains(&it.name)) {
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
        for flag in known(component).iter().filter(|it| !BUILT_IN.contains(&it.name)) {
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
        for flag in known(component).iter().filter(|it| it.deprecated) {
            let argument = find(command, flag.name).unwrap();
            let help = argument.get_help().unwrap().to_string();
            let idle = component.idle().any(|it| it.name == flag.name && it.deprecated);
            let alias = argument.get_long() != Some(flag.name);
            assert!(idle || alias || help.contains("Deprecated: "), "{}", flag.name);
        }
    }
    let told =
        warnings("--admission-control AlwaysAdmit --kubelet-port 1 --audit-webhook-batch-initial-backoff 3s");
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|it| it.contains("is deprecated")), "{told:?}");
    assert!(told[2].ends_with("--audit-webhook-initial-backoff says the same"), "{told:?}");
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
fn a_component_alone_does_what_upstreams_does() {
    let one = server("");
    assert_eq!(one.bind_address.to_string(), "0.0.0.0");
    assert_eq!(one.authorization.authorization_mode, [auth::Mode::AlwaysAllow]);
    let one = server("--bind-address=::1 --authorization-mode=RBAC,Node");
    assert_eq!(one.bind_address.to_string(), "::1");
    assert_eq!(one.authorization.authorization_mode, [auth::Mode::Rbac, auth::Mode::Node]);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let told = wrong(
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
        "--tls-cert-file: it goes with",
        "unrecognized feature gate: Nope",
        "at least a second",
        "'-v': it is no whole number",
        "--logging-format: --feature-gates LoggingBetaOptions=true is needed for json",
    ] {
        assert_eq!(told.iter().filter(|it| it.contains(part)).count(), 1, "{part} in {told:#?}");
    }
    assert_eq!(told.len(), 11, "{told:#?}");
    assert!(told.iter().all(|it| it.lines().count() == 1), "{told:#?}");
    assert!(told[10].ends_with("(see 'pintle apiserver --help')"), "{told:#?}");
}

#[test]
fn what_has_no_effect_says_so_once() {
    let told = warnings("--watch-cache=false --watch-cache=true --cloud-provider x --secure-port=1");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("--watch-cache has no effect: "), "{told:?}");
    assert!(warnings("--secure-port=1").is_empty());
}

#[test]
fn links_to_the_program_run_components() {
    for called in ["/usr/bin/kube-apiserver", "cluster-apiserver"] {
        let cli = read(&[called, "--secure-port=7"]).unwrap();
        assert!(matches!(cli.command, Asked::Apiserver(server) if server.secure_port == 7));
    }
    let told = match read(&["kube-apiserver", "--nonsense"]) {
        Err(Stop::ConfigErrors(told)) => told.join(""),
        other => panic!("{other:?}"),
    };
    assert!(told.ends_with("(see 'kube-apiserver --help')"), "{told}");
    assert!(matches!(read(&["kube-up"]), Err(Stop::ConfigErrors(_))));
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
    let Err(Stop::ConfigErrors(told)) = read(&["kube-apiserver", "--storage-media-type=text/plain"]) else {
        panic!("it was taken");
    };
    assert!(told[0].contains("there are application/json"), "{told:?}");
}

#[test]
fn versions_are_told() {
    let told = |words: &[&str]| match read(words) {
        Err(Stop::Help(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&["pintle", "apiserver", "--version"]), told(&["pintle", "--version"]));
    for link in ["kube-apiserver", "/a/kube-controller-manager", "cluster-apiserver"] {
        assert_eq!(told(&[link, "--version"]), "Kubernetes v1.26.4\n");
    }
    for line in [&["pintle", "--help"][..], &["pintle", "up", "--help"], &["kube-apiserver", "--help"]] {
        assert!(told(line).contains("--version"), "{line:?}");
    }
    assert!(told(&["pintle", "apiserver", "--version=raw"]).contains("\"gitVersion\":\"v1.26"));
    assert!(read(&["pintle", "apiserver", "--version=false"]).is_ok());
    assert!(matches!(read(&["pintle", "apiserver", "--version=x"]), Err(Stop::ConfigErrors(_))));
}

#[test]
fn the_page_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (file, wanted) = (root.join(page::FILE), page::render(&program()));
    if std::env::var_os(page::WRITE).is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let line = there.lines().zip(wanted.lines()).find(|(there, wanted)| there != wanted);
    assert!(there == wanted, "{} is not current, write it with {}=1: {line:?}", page::FILE, page::WRITE);
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
        if let Err(Stop::ConfigErrors(told)) = read(&words) {
            assert!(
                !told.is_empty() && told.iter().all(|it| it.lines().count() == 1),
                "{seed}: {words:?}: {told:#?}"
            );
        }
    }
}
