//! Volumes of in-tree plugins.

use super::*;

/// Makes the driver of a plugin that attaches nothing.
fn set_migrated_driver(fixture: &Fixture, name: &str) {
    fixture.drivers.insert(name, fixture.driver.clone());
    let json = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"volumeLifecycleModes":["Persistent"],"attachRequired":false}}}}"#
    );
    fixture.storage.drivers.lock().insert(name.to_owned(), object(&json));
}

#[tokio::test]
async fn volumes_of_in_tree_plugins_are_mounted_by_their_drivers() {
    let fixture = Fixture::new();
    let (google, azure) = (InTreePlugin::GcePd.driver(), InTreePlugin::AzureDisk.driver());
    set_migrated_driver(&fixture, google);
    set_migrated_driver(&fixture, azure);
    fixture.set_volume("", "");
    let volume: PersistentVolume = object(
        r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"uid":"cu"},"accessModes":["ReadWriteMany"],
            "gcePersistentDisk":{"pdName":"d","fsType":"ext4"}}}"#,
    );
    fixture.objects.volumes.lock().insert("pv".to_owned(), volume);
    fixture.mount(&claim_pod("u1")).await.unwrap();
    let handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d";
    assert_eq!(fixture.driver.take_calls(), [format!("stage {handle}"), format!("publish {handle}")]);
    assert_eq!(fixture.driver.stage_requests.lock()[0].volume_context["partition"], "");

    // the name of a disk in a pod has the form of a path
    let own =
        pod_of("u2", r#"{"name":"v","azureDisk":{"diskName":"d","diskURI":"/disks/d","kind":"Managed"}}"#);
    let mounts = fixture.mount(&own).await.unwrap();
    assert_eq!(mounts["v"].host_path, fixture.path("pods/u2/volumes/kubernetes.io~csi/~disks~d/mount"));
    assert_eq!(fixture.driver.take_calls(), ["stage /disks/d", "publish /disks/d"]);
    for uid in ["u1", "u2"] {
        fixture.volumes.remove_pod(uid).await.unwrap();
    }
    fixture.check_empty();
    assert_eq!(fixture.driver.take_calls().len(), 4, "both are unpublished and unstaged");

    let shared = pod_of("u3", r#"{"name":"v","azureDisk":{"diskName":"d","diskURI":"/d","kind":"Shared"}}"#);
    let errors = fixture.mount(&shared).await.unwrap_err();
    assert!(errors.iter().all(|it| !it.contains("no volume plugin matched")), "{errors:?}");
    // a plugin without its feature gate has no driver
    fixture.mount(&pod_of("u4", r#"{"name":"v","rbd":{"monitors":["m"],"image":"i"}}"#)).await.unwrap_err();
    assert_eq!(fixture.driver.take_calls(), Vec::<String>::new());
}
