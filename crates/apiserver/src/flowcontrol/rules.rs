//! Matching of requests against flow schemas, and the flow distinguisher.

use auth::{Attributes, User, service_account};
use http::HeaderValue;
use schema::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A flow schema, read once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schema {
    pub name: String,
    /// Its uid, as answers tell it.
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

/// The uid of an object, for a header.
pub(super) fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.text(&["metadata", "uid"])).unwrap_or(HeaderValue::from_static(""))
}

const ALL: &str = "*";

fn texts(value: &Value, field: &str) -> Vec<String> {
    crate::reviews::list_of(value, &[field])
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

    pub fn matches(&self, asked: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(asked))
    }

    /// What tells the flows of this schema apart.
    pub fn distinguisher<'a>(&self, asked: &'a Attributes<'a>) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &asked.user.name,
            Distinguisher::Namespace => asked.namespace,
        }
    }

    /// A number for the flow that a request belongs to.
    pub fn flow(&self, asked: &Attributes<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.name, self.distinguisher(asked)).hash(&mut hasher);
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

    fn matches(&self, asked: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(asked.user))
            && if asked.resource_request {
                self.resources.iter().any(|rule| rule.matches(asked))
            } else {
                self.paths.iter().any(|rule| rule.matches(asked))
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

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

impl ResourceRule {
    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let place = match asked.namespace {
            "" => self.of_cluster,
            namespace => holds(&self.namespaces, namespace),
        };
        place
            && holds(&self.verbs, asked.verb)
            && holds(&self.groups, asked.api_group)
            && self.resources.iter().any(|one| one == ALL || is_resource(one, asked))
    }
}

/// `pods`, or `pods/status` for a part.
fn is_resource(text: &str, asked: &Attributes<'_>) -> bool {
    match asked.subresource {
        "" => text == asked.resource,
        part => text.split_once('/') == Some((asked.resource, part)),
    }
}

impl PathRule {
    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let path = asked.path;
        holds(&self.verbs, asked.verb)
            && self.paths.iter().any(|one| match one.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => one == path,
            })
    }
}
