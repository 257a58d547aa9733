//! The `cluster-keys` ConfigMap: digests of the keys that all servers of one etcd must share.
//!
//! Other servers must accept a token that this server signs, and likewise certificates. Each server publishes
//! the keys that it accepts, and does not start if it shares none with the others.
//!
//! ```text
//! published   this server   it starts  published then
//! (nothing)   k1            yes        k1
//! k1          k1, k2        yes        k1, k2          a rotation begins
//! k1, k2      k2            yes        k2              it is complete
//! k2          k1            no         k2
//! ```
//!
//! Invariants: only digests of public keys and certificates are published. Upstream's servers publish
//! nothing, and are not compared. Ephemeral keys are not published.

use crate::authentication::ServiceAccounts;
use crate::loopback;
use crate::serve::Authorities;
use rest::{Api, ApiError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use schema::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "cluster-keys";

/// Retries of a write after a conflict, and the pause between them.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The field of the ConfigMap, a description, and the flags that set it.
const SERVICE_ACCOUNTS: (&str, &str, &str) = (
    "service-account-keys",
    "keys of service-account tokens",
    "--service-account-signing-key-file and --service-account-key-file",
);
const CLIENTS: (&str, &str, &str) = ("client-authorities", "authorities for clients", "--client-ca-file");
const PROXIES: (&str, &str, &str) =
    ("front-proxy-authorities", "authorities for front proxies", "--requestheader-client-ca-file");

/// One kind of key.
struct Keys {
    field: (&'static str, &'static str, &'static str),
    own: BTreeSet<String>,
    /// Whether the keys exist only in this process, so that no other server can have them.
    ephemeral: bool,
}

/// All keys that servers share.
pub(crate) struct ClusterKeys(Vec<Keys>);

/// The servers of the cluster use other keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other servers of this cluster have other {subject} (config map {namespace}/cluster-keys): give this server the same \
     by {flags}, or the data directory's folder pki of one of them; or, to replace the keys of the cluster for good, \
     delete that config map first"
)]
pub struct ForeignKeys {
    subject: &'static str,
    flags: &'static str,
    namespace: String,
}

/// Why the keys could not be compared.
pub(crate) enum Failure {
    Foreign(ForeignKeys),
    Api(ApiError),
}

impl ClusterKeys {
    pub fn new(accounts: &ServiceAccounts, authorities: &Authorities, ephemeral: (bool, bool)) -> Self {
        let (ephemeral_signer, ephemeral_authorities) = ephemeral;
        let signer = accounts.signer.iter().map(|signer| signer.public());
        let tokens = accounts.keys.iter().chain(signer).map(|key| key.id().to_owned()).collect();
        let of_bundle = |pem: Option<Vec<u8>>| {
            let certificates = pem.unwrap_or_default();
            CertificateDer::pem_slice_iter(&certificates)
                .filter_map(Result::ok)
                .map(|it| digest(&it))
                .collect()
        };
        let keys = |field, own, ephemeral| Keys { field, own, ephemeral };
        let mut all = vec![keys(SERVICE_ACCOUNTS, tokens, ephemeral_signer)];
        // a server without configured authorities accepts only its own, which does not contradict the others
        if !ephemeral_authorities {
            all.push(keys(CLIENTS, of_bundle(authorities.clients()), false));
            all.push(keys(PROXIES, of_bundle(authorities.proxies()), false));
        }
        ClusterKeys(all)
    }

    /// Compares the keys with the published ones, and publishes them.
    pub async fn publish(&self, api: &Arc<Api>) -> Result<(), Failure> {
        let namespace = api.names.system_namespace();
        let resources = api.resources();
        let Some(resource) = resources.get("v1", "configmaps") else { return Ok(()) };
        let mut tries = 1;
        loop {
            let config_map = api.lookup("configmaps", &namespace, NAME);
            let next = self.next(config_map.as_ref(), &namespace).map_err(Failure::Foreign)?;
            let Some(next) = next else { return Ok(()) };
            let name = if config_map.is_some() { NAME } else { "" };
            let target = loopback::WriteTarget { resource, namespace: &namespace, name, subresource: "" };
            match loopback::write(api, target, &next).await {
                // another server published concurrently: compare with its keys next
                Err(why) if matches!(why.code, 404 | 409) && tries < TRIES => tries += 1,
                done => return done.map(drop).map_err(Failure::Api),
            }
            env::io::sleep(PAUSE).await;
        }
    }

    /// The updated ConfigMap; `None` if it is up to date.
    fn next(&self, found: Option<&Value>, namespace: &str) -> Result<Option<Value>, ForeignKeys> {
        let mut next = found.cloned().unwrap_or_else(Value::map);
        next.set(&["metadata", "name"], NAME);
        for Keys { field, own, ephemeral } in &self.0 {
            let (field, subject, flags) = *field;
            let published = found.map_or("", |it| it.text(&["data", field]));
            let published: BTreeSet<_> = published.lines().map(str::to_owned).collect();
            if own.is_empty() {
                continue;
            }
            if !published.is_empty() && published.is_disjoint(own) {
                return Err(ForeignKeys { subject, flags, namespace: namespace.to_owned() });
            }
            if *ephemeral {
                tracing::warn!(
                    "the {subject} exist only in this process, and other servers do not know them: set {flags}"
                );
                continue;
            }
            let text: Vec<_> = own.iter().map(String::as_str).collect();
            next.set(&["data", field], text.join("\n"));
        }
        let says_nothing = next.at(&["data"]).is_none();
        Ok((found != Some(&next) && !says_nothing).then_some(next))
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // writing to a string cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(own: &[&str], ephemeral: bool) -> ClusterKeys {
        let own = own.iter().map(|it| (*it).to_owned()).collect();
        ClusterKeys(vec![Keys { field: SERVICE_ACCOUNTS, own, ephemeral }])
    }

    #[test]
    fn one_key_in_common_is_enough() {
        let first = keys(&["k1"], false).next(None, "s").unwrap().unwrap();
        assert_eq!(keys(&["k1"], false).next(Some(&first), "s"), Ok(None));
        let both = keys(&["k1", "k2"], false).next(Some(&first), "s").unwrap().unwrap();
        assert_eq!(both.text(&["data", "service-account-keys"]), "k1\nk2");
        let second = keys(&["k2"], false).next(Some(&both), "s").unwrap().unwrap();
        let refused = keys(&["k1"], false).next(Some(&second), "s").unwrap_err().to_string();
        assert!(
            refused.contains("--service-account-key-file") && refused.contains("s/cluster-keys"),
            "{refused}"
        );
    }

    #[test]
    fn keys_that_end_with_the_process_are_compared_and_not_published() {
        assert_eq!(keys(&["k1"], true).next(None, "s"), Ok(None));
        let first = keys(&["k1"], false).next(None, "s").unwrap().unwrap();
        assert!(keys(&["k9"], true).next(Some(&first), "s").is_err());
        // a server without keys neither signs nor accepts
        assert_eq!(keys(&[], false).next(Some(&first), "s"), Ok(None));
    }
}
