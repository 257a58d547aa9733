//! Access reviews: whether a user may perform a request.

use super::sources::Sources;
use super::user_info::user_of;
use crate::string_lists::list_of;
use auth::{Attributes, User};
use env::MaybeReady;
use rest::{ApiError, Subject, VirtualRequest, VirtualResource};
use schema::problem::{Problem, Problems, Reason, quoted};
use schema::{Path, Value, encode};

/// The user of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewedUser {
    /// The user in its spec.
    InSpec,
    /// The user in its spec, within the namespace of the review.
    InSpecOfNamespace,
    /// The user of the request.
    Requester,
}

pub struct Review {
    pub sources: Sources,
    pub reviewed_user: ReviewedUser,
}

impl VirtualResource for Review {
    fn create<'a>(
        &'a self,
        review: Value,
        request: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        MaybeReady::later(self.review_access(review, request))
    }
}

impl Review {
    async fn review_access(
        &self,
        mut review: Value,
        request: &VirtualRequest<'_>,
    ) -> Result<Value, ApiError> {
        let problems = self.problems(&review, request.namespace);
        if !problems.is_empty() {
            // reviews have no name, and upstream's error omits the kind, too
            let subject = Subject { group: request.subject.group, kind: "", name: "" };
            return Err(ApiError::invalid(subject, problems));
        }
        let user = match self.reviewed_user {
            ReviewedUser::Requester => user_of(request.user),
            ReviewedUser::InSpec | ReviewedUser::InSpecOfNamespace => user_in_spec(&review),
        };
        let decision = self.sources.authorizer.authorize(&attributes(&review, &user)).get().await;
        let mut status = Value::map();
        status.set(&["allowed"], decision.is_allowed());
        if decision.is_denied() {
            status.set(&["denied"], true);
        }
        if !decision.reason().is_empty() {
            status.set(&["reason"], decision.reason());
        }
        if let Some(error) = decision.error() {
            status.set(&["evaluationError"], error);
        }
        review.set(&["status"], status);
        Ok(review)
    }

    fn problems(&self, review: &Value, namespace: &str) -> Problems {
        let spec = Path::ROOT.field("spec");
        let (resource, other) = (spec.field("resourceAttributes"), spec.field("nonResourceAttributes"));
        let attributes = review.at(&["spec", "resourceAttributes"]);
        let path = review.at(&["spec", "nonResourceAttributes"]);
        let mut problems = Problems::new();
        match (attributes, path) {
            (Some(_), Some(attributes_value)) => {
                problems.push(wrong(
                    &other,
                    &debug_text(attributes_value),
                    "cannot be specified in combination with resourceAttributes",
                ));
            }
            (None, None) => problems.push(wrong(
                &resource,
                "\"null\"",
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )),
            _ => {}
        }
        if self.reviewed_user != ReviewedUser::Requester
            && review.text(&["spec", "user"]).is_empty()
            && list_of(review, &["spec", "groups"]).is_empty()
        {
            problems.push(wrong(
                &spec.field("user"),
                "\"\"",
                "at least one of user or group must be specified",
            ));
        }
        self.metadata_problems(review, &mut problems);
        if self.reviewed_user == ReviewedUser::InSpecOfNamespace {
            let attributes_value = review.text(&["spec", "resourceAttributes", "namespace"]);
            if attributes.is_some() && attributes_value != namespace {
                problems.push(wrong(
                    &resource.field("namespace"),
                    &quoted(attributes_value),
                    "must match metadata.namespace",
                ));
            }
            if let Some(attributes_value) = path {
                problems.push(wrong(
                    &other,
                    &debug_text(attributes_value),
                    "disallowed on this kind of request",
                ));
            }
        }
        problems
    }

    /// A review has no metadata except namespace and managed fields.
    fn metadata_problems(&self, review: &Value, problems: &mut Problems) {
        let Some(Value::Map(metadata)) = review.at(&["metadata"]) else { return };
        let here = self.reviewed_user == ReviewedUser::InSpecOfNamespace;
        let may = |key: &str| key == "managedFields" || here && key == "namespace";
        if metadata.iter().any(|(key, value)| !may(key) && !value.is_null()) {
            let value = String::from_utf8_lossy(&encode::untyped(&Value::Map(metadata.clone()))).into_owned();
            let detail = if here { "must be empty except for namespace" } else { "must be empty" };
            problems.push(wrong(&Path::ROOT.field("metadata"), &value, detail));
        }
    }
}

fn wrong(path: &Path<'_>, value: &str, detail: &str) -> Problem {
    Problem {
        reason: Reason::Invalid,
        field: path.to_string(),
        message: format!("Invalid value: {value}: {detail}"),
    }
}

/// Attributes in upstream's debug format.
fn debug_text(attributes: &Value) -> String {
    let (path, verb) = (attributes.text(&["path"]), attributes.text(&["verb"]));
    format!("authorization.NonResourceAttributes{{Path:{}, Verb:{}}}", quoted(path), quoted(verb))
}

fn user_in_spec(review: &Value) -> User {
    let mut user = User {
        uid: review.text(&["spec", "uid"]).to_owned(),
        groups: list_of(review, &["spec", "groups"]),
        ..User::named(review.text(&["spec", "user"]))
    };
    if let Some(Value::Map(extra)) = review.at(&["spec", "extra"]) {
        for (key, values) in extra.iter() {
            user.extra.insert(key.to_lowercase(), list_of(values, &[]));
        }
    }
    user
}

fn attributes<'a>(review: &'a Value, user: &'a User) -> Attributes<'a> {
    let resource_request = review.at(&["spec", "resourceAttributes"]).is_some();
    let resource = |field| review.text(&["spec", "resourceAttributes", field]);
    let other = |field| review.text(&["spec", "nonResourceAttributes", field]);
    Attributes {
        user,
        verb: if resource_request { resource("verb") } else { other("verb") },
        api_group: resource("group"),
        version: resource("version"),
        resource: resource("resource"),
        subresource: resource("subresource"),
        namespace: resource("namespace"),
        name: resource("name"),
        path: other("path"),
        resource_request,
    }
}
