//! The conditions of a terminating namespace.

use super::content::RemainingContent;
use api::Time;
use api::core::v1::NamespaceCondition;
use client::Failure;
use client::discovery::{ApiResources, Resource};
use std::collections::BTreeMap;

/// The result of one attempt to delete the content of a namespace.
#[derive(Debug, Default)]
pub struct DeletionReport {
    /// Why discovery failed as a whole.
    pub undiscovered: Option<String>,
    failed: BTreeMap<String, String>,
    unparsed: Vec<String>,
    /// Errors of deletions.
    pub refused: Vec<String>,
    remaining: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// The estimated time until the remaining objects are gone.
    pub seconds: u64,
}

/// The conditions in their order, with reason and message of the status `False`.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

impl DeletionReport {
    /// Takes over the failures of discovery.
    pub fn add_discovery(&mut self, served: &ApiResources) {
        self.failed = served.failed.clone();
        self.unparsed = served.unparsed.clone();
    }

    /// Adds the remaining objects of a resource.
    pub fn add_remaining(&mut self, resource: &Resource, content: RemainingContent) {
        self.seconds = self.seconds.max(content.seconds);
        if content.count > 0 {
            self.remaining.insert(format!("{}.{}", resource.plural, resource.group), content.count);
        }
        for (finalizer, count) in content.finalizers {
            *self.finalizers.entry(finalizer).or_default() += count;
        }
    }

    fn undiscovered(&self) -> Option<String> {
        if self.undiscovered.is_some() {
            return self.undiscovered.clone();
        }
        let failed: Vec<String> = self.failed.iter().map(|(group, why)| format!("{group}: {why}")).collect();
        (!failed.is_empty()).then(|| {
            let listed = failed.join(", ");
            let count = failed.len();
            format!(
                "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {listed}"
            )
        })
    }

    fn unparsed(&self) -> Option<String> {
        self.unparsed.first().map(|it| format!("unexpected GroupVersion string: {it}"))
    }

    fn refused(&self) -> Option<String> {
        let mut refused = self.refused.clone();
        refused.sort();
        let (count, listed) = (refused.len(), refused.join(", "));
        (count > 0).then(|| format!("Failed to delete all resource types, {count} remaining: {listed}"))
    }

    /// Why the deletion is incomplete.
    pub fn problem(&self) -> Option<Failure> {
        let all: Vec<String> =
            [self.undiscovered(), self.unparsed(), self.refused()].into_iter().flatten().collect();
        (!all.is_empty()).then(|| Failure::Other(all.join("; ")))
    }

    /// Reason and message of each condition whose status is `True`.
    pub fn conditions(&self) -> [Option<(&'static str, String)>; 5] {
        let listed = |of: &BTreeMap<String, usize>, how: &str| {
            let listed = of.iter().map(|(name, count)| format!("{name} {how} {count} resource instances"));
            listed.collect::<Vec<_>>().join(", ")
        };
        let remaining = (!self.remaining.is_empty())
            .then(|| format!("Some resources are remaining: {}", listed(&self.remaining, "has")));
        let finalizers = (!self.finalizers.is_empty()).then(|| {
            let listed = listed(&self.finalizers, "in");
            format!("Some content in the namespace has finalizers remaining: {listed}")
        });
        [
            self.undiscovered().map(|why| ("DiscoveryFailed", why)),
            self.unparsed().map(|why| ("GroupVersionParsingFailed", why)),
            self.refused().map(|why| ("ContentDeletionFailed", why)),
            remaining.map(|why| ("SomeResourcesRemain", why)),
            finalizers.map(|why| ("SomeFinalizersRemain", why)),
        ]
    }
}

/// Updates conditions. Returns whether any changed.
pub fn update(
    conditions: &mut Vec<NamespaceCondition>,
    found: &[Option<(&'static str, String)>; 5],
    now: Time,
) -> bool {
    let mut changed = false;
    for ((name, reason, message), found) in CONDITIONS.iter().zip(found) {
        let (status, reason, message) = match found {
            Some((reason, message)) => ("True", *reason, &**message),
            None => ("False", *reason, *message),
        };
        let mut next = NamespaceCondition {
            type_: (*name).to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Some(now),
            ..NamespaceCondition::default()
        };
        match conditions.iter_mut().find(|it| it.type_ == *name) {
            None => {
                conditions.push(next);
                changed = true;
            }
            Some(old) => {
                if old.status == next.status {
                    next.last_transition_time = old.last_transition_time;
                }
                changed |= *old != next;
                *old = next;
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, plural: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: String::new(),
            namespaced: true,
            preferred: true,
            verbs: Vec::new(),
        }
    }

    #[test]
    fn conditions_list_the_remaining_objects() {
        let mut report = DeletionReport::default();
        let finalizers = BTreeMap::from([("x/y".to_owned(), 2)]);
        report.add_remaining(&resource("", "pods"), RemainingContent { count: 2, finalizers, seconds: 30 });
        report.add_remaining(
            &resource("apps", "deployments"),
            RemainingContent { count: 1, ..RemainingContent::default() },
        );
        report.refused = vec!["b".to_owned(), "a".to_owned()];
        let mut conditions = Vec::new();
        assert!(update(&mut conditions, &report.conditions(), Time(1)));
        let texts: Vec<_> = conditions.iter().map(|it| (&*it.status, &*it.reason, &*it.message)).collect();
        assert_eq!(
            texts,
            [
                ("False", "ResourcesDiscovered", "All resources successfully discovered"),
                ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
                ("True", "ContentDeletionFailed", "Failed to delete all resource types, 2 remaining: a, b"),
                (
                    "True",
                    "SomeResourcesRemain",
                    "Some resources are remaining: deployments.apps has 1 resource instances, \
                     pods. has 2 resource instances"
                ),
                (
                    "True",
                    "SomeFinalizersRemain",
                    "Some content in the namespace has finalizers remaining: x/y in 2 resource instances"
                ),
            ]
        );
        assert_eq!(report.seconds, 30);
        // an unchanged status keeps its time
        assert!(!update(&mut conditions, &report.conditions(), Time(2)));
        report.refused.clear();
        assert!(update(&mut conditions, &report.conditions(), Time(3)));
        let times: Vec<_> = conditions.iter().map(|it| it.last_transition_time.unwrap()).collect();
        assert_eq!(times, [Time(1), Time(1), Time(3), Time(1), Time(1)]);
    }

    #[test]
    fn groups_without_discovery_are_listed() {
        let mut report = DeletionReport::default();
        assert!(report.problem().is_none());
        let mut served = ApiResources::default();
        served.failed.insert("m/v1".to_owned(), "away".to_owned());
        served.unparsed.push("a/b/c".to_owned());
        report.add_discovery(&served);
        let [discovery, parsing, ..] = report.conditions();
        let why = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: m/v1: away";
        assert_eq!(discovery, Some(("DiscoveryFailed", why.to_owned())));
        let why = "unexpected GroupVersion string: a/b/c";
        assert_eq!(parsing, Some(("GroupVersionParsingFailed", why.to_owned())));
        assert!(report.problem().is_some());
    }
}
