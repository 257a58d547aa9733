//! The addresses of the cluster's servers. The node knows those that the cluster advertises, and goes on with another one
//! when its server does not answer.

use super::advice::connection_advice;
use super::node_directory::NodeDirectory;
use crate::admin_client::client;
use crate::files;
use anyhow::Context as _;
use api::core::v1::Endpoints;
use client::{Api, Client, Error};
use env::World;
use names::{DEFAULT_NAMESPACE, Names};
use outbound::Target;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// The pause after a failed check.
const RECHECK_PERIOD: Duration = Duration::from_secs(1);
/// A server that takes longer does not serve the node either.
const CHECK_TIMEOUT: Duration = Duration::from_secs(4);
/// Failed checks in a row after which another server is tried.
const FAILURES: u32 = 3;
/// Checks between two reads of the addresses.
const REFRESH: u32 = 6;

/// The URL of a server, in one form: `HOST:PORT` and `https://HOST:PORT/` are the same.
pub fn server_url(text: &str) -> anyhow::Result<String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url: Option<http::Uri> = with_scheme.parse().ok();
    let url =
        url.filter(|it| it.scheme_str() == Some("https") && it.host().is_some_and(|host| !host.is_empty()));
    let url =
        url.with_context(|| format!("{text:?} is not the URL of a server, such as https://10.0.0.1:6443"))?;
    let port = url.port_u16().map_or(String::new(), |port| format!(":{port}"));
    Ok(format!("https://{}{port}", url.host().unwrap_or_default()))
}

/// The URLs in the endpoints of the server's own service.
pub fn server_urls(endpoints: &Endpoints) -> Vec<String> {
    let mut urls = BTreeSet::new();
    for subset in &endpoints.subsets {
        let ports = subset.ports.iter().filter(|it| it.name.as_str() == "https" || subset.ports.len() == 1);
        for port in ports.filter_map(|it| u16::try_from(it.port).ok()) {
            let addresses = subset.addresses.iter().filter_map(|it| it.ip.parse::<IpAddr>().ok());
            urls.extend(addresses.map(|ip| format!("https://{}", SocketAddr::new(ip, port))));
        }
    }
    urls.into_iter().collect()
}

/// Makes another address that of the node's server, if the same cluster answers there.
pub async fn move_to(directory: &NodeDirectory, url: &str, world: &World) -> anyhow::Result<()> {
    let target = directory.target()?;
    if target.url.trim_end_matches('/') == url {
        return Ok(());
    }
    let moved = Target { url: url.to_owned(), ..target };
    check(&moved, world).await.map_err(|error| {
        let advice = connection_advice(&error.to_string());
        anyhow::anyhow!("the cluster of this node does not answer at {url}: {error}: {advice}")
    })?;
    directory.set_server(url)
}

/// Whether a server answers that has a certificate of the cluster and accepts the node's.
async fn check(target: &Target, world: &World) -> Result<(), Error> {
    let client = client(target, world).map_err(|why| Error::Request(format!("{why:#}")))?;
    is_alive(&client, world).await
}

/// An answer of the server; an error status is one, too, unless it refuses the node.
async fn is_alive(client: &Client, world: &World) -> Result<(), Error> {
    let request = http::Request::get("/livez").body(Vec::new());
    let request = request.map_err(|why| Error::Request(why.to_string()))?;
    match env::timeout(world, CHECK_TIMEOUT, client.request_bytes(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if matches!(error, Error::Api(_)) && !error.is(401) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::Request(format!("no answer within {CHECK_TIMEOUT:?}"))),
    }
}

/// Keeps the addresses of the servers, and returns the URL of another server once the node's own does not answer and
/// that one does. The kubeconfig names it then.
pub async fn follow(directory: &NodeDirectory, client: &Client, names: &Names, world: &World) -> String {
    let (mut failures, mut checks) = (0, 0);
    loop {
        match is_alive(client, world).await {
            Ok(()) => {
                failures = 0;
                if checks % REFRESH == 0
                    && let Err(why) = remember(directory, client, names).await
                {
                    tracing::warn!(why = format!("{why:#}"), "the addresses of the servers are not known");
                }
                checks += 1;
            }
            Err(why) => {
                failures += 1;
                tracing::warn!(%why, failures, "the server does not answer");
                if failures >= FAILURES
                    && let Some(url) = other(directory, world).await
                {
                    return url;
                }
            }
        }
        env::sleep(world, if failures == 0 { CHECK_PERIOD } else { RECHECK_PERIOD }).await;
    }
}

/// Writes the addresses that the cluster advertises to a file.
async fn remember(directory: &NodeDirectory, client: &Client, names: &Names) -> anyhow::Result<()> {
    let endpoints: Api<Endpoints> = Api::namespaced(client, DEFAULT_NAMESPACE);
    let urls = server_urls(&endpoints.get(&names.vendor).await?);
    if urls.is_empty() {
        return Ok(());
    }
    files::replace(&directory.servers(), (urls.join("\n") + "\n").as_bytes())?;
    Ok(())
}

/// The first other server that answers, which becomes the node's.
async fn other(directory: &NodeDirectory, world: &World) -> Option<String> {
    let target = directory.target().ok()?;
    let known = files::read(&directory.servers()).ok().flatten().unwrap_or_default();
    let current = target.url.trim_end_matches('/').to_owned();
    for url in known.lines().filter(|url| *url != current) {
        let other = Target { url: url.to_owned(), ..target.clone() };
        if check(&other, world).await.is_ok() && directory.set_server(url).is_ok() {
            return Some(url.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_one_form() {
        for (text, expected) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
            ("10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
            ("cluster.example.org", "https://cluster.example.org"),
        ] {
            assert_eq!(server_url(text).unwrap(), expected);
        }
        for bad in ["", "http://10.0.0.1:6443", "https://", "ftp://x", "a b"] {
            assert!(server_url(bad).unwrap_err().to_string().contains("https://10.0.0.1:6443"), "{bad}");
        }
    }

    #[test]
    fn endpoints_are_servers() {
        let json = r#"{"subsets":[{"addresses":[{"ip":"10.0.0.2"},{"ip":"10.0.0.1"}],"ports":[{"name":"https","port":6443}]},
            {"addresses":[{"ip":"fd00::1"}],"ports":[{"name":"other","port":1},{"name":"https","port":443}]}]}"#;
        let endpoints: Endpoints = api::from_json(json.as_bytes()).unwrap();
        let expected = ["https://10.0.0.1:6443", "https://10.0.0.2:6443", "https://[fd00::1]:443"];
        assert_eq!(server_urls(&endpoints), expected);
        assert!(server_urls(&Endpoints::default()).is_empty());
    }
}
