//! Egress selector options.

use super::{ConfigErrors, manifest};
use apiserver::egress::Egress;
use clap::Args;
use names::Names;
use outbound::{Dialer, Protocol, Proxy, Target};
use schema::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Egress")]
pub struct EgressOptions {
    /// The EgressSelectorConfiguration file, which selects a dialer for each of controlplane (webhooks by URL,
    /// authentication, authorization, audit, traces), cluster (services) and etcd: Direct, HTTPConnect over TCP or a
    /// Unix socket, or GRPC (konnectivity) over a Unix socket [default: Direct]
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
}

const OPTION: &str = "--egress-selector-config-file";
const NAMES: [&str; 3] = ["cluster", "controlplane", "etcd"];
/// The field path of a selection in messages.
const AT: &str = "service.connection";

impl EgressOptions {
    pub fn read(&self, names: &Names, errors: &mut ConfigErrors) -> Egress {
        let Some(file) = &self.egress_selector_config_file else { return Egress::default() };
        let known = ["v1beta1", "v1alpha1"].map(|version| format!("{}/{version}", names.group("apiserver")));
        let whole = manifest::read(file, "EgressSelectorConfiguration", &known);
        let Some(whole) = errors.take(OPTION, whole) else { return Egress::default() };
        let (egress, problems) = ways(&whole);
        for why in problems {
            errors.add(OPTION, format!("{}: {why}", file.display()));
        }
        egress
    }
}

/// The dialers of a configuration, and all of its errors.
fn ways(whole: &Value) -> (Egress, Vec<String>) {
    let (mut egress, mut problems) = (Egress::default(), Vec::new());
    let selections = whole.items(&["egressSelections"]);
    let read: Vec<_> = selections.iter().map(|selection| way(selection, &mut problems)).collect();
    let mut seen: Vec<String> = Vec::new();
    for (at, (selection, way)) in selections.iter().zip(read).enumerate() {
        let name = match selection.text(&["name"]) {
            // the former name
            "master" => "controlplane".to_owned(),
            name => name.to_lowercase(),
        };
        if seen.contains(&name) {
            problems.push(format!("{AT}[{at}]: Duplicate value: {name:?}"));
            continue;
        }
        match &*name {
            "cluster" => egress.cluster = way,
            "controlplane" => egress.control_plane = way,
            "etcd" => egress.etcd = way,
            other => problems.push(unsupported(AT, other, &NAMES)),
        }
        seen.push(name);
    }
    (egress, problems)
}

fn unsupported(path: &str, found: &str, known: &[&str]) -> String {
    let known: Vec<_> = known.iter().map(|it| format!("{it:?}")).collect();
    format!("{path}: Unsupported value: {found:?}: supported values: {}", known.join(", "))
}

fn way(selection: &Value, problems: &mut Vec<String>) -> Dialer {
    let there = |path: &[&str]| selection.at(path).filter(|it| !it.is_null());
    let transport = there(&["connection", "transport"]);
    let named = selection.text(&["connection", "proxyProtocol"]);
    let protocol = match named {
        "Direct" => {
            if transport.is_some() {
                let why = "Transport config should be absent for direct connect";
                problems.push(format!("{AT}.transport: Invalid value: \"direct\": {why}"));
            }
            return Dialer::Direct;
        }
        "HTTPConnect" => Protocol::HttpConnect,
        "GRPC" => Protocol::Grpc,
        other => {
            problems.push(unsupported(&format!("{AT}.protocol"), other, &["Direct", "HTTPConnect", "GRPC"]));
            return Dialer::Direct;
        }
    };
    if transport.is_none() {
        problems.push(format!("{AT}.transport: Required value: transport must be set for {named}"));
        return Dialer::Direct;
    }
    let [tcp, socket] = ["tcp", "uds"].map(|it| there(&["connection", "transport", it]));
    let before = problems.len();
    let target = match (protocol, tcp, socket) {
        (Protocol::HttpConnect, Some(tcp), Some(_)) => {
            let url = tcp.text(&["url"]);
            problems.push(format!("{AT}.tcp: Invalid value: {url:?}: TCP and UDS cannot both be set"));
            None
        }
        (_, _, Some(socket)) => over_socket(socket, problems),
        (Protocol::Grpc, _, None) => {
            problems.push(format!("{AT}.uds: Required value: UDS must be set with GRPC"));
            None
        }
        (Protocol::HttpConnect, Some(tcp), None) => over_tcp(tcp, problems),
        (Protocol::HttpConnect, None, None) => {
            problems.push(format!("{AT}.tcp: Required value: One of TCP or UDS must be set"));
            None
        }
    };
    let Some(target) = target.filter(|_| problems.len() == before) else { return Dialer::Direct };
    match Proxy::new(protocol, &target) {
        Ok(proxy) => Dialer::Through(Arc::new(proxy)),
        Err(why) => {
            let name = selection.text(&["name"]);
            problems.push(format!("failed to create dialer for egressSelection {name:?}: {why}"));
            Dialer::Direct
        }
    }
}

fn over_socket(socket: &Value, problems: &mut Vec<String>) -> Option<Target> {
    match socket.text(&["udsName"]) {
        "" => {
            let why = "UDSName should be present for UDS connections";
            problems.push(format!("{AT}.udsName: Invalid value: \"nil\": {why}"));
            None
        }
        path => Some(Target { url: format!("unix:{path}"), ..Target::default() }),
    }
}

fn over_tcp(tcp: &Value, problems: &mut Vec<String>) -> Option<Target> {
    let url = tcp.text(&["url"]);
    let tls = tcp.at(&["tlsConfig"]).filter(|it| !it.is_null());
    let target = Target { url: url.to_owned(), ..Target::default() };
    match (url.starts_with("https://"), tls) {
        (false, _) if !url.starts_with("http://") => {
            let why = "supported connection protocols are http:// and https://";
            problems.push(format!("{AT}.url: Invalid value: {url:?}: {why}"));
            None
        }
        (false, Some(_)) => {
            let why = "TLSConfig config should not be present when using HTTP";
            problems.push(format!("{AT}.tlsConfig: Invalid value: \"nil\": {why}"));
            None
        }
        (false, None) => Some(target),
        (true, None) => {
            let why = "TLSConfig must be present when using HTTPS";
            problems.push(format!("{AT}.tlsConfig: Required value: {why}"));
            None
        }
        (true, Some(tls)) => {
            let authorities = file(tls, "caBundle", None, "ca bundle", problems);
            let certificate =
                file(tls, "clientCert", Some("Using TLS requires clientCert"), "client cert", problems);
            let key = file(tls, "clientKey", Some("Using TLS requires clientKey"), "client key", problems);
            let path =
                |field: &str| Some(PathBuf::from(tls.text(&[field]))).filter(|it| !it.as_os_str().is_empty());
            Some(Target {
                authorities,
                authority_file: path("caBundle"),
                identity: certificate.zip(key),
                identity_files: path("clientCert").zip(path("clientKey")),
                ..target
            })
        }
    }
}

/// Reads a TLS file, which may be required.
fn file(
    tls: &Value,
    field: &str,
    needed: Option<&str>,
    what: &str,
    problems: &mut Vec<String>,
) -> Option<Vec<u8>> {
    let at = format!("{AT}.tlsConfig.{field}: Invalid value");
    let path = tls.text(&[field]);
    if path.is_empty() {
        problems.extend(needed.map(|why| format!("{at}: \"nil\": {why}")));
        return None;
    }
    match std::fs::read(path) {
        Ok(read) => Some(read),
        Err(_) if !Path::new(path).exists() => {
            let missing = if what == "ca bundle" { "TLS config ca bundle" } else { &format!("TLS {what}") };
            problems.push(format!("{at}: {path:?}: {missing} does not exist"));
            None
        }
        Err(why) => {
            problems.push(format!("{at}: {path:?}: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(selections: &str) -> (Egress, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("egress.yaml");
        let head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
        std::fs::write(&file, format!("{head}egressSelections:\n{selections}")).unwrap();
        let mut errors = ConfigErrors::default();
        let egress =
            EgressOptions { egress_selector_config_file: Some(file) }.read(&Names::kubernetes(), &mut errors);
        (egress, errors.check().err().map(|why| why.to_string()).unwrap_or_default())
    }

    #[test]
    fn ways_are_read() {
        let connection = |name: &str, rest: &str| format!("- {{name: {name}, connection: {{{rest}}}}}\n");
        let socket = "transport: {uds: {udsName: /run/k}}";
        let (egress, errors) = read(
            &[
                connection("Cluster", &format!("proxyProtocol: GRPC, {socket}")),
                connection("master", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://p:1'}}"),
                connection("etcd", "proxyProtocol: Direct"),
            ]
            .concat(),
        );
        assert_eq!(errors, "");
        assert_eq!(format!("{:?}", egress.cluster), "Through(Proxy(Grpc at /run/k))");
        assert_eq!(format!("{:?}", egress.control_plane), "Through(Proxy(HttpConnect at p:1))");
        assert!(matches!(egress.etcd, Dialer::Direct));
    }

    #[test]
    fn everything_that_is_wrong_is_reported() {
        let message = |rest: &str, part: &str| {
            let (_, errors) = read(&format!("- {{name: cluster, connection: {{{rest}}}}}\n"));
            assert!(errors.starts_with(OPTION) && errors.contains(part), "{rest}: {errors}");
        };
        message(
            "proxyProtocol: Carrier",
            "service.connection.protocol: Unsupported value: \"Carrier\": supported values: \"Direct\", \"HTTPConnect\", \"GRPC\"",
        );
        message(
            "proxyProtocol: GRPC",
            "service.connection.transport: Required value: transport must be set for GRPC",
        );
        message(
            "proxyProtocol: Direct, transport: {}",
            "Transport config should be absent for direct connect",
        );
        message("proxyProtocol: HTTPConnect, transport: {}", "One of TCP or UDS must be set");
        message(
            "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://p'}, uds: {udsName: x}}",
            "service.connection.tcp: Invalid value: \"http://p\": TCP and UDS cannot both be set",
        );
        message("proxyProtocol: GRPC, transport: {tcp: {url: 'http://p'}}", "UDS must be set with GRPC");
        message(
            "proxyProtocol: GRPC, transport: {uds: {}}",
            "service.connection.udsName: Invalid value: \"nil\"",
        );
        let tcp = |rest: &str| format!("proxyProtocol: HTTPConnect, transport: {{tcp: {{{rest}}}}}");
        message(
            &tcp("url: 'p:1'"),
            "service.connection.url: Invalid value: \"p:1\": supported connection protocols",
        );
        message(
            &tcp("url: 'http://p:1', tlsConfig: {}"),
            "TLSConfig config should not be present when using HTTP",
        );
        message(
            &tcp("url: 'https://p:1'"),
            "service.connection.tlsConfig: Required value: TLSConfig must be present",
        );
        let three = tcp("url: 'https://p:1', tlsConfig: {caBundle: /none/ca, clientCert: /none/cert}");
        message(
            &three,
            "tlsConfig.caBundle: Invalid value: \"/none/ca\": TLS config ca bundle does not exist",
        );
        message(
            &three,
            "tlsConfig.clientCert: Invalid value: \"/none/cert\": TLS client cert does not exist",
        );
        message(&three, "tlsConfig.clientKey: Invalid value: \"nil\": Using TLS requires clientKey");
        let direct = |name: &str| format!("- {{name: {name}, connection: {{proxyProtocol: Direct}}}}\n");
        let (_, errors) = read(&[direct("master"), direct("moon"), direct("controlplane")].concat());
        assert!(errors.contains("service.connection: Unsupported value: \"moon\": supported values: \"cluster\", \"controlplane\", \"etcd\""), "{errors}");
        assert!(errors.contains("service.connection[2]: Duplicate value: \"controlplane\""), "{errors}");
    }
}
