//! Names and addresses in the certificate of the HTTP API: those of the node.

use super::signing_request::CertificateTemplate;
use api::core::v1::Node;
use std::sync::Arc;
use tokio::sync::watch;

/// What the certificate of a node is to say. `None` for a node without names and addresses.
pub fn template(node: &Node) -> Option<CertificateTemplate> {
    let mut template = CertificateTemplate::of_node(&node.metadata.name);
    for address in &node.status.addresses {
        match (&*address.type_, address.address.parse()) {
            ("Hostname" | "InternalIP" | "ExternalIP", Ok(ip)) => drop(template.addresses.insert(ip)),
            ("Hostname" | "InternalDNS" | "ExternalDNS", Err(_)) => {
                template.names.insert(address.address.clone());
            }
            _ => {}
        }
    }
    let is_empty = template.names.is_empty() && template.addresses.is_empty();
    (!is_empty).then_some(template)
}

/// Keeps a template up to date with the addresses of the node.
pub async fn follow(
    mut node: watch::Receiver<Arc<Node>>,
    templates: watch::Sender<Option<CertificateTemplate>>,
) {
    loop {
        let next = template(&node.borrow_and_update());
        templates.send_if_modified(|current| {
            let is_changed = *current != next;
            *current = next;
            is_changed
        });
        if node.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_the_names_and_addresses_of_the_node() {
        let node = |addresses: &str| -> Node {
            let text = format!(r#"{{"metadata":{{"name":"n"}},"status":{{"addresses":[{addresses}]}}}}"#);
            api::from_json(text.as_bytes()).unwrap()
        };
        assert_eq!(template(&node("")), None);
        let made = template(&node(
            r#"{"type":"InternalIP","address":"10.0.0.1"},{"type":"InternalIP","address":"fd00::1"},
               {"type":"Hostname","address":"n"},{"type":"InternalDNS","address":"n.example"}"#,
        ))
        .unwrap();
        assert_eq!(made.common_name, "system:node:n");
        assert_eq!(made.names.into_iter().collect::<Vec<_>>(), ["n", "n.example"]);
        assert_eq!(
            made.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.1", "fd00::1"]
        );
        let by_address = template(&node(r#"{"type":"Hostname","address":"10.0.0.2"}"#)).unwrap();
        assert!(by_address.names.is_empty() && by_address.addresses.len() == 1);
    }
}
