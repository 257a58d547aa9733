use super::read::{self, ParsedRole};
use super::*;
use auth::rbac::{Binding, Policy};
use auth::{Attributes, Authorizer, Rbac, User};
use std::sync::Arc;

type BootstrapPolicy = (Vec<Arc<auth::rbac::Role>>, Vec<Arc<auth::rbac::Binding>>);

/// The bootstrap roles and bindings.
pub(crate) fn bootstrap_policy() -> BootstrapPolicy {
    let all = defaults::all(&::names::Names::kubernetes(), &[]);
    let of = |plural: &'static str| all.iter().filter(move |one| one.plural == plural).map(|one| &one.object);
    let roles: Vec<_> = of("clusterroles").map(|object| Arc::new(read::role(object))).collect();
    let bindings = of("clusterrolebindings").map(|object| Arc::new(read::binding(object))).collect();
    (read::all(&roles), bindings)
}

fn role(name: &str, label: &str, selector: &str) -> Arc<ParsedRole> {
    let selector = match selector {
        "" => String::new(),
        set => {
            format!(r#","aggregationRule":{{"clusterRoleSelectors":[{{"matchLabels":{{"to":"{set}"}}}}]}}"#)
        }
    };
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"to":"{label}"}}}}{selector},
            "rules":[{{"verbs":["{name}"],"apiGroups":[""],"resources":["x"]}}]}}"#
    );
    Arc::new(read::role(&schema::decode::json_untyped(json.as_bytes()).unwrap().value))
}

#[test]
fn roles_aggregate_transitively_and_in_cycles() {
    let roles = [
        role("a", "c", "a"),
        role("b", "a", "b"),
        role("c", "b", "c"),
        role("d", "b", ""),
        role("e", "", ""),
    ];
    let verbs: Vec<String> = read::all(&roles)
        .iter()
        .map(|role| {
            role.rules.iter().flat_map(|part| part.iter()).flat_map(|rule| rule.verbs.clone()).collect()
        })
        .collect();
    assert_eq!(verbs, ["d", "e", "abcd", "bcda", "cabd"]);
}

#[test]
fn the_bootstrap_roles_permit_their_purpose() {
    let (roles, mut bindings) = bootstrap_policy();
    let role = auth::rbac::RoleRef { of_cluster: true, name: "edit".to_owned() };
    let subjects = vec![auth::rbac::Subject::User("bob".to_owned())];
    bindings.push(Arc::new(Binding { namespace: "a".to_owned(), name: "b".to_owned(), role, subjects }));
    let rbac = Rbac::new(&names::Names::kubernetes());
    rbac.replace(Policy::compile(roles, bindings));
    let may = |user: &User, verb: &str, resource: &str, namespace: &str| {
        let attributes = Attributes {
            user,
            verb,
            api_group: "",
            version: "v1",
            resource,
            subresource: "",
            namespace,
            name: "",
            path: "",
            resource_request: true,
        };
        rbac.authorize(&attributes).now().unwrap().is_allowed()
    };
    let bob = User::named("bob").authenticated();
    assert!(may(&bob, "create", "secrets", "a"), "a permission of editors");
    assert!(may(&bob, "get", "endpoints", "a"), "a permission of viewers");
    assert!(!may(&bob, "create", "resourcequotas", "a") && !may(&bob, "create", "secrets", "b"));
    let scheduler = User::named("system:kube-scheduler").authenticated();
    assert!(may(&scheduler, "list", "nodes", "") && !may(&scheduler, "delete", "nodes", ""));
}
