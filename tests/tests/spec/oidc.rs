//! "Authentication": OpenID Connect providers.

use super::*;
use apiserver::authentication::{self, oidc};
use apiserver::authorization;
use auth::Mode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::Duration;
use tests::{Cluster, NOW, OidcProvider, Options, Reply, SigningKey, TIMEOUT, TestUser};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const CLIENT: &str = "cluster";

/// A server that believes a provider, with other options where a test wants some.
async fn believing(provider: &OidcProvider, change: impl FnOnce(&mut oidc::Options)) -> Cluster {
    let mut options = oidc::Options::new(&provider.server.url, CLIENT, provider.server.client());
    options.algorithms = vec!["ES256".to_owned(), "RS256".to_owned()];
    change(&mut options);
    Cluster::with(Options {
        authentication: authentication::Options { oidc: Some(options), ..Default::default() },
        authorization: authorization::Options { modes: vec![Mode::AlwaysAllow], ..Default::default() },
        simulated_clock: true,
        ..Options::default()
    })
    .await
}

/// Claims that nothing is wrong with.
fn claims(provider: &OidcProvider) -> Value {
    json!({"iss": provider.server.url, "aud": CLIENT, "sub": "ann", "exp": NOW + 3600})
}

fn changed(claims: &Value, changes: Value) -> Value {
    let mut out = claims.clone();
    for (claim, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(out.as_object_mut().unwrap().remove(claim)),
            value => out[claim] = value.clone(),
        }
    }
    out
}

/// The user of a token, or the reason of its rejection.
async fn owner(cluster: &Cluster, token: &str) -> Result<Value, String> {
    let review = json!({"spec": {"token": token}});
    let status = cluster.create(TOKEN_REVIEWS, review).await["status"].clone();
    let code = if status["authenticated"] == true { 200 } else { 401 };
    let ask = cluster
        .get(CONFIGMAPS)
        .user(&TestUser::Anonymous)
        .header("authorization", &format!("Bearer {token}"));
    ask.await.code(code);
    match status["authenticated"] == true {
        true => Ok(status["user"].clone()),
        false => Err(status["error"].as_str().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn tokens_of_a_provider_name_their_users() {
    let key = SigningKey::new("k", "ES256");
    let provider = OidcProvider::start(&[&key]).await;
    let issuer = provider.server.url.clone();
    let plain = believing(&provider, |_| {}).await;
    let user = owner(&plain, &key.sign(&claims(&provider))).await.unwrap();
    assert_eq!(user, json!({"username": format!("{issuer}#ann"), "groups": ["system:authenticated"]}));
    // several audiences, fractions of seconds, and a clock slightly ahead
    let odd = json!({"aud": ["x", CLIENT], "exp": NOW as f64 + 7.5, "nbf": NOW + 59, "groups": ["ignored"]});
    let user = owner(&plain, &key.sign(&changed(&claims(&provider), odd))).await.unwrap();
    assert_eq!(user["groups"], json!(["system:authenticated"]));
    let own = believing(&provider, |options| {
        options.username_claim = "email".to_owned();
        options.username_prefix = oidc::Options::username_prefix("", "email", &issuer);
        options.groups_claim = "groups".to_owned();
        options.groups_prefix = "o:".to_owned();
        options.required = vec![("team".to_owned(), "a".to_owned())];
    })
    .await;
    let good = changed(&claims(&provider), json!({"email": "ann@x", "team": "a"}));
    for (changes, groups) in [
        (json!({}), json!(["system:authenticated"])),
        (json!({"groups": "dev", "email_verified": true}), json!(["o:dev", "system:authenticated"])),
        (json!({"groups": ["dev", "ops"]}), json!(["o:dev", "o:ops", "system:authenticated"])),
    ] {
        let user = owner(&own, &key.sign(&changed(&good, changes))).await.unwrap();
        assert_eq!(user, json!({"username": "ann@x", "groups": groups}));
    }
    for (changes, part) in [
        (json!({"email": null}), "\"email\" is missing"),
        (json!({"email": 7}), "\"email\" is invalid"),
        (json!({"email": ""}), "\"email\" is invalid"),
        (json!({"email_verified": false}), "not verified"),
        (json!({"email_verified": "true"}), "\"email_verified\" is invalid"),
        (json!({"groups": 7}), "\"groups\" is invalid"),
        (json!({"groups": ["a", 7]}), "\"groups\" is invalid"),
        (json!({"team": null}), "\"team\" is missing"),
        (json!({"team": "b"}), "\"team\" is not as required"),
        (json!({"team": ["a"]}), "\"team\" is invalid"),
    ] {
        let why = owner(&own, &key.sign(&changed(&good, changes.clone()))).await.unwrap_err();
        assert!(why.contains("oidc: ") && why.contains(part), "{changes}: {why}");
    }
}

#[tokio::test]
async fn invalid_tokens_are_rejected() {
    let (key, rsa, unknown) =
        (SigningKey::new("k", "ES256"), SigningKey::new("r", "RS256"), SigningKey::new("k", "ES256"));
    let provider = OidcProvider::start(&[&key, &rsa]).await;
    let cluster = believing(&provider, |_| {}).await;
    let good = claims(&provider);
    owner(&cluster, &key.sign(&good)).await.unwrap();
    owner(&cluster, &rsa.sign(&good)).await.unwrap();
    for (changes, part) in [
        (json!({"aud": "other"}), "its audience is"),
        (json!({"aud": null}), "its audience is"),
        (json!({"aud": [7, CLIENT]}), "\"aud\" is invalid"),
        (json!({"exp": NOW}), "expired"),
        (json!({"exp": NOW - 100}), "expired"),
        (json!({"exp": null}), "expired"),
        (json!({"exp": "never"}), "expired"),
        (json!({"nbf": NOW + 61}), "not valid yet"),
        (json!({"nbf": "now"}), "not valid yet"),
        (json!({"sub": null}), "\"sub\" is missing"),
        (json!({"iss": "https://other.example"}), "invalid bearer token"),
        (json!({"iss": format!("{}/", provider.server.url)}), "invalid bearer token"),
        (json!({"iss": null}), "invalid bearer token"),
    ] {
        let why = owner(&cluster, &key.sign(&changed(&good, changes.clone()))).await.unwrap_err();
        assert!(why.contains(part), "{changes}: {why}");
    }
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let token = key.sign(&good);
    let parts: Vec<_> = token.split('.').collect();
    let unsigned = |header: Value| format!("{}.{}", encoded(header.to_string().as_bytes()), parts[1]);
    // the public key taken for a shared secret
    let shared = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &rsa.public_bytes());
    let confused = unsigned(json!({"alg": "HS256", "kid": "r"}));
    let confused = format!("{confused}.{}", encoded(ring::hmac::sign(&shared, confused.as_bytes()).as_ref()));
    let root = encoded(changed(&good, json!({"sub": "root"})).to_string().as_bytes());
    for (what, bad, part) in [
        ("none", format!("{}.", unsigned(json!({"alg": "none"}))), "\"none\" is not allowed"),
        ("None", format!("{}.{}", unsigned(json!({"alg": "None"})), parts[2]), "not allowed"),
        ("no way at all", format!("{}.{}", unsigned(json!({})), parts[2]), "\"\" is not allowed"),
        ("confusion", confused, "\"HS256\" is not allowed"),
        ("another way", SigningKey::new("r", "RS512").sign(&good), "\"RS512\" is not allowed"),
        (
            "the way of another key",
            key.sign_as(&json!({"alg": "RS256", "kid": "k"}), &good),
            "none of the provider's keys",
        ),
        ("another key", unknown.sign(&good), "none of the provider's keys"),
        (
            "another name",
            key.sign_as(&json!({"alg": "ES256", "kid": "x"}), &good),
            "none of the provider's keys",
        ),
        ("other claims", format!("{}.{root}.{}", parts[0], parts[2]), "none of the provider's keys"),
        ("truncated", token[..token.len() - 2].to_owned(), "none of the provider's keys"),
        ("without signature", format!("{}.{}.", parts[0], parts[1]), "none of the provider's keys"),
        ("two parts", format!("{}.{}", parts[0], parts[1]), "invalid bearer token"),
        ("four parts", format!("{token}.{}", parts[2]), "invalid bearer token"),
        (
            "must be understood",
            key.sign_as(&json!({"alg": "ES256", "crit": ["x"]}), &good),
            "invalid bearer token",
        ),
    ] {
        let why = owner(&cluster, &bad).await.unwrap_err();
        assert!(why.contains(part), "{what}: {why}");
    }
    // keys need not be named
    owner(&cluster, &key.sign_as(&json!({"alg": "ES256"}), &good)).await.unwrap();
    // a cached token ends at its expiration
    let short = key.sign(&changed(&good, json!({"exp": NOW + 3})));
    owner(&cluster, &short).await.unwrap();
    cluster.advance(Duration::from_secs(3));
    assert!(owner(&cluster, &short).await.unwrap_err().contains("expired"));
}

#[tokio::test]
async fn every_way_of_signing_can_be_allowed() {
    for name in oidc::ALGORITHMS {
        let key = SigningKey::new(name, name);
        let provider = OidcProvider::start(&[&key]).await;
        let cluster = believing(&provider, |options| options.algorithms = vec![name.to_owned()]).await;
        let token = key.sign(&claims(&provider));
        owner(&cluster, &token).await.unwrap_or_else(|why| panic!("{name}: {why}"));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        *signature.last_mut().unwrap() ^= 1;
        let bad = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert!(owner(&cluster, &bad).await.unwrap_err().contains("none of the provider's keys"), "{name}");
    }
}

#[tokio::test]
async fn keys_are_refetched_at_a_limited_rate() {
    let (old, new) = (SigningKey::new("old", "ES256"), SigningKey::new("new", "ES256"));
    let provider = OidcProvider::start(&[&old]).await;
    let cluster = believing(&provider, |_| {}).await;
    let good = claims(&provider);
    owner(&cluster, &old.sign(&good)).await.unwrap();
    assert_eq!(provider.fetches(), 1);
    provider.published.lock().unwrap().keys.push(new.published());
    // the rate of fetches is limited
    cluster.advance(Duration::from_secs(9));
    for at in 0..20 {
        let name = format!("{at}");
        owner(&cluster, &new.sign_as(&json!({"alg": "ES256", "kid": name}), &good)).await.unwrap_err();
    }
    assert_eq!(provider.fetches(), 1);
    cluster.advance(Duration::from_secs(1));
    owner(&cluster, &new.sign(&good)).await.unwrap();
    owner(&cluster, &old.sign(&good)).await.unwrap();
    assert_eq!(provider.fetches(), 2);
    // a key that is taken back is not believed for long while others are used
    provider.published.lock().unwrap().keys.remove(0);
    cluster.advance(Duration::from_secs(301));
    owner(&cluster, &new.sign(&good)).await.unwrap();
    let gone = tokio::time::timeout(TIMEOUT, async {
        while owner(&cluster, &old.sign(&good)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    gone.await.unwrap();
    owner(&cluster, &new.sign(&good)).await.unwrap();
    // a provider that is gone does not make its keys forgotten
    drop(provider);
    cluster.advance(Duration::from_secs(301));
    owner(&cluster, &new.sign(&good)).await.unwrap();
}

#[tokio::test]
async fn an_invalid_provider_is_rejected_until_it_is_valid() {
    let key = SigningKey::new("k", "ES256");
    let provider = OidcProvider::start(&[&key]).await;
    let url = provider.server.url.clone();
    let document = |changes: Value| {
        Reply::Json(changed(&json!({"issuer": url, "jwks_uri": format!("{url}/keys")}), changes))
    };
    let text = |status, text: &str| Reply::Text(status, text.to_owned());
    provider.published.lock().unwrap().document = Some(text(503, ""));
    let cluster = believing(&provider, |_| {}).await;
    let token = key.sign(&claims(&provider));
    owner(&cluster, &token).await.unwrap_err();
    for (reply, of_keys, part) in [
        (text(404, "{}"), false, "its configuration could not be fetched: status 404"),
        (text(200, "<html>"), false, "not a JSON object"),
        (document(json!({"issuer": "https://other.example"})), false, "issuer is \"https://other.example\""),
        (document(json!({"issuer": null})), false, "issuer is \"\""),
        (document(json!({"jwks_uri": "http://localhost/keys"})), false, "not an https URL"),
        (document(json!({"jwks_uri": null})), false, "not an https URL"),
        (Reply::Flood, false, "larger than"),
        (text(500, ""), true, "its keys could not be fetched: status 500"),
        (Reply::Flood, true, "larger than"),
        (
            Reply::Json(json!({"keys": [{"kty": "oct", "k": "AAAA"}, {"kty": "EC"}, 7]})),
            true,
            "none of the provider's keys",
        ),
    ] {
        {
            let mut published = provider.published.lock().unwrap();
            (published.document, published.instead_of_keys) =
                if of_keys { (None, Some(reply)) } else { (Some(reply), None) };
        }
        cluster.advance(Duration::from_secs(10));
        let why = owner(&cluster, &token).await.unwrap_err();
        assert!(why.contains(part), "{part}: {why}");
    }
    *provider.published.lock().unwrap() =
        tests::ProviderResponses { keys: vec![key.published()], ..tests::ProviderResponses::default() };
    cluster.advance(Duration::from_secs(10));
    owner(&cluster, &token).await.unwrap();
}

#[tokio::test]
async fn groups_may_be_distributed_claims() {
    let (key, other) = (SigningKey::new("k", "ES256"), SigningKey::new("k", "ES256"));
    let (provider, second) = (OidcProvider::start(&[&key]).await, OidcProvider::start(&[&other]).await);
    // distributed claims need the same signer
    let both = [provider.server.certificate.clone(), second.server.certificate.clone()].concat();
    let cluster = believing(&provider, |options| {
        options.groups_claim = "groups".to_owned();
        options.username_prefix = String::new();
        let target = outbound::Target { authorities: Some(both.into_bytes()), ..provider.server.target() };
        options.client = outbound::HttpClient::new(&target, outbound::Limits::REVIEW).unwrap();
    })
    .await;
    let there = format!("{}/claims", second.server.url);
    let pointing = |name: Value, sources: Value| {
        key.sign(&changed(&claims(&provider), json!({"_claim_names": name, "_claim_sources": sources})))
    };
    let to = |endpoint: &str| {
        pointing(json!({"groups": "s"}), json!({"s": {"endpoint": endpoint, "access_token": "secret"}}))
    };
    let distributed = changed(&claims(&second), json!({"groups": ["far", "away"]}));
    second.published.lock().unwrap().claims = other.sign(&distributed);
    let user = owner(&cluster, &to(&there)).await.unwrap();
    assert_eq!(user["groups"], json!(["far", "away", "system:authenticated"]));
    let shown = second.server.requests().into_iter().find(|seen| seen.path == "/claims").unwrap();
    assert_eq!(shown.headers["authorization"], "Bearer secret");
    // present, unnamed and embedded claims are not fetched
    let before = second.server.count();
    let own = json!({"groups": "own", "_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": there}}});
    let own = owner(&cluster, &key.sign(&changed(&claims(&provider), own))).await.unwrap();
    assert_eq!(own["groups"], json!(["own", "system:authenticated"]));
    for sources in [json!({"s": {"JWT": "x"}}), json!({})] {
        let name = if sources == json!({}) { "other" } else { "groups" };
        let user = owner(&cluster, &pointing(json!({name: "s"}), sources)).await.unwrap();
        assert_eq!(user["groups"], json!(["system:authenticated"]));
    }
    assert_eq!(second.server.count(), before);
    for (token, part) in [
        (pointing(json!({"groups": "s"}), Value::Null), "no _claim_sources"),
        (pointing(json!({"groups": "s"}), json!({})), "its source is missing"),
        (pointing(json!([]), json!({})), "_claim_names is not an object"),
        (to(&there.replace("https", "http")), "not at an https URL"),
        (to(&format!("{there}/none")), "status 404"),
    ] {
        let why = owner(&cluster, &token).await.unwrap_err();
        assert!(why.contains(part) && !why.contains("secret"), "{part}: {why}");
    }
    for (claims, part) in [
        (other.sign(&changed(&distributed, json!({"aud": "x"}))), "its audience is"),
        (other.sign(&changed(&distributed, json!({"exp": NOW - 1}))), "expired"),
        (other.sign(&changed(&distributed, json!({"groups": null}))), "does not hold it"),
        (other.sign(&changed(&distributed, json!({"iss": "http://x"}))), "issuer is not an https URL"),
        (key.sign(&distributed), "none of the provider's keys"),
        ("nonsense".to_owned(), "there is no token"),
    ] {
        second.published.lock().unwrap().claims = claims;
        cluster.advance(Duration::from_secs(10));
        let why = owner(&cluster, &to(&there)).await.unwrap_err();
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[tokio::test]
async fn a_hanging_provider_times_out() {
    let key = SigningKey::new("k", "ES256");
    let provider = OidcProvider::start(&[&key]).await;
    for of_keys in [false, true] {
        {
            let mut published = provider.published.lock().unwrap();
            (published.document, published.instead_of_keys) =
                if of_keys { (None, Some(Reply::Silence)) } else { (Some(Reply::Silence), None) };
        }
        let cluster =
            believing(&provider, |options| options.client = provider.server.client_with_short_timeout())
                .await;
        let why = owner(&cluster, &key.sign(&claims(&provider))).await.unwrap_err();
        assert!(why.contains("no response within"), "{why}");
    }
}
