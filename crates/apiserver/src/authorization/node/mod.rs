//! Node authorizer: a kubelet reads what the pods on its node need, and changes its own node.
//!
//! Always true: what is permitted is looked up in the caches at the moment of the request (see [`related`]), so a
//! pod that has been bound is known to be, and one that is gone no longer gives anything. Nobody but a node
//! agent costs more than the comparison of a name. Nothing is refused here, only not permitted: roles may say
//! otherwise.

mod related;

use super::roles;
use auth::authorize::Rules;
use auth::rbac::Rule;
use auth::{Attributes, Authorizer, Decision, NODE_PREFIX, NODES, User};
use env::MaybeReady;
use names::Names;
use related::Related;
use rest::Api;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The role whose rules hold where nothing below says more.
const ROLE: &str = "system:node";

/// The name of the node whose agent a user is; empty if it is that of no node in particular.
pub(crate) fn node_of<'a>(name: &'a str, groups: &[String]) -> Option<&'a str> {
    let node = name.strip_prefix(NODE_PREFIX)?;
    groups.iter().any(|group| group == NODES).then_some(node)
}

/// Decides for node agents.
pub struct Node {
    rules: Vec<Rule>,
    storage: String,
    coordination: String,
    lease_namespace: String,
    /// There once the server has its resources.
    related: OnceLock<Related>,
}

impl Node {
    pub(crate) fn new(names: &Names) -> Self {
        Node {
            rules: roles::rules_of_every_cluster(names, ROLE),
            storage: names.group("storage"),
            coordination: names.group("coordination"),
            lease_namespace: names.node_lease_namespace(),
            related: OnceLock::new(),
        }
    }

    /// From here on it is known what there is.
    pub(crate) fn look_into(&self, api: &Api) {
        let _ = self.related.set(Related::new(api));
    }

    /// Whether a node may do something, or why not.
    fn permits(&self, node: &str, asked: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if asked.resource_request {
            match (asked.api_group, asked.resource) {
                ("", "secrets") => return self.read(node, asked, Related::secret),
                ("", "configmaps") => return self.read(node, asked, Related::config_map),
                ("", "persistentvolumeclaims") if asked.subresource == "status" => {
                    return self.claim_status(node, asked);
                }
                ("", "persistentvolumeclaims") => return self.get(node, asked, Related::claim),
                ("", "persistentvolumes") => return self.get(node, asked, Related::volume),
                ("", "serviceaccounts") => return self.token(node, asked),
                (group, "volumeattachments") if group == self.storage => {
                    return self.get(node, asked, Related::attachment);
                }
                (group, "csinodes") if group == self.storage => return own_drivers(node, asked),
                (group, "leases") if group == self.coordination => return self.own_lease(node, asked),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(asked)) { Ok(()) } else { Err("".into()) }
    }

    fn read(&self, node: &str, asked: &Attributes<'_>, is: Relation) -> Result<(), Cow<'static, str>> {
        if !matches!(asked.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !asked.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if asked.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.relation(node, asked, is)
    }

    fn get(&self, node: &str, asked: &Attributes<'_>, is: Relation) -> Result<(), Cow<'static, str>> {
        if asked.verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if !asked.subresource.is_empty() {
            return Err("cannot get subresource".into());
        }
        self.relation(node, asked, is)
    }

    fn claim_status(&self, node: &str, asked: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if !matches!(asked.verb, "update" | "patch") {
            return Err("can only get/update/patch this type".into());
        }
        self.relation(node, asked, Related::claim)
    }

    fn token(&self, node: &str, asked: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if asked.verb != "create" || asked.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if asked.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.relation(node, asked, Related::account)
    }

    fn own_lease(&self, node: &str, asked: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
        if !matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if asked.namespace != self.lease_namespace {
            let namespace = &self.lease_namespace;
            return Err(format!("can only access leases in the {namespace:?} system namespace").into());
        }
        // the name of what is created is in its body, and looked at by who looks at bodies
        if asked.verb != "create" && asked.name != node {
            return Err("can only access node lease with the same name as the requesting node".into());
        }
        Ok(())
    }

    fn relation(&self, node: &str, asked: &Attributes<'_>, is: Relation) -> Result<(), Cow<'static, str>> {
        if asked.name.is_empty() {
            return Err("No Object name found".into());
        }
        let found = self.related.get().is_some_and(|related| is(related, node, asked.namespace, asked.name));
        let none = || format!("no relationship found between node '{node}' and this object").into();
        if found { Ok(()) } else { Err(none()) }
    }
}

/// Whether a node has to do with an object, by namespace and name.
type Relation = fn(&Related, &str, &str, &str) -> bool;

fn own_drivers(node: &str, asked: &Attributes<'_>) -> Result<(), Cow<'static, str>> {
    if !matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !asked.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if asked.verb != "create" && asked.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

impl Authorizer for Node {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let decision = match node_of(&asked.user.name, &asked.user.groups) {
            None => Decision::NoOpinion("".into()),
            Some("") => Decision::NoOpinion(format!("unknown node for user {:?}", asked.user.name).into()),
            Some(node) => match self.permits(node, asked) {
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
