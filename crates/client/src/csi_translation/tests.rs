use super::*;
use api::from_json;
use serde_json::{Value, json};

fn spec_of(volume: PersistentVolume) -> Value {
    let text = api::to_json(&volume);
    let whole: Value = serde_json::from_slice(&text).unwrap();
    json!({"name": whole["metadata"]["name"], "spec": whole["spec"]})
}

fn persistent(metadata: Value, spec: Value) -> Result<Value, String> {
    let volume = json!({"metadata": metadata, "spec": spec}).to_string();
    let volume: PersistentVolume = from_json(volume.as_bytes()).unwrap();
    translate(&volume).unwrap().map(|it| spec_of(it)["spec"].clone()).map_err(|why| why.to_string())
}

fn inline(volume: Value) -> Result<Value, String> {
    let volume: Volume = from_json(volume.to_string().as_bytes()).unwrap();
    translate_inline(&volume, "ns").unwrap().map(spec_of).map_err(|why| why.to_string())
}

fn zone(key: &str, values: &[&str]) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
}

#[test]
fn volumes_of_other_plugins_have_no_driver() {
    let volume: PersistentVolume = from_json(br#"{"spec":{"hostPath":{"path":"/x"}}}"#).unwrap();
    assert_eq!(translate(&volume), None);
    let volume: Volume = from_json(br#"{"name":"v","emptyDir":{}}"#).unwrap();
    assert_eq!(translate_inline(&volume, "ns"), None);
    let names: Vec<_> = InTreePlugin::ALL.iter().map(|it| (it.name(), it.driver())).collect();
    assert!(names.contains(&("kubernetes.io/portworx-volume", "pxd.portworx.com")));
}

#[test]
fn disks_of_amazon() {
    let disk = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "fsType": "ext4", "partition": 1}});
    let csi = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4",
        "volumeAttributes": {"partition": "1"}});
    let labels = json!({"labels": {"topology.kubernetes.io/zone": "us-east-1a"}});
    let translated = persistent(labels, disk("aws://us-east-1a/vol-1")).unwrap();
    assert_eq!(
        translated,
        json!({"csi": csi, "nodeAffinity": zone("topology.ebs.csi.aws.com/zone", &["us-east-1a"])})
    );
    assert_eq!(persistent(json!({}), disk("vol-1")).unwrap(), json!({"csi": csi}));
    assert_eq!(
        persistent(json!({}), disk("aws:///x")).unwrap_err(),
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws:///x)"
    );
    let translated =
        inline(json!({"name": "v", "awsElasticBlockStore": {"volumeID": "aws:///vol-1"}})).unwrap();
    assert_eq!(translated["name"], "ebs.csi.aws.com-vol-1");
    assert_eq!(translated["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(translated["spec"]["volumeMode"], "Filesystem");
}

#[test]
fn disks_of_google() {
    let handle = |labels: Value| {
        let spec = json!({"gcePersistentDisk": {"pdName": "d"}});
        persistent(json!({"labels": labels}), spec).map(|it| it["csi"]["volumeHandle"].clone())
    };
    assert_eq!(handle(json!({})).unwrap(), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    let zones = |key: &str, zones: &str| handle(json!({key: zones}));
    let beta = "failure-domain.beta.kubernetes.io/zone";
    assert_eq!(zones(beta, "us-a1-b").unwrap(), "projects/UNSPECIFIED/zones/us-a1-b/disks/d");
    assert_eq!(zones(beta, "us-a1-b__us-a1-c").unwrap(), "projects/UNSPECIFIED/regions/us-a1/disks/d");
    assert!(zones(beta, "us-a1-b__eu-a1-c").unwrap_err().contains("multiple or no regions"));
    assert!(zones(beta, "x__y").unwrap_err().contains("zone in unexpected format"));

    let modes = |modes: &[&str]| {
        let spec = json!({"gcePersistentDisk": {"pdName": "d"}, "accessModes": modes});
        persistent(json!({}), spec).unwrap()["accessModes"].clone()
    };
    assert_eq!(modes(&["ReadWriteMany"]), json!(["ReadWriteOnce"]));
    assert_eq!(modes(&["ReadOnlyMany"]), json!(["ReadOnlyMany"]));
    assert_eq!(modes(&["ReadOnlyMany", "ReadWriteOnce"]), json!(["ReadWriteOnce"]));

    // the zones of the affinity count, and the old names are replaced
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": beta, "operator": "In", "values": ["us-a1-b"]},
        {"key": "failure-domain.beta.kubernetes.io/region", "operator": "In", "values": ["us-a1"]}]}]}});
    let labels = json!({"labels": {"topology.kubernetes.io/zone": "us-z1-z"}});
    let spec = json!({"gcePersistentDisk": {"pdName": "d"}, "nodeAffinity": affinity});
    let expressions = &persistent(labels, spec).unwrap()["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
    let keys: Vec<_> =
        expressions["matchExpressions"].as_array().unwrap().iter().map(|it| &it["key"]).collect();
    assert_eq!(keys, ["topology.gke.io/zone", "topology.kubernetes.io/region"]);

    let translated =
        inline(json!({"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": true}})).unwrap();
    assert_eq!(translated["name"], "pd.csi.storage.gke.io-d");
    assert_eq!(translated["spec"]["accessModes"], json!(["ReadOnlyMany"]));
}

#[test]
fn disks_and_shares_of_azure() {
    let disk = json!({"diskName": "d", "diskURI": "/disks/d", "fsType": "ext4", "cachingMode": "None",
        "kind": "Managed", "readOnly": true});
    let csi = json!({"driver": "disk.csi.azure.com", "volumeHandle": "/disks/d", "readOnly": true, "fsType": "ext4",
        "volumeAttributes": {"kind": "Managed", "cachingmode": "None", "fstype": "ext4"}});
    assert_eq!(persistent(json!({}), json!({"azureDisk": disk})).unwrap(), json!({"csi": csi}));
    assert_eq!(inline(json!({"name": "v", "azureDisk": disk})).unwrap()["name"], "/disks/d");
    let shared = json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}});
    assert_eq!(persistent(json!({}), shared).unwrap_err(), "kind(Shared) is not supported in csi migration");

    let share = json!({"secretName": "azure-storage-account-acc-secret", "shareName": "s"});
    let csi = |handle: &str, namespace: &str| {
        json!({"driver": "file.csi.azure.com", "volumeHandle": handle, "volumeAttributes": {"sharename": "s"},
            "nodeStageSecretRef": {"name": "azure-storage-account-acc-secret", "namespace": namespace}})
    };
    let metadata = json!({"name": "pv", "annotations": {"kubernetes.io/azure-file-resource-group": "g"}});
    let claim = json!({"namespace": "c", "name": "x"});
    let translated = persistent(metadata, json!({"azureFile": share, "claimRef": claim})).unwrap();
    assert_eq!(translated["csi"], csi("g#acc#s#pv#c", "c"));
    assert_eq!(
        persistent(json!({}), json!({"azureFile": share})).unwrap_err(),
        "could not find a secret namespace in PersistentVolumeSource or ClaimRef"
    );
    let translated = inline(json!({"name": "v", "azureFile": share})).unwrap();
    assert_eq!(
        (&translated["name"], &translated["spec"]["csi"]),
        (&json!("#acc#s#v#ns"), &csi("#acc#s#v#ns", "ns"))
    );
    assert_eq!(translated["spec"]["accessModes"], json!(["ReadWriteMany"]));
}

#[test]
fn disks_of_other_providers() {
    let labels =
        json!({"labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}});
    let translated =
        persistent(labels.clone(), json!({"cinder": {"volumeID": "v", "readOnly": true}})).unwrap();
    let csi = json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "v", "readOnly": true});
    let affinity = zone("topology.cinder.csi.openstack.org/zone", &["z"]);
    assert_eq!(translated, json!({"csi": csi, "nodeAffinity": affinity}));

    let disk = json!({"volumePath": "[ds] a.vmdk", "fsType": "ext4", "storagePolicyName": "gold"});
    let translated = persistent(labels, json!({"vsphereVolume": disk})).unwrap();
    let csi = json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] a.vmdk", "fsType": "ext4",
        "volumeAttributes": {"storagepolicyname": "gold"}});
    assert_eq!(translated["csi"], csi);
    let expressions = &translated["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"];
    assert_eq!(expressions[0]["key"], "topology.csi.vmware.com/zone");
    assert_eq!(expressions[1]["key"], "topology.csi.vmware.com/region");

    let translated =
        inline(json!({"name": "v", "portworxVolume": {"volumeID": "p", "readOnly": true}})).unwrap();
    assert_eq!(translated["name"], "pxd.portworx.com-p");
    assert_eq!(translated["spec"]["csi"], json!({"driver": "pxd.portworx.com", "volumeHandle": "p"}));
    assert_eq!(translated["spec"]["accessModes"], json!(["ReadOnlyMany"]));
}

#[test]
fn images_of_ceph() {
    let image = json!({"monitors": ["10.70.53.126:6789"], "image": "kubernetes-dynamic-pvc-e4111eb6", "pool": "replicapool",
        "secretRef": {"name": "s", "namespace": "n"}});
    let csi = |metadata: Value| persistent(metadata, json!({"rbd": image})).unwrap()["csi"].clone();
    let plain = csi(json!({}));
    // the digest of the monitors, and the pool as hexadecimal digits
    assert_eq!(
        plain["volumeHandle"],
        "mig_mons-b7f67366bb43f32e07d8a261a7840da9_image-e4111eb6_7265706c696361706f6f6c"
    );
    let attributes = &plain["volumeAttributes"];
    assert_eq!(attributes["clusterID"], "b7f67366bb43f32e07d8a261a7840da9");
    assert_eq!(
        (&attributes["staticVolume"], &attributes["imageFeatures"]),
        (&json!("true"), &json!("layering"))
    );
    assert_eq!(plain["nodeStageSecretRef"], json!({"name": "s", "namespace": "n"}));
    let provisioned = csi(json!({"annotations": {"rbd.csi.ceph.com/volume-handle": "h", "clusterID": "c"}}));
    assert_eq!(
        (&provisioned["volumeHandle"], &provisioned["volumeAttributes"]["clusterID"]),
        (&json!("h"), &json!("c"))
    );
    assert_eq!(provisioned["volumeAttributes"].get("staticVolume"), None);
    let translated = inline(json!({"name": "v", "rbd": {"monitors": ["m"], "image": "i"}})).unwrap();
    assert_eq!(
        (&translated["name"], &translated["spec"]["csi"]["volumeAttributes"]["pool"]),
        (&json!("rbd.csi.ceph.com-i"), &json!("rbd"))
    );
}

/// Volumes, and what upstream's library made of them.
#[test]
fn translations_are_upstreams() {
    let mut different = Vec::new();
    for line in include_str!("translations.jsonl").lines() {
        let [given, expected]: [Value; 2] = serde_json::from_str(line).unwrap();
        let text = |name: &str| given[name].to_string();
        let translated = match given.get("volume") {
            Some(_) => translate(&from_json(text("volume").as_bytes()).unwrap()).unwrap(),
            None => translate_inline(&from_json(text("inline").as_bytes()).unwrap(), "ns").unwrap(),
        };
        let is_same = match (&translated, expected.get("error")) {
            // upstream lists the regions, too
            (Err(found), Some(error)) => error.as_str().unwrap().starts_with(&found.to_string()),
            (Ok(found), None) => spec_of(found.clone()) == expected,
            _ => false,
        };
        if !is_same {
            let found = translated.map(spec_of).map_err(|why| why.to_string());
            different.push(format!("{given}\n  upstream: {expected}\n  here: {found:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}
