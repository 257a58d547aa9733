//! The files of a node that has joined.
//!
//! ```text
//! <data directory>/
//!   lock                held while the node runs
//!   node/
//!     kubeconfig        the server and the certificate of the node
//!     ca.crt            the cluster's authorities
//!     servers           addresses of the cluster's servers, one per line
//!     pid               the process that runs the node
//!     pki/              certificates, as the agent keeps them
//!     pods/, ...        the directories of the agent
//! ```

use crate::data_dir::default_directory;
use crate::files::{self, DirectoryLock};
use crate::node_agent::agent_arguments;
use anyhow::Context as _;
use nodeagent::identity::bootstrap::{is_valid_kubeconfig, write_kubeconfig};
use outbound::Target;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The directory of a server's objects, in the same data directory.
const STORE: &str = "store";
const USER_PREFIX: &str = "system:node:";

/// See the module.
pub struct NodeDirectory {
    pub data_dir: PathBuf,
    _lock: Option<DirectoryLock>,
}

/// Who this machine is in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: String,
}

fn data_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => default_directory(|name| std::env::var_os(name).map(PathBuf::from))?,
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}

impl NodeDirectory {
    /// Creates the directory and locks it for this process.
    pub fn lock(given: Option<&Path>) -> anyhow::Result<Self> {
        let data_dir = data_dir(given)?;
        let node = data_dir.join("node");
        files::private_directory(&node)
            .with_context(|| format!("cannot create {}: choose another with --data-dir", node.display()))?;
        let lock = files::lock_directory(&data_dir)?;
        let directory = NodeDirectory { data_dir, _lock: Some(lock) };
        anyhow::ensure!(
            !directory.is_of_server(),
            "{} is the data directory of a server, whose node runs with pintle up: choose another with --data-dir",
            directory.data_dir.display()
        );
        files::private_directory(&directory.certificates())?;
        files::replace(&directory.pid_file(), std::process::id().to_string().as_bytes())?;
        Ok(directory)
    }

    /// The directory of a node that may run.
    pub fn open(given: Option<&Path>) -> anyhow::Result<Self> {
        Ok(NodeDirectory { data_dir: data_dir(given)?, _lock: None })
    }

    /// Whether a server keeps its objects here.
    pub fn is_of_server(&self) -> bool {
        self.data_dir.join(STORE).exists()
    }

    pub fn node(&self) -> PathBuf {
        self.data_dir.join("node")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.node().join("kubeconfig")
    }

    pub fn certificates(&self) -> PathBuf {
        self.node().join("pki")
    }

    pub fn servers(&self) -> PathBuf {
        self.node().join("servers")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.node().join("pid")
    }

    fn authorities(&self) -> PathBuf {
        self.node().join("ca.crt")
    }

    pub fn write_authorities(&self, pem: &str) -> anyhow::Result<()> {
        let file = self.authorities();
        files::replace(&file, pem.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// The server of the node, with its credentials.
    pub fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::from_kubeconfig(&self.kubeconfig())?)
    }

    /// Changes the server of the node.
    pub fn set_server(&self, url: &str) -> anyhow::Result<()> {
        let target = self.target()?;
        let (certificate, _) =
            target.identity_files.clone().context("the kubeconfig of the node names no certificate")?;
        let target = Target { url: url.to_owned(), ..target };
        write_kubeconfig(&self.kubeconfig(), &target, &certificate)
            .with_context(|| format!("cannot write {}", self.kubeconfig().display()))
    }

    /// Who this machine is, if it has joined and its certificate is valid.
    pub fn identity(&self, now: SystemTime) -> anyhow::Result<Option<NodeIdentity>> {
        if !is_valid_kubeconfig(&self.kubeconfig(), now) {
            return Ok(None);
        }
        let (pem, _) = self.target()?.identity.context("the kubeconfig of the node has no certificate")?;
        let certificate =
            CertificateDer::from_pem_slice(&pem).context("the certificate of the node is not in PEM")?;
        let (_, parsed) =
            X509Certificate::from_der(&certificate).context("the certificate of the node cannot be read")?;
        let mut names = parsed.subject().iter_common_name().filter_map(|it| it.as_str().ok());
        let name = names.find_map(|it| it.strip_prefix(USER_PREFIX));
        let name = name.context("the certificate in the kubeconfig of the node is not that of a node")?;
        Ok(Some(NodeIdentity { name: name.to_owned() }))
    }

    /// The command line of the agent.
    pub fn agent_arguments(&self, config: Option<&Path>, endpoint: &str, name: &str) -> Vec<String> {
        let mut arguments = agent_arguments(&self.node(), config, endpoint);
        arguments.extend([
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--client-ca-file={}", self.authorities().display()),
            format!("--hostname-override={name}"),
            "--rotate-certificates=true".to_owned(),
            // the rules of the service proxy are not those of iptables
            "--make-iptables-util-chains=false".to_owned(),
        ]);
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeagent::identity::{CertificateStore, PemPair};
    use rcgen::{CertificateParams, DnType, KeyPair};
    use std::time::Duration;

    fn pair(name: &str) -> PemPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().pem().into_bytes();
        PemPair { certificate, key: key.serialize_pem().into_bytes() }
    }

    #[test]
    fn a_machine_that_has_joined_knows_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let directory = NodeDirectory::lock(Some(folder.path())).unwrap();
        let now = SystemTime::now();
        assert_eq!(directory.identity(now).unwrap(), None);
        let store = CertificateStore::new(&directory.certificates(), "kubelet-client", None);
        let pair = pair("system:node:n2");
        let server = Target {
            url: "https://10.0.0.1:6443".to_owned(),
            authorities: Some(pair.certificate.clone()),
            ..Target::default()
        };
        store.update(&pair, now).unwrap();
        write_kubeconfig(&directory.kubeconfig(), &server, &store.current_path()).unwrap();
        assert_eq!(directory.identity(now).unwrap().unwrap().name, "n2");
        directory.set_server("https://10.0.0.2:6443").unwrap();
        let target = directory.target().unwrap();
        assert_eq!(target.url.trim_end_matches('/'), "https://10.0.0.2:6443");
        assert_eq!(target.authorities, server.authorities);
        assert!(target.identity.is_some());
        assert_eq!(directory.identity(now + Duration::from_secs(u64::from(u32::MAX) * 1000)).unwrap(), None);
        // one process at a time, and no server
        assert!(NodeDirectory::lock(Some(folder.path())).err().unwrap().to_string().contains("in use"));
        drop(directory);
        std::fs::create_dir(folder.path().join("store")).unwrap();
        let refused = NodeDirectory::lock(Some(folder.path())).err().unwrap().to_string();
        assert!(refused.contains("data directory of a server"), "{refused}");
    }
}
