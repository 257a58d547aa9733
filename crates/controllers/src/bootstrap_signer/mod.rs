//! Signs the public cluster information with each bootstrap token, so that a new node that has a token can verify it.
//!
//! ```text
//! cluster-info:
//!   kubeconfig: ...                            the address of the API server and its certificate authority
//!   jws-kubeconfig-abcdef: eyJhbGci...f..x9Q   the detached signature with the token abcdef
//! ```
//!
//! There is a signature for every token that may sign, and no other; the content is not changed.

use crate::Context;
use crate::bootstrap_token::{expiration, signing};
use api::core::v1::{ConfigMap, Secret};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run, unless};
use ring::hmac;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MAP: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
/// The prefix of the keys of signatures; the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";

struct Signer {
    context: Context,
    maps: Informer<ConfigMap>,
    secrets: Informer<Secret>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let names = &context.names;
    let key = Key::new(names.public_namespace(), MAP);
    let maps = context.informer_of::<ConfigMap>(&key.namespace, &format!("metadata.name={MAP}"));
    let kind = format!("type={}", names.bootstrap_token_type());
    let secrets = context.informer_of::<Secret>(&names.system_namespace(), &kind);
    let signer = Arc::new(Signer { context, maps: maps.clone(), secrets: secrets.clone() });
    let (changed, map_key) = (queue.clone(), key.clone());
    maps.listen(move |_| changed.add(map_key.clone()));
    let changed = queue.clone();
    secrets.listen(move |_| changed.add(key.clone()));
    maps.synced().await;
    secrets.synced().await;
    run::run(signer, queue, 1).await;
}

impl Reconcile for Signer {
    type Key = Key;

    fn name(&self) -> &'static str {
        "bootstrapsigner"
    }

    fn queue_name(&self) -> &'static str {
        "bootstrap_signer_queue"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(map) = self.maps.get(key) else { return Ok(Action::AwaitChange) };
        let (now, secrets) = (self.context.now(), self.secrets.all());
        let tokens: BTreeMap<&str, &str> = secrets.iter().filter_map(|secret| signing(secret, now)).collect();
        let data = sign(&map.data, &tokens);
        if data != map.data {
            let maps: Api<ConfigMap> = Api::namespaced(&self.context.client, &key.namespace);
            let next = ConfigMap { data, ..(*map).clone() };
            unless(404, maps.replace(&next).await)?;
        }
        // the signature of an expired token is removed
        let first_expiry =
            secrets.iter().filter_map(|secret| expiration(secret)).filter(|until| *until > now).min();
        Ok(match first_expiry {
            Some(until) => Action::Requeue(Duration::from_secs((until - now).unsigned_abs())),
            None => Action::AwaitChange,
        })
    }
}

/// The data with the signatures of exactly these tokens, by id.
fn sign(data: &BTreeMap<String, String>, tokens: &BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    let mut next = data.clone();
    let Some(content) = data.get(CONTENT) else { return next };
    next.retain(|key, _| !key.starts_with(SIGNATURE));
    for (id, half) in tokens {
        next.insert(format!("{SIGNATURE}{id}"), signature(content, id, half));
    }
    next
}

/// A JSON web signature with detached content: `header..signature`.
fn signature(content: &str, id: &str, half: &str) -> String {
    let header =
        URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":{}}}"#, serde_json::Value::from(id)));
    let key = hmac::Key::new(hmac::HMAC_SHA256, half.as_bytes());
    let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let tag = hmac::sign(&key, text.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_come_and_go_with_their_tokens() {
        let data = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
        };
        let tokens = BTreeMap::from([("abcdef", "0123456789abcdef")]);
        let old = data(&[("kubeconfig", "x"), ("other", "y"), ("jws-kubeconfig-fedcba", "old")]);
        let next = sign(&old, &tokens);
        assert_eq!(next.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
        assert_eq!(sign(&next, &tokens), next);
        assert_eq!(sign(&next, &BTreeMap::new()), data(&[("kubeconfig", "x"), ("other", "y")]));
        let empty = data(&[("jws-kubeconfig-fedcba", "old")]);
        assert_eq!(sign(&empty, &tokens), empty);
    }

    /// The expected signature is from another implementation.
    #[test]
    fn signatures_verify_elsewhere() {
        let signature = signature("payload", "abcdef", "0123456789abcdef");
        let (header, rest) = signature.split_once("..").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(header).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
        assert_eq!(rest, EXPECTED);
    }

    const EXPECTED: &str = "pQpAf41KnbpDpf53Otu_ufAeAbWD9CSytTS_WpoG4Mc";
}
