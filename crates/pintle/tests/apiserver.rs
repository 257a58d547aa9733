//! The API server as a component of its own, as a real process: with what it is given it needs nothing else, and a wrong
//! command line starts nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use outbound::{Credentials, HttpClient, Limits, Target};
use store_etcd::testing::FakeEtcd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pintle");

/// A process, which does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // gone already is as good
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits until it says that it is ready.
fn start(program: &Path, arguments: &[String]) -> Running {
    start_command(Command::new(program).args(arguments))
}

/// The same for a program with an environment of its own.
fn start_command(command: &mut Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let message = BufReader::new(child.stdout.take().unwrap()).lines().next();
    let running = Running(child);
    let message = message.expect("it ended at once").unwrap();
    assert!(message.contains("is ready on https://"), "{message}");
    running
}

/// A port that was free a moment ago: the component does not choose one by itself.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The files of a server that is set up by flags: an authority, its certificates, and a key for tokens.
struct ServerFiles {
    folder: tempfile::TempDir,
}

impl ServerFiles {
    fn new() -> Self {
        let given = ServerFiles { folder: tempfile::tempdir().unwrap() };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "given-ca");
        given.write("ca.crt", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for (name, organization, usage) in [
            ("server", "servers", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", "system:masters", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            params.distinguished_name.push(DnType::CommonName, name);
            params.distinguished_name.push(DnType::OrganizationName, organization);
            given.write(&format!("{name}.crt"), &params.signed_by(&key, &issuer).unwrap().pem());
            given.write(&format!("{name}.key"), &key.serialize_pem());
        }
        given.write("sa.key", &KeyPair::generate().unwrap().serialize_pem());
        given
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn caller(&self, port: u16) -> HttpClient {
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: '{}'}}}}],
             users: [{{name: u, user: {{client-certificate: '{}', client-key: '{}'}}}}]}}",
            self.path("ca.crt"),
            self.path("client.crt"),
            self.path("client.key"),
        );
        self.write("kubeconfig", &config);
        let limits = Limits { time: Duration::from_secs(60), answer: 16 << 20 };
        HttpClient::from_kubeconfig(Path::new(&self.path("kubeconfig")), limits).unwrap()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn given_certificates_need_no_data_directory() {
    let (given, port) = (ServerFiles::new(), free_port());
    let data = given.folder.path().join("data");
    let link = given.folder.path().join("kube-apiserver");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let arguments = words(&format!(
        "--bind-address=127.0.0.1 --secure-port={port} --data-dir={} --tls-cert-file={} --tls-private-key-file={} \
         --client-ca-file={} --service-account-signing-key-file={} --service-account-key-file={} \
         --service-account-issuer=https://issuer.example --authorization-mode=Node,RBAC --feature-gates=AllAlpha=true \
         --runtime-config=api/alpha --profiling=false --watch-cache-sizes=pods#100 --event-ttl=30m \
         --advertise-address=127.0.0.1 --allow-privileged=true --enable-admission-plugins=NodeRestriction \
         --enable-bootstrap-token-auth=true --kubelet-client-certificate={} --kubelet-client-key={} \
         --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file={} \
         --proxy-client-key-file={} --requestheader-allowed-names=front-proxy-client \
         --requestheader-client-ca-file={} --requestheader-extra-headers-prefix=X-Remote-Extra- \
         --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User \
         --service-cluster-ip-range=10.96.0.0/12",
        data.display(),
        given.path("server.crt"),
        given.path("server.key"),
        given.path("ca.crt"),
        given.path("sa.key"),
        given.path("sa.key"),
        given.path("client.crt"),
        given.path("client.key"),
        given.path("client.crt"),
        given.path("client.key"),
        given.path("ca.crt"),
    ));
    let running = start(&link, &arguments);
    let caller = given.caller(port);
    let answer = caller.get("/api/v1/namespaces/default").await.unwrap();
    assert_eq!(answer.status, 200);
    let issuer = caller.get("/.well-known/openid-configuration").await.unwrap();
    assert!(String::from_utf8_lossy(&issuer.body).contains("https://issuer.example"));
    assert_eq!(caller.get("/apis/authentication.k8s.io/v1alpha1").await.unwrap().status, 200);
    // it made no other files
    assert!(!data.join("pki").exists() && !data.join("admin.kubeconfig").exists());
    drop(running);
}

#[tokio::test]
async fn missing_certificates_are_created() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let certificates = folder.path().join("certificates");
    let arguments = words(&format!(
        "apiserver --bind-address 127.0.0.1 --secure-port {port} --data-dir {} --cert-dir {}",
        folder.path().display(),
        certificates.display(),
    ));
    let program = PathBuf::from(PROGRAM);
    let running = start(&program, &arguments);
    let limits = Limits { time: Duration::from_secs(60), answer: 16 << 20 };
    let config = folder.path().join("admin.kubeconfig");
    let caller = HttpClient::from_kubeconfig(&config, limits).unwrap();
    assert_eq!(caller.get("/api/v1/namespaces/default").await.unwrap().status, 200);
    let made = std::fs::read(certificates.join("apiserver.crt")).unwrap();
    drop(running);
    // the next start finds it there
    let running = start(&program, &arguments);
    let caller = HttpClient::from_kubeconfig(&config, limits).unwrap();
    assert_eq!(caller.get("/healthz").await.unwrap().status, 200);
    assert_eq!(std::fs::read(certificates.join("apiserver.crt")).unwrap(), made);
    drop(running);
}

/// Starts a server on an etcd, in a folder that stands for a machine where nothing else is.
fn start_on_etcd(etcd: &FakeEtcd, given: &ServerFiles, port: u16, folder: &Path) -> Running {
    let arguments = words(&format!(
        "--etcd-servers={} --bind-address=127.0.0.1 --secure-port={port} --cert-dir={} --client-ca-file={} \
         --service-account-signing-key-file={} --service-account-key-file={} \
         --service-account-issuer=https://issuer.example --authorization-mode=RBAC",
        etcd.targets()[0].url,
        folder.join("certificates").display(),
        given.path("ca.crt"),
        given.path("sa.key"),
        given.path("sa.key"),
    ));
    let link = folder.join("kube-apiserver");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let mut command = Command::new(&link);
    command.env_remove("HOME").env_remove("XDG_DATA_HOME").env("TMPDIR", folder).current_dir(folder);
    start_command(command.args(arguments))
}

/// Every file below a folder.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path()).iter().map(|below| format!("{name}/{below}"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_an_etcd_need_no_home_directory() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let given = ServerFiles::new();
    let mut running = Vec::new();
    for name in ["one", "two"] {
        let (folder, port) = (given.folder.path().join(name), free_port());
        std::fs::create_dir(&folder).unwrap();
        let server = tokio::task::block_in_place(|| start_on_etcd(&etcd, &given, port, &folder));
        running.push(server);
        // the expected files exist, and no others
        let expected = ["certificates/apiserver.crt", "certificates/apiserver.key", "kube-apiserver"];
        assert_eq!(files_below(&folder), expected);
    }
    assert!(etcd.get("/registry/configmaps/kube-system/cluster-keys").is_some());
}

#[tokio::test]
async fn every_client_can_read_the_kubeconfig_that_is_there_once_the_server_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = words(&format!("up --secure-port 0 --data-dir {}", folder.path().display()));
    let running = start(Path::new(PROGRAM), &arguments);
    let file = folder.path().join("admin.kubeconfig");
    let text = std::fs::read_to_string(&file).unwrap();
    let target = Target::from_kubeconfig(&file).unwrap();
    // a token, since some clients take no keys but RSA's
    assert!(matches!(target.credentials, Credentials::Bearer(_)) && target.identity.is_none(), "{text}");
    let limits = Limits { time: Duration::from_secs(60), answer: 16 << 20 };
    let asks = |target: &Target| HttpClient::new(target, limits).unwrap();
    assert_eq!(asks(&target).get("/api/v1/secrets").await.unwrap().status, 200);
    let component = asks(&target).get("/api/v1/componentstatuses/controller-manager").await.unwrap();
    let component = String::from_utf8_lossy(&component.body).into_owned();
    assert!(component.contains(r#""status":"True""#), "{component}");
    // the same user by its certificate
    let certificate = text.replace("current-context: pintle", "current-context: pintle-certificate");
    std::fs::write(folder.path().join("by-certificate"), certificate).unwrap();
    let certificate = Target::from_kubeconfig(&folder.path().join("by-certificate")).unwrap();
    assert!(certificate.identity.is_some());
    assert_eq!(asks(&certificate).get("/api/v1/secrets").await.unwrap().status, 200);
    drop(running);
    // it outlives the server
    let running = start(Path::new(PROGRAM), &arguments);
    let again = Target::from_kubeconfig(&file).unwrap();
    let (Credentials::Bearer(before), Credentials::Bearer(after)) = (&target.credentials, &again.credentials)
    else {
        panic!("no tokens");
    };
    assert_eq!(before, after);
    drop(running);
}

/// An egress proxy at a socket that reports destinations and connects to none.
fn proxy(path: &str) -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let listener = tokio::net::UnixListener::bind(path).unwrap();
    let (tell, message) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut line = String::new();
            let _ = tokio::io::BufReader::new(&mut stream).read_line(&mut line).await;
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
            let _ = tell.send(line.split(' ').nth(1).unwrap_or("").to_owned());
        }
    });
    message
}

#[tokio::test]
async fn egress_follows_the_selector_configuration() {
    let (given, port) = (ServerFiles::new(), free_port());
    let mut destinations = proxy(&given.path("proxy.sock"));
    let hook = |name: &str| {
        let config = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k}}}}], \
             clusters: [{{name: k, cluster: {{server: 'https://{name}.behind.example/x'}}}}]}}"
        );
        given.write(name, &config);
        given.path(name)
    };
    let egress = format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n\
         - name: controlplane\n  connection: {{proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: '{}'}}}}}}\n",
        given.path("proxy.sock")
    );
    given.write("egress.yaml", &egress);
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: ['system:anonymous']}]\n";
    given.write("policy.yaml", policy);
    let arguments = words(&format!(
        "apiserver --bind-address=127.0.0.1 --secure-port={port} --data-dir={} --tls-cert-file={} \
         --tls-private-key-file={} --client-ca-file={} --service-account-signing-key-file={} \
         --service-account-issuer=https://issuer.example --egress-selector-config-file={} \
         --authentication-token-webhook-config-file={} --authorization-mode=RBAC,Webhook \
         --authorization-webhook-config-file={} --audit-policy-file={} --audit-webhook-config-file={} \
         --audit-webhook-batch-max-wait=10ms",
        given.path("data"),
        given.path("server.crt"),
        given.path("server.key"),
        given.path("ca.crt"),
        given.path("sa.key"),
        given.path("egress.yaml"),
        hook("tokens"),
        hook("permission"),
        given.path("policy.yaml"),
        hook("audit"),
    ));
    let running = start(Path::new(PROGRAM), &arguments);
    given.caller(port);
    let admin = Target::from_kubeconfig(Path::new(&given.path("kubeconfig"))).unwrap();
    let limits = Limits { time: Duration::from_secs(60), answer: 16 << 20 };
    let anonymous = Target { identity: None, ..admin };
    let unknown = Target { credentials: Credentials::Bearer("x".to_owned()), ..anonymous.clone() };
    let answer = HttpClient::new(&unknown, limits).unwrap().get("/api/v1/pods").await.unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(destinations.recv().await.unwrap(), "tokens.behind.example:443");
    let answer = HttpClient::new(&anonymous, limits).unwrap().get("/api/v1/pods").await.unwrap();
    // the authorization webhook could not be called
    assert_eq!(answer.status, 500);
    let mut next = Vec::new();
    while !next.iter().any(|it| it == "permission.behind.example:443")
        || !next.iter().any(|it| it == "audit.behind.example:443")
    {
        next.push(destinations.recv().await.unwrap());
    }
    drop(running);
}

/// The output lines and the exit code of an invalid command line.
fn refused(line: &str) -> (Vec<String>, i32) {
    let output = Command::new(PROGRAM).args(line.split_whitespace()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    (message.lines().map(str::to_owned).collect(), output.status.code().unwrap())
}

#[test]
fn an_invalid_command_line_reports_all_errors_and_exits() {
    let (message, code) = refused("apiserver --nope=1 --secure-port=x --request-timeout=soon");
    assert_eq!((message.len(), code), (3, 2), "{message:#?}");
    assert!(message.iter().all(|line| line.starts_with("pintle: ")), "{message:#?}");
    let (message, code) =
        refused("apiserver --ephemeral --secure-port=0 --etcd-servers=ftp://10.0.0.1 --feature-gates=X=true");
    assert_eq!((message.len(), code), (3, 1), "{message:#?}");
    for (line, part) in message.iter().zip([
        "--etcd-servers: \"ftp://10.0.0.1\" is not",
        "--secure-port: must be",
        "unrecognized feature gate: X",
    ]) {
        assert!(line.contains(part), "{part}: {message:#?}");
    }
}
