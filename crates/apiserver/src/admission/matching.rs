//! Matching of writes against the rules and selectors of webhooks and policies.
//!
//! A rule for one version of a resource can match a write of another; the webhook or policy then gets the
//! object in the version of the rule.

use super::namespace_lifecycle::missing_namespace;
use apimachinery::labels::{Operator, Requirement, Selector};
use rest::{AdmissionAttributes, ApiError, Form, Operation, RequestOptions, Resource};
use schema::{Value, encode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A list of names; `*` matches all.
struct NameSet(Vec<String>);

impl NameSet {
    fn of(rule: &Value, field: &str) -> Self {
        NameSet(rule.items(&[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|it| it == "*" || it == name)
    }
}

/// Operations on resources.
pub(super) struct Rule {
    operations: NameSet,
    groups: NameSet,
    versions: NameSet,
    /// Resources and their subresources.
    resources: Vec<(String, String)>,
    /// Only namespaced, or only cluster-scoped objects.
    namespaced: Option<bool>,
    /// Only objects of these names; all if empty.
    names: Vec<String>,
}

impl Rule {
    pub fn of(rule: &Value) -> Self {
        let resources = NameSet::of(rule, "resources").0.into_iter().map(|it| match it.split_once('/') {
            Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
            None => (it, String::new()),
        });
        Rule {
            operations: NameSet::of(rule, "operations"),
            groups: NameSet::of(rule, "apiGroups"),
            versions: NameSet::of(rule, "apiVersions"),
            resources: resources.collect(),
            namespaced: match rule.text(&["scope"]) {
                "Namespaced" => Some(true),
                "Cluster" => Some(false),
                _ => None,
            },
            names: NameSet::of(rule, "resourceNames").0,
        }
    }

    /// The resources, without subresources; `None` if all match.
    pub fn plurals(&self) -> Option<impl Iterator<Item = &str>> {
        let plurals = || self.resources.iter().map(|(resource, _)| resource.as_str());
        plurals().all(|it| it != "*").then(plurals)
    }

    fn matches(&self, write: &AdmissionAttributes<'_>, resource: &Resource) -> bool {
        let of = |(plural, sub): &(String, String)| {
            (plural == "*" || *plural == resource.kind.plural) && (sub == "*" || *sub == write.subresource)
        };
        self.operations.has(write.operation.name())
            && self.resources.iter().any(of)
            && self.groups.has(&resource.group)
            && self.versions.has(&resource.kind.version)
            // a namespace is cluster-scoped, although its request has its own name as namespace
            && self.namespaced.is_none_or(|it| it != write.namespace.is_empty())
            && (self.names.is_empty() || self.names.iter().any(|it| it == write.name))
    }
}

/// The version in which a write matches.
#[derive(Clone)]
pub(super) enum Match {
    Exact,
    /// Another version of the resource.
    Converted(Arc<Resource>),
}

impl Match {
    pub fn resource<'a>(&'a self, write: &AdmissionAttributes<'a>) -> &'a Resource {
        match self {
            Match::Exact => write.resource,
            Match::Converted(other) => other,
        }
    }

    /// The other version to convert to, if any.
    pub fn other(&self, write: &AdmissionAttributes<'_>) -> Option<&Arc<Resource>> {
        match (self, write.other) {
            (Match::Converted(other), None) => Some(other),
            _ => None,
        }
    }

    /// Group, version and kind in the matched version.
    pub fn form<'a>(&'a self, write: &AdmissionAttributes<'a>) -> Form<'a> {
        self.other(write).map_or(write.form(), |other| other.form())
    }

    /// The object in the matched version; null where there is none.
    pub async fn json(
        &self,
        write: &AdmissionAttributes<'_>,
        object: Option<&Value>,
    ) -> Result<Vec<u8>, ApiError> {
        let Some(object) = object.filter(|it| !it.is_null()) else { return Ok(b"null".to_vec()) };
        let Some(other) = self.other(write) else { return Ok(encode::json(object, write.form().ty)) };
        let converted = write.resource.convert_to(other, object.clone()).await?;
        Ok(encode::json(&converted, &other.kind.root))
    }
}

/// Finds candidates by the resource of a write.
#[derive(Default)]
pub(super) struct Index {
    /// Indices of rules that name a resource, with those that name all.
    by_plural: HashMap<String, Vec<usize>>,
    /// Indices of rules that name all resources.
    all: Vec<usize>,
}

impl Index {
    /// From lists of rules, in order.
    pub fn of<'r>(many: impl Iterator<Item = &'r [Rule]>) -> Self {
        let mut named: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        let mut all = Vec::new();
        for (at, rules) in many.enumerate() {
            let plurals: Option<Vec<_>> = rules.iter().map(Rule::plurals).collect();
            match plurals {
                None => all.push(at),
                Some(plurals) => {
                    for plural in plurals.into_iter().flatten() {
                        named.entry(plural).or_default().insert(at);
                    }
                }
            }
        }
        let with_all = |mut indices: BTreeSet<usize>| {
            indices.extend(&all);
            indices.into_iter().collect()
        };
        let by_plural = named.into_iter().map(|(plural, indices)| (plural.to_owned(), with_all(indices)));
        Index { by_plural: by_plural.collect(), all }
    }

    /// The indices of candidates for a resource, in order.
    pub fn candidates(&self, plural: &str) -> impl Iterator<Item = usize> {
        self.by_plural.get(plural).unwrap_or(&self.all).iter().copied()
    }
}

/// Whether one of the rules matches a write, and in which version.
pub(super) fn find_match(rules: &[Rule], equivalent: bool, write: &AdmissionAttributes<'_>) -> Option<Match> {
    if rules.iter().any(|rule| rule.matches(write, write.resource)) {
        return Some(Match::Exact);
    }
    if !equivalent {
        return None;
    }
    let resources = write.api.resources();
    let served = |it: &Resource| write.subresource.is_empty() || it.subresource(write.subresource).is_some();
    let others = resources.versions_of(write.resource).iter();
    let mut others = others.filter(|it| it.api_version != write.resource.api_version && served(it));
    others
        .find(|other| rules.iter().any(|rule| rule.matches(write, other)))
        .map(|it| Match::Converted(it.clone()))
}

/// A label selector.
#[derive(Default)]
pub(super) struct Labels(Selector);

impl Labels {
    pub fn of(selector: Option<&Value>) -> Self {
        let Some(selector) = selector else { return Labels::default() };
        let equal =
            selector.at(&["matchLabels"]).and_then(Value::as_map).into_iter().flat_map(|it| it.iter());
        let equal = equal.map(|(key, value)| {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            Requirement::new(key, Operator::Equals, values)
        });
        let more = selector.items(&["matchExpressions"]).iter().map(|one| {
            let operator = match one.text(&["operator"]) {
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => Operator::In,
            };
            let values = one.items(&["values"]).iter().filter_map(Value::as_str).map(str::to_owned);
            Requirement::new(one.text(&["key"]), operator, values.collect())
        });
        Labels(Selector::new(equal.chain(more).collect()))
    }

    fn match_object(&self, object: &Value) -> bool {
        let labels = object.at(&["metadata", "labels"]).and_then(Value::as_map);
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.0.matches_by(label)
    }
}

/// Selectors of the object and of its namespace.
pub(super) struct Selectors {
    namespaces: Labels,
    objects: Labels,
}

impl Selectors {
    pub fn of(value: &Value) -> Self {
        Selectors {
            namespaces: Labels::of(value.at(&["namespaceSelector"])),
            objects: Labels::of(value.at(&["objectSelector"])),
        }
    }

    /// Whether a write is selected. The object is null where there is none.
    pub fn select(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let objects = [Some(object), old];
        let mut objects = objects.into_iter().flatten().filter(|it| !it.is_null());
        // CONNECT options have no labels, so they are always selected
        let labelled = write.operation != Operation::Connect;
        let of_object =
            self.objects.0.is_empty() || labelled && objects.any(|it| self.objects.match_object(it));
        Ok(of_object && self.namespace(write, object)?)
    }

    fn namespace(&self, write: &AdmissionAttributes<'_>, object: &Value) -> Result<bool, ApiError> {
        let itself = is_namespace(write.resource);
        if self.namespaces.0.is_empty() || write.namespace.is_empty() && !itself {
            return Ok(true);
        }
        // the new labels of a namespace are in the object, not in the cache
        if itself
            && write.subresource.is_empty()
            && matches!(write.operation, Operation::Create | Operation::Update)
        {
            return Ok(self.namespaces.match_object(object));
        }
        let name = namespace_of(write);
        let Some(namespace) = write.api.find("namespaces", "", name) else {
            return Err(missing_namespace(name));
        };
        Ok(self.namespaces.0.matches_by(|key| namespace.label(key)))
    }
}

fn is_namespace(resource: &Resource) -> bool {
    super::sync_plugin::is(resource, "", "namespaces")
}

/// The namespace of a write; a namespace belongs to itself.
pub(super) fn namespace_of<'a>(write: &AdmissionAttributes<'a>) -> &'a str {
    if is_namespace(write.resource) { write.name } else { write.namespace }
}

/// Whether a resource is exempt: admission configuration is, so that a broken webhook can be removed.
pub(super) fn is_exempt(resource: &Resource) -> bool {
    const CONFIGURATIONS: [&str; 4] = [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    *resource.kind.group.stem == *"admissionregistration" && CONFIGURATIONS.contains(&&*resource.kind.plural)
}

/// Whether the request is a dry run, whatever becomes of the write.
pub(super) fn is_dry_run(write: &AdmissionAttributes<'_>) -> bool {
    match write.options {
        RequestOptions::Write(options) => options.dry_run,
        RequestOptions::Delete(options) => options.dry_run,
        RequestOptions::None => write.dry_run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).expect("JSON").value
    }

    #[test]
    fn labels_are_selected_as_by_clients() {
        let labels = |text: &str| Labels::of(Some(&json(text)));
        let object = json(r#"{"metadata":{"labels":{"a":"1"}}}"#);
        for (selector, expected) in [
            ("{}", true),
            (r#"{"matchLabels":{"a":"1"}}"#, true),
            (r#"{"matchLabels":{"a":"1","b":"2"}}"#, false),
            (r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"b","operator":"NotIn","values":["1"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#, false),
        ] {
            assert_eq!(labels(selector).match_object(&object), expected, "{selector}");
        }
        assert!(Labels::of(None).match_object(&Value::map()));
    }

    #[test]
    fn a_rule_names_its_resources_or_matches_all() {
        let plurals = |resources: &str| {
            let rule = Rule::of(&json(&format!(r#"{{"resources":{resources}}}"#)));
            rule.plurals().map(|it| it.map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(plurals(r#"["pods","pods/exec","services/*"]"#).unwrap(), ["pods", "pods", "services"]);
        assert_eq!(plurals(r#"["pods","*/scale"]"#), None);
        assert_eq!(plurals(r#"["*"]"#), None);
    }
}
