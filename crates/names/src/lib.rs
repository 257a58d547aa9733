//! The well-known names of the API.
//!
//! No other code spells a domain: groups, signers, annotations, labels and media types are built here from the
//! server's dialect.

pub mod labels;
pub mod load_balancers;
pub mod local_volumes;
pub mod node;
pub mod simulation;
pub mod streams;

use std::borrow::Cow;

/// The dialect: how the names of the specification are spelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Suffix of API groups: `k8s.io`.
    pub api_domain: Cow<'static, str>,
    /// Suffix of signers, labels and annotations: `kubernetes.io`.
    pub well_known_domain: Cow<'static, str>,
    /// In media types and schema extensions: `kubernetes`.
    pub vendor: Cow<'static, str>,
    /// The prefix of component names: `kube`.
    pub prefix: Cow<'static, str>,
    /// The name of the node agent: `kubelet`.
    pub agent: Cow<'static, str>,
}

/// The scheme of an OpenAPI package, as upstream's errors name it, down to the source line.
pub fn scheme(package: &str) -> &'static str {
    match package.split('.').next() {
        Some("apiextensions-apiserver") => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        Some("kube-aggregator") => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// The scheme of custom resources, which upstream's errors leave empty.
pub const DEFINED_SCHEME: &str = "k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:722";

/// The scheme of request options, like [`scheme`].
pub const SCHEME_OF_OPTIONS: &str = "pkg/runtime/scheme.go:100";

/// Versions that are no longer served, by the first word of their group: errors distinguish them from versions that
/// never existed.
const RETIRED: &[(&str, &[&str])] = &[
    ("admissionregistration", &["v1alpha1", "v1beta1"]),
    ("apiextensions", &["v1beta1"]),
    ("apiregistration", &["v1beta1"]),
    ("apps", &["v1beta1", "v1beta2"]),
    ("authentication", &["v1beta1", "v1alpha1"]),
    ("authorization", &["v1beta1"]),
    ("autoscaling", &["v2beta1", "v2beta2"]),
    ("batch", &["v1beta1"]),
    ("certificates", &["v1beta1"]),
    ("coordination", &["v1beta1"]),
    ("discovery", &["v1beta1"]),
    ("events", &["v1beta1"]),
    ("flowcontrol", &["v1alpha1", "v1beta1"]),
    ("networking", &["v1beta1", "v1alpha1"]),
    ("node", &["v1alpha1", "v1beta1"]),
    ("policy", &["v1beta1"]),
    ("rbac", &["v1alpha1", "v1beta1"]),
    ("scheduling", &["v1alpha1", "v1beta1"]),
    ("storage", &["v1alpha1", "v1beta1"]),
];

/// Kinds that moved to another group and are still accepted in the old one: the old version, by the first word of its
/// group, the first word of the group, and the kinds.
const MOVED: &[(&str, &str, &[&str])] = &[
    ("extensions/v1beta1", "apps", &["DaemonSet", "Deployment", "ReplicaSet"]),
    ("extensions/v1beta1", "networking", &["Ingress", "NetworkPolicy"]),
    ("extensions/v1beta1", "autoscaling", &["Scale"]),
    ("apps/v1beta1", "autoscaling", &["Scale"]),
    ("apps/v1beta2", "autoscaling", &["Scale"]),
    ("events/v1", "", &["Event"]),
    ("events/v1beta1", "", &["Event"]),
    ("v1", "events", &["Event"]),
];

/// Whether a version of a kind once took the place of `expected`, or is its twin in another group.
pub fn is_retired(version: &str, expected: &str, kind: &str) -> bool {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let word = |group: &str| group.split('.').next().unwrap_or_default().to_owned();
    let (from, to) = (group(version), group(expected));
    let short = version.rsplit('/').next().unwrap_or_default();
    let retired = RETIRED.iter().any(|(name, versions)| *name == word(&from) && versions.contains(&short));
    let old = if from.is_empty() { version.to_owned() } else { format!("{}/{short}", word(&from)) };
    let moved =
        MOVED.iter().any(|(there, here, kinds)| *there == old && *here == word(&to) && kinds.contains(&kind));
    from == to && retired || from != to && moved
}

impl Default for Names {
    fn default() -> Self {
        Names::kubernetes()
    }
}

impl Names {
    /// The names that all existing clients expect.
    pub const fn kubernetes() -> Self {
        Names {
            api_domain: Cow::Borrowed("k8s.io"),
            well_known_domain: Cow::Borrowed("kubernetes.io"),
            vendor: Cow::Borrowed("kubernetes"),
            prefix: Cow::Borrowed("kube"),
            agent: Cow::Borrowed("kubelet"),
        }
    }

    /// The specification under another domain and vendor.
    pub fn neutral(api_domain: &str, vendor: &str) -> Self {
        Names {
            api_domain: Cow::Owned(api_domain.to_owned()),
            well_known_domain: Cow::Owned(api_domain.to_owned()),
            vendor: Cow::Owned(vendor.to_owned()),
            prefix: Cow::Borrowed("cluster"),
            agent: Cow::Borrowed("nodeagent"),
        }
    }

    /// An API group below the domain: `node` gives `node.k8s.io`.
    pub fn group(&self, stem: &str) -> String {
        format!("{stem}.{}", self.api_domain)
    }

    /// A label, annotation or signer name: `kubernetes.io/<name>`.
    pub fn well_known(&self, name: &str) -> String {
        format!("{}/{name}", self.well_known_domain)
    }

    /// A label, annotation or type below a subdomain: `node.kubernetes.io/<name>`.
    pub fn well_known_under(&self, subdomain: &str, name: &str) -> String {
        // built many times per write, so without `format!`
        [subdomain, ".", &self.well_known_domain, "/", name].concat()
    }

    /// Whether a text equals that name, without allocating it.
    pub fn is_well_known_under(&self, text: &str, subdomain: &str, name: &str) -> bool {
        let parts = [subdomain, ".", &self.well_known_domain, "/", name];
        parts.iter().try_fold(text, |rest, part| rest.strip_prefix(part)) == Some("")
    }

    /// The signer of client certificates for this server: `kubernetes.io/kube-apiserver-client`.
    pub fn client_signer(&self) -> String {
        self.well_known(&format!("{}-apiserver-client", self.prefix))
    }

    /// The signer of kubelet client certificates: `kubernetes.io/kube-apiserver-client-kubelet`.
    pub fn agent_client_signer(&self) -> String {
        format!("{}-{}", self.client_signer(), self.agent)
    }

    /// The signer of kubelet serving certificates: `kubernetes.io/kubelet-serving`.
    pub fn agent_serving_signer(&self) -> String {
        self.well_known(&format!("{}-serving", self.agent))
    }

    /// The signer of requests from before signers had names.
    pub fn legacy_signer(&self) -> String {
        self.well_known("legacy-unknown")
    }

    /// The type of service account token secrets.
    pub fn account_token_type(&self) -> String {
        self.well_known("service-account-token")
    }

    /// The type of bootstrap token secrets.
    pub fn bootstrap_token_type(&self) -> String {
        self.well_known_under("bootstrap", "token")
    }

    /// The config map with the API server's CA: `kube-root-ca.crt`.
    pub fn root_authority_map(&self) -> String {
        format!("{}-root-ca.crt", self.prefix)
    }

    /// The well-known signer of a name, in this dialect's spelling. The specification's spelling means the same
    /// signer.
    pub fn signer(&self, name: &str) -> Option<String> {
        let (domain, path) = name.split_once('/')?;
        if domain != self.well_known_domain && domain != self.api_domain {
            return None;
        }
        let client = path.strip_prefix(&*self.prefix).or_else(|| path.strip_prefix("cluster"));
        let agent = [&*self.agent, "nodeagent"];
        if let Some(rest) = client.and_then(|path| path.strip_prefix("-apiserver-client")) {
            let of_agents = rest.strip_prefix('-').is_some_and(|rest| agent.contains(&rest));
            return match rest {
                "" => Some(self.client_signer()),
                _ => of_agents.then(|| self.agent_client_signer()),
            };
        }
        let serving = path.strip_suffix("-serving").is_some_and(|path| agent.contains(&path));
        serving.then(|| self.agent_serving_signer())
    }

    /// `application/vnd.kubernetes.protobuf`.
    pub fn protobuf_media_type(&self) -> String {
        format!("application/vnd.{}.protobuf", self.vendor)
    }

    /// `meta.k8s.io`, the group of tables and partial metadata.
    pub fn meta_group(&self) -> String {
        self.group("meta")
    }

    /// The system namespace: `kube-system`.
    pub fn system_namespace(&self) -> String {
        format!("{}-system", self.prefix)
    }

    /// The namespace that all users may read: `kube-public`.
    pub fn public_namespace(&self) -> String {
        format!("{}-public", self.prefix)
    }

    /// The namespace of node leases: `kube-node-lease`.
    pub fn node_lease_namespace(&self) -> String {
        format!("{}-node-lease", self.prefix)
    }

    /// The default issuer and audience of service account tokens.
    pub fn token_issuer(&self) -> String {
        format!("https://{}.{DEFAULT_NAMESPACE}.svc", self.vendor)
    }

    /// The prefix of schema extensions: `x-kubernetes-`.
    pub fn extension_prefix(&self) -> String {
        format!("x-{}-", self.vendor)
    }

    /// The domain as type names spell it: `io.k8s`.
    pub fn reversed_api_domain(&self) -> String {
        let mut parts: Vec<_> = self.api_domain.split('.').collect();
        parts.reverse();
        parts.join(".")
    }

    /// The prefix of encrypted values in the store: `k8s:enc:`.
    pub fn sealed_prefix(&self) -> String {
        format!("{}:enc:", self.api_domain.split('.').next().unwrap_or_default())
    }

    /// The finalizer in the spec of namespaces.
    pub fn namespace_finalizer(&self) -> &str {
        &self.vendor
    }
}

/// The name of a feature gate, which the specification may spell without the product's name.
pub fn feature_gate(name: &str) -> &str {
    match name {
        "RotateServerCertificate" => "RotateKubeletServerCertificate",
        name => name,
    }
}

/// The namespace that exists from the start and is the default.
pub const DEFAULT_NAMESPACE: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signers_have_two_spellings() {
        let names = Names::default();
        let check = |name: &str, expected: &str| {
            assert_eq!(names.signer(name).unwrap_or_default(), expected, "{name}");
        };
        let client = "kubernetes.io/kube-apiserver-client";
        check(client, client);
        check("kubernetes.io/cluster-apiserver-client", client);
        check("k8s.io/cluster-apiserver-client", client);
        check("k8s.io/cluster-apiserver-client-nodeagent", "kubernetes.io/kube-apiserver-client-kubelet");
        check("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kube-apiserver-client-kubelet");
        check("kubernetes.io/nodeagent-serving", "kubernetes.io/kubelet-serving");
        check("kubernetes.io/legacy-unknown", "");
        check("example.com/kube-apiserver-client", "");
        check("kubernetes.io/kube-apiserver-client-x", "");
        let names = Names::neutral("acme.example", "acme");
        assert_eq!(names.signer("acme.example/nodeagent-serving").unwrap(), "acme.example/nodeagent-serving");
    }

    #[test]
    fn the_default_dialect_is_kubernetes() {
        let names = Names::default();
        assert_eq!(names.group("node"), "node.k8s.io");
        assert_eq!(names.well_known_under("node", "not-ready"), "node.kubernetes.io/not-ready");
        assert_eq!(names.protobuf_media_type(), "application/vnd.kubernetes.protobuf");
        assert_eq!(names.reversed_api_domain(), "io.k8s");
        assert_eq!(names.system_namespace(), "kube-system");
        assert_eq!(names.sealed_prefix(), "k8s:enc:");
    }

    #[test]
    fn the_neutral_dialect_is_the_specification() {
        let names = Names::neutral("acme.example", "acme");
        assert_eq!(names.group("node"), "node.acme.example");
        assert_eq!(names.well_known("cluster-apiserver-client"), "acme.example/cluster-apiserver-client");
        assert_eq!(names.system_namespace(), "cluster-system");
        assert_eq!(names.reversed_api_domain(), "example.acme");
    }
}
