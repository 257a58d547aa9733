//! The way of a volume to pods: attached, staged, published.

use super::*;

#[tokio::test]
async fn a_volume_for_one_pod_is_kept_from_a_second_one() {
    let fixture = Fixture::new();
    fixture.set_volume_of("ReadWriteOncePod", "", "");
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture
        .fail(
            &claim_pod("u2"),
            "FailedMount: MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and \
             is already in use by another pod",
        )
        .await;
    // the same pod may mount it again, and another one after it
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture.volumes.remove_pod("u1").await.unwrap();
    fixture.mount(&claim_pod("u2")).await.unwrap();
    // it stays staged for the pod that waits
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unpublish h", "publish h"]);
}

#[tokio::test]
async fn a_volume_is_staged_once_and_published_to_each_pod() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","mountOptions":["noatime"]"#, r#","fsType":"ext4","volumeAttributes":{"a":"b"}"#);
    let mounts = fixture.mount(&claim_pod("u1")).await.unwrap();
    let target = "pods/u1/volumes/kubernetes.io~csi/pv/mount";
    assert_eq!(mounts["v"].host_path, fixture.path(target));
    assert!(mounts["v"].is_managed && !mounts["v"].is_readonly && !mounts["v"].is_block);
    let global = format!("plugins/kubernetes.io/csi/{DRIVER}/{DIGEST}");
    assert_eq!(fixture.mounts(), [format!("{global}/globalmount"), target.to_owned()]);
    assert_eq!(
        fixture.read(&format!("{global}/vol_data.json")),
        format!("{{\"driverName\":\"{DRIVER}\",\"volumeHandle\":\"h\"}}\n")
    );
    let attachment = VolumeId { driver: DRIVER.to_owned(), handle: "h".to_owned() }.attachment("n1");
    assert_eq!(
        fixture.read("pods/u1/volumes/kubernetes.io~csi/pv/vol_data.json"),
        format!(
            "{{\"attachmentID\":\"{attachment}\",\"driverName\":\"{DRIVER}\",\"nodeName\":\"n1\",\"specVolID\":\"pv\",\
             \"volumeHandle\":\"h\",\"volumeLifecycleMode\":\"Persistent\"}}\n"
        )
    );
    let request = fixture.driver.stage_requests.lock().remove(0);
    assert_eq!(request.staging_target_path, fixture.path(&format!("{global}/globalmount")).to_str().unwrap());
    assert_eq!(request.volume_context, [("a".to_owned(), "b".to_owned())].into());
    let capability = format!("{:?}", request.volume_capability.unwrap());
    assert!(capability.contains("ext4") && capability.contains("noatime"), "{capability}");
    fixture.mount(&claim_pod("u2")).await.unwrap();
    // mounted volumes cause no calls
    fixture.mount(&claim_pod("u1")).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "publish h"]);
    fixture.volumes.unmount_all("u1").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h"]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h", "unstage h"]);
    fixture.volumes.remove_pod("u1").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_driver_that_registers_again_stages_again() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u1")).await.unwrap();
    // it knows nothing of the volume
    let restarted = TestDriver::new(fixture.filesystem.mounts.clone());
    fixture.drivers.insert(DRIVER, restarted.clone());
    fixture.mount(&claim_pod("u2")).await.unwrap();
    fixture.mount(&claim_pod("u3")).await.unwrap();
    assert_eq!(restarted.take_calls(), ["stage h", "publish h", "publish h"]);
}

#[tokio::test]
async fn a_driver_that_does_not_stage_publishes_at_once() {
    let fixture = Fixture::new();
    *fixture.driver.capabilities.lock() = Capabilities::default();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    assert_eq!(fixture.driver.publish_requests.lock()[0].staging_target_path, "");
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["publish h", "unpublish h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn a_volume_waits_until_it_is_attached() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let (pod, name) = (claim_pod("u"), format!("kubernetes.io/csi/{DRIVER}^h"));
    let waits = async || assert_eq!(fixture.mount(&pod).await.unwrap_err(), Vec::<String>::new());
    waits().await;
    // the node must have said that it uses the volume
    assert_eq!(*fixture.in_use.lock(), [&*name]);
    let set_node = |status: &str| {
        let node = object(&format!(r#"{{"metadata":{{"name":"n1"}},"status":{{{status}}}}}"#));
        *fixture.storage.node.lock() = Some(Arc::new(node));
        fixture.csi.waiters.node_changed();
    };
    set_node(&format!(r#""volumesAttached":[{{"name":"{name}","devicePath":""}}]"#));
    assert_eq!(*fixture.woken.lock(), ["u"]);
    waits().await;
    set_node(&format!(
        r#""volumesInUse":["{name}"],"volumesAttached":[{{"name":"{name}","devicePath":""}}]"#
    ));
    let attachment = VolumeId { driver: DRIVER.to_owned(), handle: "h".to_owned() }.attachment("n1");
    let failed = "FailedMount: MountVolume.WaitForAttach failed for volume \"pv\" : ";
    let missing = format!(
        "{failed}volume h has GET error for volume attachment {attachment}: volumeattachments.storage.k8s.io \
         \"{attachment}\" not found"
    );
    fixture.fail(&pod, &missing).await;
    let set_attachment = |status: &str| {
        let json = format!(r#"{{"metadata":{{"name":"a"}},"status":{{{status}}}}}"#);
        fixture.storage.attachments.lock().insert(attachment.clone(), object(&json));
    };
    set_attachment(r#""attached":false"#);
    waits().await;
    set_attachment(r#""attached":false,"attachError":{"message":"no such disk"}"#);
    fixture.fail(&pod, &format!("{failed}no such disk")).await;
    set_attachment(r#""attached":true,"attachmentMetadata":{"device":"/dev/x"}"#);
    fixture.mount(&pod).await.unwrap();
    let context = [("device".to_owned(), "/dev/x".to_owned())].into();
    assert_eq!(fixture.driver.stage_requests.lock()[0].publish_context, context);
    assert_eq!(fixture.driver.publish_requests.lock()[0].publish_context, context);
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(fixture.in_use.lock().is_empty());
    fixture.check_empty();
}

#[tokio::test]
async fn a_pod_that_waits_for_an_attachment_may_end() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let pod = claim_pod("u");
    assert_eq!(fixture.mount(&pod).await.unwrap_err(), Vec::<String>::new());
    fixture.clock.advance(Duration::from_secs(124));
    let late = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]: timed out \
                waiting for the condition";
    fixture.fail(&pod, late).await;
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(fixture.in_use.lock().is_empty());
    assert_eq!(fixture.driver.take_calls(), Vec::<String>::new());
    fixture.check_empty();
}

#[tokio::test]
async fn nodes_that_cannot_reach_a_volume_do_not_mount_it() {
    let fixture = Fixture::new();
    let affinity = r#","nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":
        [{"key":"zone","operator":"In","values":["a"]}]}]}}"#;
    fixture.set_volume(affinity, "");
    let set_zone = |zone: &str| {
        let json = format!(r#"{{"metadata":{{"name":"n1","labels":{{"zone":"{zone}"}}}}}}"#);
        *fixture.storage.node.lock() = Some(Arc::new(object(&json)));
    };
    set_zone("b");
    let expected = "FailedMount: MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    fixture.fail(&claim_pod("u"), expected).await;
    set_zone("a");
    fixture.mount(&claim_pod("u")).await.unwrap();
}

#[tokio::test]
async fn a_controller_must_attach() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let options = CsiOptions {
        root: fixture.path(""),
        node_name: "n1".to_owned(),
        plugin_name: "kubernetes.io/csi".to_owned(),
        filesystem: fixture.filesystem.clone(),
        objects: fixture.objects.clone(),
        api: fixture.storage.clone(),
        drivers: fixture.drivers.clone(),
        world: fixture.clock.clone(),
        has_controlled_attach: false,
        has_expand_secrets: false,
        has_one_pod_volumes: true,
        migrated: Default::default(),
    };
    let csi = CsiVolumes::new(options);
    let (volume, claim) = (
        fixture.objects.volumes.lock()["pv"].clone(),
        fixture.objects.claims.lock()[&("n".to_owned(), "c".to_owned())].clone(),
    );
    let volume = CsiVolume::bound("v", volume, claim, false).unwrap();
    let Err(MountError::Failed(note)) = csi.mount(&claim_pod("u"), volume).await else {
        panic!("it was attached")
    };
    assert_eq!(note.reason, "FailedAttachVolume");
    assert_eq!(
        note.message,
        "AttachVolume.Attach failed for volume \"pv\" : attaching volumes from the kubelet is not supported"
    );
}
