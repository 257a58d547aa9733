//! The hosts file of a pod.

use api::core::v1::HostAlias;
use std::fmt::Write;

/// The name of the file below a pod's directory.
pub const FILE: &str = "etc-hosts";
/// The path in containers.
pub const PATH: &str = "/etc/hosts";

const MANAGED: &str = "# Kubernetes-managed hosts file.\n\
127.0.0.1\tlocalhost\n\
::1\tlocalhost ip6-localhost ip6-loopback\n\
fe00::0\tip6-localnet\n\
fe00::0\tip6-mcastprefix\n\
fe00::1\tip6-allnodes\n\
fe00::2\tip6-allrouters\n";
const HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";

/// The file of a pod with a network of its own.
pub fn pod_hosts(ips: &[String], hostname: &str, domain: &str, aliases: &[HostAlias]) -> String {
    let mut text = MANAGED.to_owned();
    for ip in ips {
        // writing to a string succeeds
        let _ = match domain {
            "" => writeln!(text, "{ip}\t{hostname}"),
            domain => writeln!(text, "{ip}\t{hostname}.{domain}\t{hostname}"),
        };
    }
    text + &alias_lines(aliases)
}

/// The file of a pod on the node's network: the node's own file, and the aliases.
pub fn host_network_hosts(node: &str, aliases: &[HostAlias]) -> String {
    format!("{HOST_NETWORK}{node}{}", alias_lines(aliases))
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let line = |alias: &HostAlias| format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t"));
    format!("\n# Entries added by HostAliases.\n{}", aliases.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn files_have_upstreams_texts() {
        let ips = ["10.0.0.5".to_owned(), "fd00::5".to_owned()];
        let aliases: Vec<HostAlias> = vec![object(r#"{"ip":"1.2.3.4","hostnames":["a","b"]}"#)];
        let head = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
        assert_eq!(pod_hosts(&ips[..1], "p", "", &[]), format!("{head}10.0.0.5\tp\n"));
        assert_eq!(
            pod_hosts(&ips, "h", "s.n.svc.c", &aliases),
            format!(
                "{head}10.0.0.5\th.s.n.svc.c\th\nfd00::5\th.s.n.svc.c\th\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
            )
        );
        assert_eq!(
            host_network_hosts("127.0.0.1 localhost\n", &[]),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
        );
    }
}
