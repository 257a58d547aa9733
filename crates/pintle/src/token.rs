//! The command `pintle token`: bootstrap tokens, and the line with which a machine joins.

use crate::admin_client::{admin_target, client};
use crate::bootstrap::cluster_info::{self, authorities};
use crate::bootstrap::objects;
use crate::bootstrap::token::{BootstrapToken, id_of, object_name, row};
use crate::options::{Token, TokenAction, TokenCreate};
use anyhow::Context as _;
use api::core::v1::{ConfigMap, Endpoints, Secret};
use api::meta::v1::DeleteOptions;
use client::{Api, Client, ListParams};
use env::World;
use names::{DEFAULT_NAMESPACE, Names};
use outbound::Target;
use std::fmt::Write as _;
use std::io::{Write as _, stderr, stdout};
use std::time::Duration;

/// How long the control loop that signs the cluster information may take.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(10);
const SIGNING_POLL: Duration = Duration::from_millis(100);

pub async fn token(args: Token, world: World) -> anyhow::Result<()> {
    let names = Names::kubernetes();
    let text = match &args.action {
        TokenAction::Create(args) => create(args, &names, &world).await?,
        TokenAction::List(args) => {
            let client = client(&admin_target(&args.access)?, &world)?;
            list(&client, &names, env::unix_seconds(&world)).await?
        }
        TokenAction::Delete(args) => {
            let client = client(&admin_target(&args.access)?, &world)?;
            delete(&client, &names, &args.tokens).await?
        }
    };
    // a closed terminal is not an error
    let _ = stdout().write_all(text.as_bytes());
    Ok(())
}

async fn create(args: &TokenCreate, names: &Names, world: &World) -> anyhow::Result<String> {
    let target = admin_target(&args.access)?;
    let pem = target.authorities.clone().context("the kubeconfig has no certificate authority")?;
    let hashes = authorities(&pem)?;
    let client = client(&target, world)?;
    let server = match &args.server {
        Some(url) => crate::join::server_url(url)?,
        None => advertised_url(&client, &target, names).await?,
    };
    if let Some(warning) = reachability(&server, &pem, world).await {
        let _ = writeln!(stderr(), "pintle: warning: {warning}");
    }
    objects::publish(&client, &cluster_info::content(&server, &pem), names)
        .await
        .context("cannot create the objects that a new node needs")?;
    let token = BootstrapToken::generate(world);
    let secrets: Api<Secret> = Api::namespaced(&client, &names.system_namespace());
    let secret = token.to_object(args.ttl, &args.description, env::unix_seconds(world), names);
    secrets.create(&secret).await.context("cannot create the token")?;
    if !is_signed_soon(&client, names, &token.id, world).await {
        let _ = writeln!(
            stderr(),
            "pintle: warning: the cluster information is not signed with the token: the control loop bootstrapsigner \
             does not run; add it with --controllers '*,bootstrapsigner,tokencleaner'"
        );
    }
    let mut line = format!("pintle join {server} --token {token}");
    for (hash, _) in hashes {
        // writing to a string cannot fail
        let _ = write!(line, " --discovery-token-ca-cert-hash {hash}");
    }
    Ok(line + "\n")
}

/// The URL under which other machines reach the server: that of the kubeconfig, or, if that is of this machine alone,
/// the first endpoint of the server's own service.
async fn advertised_url(client: &Client, target: &Target, names: &Names) -> anyhow::Result<String> {
    let url: http::Uri = target.url.parse().context("the kubeconfig has no valid URL")?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !is_local {
        return Ok(target.url.trim_end_matches('/').to_owned());
    }
    let endpoints: Api<Endpoints> = Api::namespaced(client, DEFAULT_NAMESPACE);
    let endpoints = endpoints.get(&names.vendor).await.context("cannot read the server's endpoints")?;
    crate::join::server_urls(&endpoints)
        .into_iter()
        .next()
        .context("the server advertises no address: name one with --server")
}

/// Why a new node will not reach the server, if it will not.
async fn reachability(server: &str, pem: &[u8], world: &World) -> Option<String> {
    let target = Target { url: server.to_owned(), authorities: Some(pem.to_vec()), ..Target::default() };
    let request = http::Request::get("/version").body(Vec::new()).ok()?;
    let answer = match client(&target, world) {
        Ok(client) => client.request_bytes(request).await,
        Err(why) => return Some(format!("{server} cannot be called: {why:#}")),
    };
    match answer {
        // any answer comes from the server
        Ok(_) | Err(client::Error::Api(_)) => None,
        Err(why) if why.to_string().contains("certificate") => Some(format!(
            "the certificate of the server is not valid for {server}: {why}; start it with --tls-san, or name another \
             address with --server"
        )),
        Err(why) => Some(format!(
            "nothing answers at {server}: {why}; start the server with --bind-address 0.0.0.0, or name another address \
             with --server"
        )),
    }
}

async fn is_signed_soon(client: &Client, names: &Names, id: &str, world: &World) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(client, &names.public_namespace());
    let end = world.elapsed() + SIGNING_TIMEOUT;
    while world.elapsed() < end {
        let map = maps.get(cluster_info::NAME).await;
        if map.is_ok_and(|map| cluster_info::has_signature(&map.data, id)) {
            return true;
        }
        env::sleep(world, SIGNING_POLL).await;
    }
    false
}

async fn list(client: &Client, names: &Names, now: i64) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client, &names.system_namespace());
    let kind = format!("type={}", names.bootstrap_token_type());
    let all = secrets.list(&ListParams::default().fields(kind)).await.context("cannot list the tokens")?;
    let mut rows = vec![["ID", "TTL", "EXPIRES", "USAGES", "DESCRIPTION"].map(str::to_owned)];
    rows.extend(all.items.iter().map(|secret| row(secret, now)));
    Ok(table(&rows))
}

/// Columns of one width each.
fn table(rows: &[[String; 5]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

async fn delete(client: &Client, names: &Names, tokens: &[String]) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client, &names.system_namespace());
    let mut text = String::new();
    for token in tokens {
        let id = id_of(token)?;
        match secrets.delete(&object_name(&id), &DeleteOptions::default()).await {
            Err(error) if error.is_not_found() => anyhow::bail!("there is no token {id}"),
            deleted => deleted.with_context(|| format!("cannot delete the token {id}"))?,
        }
        let _ = writeln!(text, "token {id} deleted");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let text = table(&[row(["ID", "TTL", "E", "U", "D"]), row(["abcdef", "23h", "x", "y", ""])]);
        assert_eq!(text, "ID       TTL   E   U   D\nabcdef   23h   x   y\n");
    }
}
