//! The server under attack, its users and objects, and the check of a case.

use super::{
    ACCOUNTS, CONFIGMAPS, NAMESPACES, NODES, PODS, RBAC, SECRETS, cluster_role, inventory, pod, user,
};
use apiserver::audit::{Format, LogOptions, Mode, Options as Audit, Policy, Rotation, Target};
use apiserver::authentication::jose::{PublicKey, Signer};
use apiserver::authentication::{self, ServiceAccounts};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use names::Names;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tests::{Cluster, Options, Payload, Protocol, TestUser, authority, soon};

/// The text of every secret; no response and no audit event has it.
pub const TREASURE: &str = "treasure-1f6a9c";
pub const ISSUER: &str = "https://kubernetes.default.svc";
const RSA: &str = include_str!("../../../crates/apiserver/src/authentication/jose/tests/rsa.pem");
const RSA_PUBLIC: &str = include_str!("../../../crates/apiserver/src/authentication/jose/tests/rsa.pub.pem");

/// The sender of a request, with the permissions of [`Arena::with`].
#[derive(Clone)]
pub enum Attacker {
    Anonymous,
    /// An authenticated user without roles.
    Stranger,
    /// Reads config maps and pods of `default`.
    Reader,
    /// Does everything within `default`.
    Owner,
    /// Writes roles, bindings and signing requests everywhere.
    RoleWriter,
    /// Impersonates the user `alice`, the group `dev`, the uid `1` and the scope `view`.
    Impersonator,
    /// Uses the proxies of pods, services and nodes, and reads logs.
    ProxyUser,
    /// The node agent of `n`.
    Node,
    /// The holder of a token, and the user name in audit events.
    Token(String, &'static str),
    /// The holder of a certificate that is not accepted.
    Certificate(tests::Pair),
}

impl Attacker {
    pub fn test_user(&self) -> TestUser {
        let group = if matches!(self, Attacker::Node) { "system:nodes" } else { "people" };
        match self {
            Attacker::Anonymous | Attacker::Token(..) => TestUser::Anonymous,
            Attacker::Certificate(pair) => TestUser::Certificate(pair.clone()),
            other => TestUser::Certificate(authority().client(other.name(), group)),
        }
    }

    /// The user name in audit events.
    fn name(&self) -> &'static str {
        match self {
            Attacker::Anonymous => "system:anonymous",
            Attacker::Stranger => "stranger",
            Attacker::Reader => "reader",
            Attacker::Owner => "owner",
            Attacker::RoleWriter => "role-writer",
            Attacker::Impersonator => "impersonator",
            Attacker::ProxyUser => "proxy-user",
            Attacker::Node => "system:node:n",
            Attacker::Token(_, name) => name,
            Attacker::Certificate(_) => "",
        }
    }
}

/// A case.
pub struct Attack {
    pub name: &'static str,
    attacker: Attacker,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Payload>,
    code: u16,
    /// The reason of the `Status`; empty for a response without one.
    reason: &'static str,
    /// A part of the message.
    message: &'static str,
}

/// A case by its name, of an anonymous user at first.
pub fn attack(name: &'static str) -> Attack {
    Attack {
        name,
        attacker: Attacker::Anonymous,
        method: Method::GET,
        path: String::new(),
        headers: Vec::new(),
        body: None,
        code: 0,
        reason: "",
        message: "",
    }
}

impl Attack {
    pub fn by(self, attacker: Attacker) -> Self {
        Attack { attacker, ..self }
    }

    pub fn send(self, method: Method, path: impl Into<String>) -> Self {
        Attack { method, path: path.into(), ..self }
    }

    pub fn get(self, path: impl Into<String>) -> Self {
        self.send(Method::GET, path)
    }

    pub fn delete(self, path: impl Into<String>) -> Self {
        self.send(Method::DELETE, path)
    }

    pub fn post(self, path: impl Into<String>, body: impl Into<Payload>) -> Self {
        self.send(Method::POST, path).body(body)
    }

    pub fn put(self, path: impl Into<String>, body: impl Into<Payload>) -> Self {
        self.send(Method::PUT, path).body(body)
    }

    /// A merge patch.
    pub fn patch(self, path: impl Into<String>, body: Value) -> Self {
        self.send(Method::PATCH, path).body(body).header("content-type", "application/merge-patch+json")
    }

    pub fn body(self, body: impl Into<Payload>) -> Self {
        Attack { body: Some(body.into()), ..self }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The expected response: a `Status` with this reason, or another body if it is empty.
    pub fn refused(self, code: u16, reason: &'static str, message: &'static str) -> Self {
        Attack { code, reason, message, ..self }
    }

    pub fn forbidden(self, message: &'static str) -> Self {
        self.refused(403, "Forbidden", message)
    }
}

/// See the module.
pub struct Arena {
    pub cluster: Cluster,
    folder: TempDir,
    signer: Signer,
    /// The number of requests so far.
    sent: AtomicUsize,
}

impl Arena {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        let log = LogOptions {
            target: Target::File(folder.path().join("log")),
            format: Format::Json,
            rotation: Rotation::default(),
            mode: Mode::Blocking,
            truncate: None,
        };
        let policy = Some(Policy::parse(text, &Names::default()).unwrap());
        let own = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
        let service_accounts = ServiceAccounts {
            signer: Some(own),
            keys: PublicKey::all_from_pem(RSA_PUBLIC.as_bytes()).unwrap(),
            issuers: vec![ISSUER.to_owned()],
            ..Default::default()
        };
        let mut options = Options {
            audit: Audit { policy, log: Some(log), webhook: None },
            authentication: authentication::Options { service_accounts, ..Default::default() },
            authorization: apiserver::authorization::Options {
                modes: vec![auth::Mode::Node, auth::Mode::Rbac],
                ..Default::default()
            },
            ..Options::plugins(&["NodeRestriction"], &[], &[])
        };
        // without writes by the server itself, every new revision is an attacker's
        options.fairness.on = false;
        change(&mut options);
        let cluster = Cluster::with(options).await;
        let arena = Arena {
            cluster,
            folder,
            signer: Signer::from_pem(RSA.as_bytes()).unwrap(),
            sent: AtomicUsize::new(0),
        };
        arena.create_objects().await;
        arena.create_roles().await;
        arena
    }

    async fn create_objects(&self) {
        let cluster = &self.cluster;
        cluster.named(NAMESPACES, "other").await;
        for namespace in ["default", "other", "kube-system"] {
            let secret = json!({"metadata": {"name": "treasure"}, "stringData": {"key": TREASURE}});
            cluster.create(&format!("{NAMESPACES}/{namespace}/secrets"), secret).await;
            cluster.named(&format!("{NAMESPACES}/{namespace}/configmaps"), "settings").await;
        }
        for name in ["robot", "idle"] {
            cluster.named(ACCOUNTS, name).await;
        }
        for (name, node) in [("here", "n"), ("there", "m")] {
            cluster.named(NODES, node).await;
            cluster.create(PODS, pod(name, node)).await;
        }
    }

    async fn create_roles(&self) {
        let rule = |groups: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [groups], "resources": resources, "verbs": verbs});
        let named = |mut rule: Value, names: &[&str]| {
            rule["resourceNames"] = json!(names);
            rule
        };
        let reads = &["get", "list", "watch"];
        let identity = "authentication.k8s.io";
        let roles = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
        let requests = ["certificatesigningrequests", "certificatesigningrequests/approval"];
        let proxies = ["pods/proxy", "services/proxy", "nodes/proxy", "pods/log", "pods/exec"];
        let writes = &["get", "create", "update", "patch"];
        for (user_name, namespace, rules) in [
            ("reader", "default", json!([rule("", &["configmaps", "pods"], reads)])),
            ("owner", "default", json!([rule("*", &["*"], &["*"])])),
            (
                "role-writer",
                "",
                json!([
                    rule("rbac.authorization.k8s.io", &roles, writes),
                    rule("certificates.k8s.io", &requests, writes),
                    named(rule("rbac.authorization.k8s.io", &["clusterroles"], &["bind"]), &["view"]),
                ]),
            ),
            (
                "impersonator",
                "",
                json!([
                    named(rule("", &["users"], &["impersonate"]), &["alice"]),
                    named(rule("", &["groups"], &["impersonate"]), &["dev"]),
                    named(rule(identity, &["uids"], &["impersonate"]), &["1"]),
                    named(rule(identity, &["userextras/scopes"], &["impersonate"]), &["view"]),
                ]),
            ),
            ("proxy-user", "", json!([rule("", &proxies, &["get", "create"])])),
        ] {
            let (role_kind, prefix) = match namespace {
                "" => ("ClusterRole", RBAC.to_owned()),
                namespace => ("Role", format!("{RBAC}/namespaces/{namespace}")),
            };
            let (roles, bindings) = match namespace {
                "" => ("clusterroles", "clusterrolebindings"),
                _ => ("roles", "rolebindings"),
            };
            let role = json!({"metadata": {"name": user_name}, "rules": rules});
            self.cluster.create(&format!("{prefix}/{roles}"), role).await;
            let mut role_ref = cluster_role(user_name);
            role_ref["kind"] = json!(role_kind);
            let binding =
                json!({"metadata": {"name": user_name}, "roleRef": role_ref, "subjects": user(user_name)});
            self.cluster.create(&format!("{prefix}/{bindings}"), binding).await;
        }
        // the last binding counts: so do those before it
        let proxied = || self.cluster.get(&format!("{PODS}/none/log")).user(&Attacker::ProxyUser.test_user());
        soon("the roles count", async {
            while proxied().await.status == 403 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// A token with these claims, signed by a key that the server trusts.
    pub fn sign(&self, claims: &Value) -> String {
        let claims = schema::decode::json_untyped(claims.to_string().as_bytes()).unwrap().value;
        self.signer.sign(&claims).unwrap()
    }

    /// The audit log.
    pub fn audit_log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn audit_event(&self, id: &str) -> Option<Value> {
        let log = self.audit_log();
        let mut events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.rfind(|event| event["auditID"] == id)
    }

    pub async fn revision(&self) -> String {
        let list = self.cluster.read(CONFIGMAPS).await;
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// Checks that the administrator reads and writes.
    pub async fn is_answering(&self) {
        for _ in 0..5 {
            let patch = json!({"metadata": {"annotations": {"seen": self.revision().await}}});
            self.cluster.patch(&format!("{NODES}/m"), patch).await.code(200);
        }
        self.cluster.answers().await;
    }

    /// Checks that nothing is under way and that the administrator is served.
    pub async fn is_unharmed(&self) {
        soon("the end of all requests", async {
            while self.cluster.server.service.in_flight.total() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let secret = self.cluster.read(&format!("{SECRETS}/treasure")).await;
        assert_eq!(secret["data"]["key"], STANDARD.encode(TREASURE));
        self.cluster.answers().await;
    }

    /// Runs the cases of a section one after another; fails with all that were not refused as expected.
    pub async fn run(&self, title: &str, attacks: Vec<Attack>) {
        let names: Vec<&str> = attacks.iter().map(|it| it.name).collect();
        let (before, count) = (self.revision().await, attacks.len());
        let mut wrong = Vec::new();
        for attack in attacks {
            let name = attack.name;
            if let Err(why) = self.check(attack).await {
                wrong.push(format!("{name}: {why}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {count} attacks:\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(self.revision().await, before, "a refused attack has written");
        self.is_unharmed().await;
        inventory::check(title, &names);
    }

    async fn check(&self, attack: Attack) -> Result<(), String> {
        let id = format!("attack-{}", self.sent.fetch_add(1, Ordering::Relaxed));
        let mut request = self.cluster.request(attack.method.clone(), &attack.path);
        request = request.user(&attack.attacker.test_user()).protocol(Protocol::Http1);
        if let Some(body) = attack.body {
            request = request.body(body);
        }
        if let Attacker::Token(token, _) = &attack.attacker {
            request = request.header("authorization", &format!("Bearer {token}"));
        }
        let (own, others): (Vec<_>, Vec<_>) =
            attack.headers.iter().partition(|(name, _)| *name == "content-type");
        for (name, value) in own {
            request = request.header(name, value);
        }
        for (name, value) in others {
            request = request.and_header(name, value);
        }
        let response = request.header("audit-id", &id).await;
        let text = response.text();
        if text.contains(TREASURE) || text.contains(&STANDARD.encode(TREASURE)) {
            return Err(format!("the response has the secret: {text}"));
        }
        let reason = match attack.reason {
            "" => "",
            _ => &*serde_json::from_str::<Value>(&text).unwrap_or_default()["reason"]
                .to_string()
                .replace('"', ""),
        };
        if (response.status, reason) != (attack.code, attack.reason) || !text.contains(attack.message) {
            return Err(format!("{} {text}", response.status));
        }
        let Some(event) = self.audit_event(&id) else { return Err("no audit event".to_owned()) };
        let name = if attack.code == 401 { "" } else { attack.attacker.name() };
        let recorded =
            (event["responseStatus"]["code"].as_u64(), event["user"]["username"].as_str().unwrap_or(""));
        if recorded != (Some(u64::from(attack.code)), name) {
            return Err(format!("the audit event is {event}"));
        }
        Ok(())
    }
}
