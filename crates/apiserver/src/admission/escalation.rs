//! Privilege escalation checks for writes of roles and bindings.
//!
//! A role may be written by who holds all of its permissions, or may `escalate` roles. A binding may be written
//! by who holds all permissions of its role, or may `bind` that role. The masters' group may do anything.

use crate::authorization::roles::read;
use crate::reviews::user_of;
use auth::rbac::{Rbac, Rule, missing, refusal};
use auth::{Attributes, Authorizer, User};
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource, Subject};
use schema::Value;
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
        if user.is_in(auth::MASTERS) || old.is_some_and(|old| same_but_for_owners(object, old)) {
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
        self.hold(write, user, &rules.iter().collect::<Vec<_>>())?;
        let gathers = |role: &Value| !role.items(&["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if gathers(object) || old.is_some_and(gathers) {
            let everything = everything();
            if self.hold(write, user, &everything.iter().collect::<Vec<_>>()).is_err() {
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
        let known = matches!(kind, "Role" | "ClusterRole");
        if known && self.may(user, "bind", role.plural(), write.namespace, &role.name).await {
            return Ok(());
        }
        if !known {
            return Err(ApiError::internal(format!("unsupported role reference kind: {kind:?}")));
        }
        if !role.of_cluster && write.namespace.is_empty() {
            return Err(ApiError::bad_request("Namespace parameter required."));
        }
        check_name(&role.name)?;
        let policy = self.rbac.policy();
        let Some(found) = policy.role(&role, write.namespace) else {
            let subject = Subject { group: self.rbac.group(), kind: role.plural(), name: &role.name };
            return Err(ApiError::not_found(subject));
        };
        self.hold(write, user, &found.rules().collect::<Vec<_>>())
    }

    async fn may(&self, user: &User, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let asked = Attributes {
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
        self.authorizer.authorize(&asked).get().await.is_allowed()
    }

    /// Whether the user has all of the permissions itself.
    fn hold(&self, write: &AdmissionAttributes<'_>, user: &User, wanted: &[&Rule]) -> Result<(), ApiError> {
        let policy = self.rbac.policy();
        let (held, dangling) = policy.held(user, write.namespace);
        let refused = |why: &str| ApiError::object_forbidden(write.resource.subject(write.name), why);
        let lacking = missing(&held, wanted).map_err(|why| refused(&why.to_string()))?;
        if lacking.is_empty() {
            return Ok(());
        }
        let mut why = refusal(user, lacking);
        if !dangling.is_empty() {
            let told = dangling
                .iter()
                .map(|role| format!("{}.{} {:?} not found", role.plural(), self.rbac.group(), role.name));
            why.push_str(&format!("; resolution errors: [{}]", auth::authorize::joined(told)));
        }
        Err(refused(&why))
    }
}

/// A role is looked up by what could be its name.
fn check_name(name: &str) -> Result<(), ApiError> {
    let why = match name {
        "" => return Err(ApiError::bad_request("Name parameter required.")),
        "." | ".." => format!("may not be '{name}'"),
        _ => match name.find(['/', '%']) {
            Some(at) => format!("may not contain '{}'", &name[at..=at]),
            None => return Ok(()),
        },
    };
    Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: {why}")))
}

/// What who may do everything has.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), paths: all(), ..Rule::default() },
    ]
}

/// Whether nothing changes but what the collection of garbage needs to change.
fn same_but_for_owners(object: &Value, old: &Value) -> bool {
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
