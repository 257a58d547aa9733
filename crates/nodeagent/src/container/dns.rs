//! The resolver configuration of a pod: its `resolv.conf`.

use crate::pod_facts::description;
use crate::runtime::DnsConfig;
use api::core::v1::{Pod, PodDNSConfig};
use client::Note;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;

/// Limits of a resolver configuration.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// The longest domain name.
const MAX_DOMAIN_CHARS: usize = 253;
/// The options of pods that use the cluster's name servers.
const CLUSTER_OPTIONS: &[&str] = &["ndots:5"];

/// Name servers of the cluster, and the resolver configuration of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsOptions {
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// The node's file, read for each pod; `None` if the configuration names no file, which disables lookups.
    pub resolv_conf: Option<PathBuf>,
    pub node_ips: Vec<IpAddr>,
}

/// Where the name servers of a pod come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Cluster,
    Host,
    Pod,
}

/// The node's own configuration. A file that is absent is an empty one, as for the resolver of libc.
fn host_dns(options: &DnsOptions) -> Result<DnsConfig, String> {
    let Some(path) = &options.resolv_conf else { return Ok(DnsConfig::default()) };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse_resolv_conf(&text)),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(DnsConfig::default()),
        Err(why) => Err(format!("failed to open {}: {why}", path.display())),
    }
}

/// The configuration of a pod, and events about it. The node's file is read each time: networks change it.
pub fn pod_dns(pod: &Pod, options: &DnsOptions) -> Result<(DnsConfig, Vec<Note>), String> {
    let mut notes = Vec::new();
    let mut dns = host_dns(options)?;
    let mut base = base_of(pod)?;
    if base == Base::Cluster && options.cluster_dns.is_empty() {
        let message = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" \
                       policy. Falling back to \"Default\" policy.";
        notes.push(Note::warning("MissingClusterDNS", format!("pod: {:?}. {message}", description(pod))));
        base = Base::Host;
    }
    match base {
        Base::Pod => dns = DnsConfig::default(),
        Base::Cluster => {
            dns.servers = options.cluster_dns.clone();
            dns.searches = cluster_searches(&dns.searches, &pod.metadata.namespace, &options.cluster_domain);
            dns.options = CLUSTER_OPTIONS.iter().map(|&it| it.to_owned()).collect();
        }
        Base::Host if options.resolv_conf.is_none() => {
            let loopback = |ip: &IpAddr| if ip.is_ipv6() { "::1" } else { "127.0.0.1" }.to_owned();
            dns.servers = options.node_ips.iter().map(loopback).collect();
            if dns.servers.is_empty() {
                dns.servers.push("127.0.0.1".to_owned());
            }
            dns.searches = vec![".".to_owned()];
        }
        Base::Host => {}
    }
    if let Some(additions) = &pod.spec.dns_config {
        append(&mut dns, additions);
    }
    fit_limits(&mut dns, &mut notes);
    Ok((dns, notes))
}

fn base_of(pod: &Pod) -> Result<Base, String> {
    match &*pod.spec.dns_policy {
        "None" => Ok(Base::Pod),
        "ClusterFirstWithHostNet" => Ok(Base::Cluster),
        "ClusterFirst" | "" if !pod.spec.host_network => Ok(Base::Cluster),
        "ClusterFirst" | "" | "Default" => Ok(Base::Host),
        other => Err(format!("invalid DNSPolicy={other}")),
    }
}

/// Reads the lines `nameserver`, `search` and `options`; the last `search` counts.
pub fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                // a domain with and without its last dot counts once
                let domain =
                    |word: &str| if word == "." { "." } else { word.trim_end_matches('.') }.to_owned();
                dns.searches = words.map(domain).collect();
            }
            Some("options") => {
                for option in words {
                    let name = option.split(':').next();
                    dns.options.retain(|it| it.split(':').next() != name);
                    dns.options.push(option.to_owned());
                }
                dns.options.sort();
            }
            _ => {}
        }
    }
    dns
}

fn cluster_searches(host: &[String], namespace: &str, domain: &str) -> Vec<String> {
    if domain.is_empty() {
        return host.to_vec();
    }
    let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
    unique(own.into_iter().chain(host.iter().cloned()))
}

fn unique(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

fn append(dns: &mut DnsConfig, additions: &PodDNSConfig) {
    dns.servers = unique(dns.servers.drain(..).chain(additions.nameservers.iter().cloned()));
    dns.searches = unique(dns.searches.drain(..).chain(additions.searches.iter().cloned()));
    for option in &additions.options {
        let text = match option.value.as_deref().unwrap_or_default() {
            "" => option.name.clone(),
            value => format!("{}:{value}", option.name),
        };
        match dns.options.iter_mut().find(|it| it.split(':').next() == Some(&option.name)) {
            Some(current) => *current = text,
            None => dns.options.push(text),
        }
    }
}

fn fit_limits(dns: &mut DnsConfig, notes: &mut Vec<Note>) {
    if dns.servers.len() > MAX_SERVERS {
        dns.servers.truncate(MAX_SERVERS);
        let message = format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            dns.servers.join(" ")
        );
        notes.push(Note::warning("DNSConfigForming", message));
    }
    let count = dns.searches.len();
    dns.searches.truncate(MAX_SEARCHES);
    dns.searches.retain(|search| search.len() <= MAX_DOMAIN_CHARS);
    let mut length = dns.searches.iter().map(|it| it.len() + 1).sum::<usize>().saturating_sub(1);
    while length > MAX_SEARCH_CHARS {
        let Some(last) = dns.searches.pop() else { break };
        length = length.saturating_sub(last.len() + 1);
    }
    if dns.searches.len() < count {
        let message = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            dns.searches.join(" ")
        );
        notes.push(Note::warning("DNSConfigForming", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;
    use tempfile::NamedTempFile;

    /// The node's file.
    fn host_file() -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let text = "nameserver 127.0.0.1\nsearch node.test example.test.\noptions ndots:2\n";
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn options(host: &NamedTempFile) -> DnsOptions {
        DnsOptions {
            cluster_dns: vec!["10.96.0.10".to_owned()],
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: Some(host.path().to_owned()),
            node_ips: Vec::new(),
        }
    }

    fn render(spec: &str, options: &DnsOptions) -> (String, Vec<String>) {
        let pod: Pod =
            object(&format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{spec}}}"#));
        let (dns, notes) = pod_dns(&pod, options).unwrap();
        let text = [dns.searches.join(" "), dns.servers.join(" "), dns.options.join(" ")].join(" | ");
        (text, notes.into_iter().map(|note| note.message).collect())
    }

    #[test]
    fn policies_choose_the_servers() {
        let host = host_file();
        let check =
            |spec: &str, expected: &str| assert_eq!(render(spec, &options(&host)).0, expected, "{spec}");
        let cluster = "n.svc.cluster.local svc.cluster.local cluster.local node.test example.test";
        let config = r#""dnsConfig":{"nameservers":["9.9.9.9"],"searches":["x.test","y.test"],
            "options":[{"name":"ndots","value":"3"},{"name":"edns0"}]}"#;
        check(r#"{"dnsPolicy":"ClusterFirst"}"#, &format!("{cluster} | 10.96.0.10 | ndots:5"));
        check(
            r#"{"dnsPolicy":"ClusterFirst","hostNetwork":true}"#,
            "node.test example.test | 127.0.0.1 | ndots:2",
        );
        check(
            r#"{"dnsPolicy":"ClusterFirstWithHostNet","hostNetwork":true}"#,
            &format!("{cluster} | 10.96.0.10 | ndots:5"),
        );
        check(
            &format!(r#"{{"dnsPolicy":"ClusterFirst",{config}}}"#),
            &format!("{cluster} x.test y.test | 10.96.0.10 9.9.9.9 | ndots:3 edns0"),
        );
        check(
            &format!(r#"{{"dnsPolicy":"Default",{config}}}"#),
            "node.test example.test x.test y.test | 127.0.0.1 9.9.9.9 | ndots:3 edns0",
        );
        check(&format!(r#"{{"dnsPolicy":"None",{config}}}"#), "x.test y.test | 9.9.9.9 | ndots:3 edns0");
        check(
            r#"{"dnsPolicy":"ClusterFirst","dnsConfig":{"nameservers":["10.96.0.10","1.1.1.1","1.1.1.1"],
                "options":[{"name":"ndots","value":"1"},{"name":"ndots","value":"2"}],
                "searches":["cluster.local","a.test","a.test"]}}"#,
            &format!("{cluster} a.test | 10.96.0.10 1.1.1.1 | ndots:2"),
        );
    }

    #[test]
    fn limits_omit_servers_and_searches_with_an_event() {
        let host = host_file();
        let spec =
            r#"{"dnsPolicy":"ClusterFirst","dnsConfig":{"nameservers":["1.1.1.1","2.2.2.2","3.3.3.3"]}}"#;
        let (text, notes) = render(spec, &options(&host));
        assert!(text.contains("| 10.96.0.10 1.1.1.1 2.2.2.2 |"), "{text}");
        let message = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.96.0.10 1.1.1.1 2.2.2.2";
        assert_eq!(notes, [message]);
        let searches = (0..40).map(|it| format!("\"s{it}.test\"")).collect::<Vec<_>>().join(",");
        let (text, notes) = render(
            &format!(r#"{{"dnsPolicy":"None","dnsConfig":{{"searches":[{searches}]}}}}"#),
            &options(&host),
        );
        assert!(text.starts_with("s0.test ") && text.contains("s31.test |"), "{text}");
        assert!(notes[0].starts_with("Search Line limits were exceeded"), "{notes:?}");
        let long = "a".repeat(200);
        let searches = (0..12).map(|it| format!("\"{long}{it}\"")).collect::<Vec<_>>().join(",");
        let (text, _) = render(
            &format!(r#"{{"dnsPolicy":"None","dnsConfig":{{"searches":[{searches}]}}}}"#),
            &options(&host),
        );
        assert_eq!(text.split(" | ").next().unwrap().split(' ').count(), 10);
    }

    #[test]
    fn absent_settings_have_fallbacks() {
        let host = host_file();
        let none = DnsOptions { cluster_dns: Vec::new(), ..options(&host) };
        let (text, notes) = render(r#"{"dnsPolicy":"ClusterFirst"}"#, &none);
        assert_eq!(text, "node.test example.test | 127.0.0.1 | ndots:2");
        assert!(notes[0].starts_with("pod: \"p_n(u)\". kubelet does not have ClusterDNS IP"), "{notes:?}");
        let disabled = DnsOptions { resolv_conf: None, ..options(&host) };
        assert_eq!(render(r#"{"dnsPolicy":"Default"}"#, &disabled).0, ". | 127.0.0.1 | ");
    }

    #[test]
    fn pods_see_the_nodes_file_as_it_is_now() {
        let host = host_file();
        let options = options(&host);
        let shown = || render(r#"{"dnsPolicy":"Default"}"#, &options).0;
        assert_eq!(shown(), "node.test example.test | 127.0.0.1 | ndots:2");
        std::fs::write(host.path(), "nameserver 192.0.2.53\n").unwrap();
        assert_eq!(shown(), " | 192.0.2.53 | ");
        std::fs::remove_file(host.path()).unwrap();
        assert_eq!(shown(), " |  | ");
        std::fs::create_dir(host.path()).unwrap();
        let why = pod_dns(&object(r#"{"spec":{"dnsPolicy":"Default"}}"#), &options).unwrap_err();
        assert!(why.starts_with("failed to open "), "{why}");
        std::fs::remove_dir(host.path()).unwrap();
    }
}
