//! "Authentication": proxies, bootstrap tokens, nobody in particular, and certificates that are worth nothing.

use super::*;
use apiserver::authentication::{self, FrontProxy};
use http::HeaderName;
use std::time::Duration;
use tests::{Authority, Cluster, NOW, Options, Protocol, Who, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SELF: &str = "/apis/authentication.k8s.io/v1alpha1/selfsubjectreviews";
const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A server that says who asks, with what a test wants otherwise.
async fn telling(identity: authentication::Options, proxy_authorities: Option<String>) -> Cluster {
    let serving =
        kinds::Serving::parse(["authentication.k8s.io/v1alpha1"], &names::Names::default()).unwrap();
    let serving = serving.with_gates(["APISelfSubjectReview".to_owned()]);
    Cluster::with(Options { identity, proxy_authorities, serving, ..Options::default() }).await
}

/// Whom the server takes somebody for, or the code with which it refuses them.
async fn taken_for(cluster: &Cluster, who: &Who, headers: &[(&'static str, &str)]) -> Result<Value, u16> {
    let mut ask = cluster.post(SELF, json!({})).who(who);
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
async fn a_proxy_says_who_is_calling() {
    let proxies = Authority::new("proxies");
    let cluster = telling(fronted(), Some(proxies.pem())).await;
    let proxy = Who::Holder(proxies.client("proxy", ""));
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
    // other servers learn whom to believe
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
async fn headers_of_a_proxy_mean_nothing_from_others() {
    let proxies = Authority::new("proxies");
    let cluster = telling(fronted(), Some(proxies.pem())).await;
    let smuggled =
        [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")];
    let with = |more: &[(&'static str, &'static str)]| [&smuggled[..], more].concat();
    let jane = Who::Holder(authority().client("jane", "dev"));
    let expected = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(taken_for(&cluster, &jane, &smuggled).await, Ok(expected));
    assert_eq!(
        taken_for(&cluster, &Who::Nobody, &with(&[("authorization", "Bearer t")])).await.unwrap()["username"],
        "tom"
    );
    assert_eq!(taken_for(&cluster, &Who::Nobody, &smuggled).await, Err(403));
    // a proxy that may not speak, one out of its time, and one of the authority for clients
    let other = Who::Holder(proxies.client("other", ""));
    assert_eq!(taken_for(&cluster, &other, &smuggled).await, Err(401));
    let late = Who::Holder(proxies.client_from("proxy", "", NOW - 60, Duration::from_secs(30)));
    assert_eq!(taken_for(&cluster, &late, &smuggled).await, Err(401));
    let pretender = Who::Holder(authority().client("proxy", ""));
    assert_eq!(taken_for(&cluster, &pretender, &smuggled).await.unwrap()["username"], "proxy");
    let stranger = Who::Holder(Authority::new("proxies").client("proxy", ""));
    assert_eq!(taken_for(&cluster, &stranger, &smuggled).await, Err(401));
    // where no proxy is believed, none is
    let without = telling(authentication::Options::default(), None).await;
    let proxy = Who::Holder(proxies.client("proxy", ""));
    assert_eq!(taken_for(&without, &proxy, &smuggled).await, Err(401));
}

#[tokio::test]
async fn headers_of_impersonation_cannot_be_smuggled() {
    let cluster = telling(authentication::Options::default(), None).await;
    let jane = Who::Holder(authority().client("jane", "dev"));
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
    // who shows nothing cannot act as anybody either, nor can somebody who is not believed
    assert_eq!(taken_for(&cluster, &Who::Nobody, &[("impersonate-user", "root")]).await, Err(403));
    let bad = [("authorization", "Bearer x"), ("impersonate-user", "root")];
    assert_eq!(taken_for(&cluster, &Who::Nobody, &bad).await, Err(401));
    // whom one acts as, one does not act further from
    let twice = [("impersonate-user", "a"), ("impersonate-user", "system:masters")];
    assert_eq!(taken_for(&cluster, &Who::Admin, &twice).await.unwrap()["username"], "a");
}

#[tokio::test]
async fn a_bootstrap_token_introduces_a_node() {
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
    let told = taken_for(&cluster, &Who::Nobody, &[("authorization", &good)]).await;
    let groups = json!(["system:bootstrappers", "system:bootstrappers:x", "system:authenticated"]);
    assert_eq!(told, Ok(json!({"username": "system:bootstrap:abcdef", "groups": groups})));
    for bad in ["abcdef.0123456789abcdeg", "abcdeg.0123456789abcdef", "abcdef.", "abcdef"] {
        assert_eq!(
            taken_for(&cluster, &Who::Nobody, &[("authorization", &with(bad))]).await,
            Err(401),
            "{bad}"
        );
    }
    // elsewhere such a secret is a secret like any other
    cluster.create(SECRETS, secret("ghijkl")).await;
    let elsewhere = with("ghijkl.0123456789abcdef");
    assert_eq!(taken_for(&cluster, &Who::Nobody, &[("authorization", &elsewhere)]).await, Err(401));
    cluster.advance(Duration::from_secs(60));
    assert_eq!(taken_for(&cluster, &Who::Nobody, &[("authorization", &good)]).await, Err(401));
    // they must be switched on
    let off = telling(authentication::Options::default(), None).await;
    off.create(SYSTEM_SECRETS, secret("abcdef")).await;
    assert_eq!(taken_for(&off, &Who::Nobody, &[("authorization", &good)]).await, Err(401));
}

#[tokio::test]
async fn those_who_show_nothing_may_be_refused() {
    let cluster = telling(authentication::Options { anonymous: false, ..Default::default() }, None).await;
    for path in ["/healthz", "/version", "/api", CONFIGMAPS] {
        let answer = cluster.get(path).who(&Who::Nobody).await;
        answer.refused(401, "Unauthorized");
    }
    assert_eq!(taken_for(&cluster, &Who::Admin, &[]).await.unwrap()["username"], "admin");
    // a header that says nothing is nothing, and one that is not understood is told of
    let ask = cluster.get("/version").who(&Who::Nobody).header("authorization", "Bearer  x");
    ask.await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn a_bad_certificate_does_not_stand_in_the_way_of_a_good_token() {
    let cluster = telling(fronted(), None).await;
    let stranger = Authority::new("cluster");
    for bad in [
        Who::Holder(stranger.client("root", "system:masters")),
        Who::Holder(tests::self_signed("root", "system:masters")),
        Who::Holder(authority().client_from("root", "system:masters", NOW - 60, Duration::from_secs(30))),
        Who::Holder(authority().client_from("root", "system:masters", NOW + 60, Duration::from_secs(30))),
        Who::Holder(authority().server_named("root", "system:masters")),
    ] {
        assert_eq!(taken_for(&cluster, &bad, &[]).await, Err(401));
        let answer = cluster.get("/version").who(&bad).await;
        assert_eq!(answer.header("www-authenticate"), "");
        answer.refused(401, "Unauthorized");
        let token = [("authorization", "Bearer t")];
        assert_eq!(taken_for(&cluster, &bad, &token).await.unwrap()["username"], "tom");
    }
}

#[tokio::test]
async fn a_connection_does_not_outlast_its_certificate() {
    let cluster = Cluster::start().await;
    let brief =
        Who::Holder(authority().client_from("brief", "system:masters", NOW - 60, Duration::from_secs(120)));
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
async fn everybody_who_is_identified_may_ask_who_they_are() {
    let cluster = telling(authentication::Options::default(), None).await;
    let given = json!({"metadata": {"name": "x"}, "status": {"userInfo": {"username": "root"}}});
    let jane = Who::Holder(authority().client("jane", "dev"));
    let told = cluster.post(SELF, given).who(&jane).await.code(201).json();
    let expected = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1alpha1",
        "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
        "status": {"userInfo": {"username": "jane", "groups": ["dev", "system:authenticated"]}}});
    assert_eq!(told, expected);
    assert_eq!(taken_for(&cluster, &Who::Nobody, &[]).await, Err(403));
    // without its gate there is no such thing
    let shut = Cluster::start().await;
    assert_eq!(taken_for(&shut, &Who::Admin, &[]).await, Err(404));
}
