use super::*;

fn reason(request: &str) -> String {
    let node = Node::new(&Names::kubernetes());
    let user = User { groups: vec![NODES.to_owned()], ..User::named("system:node:x") };
    let mut fields = request.split(' ');
    let mut next = || fields.next().unwrap_or("");
    let (verb, group, resource, namespace, name) = (next(), next(), next(), next(), next());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = Attributes {
        user: &user,
        verb,
        api_group: group.trim_matches('-'),
        version: "v1",
        resource,
        subresource,
        namespace: namespace.trim_matches('-'),
        name,
        path: "",
        resource_request: true,
    };
    match node.authorize(&attributes).now() {
        Some(Decision::Allow(_)) => "yes".to_owned(),
        Some(other) => other.reason().to_owned(),
        None => panic!("takes its time"),
    }
}

#[test]
fn requests_without_relations_are_decided_by_kind_and_name() {
    let none = "no relationship found between node 'x' and this object";
    for (request, expected) in [
        ("get - secrets a s", none),
        ("create - secrets a s", "can only read resources of this type"),
        ("get - secrets/q a s", "cannot read subresource"),
        ("get - configmaps - s", "can only read namespaced object of this type"),
        ("list - configmaps a", "No Object name found"),
        ("get - persistentvolumeclaims/status a c", "can only get/update/patch this type"),
        ("patch - persistentvolumeclaims/status a c", none),
        ("get - persistentvolumeclaims/foo a c", "cannot get subresource"),
        ("list - persistentvolumes - c", "can only get individual resources of this type"),
        ("get storage.k8s.io volumeattachments - c", none),
        ("get - serviceaccounts a s", "can only create tokens for individual service accounts"),
        ("create - serviceaccounts a s", "can only create token subresource of serviceaccount"),
        ("create - serviceaccounts/token a", "can only create tokens for individual service accounts"),
        ("create - serviceaccounts/token a s", none),
        (
            "list coordination.k8s.io leases kube-node-lease",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get coordination.k8s.io leases kube-node-lease y",
            "can only access node lease with the same name as the requesting node",
        ),
        ("update coordination.k8s.io leases kube-node-lease x", "yes"),
        ("create coordination.k8s.io leases kube-node-lease", "yes"),
        (
            "get coordination.k8s.io leases a x",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        ("list storage.k8s.io csinodes", "can only get, create, update, patch, or delete a CSINode"),
        (
            "delete storage.k8s.io csinodes - y",
            "can only access CSINode with the same name as the requesting node",
        ),
        ("get storage.k8s.io csinodes/q - x", "cannot authorize CSINode subresources"),
        ("get storage.k8s.io csinodes - x", "yes"),
        ("get - nodes - y", "yes"),
        ("patch - pods/status a p", "yes"),
        ("delete - nodes - x", ""),
        ("get apps deployments a d", ""),
    ] {
        assert_eq!(reason(request), expected, "{request}");
    }
}

#[test]
fn an_agent_has_the_name_and_the_group_of_agents() {
    let groups = [NODES.to_owned()];
    assert_eq!(node_of("system:node:x", &groups), Some("x"));
    assert_eq!(node_of("system:node:", &groups), Some(""));
    assert_eq!(node_of("system:node:x", &[]), None);
    assert_eq!(node_of("x", &groups), None);
}
