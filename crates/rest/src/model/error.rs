//! API errors: code, reason, message and details, one constructor per kind of error.
//!
//! Only the API server renders them as `Status` objects.

use schema::problem::{Problem, Problems, Reason, quoted};
use std::borrow::Cow;
use std::collections::HashSet;

/// An error for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    /// `NotFound`, `Conflict`, ...; empty where the API gives none.
    pub reason: Cow<'static, str>,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// The token to continue an expired list with, inconsistently.
    pub continue_token: String,
}

/// The object of an error, and its causes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One of several reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// The object or resource of an error.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub group: &'a str,
    /// Plural resource name, or the kind where the API names the kind.
    pub kind: &'a str,
    pub name: &'a str,
}

impl Subject<'_> {
    /// `pods "x"` or `leases.coordination.k8s.io "x"`.
    fn described(&self) -> String {
        format!("{} {}", self.qualified(), quoted(self.name))
    }

    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Box<Details> {
        Box::new(Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.kind.to_owned(),
            ..Details::default()
        })
    }
}

fn error(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
    ApiError {
        code,
        reason: reason.into(),
        message: message.into(),
        details: None,
        continue_token: String::new(),
    }
}

impl ApiError {
    fn about(mut self, subject: Subject<'_>) -> Self {
        self.details = Some(subject.details());
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        error(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        error(401, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(message: impl Into<String>, subject: Subject<'_>) -> Self {
        error(403, "Forbidden", message).about(subject)
    }

    /// An object that admission rejects: `pods "x" is forbidden: <why>`.
    pub fn object_forbidden(subject: Subject<'_>, why: &str) -> Self {
        let what = if subject.name.is_empty() { subject.qualified() } else { subject.described() };
        error(403, "Forbidden", format!("{what} is forbidden: {why}")).about(subject)
    }

    pub fn not_found(subject: Subject<'_>) -> Self {
        error(404, "NotFound", format!("{} not found", subject.described())).about(subject)
    }

    /// No such path.
    pub fn no_such_path() -> Self {
        let mut it = error(404, "NotFound", "the server could not find the requested resource");
        it.details = Some(Box::default());
        it
    }

    /// The body names another namespace than the URL.
    pub fn wrong_namespace() -> Self {
        Self::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )
    }

    /// The client accepts none of the available media types.
    pub fn nothing_acceptable(available: &[&str]) -> Self {
        let mut it = Self::not_acceptable(&[]);
        it.message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        it.details = Some(Box::default());
        it
    }

    /// A resource that cannot be watched.
    pub fn no_watch(plural: &str) -> Self {
        let message = format!("watch is not supported on resources of kind {plural:?}");
        let mut it = error(405, "MethodNotAllowed", message);
        it.details = Some(Box::new(Details { kind: plural.to_owned(), ..Details::default() }));
        it
    }

    /// Whether the media type of the request or response is unknown.
    pub fn is_about_media(&self) -> bool {
        matches!(self.code, 406 | 415) && self.details.is_some()
    }

    pub fn method_not_allowed() -> Self {
        let mut it =
            error(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        it.details = Some(Box::default());
        it
    }

    pub fn method_not_supported(subject: Subject<'_>, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {:?}", subject.qualified());
        error(405, "MethodNotAllowed", message).about(Subject { name: "", ..subject })
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        error(406, "NotAcceptable", message)
    }

    pub fn already_exists(subject: Subject<'_>) -> Self {
        error(409, "AlreadyExists", format!("{} already exists", subject.described())).about(subject)
    }

    pub fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", subject.described());
        error(409, "Conflict", message).about(subject)
    }

    /// Another write changed the object first.
    pub fn modified(subject: Subject<'_>) -> Self {
        const WHY: &str =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, WHY)
    }

    /// Every generated name was taken.
    pub fn generate_name_conflict(subject: Subject<'_>) -> Self {
        let message = format!(
            "{} already exists, the server was not able to generate a unique name for the object",
            subject.described()
        );
        let mut it = error(409, "AlreadyExists", message).about(subject);
        if let Some(details) = &mut it.details {
            details.retry_after_seconds = 1;
        }
        it
    }

    pub fn gone(message: impl Into<String>) -> Self {
        error(410, "Expired", message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        error(413, "RequestEntityTooLarge", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        error(415, "UnsupportedMediaType", message)
    }

    /// An unknown media type.
    pub fn unknown_media_type() -> Self {
        let mut it = error(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        it.details = Some(Box::default());
        it
    }

    /// All problems of an object at once. `subject.kind` is the kind here.
    pub fn invalid(subject: Subject<'_>, problems: impl Into<Problems>) -> Self {
        let problems = problems.into();
        let further = problems.is_full().then(|| Problem {
            reason: Reason::TooMany,
            field: "[]".to_owned(),
            message: format!("Too many: only the first {} problems are shown", problems.len()),
        });
        let problems: Vec<Problem> = problems.into_iter().chain(further).collect();
        let mut message = format!("{} is invalid: ", subject.described());
        let start = message.len();
        // each problem is reported once, in the order of discovery
        let (mut seen, mut count) = (HashSet::with_capacity(problems.len()), 0);
        for problem in problems.iter().filter(|it| seen.insert((&it.field, &it.message))) {
            let separator = if count == 0 { "" } else { ", " };
            count += 1;
            message.extend([separator, &problem.field, ": ", &problem.message]);
        }
        if count != 1 {
            message.insert(start, '[');
            message.push(']');
        }
        let mut it = error(422, "Invalid", message).about(subject);
        if let Some(details) = &mut it.details {
            details.causes = problems
                .into_iter()
                .map(|p| Cause { reason: p.reason.name().to_owned(), message: p.message, field: p.field })
                .collect();
        }
        it
    }

    /// The patch fits neither the object nor the rules of its format.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        let mut it = error(422, "Invalid", message);
        it.details = Some(Box::default());
        it
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut it = error(429, "TooManyRequests", message);
        it.details = Some(Box::new(Details { retry_after_seconds, ..Details::default() }));
        it
    }

    /// A failure of the server without a reason.
    pub fn internal(message: impl Into<String>) -> Self {
        error(500, "", message)
    }

    pub fn internal_error(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut it = error(500, "InternalError", format!("Internal error occurred: {message}"));
        let cause = Cause { reason: String::new(), message, field: String::new() };
        it.details = Some(Box::new(Details { causes: vec![cause], ..Details::default() }));
        it
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        error(503, "ServiceUnavailable", message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        let mut it = error(504, "Timeout", message);
        it.details = Some(Box::default());
        it
    }

    /// The error without a retry time.
    pub fn without_retry(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    /// The requested version is newer than this server has seen.
    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        let mut it = error(504, "Timeout", format!("Timeout: {message}"));
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        it.details =
            Some(Box::new(Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() }));
        it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Path;

    #[test]
    fn messages_match_upstream() {
        let pod = Subject { group: "", kind: "pods", name: "a" };
        assert_eq!(ApiError::not_found(pod).message, "pods \"a\" not found");
        let lease = Subject { group: "coordination.k8s.io", kind: "leases", name: "a" };
        assert_eq!(
            ApiError::already_exists(lease).message,
            "leases.coordination.k8s.io \"a\" already exists"
        );
        let unnamed = Subject { name: "", ..pod };
        assert_eq!(ApiError::object_forbidden(unnamed, "no").message, "pods is forbidden: no");
    }

    #[test]
    fn all_problems_are_named_and_repeats_once() {
        let spec = Path::ROOT.field("spec");
        let problem = Problem::required(&spec, "");
        let subject = Subject { group: "", kind: "Pod", name: "a" };
        let one = ApiError::invalid(subject, vec![problem.clone(), problem.clone()]);
        assert_eq!(one.message, "Pod \"a\" is invalid: spec: Required value");
        assert_eq!(one.details.map(|d| d.causes.len()), Some(2));
        let two = ApiError::invalid(subject, vec![problem, Problem::required(&spec.field("x"), "")]);
        assert_eq!(two.message, "Pod \"a\" is invalid: [spec: Required value, spec.x: Required value]");
    }
}
