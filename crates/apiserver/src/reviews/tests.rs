use super::*;
use crate::options::deployment::ComponentHealth;
use auth::authorize::Rules;
use auth::{Attributes, Authorizer, Chain, Decision, Tokens, User};
use env::MaybeReady;
use names::Names;
use rest::hooks::Hooks;
use rest::{Api, ApiError, Requester, Resource, Storage, VirtualRequest};
use schema::Value;
use schema::table::Ref;
use store::Store;

fn sources(authorizer: Arc<dyn Authorizer>) -> (Api, Sources) {
    let world: env::World = env::Simulated::new(0, 1);
    let store: Arc<dyn Store> = Arc::new(store::memory::open(&store::Options::default(), world.clone()));
    let storage = Storage::new(store.clone(), Vec::new(), Default::default(), world.clone()).unwrap();
    let callers = Arc::new(crate::authentication::Chain {
        tokens: vec![Arc::new(Tokens::parse("t,bob,7,\"g\"").unwrap())],
        audiences: Arc::new(["here".to_owned()]),
        anonymous: true,
        front_proxy: None,
        websocket_prefix: String::new(),
        world: world.clone(),
        remaining: Default::default(),
    });
    let works: ComponentHealth = Arc::new(|| Ok(()));
    let components = Arc::new([("controller-manager", works)]);
    let usage = Arc::new(crate::resource_metrics::Collector::new(&world));
    (
        Api::new(Names::kubernetes(), storage, world, Vec::new()),
        Sources { authorizer, callers, store, components, objects: Default::default(), usage },
    )
}

/// The response to a create by bob in the namespace `ns`.
fn review_with(authorizer: Arc<dyn Authorizer>, kind: &str, spec: &str) -> Result<Value, ApiError> {
    let (api, sources) = sources(authorizer);
    let kind = kinds::tables::KINDS.iter().find(|one| one.name == kind).unwrap();
    let resource: Arc<Resource> = api.register(Ref::Static(*kind), Hooks::default()).unwrap();
    let json = format!("{{\"spec\":{spec}}}");
    let object = schema::decode::json(json.as_bytes(), &kind.root).unwrap().value;
    let bob = User::named("bob").authenticated();
    let user = Requester { name: bob.name, groups: bob.groups, ..Requester::default() };
    let find = |plural: &str, namespace: &str, name: &str| api.find(plural, namespace, name);
    let lookup = |plural: &str, namespace: &str, name: &str| api.lookup(plural, namespace, name);
    let request = VirtualRequest {
        subject: resource.subject(""),
        namespace: "ns",
        user: &user,
        names: &api.names,
        world: &api.world,
        find: &find,
        lookup: &lookup,
    };
    futures_util::FutureExt::now_or_never(of(kind, &sources).unwrap().create(object, &request).get()).unwrap()
}

fn review(kind: &str, spec: &str) -> Result<Value, String> {
    let roles = Arc::new(auth::Rbac::new(&Names::kubernetes()));
    let (cluster_roles, bindings) = crate::authorization::roles::tests::bootstrap_policy();
    roles.replace(auth::rbac::Policy::compile(cluster_roles, bindings));
    review_with(Arc::new(Chain { authorizers: vec![roles] }), kind, spec).map_err(|why| why.message)
}

#[test]
fn access_reviews_follow_the_authorizer() {
    let pods = r#""resourceAttributes":{"verb":"get","resource":"pods","namespace":"ns"}"#;
    let allowed = |kind, spec: String| review(kind, &spec).unwrap().at(&["status", "allowed"]).cloned();
    assert_eq!(allowed("SelfSubjectAccessReview", format!("{{{pods}}}")), Some(false.into()));
    let path = r#"{"nonResourceAttributes":{"verb":"get","path":"/api"}}"#;
    assert_eq!(allowed("SelfSubjectAccessReview", path.to_owned()), Some(true.into()));
    for kind in ["SubjectAccessReview", "LocalSubjectAccessReview"] {
        assert_eq!(allowed(kind, format!("{{\"user\":\"x\",{pods}}}")), Some(false.into()));
        let master = format!("{{\"groups\":[\"system:masters\"],{pods}}}");
        assert_eq!(allowed(kind, master), Some(true.into()));
    }
}

struct DenyAll;

impl Authorizer for DenyAll {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        Decision::Deny(format!("not {} with {:?}", attributes.user.name, attributes.user.extra).into()).into()
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules { incomplete: true, problem: "cannot tell".to_owned(), ..Rules::default() }
    }
}

#[test]
fn denials_and_incomplete_rules_are_reported() {
    let spec = r#"{"user":"x","extra":{"K":["v"]},"resourceAttributes":{}}"#;
    let response = review_with(Arc::new(DenyAll), "SubjectAccessReview", spec).unwrap();
    assert_eq!(response.at(&["status", "denied"]), Some(&true.into()));
    assert_eq!(response.text(&["status", "reason"]), r#"not x with {"k": ["v"]}"#);
    let response = review_with(Arc::new(DenyAll), "SelfSubjectRulesReview", r#"{"namespace":"ns"}"#).unwrap();
    assert_eq!(response.text(&["status", "evaluationError"]), "cannot tell");
    assert_eq!(response.at(&["status", "incomplete"]), Some(&true.into()));
}

#[test]
fn reviews_are_checked_first() {
    let both = r#"{"resourceAttributes":{"namespace":"other"},"nonResourceAttributes":{"path":"/"}}"#;
    let error = review_with(Arc::new(DenyAll), "LocalSubjectAccessReview", both).unwrap_err();
    let causes: Vec<_> = error.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    let expected = [
        "spec.nonResourceAttributes",
        "spec.user",
        "spec.resourceAttributes.namespace",
        "spec.nonResourceAttributes",
    ];
    assert_eq!(causes, expected);
    assert!(review("SubjectAccessReview", "{\"user\":\"x\"}").unwrap_err().contains("exactly one of"));
    assert_eq!(review("SelfSubjectRulesReview", "{}").unwrap_err(), "no namespace on request");
    assert!(review("TokenReview", "{}").unwrap_err().starts_with("token is required"));
}

#[test]
fn tokens_are_reviewed_by_audience() {
    let user =
        |spec: &str| review("TokenReview", spec).unwrap().text(&["status", "user", "username"]).to_owned();
    assert_eq!(user(r#"{"token":"t"}"#), "bob");
    assert_eq!(user(r#"{"token":"t","audiences":["there","here"]}"#), "bob");
    assert_eq!(user(r#"{"token":"t","audiences":["there"]}"#), "");
    assert_eq!(user(r#"{"token":"other"}"#), "");
}

fn table(name: &str) -> &'static schema::table::Kind {
    kinds::tables::KINDS.iter().find(|one| one.name == name).unwrap()
}

#[tokio::test]
async fn components_are_listed_with_their_health() {
    let (api, sources) = sources(Arc::new(DenyAll));
    let kind = table("ComponentStatus");
    let resource = api.register(Ref::Static(kind), Hooks::default()).unwrap();
    api.register(Ref::Static(table("Lease")), Hooks::default()).unwrap();
    let api = Arc::new(api);
    sources.objects.connect(&api);
    let virtual_resource = of(kind, &sources).unwrap();
    let options =
        rest::options::ListOptions { field_selector: "metadata.name=etcd-0".into(), ..Default::default() };
    let page = api.list_virtual(&resource, &*virtual_resource, "", &options).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert!(String::from_utf8_lossy(page.items[0].json()).contains(r#""status":"True""#));
    assert_eq!(api.get_virtual(&resource, &*virtual_resource, "", "x").await.unwrap_err().code, 500);
    let all = api.list_virtual(&resource, &*virtual_resource, "", &Default::default()).await.unwrap().items;
    let of = |name: &str| {
        let named = format!("\"name\":\"{name}\"");
        let texts = all.iter().map(|it| String::from_utf8_lossy(it.json()).into_owned());
        texts.into_iter().find(|text| text.contains(&named)).unwrap()
    };
    assert!(of("controller-manager").contains(r#""message":"ok""#));
    assert!(of("scheduler").contains("none holds the lease kube-system/kube-scheduler"));
}

#[tokio::test]
async fn a_component_elsewhere_is_as_healthy_as_its_lease() {
    for (renewed, expected) in
        [("1970-01-01T00:00:00.000000Z", "ok: m2"), ("1969-12-31T23:59:40.000000Z", "no process runs it: m2")]
    {
        let (api, sources) = sources(Arc::new(DenyAll));
        let kind = table("ComponentStatus");
        let resource = api.register(Ref::Static(kind), Hooks::default()).unwrap();
        let leases = api.register(Ref::Static(table("Lease")), Hooks::default()).unwrap();
        let api = Arc::new(api);
        sources.objects.connect(&api);
        let json = format!(
            r#"{{"metadata":{{"name":"kube-scheduler","namespace":"kube-system"}},"spec":{{"holderIdentity":"m2",
            "leaseDurationSeconds":15,"renewTime":"{renewed}"}}}}"#
        );
        let lease = schema::decode::json(json.as_bytes(), &table("Lease").root).unwrap().value;
        let target = crate::loopback::WriteTarget {
            resource: &leases,
            namespace: "kube-system",
            name: "",
            subresource: "",
        };
        crate::loopback::write(&api, target, &lease).await.unwrap();
        let virtual_resource = of(kind, &sources).unwrap();
        let read = api.get_virtual(&resource, &*virtual_resource, "", "scheduler").await.unwrap();
        assert!(String::from_utf8_lossy(read.json()).contains(expected), "{renewed}");
    }
}
