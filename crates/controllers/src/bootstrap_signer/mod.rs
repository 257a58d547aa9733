//! Signs what everybody may read about the cluster, with each token by which new nodes introduce themselves: who holds
//! a token knows by that whether to believe it, before anything else is known about the cluster.
//!
//! ```text
//! cluster-info:
//!   kubeconfig: ...                            whom to call, and by which authority the answer is known
//!   jws-kubeconfig-abcdef: eyJhbGci...f..x9Q   the signature with the token abcdef, without what is signed
//! ```
//!
//! What always holds: there is a signature for every token that signs and none else; the content is left as it is.

use crate::Context;
use crate::bootstrap_token::{good_until, signing};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, PostParams};
use ring::hmac;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MAP: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
/// What the keys of signatures begin with; the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";

struct Signer {
    context: Context,
    maps: Informer<ConfigMap>,
    secrets: Informer<Secret>,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let names = &context.names;
    let key = Key::new(names.public_namespace(), MAP);
    let maps = context.informer_of::<ConfigMap>(&key.namespace, &format!("metadata.name={MAP}"));
    let kind = format!("type={}", names.bootstrap_token_type());
    let secrets = context.informer_of::<Secret>(&names.system_namespace(), &kind);
    let this = Arc::new(Signer { context, maps: maps.clone(), secrets: secrets.clone() });
    let (news, one) = (queue.clone(), key.clone());
    maps.listen(move |_| news.add(one.clone()));
    let (news, one) = (queue.clone(), key);
    secrets.listen(move |_| news.add(one.clone()));
    maps.synced().await;
    secrets.synced().await;
    run::run(this, queue, 1).await;
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
        let held = map.data.clone().unwrap_or_default();
        let next = signed(&held, &tokens);
        if next != held {
            let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), &key.namespace);
            let next = ConfigMap { data: Some(next), ..(*map).clone() };
            unless(404, api.replace(MAP, &PostParams::default(), &next).await)?;
        }
        // a token that expires takes its signature with it
        let ends = secrets.iter().filter_map(|secret| good_until(secret)).filter(|until| *until > now).min();
        Ok(match ends {
            Some(until) => Action::Requeue(Duration::from_secs((until - now).unsigned_abs())),
            None => Action::AwaitChange,
        })
    }
}

/// The data with the signatures of these tokens, by id, and no others.
fn signed(held: &BTreeMap<String, String>, tokens: &BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    let Some(content) = held.get(CONTENT) else { return held.clone() };
    let mut next: BTreeMap<String, String> = held.clone();
    next.retain(|key, _| !key.starts_with(SIGNATURE));
    for (id, half) in tokens {
        next.insert(format!("{SIGNATURE}{id}"), signature(content, id, half));
    }
    next
}

/// A signature over a text that is not part of it: `header..signature`.
fn signature(content: &str, id: &str, half: &str) -> String {
    let header =
        URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":{}}}"#, serde_json::Value::from(id)));
    let key = hmac::Key::new(hmac::HMAC_SHA256, half.as_bytes());
    let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let made = hmac::sign(&key, text.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(made))
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
        let held = data(&[("kubeconfig", "x"), ("other", "y"), ("jws-kubeconfig-fedcba", "old")]);
        let next = signed(&held, &tokens);
        assert_eq!(next.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
        assert_eq!(signed(&next, &tokens), next);
        assert_eq!(signed(&next, &BTreeMap::new()), data(&[("kubeconfig", "x"), ("other", "y")]));
        let empty = data(&[("jws-kubeconfig-fedcba", "old")]);
        assert_eq!(signed(&empty, &tokens), empty);
    }

    /// Made with another implementation.
    #[test]
    fn signatures_are_what_others_verify() {
        let made = signature("payload", "abcdef", "0123456789abcdef");
        let (header, rest) = made.split_once("..").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(header).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
        assert_eq!(rest, EXPECTED);
    }

    const EXPECTED: &str = "pQpAf41KnbpDpf53Otu_ufAeAbWD9CSytTS_WpoG4Mc";
}
