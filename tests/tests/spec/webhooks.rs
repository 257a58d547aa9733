//! "Authentication" and "Authorization": token and authorization webhooks.

use super::*;
use apiserver::{authentication, authorization};
use auth::Mode;
use outbound::Version;
use std::time::Duration;
use tests::{Cluster, HttpsServer, Options, Reply, TestUser};

const SAR: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Responds to a review by its user name or token.
fn by_name(seen: &tests::ReceivedRequest) -> Reply {
    let body = &seen.body;
    let name = body["spec"]["token"].as_str().or(body["spec"]["user"].as_str()).unwrap_or("");
    let whose = json!({"authenticated": true, "user": {
        "username": name, "uid": "7", "groups": ["staff"], "extra": {"Key": ["a", "b"]}
    }});
    let mut answer = json!({"apiVersion": body["apiVersion"], "kind": body["kind"]});
    let review = body["kind"] == "TokenReview";
    answer["status"] = match name {
        _ if name.starts_with("allow") && !review => json!({"allowed": true, "reason": "as it said"}),
        _ if name.starts_with("deny") && !review => {
            json!({"allowed": false, "denied": true, "reason": "never"})
        }
        "both" if !review => json!({"allowed": true, "denied": true}),
        "text" if !review => json!({"allowed": "true"}),
        "nobodys" => json!({"authenticated": false}),
        "faulty" => json!({"authenticated": false, "error": "it is stale"}),
        "nameless" => json!({"authenticated": true, "user": {"groups": ["system:masters"]}}),
        "yes" => json!({"authenticated": "true", "user": {"username": "yes"}}),
        "grouped" => {
            json!({"authenticated": true, "user": {"username": "grouped", "groups": "system:masters"}})
        }
        "meant" => {
            let mut status = whose;
            status["audiences"] = json!(["b", "a"]);
            status
        }
        _ if review => whose,
        _ => json!({"allowed": false, "reason": "not that it knew"}),
    };
    match name {
        "kind" => answer["kind"] = json!("Pod"),
        "version" => answer["apiVersion"] = json!("authentication.k8s.io/v9"),
        "html" => return Reply::Text(200, "<html>welcome</html>".to_owned()),
        "empty" => return Reply::Text(200, String::new()),
        "missing" => return Reply::Text(404, answer.to_string()),
        "broken" => return Reply::Text(500, answer.to_string()),
        "hang" => return Reply::Silence,
        "flood" => return Reply::Flood,
        _ => {}
    }
    Reply::Json(answer)
}

/// Names at which the webhook fails, and the number of calls.
const FAILURES: [(&str, usize, &str); 7] = [
    ("kind", 1, "\"Pod\""),
    ("version", 1, "v9"),
    ("html", 1, "not a JSON object"),
    ("empty", 1, "not a JSON object"),
    ("missing", 1, "status 404"),
    ("broken", 5, "status 500"),
    ("flood", 1, "larger than 1048576 bytes"),
];

async fn cluster_with_token_webhook(hook: &HttpsServer, version: Version) -> Cluster {
    let options = authentication::webhook::Options {
        version,
        backoff: HttpsServer::backoff(),
        ..authentication::webhook::Options::new(hook.client())
    };
    Cluster::with(Options {
        authentication: authentication::Options {
            tokens: auth::Tokens::parse("local,alice,1").unwrap(),
            token_webhook: Some(options),
            ..Default::default()
        },
        authorization: authorization::Options { modes: vec![Mode::AlwaysAllow], ..Default::default() },
        simulated_clock: true,
        ..Options::default()
    })
    .await
}

async fn cluster_with_authorization_webhook(
    hook: &HttpsServer,
    version: Version,
    modes: Vec<Mode>,
) -> Cluster {
    let options = authorization::webhook::Options {
        version,
        backoff: HttpsServer::backoff(),
        ..authorization::webhook::Options::new(hook.client())
    };
    let tokens = "allow,allow,1,staff\ndeny,deny,1\nbob,bob,1\nboth,both,1\nhtml,html,1";
    Cluster::with(Options {
        authentication: authentication::Options {
            tokens: auth::Tokens::parse(tokens).unwrap(),
            ..Default::default()
        },
        authorization: authorization::Options { modes, webhook: Some(options), ..Default::default() },
        simulated_clock: true,
        ..Options::default()
    })
    .await
}

fn with<'c>(cluster: &'c Cluster, path: &str, token: &str) -> tests::ApiRequest<'c> {
    cluster.get(path).user(&TestUser::Anonymous).header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn the_token_webhook_authenticates_tokens() {
    for version in [Version::V1, Version::V1beta1] {
        let hook = HttpsServer::start(by_name).await;
        let cluster = cluster_with_token_webhook(&hook, version).await;
        let review = json!({"spec": {"token": "ann"}});
        let status = cluster.create(TOKEN_REVIEWS, review).await["status"].clone();
        assert_eq!(status["user"]["username"], "ann");
        assert_eq!(status["user"]["groups"], json!(["staff", "system:authenticated"]));
        assert_eq!(
            (&status["user"]["uid"], &status["user"]["extra"]),
            (&json!("7"), &json!({"Key": ["a", "b"]}))
        );
        let received = &hook.requests()[0].body;
        assert_eq!(received["apiVersion"], format!("authentication.k8s.io/{}", version.name()));
        assert_eq!(
            received["spec"],
            json!({"token": "ann", "audiences": ["https://kubernetes.default.svc"]})
        );
        // a token from the token file is not sent to the webhook
        with(&cluster, CONFIGMAPS, "local").await.code(200);
        assert_eq!(hook.count(), 1);
    }
}

#[tokio::test]
async fn token_reviews_are_cached() {
    let hook = HttpsServer::start(by_name).await;
    let cluster = cluster_with_token_webhook(&hook, Version::V1).await;
    for (token, code) in [("ann", 200), ("nobodys", 401)] {
        let before = hook.count();
        for _ in 0..3 {
            with(&cluster, CONFIGMAPS, token).await.code(code);
        }
        assert_eq!(hook.count(), before + 1, "{token}");
        cluster.advance(Duration::from_secs(119));
        with(&cluster, CONFIGMAPS, token).await.code(code);
        assert_eq!(hook.count(), before + 1, "{token}");
        cluster.advance(Duration::from_secs(1));
        with(&cluster, CONFIGMAPS, token).await.code(code);
        assert_eq!(hook.count(), before + 2, "{token}");
    }
    // many at the same time ask once
    let before = hook.count();
    let asks = (0..20).map(|_| with(&cluster, CONFIGMAPS, "at-once").into_future());
    for answer in futures_util::future::join_all(asks).await {
        answer.code(200);
    }
    assert_eq!(hook.count(), before + 1);
    // failures are not cached
    let before = hook.count();
    for _ in 0..2 {
        with(&cluster, CONFIGMAPS, "faulty").await.code(401);
    }
    assert_eq!(hook.count(), before + 2);
}

#[tokio::test]
async fn tokens_are_valid_for_their_audiences() {
    let hook = HttpsServer::start(by_name).await;
    let cluster = cluster_with_token_webhook(&hook, Version::V1).await;
    let own = "https://kubernetes.default.svc";
    for (token, wanted, meant) in [
        ("ann", json!(["x", own]), json!([own])),
        ("ann", json!(["x"]), Value::Null),
        ("meant", json!(["a", "c"]), json!(["a"])),
        ("meant", json!([own]), Value::Null),
    ] {
        let review = json!({"spec": {"token": token, "audiences": wanted}});
        let status = cluster.create(TOKEN_REVIEWS, review).await["status"].clone();
        assert_eq!(status["audiences"], meant, "{token} for {wanted}");
        assert_eq!(status["authenticated"].as_bool().unwrap_or(false), !meant.is_null());
    }
    with(&cluster, CONFIGMAPS, "meant").await.code(401);
}

#[tokio::test]
async fn a_failing_token_webhook_authenticates_no_user() {
    let hook = HttpsServer::start(by_name).await;
    let cluster = cluster_with_token_webhook(&hook, Version::V1).await;
    let lies = [
        ("nameless", 1, "status.user.username"),
        ("yes", 1, "status.authenticated"),
        ("grouped", 1, "status.user.groups"),
        ("faulty", 1, "it is stale"),
    ];
    for (token, calls, part) in FAILURES.into_iter().chain(lies) {
        let before = hook.count();
        with(&cluster, CONFIGMAPS, token).await.refused(401, "Unauthorized");
        assert_eq!(hook.count(), before + calls, "{token}");
        let status = cluster.create(TOKEN_REVIEWS, json!({"spec": {"token": token}})).await["status"].clone();
        let text = status["error"].as_str().unwrap();
        assert!(status["authenticated"].is_null() && text.contains(part), "{token}: {status}");
    }
    with(&cluster, CONFIGMAPS, "ann").await.code(200);
    drop(hook);
    with(&cluster, CONFIGMAPS, "ann").await.code(200);
    with(&cluster, CONFIGMAPS, "bob").await.refused(401, "Unauthorized");
    with(&cluster, CONFIGMAPS, "local").await.code(200);
}

#[tokio::test]
async fn the_authorization_webhook_decides() {
    for (version, groups) in [(Version::V1, "groups"), (Version::V1beta1, "group")] {
        let hook = HttpsServer::start(by_name).await;
        let cluster =
            cluster_with_authorization_webhook(&hook, version, vec![Mode::Webhook, Mode::AlwaysDeny]).await;
        with(&cluster, &format!("{CONFIGMAPS}?limit=1"), "allow").await.code(200);
        let review = &hook.requests()[0].body;
        assert_eq!(review["apiVersion"], format!("authorization.k8s.io/{}", version.name()));
        let mut expected = json!({
            "user": "allow",
            "uid": "1",
            "resourceAttributes": {"verb": "list", "version": "v1", "resource": "configmaps", "namespace": "default"},
        });
        expected[groups] = json!(["staff", "system:authenticated"]);
        assert_eq!(review["spec"], expected);
        with(&cluster, "/metrics", "allow").await.code(200);
        let path = &hook.requests()[1].body["spec"]["nonResourceAttributes"];
        assert_eq!(path, &json!({"path": "/metrics", "verb": "get"}));
        let text =
            |status: &Value| status["message"].as_str().unwrap().split("\": ").last().unwrap().to_owned();
        let status = with(&cluster, CONFIGMAPS, "deny").await.refused(403, "Forbidden");
        assert_eq!(text(&status), "never", "no later authorizer runs");
        let status = with(&cluster, CONFIGMAPS, "bob").await.refused(403, "Forbidden");
        assert_eq!(text(&status), "not that it knew\nEverything is forbidden.");
    }
}

#[tokio::test]
async fn allowed_reviews_are_cached_longer_than_denied_ones() {
    let hook = HttpsServer::start(by_name).await;
    let cluster = cluster_with_authorization_webhook(&hook, Version::V1, vec![Mode::Webhook]).await;
    for (token, code, seconds) in [("allow", 200, 300), ("deny", 403, 30), ("bob", 403, 30)] {
        let before = hook.count();
        for _ in 0..3 {
            with(&cluster, CONFIGMAPS, token).await.code(code);
        }
        cluster.advance(Duration::from_secs(seconds - 1));
        with(&cluster, CONFIGMAPS, token).await.code(code);
        assert_eq!(hook.count(), before + 1, "{token}");
        cluster.advance(Duration::from_secs(1));
        with(&cluster, CONFIGMAPS, token).await.code(code);
        assert_eq!(hook.count(), before + 2, "{token}");
    }
    // long names from clients do not grow the cache
    let before = hook.count();
    for _ in 0..2 {
        let long = json!({"user": "allow", "resourceAttributes": {"name": "x".repeat(10_000)}});
        let answer = cluster.create(SAR, json!({"spec": long})).await;
        assert_eq!(answer["status"]["allowed"], true);
    }
    assert_eq!(hook.count(), before + 2);
}

#[tokio::test]
async fn a_failing_authorization_webhook_allows_nothing() {
    let hook = HttpsServer::start(by_name).await;
    let cluster =
        cluster_with_authorization_webhook(&hook, Version::V1, vec![Mode::Webhook, Mode::Rbac]).await;
    for (name, calls, part) in FAILURES.into_iter().chain([("text", 1, "status.allowed")]) {
        let before = hook.count();
        let spec = json!({"user": name, "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let status = cluster.create(SAR, json!({"spec": spec})).await["status"].clone();
        assert_eq!(status["allowed"], false, "{name}");
        assert!(status["evaluationError"].as_str().unwrap().contains(part), "{name}: {status}");
        assert_eq!(hook.count(), before + calls, "{name}");
    }
    let both = json!({"user": "both", "resourceAttributes": {}});
    let status = cluster.create(SAR, json!({"spec": both})).await["status"].clone();
    assert_eq!((&status["allowed"], &status["denied"]), (&json!(false), &json!(true)));
    assert!(status["evaluationError"].as_str().unwrap().contains("both allow and deny"));
    // other requests report the failure
    for (token, part) in [("both", "both allow and deny"), ("html", "not a JSON object")] {
        let reason = with(&cluster, CONFIGMAPS, token).await.code(500).text();
        assert!(reason.starts_with("Internal Server Error: \"/api/v1/") && reason.contains(part), "{reason}");
    }
    // requests that another authorizer allows are allowed
    with(&cluster, "/healthz", "html").await.code(200);
    drop(hook);
    with(&cluster, CONFIGMAPS, "bob").await.code(500);
    cluster.get(CONFIGMAPS).await.code(200);
    // a denied impersonation shows no further reason
    let ask = with(&cluster, CONFIGMAPS, "bob").header("impersonate-user", "root");
    ask.await.refused(403, "Forbidden");
    let review = json!({"spec": {"namespace": "default"}});
    let rules = cluster.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review).await;
    assert_eq!(rules["status"]["incomplete"], true);
    assert_eq!(
        rules["status"]["evaluationError"],
        "webhook authorizer does not support user rule resolution"
    );
}

#[tokio::test]
async fn a_hanging_webhook_times_out() {
    let hook = HttpsServer::start(by_name).await;
    let cluster = Cluster::with(Options {
        authentication: authentication::Options {
            tokens: auth::Tokens::parse("local,hang,1").unwrap(),
            token_webhook: Some(authentication::webhook::Options::new(hook.client_with_short_timeout())),
            ..Default::default()
        },
        authorization: authorization::Options {
            modes: vec![Mode::Webhook],
            webhook: Some(authorization::webhook::Options::new(hook.client_with_short_timeout())),
            ..Default::default()
        },
        ..Options::default()
    })
    .await;
    with(&cluster, CONFIGMAPS, "hang").await.refused(401, "Unauthorized");
    let reason = with(&cluster, CONFIGMAPS, "local").await.code(500).text();
    assert!(reason.contains("no response within"), "{reason}");
    // timeouts are not retried
    assert_eq!(hook.count(), 2);
    cluster.get(CONFIGMAPS).await.code(200);
}
