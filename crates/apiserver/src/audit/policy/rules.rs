//! The rules of a policy, and their evaluation for a request.

use auth::{Attributes, User};

/// The level of an event; each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    None,
    /// User, request, time and outcome.
    Metadata,
    /// The request body, too.
    Request,
    /// The response body, too.
    RequestResponse,
}

impl Level {
    pub(super) const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// A stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The user is authenticated and nothing has been done yet.
    RequestReceived,
    /// The head of a long-running response was sent.
    ResponseStarted,
    /// The request has ended.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    pub(super) const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    pub fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    pub(super) fn add(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }
}

/// The level and stages of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub level: Level,
    pub omitted: Stages,
    /// Whether managed fields are omitted.
    pub without_managed_fields: bool,
}

/// The policy of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(super) rules: Vec<Rule>,
    pub(super) omitted: Stages,
    pub(super) without_managed_fields: bool,
}

/// A rule. An empty list matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) level: Option<Level>,
    pub(super) users: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) resources: Vec<Resources>,
    pub(super) namespaces: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) omitted: Stages,
    pub(super) without_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub(super) group: String,
    pub(super) resources: Vec<String>,
    pub(super) names: Vec<String>,
}

impl Policy {
    /// Evaluates the policy for a request; `user` is `None` before authentication.
    pub fn evaluate(&self, user: Option<&User>, attributes: &Attributes<'_>) -> Selection {
        let found = self.rules.iter().find(|rule| rule.fits(user, attributes));
        let (level, omitted) = found.map_or((Level::None, Stages::default()), |rule| {
            (rule.level.unwrap_or(Level::None), rule.omitted)
        });
        let own = found.and_then(|rule| rule.without_managed_fields);
        Selection {
            level,
            omitted: Stages(omitted.0 | self.omitted.0),
            without_managed_fields: own.unwrap_or(self.without_managed_fields),
        }
    }
}

impl Rule {
    fn fits(&self, user: Option<&User>, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        if !self.users.is_empty() && !user.is_some_and(|user| has(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &User| user.groups.iter().any(|group| has(&self.groups, group));
        if !self.groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.resource_request
                && (self.namespaces.is_empty() || has(&self.namespaces, attributes.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|one| one.fit(attributes)));
        }
        if !self.paths.is_empty() {
            return !attributes.resource_request
                && self.paths.iter().any(|path| path_fits(path, attributes.path));
        }
        true
    }
}

impl Resources {
    fn fit(&self, attributes: &Attributes<'_>) -> bool {
        if self.group != attributes.api_group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.iter().any(|name| name == attributes.name) {
            return false;
        }
        let (resource, part) = (attributes.resource, attributes.subresource);
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            None => part.is_empty() && pattern == resource,
            Some((of, "*")) if of == resource => true,
            Some(("*", subresource)) => !part.is_empty() && subresource == part,
            Some((of, subresource)) => of == resource && subresource == part,
        })
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    let below = |prefix: &str| path.starts_with(prefix.trim_end_matches('*'));
    pattern == "*" || pattern == path || pattern.ends_with('*') && below(pattern)
}
