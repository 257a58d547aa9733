//! May they: the decision on one request, and the words of a refusal.
//!
//! What always holds: a decision is a function of what is asked and of what the authorizer was made with. No
//! opinion is not permission: who asks treats it as a refusal once every authorizer has been asked.
//!
//! The rules here are those that stand without any role: the masters' group may do everything; health,
//! version and (for identified users) discovery may be read; and identified users may ask what they may do.
//! They are what the default roles of the API grant to everybody.

use std::borrow::Cow;
use std::fmt::Write;

use names::Names;

use crate::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};

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
    NoOpinion,
}

impl Decision {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }
}

/// Paths that everybody may read.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// Paths that everybody who was identified may read; `/*` stands for everything below.
const DISCOVERY_PATHS: &[&str] = &["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];

/// Resources of the authorization group that everybody who was identified may create.
const SELF_REVIEWS: &[&str] = &["selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// Decides what users may do.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision;

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

/// Decides by the rules that need no roles.
#[derive(Debug, Clone)]
pub struct WithoutRoles {
    /// The group of access reviews.
    review_group: String,
}

impl WithoutRoles {
    pub fn new(names: &Names) -> Self {
        WithoutRoles { review_group: names.group("authorization") }
    }

    fn is_self_review(&self, asked: &Attributes<'_>) -> bool {
        asked.verb == "create"
            && asked.api_group == self.review_group
            && asked.subresource.is_empty()
            && SELF_REVIEWS.contains(&asked.resource)
    }
}

impl Authorizer for WithoutRoles {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        if asked.user.is_in(MASTERS) {
            return Decision::Allow("".into());
        }
        let identified = asked.user.is_in(AUTHENTICATED);
        if asked.resource_request {
            return if identified && self.is_self_review(asked) {
                Decision::Allow("identified users may ask what they may do".into())
            } else {
                Decision::NoOpinion
            };
        }
        if asked.verb != "get" {
            return Decision::NoOpinion;
        }
        let known = identified || asked.user.is_in(UNAUTHENTICATED);
        if known && covers(PUBLIC_PATHS, asked.path) {
            return Decision::Allow("health and version may be read by everybody".into());
        }
        if identified && covers(DISCOVERY_PATHS, asked.path) {
            return Decision::Allow("discovery may be read by identified users".into());
        }
        Decision::NoOpinion
    }

    fn rules(&self, user: &User, _: &str) -> Rules {
        let mut rules = Rules::default();
        let paths = |paths: &[&str]| PathRule { verbs: owned(&["get"]), paths: owned(paths) };
        if user.is_in(MASTERS) {
            let (verbs, api_groups, resources) = (owned(&["*"]), owned(&["*"]), owned(&["*"]));
            rules.resources.push(ResourceRule { verbs, api_groups, resources, names: Vec::new() });
            rules.paths.push(PathRule { verbs: owned(&["*"]), paths: owned(&["*"]) });
        }
        let identified = user.is_in(AUTHENTICATED);
        if identified || user.is_in(UNAUTHENTICATED) {
            rules.paths.push(paths(PUBLIC_PATHS));
        }
        if identified {
            let mut readable = [DISCOVERY_PATHS, PUBLIC_PATHS].concat();
            readable.sort_unstable();
            rules.paths.push(paths(&readable));
            rules.resources.push(ResourceRule {
                verbs: owned(&["create"]),
                api_groups: vec![self.review_group.clone()],
                resources: owned(SELF_REVIEWS),
                names: Vec::new(),
            });
        }
        rules
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn covers(patterns: &[&str], path: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == *pattern,
    })
}

/// The message of the refusal, as the API words it.
pub fn forbidden_message(asked: &Attributes<'_>) -> String {
    forbidden_message_because(asked, "")
}

/// The message of the refusal with an authorizer's reason, which may be empty.
pub fn forbidden_message_because(asked: &Attributes<'_>, reason: &str) -> String {
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
