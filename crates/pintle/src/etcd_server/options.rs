//! A command line of etcd: Go's syntax, defaults from the environment, and the server's options.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use etcd_server::{Endpoint, Limits, Location, MemberInfo, Options, Retention, TlsFiles};

use super::flag_table::{Effect, FlagRow, Kind, flag_rows};
use crate::flags::{any_duration, parse_bool};

/// The outcome of a command line.
#[derive(Debug)]
pub enum ParsedLine {
    Help,
    Version,
    Run(Box<Settings>),
}

/// The arguments of the command.
#[derive(Debug)]
pub struct Settings {
    pub options: Options,
    /// The verbosity of the log.
    pub verbosity: u8,
    pub warnings: Vec<String>,
}

/// Parses the words after the name of the program. `variable` reads the environment. All errors are reported.
pub fn parse(words: &[String], variable: &dyn Fn(&str) -> Option<String>) -> Result<ParsedLine, Vec<String>> {
    let mut line = Line::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            line.errors.push(format!("unexpected argument '{word}'"));
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if matches!(name, "help" | "h") {
            return Ok(ParsedLine::Help);
        }
        if name == "version" && value.as_deref().is_none_or(|it| parse_bool(it) == Some(true)) {
            return Ok(ParsedLine::Version);
        }
        let Some(row) = flag_rows().iter().find(|row| row.name == name) else {
            line.errors.push(format!("unknown flag --{name} (see 'pintle etcd --help')"));
            continue;
        };
        let value = match (value, row.kind) {
            (Some(value), _) => Some(value),
            (None, Kind::Bool) => Some("true".to_owned()),
            (None, _) => words.next().cloned(),
        };
        match value {
            Some(value) => line.set(row, value),
            None => line.errors.push(format!("--{name} needs a value")),
        }
    }
    for row in flag_rows().iter().filter(|row| !line.values.contains_key(row.name)).collect::<Vec<_>>() {
        let name = format!("ETCD_{}", row.name.to_ascii_uppercase().replace('-', "_"));
        if let Some(value) = variable(&name) {
            line.set(row, value);
        }
    }
    let settings = line.settings();
    if line.errors.is_empty() { Ok(ParsedLine::Run(Box::new(settings))) } else { Err(line.errors) }
}

/// The flags that were given, and what is wrong with them.
#[derive(Default)]
struct Line {
    values: BTreeMap<&'static str, String>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

impl Line {
    fn set(&mut self, row: &FlagRow, value: String) {
        let name = row.name;
        let problem = match row.kind {
            Kind::Bool if parse_bool(&value).is_none() => "true or false",
            Kind::Number if value.parse::<f64>().is_err() => "a number",
            Kind::Duration if any_duration(&value).is_err() => "a duration, such as 5s",
            _ => "",
        };
        if !problem.is_empty() {
            self.errors.push(format!("--{name} must be {problem}, and is '{value}'"));
            return;
        }
        let is_unset = value.is_empty() || row.kind == Kind::Bool && parse_bool(&value) == Some(false);
        match row.effect {
            Effect::Option(_) => {
                self.values.insert(name, value);
            }
            Effect::Ignored(why) if !is_unset => {
                self.warnings.push(format!("--{name} has no effect: {why}"));
            }
            Effect::Refused(why) if !is_unset => self.errors.push(format!("--{name} cannot be used: {why}")),
            Effect::Ignored(_) | Effect::Refused(_) => {}
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_set(&self, name: &str) -> bool {
        self.text(name).and_then(parse_bool).unwrap_or(false)
    }

    /// A whole number, not negative.
    fn number(&mut self, name: &str, default: u64) -> u64 {
        match self.text(name).map(str::parse) {
            None => default,
            Some(Ok(number)) => number,
            Some(Err(_)) => {
                self.errors.push(format!("--{name} must be a whole number, at least 0"));
                default
            }
        }
    }

    fn duration(&self, name: &str, default: Duration) -> Duration {
        self.text(name).and_then(|text| any_duration(text).ok()).unwrap_or(default)
    }

    fn list(&self, name: &str) -> Vec<String> {
        let items = self.text(name).unwrap_or_default().split(',').map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn settings(&mut self) -> Settings {
        let name = self.text("name").unwrap_or("default").to_owned();
        let data_dir = self.text("data-dir").map_or_else(|| format!("{name}.etcd"), str::to_owned);
        let sync = !self.is_set("unsafe-no-fsync");
        let mut urls = self.list("listen-client-urls");
        if urls.is_empty() {
            urls.push("http://localhost:2379".to_owned());
        }
        let advertised = self.list("advertise-client-urls");
        let client_urls = if advertised.is_empty() { urls.clone() } else { advertised };
        urls.extend(self.list("listen-client-http-urls"));
        urls.extend(self.list("listen-metrics-urls"));
        let mut endpoints = Vec::new();
        for url in &urls {
            match endpoint(url) {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(why) => self.errors.push(format!("'{url}' {why}")),
            }
        }
        let mut peer_urls = self.list("initial-advertise-peer-urls");
        if peer_urls.is_empty() {
            peer_urls.push("http://localhost:2380".to_owned());
        }
        if self.list("initial-cluster").len() > 1 {
            self.errors.push("--initial-cluster has several members, and this server works alone".to_owned());
        }
        let tls = self.tls(endpoints.iter().any(|endpoint| endpoint.is_tls));
        let default = Limits::default();
        let quota_bytes = self.number("quota-backend-bytes", 0);
        let election_ms = self.number("election-timeout", 1000);
        let heartbeat_ms = self.number("heartbeat-interval", 100).max(1);
        let limits = Limits {
            max_txn_ops: self.number("max-txn-ops", default.max_txn_ops as u64) as usize,
            max_request_bytes: self.number("max-request-bytes", default.max_request_bytes as u64) as usize,
            quota_bytes: if quota_bytes == 0 { default.quota_bytes } else { quota_bytes },
            min_lease_ttl: min_lease_ttl(election_ms, heartbeat_ms),
        };
        let two_hours = Duration::from_secs(7200);
        let interval = self.duration("grpc-keepalive-interval", two_hours);
        let timeout = self.duration("grpc-keepalive-timeout", Duration::from_secs(20));
        let streams = self.number("max-concurrent-streams", u64::from(u32::MAX));
        let options = Options {
            location: Location::Directory { path: data_dir.into(), sync },
            endpoints,
            tls,
            member: MemberInfo { name, peer_urls, client_urls },
            limits,
            progress_interval: self
                .duration("experimental-watch-progress-notify-interval", Duration::from_secs(600)),
            retention: self.retention(),
            keep_alive: (!interval.is_zero() && !timeout.is_zero()).then_some((interval, timeout)),
            max_concurrent_streams: u32::try_from(streams).unwrap_or(u32::MAX),
        };
        let verbosity = match self.text("log-level") {
            _ if self.is_set("debug") => 4,
            Some("debug") => 4,
            None | Some("info") => 2,
            Some("warn" | "error" | "dpanic" | "panic" | "fatal") => 0,
            Some(other) => {
                self.errors.push(format!("--log-level has no level '{other}'"));
                0
            }
        };
        Settings { options, verbosity, warnings: std::mem::take(&mut self.warnings) }
    }

    fn tls(&mut self, is_needed: bool) -> Option<TlsFiles> {
        let files = (self.text("cert-file").map(Into::into), self.text("key-file").map(Into::into));
        let client_authorities = self.text("trusted-ca-file").map(Into::into);
        let checks_clients = self.is_set("client-cert-auth");
        if checks_clients && client_authorities.is_none() {
            self.errors.push("--client-cert-auth needs --trusted-ca-file".to_owned());
        }
        match files {
            (Some(certificate), Some(key)) => {
                // the authorities alone ask for certificates, too, as in etcd
                Some(TlsFiles { certificate, key, client_authorities })
            }
            (None, None) => {
                if is_needed {
                    self.errors.push("an https URL needs --cert-file and --key-file".to_owned());
                }
                None
            }
            _ => {
                self.errors.push("--cert-file and --key-file belong together".to_owned());
                None
            }
        }
    }

    fn retention(&mut self) -> Option<Retention> {
        let text = self.text("auto-compaction-retention").filter(|text| *text != "0")?.to_owned();
        let retention = match self.text("auto-compaction-mode").unwrap_or("periodic") {
            "revision" => text.parse().ok().filter(|kept| *kept > 0).map(Retention::Revisions),
            "periodic" => {
                let hours = text.parse::<u64>().ok().map(|hours| Duration::from_secs(3600 * hours));
                hours.or_else(|| any_duration(&text).ok()).map(Retention::Time)
            }
            other => {
                self.errors.push(format!("--auto-compaction-mode has no mode '{other}'"));
                return None;
            }
        };
        if retention.is_none() {
            self.errors.push(format!("--auto-compaction-retention: '{text}' is neither a time nor a number"));
        }
        retention
    }
}

/// The shortest life of a lease in seconds: one and a half election timeouts, counted in heartbeats, rounded up.
fn min_lease_ttl(election_ms: u64, heartbeat_ms: u64) -> i64 {
    let ticks = 3 * (election_ms / heartbeat_ms) / 2;
    (ticks * heartbeat_ms).div_ceil(1000).cast_signed()
}

/// The address of a URL to listen on.
fn endpoint(url: &str) -> Result<Endpoint, &'static str> {
    let (is_tls, authority) = match url.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        Some(_) => return Err("is no http or https URL, and others are not served"),
        None => return Err("is no URL, such as http://127.0.0.1:2379"),
    };
    let (host, port) = authority.trim_end_matches('/').rsplit_once(':').ok_or("has no port")?;
    let port = port.parse().map_err(|_| "has no valid port")?;
    let host = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse().map_err(|_| "must have an IP address, on which the server listens")?
        }
    };
    Ok(Endpoint { address: SocketAddr::new(host, port), is_tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let variable =
            |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        match parse(&words, &variable) {
            Ok(ParsedLine::Run(settings)) => Ok(*settings),
            Ok(other) => panic!("{other:?}"),
            Err(errors) => Err(errors.join("; ")),
        }
    }

    /// The flags that test harnesses of Kubernetes give.
    #[test]
    fn harnesses_are_understood() {
        let line = "--listen-peer-urls=http://localhost:0 --data-dir=d --listen-client-urls=http://127.0.0.1:4001 \
                    --advertise-client-urls=http://127.0.0.1:4001 --unsafe-no-fsync";
        let envtest = settings(line, &[]).unwrap();
        let location = Location::Directory { path: "d".into(), sync: false };
        assert_eq!((&envtest.options.location, envtest.options.limits.min_lease_ttl), (&location, 2));
        assert_eq!(envtest.options.endpoints[0].address.to_string(), "127.0.0.1:4001");
        let local_up = "-advertise-client-urls http://127.0.0.1:2379 --data-dir d --debug \
                        --listen-client-urls http://127.0.0.1:2379,http://[::1]:2379 --force-new-cluster=false \
                        --auto-compaction-retention 5m --log-level=warn";
        let local_up = settings(local_up, &[]).unwrap();
        assert_eq!((local_up.options.endpoints.len(), local_up.verbosity), (2, 4));
        assert_eq!(local_up.options.retention, Some(Retention::Time(Duration::from_secs(300))));
        assert!(local_up.warnings.is_empty(), "{:?}", local_up.warnings);
    }

    #[test]
    fn variables_are_defaults_of_flags() {
        let variables = [
            ("ETCD_DATA_DIR", "v"),
            ("ETCD_MAX_TXN_OPS", "7"),
            ("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:1"),
        ];
        let options = settings("--data-dir f", &variables).unwrap().options;
        assert_eq!(options.location, Location::Directory { path: "f".into(), sync: true });
        assert_eq!((options.limits.max_txn_ops, options.endpoints[0].address.port()), (7, 1));
    }

    #[test]
    fn flags_that_would_be_missed_are_refused() {
        for (line, part) in [
            ("--client-crl-file x", "--client-crl-file cannot be used"),
            ("--discovery http://x", "only member"),
            ("--initial-cluster a=http://a:1,b=http://b:1", "works alone"),
            ("--listen-client-urls https://127.0.0.1:1", "--cert-file"),
            ("--listen-client-urls unix://x", "not served"),
            ("--listen-client-urls http://name:1", "IP address"),
            ("--client-cert-auth --cert-file a --key-file b", "--trusted-ca-file"),
            ("--nonsense 1", "unknown flag --nonsense"),
            ("--max-txn-ops many", "must be a number"),
            ("--data-dir", "needs a value"),
            ("serve", "unexpected argument"),
        ] {
            let message = settings(line, &[]).map(|it| it.options).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
        let warnings = settings("--wal-dir w --snapshot-count 5", &[]).unwrap().warnings;
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}
