//! The command `pintle clock`: the time of a cluster that was started with `--clock manual`.

use crate::admin_client::{admin_target, client};
use crate::options::{AdminAccess, ClockAction, ClockArgs, Pace};
use anyhow::Context as _;
use env::World;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Write as _, stdout};

const PATH: &str = "/simulation/clock";

/// Shows or moves the clock of a cluster.
pub async fn clock(args: ClockArgs, world: World) -> anyhow::Result<()> {
    let state = match &args.action {
        ClockAction::Show(args) => send("GET", &[], &args.access, &world).await?,
        ClockAction::Advance(args) => {
            send("POST", &with_pace(&[("advance", &args.by)], &args.pace), &args.access, &world).await?
        }
        ClockAction::Settle(args) => {
            let settle = [("settle", &*args.limit), ("quiet", &*args.quiet)];
            send("POST", &with_pace(&settle, &args.pace), &args.access, &world).await?
        }
    };
    // a closed terminal is not an error
    let _ = stdout().write_all(text_of(&state).as_bytes());
    anyhow::ensure!(
        state["settled"] != Value::Bool(false),
        "the cluster still changes: give it more time with --limit, or look at the last changes"
    );
    Ok(())
}

fn with_pace<'a>(parameters: &[(&'a str, &'a str)], pace: &'a Pace) -> Vec<(&'a str, &'a str)> {
    let given = |name, value: &'a Option<String>| value.as_deref().map(|value| (name, value));
    let pace = [given("step", &pace.step), given("pause", &pace.pause)];
    parameters.iter().copied().chain(pace.into_iter().flatten()).collect()
}

async fn send(
    method: &str,
    parameters: &[(&str, &str)],
    access: &AdminAccess,
    world: &World,
) -> anyhow::Result<Value> {
    let client = client(&admin_target(access)?, world)?;
    let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let request = http::Request::builder().method(method).uri(format!("{PATH}?{}", query.join("&")));
    let request = request.body(Vec::new()).context("a parameter is no duration")?;
    let answer = client.request_bytes(request).await.map_err(|error| match error.is_not_found() {
        true => anyhow::anyhow!("the cluster has a real clock: start it with pintle up --clock manual"),
        false => anyhow::Error::new(error),
    })?;
    serde_json::from_slice(&answer).context("the server's answer cannot be read")
}

/// The changes, a line each, and the time.
fn text_of(state: &Value) -> String {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    for change in state["changes"].as_array().into_iter().flatten() {
        let [time, kind, resource] = ["time", "type", "resource"].map(|name| text(change, name));
        let [namespace, name] = ["namespace", "name"].map(|name| text(change, name));
        let divider = if namespace.is_empty() { "" } else { "/" };
        // writing to a string cannot fail
        let _ = writeln!(out, "{time}  {kind:<8}  {resource}  {namespace}{divider}{name}");
    }
    if let Some(omitted) = state["omittedChanges"].as_u64() {
        let _ = writeln!(out, "and {omitted} further changes");
    }
    let later = state["advanced"].as_str().map(|by| format!(", {by} later")).unwrap_or_default();
    out + &format!("it is {}{later}\n", text(state, "now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_listed() {
        let state: Value = serde_json::from_str(
            r#"{"now":"2026-01-01T01:00:00.000000Z","advanced":"1h0m0s","omittedChanges":3,"changes":[
                {"time":"2026-01-01T00:30:00.000000Z","type":"ADDED","resource":"jobs.batch","namespace":"a","name":"j"},
                {"time":"2026-01-01T00:31:00.000000Z","type":"MODIFIED","resource":"nodes","name":"n"}]}"#,
        )
        .unwrap();
        let expected = "2026-01-01T00:30:00.000000Z  ADDED     jobs.batch  a/j\n\
                        2026-01-01T00:31:00.000000Z  MODIFIED  nodes  n\n\
                        and 3 further changes\n\
                        it is 2026-01-01T01:00:00.000000Z, 1h0m0s later\n";
        assert_eq!(text_of(&state), expected);
    }
}
