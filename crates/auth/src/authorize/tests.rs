use std::path::Path;

use serde_json::Value;

use super::*;
use crate::rbac::tests::bootstrap_rbac;

fn authorize(attributes: &Attributes<'_>) -> Decision {
    default_chain().authorize(attributes).now().unwrap()
}

/// The authorizer chain with the bootstrap roles only.
fn default_chain() -> Chain {
    Chain { authorizers: vec![Arc::new(bootstrap_rbac())] }
}

fn path_request<'a>(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
    Attributes {
        user,
        verb,
        api_group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path,
        resource_request: false,
    }
}

fn may(user: &User, verb: &str, path: &str) -> bool {
    authorize(&path_request(user, verb, path)).is_allowed()
}

#[test]
fn masters_may_do_everything() {
    let master = User { groups: vec![MASTERS.to_owned()], ..User::named("root") };
    assert!(may(&master, "post", "/anything"));
    let attributes =
        Attributes { resource: "secrets", resource_request: true, ..path_request(&master, "list", "") };
    assert_eq!(authorize(&attributes), Decision::Allow("".into()));
}

#[test]
fn others_may_read_health_version_and_discovery() {
    let (bob, anonymous) = (User::named("bob").authenticated(), User::anonymous());
    for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
        assert!(may(&bob, "get", path) && may(&anonymous, "get", path), "{path}");
        assert!(!may(&bob, "post", path), "{path}");
        assert!(!may(&User::named("in no group"), "get", path), "{path}");
    }
    for path in ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/openapi/v2", "/openapi/v3/apis/apps/v1"] {
        assert!(may(&bob, "get", path) && !may(&anonymous, "get", path), "{path}");
        assert!(!may(&bob, "delete", path), "{path}");
    }
    for path in ["/", "/metrics", "/readyz/etcd", "/apisx", "/versions", "/.well-known/openid-configuration"]
    {
        assert!(!may(&bob, "get", path), "{path}");
    }
}

#[test]
fn a_resource_needs_a_role() {
    let bob = User::named("bob").authenticated();
    let attributes =
        Attributes { resource: "pods", resource_request: true, ..path_request(&bob, "get", "/api/v1/pods") };
    assert_eq!(authorize(&attributes), Decision::NoOpinion("".into()));
}

#[test]
fn authenticated_users_may_review_their_own_access() {
    let rules = default_chain();
    let (bob, anonymous) = (User::named("bob").authenticated(), User::anonymous());
    let ask = |user, resource| {
        let plain = path_request(user, "create", "");
        let attributes =
            Attributes { api_group: "authorization.k8s.io", resource, resource_request: true, ..plain };
        rules.authorize(&attributes).now().unwrap().is_allowed()
    };
    assert!(ask(&bob, "selfsubjectaccessreviews") && ask(&bob, "selfsubjectrulesreviews"));
    assert!(!ask(&bob, "subjectaccessreviews") && !ask(&anonymous, "selfsubjectaccessreviews"));
    assert_eq!(rules.rules(&bob, "").resources[0].resources.len(), 2);
    assert!(rules.rules(&anonymous, "").resources.is_empty() && rules.rules(&anonymous, "").paths.len() == 1);
}

#[test]
fn a_chain_ends_at_the_first_decision() {
    let bob = User::named("bob");
    let attributes = path_request(&bob, "get", "/metrics");
    let of = |authorizers: Vec<Arc<dyn Authorizer>>| Chain { authorizers };
    let refused =
        of(vec![Arc::new(AlwaysDeny), Arc::new(bootstrap_rbac())]).authorize(&attributes).now().unwrap();
    assert_eq!(refused, Decision::NoOpinion("Everything is forbidden.".into()));
    let open = of(vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)]);
    assert!(
        open.authorize(&attributes).now().unwrap().is_allowed()
            && open.rules(&bob, "").resources[0].verbs == ["*"]
    );
}

#[test]
fn a_reason_is_reported() {
    let bob = User::named("bob");
    let attributes = path_request(&bob, "get", "/metrics");
    assert_eq!(
        forbidden_message(&attributes, "no relationship found"),
        "forbidden: User \"bob\" cannot get path \"/metrics\": no relationship found"
    );
}

/// The attributes of a recorded request, just enough of path parsing for the recordings.
struct Parsed {
    verb: &'static str,
    parts: Vec<String>,
    group: String,
    namespace: String,
    path: String,
}

impl Parsed {
    fn read(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts: Vec<String> = path.trim_matches('/').split('/').map(str::to_owned).collect();
        let group = match parts.first().map(String::as_str) {
            Some("api") if parts.len() > 2 => parts.drain(..2).next().map(|_| String::new()),
            Some("apis") if parts.len() > 3 => parts.drain(..3).nth(1),
            _ => None,
        };
        let is_resource = group.is_some();
        let mut namespace = String::new();
        if is_resource && parts[0] == "namespaces" && parts.len() > 1 {
            namespace = parts[1].clone();
            if parts.len() > 2 && !["status", "finalize"].contains(&parts[2].as_str()) {
                parts.drain(..2);
            }
        }
        if !is_resource {
            parts.clear();
        }
        let named = parts.len() > 1;
        let verb = match method {
            "GET" if query.contains("watch=") => "watch",
            "GET" if is_resource && !named => "list",
            "GET" => "get",
            "POST" if is_resource => "create",
            "POST" => "post",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if named => "delete",
            "DELETE" => "deletecollection",
            other => panic!("no recording uses {other}"),
        };
        Self { verb, parts, group: group.unwrap_or_default(), namespace, path: path.to_owned() }
    }

    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let part = |at: usize| self.parts.get(at).map_or("", String::as_str);
        Attributes {
            user,
            verb: self.verb,
            api_group: &self.group,
            version: "",
            resource: part(0),
            subresource: part(2),
            namespace: &self.namespace,
            name: part(1),
            path: &self.path,
            resource_request: !self.parts.is_empty(),
        }
    }
}

#[test]
fn refusals_read_as_recorded() {
    let Some(folder) = testdata::find("recorded/auth") else { return };
    let mut compared = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("forbidden-") {
            continue;
        }
        let scenario: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for step in scenario["steps"].as_array().unwrap() {
            compared += usize::from(check_step(step, &path));
        }
    }
    assert!(compared > 100, "only {compared} recorded refusals were found");
}

/// Whether the step was a recorded answer of the authorizer, after comparing it with ours.
fn check_step(step: &Value, file: &Path) -> bool {
    let (done, answer) = (&step["do"], &step["answer"]);
    let anonymous = done["headers"].get("Authorization").is_some_and(Value::is_null);
    let user = match (done["as"].as_str(), anonymous) {
        (Some(name), _) => User::named(name).authenticated(),
        (None, true) => User::anonymous(),
        (None, false) => return false,
    };
    let request = Parsed::read(done["method"].as_str().unwrap(), done["path"].as_str().unwrap());
    let attributes = request.attributes(&user);
    let message = answer["body"]["message"].as_str().or(answer["parts"]["/message"].as_str());
    let context = format!("{}: {done}", file.display());
    if answer["status"] == 403 {
        assert!(!authorize(&attributes).is_allowed(), "{context}");
        assert_eq!(Some(forbidden_message(&attributes, "").as_str()), message, "{context}");
        return true;
    }
    // roles were granted in some scenarios on resources; paths were open to the user as such
    if !attributes.resource_request && answer["status"] == 200 {
        assert!(authorize(&attributes).is_allowed(), "{context}");
    }
    false
}

/// Always decides the same.
struct Fixed(Decision);

impl Authorizer for Fixed {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let decision = self.0.clone();
        MaybeReady::later(async move { decision })
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

#[test]
fn errors_are_reported_unless_another_authorizer_decides() {
    let bob = User::named("bob");
    let attributes = path_request(&bob, "get", "/metrics");
    let decide = |decisions: Vec<Decision>| {
        let authorizers =
            decisions.into_iter().map(|it| Arc::new(Fixed(it)) as Arc<dyn Authorizer>).collect();
        let chain = Chain { authorizers };
        let mut deciding = std::pin::pin!(chain.authorize(&attributes).get());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match deciding.as_mut().poll(&mut context) {
            std::task::Poll::Ready(decision) => decision,
            std::task::Poll::Pending => panic!("nothing here waits"),
        }
    };
    let no = || Decision::NoOpinion("no".into());
    let failed = |error: &str| Decision::failed(error);
    let failure = |reason: &str, error: &str, denied| {
        Decision::Failed(Box::new(Failure { denied, reason: reason.to_owned(), error: error.to_owned() }))
    };
    assert_eq!(decide(vec![no(), failed("down"), no()]), failure("no\nno", "down", false));
    assert_eq!(decide(vec![failed("a"), failed("b"), failed("a")]), failure("", "[a, b]", false));
    assert!(decide(vec![failed("down"), Decision::Allow("".into())]).is_allowed());
    assert_eq!(decide(vec![failed("down"), Decision::Deny("never".into())]), Decision::Deny("never".into()));
    let both = failure("", "both", true);
    assert_eq!(decide(vec![both.clone(), Decision::Allow("".into())]), both);
    assert!(both.is_denied() && !both.is_allowed() && both.error() == Some("both"));
}
