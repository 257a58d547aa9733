//! "Authentication": tokens of service accounts, good ones and all the ways in which they can be bad.

use super::*;
use apiserver::authentication::jose::{PublicKey, Signer};
use apiserver::authentication::{self, ServiceAccounts};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use std::time::Duration;
use tests::{Cluster, NOW, Options, TestUser, authority};

const ISSUER: &str = "https://kubernetes.default.svc";
const FORMER: &str = "https://former.example";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const RSA: &str = include_str!("../../../crates/apiserver/src/authentication/jose/tests/rsa.pem");
const RSA_PUBLIC: &str = include_str!("../../../crates/apiserver/src/authentication/jose/tests/rsa.pub.pem");

/// A server that signs with one key and believes another as well, which is here to make tokens with.
struct Setup {
    cluster: Cluster,
    signer: Signer,
    account: String,
}

async fn setup(change: impl FnOnce(&mut authentication::Options)) -> Setup {
    let own = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
    let mut authentication = authentication::Options {
        service_accounts: ServiceAccounts {
            signer: Some(own),
            keys: PublicKey::all_from_pem(RSA_PUBLIC.as_bytes()).unwrap(),
            issuers: vec![ISSUER.to_owned(), FORMER.to_owned()],
            ..Default::default()
        },
        ..Default::default()
    };
    change(&mut authentication);
    let cluster = Cluster::with(Options { authentication, ..Options::default() }).await;
    let account = uid(&cluster.named(ACCOUNTS, "robot").await);
    Setup { cluster, signer: Signer::from_pem(RSA.as_bytes()).unwrap(), account }
}

impl Setup {
    /// The claims of a valid token, with some of them changed or, by null, left out.
    fn claims(&self, changes: Value) -> Value {
        let mut claims = json!({"iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:default:robot",
            "iat": NOW, "nbf": NOW, "exp": NOW + 600, "kubernetes.io": {"namespace": "default",
                "serviceaccount": {"name": "robot", "uid": self.account}}});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    fn signed(&self, claims: &Value) -> String {
        let claims = schema::decode::json_untyped(claims.to_string().as_bytes()).unwrap().value;
        self.signer.sign(&claims).unwrap()
    }

    fn token(&self, changes: Value) -> String {
        self.signed(&self.claims(changes))
    }

    async fn code(&self, token: &str) -> u16 {
        let given = format!("Bearer {token}");
        self.cluster.get("/api").user(&TestUser::Anonymous).header("authorization", &given).await.status
    }

    /// Refused where it is shown, and in a review for this reason.
    async fn refuses(&self, token: &str, why: &str) {
        assert_eq!(self.code(token).await, 401, "{why}");
        let review = self.cluster.post(REVIEWS, json!({"spec": {"token": token}})).await.code(201).json();
        let expected = match why {
            "" => "invalid bearer token".to_owned(),
            why => format!("[invalid bearer token, {why}]"),
        };
        assert_eq!(review["status"], json!({"user": {}, "error": expected}));
    }

    async fn request_token(&self, spec: Value) -> String {
        let path = format!("{ACCOUNTS}/robot/token");
        let created = self.cluster.post(&path, json!({ "spec": spec })).await.code(201).json();
        created["status"]["token"].as_str().unwrap().to_owned()
    }
}

/// The claims of a token.
fn read(token: &str) -> Value {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

#[tokio::test]
async fn all_keys_and_issuers_verify_and_the_first_signs() {
    let setup = setup(|_| {}).await;
    let issued = setup.request_token(json!({})).await;
    assert_eq!(
        (read(&issued)["iss"].clone(), read(&issued)["aud"].clone()),
        (json!(ISSUER), json!([ISSUER, FORMER]))
    );
    for token in [
        issued,
        setup.token(json!({})),
        setup.token(json!({"iss": FORMER})),
        setup.token(json!({"aud": FORMER})),
    ] {
        assert_eq!(setup.code(&token).await, 200, "{}", read(&token));
    }
    let about = setup.cluster.read("/.well-known/openid-configuration").await;
    assert_eq!(about["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
    let keys = setup.cluster.read("/openid/v1/jwks").await;
    assert_eq!(
        keys["keys"].as_array().unwrap().iter().map(|key| &key["kty"]).collect::<Vec<_>>(),
        ["RSA", "EC"]
    );
}

#[tokio::test]
async fn an_issuer_that_cannot_be_found_is_not_described() {
    let with = |issuer: &'static str, keys_at: Option<&'static str>| {
        setup(move |it| {
            it.service_accounts.issuers = vec![issuer.to_owned()];
            it.service_accounts.jwks_uri = keys_at.map(str::to_owned);
        })
    };
    for issuer in ["plain", "http://issuer.example", "https://issuer.example?x=1"] {
        let setup = with(issuer, None).await;
        for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
            assert_eq!(setup.cluster.get(path).await.status, 404, "{issuer}");
        }
        // its tokens are good all the same
        let token = setup.request_token(json!({})).await;
        assert_eq!((read(&token)["iss"].as_str(), setup.code(&token).await), (Some(issuer), 200));
    }
    let setup = with("https://issuer.example", Some("https://keys.example/jwks")).await;
    let about = setup.cluster.read("/.well-known/openid-configuration").await;
    assert_eq!(about["jwks_uri"], "https://keys.example/jwks");
}

#[tokio::test]
async fn audiences_can_be_chosen_and_others_are_refused() {
    let setup = setup(|it| it.audiences = vec!["here".to_owned()]).await;
    assert_eq!(read(&setup.request_token(json!({})).await)["aud"], json!(["here"]));
    assert_eq!(setup.code(&setup.token(json!({"aud": ["x", "here"]}))).await, 200);
    // the default audience is this server
    assert_eq!(setup.code(&setup.token(json!({"aud": null}))).await, 200);
    let message =
        r#"token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["here"]"#;
    setup.refuses(&setup.token(json!({})), message).await;
}

#[tokio::test]
async fn a_token_is_valid_only_in_its_period() {
    let setup = setup(|_| {}).await;
    // clocks may disagree by a minute
    assert_eq!(setup.code(&setup.token(json!({"nbf": NOW + 60, "exp": NOW - 60}))).await, 200);
    setup.refuses(&setup.token(json!({"exp": NOW - 61})), "service account token has expired").await;
    setup.refuses(&setup.token(json!({"exp": null})), "service account token has expired").await;
    setup.refuses(&setup.token(json!({"nbf": NOW + 61})), "service account token is not valid yet").await;
    // also one that is known by now
    let token = setup.token(json!({}));
    assert_eq!(setup.code(&token).await, 200);
    setup.cluster.advance(Duration::from_secs(661));
    setup.refuses(&token, "service account token has expired").await;
}

#[tokio::test]
async fn a_token_of_another_issuer_is_refused() {
    let setup = setup(|_| {}).await;
    for issuer in [json!("https://other.example"), json!(""), json!(null), json!([ISSUER])] {
        setup.refuses(&setup.token(json!({"iss": issuer})), "").await;
    }
}

#[tokio::test]
async fn a_token_without_a_good_signature_is_refused() {
    let setup = setup(|_| {}).await;
    let bad = "square/go-jose: error in cryptographic primitive";
    let good = setup.token(json!({}));
    let [header, claims, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
    let named = |alg: &str| URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"{alg}\"}}"));
    // no signature at all
    for alg in ["none", "None", "NONE", ""] {
        setup.refuses(&format!("{}.{claims}.", named(alg)), bad).await;
        setup.refuses(&format!("{}.{claims}.{signature}", named(alg)), bad).await;
    }
    // a public key taken for a shared one
    for secret in [RSA_PUBLIC.as_bytes(), RSA_PUBLIC.trim().as_bytes()] {
        let signed = format!("{}.{claims}", named("HS256"));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        setup.refuses(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)), bad).await;
    }
    // another way of signing than the one that it was signed in, and another key
    for alg in ["ES256", "RS512", "PS256"] {
        setup.refuses(&format!("{}.{claims}.{signature}", named(alg)), bad).await;
    }
    let stranger = Signer::from_pem(authority().client("stranger", "").key.as_bytes()).unwrap();
    let copied = schema::decode::json_untyped(setup.claims(json!({})).to_string().as_bytes()).unwrap().value;
    setup.refuses(&stranger.sign(&copied).unwrap(), bad).await;
    // other claims under the same signature
    let other = URL_SAFE_NO_PAD.encode(setup.claims(json!({"exp": NOW + 99_999})).to_string());
    setup.refuses(&format!("{header}.{other}.{signature}"), bad).await;
    assert_eq!(setup.code(&good).await, 200);
    // truncated, or with something to it
    for length in (0..good.len()).step_by(7).skip(1) {
        assert_eq!(setup.code(&good[..length]).await, 401, "{length}");
    }
    for bad in
        [format!("{good}."), format!("{good}.{signature}"), format!("{header}.{claims}"), "..".to_owned()]
    {
        setup.refuses(&bad, "").await;
    }
}

#[tokio::test]
async fn a_token_is_valid_while_its_objects_exist() {
    let setup = setup(|_| {}).await;
    let bound = |what: Value| {
        let mut claims = setup.claims(json!({}));
        claims["kubernetes.io"].as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        setup.signed(&claims)
    };
    let gone = "service account token has been invalidated";
    for what in ["pod", "secret"] {
        setup.refuses(&bound(json!({what: {"name": "x", "uid": "u"}})), gone).await;
    }
    let created = uid(&setup.cluster.named(SECRETS, "x").await);
    let token = bound(json!({"secret": {"name": "x", "uid": created}}));
    assert_eq!(setup.code(&token).await, 200);
    let message = format!("secret UID ({created}) does not match service account secret ref claim (u)");
    setup.refuses(&bound(json!({"secret": {"name": "x", "uid": "u"}})), &message).await;
    let other = json!({"namespace": "default", "serviceaccount": {"name": "robot", "uid": "u"}});
    let message = format!("service account UID ({}) does not match claim (u)", setup.account);
    setup.refuses(&setup.token(json!({"kubernetes.io": other})), &message).await;
    let missing = json!({"namespace": "default", "serviceaccount": {"name": "none", "uid": "u"}});
    setup
        .refuses(&setup.token(json!({"kubernetes.io": missing})), "serviceaccounts \"none\" not found")
        .await;
    // one that is being deleted is good for a minute more
    setup
        .cluster
        .patch(&format!("{SECRETS}/x"), json!({"metadata": {"finalizers": ["a.example/b"]}}))
        .await
        .code(200);
    setup.cluster.delete(&format!("{SECRETS}/x")).await.code(200);
    assert_eq!(setup.code(&token).await, 200);
    setup.cluster.advance(Duration::from_secs(61));
    setup.refuses(&token, gone).await;
}

#[tokio::test]
async fn a_legacy_token_is_valid_while_its_secret_has_it() {
    let setup = setup(|_| {}).await;
    let claim = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
    let claims = json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
        claim("namespace"): "default", claim("secret.name"): "old", claim("service-account.name"): "robot",
        claim("service-account.uid"): setup.account});
    let token = setup.signed(&claims);
    setup.refuses(&token, "Token has been invalidated").await;
    let secret = |text: &str| {
        json!({"metadata": {"name": "old", "annotations": {"kubernetes.io/service-account.name": "robot"}},
            "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(text)}})
    };
    setup.cluster.create(SECRETS, secret(&token)).await;
    assert_eq!(setup.code(&token).await, 200);
    let review = setup.cluster.post(REVIEWS, json!({"spec": {"token": token}})).await.code(201).json();
    assert_eq!(review["status"]["audiences"], json!([ISSUER, FORMER]));
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:robot");
    for (name, message) in [
        ("sub", "sub claim is missing"),
        (&*claim("namespace"), "namespace claim is missing"),
        (&*claim("secret.name"), "secretName claim is missing"),
        (&*claim("service-account.name"), "serviceAccountName claim is missing"),
        (&*claim("service-account.uid"), "serviceAccountUID claim is missing"),
    ] {
        let mut fewer = claims.clone();
        fewer.as_object_mut().unwrap().remove(name);
        setup.refuses(&setup.signed(&fewer), message).await;
    }
    let mut other = claims.clone();
    other["sub"] = json!("system:serviceaccount:default:other");
    setup.refuses(&setup.signed(&other), "sub claim is invalid").await;
    // its use is counted, and it ends with the secret's data
    let metrics = setup.cluster.get("/metrics").await.code(200);
    let text = metrics.text();
    let used = text.lines().find_map(|line| line.strip_prefix("serviceaccount_legacy_tokens_total "));
    assert!(used.is_some_and(|used| used != "0"), "{text}");
    setup.cluster.put(&format!("{SECRETS}/old"), secret("other")).await.code(200);
    setup.refuses(&token, "Token does not match server's copy").await;
}

#[tokio::test]
async fn legacy_token_use_is_tracked_if_the_gate_is_on() {
    let since =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    for tracked in [false, true] {
        let setup = setup(|it| it.service_accounts.tracks_use = tracked).await;
        let claim = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
        let token = setup.signed(&json!({"iss": "kubernetes/serviceaccount",
            "sub": "system:serviceaccount:default:robot", claim("namespace"): "default",
            claim("secret.name"): "old", claim("service-account.name"): "robot",
            claim("service-account.uid"): setup.account}));
        let secret = json!({"metadata": {"name": "old",
            "annotations": {"kubernetes.io/service-account.name": "robot"}},
            "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(&token)}});
        setup.cluster.create(SECRETS, secret).await;
        let noted = async || {
            let secret = setup.cluster.read(&format!("{SECRETS}/old")).await;
            secret["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].as_str().map(str::to_owned)
        };
        assert_eq!(setup.code(&token).await, 200);
        if !tracked {
            setup.cluster.get(since).await.code(404);
            assert_eq!(noted().await, None);
            continue;
        }
        assert_eq!(setup.cluster.read(since).await["data"]["since"], "2023-11-14");
        for day in ["2023-11-14", "2023-11-15"] {
            assert_eq!(setup.code(&token).await, 200);
            let written = async {
                while noted().await.as_deref() != Some(day) {
                    tokio::task::yield_now().await;
                }
            };
            tests::soon("the use is noted", written).await;
            assert_eq!(setup.code(&token).await, 200);
            setup.cluster.advance(Duration::from_secs(24 * 60 * 60));
        }
    }
}

#[tokio::test]
async fn legacy_tokens_can_be_accepted_by_signature_alone() {
    let setup = setup(|it| it.service_accounts.lookup = false).await;
    let claim = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
    let mut claims = json!({"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:gone:robot",
        claim("namespace"): "gone", claim("secret.name"): "old", claim("service-account.name"): "robot",
        claim("service-account.uid"): "u"});
    assert_eq!(setup.code(&setup.signed(&claims)).await, 200);
    claims["sub"] = json!("system:serviceaccount:kube-system:robot");
    setup.refuses(&setup.signed(&claims), "sub claim is invalid").await;
    // which goes for those of old only
    let missing = json!({"namespace": "gone", "serviceaccount": {"name": "robot", "uid": "u"}});
    setup
        .refuses(&setup.token(json!({"kubernetes.io": missing})), "serviceaccounts \"robot\" not found")
        .await;
}

#[tokio::test]
async fn pod_tokens_can_have_an_extended_expiration() {
    for (extend, good_for) in [(true, 365 * 86_400), (false, 3607)] {
        let setup = setup(|it| it.service_accounts.extend = extend).await;
        let mut object = pod("p");
        object["spec"]["serviceAccountName"] = json!("robot");
        setup.cluster.create(PODS, object).await;
        let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
        let usual = json!({"expirationSeconds": 3607, "boundObjectRef": reference});
        let token = setup.request_token(usual.clone()).await;
        let claims = read(&token);
        assert_eq!(claims["exp"], NOW + good_for);
        let warned = claims["kubernetes.io"].get("warnafter").cloned();
        assert_eq!(warned, extend.then(|| json!(NOW + 3607)));
        // only default pod tokens for this server
        for other in [
            json!({"expirationSeconds": 3607}),
            json!({"expirationSeconds": 3600, "boundObjectRef": reference}),
            json!({"expirationSeconds": 3607, "boundObjectRef": reference, "audiences": ["x"]}),
        ] {
            assert!(read(&setup.request_token(other).await)["exp"].as_u64().unwrap() <= NOW + 3607);
        }
        setup.cluster.advance(Duration::from_secs(3608 + 60));
        assert_eq!(setup.code(&token).await, if extend { 200 } else { 401 });
        let metrics = setup.cluster.get("/metrics").await.code(200);
        let stale = format!("serviceaccount_stale_tokens_total {}", u8::from(extend));
        assert!(metrics.text().contains(&stale), "{}", metrics.text());
    }
}

#[tokio::test]
async fn the_token_lifetime_can_be_limited() {
    let setup = setup(|it| it.service_accounts.max_seconds = Some(7200)).await;
    let path = format!("{ACCOUNTS}/robot/token");
    let answer = setup.cluster.post(&path, json!({"spec": {"expirationSeconds": 9000}})).await.code(201);
    let message = "299 - \"requested expiration of 9000 seconds shortened to 7200 seconds\"";
    assert_eq!(answer.header("warning"), message);
    assert_eq!(answer.json()["spec"]["expirationSeconds"], 7200);
}
