use super::*;
use crate::adopt::report::Finding;
use serde_json::json;

/// A report about keys with JSON values, as the etcd of an upstream cluster has them.
fn report(records: &[(&str, serde_json::Value)]) -> Report {
    let records: Vec<_> = records.iter().map(|(key, json)| (*key, json.to_string().into_bytes())).collect();
    report_of(&records)
}

fn report_of(records: &[(&str, Vec<u8>)]) -> Report {
    let mut inspection = Inspection::new(&Names::kubernetes());
    for (key, value) in records {
        let value = Bytes::from(value.clone());
        let record = SnapshotRecord {
            revision: Revision(1),
            key: (*key).into(),
            value: value.clone(),
            at: 0,
            expires_at: key.starts_with("/registry/events/").then_some(3600),
        };
        let plain = match value.starts_with(b"k8s:enc:") {
            true => Err("no key".to_owned()),
            false => Ok(value),
        };
        inspection.add(&record, plain);
    }
    inspection.finish(Revision(7))
}

/// The subjects of the one finding with this severity and a part of its text.
fn subjects(report: &Report, severity: Severity, part: &str) -> Vec<String> {
    let fits = |it: &&Finding| it.severity == severity && it.text.contains(part);
    let found: Vec<_> = report.findings.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{part}: {}", report.text());
    found[0].subjects.iter().cloned().collect()
}

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

#[test]
fn an_etcd_that_is_served_as_before_is_clean() {
    let event =
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}});
    let report = report(&[
        ("/registry/configmaps/default/a", config_map("a")),
        ("/registry/configmaps/default/b", config_map("b")),
        ("/registry/events/default/e", event),
        ("/registry/masterleases/10.0.0.1", json!({})),
    ]);
    assert!(report.is_clean(), "{}", report.text());
    assert_eq!(report.resources["configmaps"].versions["v1"], 2);
    assert_eq!(report.resources["events"].expiring, 1);
    assert_eq!(
        subjects(&report, Severity::Note, "addresses of API servers"),
        ["/registry/masterleases/10.0.0.1"]
    );
    assert!(report.text().contains("configmaps: 2 of v1\n"), "{}", report.text());
    assert_eq!(report.json()["clean"], true);
}

#[test]
fn values_that_keep_a_server_from_starting_are_listed() {
    let report = report_of(&[
        ("/registry/secrets/default/s", b"k8s:enc:aescbc:v1:key1:xxxx".to_vec()),
        ("/registry/pods/default/p", b"\x01\x02".to_vec()),
        ("/registry/configmaps/default/c", br#"{"apiVersion":"v1","kind":"ConfigMap","data":[]}"#.to_vec()),
    ]);
    assert!(!report.is_clean());
    let encrypted = subjects(&report, Severity::Blocks, "the provider aescbc with the key \"key1\"");
    assert_eq!(encrypted, ["/registry/secrets/default/s: no key"]);
    assert_eq!(subjects(&report, Severity::Blocks, "cannot be decoded").len(), 2);
}

#[test]
fn differences_are_listed() {
    let deployment = |version: &str| {
        json!({"apiVersion": version, "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
            "spec": {"future": 1, "selector": {}, "template": {}}})
    };
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.com"}, "spec": {"group": "example.com", "versions": [{"name": "v2"}]}});
    let webhook = |service: &str| json!({"name": "w", "clientConfig": {"service": {"namespace": "default", "name": service}}});
    let webhooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"}, "webhooks": [webhook("absent"), webhook("present")]});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "present", "namespace": "default"}, "spec": {}});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"awsElasticBlockStore": {"volumeID": "x"}, "persistentVolumeReclaimPolicy": "Recycle"}});
    let report = report(&[
        ("/registry/podsecuritypolicy/privileged", json!({})),
        ("/registry/deployments/default/d", deployment("apps/v1")),
        ("/registry/deployments/default/e", deployment("apps/v7")),
        ("/registry/example.com/widgets/w", widget.clone()),
        ("/registry/example.com/gears/w", widget),
        ("/registry/apiextensions.k8s.io/customresourcedefinitions/gears.example.com", definition),
        ("/registry/validatingwebhookconfigurations/hooks", webhooks),
        ("/registry/services/specs/default/present", service),
        ("/registry/persistentvolumes/v", volume),
    ]);
    let differs = |part: &str| subjects(&report, Severity::Differs, part);
    assert_eq!(differs("keys of no kind"), ["/registry/podsecuritypolicy/privileged"]);
    assert_eq!(differs("spec.future").len(), 2);
    assert_eq!(differs("unknown version \"apps/v7\""), ["/registry/deployments/default/e"]);
    assert_eq!(differs("without their definition widgets.example.com"), ["/registry/example.com/widgets/w"]);
    assert_eq!(differs("which gears.example.com does not have"), ["/registry/example.com/gears/w"]);
    assert_eq!(differs("the kind awsElasticBlockStore"), ["persistentvolumes v"]);
    assert_eq!(differs("the policy Recycle"), ["persistentvolumes v"]);
    assert!(subjects(&report, Severity::Note, "must reach its pods")[0].ends_with("hooks: default/present"));
    let absent = subjects(&report, Severity::Note, "service which does not exist");
    assert!(absent[0].ends_with("hooks: default/absent"));
    let defaults = subjects(&report, Severity::Note, "spec.progressDeadlineSeconds gets its default");
    assert_eq!(defaults, ["/registry/deployments/default/d"]);
}

#[test]
fn flags_of_a_kubeadm_cluster_are_flags_of_the_commands() {
    let configuration =
        "networking: {serviceSubnet: 10.96.0.0/12, podSubnet: 10.244.0.0/16, dnsDomain: corp.local}";
    let mut map = config_map("kubeadm-config");
    map["metadata"]["namespace"] = "kube-system".into();
    map["data"] = json!({ "ClusterConfiguration": configuration });
    let report = report(&[("/registry/configmaps/kube-system/kubeadm-config", map)]);
    assert!(report.is_clean(), "{}", report.text());
    for (command, expected) in
        [("apiserver", "/etc/kubernetes/pki/sa.key"), ("controller-manager", "10.244.0.0/16")]
    {
        let flags = report.flags.iter().filter(|it| it.command == command);
        let line: Vec<&str> = flags.flat_map(|it| it.flag.split(' ')).collect();
        assert!(line.contains(&expected), "{line:?}");
        // the files do not exist here, so that only the flags themselves are read
        let line = ["pintle", command].into_iter().chain(line).map(Into::into);
        let read = crate::cli::Cli::read(line, |_| Vec::new());
        assert!(read.is_ok(), "{:?}", read.err());
    }
}
