//! OwnerReferencesPermissionEnforcement: changing owners requires the permission to delete the object,
//! because owners take it with them; `blockOwnerDeletion` requires the permission to set finalizers of the
//! owner.

use crate::reviews::user_info::user_of;
use auth::{Attributes, Authorizer, Decision, User};
use env::MaybeReady;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::Value;
use schema::problem::quoted;
use std::collections::HashSet;
use std::sync::Arc;

pub struct OwnerReferencesPermissionEnforcement {
    pub authorizer: Arc<dyn Authorizer>,
}

const OWNERS: &[&str] = &["metadata", "ownerReferences"];

impl Admission for OwnerReferencesPermissionEnforcement {
    fn interest(&self, _: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).and(Interest::PARTS)
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let before = old.map_or(&[][..], |old| old.items(OWNERS));
        let reports = write.resource.kind.plural == "pods" && write.subresource == "status";
        if reports || object.items(OWNERS) == before {
            return Ok(()).into();
        }
        MaybeReady::later(async move {
            let decided = self.admit(write, object, before).await;
            decided.map_err(|why| write.forbidden(Some(object), &why))
        })
    }
}

impl OwnerReferencesPermissionEnforcement {
    async fn admit(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        before: &[Value],
    ) -> Result<(), String> {
        let user = user_of(write.user);
        if write.operation == Operation::Update {
            let attributes_of = Attributes {
                version: &write.resource.kind.version,
                subresource: write.subresource,
                ..attributes(&user, write.resource, "delete", write.namespace, write.name)
            };
            let decision = self.authorizer.authorize(&attributes_of).get().await;
            check_decision(&decision, "cannot set an ownerRef on a resource you can't delete")?;
        }
        let blocks = |owner: &Value| owner.at(&["blockOwnerDeletion"]).and_then(Value::as_bool) == Some(true);
        let blocked: HashSet<&str> =
            before.iter().filter(|it| blocks(it)).map(|it| it.text(&["uid"])).collect();
        for owner in object.items(OWNERS).iter().filter(|it| blocks(it)) {
            if blocked.contains(owner.text(&["uid"])) {
                continue;
            }
            self.may_block(write, &user, owner).await?;
        }
        Ok(())
    }

    async fn may_block(
        &self,
        write: &AdmissionAttributes<'_>,
        user: &User,
        owner: &Value,
    ) -> Result<(), String> {
        let (version, kind) = (owner.text(&["apiVersion"]), owner.text(&["kind"]));
        let resources = write.api.resources();
        let plain = kind.strip_suffix("List").unwrap_or(kind);
        let Some(resource) = resources.of_version(version).find(|one| one.kind.name == plain) else {
            return Err(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                 Kind {kind}: no matches for kind {} in version {}",
                quoted(kind),
                quoted(version)
            ));
        };
        let namespace = if resource.kind.namespaced { write.namespace } else { "" };
        let attributes_of = Attributes {
            subresource: "finalizers",
            ..attributes(user, resource, "update", namespace, owner.text(&["name"]))
        };
        let decision = self.authorizer.authorize(&attributes_of).get().await;
        const WHY: &str = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
        check_decision(&decision, WHY)
    }
}

fn attributes<'a>(
    user: &'a User,
    resource: &'a Resource,
    verb: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    Attributes {
        user,
        verb,
        api_group: &resource.group,
        version: &resource.kind.version,
        resource: &resource.kind.plural,
        subresource: "",
        namespace,
        name,
        path: "",
        resource_request: true,
    }
}

fn check_decision(decision: &Decision, why: &str) -> Result<(), String> {
    // upstream appends the reason and an error, which is nil here
    if decision.is_allowed() { Ok(()) } else { Err(format!("{why}: {}, <nil>", decision.reason())) }
}
