//! SelfSubjectRulesReview: the rules of the requesting user in a namespace.

use super::sources::Sources;
use super::user_info::user_of;
use crate::string_lists::texts;
use auth::authorize::{PathRule, ResourceRule};
use env::MaybeReady;
use rest::{ApiError, VirtualRequest, VirtualResource};
use schema::Value;

pub struct Review {
    pub sources: Sources,
}

impl VirtualResource for Review {
    fn create<'a>(
        &'a self,
        review: Value,
        request: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        self.review_rules(review, request).into()
    }
}

impl Review {
    fn review_rules(&self, review: Value, request: &VirtualRequest<'_>) -> Result<Value, ApiError> {
        let namespace = review.text(&["spec", "namespace"]);
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let rules = self.sources.authorizer.rules(&user_of(request.user), namespace);
        let mut status = Value::map();
        status.set(&["resourceRules"], Value::List(rules.resources.iter().map(resource_rule).collect()));
        status.set(&["nonResourceRules"], Value::List(rules.paths.iter().map(path_rule).collect()));
        status.set(&["incomplete"], rules.incomplete);
        if !rules.problem.is_empty() {
            status.set(&["evaluationError"], rules.problem.as_str());
        }
        // the response contains nothing of the request
        let mut response = Value::map();
        for field in ["kind", "apiVersion"] {
            response.set(&[field], review.text(&[field]));
        }
        response.set(&["metadata"], Value::map());
        response.set(&["metadata", "creationTimestamp"], Value::Null);
        response.set(&["spec"], Value::map());
        response.set(&["status"], status);
        Ok(response)
    }
}

fn resource_rule(rule: &ResourceRule) -> Value {
    listed([
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
    ])
}

fn path_rule(rule: &PathRule) -> Value {
    listed([("verbs", &rule.verbs), ("nonResourceURLs", &rule.paths)])
}

fn listed<const N: usize>(lists: [(&'static str, &Vec<String>); N]) -> Value {
    let mut out = Value::map();
    for (field, items) in lists.into_iter().filter(|(field, items)| *field == "verbs" || !items.is_empty()) {
        out.set(&[field], texts(items));
    }
    out
}
