//! Matching of requests against flow schemas, and the flow distinguisher.

use auth::{Attributes, User, service_account};
use http::HeaderValue;
use schema::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A parsed flow schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schema {
    pub name: String,
    /// Its uid, as a response header.
    pub header: HeaderValue,
    pub precedence: i64,
    pub level: String,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    None,
    User,
    Namespace,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug, Clone, PartialEq)]
enum Subject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Debug, Clone, PartialEq)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    of_cluster: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

/// The uid of an object as a header value.
pub(super) fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.text(&["metadata", "uid"])).unwrap_or(HeaderValue::from_static(""))
}

const ALL: &str = "*";

fn texts(value: &Value, field: &str) -> Vec<String> {
    crate::string_lists::list_of(value, &[field])
}

impl Schema {
    pub fn read(object: &Value) -> Self {
        let text = |path: &[&str]| object.text(path).to_owned();
        Schema {
            name: text(&["metadata", "name"]),
            header: uid(object),
            precedence: object.at(&["spec", "matchingPrecedence"]).and_then(Value::as_int).unwrap_or(0),
            level: text(&["spec", "priorityLevelConfiguration", "name"]),
            distinguisher: match object.text(&["spec", "distinguisherMethod", "type"]) {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: object.items(&["spec", "rules"]).iter().map(Rule::read).collect(),
        }
    }

    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes))
    }

    /// The flow distinguisher of a request.
    pub fn distinguisher<'a>(&self, attributes: &'a Attributes<'a>) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &attributes.user.name,
            Distinguisher::Namespace => attributes.namespace,
        }
    }

    /// The hash of a request's flow.
    pub fn flow(&self, attributes: &Attributes<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.name, self.distinguisher(attributes)).hash(&mut hasher);
        hasher.finish()
    }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let subject = |subject: &Value| {
            let text = |path: &[&str]| subject.text(path).to_owned();
            match subject.text(&["kind"]) {
                "User" => Some(Subject::User(text(&["user", "name"]))),
                "Group" => Some(Subject::Group(text(&["group", "name"]))),
                "ServiceAccount" => Some(Subject::Account {
                    namespace: text(&["serviceAccount", "namespace"]),
                    name: text(&["serviceAccount", "name"]),
                }),
                _ => None,
            }
        };
        let resource = |rule: &Value| ResourceRule {
            verbs: texts(rule, "verbs"),
            groups: texts(rule, "apiGroups"),
            resources: texts(rule, "resources"),
            of_cluster: rule.at(&["clusterScope"]).and_then(Value::as_bool).unwrap_or(false),
            namespaces: texts(rule, "namespaces"),
        };
        let path =
            |rule: &Value| PathRule { verbs: texts(rule, "verbs"), paths: texts(rule, "nonResourceURLs") };
        Rule {
            subjects: rule.items(&["subjects"]).iter().filter_map(subject).collect(),
            resources: rule.items(&["resourceRules"]).iter().map(resource).collect(),
            paths: rule.items(&["nonResourceRules"]).iter().map(path).collect(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(attributes.user))
            && if attributes.resource_request {
                self.resources.iter().any(|rule| rule.matches(attributes))
            } else {
                self.paths.iter().any(|rule| rule.matches(attributes))
            }
    }
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == ALL || *name == user.name,
            Subject::Group(name) => name == ALL || user.is_in(name),
            Subject::Account { namespace, name } => service_account(&user.name)
                .is_some_and(|(ns, account)| ns == namespace && (name == ALL || account == name)),
        }
    }
}

fn contains(list: &[String], value: &str) -> bool {
    list.iter().any(|one| one == ALL || one == value)
}

impl ResourceRule {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let matches_namespace = match attributes.namespace {
            "" => self.of_cluster,
            namespace => contains(&self.namespaces, namespace),
        };
        matches_namespace
            && contains(&self.verbs, attributes.verb)
            && contains(&self.groups, attributes.api_group)
            && self.resources.iter().any(|one| one == ALL || is_resource(one, attributes))
    }
}

/// `pods`, or `pods/status` for a subresource.
fn is_resource(text: &str, attributes: &Attributes<'_>) -> bool {
    match attributes.subresource {
        "" => text == attributes.resource,
        part => text.split_once('/') == Some((attributes.resource, part)),
    }
}

impl PathRule {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let path = attributes.path;
        contains(&self.verbs, attributes.verb)
            && self.paths.iter().any(|one| match one.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => one == path,
            })
    }
}
