//! The certificates of a node agent: the first one, its renewal, and that of its HTTP API.

use client::Api;
use controllers::csrsigning::{self, authority::Source};
use controllers::registry;
use env::{Simulated, World};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use names::Names;
use nodeagent::assembly::{ClientConnection, Parts, connect};
use nodeagent::configuration::{Flags, Loaded, load};
use nodeagent::file_watch::FileWatch;
use nodeagent::identity::{
    CertificateRotation, CertificateStore, CertificateTemplate, Purpose, RotationOptions, RotationState,
};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tests::{ManagedCluster, NOW, Options, Pair, authority, soon, until};
use tokio::sync::watch;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const TOKEN: &str = "abcdef.0123456789abcdef";
const APPROVERS: &str = "system:certificates.k8s.io:certificatesigningrequests";
const DAY: Duration = Duration::from_secs(86_400);

/// A cluster that approves and signs the certificates of nodes, with a token for new ones.
async fn managed() -> ManagedCluster {
    let Pair { certificate, key } = authority().pair();
    let signing = csrsigning::Options::signed_by(Source::Held { certificate, key });
    let options = registry::Options {
        controllers: ["csrapproving", "csrsigning"].map(str::to_owned).to_vec(),
        csr_signing: csrsigning::Options { max_duration: DAY * 10, ..signing },
        ..registry::Options::default()
    };
    let mut cluster = Options::default();
    cluster.authentication.bootstrap_tokens = true;
    let managed = ManagedCluster::with(cluster, options).await;
    let (id, secret) = TOKEN.split_once('.').unwrap();
    let token = json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"}});
    managed.cluster.create("/api/v1/namespaces/kube-system/secrets", token).await;
    for (name, role, group) in [
        ("a", "system:node-bootstrapper".to_owned(), "system:bootstrappers"),
        ("b", "system:node-bootstrapper".to_owned(), "system:nodes"),
        ("c", format!("{APPROVERS}:nodeclient"), "system:bootstrappers"),
        ("d", format!("{APPROVERS}:selfnodeclient"), "system:nodes"),
    ] {
        let group_name = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": group_name, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group_name, "kind": "Group", "name": group}]});
        managed.cluster.create(BINDINGS, binding).await;
    }
    managed
}

/// An agent of a node without a kubeconfig.
fn parts(managed: &ManagedCluster, folder: &Path, world: &World, more: &[&str]) -> Parts {
    let cluster = json!({"server": format!("https://{}", managed.cluster.address),
        "certificate-authority-data": base64(&authority().pem())});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}]});
    std::fs::write(folder.join("bootstrap.conf"), kubeconfig.to_string()).unwrap();
    let shown = |name: &str| folder.join(name).display().to_string();
    let mut arguments = vec![
        format!("--kubeconfig={}", shown("kubelet.conf")),
        format!("--bootstrap-kubeconfig={}", shown("bootstrap.conf")),
        format!("--cert-dir={}", shown("pki")),
    ];
    arguments.extend(more.iter().map(|it| (*it).to_owned()));
    let flags = Flags::parse(&arguments).unwrap();
    let Loaded { configuration, gates } = load(&flags, &[], &Names::kubernetes()).unwrap();
    Parts {
        configuration,
        gates,
        flags,
        names: Names::kubernetes(),
        world: world.clone(),
        keys: Arc::new(rcgen::KeyPair::generate),
        hostname: "n".to_owned(),
        home: None,
        registry: Arc::default(),
        clients: None,
        command_line: Vec::new(),
        supervisor: None,
        tracer: None,
        has_local_volumes: false,
        cni_plugin: None,
        set_verbosity: Arc::new(|_| Ok(())),
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The names of the files of certificates, without unfinished ones.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("pki")).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|it| !it.starts_with('.')).collect();
    names.sort();
    names
}

/// The user as which the server knows a client.
async fn user(connection: &client::Client) -> String {
    let error = Api::<api::core::v1::Namespace>::all(connection).get("x").await.unwrap_err();
    error.message()
}

const NODE_USER: &str = "User \"system:node:n\"";

/// Waits until the server knows a client as the node.
async fn until_node_user(connection: &client::Client) {
    // each turn is a request
    soon("the user of the node", async { while !user(connection).await.contains(NODE_USER) {} }).await;
}

async fn names_of_requests(managed: &ManagedCluster) -> Vec<String> {
    let list = managed.cluster.read(REQUESTS).await;
    let items = list["items"].as_array().unwrap();
    items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_node_agent_bootstraps_its_kubeconfig() {
    let managed = managed().await;
    let folder = tempfile::tempdir().unwrap();
    let world: World = Simulated::new(NOW, 3);
    let metrics = client::Metrics::new(Arc::default());
    let agent = parts(&managed, folder.path(), &world, &[]);
    let connection = soon("the certificate", connect(&agent, &metrics, "n")).await.unwrap();
    assert!(user(&connection.clients.api).await.contains(NODE_USER));
    assert_eq!(
        files(folder.path()),
        ["kubelet-client-2023-11-14-22-13-20.pem", "kubelet-client-current.pem"]
    );
    let requests = names_of_requests(&managed).await;
    assert!(requests.len() == 1 && requests[0].starts_with("node-csr-"), "{requests:?}");
    // with the kubeconfig that it wrote it starts again without a request
    std::fs::remove_file(folder.path().join("bootstrap.conf")).unwrap();
    let again = Parts { registry: Arc::default(), ..agent };
    let connection = soon("the connection", connect(&again, &metrics, "n")).await.unwrap();
    assert!(user(&connection.clients.api).await.contains(NODE_USER));
    assert_eq!(names_of_requests(&managed).await, requests);
}

#[tokio::test]
async fn a_node_agent_renews_its_certificate_before_it_ends() {
    let managed = managed().await;
    let folder = tempfile::tempdir().unwrap();
    let simulated = Simulated::new(NOW, 3);
    let world: World = simulated.clone();
    let metrics = client::Metrics::new(Arc::default());
    let agent = parts(&managed, folder.path(), &world, &["--rotate-certificates"]);
    let ClientConnection { clients, renewal } = connect(&agent, &metrics, "n").await.unwrap();
    // it has no certificate yet
    assert!(user(&clients.api).await.contains("system:anonymous"));
    std::fs::create_dir(folder.path().join("pki")).unwrap();
    let mut changes = FileWatch::new(&folder.path().join("pki")).unwrap();
    let mut until_files = async |count: usize| {
        let written = async {
            while files(folder.path()).len() < count {
                changes.changed().await.unwrap();
            }
        };
        soon("the certificate", written).await;
    };
    let running = tokio::spawn(renewal);
    until_files(2).await;
    until_node_user(&clients.api).await;
    // nothing is requested in the first two thirds of its life
    simulated.advance(DAY * 6);
    managed.cluster.advance(DAY * 6);
    until_node_user(&clients.api).await;
    assert_eq!(names_of_requests(&managed).await.len(), 1);
    simulated.advance(DAY * 3);
    managed.cluster.advance(DAY * 3);
    until_files(3).await;
    // the first certificate has ended, and its connections with it
    managed.cluster.advance(DAY * 2);
    until_node_user(&clients.api).await;
    assert_eq!(names_of_requests(&managed).await.len(), 2);
    assert_eq!(
        files(folder.path()),
        [
            "kubelet-client-2023-11-14-22-13-20.pem",
            "kubelet-client-2023-11-23-22-13-20.pem",
            "kubelet-client-current.pem"
        ]
    );
    let text = agent.registry.text();
    assert!(text.contains("kubelet_certificate_manager_client_expiration_renew_errors 0"), "{text}");
    assert!(text.contains("kubelet_certificate_manager_client_ttl_seconds "), "{text}");
    running.abort();
}

/// Approves the next request, as an administrator does.
async fn approve(managed: &ManagedCluster) {
    let api: kube::Api<CertificateSigningRequest> = kube::Api::all(managed.client());
    let is_pending = |it: &CertificateSigningRequest| {
        it.status.as_ref().is_none_or(|it| it.conditions.as_ref().is_none_or(Vec::is_empty))
    };
    let all = until("the request", &api, |all| all.values().any(is_pending)).await;
    for name in all.values().filter(|it| is_pending(it)).map(kube::ResourceExt::name_any) {
        let path = format!("{REQUESTS}/{name}");
        let mut request = managed.cluster.read(&path).await;
        request["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "x"}]);
        managed.cluster.put(&format!("{path}/approval"), request).await.code(200);
    }
}

#[tokio::test]
async fn the_serving_certificate_of_a_node_follows_its_addresses() {
    let managed = managed().await;
    let folder = tempfile::tempdir().unwrap();
    let world: World = Simulated::new(NOW, 3);
    let (templates, receiver) = watch::channel(None);
    let rotation = CertificateRotation::new(RotationOptions {
        store: CertificateStore::new(folder.path(), "kubelet-server", None),
        purpose: Purpose::Serving,
        signer: Purpose::Serving.signer(&Names::kubernetes()),
        template: receiver,
        client: managed.loop_client(),
        first_client: None,
        initial: None,
        world,
        keys: Arc::new(rcgen::KeyPair::generate),
        registry: Arc::default(),
    })
    .unwrap();
    let mut state: watch::Receiver<RotationState> = rotation.state();
    let running = tokio::spawn(rotation.run());
    let mut template = CertificateTemplate::of_node("n");
    template.names.insert("n".to_owned());
    for (nth, address) in ["10.0.0.1", "fd00::1", "10.0.0.2"].into_iter().enumerate() {
        template.addresses.insert(address.parse().unwrap());
        templates.send_replace(Some(template.clone()));
        approve(&managed).await;
        soon("the certificate", state.changed()).await.unwrap();
        let facts = state.borrow_and_update().current.as_ref().unwrap().facts.clone();
        assert_eq!((&facts.names, &facts.addresses), (&template.names, &template.addresses));
        assert_eq!(facts.common_name, "system:node:n");
        // a node that has fewer addresses keeps its certificate
        let fewer = CertificateTemplate { addresses: Default::default(), ..template.clone() };
        templates.send_replace(Some(fewer));
        assert_eq!(names_of_requests(&managed).await.len(), nth + 1);
    }
    let link = std::fs::read_link(folder.path().join("kubelet-server-current.pem")).unwrap();
    assert_eq!(link, folder.path().join("kubelet-server-2023-11-14-22-13-20.pem"));
    running.abort();
}
