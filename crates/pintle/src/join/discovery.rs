//! From an address, a token and a hash to the authorities of a server that is trusted.
//!
//! The cluster information is fetched without trust, and checked by its signature and by the pinned hashes. Then it is
//! fetched again over TLS that the pinned authorities verify: both answers must agree.

use super::advice::connection_advice;
use crate::admin_client::client;
use crate::bootstrap::cluster_info::{self, AuthorityHash};
use crate::bootstrap::token::BootstrapToken;
use api::core::v1::ConfigMap;
use client::{Api, Error};
use env::World;
use names::Names;
use outbound::Target;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The authorities of the server, in PEM.
pub async fn discover(
    url: &str,
    token: &BootstrapToken,
    pins: &[AuthorityHash],
    world: &World,
) -> anyhow::Result<String> {
    let untrusted = Target { url: url.to_owned(), insecure: true, ..Target::default() };
    let first = fetch(&untrusted, world).await.map_err(|error| advise(url, &error))?;
    let authorities = cluster_info::verify(&first.data, token, pins)?;
    let trusted = trusted(url, &authorities);
    let second = fetch(&trusted, world).await.map_err(|error| advise(url, &error))?;
    let content = |map: &ConfigMap| map.data.get(cluster_info::CONTENT).cloned();
    anyhow::ensure!(
        content(&first) == content(&second),
        "the server at {url} gave two different answers about the cluster: try again; if this repeats, another server \
         answers in between"
    );
    Ok(authorities)
}

/// A server that the pinned authorities verify.
pub fn trusted(url: &str, authorities: &str) -> Target {
    Target { url: url.to_owned(), authorities: Some(authorities.as_bytes().to_vec()), ..Target::default() }
}

async fn fetch(target: &Target, world: &World) -> Result<ConfigMap, Error> {
    let client = client(target, world).map_err(|why| Error::Request(format!("{why:#}")))?;
    let maps: Api<ConfigMap> = Api::namespaced(&client, &Names::kubernetes().public_namespace());
    let answer = env::timeout(world, TIMEOUT, maps.get(cluster_info::NAME)).await;
    answer.unwrap_or_else(|_| Err(Error::Request(format!("no answer within {TIMEOUT:?}"))))
}

/// What to do about a failed request.
fn advise(url: &str, error: &Error) -> anyhow::Error {
    let text = error.to_string();
    if [401, 403, 404].into_iter().any(|code| error.is(code)) {
        return anyhow::anyhow!(
            "the server at {url} has no public cluster information: run pintle token create there first ({text})"
        );
    }
    let advice = connection_advice(&text);
    anyhow::anyhow!("cannot get the cluster information from {url}: {text}: {advice}")
}
