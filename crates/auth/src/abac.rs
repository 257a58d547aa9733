//! The ABAC authorizer: decides by a list of policies, each of which names a subject, verbs and a scope.
//!
//! ```text
//! subject: user "alice"   resource: "pods" of group "" in namespace "team"   read_only
//! subject: group "ops"    path: "/metrics"
//! ```
//!
//! Invariants: a policy only allows; a request that no policy allows is left to other authorizers. A policy without
//! a subject allows nothing. `*` matches everything; in a path only at the end.

use crate::authorize::{Attributes, Authorizer, Decision, PathRule, ResourceRule, Rules};
use crate::user::{AUTHENTICATED, User};
use env::MaybeReady;

/// Read-only verbs.
const READS: [&str; 3] = ["get", "list", "watch"];

/// One line of a policy file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The subject. With both a user and a group, both must match.
    pub user: String,
    pub group: String,
    /// Only read-only verbs are allowed.
    pub read_only: bool,
    pub api_group: String,
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// A non-resource path.
    pub path: String,
}

impl Policy {
    /// Replaces the subject `*` by the group of authenticated users.
    #[must_use]
    pub fn settled(mut self) -> Self {
        if self.user == "*" || self.group == "*" {
            self.group = AUTHENTICATED.to_owned();
            self.user = String::new();
        }
        self
    }

    /// Converts a line of the v0 form, in which an omitted field means everything.
    #[must_use]
    pub fn of_oldest_form(mut self) -> Self {
        if self.user.is_empty() && self.group.is_empty() {
            self.group = AUTHENTICATED.to_owned();
        }
        if self.namespace.is_empty() && self.resource.is_empty() {
            self.path = "*".to_owned();
        }
        for field in [&mut self.namespace, &mut self.resource] {
            if field.is_empty() {
                *field = "*".to_owned();
            }
        }
        self.api_group = "*".to_owned();
        self.settled()
    }

    fn is_about(&self, user: &User) -> bool {
        let named = !self.user.is_empty() || !self.group.is_empty();
        named
            && (self.user.is_empty() || self.user == user.name)
            && (self.group.is_empty() || user.is_in(&self.group))
    }

    fn permits(&self, attributes: &Attributes<'_>) -> bool {
        if !self.is_about(attributes.user) || self.read_only && !READS.contains(&attributes.verb) {
            return false;
        }
        if attributes.resource_request {
            fits(&self.namespace, attributes.namespace)
                && fits(&self.resource, attributes.resource)
                && fits(&self.api_group, attributes.api_group)
        } else {
            match self.path.strip_suffix('*') {
                Some(above) => attributes.path.starts_with(above.trim_end_matches('*')),
                None => self.path == attributes.path,
            }
        }
    }

    fn verbs(&self) -> Vec<String> {
        let verbs: &[&str] = if self.read_only { &READS } else { &["*"] };
        verbs.iter().map(|verb| (*verb).to_owned()).collect()
    }
}

fn fits(pattern: &str, given: &str) -> bool {
    pattern == "*" || pattern == given
}

/// The ABAC authorizer.
#[derive(Debug, Clone, Default)]
pub struct Abac(pub Vec<Policy>);

impl Authorizer for Abac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let permitted = self.0.iter().any(|policy| policy.permits(attributes));
        let decision = match permitted {
            true => Decision::Allow("".into()),
            false => Decision::NoOpinion("No policy matched.".into()),
        };
        decision.into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        let here = |policy: &&Policy| policy.is_about(user) && fits(&policy.namespace, namespace);
        for policy in self.0.iter().filter(here) {
            if !policy.resource.is_empty() {
                rules.resources.push(ResourceRule {
                    verbs: policy.verbs(),
                    api_groups: vec![policy.api_group.clone()],
                    resources: vec![policy.resource.clone()],
                    names: Vec::new(),
                });
            }
            if !policy.path.is_empty() {
                rules.paths.push(PathRule { verbs: policy.verbs(), paths: vec![policy.path.clone()] });
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes<'a>(user: &'a User, verb: &'a str, resource: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb,
            api_group: if resource == "deployments" { "apps" } else { "" },
            version: "v1",
            resource,
            subresource: "",
            namespace: if resource == "nodes" { "" } else { "here" },
            name: "",
            path,
            resource_request: !resource.is_empty(),
        }
    }

    /// Whether policies allow a request, each written as `user group ro apigroup resource namespace path`.
    fn may(policy: &str, user: &User, verb: &str, what: &str) -> bool {
        let fields: Vec<_> = policy.split(' ').map(|it| it.trim_matches('-').to_owned()).collect();
        let [user_name, group, read_only, api_group, resource, namespace, path] = &fields[..] else {
            panic!("{policy}")
        };
        let policy = Policy {
            user: user_name.clone(),
            group: group.clone(),
            read_only: read_only == "ro",
            api_group: api_group.clone(),
            resource: resource.clone(),
            namespace: namespace.clone(),
            path: path.clone(),
        };
        let (resource, path) = if what.starts_with('/') { ("", what) } else { (what, "/api/v1/x") };
        let decided = Abac(vec![policy.settled()]).authorize(&attributes(user, verb, resource, path)).now();
        match decided.unwrap() {
            Decision::Allow(_) => true,
            other => {
                assert_eq!(other, Decision::NoOpinion("No policy matched.".into()));
                false
            }
        }
    }

    #[test]
    fn policies_match_subject_verb_and_scope() {
        let ann = User { groups: vec!["ops".to_owned()], ..User::named("ann") }.authenticated();
        for (policy, verb, what, expected) in [
            ("ann - - - pods here -", "delete", "pods", true),
            ("ann - - - pods there -", "delete", "pods", false),
            ("ann - - - pods - -", "delete", "pods", false),
            ("ann - - - nodes - -", "get", "nodes", true),
            ("ann - - - services here -", "get", "pods", false),
            ("bob - - - pods here -", "get", "pods", false),
            ("ann ops - - pods here -", "get", "pods", true),
            ("ann dev - - pods here -", "get", "pods", false),
            ("bob ops - - pods here -", "get", "pods", false),
            ("- ops - - pods here -", "get", "pods", true),
            // no subject
            ("- - - * * * *", "get", "pods", false),
            ("- * - - pods here -", "get", "pods", true),
            ("* nobodys - - pods here -", "get", "pods", true),
            ("ann - ro - pods here -", "watch", "pods", true),
            ("ann - ro - pods here -", "patch", "pods", false),
            ("ann - ro - - - /a", "get", "/a", true),
            ("ann - ro - - - /a", "post", "/a", false),
            ("ann - - - deployments here -", "get", "deployments", false),
            ("ann - - apps deployments here -", "get", "deployments", true),
            ("ann - - * * * -", "get", "deployments", true),
            // paths and resources do not match each other
            ("ann - - - - - *", "get", "pods", false),
            ("ann - - * * * -", "get", "/a", false),
            ("ann - - - - - *", "post", "/anything", true),
            ("ann - - - - - /a", "get", "/a/b", false),
            ("ann - - - - - /a/*", "get", "/a/b/c", true),
            ("ann - - - - - /a/*", "get", "/a", false),
            ("ann - - - - - /a**", "get", "/ab", true),
            ("ann - - - - - /*/b", "get", "/a/b", false),
        ] {
            assert_eq!(may(policy, &ann, verb, what), expected, "{policy}: {verb} {what}");
        }
        let anonymous = User::anonymous();
        assert!(!may("* - - * * * *", &anonymous, "get", "pods"), "`*` means authenticated users");
    }

    #[test]
    fn absent_fields_of_version_0_policies_match_everything() {
        let old = |user: &str, namespace: &str, resource: &str| {
            let policy = Policy {
                user: user.to_owned(),
                namespace: namespace.to_owned(),
                resource: resource.to_owned(),
                ..Policy::default()
            };
            policy.of_oldest_form()
        };
        let all = old("", "", "");
        assert_eq!((&*all.group, &*all.path, &*all.api_group), (AUTHENTICATED, "*", "*"));
        assert_eq!((&*all.namespace, &*all.resource), ("*", "*"));
        assert_eq!(old("*", "", ""), all);
        let some = old("ann", "here", "");
        assert_eq!((&*some.user, &*some.namespace, &*some.resource, &*some.path), ("ann", "here", "*", ""));
    }

    #[test]
    fn rules_of_a_user_can_be_listed() {
        let ann = User::named("ann").authenticated();
        let of = |namespace: &str, read_only: bool, path: &str| Policy {
            user: "ann".to_owned(),
            namespace: namespace.to_owned(),
            resource: if path.is_empty() { "pods" } else { "" }.to_owned(),
            read_only,
            path: path.to_owned(),
            ..Policy::default()
        };
        let all = Abac(vec![
            of("here", true, ""),
            of("there", false, ""),
            of("*", false, ""),
            of("", false, "/a"),
            of("*", false, "/b"),
        ]);
        let rules = all.rules(&ann, "here");
        let verbs: Vec<_> = rules.resources.iter().map(|rule| rule.verbs.join(",")).collect();
        assert_eq!(verbs, ["get,list,watch", "*"]);
        assert_eq!((rules.paths.len(), &*rules.paths[0].paths[0], rules.incomplete), (1, "/b", false));
        assert_eq!(all.rules(&User::named("bob"), "here"), Rules::default());
    }
}
