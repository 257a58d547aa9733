//! Lines about the node's condition: when it becomes ready, and why it is not.

use super::progress::say;
use api::core::v1::Node;
use client::{Client, InformerFactory, Key};
use std::convert::Infallible;
use tokio::sync::watch;

/// Prints a line whenever the condition of the node is another.
pub async fn report(client: &Client, name: &str) -> Infallible {
    let factory = InformerFactory::new(client.clone());
    let nodes = factory.informer_of::<Node>("", &format!("metadata.name={name}"));
    let (changed, mut changes) = watch::channel(());
    nodes.listen(move |_| changed.send_replace(()));
    let mut last = String::new();
    loop {
        if let Some(line) = nodes.get(&Key::new("", name)).and_then(|node| describe(&node))
            && line != last
        {
            say(&line);
            last = line;
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The state of the node, if the agent has reported it.
fn describe(node: &Node) -> Option<String> {
    let name = &node.metadata.name;
    let ready = node.status.conditions.iter().find(|it| it.type_ == "Ready")?;
    Some(match &*ready.status {
        "True" => format!("node {name} is Ready"),
        _ => format!("node {name} is not ready: {}", ready.message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_lines() {
        let node = |conditions: &str| -> Node {
            let json = format!(r#"{{"metadata":{{"name":"n"}},"status":{{"conditions":[{conditions}]}}}}"#);
            api::from_json(json.as_bytes()).unwrap()
        };
        let of = |conditions: &str| describe(&node(conditions));
        assert_eq!(of(""), None);
        assert_eq!(of(r#"{"type":"Ready","status":"True","message":"x"}"#).unwrap(), "node n is Ready");
        let why = of(r#"{"type":"Ready","status":"False","message":"no network"}"#).unwrap();
        assert_eq!(why, "node n is not ready: no network");
    }
}
