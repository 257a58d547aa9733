//! Calls that end at any step, as those of a killed process do: a repeated ADD or DEL is right, and nothing is left.

use super::super::attachments::{Attachments, AttachmentsFile};
use super::super::netlink::Netlink;
use super::link::addresses_in_use;
use super::{Answer, PLUGIN, run as answer};
use crate::netfilter::testing::{in_namespace, run};
use serde_json::Value;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

const STATE: &str = "/run/pods";
const CONFIG: &str = r#"{"cniVersion": "1.0.0", "stateDir": "/run/pods", "ranges": ["10.9.0.0/24", "fd09::/64"],
    "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}"#;

async fn call(command: &str) -> Answer {
    let variable = |name: &str| {
        let value = match name {
            "CNI_COMMAND" => command,
            "CNI_CONTAINERID" => "pod",
            "CNI_IFNAME" => "eth0",
            "CNI_NETNS" => "/run/netns/pod",
            _ => return None,
        };
        Some(value.to_owned())
    };
    answer(PLUGIN, variable, CONFIG.as_bytes()).await
}

/// Runs a call for so many steps, each up to an answer of the kernel that it waits for. `None` if it was not done by then.
async fn interrupted(command: &str, steps: usize) -> Option<Answer> {
    let mut call = pin!(call(command));
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if polls > steps => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn record() -> Attachments {
    AttachmentsFile::lock(Path::new(STATE)).unwrap().content.clone()
}

async fn assert_addresses_are_recorded(step: usize) {
    let routes = addresses_in_use(&Netlink::open().unwrap()).await.unwrap();
    let record = record();
    let recorded: Vec<_> = record.attachments.iter().flat_map(|it| &it.addresses).collect();
    assert!(routes.iter().all(|it| recorded.contains(&it)), "step {step}: {routes:?}, recorded {recorded:?}");
}

fn assert_nothing_is_left(step: usize, command: &str) {
    assert_eq!(record().attachments, [], "step {step} of {command}");
    let links = run("ip", "-o link");
    assert!(!links.contains("veth"), "step {step} of {command}: {links}");
    assert_eq!(run("ip", "route"), "", "step {step} of {command}");
    let tables = crate::netfilter::Connection::open().unwrap().tables().unwrap();
    assert!(tables.is_empty(), "step {step} of {command}: {tables:?}");
}

async fn succeed(command: &str) -> Value {
    let answer = call(command).await;
    assert!(answer.is_success, "{}", answer.text);
    serde_json::from_str(&answer.text).unwrap_or_default()
}

#[test]
fn calls_can_end_at_any_step_and_be_repeated() {
    in_namespace(module_path!(), "calls_can_end_at_any_step_and_be_repeated", || {
        run("mount", "-t tmpfs tmpfs /run");
        run("ip", "netns add pod");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut step = 0;
            loop {
                // ADD ends early, and then DEL comes, or ADD again
                let ended = interrupted("ADD", step).await;
                assert_addresses_are_recorded(step).await;
                succeed("DEL").await;
                assert_nothing_is_left(step, "ADD");
                interrupted("ADD", step).await;
                let before = record().find("pod", "eth0").map(|it| it.addresses.clone());
                let result = succeed("ADD").await;
                if let Some(before) = before {
                    let first = format!("{}/32", before[0]);
                    assert_eq!(result["ips"][0]["address"], first, "step {step}: other addresses");
                }
                // DEL ends early, and then comes again
                interrupted("DEL", step).await;
                assert_addresses_are_recorded(step).await;
                succeed("DEL").await;
                assert_nothing_is_left(step, "DEL");
                step += 1;
                if ended.is_some() {
                    break;
                }
            }
            println!("{step} steps");
            assert!(step > 15, "{step} steps are fewer than the requests of a call");
        });
    });
}
