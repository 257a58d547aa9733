//! "Authentication": front proxies, bootstrap tokens, anonymous requests, and invalid certificates.

use super::*;
use apiserver::authentication::{self, FrontProxy};
use http::HeaderName;
use std::time::Duration;
use tests::{Authority, Cluster, NOW, Options, Protocol, TestUser, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SELF: &str = "/apis/authentication.k8s.io/v1alpha1/selfsubjectreviews";
const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A server with self subject reviews, and these options.
async fn telling(authentication: authentication::Options, proxy_authorities: Option<String>) -> Cluster {
    let serving =
        kinds::Serving::parse(["authentication.k8s.io/v1alpha1"], &names::Names::default()).unwrap();
    let serving = serving.with_gates(["APISelfSubjectReview".to_owned()]);
    Cluster::with(Options { authentication, proxy_authorities, serving, ..Options::default() }).await
}

/// The user that the server sees, or the status code of its rejection.
async fn taken_for(
    cluster: &Cluster,
    who: &TestUser,
    headers: &[(&'static str, &str)],
) -> Result<Value, u16> {
    let mut ask = cluster.post(SELF, json!({})).user(who);
    for (name, value) in headers {
        ask = ask.and_header(name, value);
    }
    let answer = ask.await;
    if answer.status == 201 { Ok(answer.json()["status"]["userInfo"].clone()) } else { Err(answer.status) }
}

fn fronted() -> authentication::Options {
    let header = |name| vec![HeaderName::from_static(name)];
    authentication::Options {
        front_proxy: Some(FrontProxy {
            allowed_names: vec!["proxy".to_owned()],
            username_headers: header("x-remote-user"),
            group_headers: header("x-remote-group"),
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }),
        tokens: auth::Tokens::parse("t,tom,1").unwrap(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_front_proxy_names_the_user() {
    let proxies = Authority::new("proxies");
    let cluster = telling(fronted(), Some(proxies.pem())).await;
    let proxy = TestUser::Certificate(proxies.client("proxy", ""));
    let bob = [
        ("x-remote-user", "bob"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-acme.com%2fscope", "s"),
    ];
    let expected = json!({"username": "bob", "groups": ["a", "b", "system:authenticated"], "extra": {"acme.com/scope": ["s"]}});
    assert_eq!(taken_for(&cluster, &proxy, &bob).await, Ok(expected));
    // the word of a proxy comes before a token; without it the token counts
    let token = ("authorization", "Bearer t");
    assert_eq!(taken_for(&cluster, &proxy, &[bob[0], token]).await.unwrap()["username"], "bob");
    assert_eq!(taken_for(&cluster, &proxy, &[token]).await.unwrap()["username"], "tom");
    assert_eq!(taken_for(&cluster, &proxy, &[bob[1]]).await, Err(401));
    let masters =
        [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("impersonate-user", "eve")];
    assert_eq!(taken_for(&cluster, &proxy, &masters).await.unwrap()["username"], "eve");
    // the authentication config map has the front proxy settings
    let map =
        cluster.read("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await;
    assert_eq!(map["data"]["requestheader-allowed-names"], r#"["proxy"]"#);
    assert_eq!(map["data"]["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_eq!(map["data"]["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    for (key, pem) in [("client-ca-file", authority().pem()), ("requestheader-client-ca-file", proxies.pem())]
    {
        assert_eq!(map["data"][key], pem.replace("\r\n", "\n"), "{key}");
    }
}

#[tokio::test]
async fn front_proxy_headers_of_other_clients_are_ignored() {
    let proxies = Authority::new("proxies");
    let cluster = telling(fronted(), Some(proxies.pem())).await;
    let smuggled =
        [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")];
    let with = |more: &[(&'static str, &'static str)]| [&smuggled[..], more].concat();
    let jane = TestUser::Certificate(authority().client("jane", "dev"));
    let expected = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(taken_for(&cluster, &jane, &smuggled).await, Ok(expected));
    assert_eq!(
        taken_for(&cluster, &TestUser::Anonymous, &with(&[("authorization", "Bearer t")])).await.unwrap()["username"],
        "tom"
    );
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &smuggled).await, Err(403));
    // a proxy that may not speak, one out of its time, and one of the authority for clients
    let other = TestUser::Certificate(proxies.client("other", ""));
    assert_eq!(taken_for(&cluster, &other, &smuggled).await, Err(401));
    let late = TestUser::Certificate(proxies.client_from("proxy", "", NOW - 60, Duration::from_secs(30)));
    assert_eq!(taken_for(&cluster, &late, &smuggled).await, Err(401));
    let pretender = TestUser::Certificate(authority().client("proxy", ""));
    assert_eq!(taken_for(&cluster, &pretender, &smuggled).await.unwrap()["username"], "proxy");
    let stranger = TestUser::Certificate(Authority::new("proxies").client("proxy", ""));
    assert_eq!(taken_for(&cluster, &stranger, &smuggled).await, Err(401));
    // where no proxy is believed, none is
    let without = telling(authentication::Options::default(), None).await;
    let proxy = TestUser::Certificate(proxies.client("proxy", ""));
    assert_eq!(taken_for(&without, &proxy, &smuggled).await, Err(401));
}

#[tokio::test]
async fn impersonation_headers_cannot_be_smuggled() {
    let cluster = telling(authentication::Options::default(), None).await;
    let jane = TestUser::Certificate(authority().client("jane", "dev"));
    for headers in [
        &[("impersonate-user", "root")][..],
        &[("impersonate-user", ""), ("impersonate-user", "root"), ("impersonate-group", "system:masters")],
        &[("impersonate-user", "jane"), ("impersonate-group", "system:masters")],
        &[("impersonate-user", "jane"), ("impersonate-extra-a", "b")],
        &[("impersonate-user", "jane"), ("impersonate-uid", "1")],
        &[("impersonate-user", "system:serviceaccount:kube-system:x")],
        &[("impersonate-user", "system:anonymous")],
    ] {
        let refused = taken_for(&cluster, &jane, headers).await;
        assert!(matches!(refused, Err(403 | 500)), "{headers:?}: {refused:?}");
    }
    // anonymous and rejected requests cannot impersonate
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &[("impersonate-user", "root")]).await, Err(403));
    let bad = [("authorization", "Bearer x"), ("impersonate-user", "root")];
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &bad).await, Err(401));
    // an impersonated user cannot impersonate
    let twice = [("impersonate-user", "a"), ("impersonate-user", "system:masters")];
    assert_eq!(taken_for(&cluster, &TestUser::Admin, &twice).await.unwrap()["username"], "a");
}

#[tokio::test]
async fn a_bootstrap_token_authenticates_a_node() {
    let bootstrap = authentication::Options { bootstrap_tokens: true, ..Default::default() };
    let cluster = telling(bootstrap, None).await;
    let secret = |id: &str| {
        json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
                "expiration": "2023-11-14T22:14:20Z", "auth-extra-groups": "system:bootstrappers:x"}})
    };
    cluster.create(SYSTEM_SECRETS, secret("abcdef")).await;
    let with = |token: &str| format!("Bearer {token}");
    let good = with("abcdef.0123456789abcdef");
    let user = taken_for(&cluster, &TestUser::Anonymous, &[("authorization", &good)]).await;
    let groups = json!(["system:bootstrappers", "system:bootstrappers:x", "system:authenticated"]);
    assert_eq!(user, Ok(json!({"username": "system:bootstrap:abcdef", "groups": groups})));
    for bad in ["abcdef.0123456789abcdeg", "abcdeg.0123456789abcdef", "abcdef.", "abcdef"] {
        assert_eq!(
            taken_for(&cluster, &TestUser::Anonymous, &[("authorization", &with(bad))]).await,
            Err(401),
            "{bad}"
        );
    }
    // elsewhere such a secret is a secret like any other
    cluster.create(SECRETS, secret("ghijkl")).await;
    let elsewhere = with("ghijkl.0123456789abcdef");
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &[("authorization", &elsewhere)]).await, Err(401));
    cluster.advance(Duration::from_secs(60));
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &[("authorization", &good)]).await, Err(401));
    // they must be switched on
    let off = telling(authentication::Options::default(), None).await;
    off.create(SYSTEM_SECRETS, secret("abcdef")).await;
    assert_eq!(taken_for(&off, &TestUser::Anonymous, &[("authorization", &good)]).await, Err(401));
}

#[tokio::test]
async fn anonymous_requests_can_be_rejected() {
    let cluster = telling(authentication::Options { anonymous: false, ..Default::default() }, None).await;
    for path in ["/healthz", "/version", "/api", CONFIGMAPS] {
        let answer = cluster.get(path).user(&TestUser::Anonymous).await;
        answer.refused(401, "Unauthorized");
    }
    assert_eq!(taken_for(&cluster, &TestUser::Admin, &[]).await.unwrap()["username"], "admin");
    // an empty header is ignored, and an invalid one is rejected
    let ask = cluster.get("/version").user(&TestUser::Anonymous).header("authorization", "Bearer  x");
    ask.await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn an_invalid_certificate_does_not_block_a_valid_token() {
    let cluster = telling(fronted(), None).await;
    let stranger = Authority::new("cluster");
    for bad in [
        TestUser::Certificate(stranger.client("root", "system:masters")),
        TestUser::Certificate(tests::self_signed("root", "system:masters")),
        TestUser::Certificate(authority().client_from(
            "root",
            "system:masters",
            NOW - 60,
            Duration::from_secs(30),
        )),
        TestUser::Certificate(authority().client_from(
            "root",
            "system:masters",
            NOW + 60,
            Duration::from_secs(30),
        )),
        TestUser::Certificate(authority().server_named("root", "system:masters")),
    ] {
        assert_eq!(taken_for(&cluster, &bad, &[]).await, Err(401));
        let answer = cluster.get("/version").user(&bad).await;
        assert_eq!(answer.header("www-authenticate"), "");
        answer.refused(401, "Unauthorized");
        let token = [("authorization", "Bearer t")];
        assert_eq!(taken_for(&cluster, &bad, &token).await.unwrap()["username"], "tom");
    }
}

#[tokio::test]
async fn an_expired_certificate_is_rejected_on_an_open_connection() {
    let cluster = Cluster::start().await;
    let brief = TestUser::Certificate(authority().client_from(
        "brief",
        "system:masters",
        NOW - 60,
        Duration::from_secs(120),
    ));
    let mut stream = cluster.connect(&brief, Protocol::Http1).await;
    for (expected, later) in [("200", 61), ("401", 0)] {
        stream.write_all(b"HEAD /apis HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(tests::soon("the answer", stream.read_u8()).await.unwrap()));
        }
        assert_eq!(head.split(' ').nth(1), Some(expected), "{head}");
        cluster.advance(Duration::from_secs(later));
    }
}

#[tokio::test]
async fn authenticated_users_may_review_themselves() {
    let cluster = telling(authentication::Options::default(), None).await;
    let given = json!({"metadata": {"name": "x"}, "status": {"userInfo": {"username": "root"}}});
    let jane = TestUser::Certificate(authority().client("jane", "dev"));
    let reviewed = cluster.post(SELF, given).user(&jane).await.code(201).json();
    let expected = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1alpha1",
        "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
        "status": {"userInfo": {"username": "jane", "groups": ["dev", "system:authenticated"]}}});
    assert_eq!(reviewed, expected);
    assert_eq!(taken_for(&cluster, &TestUser::Anonymous, &[]).await, Err(403));
    // without its gate there is no such thing
    let shut = Cluster::start().await;
    assert_eq!(taken_for(&shut, &TestUser::Admin, &[]).await, Err(404));
}
