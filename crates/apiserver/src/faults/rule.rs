//! A rule: which requests or calls it selects, how often it fires, and the fault.

use std::sync::Arc;
use std::time::Duration;

/// A request, or a call to a webhook about one, as rules see it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Subject<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    /// Empty for paths that name no resource.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: &'a str,
    pub user: &'a str,
    pub user_agent: &'a str,
    /// Whether it comes from a component in the process of the server.
    pub is_component: bool,
    /// The name of the webhook that is called; empty for requests.
    pub webhook: &'a str,
}

/// The subjects of a rule. An empty list matches everything.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selector {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    /// As in RBAC: `pods`, `pods/status`, `*/status`, `*`.
    pub resources: Vec<String>,
    pub namespaces: Vec<String>,
    pub names: Vec<String>,
    pub users: Vec<String>,
    /// Beginnings of user agents.
    pub user_agents: Vec<String>,
    /// With paths a rule is for requests that name no resource.
    pub paths: Vec<String>,
    /// With webhooks a rule is for calls to them.
    pub webhooks: Vec<String>,
    /// Whether requests of components in the process are selected, too.
    pub components: bool,
}

impl Selector {
    pub fn selects(&self, subject: &Subject<'_>) -> bool {
        let is_of_kind = match (self.webhooks.is_empty(), self.paths.is_empty()) {
            (false, _) => !subject.webhook.is_empty() && matches(&self.webhooks, subject.webhook),
            (_, false) => subject.webhook.is_empty() && subject.resource.is_empty(),
            _ => subject.webhook.is_empty() && !subject.resource.is_empty(),
        };
        is_of_kind
            && (self.components || !subject.is_component || !subject.webhook.is_empty())
            && matches(&self.verbs, subject.verb)
            && matches(&self.groups, subject.group)
            && self.selects_resource(subject)
            && matches(&self.namespaces, subject.namespace)
            && matches(&self.names, subject.name)
            && matches(&self.paths, subject.path)
            && matches(&self.users, subject.user)
            && (self.user_agents.is_empty()
                || self.user_agents.iter().any(|it| subject.user_agent.starts_with(&**it)))
    }

    fn selects_resource(&self, subject: &Subject<'_>) -> bool {
        let Subject { resource, subresource, .. } = subject;
        let is_selected = |pattern: &String| match pattern.split_once('/') {
            None => pattern == "*" || subresource.is_empty() && pattern == resource,
            Some((of, part)) => part == *subresource && (of == "*" || of == *resource),
        };
        self.resources.is_empty() || self.resources.iter().any(is_selected)
    }
}

/// Whether a text is among the patterns. A star at the end of a pattern stands for any text.
fn matches(patterns: &[String], text: &str) -> bool {
    let is_match = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    };
    patterns.is_empty() || patterns.iter().any(is_match)
}

/// How often a rule fires, of the subjects that it selects.
#[derive(Debug, PartialEq)]
pub(super) struct Frequency {
    /// How many pass first.
    pub skip: u64,
    pub pace: Pace,
    /// How many times it fires at most.
    pub times: Option<u64>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Pace {
    /// Every so-many-th time; 1 is always.
    Every(u64),
    /// With this probability.
    Rate(f64),
}

/// The fault of a rule.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    /// The name of the rule.
    pub rule: String,
    /// Precedes the effect, by the clock of the cluster.
    pub delay: Option<Duration>,
    pub effect: Effect,
}

impl Fault {
    /// The text of an error.
    pub fn reason(&self) -> String {
        format!("a fault was injected by the rule {:?}", self.rule)
    }
}

/// The effect of a fault, beside its delay.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    Nothing,
    /// An error response, with a `Retry-After` unless that is 0.
    Status {
        code: u16,
        retry_after_seconds: u32,
    },
    Cut(CutPoint),
    EndWatch(WatchEnd),
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutPoint {
    /// Before the request is handled.
    Request,
    /// After the request was handled, before its response is sent.
    Response,
}

/// When and how a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchEnd {
    pub after_events: Option<u64>,
    pub after: Option<Duration>,
    pub ending: WatchEnding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchEnding {
    /// As at the end of its timeout.
    Close,
    /// By an error 410: the events from there on are gone.
    Expired,
    /// In the middle, with its connection.
    Cut,
}

/// See the module.
#[derive(Debug, PartialEq)]
pub(super) struct Rule {
    pub selector: Selector,
    pub frequency: Frequency,
    /// A request holds it beyond a replacement of the rules.
    pub fault: Arc<Fault>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|it| (*it).to_owned()).collect()
    }

    const UPDATE: Subject<'_> = Subject {
        verb: "update",
        group: "apps",
        resource: "deployments",
        subresource: "",
        namespace: "shop",
        name: "web",
        path: "/apis/apps/v1/namespaces/shop/deployments/web",
        user: "system:serviceaccount:shop:operator",
        user_agent: "operator/v1 (linux)",
        is_component: false,
        webhook: "",
    };

    #[test]
    fn all_fields_of_a_selector_must_match() {
        let whole = || Selector {
            verbs: list(&["update", "patch"]),
            groups: list(&["apps"]),
            resources: list(&["deployments"]),
            namespaces: list(&["shop"]),
            names: list(&["w*"]),
            users: list(&["system:serviceaccount:shop:*"]),
            user_agents: list(&["operator/"]),
            ..Selector::default()
        };
        assert!(whole().selects(&UPDATE) && Selector::default().selects(&UPDATE));
        for other in [
            Subject { verb: "get", ..UPDATE },
            Subject { group: "", ..UPDATE },
            Subject { resource: "pods", ..UPDATE },
            Subject { subresource: "status", ..UPDATE },
            Subject { namespace: "other", ..UPDATE },
            Subject { name: "db", ..UPDATE },
            Subject { user: "admin", ..UPDATE },
            Subject { user_agent: "kubectl", ..UPDATE },
            Subject { is_component: true, ..UPDATE },
            Subject { webhook: "a.example.com", ..UPDATE },
        ] {
            assert!(!whole().selects(&other), "{other:?}");
        }
        assert!(Selector { components: true, ..whole() }.selects(&Subject { is_component: true, ..UPDATE }));
    }

    #[test]
    fn subresources_are_selected_as_in_rbac() {
        let selects = |pattern: &str, subresource: &str| {
            let selector = Selector { resources: list(&[pattern]), ..Selector::default() };
            selector.selects(&Subject { subresource, ..UPDATE })
        };
        assert!(selects("deployments/status", "status") && selects("*/status", "status"));
        assert!(selects("*", "status") && selects("*", ""));
        assert!(!selects("deployments", "status") && !selects("deployments/status", ""));
        assert!(!selects("pods/status", "status") && !selects("*/scale", "status"));
    }

    #[test]
    fn paths_and_webhooks_are_subjects_of_their_own() {
        let discovery = Subject { verb: "get", path: "/apis", ..Subject::default() };
        let paths = Selector { paths: list(&["/apis*"]), ..Selector::default() };
        assert!(paths.selects(&discovery) && !paths.selects(&UPDATE));
        assert!(!Selector::default().selects(&discovery));
        // the webhook fails, not the request: the requests of components meet it, too
        let call = Subject { webhook: "a.example.com", is_component: true, ..UPDATE };
        let webhooks = Selector { webhooks: list(&["a.example.com"]), ..Selector::default() };
        assert!(webhooks.selects(&call) && !webhooks.selects(&UPDATE));
        assert!(!webhooks.selects(&Subject { webhook: "b.example.com", ..call }));
    }
}
