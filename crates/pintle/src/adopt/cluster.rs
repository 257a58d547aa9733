//! Facts about the cluster: servers that still run, who made it, and the flags that its servers need.

use super::references::shown;
use super::report::{Findings, Severity, SuggestedFlag};
use schema::{Value, yaml};
use std::collections::{BTreeMap, BTreeSet};

/// Where kubeadm keeps certificates, unless its configuration says otherwise.
const KUBEADM_PKI: &str = "/etc/kubernetes/pki";

/// Certificates and keys, as kubeadm names them, and the flags that take them.
const FILES: &[(&str, &str, &str, &str)] = &[
    ("apiserver", "--service-account-key-file", "sa.pub", "tokens of service accounts stay valid"),
    ("apiserver", "--service-account-signing-key-file", "sa.key", "new tokens are those of the same cluster"),
    ("apiserver", "--client-ca-file", "ca.crt", "certificates of administrators and kubelets stay valid"),
    ("apiserver", "--tls-cert-file", "apiserver.crt", "kubeconfig files of the cluster trust the server"),
    ("apiserver", "--tls-private-key-file", "apiserver.key", "its key"),
    (
        "apiserver",
        "--requestheader-client-ca-file",
        "front-proxy-ca.crt",
        "extension servers trust the server",
    ),
    ("apiserver", "--proxy-client-cert-file", "front-proxy-client.crt", "the certificate that it shows them"),
    ("apiserver", "--proxy-client-key-file", "front-proxy-client.key", "its key"),
    (
        "apiserver",
        "--kubelet-client-certificate",
        "apiserver-kubelet-client.crt",
        "logs and commands of pods",
    ),
    ("apiserver", "--kubelet-client-key", "apiserver-kubelet-client.key", "its key"),
    (
        "controller-manager",
        "--cluster-signing-cert-file",
        "ca.crt",
        "kubelets get certificates of the same authority",
    ),
    ("controller-manager", "--cluster-signing-key-file", "ca.key", "its key"),
    ("controller-manager", "--root-ca-file", "ca.crt", "pods trust the server"),
    ("controller-manager", "--service-account-private-key-file", "sa.key", "tokens in secrets"),
];

/// See the module.
#[derive(Default)]
pub struct ClusterFacts {
    /// Keys of servers by what they are, and whether the etcd removes them.
    server_keys: BTreeMap<&'static str, BTreeSet<String>>,
    /// The ClusterConfiguration of kubeadm.
    kubeadm: Option<Value>,
    /// The address of the service `kubernetes`.
    service_address: String,
    /// Whether the DNS service has pods of its own.
    has_dns: bool,
    /// Components of the cluster that Pintle brings, too.
    components: BTreeSet<String>,
    /// Leases with holders.
    leaders: BTreeSet<String>,
    /// Secrets with tokens of service accounts.
    tokens: u64,
}

impl ClusterFacts {
    pub fn see_server_key(&mut self, key: &str, what: &'static str, is_expiring: bool) {
        let suffix = if is_expiring { " (with a TTL)" } else { "" };
        self.server_keys.entry(what).or_default().insert(format!("{key}{suffix}"));
    }

    pub fn see(&mut self, resource: &str, object: &Value) {
        let (namespace, name) = (object.text(&["metadata", "namespace"]), object.text(&["metadata", "name"]));
        match (resource, namespace, name) {
            ("configmaps", "kube-system", "kubeadm-config") => {
                let text = object.text(&["data", "ClusterConfiguration"]);
                let parsed = yaml::parse(text.as_bytes(), yaml::Limits::default());
                self.kubeadm = Some(parsed.map(|it| it.value).unwrap_or(Value::Null));
            }
            ("services", "default", "kubernetes") => {
                self.service_address = object.text(&["spec", "clusterIP"]).to_owned();
            }
            ("services", "kube-system", "kube-dns") => {
                self.has_dns = object.at(&["spec", "selector"]).is_some();
            }
            (_, "kube-system", "kube-controller-manager" | "kube-scheduler")
                if resource.starts_with("leases.") =>
            {
                let holder = object.text(&["spec", "holderIdentity"]);
                if !holder.is_empty() {
                    self.leaders.insert(format!("{}: {holder}", shown(resource, object)));
                }
            }
            ("daemonsets.apps", "kube-system", "kube-proxy") => {
                self.components
                    .insert(format!("{} (left out with --components, or deleted)", shown(resource, object)));
            }
            ("pods", "kube-system", _)
                if object.at(&["metadata", "annotations", names::node::CONFIG_MIRROR]).is_some() =>
            {
                self.components.insert(format!("{} (a static pod: stop it)", shown(resource, object)));
            }
            ("secrets", ..) if object.text(&["type"]).ends_with("/service-account-token") => self.tokens += 1,
            _ => {}
        }
    }

    /// The flags that servers need, each with a reason.
    pub fn finish(self, findings: &mut Findings) -> Vec<SuggestedFlag> {
        for (what, keys) in &self.server_keys {
            keys.iter()
                .for_each(|key| findings.add(Severity::Note, format!("{what}, which are no objects"), key));
        }
        for leader in &self.leaders {
            let text = "leases of components: one that runs keeps Pintle's waiting, or stop it";
            findings.add(Severity::Note, text, leader.as_str());
        }
        for component in &self.components {
            findings.add(
                Severity::Note,
                "components of the cluster that Pintle brings, too",
                component.as_str(),
            );
        }
        if self.has_dns {
            let text = "the DNS service has pods of its own: Pintle's DNS is not announced";
            findings.add(Severity::Note, text, "services kube-system/kube-dns");
        }
        self.flags()
    }

    fn flags(&self) -> Vec<SuggestedFlag> {
        let kubeadm = self.kubeadm.as_ref();
        let text = |path: &[&str]| kubeadm.map(|it| it.text(path)).unwrap_or_default();
        let mut flags = Vec::new();
        let mut add = |command: &'static str, flag: String, why: &str| {
            flags.push(SuggestedFlag { command, flag, why: why.to_owned() });
        };
        match (text(&["networking", "serviceSubnet"]), &*self.service_address) {
            ("", "") => {}
            ("", address) => {
                let why = format!("the range of the cluster, whose first address is {address}");
                add("apiserver", "--service-cluster-ip-range CIDR".to_owned(), &why);
            }
            (subnet, _) => {
                add("apiserver", format!("--service-cluster-ip-range {subnet}"), "the range of the cluster")
            }
        }
        if kubeadm.is_none() && self.tokens == 0 {
            return flags;
        }
        let pki = match text(&["certificatesDir"]) {
            "" if kubeadm.is_none() => "DIR",
            "" => KUBEADM_PKI,
            given => given,
        };
        let domain =
            Some(text(&["networking", "dnsDomain"])).filter(|it| !it.is_empty()).unwrap_or("cluster.local");
        add(
            "apiserver",
            format!("--service-account-issuer https://kubernetes.default.svc.{domain}"),
            "the issuer in the tokens; compare with the flag of the cluster's API server",
        );
        for &(command, flag, file, why) in FILES {
            add(command, format!("{flag} {pki}/{file}"), why);
        }
        let pods = text(&["networking", "podSubnet"]);
        if !pods.is_empty() {
            add(
                "controller-manager",
                "--allocate-node-cidrs".to_owned(),
                "new nodes get ranges of pod addresses",
            );
            add("controller-manager", format!("--cluster-cidr {pods}"), "the ranges of nodes are from here");
        }
        flags
    }
}
