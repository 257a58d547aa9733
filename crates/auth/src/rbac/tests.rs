use super::*;
use crate::user::{AUTHENTICATED, UNAUTHENTICATED};
use std::collections::BTreeMap;

fn texts(many: &str) -> Vec<String> {
    many.split(',').filter(|one| !one.is_empty()).map(|one| one.replace('-', "")).collect()
}

/// `verbs groups resources names`, with `-` for the nameless group.
fn rule(text: &str) -> Rule {
    let mut parts = text.split(' ').chain(std::iter::repeat("")).map(texts);
    let mut next = || parts.next().unwrap_or_default();
    Rule { verbs: next(), api_groups: next(), resources: next(), names: next(), paths: Vec::new() }
}

fn paths(verbs: &str, paths: &str) -> Rule {
    Rule { verbs: texts(verbs), paths: paths.split(',').map(str::to_owned).collect(), ..Rule::default() }
}

fn role(namespace: &str, name: &str, rules: Vec<Rule>) -> Arc<Role> {
    Arc::new(Role { namespace: namespace.into(), name: name.into(), rules: vec![rules.into()] })
}

fn binding(namespace: &str, name: &str, role: (bool, &str), subjects: Vec<Subject>) -> Arc<Binding> {
    let role = RoleRef { of_cluster: role.0, name: role.1.into() };
    Arc::new(Binding { namespace: namespace.into(), name: name.into(), role, subjects })
}

fn user(name: &str) -> Subject {
    Subject::User(name.to_owned())
}

fn group(name: &str) -> Subject {
    Subject::Group(name.to_owned())
}

/// The bootstrap roles of all users.
pub(crate) fn bootstrap_rbac() -> Rbac {
    let health = "/healthz,/livez,/readyz,/version,/version/";
    let discovery = "/api,/api/*,/apis,/apis/*,/openapi,/openapi/*";
    let reviews = "create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews";
    let identified = vec![group(AUTHENTICATED)];
    let rbac = Rbac::new(&Names::kubernetes());
    rbac.replace(Policy::compile(
        [
            role("", "info", vec![paths("get", health)]),
            role("", "discovery", vec![paths("get", discovery)]),
            role("", "basic", vec![rule(reviews)]),
        ],
        [
            binding("", "info", (true, "info"), vec![group(AUTHENTICATED), group(UNAUTHENTICATED)]),
            binding("", "discovery", (true, "discovery"), identified.clone()),
            binding("", "basic", (true, "basic"), identified),
        ],
    ));
    rbac
}

fn attributes<'a>(user: &'a User, text: &'a str) -> Attributes<'a> {
    let mut parts = text.split(' ').map(|one| if one == "-" { "" } else { one });
    let mut next = || parts.next().unwrap_or("");
    let (verb, api_group, resource, namespace, name) = (next(), next(), next(), next(), next());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let path = "";
    let (version, resource_request) = ("v1", true);
    Attributes {
        user,
        verb,
        api_group,
        version,
        resource,
        subresource,
        namespace,
        name,
        path,
        resource_request,
    }
}

#[test]
fn a_rule_allows_its_verbs_and_resources() {
    let bob = User::named("bob");
    for (given, wanted, expected) in [
        ("get - pods", "get - pods a", true),
        ("get - pods", "list - pods a", false),
        ("* - pods", "list - pods a", true),
        ("get apps pods", "get - pods a", false),
        ("get * pods", "get apps pods a", true),
        ("get - pods", "get - pods/log a", false),
        ("get - pods/log", "get - pods/log a", true),
        ("get - pods/log", "get - pods a", false),
        ("get - */scale", "get - x/scale a", true),
        ("get - */scale", "get - x/rescale a", false),
        ("get - */scale", "get - scale a", false),
        ("get - *", "get - pods/log a", true),
        ("get - pods x,y", "get - pods a y", true),
        ("get - pods x,y", "get - pods a z", false),
        ("get - pods x,y", "get - pods a", false),
    ] {
        assert_eq!(rule(given).allows(&attributes(&bob, wanted)), expected, "{given}: {wanted}");
    }
    let path = |path| Attributes { path, resource_request: false, ..attributes(&bob, "get") };
    for (given, wanted, expected) in [
        ("/a", "/a", true),
        ("/a", "/a/b", false),
        ("/a/*", "/a/b/c", true),
        ("/a/*", "/a", false),
        ("*", "/", true),
    ] {
        assert_eq!(paths("get", given).allows(&path(wanted)), expected, "{given}: {wanted}");
    }
    assert!(!rule("* * *").allows(&path("/a")) && !paths("*", "*").allows(&attributes(&bob, "get - pods")));
}

#[test]
fn bindings_grant_roles_in_their_scope() {
    let account = Subject::ServiceAccount { namespace: "a".into(), name: "sa".into() };
    let rbac = Rbac::new(&Names::kubernetes());
    rbac.replace(Policy::compile(
        [role("", "all", vec![rule("* * *")]), role("a", "read", vec![rule("get - pods")])],
        [
            binding("", "roots", (true, "all"), vec![user("root")]),
            binding("a", "readers", (false, "read"), vec![group("staff"), user("bob"), account]),
            binding("b", "admins", (true, "all"), vec![user("bob")]),
            binding("b", "lost", (false, "read"), vec![user("eve"), group("staff")]),
        ],
    ));
    let decide = |user: &User, text: &str| match rbac.authorize(&attributes(user, text)).now().unwrap() {
        Decision::Allow(reason) => format!("+{reason}"),
        refused => format!("-{}", refused.reason()),
    };
    let (root, bob, eve) = (User::named("root"), User::named("bob"), User::named("eve"));
    let of_cluster = "+RBAC: allowed by ClusterRoleBinding \"roots\" of ClusterRole \"all\" to User \"root\"";
    assert_eq!(decide(&root, "delete - nodes"), of_cluster);
    assert_eq!(decide(&root, "delete - pods a x"), of_cluster);
    let here = "+RBAC: allowed by RoleBinding \"readers/a\" of Role \"read\" to";
    assert_eq!(decide(&bob, "get - pods a"), format!("{here} User \"bob\""));
    assert_eq!(decide(&bob, "get - pods -"), "-");
    assert_eq!(decide(&bob, "get - pods c"), "-");
    assert!(decide(&bob, "delete - secrets b").starts_with("+RBAC: allowed by RoleBinding \"admins/b\""));
    let account = User::named("system:serviceaccount:a:sa");
    assert_eq!(decide(&account, "get - pods a"), format!("{here} ServiceAccount \"sa/a\""));
    assert_eq!(decide(&eve, "get - pods b"), "-RBAC: role.rbac.authorization.k8s.io \"read\" not found");
    let both = User { groups: vec!["staff".into()], ..bob };
    assert_eq!(rbac.rules(&both, "a").resources.len(), 1, "a binding counts once");
    let there = rbac.rules(&both, "b");
    assert_eq!(there.problem, "role.rbac.authorization.k8s.io \"read\" not found");
    assert_eq!(there.resources[0].verbs, ["*"]);
}

#[test]
fn escalations_list_the_missing_rules() {
    let gained = |held: &[Rule], wanted: &[Rule]| {
        let held: Vec<_> = held.iter().collect();
        let wanted: Vec<_> = wanted.iter().collect();
        let message = refusal(&User::named("bob"), missing(&held, &wanted).unwrap());
        message.split_once('\n').map(|(_, rules)| rules.to_owned()).unwrap_or_default()
    };
    let held = [rule("get,list - pods"), paths("get", "/metrics,/foo/*"), rule("get - secrets x")];
    assert_eq!(gained(&held, &[rule("get - pods"), rule("list - pods x"), paths("get", "/foo/bar")]), "");
    assert_eq!(gained(&held, &[rule("get - secrets x")]), "");
    assert_eq!(
        gained(&held, &[rule("get,delete -,apps pods"), rule("get - secrets")]),
        "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"delete\"]}"
    );
    assert_eq!(
        gained(&held, &[rule("get * */scale a,b"), paths("get,post", "/metrics")]),
        "{APIGroups:[\"*\"], Resources:[\"*/scale\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
         {APIGroups:[\"*\"], Resources:[\"*/scale\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}\n\
         {NonResourceURLs:[\"/metrics\"], Verbs:[\"post\"]}"
    );
    assert_eq!(gained(&[rule("* * *")], &[rule("* - a/b,c x")]), "");
    assert_eq!(gained(&[rule("get - */b")], &[rule("get - a/b")]), "");
    let many: Vec<String> = (0..300).map(|at| at.to_string()).collect();
    let huge = Rule { verbs: many.clone(), api_groups: many.clone(), resources: many, ..Rule::default() };
    assert_eq!(missing(&[], &[&huge]), Err(TooManyPermissions));
    assert_eq!(missing(&[&rule("* * *")], &[&huge]), Ok(Vec::new()));
}

#[test]
fn a_role_with_many_names_covers_itself() {
    let role = rule("get - pods");
    let named = Rule { names: (0..200_000).map(|at| at.to_string()).collect(), ..role.clone() };
    assert_eq!(missing(&[&named], &[&named]), Ok(Vec::new()));
    assert_eq!(missing(&[&role], &[&named]), Ok(Vec::new()));
    let mut one_more = named.clone();
    one_more.names.push("other".to_owned());
    assert_eq!(missing(&[&named], &[&one_more]), Ok(vec![rule("get - pods other")]));
    assert_eq!(missing(&[], &[&named]), Err(TooManyPermissions));
}

#[test]
fn many_rules_cover_themselves() {
    let rules: Vec<Rule> = (0..20_000).map(|at| rule(&format!("get,list g{at} r{at},r{at}/log n"))).collect();
    let paths: Vec<Rule> = (0..20_000).map(|at| paths("get", &format!("/a{at}/*,/b{at}"))).collect();
    let held: Vec<_> = rules.iter().chain(&paths).collect();
    assert_eq!(missing(&held, &held), Ok(Vec::new()));
    assert_eq!(missing(&held, &[&rule("get g1 r2 n")]), Ok(vec![rule("get g1 r2 n")]));
}

/// The definition of coverage, which compares every permission with every held rule.
fn missing_by_definition(held: &[&Rule], requested: &[&Rule]) -> Vec<Rule> {
    let holds = |list: &[String], word: &String| list.contains(word) || list.iter().any(|one| one == "*");
    let mut missing = Vec::new();
    for rule in requested {
        let names: Vec<Vec<String>> = match &rule.names[..] {
            [] => vec![Vec::new()],
            names => names.iter().map(|name| vec![name.clone()]).collect(),
        };
        for (group, resource) in
            rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |it| (group, it)))
        {
            let pattern = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
            for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
            {
                let is_held = held.iter().any(|held| {
                    holds(&held.verbs, verb)
                        && holds(&held.api_groups, group)
                        && (holds(&held.resources, resource)
                            || pattern.as_ref().is_some_and(|it| held.resources.contains(it)))
                        && (held.names.is_empty()
                            || name.first().is_some_and(|name| held.names.contains(name)))
                });
                if !is_held {
                    let one = |text: &String| vec![text.clone()];
                    missing.push(Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        names: name.clone(),
                        paths: Vec::new(),
                    });
                }
            }
        }
        for (path, verb) in rule.paths.iter().flat_map(|path| rule.verbs.iter().map(move |verb| (path, verb)))
        {
            let covers = |pattern: &String| rule::path_covers(pattern, path);
            let is_held = |held: &&Rule| {
                held.names.is_empty() && holds(&held.verbs, verb) && held.paths.iter().any(covers)
            };
            if !held.iter().any(is_held) {
                missing.push(Rule {
                    verbs: vec![verb.clone()],
                    paths: vec![path.clone()],
                    ..Rule::default()
                });
            }
        }
    }
    missing
}

#[test]
fn missing_permissions_are_those_of_the_definition() {
    for seed in 1..=3000_u64 {
        let mut below = numbers(seed);
        let mut some = |words: &[&str], least: u64| -> Vec<String> {
            let count = least + below(3 - least);
            (0..count).map(|_| words[below(words.len() as u64) as usize].to_owned()).collect()
        };
        let mut rules = |count: usize| -> Vec<Rule> {
            let one = |at: usize| match at % 3 {
                0 => Rule {
                    verbs: some(&["get", "list", "*"], 1),
                    paths: some(&["/", "/a", "/a/b", "/a/*", "/a*", "*", "/b/*", "/b/**"], 1),
                    ..Rule::default()
                },
                _ => Rule {
                    verbs: some(&["get", "list", "put", "*"], 1),
                    api_groups: some(&["", "apps", "batch", "*"], 1),
                    resources: some(&["pods", "pods/log", "jobs", "jobs/log", "*/log", "*"], 1),
                    names: some(&["x", "y", "*"], 0),
                    paths: Vec::new(),
                },
            };
            (0..count).map(one).collect()
        };
        let (held, requested) = (rules(6), rules(3));
        let (held, requested): (Vec<_>, Vec<_>) = (held.iter().collect(), requested.iter().collect());
        let expected = missing_by_definition(&held, &requested);
        assert_eq!(missing(&held, &requested), Ok(expected.clone()), "seed {seed}: {held:?} {requested:?}");
        // what one rule covers whole is covered in parts as well
        if held_permissions::is_covered_whole(&held, &requested).unwrap() {
            assert!(expected.is_empty(), "seed {seed}: {held:?} {requested:?}");
        }
        let each = |one: &&Rule| held.iter().any(|held| missing_by_definition(&[held], &[one]).is_empty());
        let is_covered = requested.iter().all(each);
        assert_eq!(held_permissions::is_covered_whole(&held, &requested), Ok(is_covered), "seed {seed}");
    }
}

/// Random numbers below a bound.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |most| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    }
}

/// Incremental changes equal a full compilation.
#[test]
fn an_incremental_policy_equals_a_rebuilt_one() {
    (1..=6).for_each(follow_at_random);
}

fn follow_at_random(seed: u64) {
    let mut below = numbers(seed);
    let mut roles: BTreeMap<(&str, String), Arc<Role>> = BTreeMap::new();
    let mut bindings: BTreeMap<(&str, String), Arc<Binding>> = BTreeMap::new();
    let mut followed = Policy::default();
    let places = ["", "a", "b"];
    let subjects = [user("u"), user("v"), group("g"), group("h")];
    let who: Vec<User> = [("u", "g"), ("v", "h"), ("w", "g"), ("x", "")]
        .map(|(name, group)| User { groups: vec![group.to_owned()], ..User::named(name) })
        .into();
    for step in 0..150 {
        let place = places[below(3) as usize];
        let name = format!("n{}", below(4));
        let key = (place, name.clone());
        match below(4) {
            0 => {
                let made = role(place, &name, vec![rule(&format!("v{step} - pods"))]);
                roles.insert(key, made.clone());
                followed.put_role(made);
            }
            1 => {
                roles.remove(&key);
                followed.remove_role(place, &name);
            }
            what => {
                if let Some(before) = bindings.remove(&key) {
                    followed.unbind(&before);
                }
                if what == 2 {
                    let given = (0..below(4)).map(|_| subjects[below(4) as usize].clone()).collect();
                    let to = format!("n{}", below(4));
                    let made = binding(place, &name, (place.is_empty() || below(2) == 0, &to), given);
                    bindings.insert(key, made.clone());
                    followed.bind(made);
                }
            }
        }
        let compiled = Policy::compile(roles.values().cloned(), bindings.values().cloned());
        for user in &who {
            for place in places {
                let message = |policy: &Policy| {
                    let reasons: Vec<_> = policy.grants(user, place).map(|grant| grant.reason()).collect();
                    format!("{:?} {reasons:?}", policy.held(user, place))
                };
                assert_eq!(message(&followed), message(&compiled), "seed {seed}, step {step}");
            }
        }
    }
    for binding in bindings.values() {
        followed.unbind(binding);
    }
    for (place, name) in roles.keys() {
        followed.remove_role(place, name);
    }
    assert_eq!(format!("{followed:?}"), format!("{:?}", Policy::default()), "seed {seed}: something is left");
}
