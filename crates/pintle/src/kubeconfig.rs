//! The administrator's kubeconfig, with embedded credentials.
//!
//! The current context uses a token, which every client library supports. A second user has the administrator's
//! certificate, which proves possession of a key (decision 015).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::files;
use crate::pki::{ADMIN, CertifiedKey};

/// The first line of a kubeconfig that pintle wrote; only those are overwritten.
const FIRST_LINE: &str = "# Made by pintle, which writes it anew at every start.";

/// The text of the kubeconfig.
pub fn render(server: SocketAddr, authority_pem: &str, token: &str, admin: &CertifiedKey) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "{head}users:
- name: {ADMIN}-certificate
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
- name: {ADMIN}
  user:
    token: {token}
contexts:
- name: pintle
  context:
    cluster: pintle
    user: {ADMIN}
- name: pintle-certificate
  context:
    cluster: pintle
    user: {ADMIN}-certificate
current-context: pintle
",
        head = head(server, authority_pem),
        certificate = encode(&admin.certificate),
        key = encode(&admin.key),
    )
}

/// The text of a kubeconfig for one user with a certificate.
pub fn render_user(server: SocketAddr, authority_pem: &str, user: &str, pair: &CertifiedKey) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "{head}users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: pintle
  context:
    cluster: pintle
    user: {user}
current-context: pintle
",
        head = head(server, authority_pem),
        certificate = encode(&pair.certificate),
        key = encode(&pair.key),
    )
}

/// The first lines of a kubeconfig, with its cluster.
fn head(server: SocketAddr, authority_pem: &str) -> String {
    format!(
        "{FIRST_LINE}
apiVersion: v1
kind: Config
clusters:
- name: pintle
  cluster:
    server: {url}
    certificate-authority-data: {authority}
",
        url = url(server),
        authority = STANDARD.encode(authority_pem),
    )
}

/// The URL of a server that listens on `address`, for clients on this machine.
pub fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        specific => specific,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// Writes the kubeconfig, but never over a file that pintle did not write.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let formatted = path.display();
    if let Some(present) = files::read(path)? {
        let ours = present.is_empty() || present.lines().next() == Some(FIRST_LINE);
        anyhow::ensure!(
            ours,
            "{formatted} already exists and was not written by pintle: name another file with --write-kubeconfig"
        );
    }
    files::replace(path, text.as_bytes()).map_err(|error| {
        anyhow::anyhow!(
            "cannot write the kubeconfig {formatted}: {error}; name another with --write-kubeconfig"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use outbound::{Credentials, Target};

    fn admin() -> CertifiedKey {
        CertifiedKey { certificate: "CERT".to_owned(), key: "KEY".to_owned() }
    }

    #[test]
    fn everything_is_embedded() {
        let text = render("127.0.0.1:6443".parse().unwrap(), "CA", "TOKEN", &admin());
        for line in [
            "    server: https://127.0.0.1:6443",
            "    certificate-authority-data: Q0E=",
            "    client-certificate-data: Q0VSVA==",
            "    client-key-data: S0VZ",
            "    token: TOKEN",
            "- name: pintle-admin",
            "current-context: pintle",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn clients_read_both_contexts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert;
        let text = render("127.0.0.1:6443".parse().unwrap(), &authority.pem(), "TOKEN", &admin());
        for (context, has_token) in [("pintle", true), ("pintle-certificate", false)] {
            let chosen = text.replace("current-context: pintle", &format!("current-context: {context}"));
            std::fs::write(&file, chosen).unwrap();
            let target = Target::from_kubeconfig(&file).unwrap();
            assert_eq!(target.url.trim_end_matches('/'), "https://127.0.0.1:6443");
            assert_eq!(target.authorities, Some(authority.pem().into_bytes()));
            let token = matches!(target.credentials, Credentials::Bearer(token) if token == "TOKEN");
            assert_eq!(token, has_token, "{context}");
            assert_eq!(target.identity.is_some(), !has_token, "{context}");
        }
    }

    #[test]
    fn a_node_has_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert;
        let text =
            render_user("127.0.0.1:6443".parse().unwrap(), &authority.pem(), "system:node:n", &admin());
        write(&file, &text).unwrap();
        let target = Target::from_kubeconfig(&file).unwrap();
        assert_eq!(target.url.trim_end_matches('/'), "https://127.0.0.1:6443");
        assert!(target.identity.is_some());
    }

    #[test]
    fn a_server_on_all_addresses_is_reached_on_this_machine() {
        for (address, expected) in [
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:2", "https://[::1]:2"),
            ("10.1.2.3:4", "https://10.1.2.3:4"),
            ("[fd00::1]:5", "https://[fd00::1]:5"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn only_our_own_file_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = render("127.0.0.1:6443".parse().unwrap(), "CA", "TOKEN", &admin());
        write(&path, &text).unwrap();
        write(&path, &text).unwrap();
        std::fs::write(&path, "apiVersion: v1\n").unwrap();
        let refused = write(&path, &text).unwrap_err().to_string();
        assert!(refused.contains("--write-kubeconfig"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");
    }
}
