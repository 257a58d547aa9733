//! Access reviews: may this user do that.

use super::sources::Sources;
use super::user_info::{list_of, user_of};
use auth::{Attributes, User};
use env::MaybeReady;
use rest::{ApiError, Subject, VirtualRequest, VirtualResource};
use schema::problem::{Problem, Problems, Reason};
use schema::{Path, Value, encode};

/// Whose rights are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of a user whom the review names.
    Named,
    /// The same, within the namespace of the review.
    NamedHere,
    /// Those of who asks.
    Own,
}

pub struct Review {
    pub sources: Sources,
    pub whose: Whose,
}

impl VirtualResource for Review {
    fn create<'a>(
        &'a self,
        review: Value,
        request: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        MaybeReady::later(self.answer(review, request))
    }
}

impl Review {
    async fn answer(&self, mut review: Value, request: &VirtualRequest<'_>) -> Result<Value, ApiError> {
        let problems = self.problems(&review, request.namespace);
        if !problems.is_empty() {
            // reviews have no name, and clients are not told the kind either
            let subject = Subject { group: request.subject.group, kind: "", name: "" };
            return Err(ApiError::invalid(subject, problems));
        }
        let user = match self.whose {
            Whose::Own => user_of(request.user),
            Whose::Named | Whose::NamedHere => named(&review),
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
        let wanted = review.at(&["spec", "resourceAttributes"]);
        let path_wanted = review.at(&["spec", "nonResourceAttributes"]);
        let mut problems = Problems::new();
        match (wanted, path_wanted) {
            (Some(_), Some(given)) => {
                problems.push(wrong(
                    &other,
                    &shown(given),
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
        if self.whose != Whose::Own
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
        if self.whose == Whose::NamedHere {
            let given = review.text(&["spec", "resourceAttributes", "namespace"]);
            if wanted.is_some() && given != namespace {
                problems.push(wrong(
                    &resource.field("namespace"),
                    &format!("{given:?}"),
                    "must match metadata.namespace",
                ));
            }
            if let Some(given) = path_wanted {
                problems.push(wrong(&other, &shown(given), "disallowed on this kind of request"));
            }
        }
        problems
    }

    /// A review is about its spec: it has no metadata but its place and the record of who wrote it.
    fn metadata_problems(&self, review: &Value, problems: &mut Problems) {
        let Some(Value::Map(metadata)) = review.at(&["metadata"]) else { return };
        let here = self.whose == Whose::NamedHere;
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

/// As clients have always been shown such attributes.
fn shown(attributes: &Value) -> String {
    let (path, verb) = (attributes.text(&["path"]), attributes.text(&["verb"]));
    format!("authorization.NonResourceAttributes{{Path:{path:?}, Verb:{verb:?}}}")
}

fn named(review: &Value) -> User {
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
