//! The [`Authorizer`] interface: the decision on one request, and the message of a refusal.
//!
//! Invariants: a decision is a function of the attributes and of the authorizer's configuration. `NoOpinion` does
//! not allow: the request is refused once every authorizer has been consulted.
//!
//! This module has the authorizers without roles: `system:masters`, `AlwaysAllow` and `AlwaysDeny`. Roles are in
//! [`rbac`](crate::rbac).

use env::MaybeReady;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use tables::text::quoted;

use crate::user::{MASTERS, User};

/// The attributes of a request that is to be authorized.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// The user, after impersonation.
    pub user: &'a User,
    /// `get`, `list`, `deletecollection`, …; for non-resource paths the HTTP method in lower case.
    pub verb: &'a str,
    /// The API group, empty for the core one.
    pub api_group: &'a str,
    /// The version within the group.
    pub version: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// The subresource, empty for the resource itself.
    pub subresource: &'a str,
    /// Empty for cluster-scoped resources and for requests across all namespaces.
    pub namespace: &'a str,
    /// Empty where no single object is requested.
    pub name: &'a str,
    /// The request's path.
    pub path: &'a str,
    /// Whether an API resource is requested; otherwise only the path counts.
    pub resource_request: bool,
}

/// The decision, with the reason that is recorded or returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed.
    Allow(Cow<'static, str>),
    /// Refused; no other authorizer is consulted.
    Deny(Cow<'static, str>),
    /// Not allowed by this authorizer; another one may allow it.
    NoOpinion(Cow<'static, str>),
    /// The authorizer failed, which allows nothing. Another one may still allow the request.
    Failed(Box<Failure>),
}

/// Why an authorizer failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Refused nevertheless; no other authorizer is consulted.
    pub denied: bool,
    /// The reason of the authorizers that had no opinion; may be empty.
    pub reason: String,
    /// The error.
    pub error: String,
}

impl Decision {
    /// A failure that leaves the decision to other authorizers.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed(Box::new(Failure { error: error.into(), ..Failure::default() }))
    }

    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// Whether it is refused regardless of other authorizers.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Deny(_) => true,
            Self::Failed(failure) => failure.denied,
            Self::Allow(_) | Self::NoOpinion(_) => false,
        }
    }

    /// The reason; may be empty.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason) => reason,
            Self::Failed(failure) => &failure.reason,
        }
    }

    /// The error, if the authorizer failed.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(failure) => Some(&failure.error),
            _ => None,
        }
    }
}

/// Decides which requests of users are allowed.
pub trait Authorizer: Send + Sync {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision>;

    /// The rules of a user in a namespace, as far as they can be listed.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// The rules that apply to a user, in no particular order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pub resources: Vec<ResourceRule>,
    pub paths: Vec<PathRule>,
    /// The list is incomplete.
    pub incomplete: bool,
    /// Why it is incomplete.
    pub problem: String,
}

/// Verbs on resources; `*` matches every one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    /// Empty for all names.
    pub names: Vec<String>,
}

/// Verbs on non-resource paths; a `*` at the end matches everything below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// An authorization mode of `--authorization-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    /// ABAC: the lines of a policy file.
    Abac,
    /// A webhook.
    Webhook,
    /// The node authorizer: kubelets and the objects of their node.
    Node,
    /// RBAC: roles and bindings.
    Rbac,
}

impl Mode {
    pub const ALL: &[(&str, Self)] = &[
        ("AlwaysAllow", Self::AlwaysAllow),
        ("AlwaysDeny", Self::AlwaysDeny),
        ("ABAC", Self::Abac),
        ("Webhook", Self::Webhook),
        ("Node", Self::Node),
        ("RBAC", Self::Rbac),
    ];
}

/// Joins problems as upstream's aggregate does: each once, in brackets if there are several.
pub fn joined(problems: impl IntoIterator<Item = String>) -> String {
    let mut seen = HashSet::new();
    let distinct: Vec<String> = problems.into_iter().filter(|problem| seen.insert(problem.clone())).collect();
    match &distinct[..] {
        [one] => one.clone(),
        [] => String::new(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Several authorizers, consulted in order until one decides. Members of `system:masters` are always allowed.
#[derive(Clone, Default)]
pub struct Chain {
    pub authorizers: Vec<Arc<dyn Authorizer>>,
}

impl Authorizer for Chain {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        if attributes.user.is_in(MASTERS) {
            return Decision::Allow("".into()).into();
        }
        let mut reasons = Reasons::default();
        for (at, authorizer) in self.authorizers.iter().enumerate() {
            match authorizer.authorize(attributes) {
                MaybeReady::Now(decision) => {
                    if let Some(decided) = reasons.add(decision) {
                        return decided.into();
                    }
                }
                // from the first authorizer that is not ready at once, the rest runs asynchronously
                MaybeReady::Later(decision) => {
                    return MaybeReady::later(async move {
                        if let Some(decided) = reasons.add(decision.await) {
                            return decided;
                        }
                        for authorizer in &self.authorizers[at + 1..] {
                            if let Some(decided) = reasons.add(authorizer.authorize(attributes).get().await) {
                                return decided;
                            }
                        }
                        reasons.none()
                    });
                }
            }
        }
        reasons.none().into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut all = Rules::default();
        let mut problems = Vec::new();
        for authorizer in &self.authorizers {
            let rules = authorizer.rules(user, namespace);
            all.resources.extend(rules.resources);
            all.paths.extend(rules.paths);
            all.incomplete |= rules.incomplete;
            problems.extend(Some(rules.problem).filter(|problem| !problem.is_empty()));
        }
        all.problem = joined(problems);
        all
    }
}

/// The reasons and errors of the authorizers so far.
#[derive(Default)]
struct Reasons {
    reasons: Vec<Cow<'static, str>>,
    errors: Vec<String>,
}

impl Reasons {
    /// Returns the decision if it is final.
    fn add(&mut self, decision: Decision) -> Option<Decision> {
        match decision {
            Decision::NoOpinion(reason) => self.because(reason),
            Decision::Failed(failure) if !failure.denied => {
                self.because(failure.reason.into());
                self.errors.push(failure.error);
            }
            decided => return Some(decided),
        }
        None
    }

    fn because(&mut self, reason: Cow<'static, str>) {
        if !reason.is_empty() {
            self.reasons.push(reason);
        }
    }

    fn none(self) -> Decision {
        let reason = self.reasons.join("\n");
        if self.errors.is_empty() {
            return Decision::NoOpinion(reason.into());
        }
        Decision::Failed(Box::new(Failure { denied: false, reason, error: joined(self.errors) }))
    }
}

/// Allows everything.
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        Decision::Allow("".into()).into()
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        let all = || vec!["*".to_owned()];
        let resources =
            vec![ResourceRule { verbs: all(), api_groups: all(), resources: all(), names: Vec::new() }];
        Rules { resources, paths: vec![PathRule { verbs: all(), paths: all() }], ..Rules::default() }
    }
}

/// Allows nothing.
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        Decision::NoOpinion("Everything is forbidden.".into()).into()
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

/// The message of a refusal in upstream's words, with an authorizer's reason, which may be empty.
pub fn forbidden_message(attributes: &Attributes<'_>, reason: &str) -> String {
    let mut message = String::new();
    // writing to a string cannot fail
    let _ = write_refusal(&mut message, attributes);
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    message
}

fn write_refusal(out: &mut String, attributes: &Attributes<'_>) -> std::fmt::Result {
    let (user, verb) = (quoted(&attributes.user.name), attributes.verb);
    if !attributes.resource_request {
        return write!(out, "forbidden: User {user} cannot {verb} path {}", quoted(attributes.path));
    }
    out.push_str(attributes.resource);
    if !attributes.api_group.is_empty() {
        write!(out, ".{}", attributes.api_group)?;
    }
    if !attributes.name.is_empty() {
        write!(out, " {}", quoted(attributes.name))?;
    }
    write!(out, " is forbidden: User {user} cannot {verb} resource \"{}", attributes.resource)?;
    if !attributes.subresource.is_empty() {
        write!(out, "/{}", attributes.subresource)?;
    }
    write!(out, "\" in API group {} ", quoted(attributes.api_group))?;
    match attributes.namespace {
        "" => write!(out, "at the cluster scope"),
        namespace => write!(out, "in the namespace {}", quoted(namespace)),
    }
}

#[cfg(test)]
mod tests;
