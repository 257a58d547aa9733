//! Tokens of service accounts that are no longer good, or are used beyond the permissions of their account.

use super::arena::{Arena, Attack, Attacker, ISSUER, attack};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tests::NOW;

/// Tokens, each of an account of its own.
struct Tokens<'a> {
    arena: &'a Arena,
}

impl Tokens<'_> {
    /// A token of an account that is created for it.
    async fn request(&self, account: &str, spec: Value) -> String {
        self.arena.cluster.named(ACCOUNTS, account).await;
        self.again(account, spec).await
    }

    async fn again(&self, account: &str, spec: Value) -> String {
        let path = format!("{ACCOUNTS}/{account}/token");
        let created = self.arena.cluster.post(&path, json!({ "spec": spec })).await.code(201).json();
        created["status"]["token"].as_str().unwrap().to_owned()
    }

    async fn bound(&self, account: &str, kind: &str, name: &str, uid: &Value) -> String {
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        self.request(account, json!({ "boundObjectRef": reference })).await
    }

    async fn delete(&self, path: String) {
        self.arena.cluster.delete(&format!("{path}?gracePeriodSeconds=0")).await.code(200);
    }

    /// Claims of `robot`, with some replaced.
    async fn claims(&self, changes: Value) -> Value {
        let account = self.arena.cluster.read(&format!("{ACCOUNTS}/robot")).await;
        let mut claims = json!({"iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:default:robot",
            "iat": NOW, "nbf": NOW, "exp": NOW + 600, "kubernetes.io": {"namespace": "default",
                "serviceaccount": {"name": "robot", "uid": account["metadata"]["uid"]}}});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    async fn signed(&self, changes: Value) -> String {
        self.arena.sign(&self.claims(changes).await)
    }
}

fn invalid(name: &'static str, token: String) -> Attack {
    attack(name).by(Attacker::Token(token, "")).get("/api").refused(401, "Unauthorized", "Unauthorized")
}

#[tokio::test]
async fn tokens_end_with_their_objects() {
    let arena = Arena::start().await;
    let (tokens, cluster) = (Tokens { arena: &arena }, &arena.cluster);
    let deleted = tokens.request("a", json!({})).await;
    tokens.delete(format!("{ACCOUNTS}/a")).await;
    let recreated = tokens.request("b", json!({})).await;
    tokens.delete(format!("{ACCOUNTS}/b")).await;
    cluster.named(ACCOUNTS, "b").await;
    let uid = cluster.named(SECRETS, "s").await["metadata"]["uid"].clone();
    let of_secret = tokens.bound("c", "Secret", "s", &uid).await;
    tokens.delete(format!("{SECRETS}/s")).await;
    let mut bound_pod = pod("bound", "n");
    bound_pod["spec"]["serviceAccountName"] = json!("d");
    let uid = cluster.create(PODS, bound_pod.clone()).await["metadata"]["uid"].clone();
    let of_pod = tokens.bound("d", "Pod", "bound", &uid).await;
    tokens.delete(format!("{PODS}/bound")).await;
    let replaced = tokens.again("d", json!({})).await;
    let uid = cluster.create(PODS, bound_pod.clone()).await["metadata"]["uid"].clone();
    let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "bound", "uid": uid});
    let of_old_pod = tokens.again("d", json!({ "boundObjectRef": reference })).await;
    tokens.delete(format!("{PODS}/bound")).await;
    cluster.create(PODS, bound_pod).await;
    tokens.delete(format!("{ACCOUNTS}/d")).await;
    arena
        .run(
            "Tokens of deleted objects",
            vec![
                invalid("a token of a deleted account", deleted),
                invalid("a token of an account that was created again", recreated),
                invalid("a token that is bound to a deleted secret", of_secret),
                invalid("a token that is bound to a deleted pod", of_pod),
                invalid("a token that is bound to a pod that was created again", of_old_pod),
                invalid("a second token of a deleted account", replaced),
            ],
        )
        .await;
}

#[tokio::test]
async fn forged_and_foreign_tokens_are_refused() {
    let arena = Arena::start().await;
    let tokens = Tokens { arena: &arena };
    let claims = tokens.claims(json!({})).await;
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&claims));
    let good = tokens.signed(json!({})).await;
    let parts: Vec<&str> = good.split('.').collect();
    let mut admin = claims.clone();
    admin["sub"] = json!("system:admin");
    admin["groups"] = json!(["system:masters"]);
    let changed = format!("{}.{}.{}", parts[0], encode(&admin), parts[2]);
    let keyed = |key: Value| format!("{}.{}.{}", encode(&key), parts[1], parts[2]);
    let embedded = json!({"alg": "RS256", "jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, "jku": "https://127.0.0.1/keys"});
    let traversal = json!({"alg": "HS256", "kid": "../../../../dev/null"});
    arena
        .run(
            "Forged and foreign tokens",
            vec![
                invalid("a token without a signature", unsigned),
                invalid("a token with the claims of an administrator", changed),
                invalid("a token with a key of its own in the header", keyed(embedded)),
                invalid("a token whose key is a path", keyed(traversal)),
                invalid("a token that has expired", tokens.signed(json!({"exp": NOW - 61})).await),
                invalid("a token that is not valid yet", tokens.signed(json!({"nbf": NOW + 61})).await),
                invalid("a token for another audience", tokens.signed(json!({"aud": ["vault"]})).await),
                invalid(
                    "a token of another issuer",
                    tokens.signed(json!({"iss": "https://evil.example"})).await,
                ),
                invalid(
                    "a token with numbers as claims",
                    tokens.signed(json!({"aud": 7, "exp": "later"})).await,
                ),
            ],
        )
        .await;
}

#[tokio::test]
async fn a_token_has_the_permissions_of_its_account_alone() {
    let arena = Arena::start().await;
    let tokens = Tokens { arena: &arena };
    let token = tokens.again("robot", json!({})).await;
    let of_pod =
        |name| attack(name).by(Attacker::Token(token.clone(), "system:serviceaccount:default:robot"));
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    arena
        .run(
            "Tokens of pods",
            vec![
                of_pod("a pod lists the secrets of its namespace")
                    .get(SECRETS)
                    .forbidden("cannot list resource"),
                of_pod("a pod reads the secret beside it")
                    .get(format!("{SECRETS}/treasure"))
                    .forbidden("cannot get resource"),
                of_pod("a pod requests a token of its own account")
                    .post(format!("{ACCOUNTS}/robot/token"), json!({"spec": {}}))
                    .forbidden("serviceaccounts/token"),
                of_pod("a pod requests a token of another account")
                    .post(
                        format!("{NAMESPACES}/kube-system/serviceaccounts/default/token"),
                        json!({"spec": {}}),
                    )
                    .forbidden("serviceaccounts/token"),
                of_pod("a pod uses the groups of its token's owner")
                    .get(SECRETS)
                    .header("impersonate-user", "system:admin")
                    .header("impersonate-group", "system:masters")
                    .forbidden("cannot impersonate"),
                of_pod("a pod reviews a token")
                    .post(reviews, json!({"spec": {"token": token}}))
                    .forbidden("cannot create resource"),
                of_pod("a pod runs a command in the pod beside it")
                    .post(format!("{PODS}/there/exec?command=sh"), json!({}))
                    .forbidden("pods/exec"),
                of_pod("a pod changes its own security context")
                    .patch(format!("{PODS}/here"), json!({"spec": {"hostNetwork": true}}))
                    .forbidden("cannot patch resource"),
            ],
        )
        .await;
}
