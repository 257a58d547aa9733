//! Privilege escalation checks for writes of roles and bindings.
//!
//! Writing a role requires all of its permissions, or the verb `escalate`. Writing a binding requires all
//! permissions of its role, or the verb `bind`. The masters group is exempt.

use crate::authorization::roles::read;
use crate::reviews::user_info::user_of;
use auth::rbac::{Rbac, Rule, missing, refusal};
use auth::{Attributes, Authorizer, User};
use env::MaybeReady;
use rest::metadata::check_name_parameter;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource, Subject};
use schema::Value;
use schema::problem::quoted;
use std::sync::Arc;

pub struct Escalation {
    pub rbac: Arc<Rbac>,
    pub authorizer: Arc<dyn Authorizer>,
}

impl Admission for Escalation {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS).when(resource.group == self.rbac.group())
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let Some(object) = object else {
            return Ok(()).into();
        };
        let user = user_of(write.user);
        if user.is_in(auth::MASTERS) || old.is_some_and(|old| differs_in_owners_only(object, old)) {
            return Ok(()).into();
        }
        MaybeReady::later(async move {
            match &*write.resource.kind.plural {
                "roles" | "clusterroles" => self.role(write, &user, object, old).await,
                "rolebindings" | "clusterrolebindings" => self.binding(write, &user, object).await,
                _ => Ok(()),
            }
        })
    }
}

impl Escalation {
    async fn role(
        &self,
        write: &AdmissionAttributes<'_>,
        user: &User,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let plural = &*write.resource.kind.plural;
        if self.may(user, "escalate", plural, write.namespace, write.request_name).await {
            return Ok(());
        }
        let rules = read::rules(object);
        self.check_held(write, user, &rules.iter().collect::<Vec<_>>())?;
        let gathers = |role: &Value| !role.items(&["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if gathers(object) || old.is_some_and(gathers) {
            let all_rules = all_rules();
            if self.check_held(write, user, &all_rules.iter().collect::<Vec<_>>()).is_err() {
                const WHY: &str = "must have cluster-admin privileges to use the aggregationRule";
                return Err(ApiError::object_forbidden(write.resource.subject(write.name), WHY));
            }
        }
        Ok(())
    }

    async fn binding(
        &self,
        write: &AdmissionAttributes<'_>,
        user: &User,
        object: &Value,
    ) -> Result<(), ApiError> {
        let (role, kind) = (read::role_ref(object), object.text(&["roleRef", "kind"]));
        let is_known = matches!(kind, "Role" | "ClusterRole");
        if is_known && self.may(user, "bind", role.plural(), write.namespace, &role.name).await {
            return Ok(());
        }
        if !is_known {
            return Err(ApiError::internal(format!("unsupported role reference kind: {}", quoted(kind))));
        }
        if !role.of_cluster && write.namespace.is_empty() {
            return Err(ApiError::bad_request("Namespace parameter required."));
        }
        check_name_parameter(&role.name)?;
        let policy = self.rbac.policy();
        let Some(found) = policy.role(&role, write.namespace) else {
            let subject = Subject { group: self.rbac.group(), kind: role.plural(), name: &role.name };
            return Err(ApiError::not_found(subject));
        };
        self.check_held(write, user, &found.rules().collect::<Vec<_>>())
    }

    async fn may(&self, user: &User, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let attributes = Attributes {
            user,
            verb,
            api_group: self.rbac.group(),
            version: "*",
            resource,
            subresource: "",
            namespace,
            name,
            path: "",
            resource_request: true,
        };
        self.authorizer.authorize(&attributes).get().await.is_allowed()
    }

    /// Checks that the user has all of the permissions.
    fn check_held(
        &self,
        write: &AdmissionAttributes<'_>,
        user: &User,
        requested: &[&Rule],
    ) -> Result<(), ApiError> {
        let policy = self.rbac.policy();
        let (held, dangling) = policy.held(user, write.namespace);
        let refused = |why: &str| ApiError::object_forbidden(write.resource.subject(write.name), why);
        let lacking = missing(&held, requested).map_err(|why| refused(&why.to_string()))?;
        if lacking.is_empty() {
            return Ok(());
        }
        let mut why = refusal(user, lacking);
        if !dangling.is_empty() {
            let messages = dangling.iter().map(|role| {
                format!("{}.{} {} not found", role.plural(), self.rbac.group(), quoted(&role.name))
            });
            why.push_str(&format!("; resolution errors: [{}]", auth::authorize::joined(messages)));
        }
        Err(refused(&why))
    }
}

/// The rules of cluster-admin.
fn all_rules() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), paths: all(), ..Rule::default() },
    ]
}

/// Whether only metadata changes that the garbage collector changes.
fn differs_in_owners_only(object: &Value, old: &Value) -> bool {
    let without = |value: &Value| {
        let mut value = value.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            value.unset(&["metadata", field]);
        }
        for field in ["rules", "subjects"] {
            if value.items(&[field]).is_empty() {
                value.unset(&[field]);
            }
        }
        value
    };
    without(object) == without(old)
}
