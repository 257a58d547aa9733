//! Faults on request: those of `up --faults`, and the command `pintle faults`.

use crate::admin_client::{admin_target, client};
use crate::options::{AdminAccess, ConfigErrors, FaultsAction, FaultsArgs, read_config};
use anyhow::Context as _;
use apiserver::Faults;
use env::World;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "/simulation/faults";

/// The faults of a cluster for tests, with the rules of the flag.
pub fn prepare(
    flag: Option<&str>,
    seed: Option<u64>,
    world: &World,
    errors: &mut ConfigErrors,
) -> Arc<Faults> {
    const OPTION: &str = "--faults";
    let faults = Faults::new(seed, world);
    let text = match flag {
        None => None,
        Some(text) if is_inline(text) => Some(text.as_bytes().to_vec()),
        Some(file) => read_config(OPTION, Path::new(file), errors),
    };
    if let Some(Err(mistakes)) = text.map(|text| faults.replace(&text)) {
        mistakes.into_iter().for_each(|it| errors.add(OPTION, it));
    }
    Arc::new(faults)
}

/// Whether a value is the document itself rather than the name of a file.
fn is_inline(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Shows or replaces the faults of a cluster.
pub async fn faults(args: FaultsArgs, world: World) -> anyhow::Result<()> {
    let document = match &args.action {
        FaultsAction::Show(args) => send("GET", Vec::new(), &args.access, &world).await?,
        FaultsAction::Set(args) => send("PUT", read(&args.faults)?, &args.access, &world).await?,
        FaultsAction::Clear(args) => send("DELETE", Vec::new(), &args.access, &world).await?,
    };
    let document = schema::decode::json_untyped(&document).context("the server's answer cannot be read")?;
    // a closed terminal is not an error
    let _ = stdout().write_all(schema::yaml::emit(&document.value).as_bytes());
    Ok(())
}

fn read(given: &str) -> anyhow::Result<Vec<u8>> {
    match given {
        "-" => {
            let mut text = Vec::new();
            stdin().read_to_end(&mut text).context("cannot read standard input")?;
            Ok(text)
        }
        text if is_inline(text) => Ok(text.as_bytes().to_vec()),
        file => std::fs::read(file).with_context(|| format!("cannot read {file}")),
    }
}

async fn send(method: &str, body: Vec<u8>, access: &AdminAccess, world: &World) -> anyhow::Result<Vec<u8>> {
    let client = client(&admin_target(access)?, world)?;
    let request = http::Request::builder().method(method).uri(PATH).body(body)?;
    let answer = client.request_bytes(request).await.map_err(|error| match error.is_not_found() {
        true => anyhow::anyhow!("the cluster has no faults: start it with pintle up --faults '{{}}'"),
        false => anyhow::Error::new(error),
    })?;
    Ok(answer.to_vec())
}
