//! Node authorizer: a kubelet reads what the pods on its node need, and changes its own node.
//!
//! Invariants: relations are looked up in the caches at the time of the request (see [`relations`]), so a newly
//! bound pod counts at once, and a deleted one no longer does. For other users it costs one string
//! comparison. It never denies, it only does not permit: other authorizers may.

mod relations;

use super::roles;
use auth::authorize::Rules;
use auth::rbac::Rule;
use auth::{Attributes, Authorizer, Decision, NODE_PREFIX, NODES, User};
use env::MaybeReady;
use names::Names;
use relations::Relations;
use rest::Api;
use schema::problem::quoted;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The role whose rules apply beside the relations.
const ROLE: &str = "system:node";

/// The node of a kubelet user; empty if the user name has none.
pub(crate) fn node_of<'a>(name: &'a str, groups: &[String]) -> Option<&'a str> {
    let node = name.strip_prefix(NODE_PREFIX)?;
    groups.iter().any(|group| group == NODES).then_some(node)
}

/// The authorizer.
pub struct Node {
    rules: Vec<Rule>,
    storage: String,
    coordination: String,
    lease_namespace: String,
    /// Set once the server has its resources.
    relations: OnceLock<Relations>,
}

impl Node {
    pub(crate) fn new(names: &Names) -> Self {
        Node {
            rules: roles::bootstrap_rules(names, ROLE),
            storage: names.group("storage"),
            coordination: names.group("coordination"),
            lease_namespace: names.node_lease_namespace(),
            relations: OnceLock::new(),
        }
    }

    /// Gives the authorizer access to objects.
    pub(crate) fn connect(&self, api: &Api) {
        let _ = self.relations.set(Relations::new(api));
    }

    /// Whether a node may perform a request, or why not.
    fn permits(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if attributes.resource_request {
            match (attributes.api_group, attributes.resource) {
                ("", "secrets") => return self.read(node, attributes, Relations::secret),
                ("", "configmaps") => return self.read(node, attributes, Relations::config_map),
                ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
                    return self.claim_status(node, attributes);
                }
                ("", "persistentvolumeclaims") => return self.get(node, attributes, Relations::claim),
                ("", "persistentvolumes") => return self.get(node, attributes, Relations::volume),
                ("", "serviceaccounts") => return self.token(node, attributes),
                (group, "volumeattachments") if group == self.storage => {
                    return self.get(node, attributes, Relations::attachment);
                }
                (group, "csinodes") if group == self.storage => return own_drivers(node, attributes),
                (group, "leases") if group == self.coordination => return self.own_lease(node, attributes),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { Err("".into()) }
    }

    fn read(&self, node: &str, attributes: &Attributes<'_>, is: Relation) -> Result<(), Cow<'static, str>> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !attributes.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if attributes.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.relation(node, attributes, is)
    }

    fn get(&self, node: &str, attributes: &Attributes<'_>, is: Relation) -> Result<(), Cow<'static, str>> {
        if attributes.verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if !attributes.subresource.is_empty() {
            return Err("cannot get subresource".into());
        }
        self.relation(node, attributes, is)
    }

    fn claim_status(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if !matches!(attributes.verb, "update" | "patch") {
            return Err("can only get/update/patch this type".into());
        }
        self.relation(node, attributes, Relations::claim)
    }

    fn token(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if attributes.verb != "create" || attributes.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if attributes.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.relation(node, attributes, Relations::account)
    }

    fn own_lease(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if attributes.namespace != self.lease_namespace {
            let namespace = &self.lease_namespace;
            return Err(format!("can only access leases in the {namespace:?} system namespace").into());
        }
        // the name of a new object is in its body, which admission checks
        if attributes.verb != "create" && attributes.name != node {
            return Err("can only access node lease with the same name as the requesting node".into());
        }
        Ok(())
    }

    fn relation(
        &self,
        node: &str,
        attributes: &Attributes<'_>,
        is: Relation,
    ) -> Result<(), Cow<'static, str>> {
        if attributes.name.is_empty() {
            return Err("No Object name found".into());
        }
        let is_related = self
            .relations
            .get()
            .is_some_and(|relations| is(relations, node, attributes.namespace, attributes.name));
        let none = || format!("no relationship found between node '{node}' and this object").into();
        if is_related { Ok(()) } else { Err(none()) }
    }
}

/// Whether an object is relations to a node, by namespace and name.
type Relation = fn(&Relations, &str, &str, &str) -> bool;

fn own_drivers(node: &str, attributes: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !attributes.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if attributes.verb != "create" && attributes.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

impl Authorizer for Node {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let decision = match node_of(&attributes.user.name, &attributes.user.groups) {
            None => Decision::NoOpinion("".into()),
            Some("") => {
                Decision::NoOpinion(format!("unknown node for user {}", quoted(&attributes.user.name)).into())
            }
            Some(node) => match self.permits(node, attributes) {
                Ok(()) => Decision::Allow("".into()),
                Err(why) => Decision::NoOpinion(why),
            },
        };
        decision.into()
    }

    fn rules(&self, user: &User, _: &str) -> Rules {
        if node_of(&user.name, &user.groups).is_none() {
            return Rules::default();
        }
        let problem = "node authorizer does not support user rule resolution".to_owned();
        Rules { incomplete: true, problem, ..Rules::default() }
    }
}

#[cfg(test)]
mod tests;
