//! The first certificate of a node: requested with the credentials of a bootstrap kubeconfig, and named in the kubeconfig
//! of the agent.

use super::certificate::{PemPair, invalid};
use super::certificate_store::CertificateStore;
use super::signing_request::{CertificateTemplate, KeySource, Purpose, SigningError, SigningRequest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Error};
use env::World;
use outbound::Target;
use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long the decision about the first certificate may take.
const DECISION_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long an API server that cannot be reached is tried, and how often.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
const SERVER_RETRY: Duration = Duration::from_secs(2);

/// Whether a kubeconfig has a client certificate that is valid now.
pub fn is_valid_kubeconfig(file: &Path, now: SystemTime) -> bool {
    if !file.exists() {
        return false;
    }
    let target = match Target::from_kubeconfig(file) {
        Ok(target) => target,
        Err(why) => {
            tracing::warn!(%why, "the kubeconfig is not used: the node is bootstrapped");
            return false;
        }
    };
    let chain = target.identity.map(|(certificate, _)| certificate).unwrap_or_default();
    let mut certificates = CertificateDer::pem_slice_iter(&chain).peekable();
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_current = |der: CertificateDer<'_>| {
        X509Certificate::from_der(&der).is_ok_and(|(_, it)| {
            u64::try_from(it.validity().not_after.timestamp()).unwrap_or(0) > since_epoch
        })
    };
    certificates.peek().is_some() && certificates.all(|it| it.is_ok_and(is_current))
}

/// Writes the kubeconfig of an agent whose certificate and key are in one file.
pub fn write_kubeconfig(file: &Path, server: &Target, pem: &Path) -> io::Result<()> {
    durable_file::replace(file, kubeconfig(server, pem), durable_file::PRIVATE)
}

fn kubeconfig(server: &Target, pem: &Path) -> String {
    // a JSON string is a YAML string
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut cluster = format!("    server: {}\n", quoted(&server.url));
    match (&server.authority_file, &server.authorities) {
        (Some(file), _) => {
            cluster.push_str(&format!("    certificate-authority: {}\n", quoted(&file.to_string_lossy())));
        }
        (None, Some(text)) => {
            cluster.push_str(&format!("    certificate-authority-data: {}\n", STANDARD.encode(text)));
        }
        (None, None) => {}
    }
    if server.insecure {
        cluster.push_str("    insecure-skip-tls-verify: true\n");
    }
    if let Some(name) = &server.server_name {
        cluster.push_str(&format!("    tls-server-name: {}\n", quoted(name)));
    }
    let pem = quoted(&pem.to_string_lossy());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: default-cluster
  cluster:
{cluster}users:
- name: default-auth
  user:
    client-certificate: {pem}
    client-key: {pem}
contexts:
- name: default-context
  context:
    cluster: default-cluster
    namespace: default
    user: default-auth
current-context: default-context
"
    )
}

/// What the first certificate is requested with.
pub struct Bootstrap<'a> {
    /// A client with the credentials of the bootstrap kubeconfig.
    pub client: &'a Client,
    pub world: &'a World,
    pub keys: &'a KeySource,
    pub names: &'a names::Names,
    pub node_name: &'a str,
    pub store: &'a CertificateStore,
    pub directory: &'a Path,
}

/// Why there is no first certificate.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("{0}")]
    Signing(#[from] SigningError),
    #[error("{0}")]
    File(#[from] io::Error),
}

impl Bootstrap<'_> {
    /// Requests the first certificate and stores it. The key is kept beside it until then, so that an agent that starts
    /// again finds its request.
    pub async fn run(&self) -> Result<(), BootstrapError> {
        let temporary = self.directory.join("kubelet-client.key.tmp");
        let key = self.key(&temporary)?;
        let template = CertificateTemplate::of_node(self.node_name);
        let request = SigningRequest {
            client: self.client,
            world: self.world,
            keys: self.keys,
            signer: Purpose::Client.signer(self.names),
            purpose: Purpose::Client,
            template: &template,
            timeout: DECISION_TIMEOUT,
        };
        let pair = self.request(&request, &key).await?;
        self.store.update(&pair, self.world.now())?;
        match std::fs::remove_file(&temporary) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why.into()),
            _ => Ok(()),
        }
    }

    async fn request(&self, request: &SigningRequest<'_>, key: &KeyPair) -> Result<PemPair, SigningError> {
        let end = self.world.elapsed() + SERVER_TIMEOUT;
        loop {
            match request.run_for(key).await {
                Err(SigningError::Api(Error::Transport(why))) if self.world.elapsed() < end => {
                    tracing::warn!(%why, "waiting for the API server to bootstrap the node");
                    env::sleep(self.world, SERVER_RETRY).await;
                }
                made => return made,
            }
        }
    }

    /// The key of the store, of an earlier attempt, or a new one.
    fn key(&self, temporary: &PathBuf) -> io::Result<KeyPair> {
        let stored = self.store.current().ok().flatten().map(|it| it.key);
        let earlier = stored.or_else(|| std::fs::read(temporary).ok());
        let earlier =
            earlier.and_then(|it| KeyPair::from_pem(&private_key(&String::from_utf8(it).ok()?)?).ok());
        match earlier {
            Some(key) => Ok(key),
            None => {
                let key = (self.keys)().map_err(invalid)?;
                durable_file::replace(temporary, key.serialize_pem(), durable_file::PRIVATE)?;
                Ok(key)
            }
        }
    }
}

/// The key in a text that may have certificates, too.
fn private_key(text: &str) -> Option<String> {
    let begin =
        text.find("-----BEGIN PRIVATE KEY-----").or_else(|| text.find("-----BEGIN EC PRIVATE KEY-----"))?;
    Some(text[begin..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::testing::node_certificate;

    #[test]
    fn kubeconfigs_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("conf/kubelet.conf");
        let store = CertificateStore::new(folder.path(), "kubelet-client", None);
        let pair = node_certificate("n", 1000, 2000);
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(!is_valid_kubeconfig(&file, at(1500)));
        let server = Target {
            url: "https://10.0.0.1:6443/".to_owned(),
            authorities: Some(pair.certificate.clone()),
            server_name: Some("there.example".to_owned()),
            ..Target::default()
        };
        write_kubeconfig(&file, &server, &store.current_path()).unwrap();
        assert!(!is_valid_kubeconfig(&file, at(1500)), "there is no certificate yet");
        store.update(&pair, at(1500)).unwrap();
        assert!(is_valid_kubeconfig(&file, at(1999)));
        assert!(!is_valid_kubeconfig(&file, at(2000)));
        let read = Target::from_kubeconfig(&file).unwrap();
        assert_eq!((&read.url, &read.authorities), (&server.url, &server.authorities));
        assert_eq!(read.server_name.as_deref(), Some("there.example"));
        assert_eq!(read.identity_files, Some((store.current_path(), store.current_path())));
    }

    #[test]
    fn keys_are_found_beside_certificates() {
        let pair = node_certificate("n", 1000, 2000);
        let mut text = pair.certificate.clone();
        text.extend_from_slice(&pair.key);
        let found = private_key(&String::from_utf8(text).unwrap()).unwrap();
        assert_eq!(found.into_bytes(), pair.key);
        assert_eq!(private_key("none"), None);
    }
}
