//! May they: the decision on one request, and the words of a refusal.
//!
//! What always holds: a decision is a function of what is asked and of what the authorizer was made with. No
//! opinion is not permission: who asks treats it as a refusal once every authorizer has been asked.
//!
//! Here is what needs no roles: the masters' group may do everything, and an operator may have everybody do
//! everything or nothing. What roles permit is in [`rbac`](crate::rbac).

use env::MaybeReady;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use crate::user::{MASTERS, User};

/// What is to be decided: who wants to do what.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks, after impersonation.
    pub user: &'a User,
    /// `get`, `list`, `deletecollection`, …; for other paths the HTTP method in lower case.
    pub verb: &'a str,
    /// The API group, empty for the core one.
    pub api_group: &'a str,
    /// The version within the group.
    pub version: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// The part of the resource that is meant, empty for the whole.
    pub subresource: &'a str,
    /// Empty for what lies in no namespace and for requests across all of them.
    pub namespace: &'a str,
    /// Empty where no single object is meant.
    pub name: &'a str,
    /// The request's path.
    pub path: &'a str,
    /// Whether an API resource is asked for; otherwise the path alone says what.
    pub resource_request: bool,
}

/// The answer, with the reason that is recorded or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Permitted.
    Allow(Cow<'static, str>),
    /// Refused, and nobody else need be asked.
    Deny(Cow<'static, str>),
    /// Not permitted by this authorizer; another one may.
    NoOpinion(Cow<'static, str>),
    /// It could not be decided, which permits nothing. Another authorizer may still permit it.
    Failed(Box<Failure>),
}

/// Why something could not be decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Refused all the same, and nobody else need be asked.
    pub denied: bool,
    /// Why those who could decide permit nothing; may be empty.
    pub reason: String,
    /// What went wrong.
    pub error: String,
}

impl Decision {
    /// A failure that leaves the decision to others.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed(Box::new(Failure { error: error.into(), ..Failure::default() }))
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// Whether it is refused whatever others say.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Deny(_) => true,
            Self::Failed(failure) => failure.denied,
            Self::Allow(_) | Self::NoOpinion(_) => false,
        }
    }

    /// Why, as far as there is something to say.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason) => reason,
            Self::Failed(failure) => &failure.reason,
        }
    }

    /// What went wrong, where something did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(failure) => Some(&failure.error),
            _ => None,
        }
    }
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> MaybeReady<'a, Decision>;

    /// What a user may do in a namespace, as far as that can be listed.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// What somebody may do. The order means nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pub resources: Vec<ResourceRule>,
    pub paths: Vec<PathRule>,
    /// There is more than is listed.
    pub incomplete: bool,
    /// Why it is incomplete.
    pub problem: String,
}

/// These verbs on these resources; `*` is every one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    /// Empty for all names.
    pub names: Vec<String>,
}

/// These verbs on these paths; `*` at the end is everything below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// A way to decide that an operator can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    /// By the lines of a file.
    Abac,
    /// As another server says.
    Webhook,
    /// What node agents may do with what concerns their node.
    Node,
    /// By roles.
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

/// Several problems as one: each once, in brackets when there are more than one.
pub fn joined(problems: impl IntoIterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for problem in problems {
        if !distinct.contains(&problem) {
            distinct.push(problem);
        }
    }
    match &distinct[..] {
        [one] => one.clone(),
        [] => String::new(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Several authorizers, asked one after the other until one decides. The masters' group is above them all.
#[derive(Clone, Default)]
pub struct Chain {
    pub authorizers: Vec<Arc<dyn Authorizer>>,
}

impl Authorizer for Chain {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        if asked.user.is_in(MASTERS) {
            return Decision::Allow("".into()).into();
        }
        let mut reasons = Reasons::default();
        for (at, authorizer) in self.authorizers.iter().enumerate() {
            match authorizer.authorize(asked) {
                MaybeReady::Now(decision) => {
                    if let Some(decided) = reasons.add(decision) {
                        return decided.into();
                    }
                }
                // from the first that takes its time on, all of it does
                MaybeReady::Later(decision) => {
                    return MaybeReady::later(async move {
                        if let Some(decided) = reasons.add(decision.await) {
                            return decided;
                        }
                        for authorizer in &self.authorizers[at + 1..] {
                            if let Some(decided) = reasons.add(authorizer.authorize(asked).get().await) {
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

/// Why nobody has an opinion so far.
#[derive(Default)]
struct Reasons {
    reasons: Vec<Cow<'static, str>>,
    errors: Vec<String>,
}

impl Reasons {
    /// Gives the decision back if it is one.
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

/// Permits everything.
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

/// Permits nothing.
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        Decision::NoOpinion("Everything is forbidden.".into()).into()
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

/// The message of the refusal, as the API words it, with an authorizer's reason, which may be empty.
pub fn forbidden_message(asked: &Attributes<'_>, reason: &str) -> String {
    let mut message = String::new();
    // writing to a string cannot fail
    let _ = write_refusal(&mut message, asked);
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    message
}

fn write_refusal(out: &mut String, asked: &Attributes<'_>) -> std::fmt::Result {
    let (user, verb) = (&asked.user.name, asked.verb);
    if !asked.resource_request {
        return write!(out, "forbidden: User {user:?} cannot {verb} path {:?}", asked.path);
    }
    out.push_str(asked.resource);
    if !asked.api_group.is_empty() {
        write!(out, ".{}", asked.api_group)?;
    }
    if !asked.name.is_empty() {
        write!(out, " {:?}", asked.name)?;
    }
    write!(out, " is forbidden: User {user:?} cannot {verb} resource \"{}", asked.resource)?;
    if !asked.subresource.is_empty() {
        write!(out, "/{}", asked.subresource)?;
    }
    write!(out, "\" in API group {:?} ", asked.api_group)?;
    match asked.namespace {
        "" => write!(out, "at the cluster scope"),
        namespace => write!(out, "in the namespace {namespace:?}"),
    }
}

#[cfg(test)]
mod tests;
