//! What drivers get with a request, and the kinds of volumes.

use super::*;

#[tokio::test]
async fn secrets_reach_the_driver_at_stage_and_publish() {
    let fixture = Fixture::new();
    fixture.set_volume(
        "",
        r#","nodeStageSecretRef":{"name":"s","namespace":"x"},"nodePublishSecretRef":{"name":"p","namespace":"x"}"#,
    );
    let missing = |what: &str, operation: &str, name: &str| {
        format!(
            "FailedMount: {operation} failed for volume \"pv\" : fetching {what} x/{name} failed: kubernetes.io/csi: failed \
             to find the secret {name} in the namespace x with error: secret \"{name}\" not found"
        )
    };
    let pod = claim_pod("u");
    let errors = fixture.mount(&pod).await.unwrap_err();
    let expected = missing("NodeStageSecretRef", "MountVolume.MountDevice", "s");
    assert_eq!(errors[0].replace("secrets \"", "secret \""), expected);
    fixture.objects.secret(r#"{"metadata":{"name":"s","namespace":"x"},"data":{"k":"dmFsdWU="}}"#);
    let errors = fixture.mount(&pod).await.unwrap_err();
    let expected = missing("NodePublishSecretRef", "MountVolume.SetUp", "p");
    assert_eq!(errors[0].replace("secrets \"", "secret \""), expected);
    fixture.objects.secret(r#"{"metadata":{"name":"p","namespace":"x"},"data":{"k":"b3RoZXI="}}"#);
    fixture.mount(&pod).await.unwrap();
    assert_eq!(fixture.driver.stage_requests.lock()[0].secrets["k"], "value");
    assert_eq!(fixture.driver.publish_requests.lock()[0].secrets["k"], "other");
}

#[tokio::test]
async fn drivers_get_facts_and_tokens_of_the_pod_and_are_called_again() {
    let fixture = Fixture::new();
    set_driver(
        &fixture.storage,
        r#""attachRequired":false,"podInfoOnMount":true,"requiresRepublish":true,
            "tokenRequests":[{"audience":"gcp","expirationSeconds":3600},{"audience":""}]"#,
    );
    *fixture.objects.now.lock() = 1_700_000_000;
    let pod = pod_of(
        "u",
        r#"{"name":"v","csi":{"driver":"d.example.com","readOnly":true,"volumeAttributes":{"a":"b"}}}"#,
    );
    let mounts = fixture.mount(&pod).await.unwrap();
    assert!(mounts["v"].is_readonly && !mounts["v"].is_managed);
    let request = fixture.driver.publish_requests.lock()[0].clone();
    assert!(request.readonly && request.staging_target_path.is_empty());
    let context = &request.volume_context;
    let value = |key: &str| &*context[&format!("csi.storage.k8s.io/{key}")];
    assert_eq!(
        ["pod.name", "pod.namespace", "pod.uid", "serviceAccount.name", "ephemeral"].map(value),
        ["p-u", "n", "u", "sa", "true"]
    );
    assert_eq!(context["a"], "b");
    let tokens: serde_json::Value = serde_json::from_str(value("serviceAccount.tokens")).unwrap();
    let expected = serde_json::json!({
        "gcp": {"token": "token-1", "expirationTimestamp": "2023-11-14T23:13:20Z"},
        "": {"token": "token-2", "expirationTimestamp": "2023-11-14T23:13:20Z"}});
    assert_eq!(tokens, expected);
    // a minute later it is published again, with the same tokens
    assert_eq!(fixture.volumes.next_refresh("u"), Some(Duration::from_secs(60)));
    fixture.mount(&pod).await.unwrap();
    fixture.clock.advance(Duration::from_secs(60));
    fixture.mount(&pod).await.unwrap();
    let handle = request.volume_id.clone();
    assert_eq!(fixture.driver.take_calls(), [format!("publish {handle}"), format!("publish {handle}")]);
    // a failure then leaves the volume where it is, with an event
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.clock.advance(Duration::from_secs(60));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    assert_eq!(outcome.notes.len(), 1);
    assert_eq!(fixture.mounts().len(), 1);
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn inline_volumes_live_as_long_as_their_pods() {
    let fixture = Fixture::new();
    let pod = pod_of("u", r#"{"name":"v","csi":{"driver":"d.example.com","fsType":"xfs"}}"#);
    fixture.mount(&pod).await.unwrap();
    let data = fixture.read("pods/u/volumes/kubernetes.io~csi/v/vol_data.json");
    assert!(data.contains("\"volumeLifecycleMode\":\"Ephemeral\""), "{data}");
    let fixture = fixture.restart();
    assert!(fixture.in_use.lock().is_empty());
    fixture.volumes.remove_pod("u").await.unwrap();
    let calls = fixture.driver.take_calls();
    assert_eq!(
        calls.iter().map(|it| it.split(' ').next().unwrap()).collect::<Vec<_>>(),
        ["publish", "unpublish"]
    );
    fixture.check_empty();
    let only = object(&format!(
        r#"{{"metadata":{{"name":"{DRIVER}"}},"spec":{{"volumeLifecycleModes":["Persistent"]}}}}"#
    ));
    fixture.storage.drivers.lock().insert(DRIVER.to_owned(), only);
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
                    check volume lifecycle mode: volume mode \"Ephemeral\" not supported by driver d.example.com (only \
                    supports [\"Persistent\"])";
    fixture.fail(&pod, expected).await;
}

fn group_pod(group: u32) -> Pod {
    let mut pod = claim_pod("u");
    pod.spec.security_context = Some(object(&format!(r#"{{"fsGroup":{group}}}"#)));
    pod
}

#[tokio::test]
async fn files_get_the_group_of_the_pod_or_the_driver_sets_it() {
    use std::os::unix::fs::MetadataExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    for (sets_group, expected) in [(false, 0o2775), (true, 0o755)] {
        let fixture = Fixture::new();
        fixture.set_volume("", r#","fsType":"ext4""#);
        fixture.driver.capabilities.lock().sets_group = sets_group;
        // the group of the process, so that the test needs no privileges
        let group = std::fs::metadata(fixture.dir.path()).unwrap().gid();
        let mounts = fixture.mount(&group_pod(group)).await.unwrap();
        assert_eq!(mode(&mounts["v"].host_path), expected);
        let stage = format!("{:?}", fixture.driver.stage_requests.lock()[0].volume_capability);
        let publish = format!("{:?}", fixture.driver.publish_requests.lock()[0].volume_capability);
        let sent = format!("volume_mount_group: \"{group}\"");
        assert_eq!([stage.contains(&sent), publish.contains(&sent)], [sets_group; 2]);
    }
}

#[tokio::test]
async fn block_volumes_are_devices() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","volumeMode":"Block""#, "");
    let mounts = fixture.mount(&block_pod("u")).await.unwrap();
    let link = fixture.path("pods/u/volumeDevices/kubernetes.io~csi/pv");
    assert_eq!((&mounts["b"].host_path, mounts["b"].is_block), (&link, true));
    let devices = "plugins/kubernetes.io/csi/volumeDevices";
    assert_eq!(std::fs::read_link(&link).unwrap(), fixture.path(&format!("{devices}/publish/pv/u")));
    assert_eq!(fixture.mounts(), [format!("{devices}/pv/dev/u"), format!("{devices}/staging/pv")]);
    let data = fixture.read(&format!("{devices}/pv/data/vol_data.json"));
    assert!(data.contains("\"specVolID\":\"pv\"") && data.contains("\"nodeName\":\"n1\""), "{data}");
    // another agent finds the device and its pod
    let fixture = fixture.restart();
    assert_eq!(fixture.csi.users()["h"], ["u"]);
    fixture.mount(&block_pod("u")).await.unwrap();
    fixture.mount(&block_pod("u2")).await.unwrap();
    fixture.driver.take_calls();
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h", "unpublish h", "unstage h"]);
    fixture.check_empty();
    fixture.driver.set_fault("stage", Some(Fault::Fail(Code::Internal)));
    let failed = |operation: &str| {
        format!(
            "FailedMapVolume: {operation} failed for volume \"pv\" : rpc error: code = Internal desc = on fire"
        )
    };
    fixture.fail(&block_pod("u"), &failed("MapVolume.SetUpDevice")).await;
    assert_eq!(fixture.list(), Vec::<String>::new());
    fixture.driver.set_fault("stage", None);
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.fail(&block_pod("u"), &failed("MapVolume.MapPodDevice")).await;
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}
