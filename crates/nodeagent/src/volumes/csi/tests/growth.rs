//! Volumes that grow, and their usage.

use super::*;

#[tokio::test]
async fn volumes_grow_on_the_node() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","capacity":{"storage":"1Gi"}"#, "");
    let pod = claim_pod("u");
    fixture.mount(&pod).await.unwrap();
    assert!(fixture.driver.expand_requests.lock().is_empty());
    // the volume has grown behind the pod
    fixture.set_volume(r#","capacity":{"storage":"2Gi"}"#, "");
    fixture.clock.advance(Duration::from_secs(60));
    fixture.driver.set_fault("expand", Some(Fault::Fail(Code::Internal)));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    let text = |note: &client::Note| format!("{}: {}", note.reason, note.message);
    let expected = "VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : Expander.NodeExpand \
                    failed to expand the volume : rpc error: code = Internal desc = on fire";
    assert_eq!(outcome.notes.iter().map(text).collect::<Vec<_>>(), [expected]);
    fixture.driver.set_fault("expand", None);
    fixture.clock.advance(Duration::from_secs(60));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    let expected = "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"pv\" n1";
    assert_eq!(outcome.notes.iter().map(text).collect::<Vec<_>>(), [expected]);
    assert_eq!(*fixture.storage.events.lock(), [expected]);
    assert_eq!(*fixture.storage.expanded.lock(), [("c".to_owned(), "2Gi".to_owned())]);
    let request = fixture.driver.expand_requests.lock().last().unwrap().clone();
    assert_eq!(request.capacity_range.unwrap().required_bytes, 2 << 30);
    assert_eq!(Path::new(&request.volume_path), fixture.path("pods/u/volumes/kubernetes.io~csi/pv/mount"));
    // a driver that cannot do it while the volume is in use is not called again
    fixture.driver.set_fault("expand", Some(Fault::Fail(Code::FailedPrecondition)));
    fixture.driver.take_calls();
    for _ in 0..3 {
        fixture.clock.advance(Duration::from_secs(60));
        fixture.mount(&pod).await.unwrap();
    }
    assert_eq!(fixture.driver.take_calls(), ["expand h"]);
}

#[tokio::test]
async fn a_volume_that_cannot_grow_when_it_is_mounted_is_not_used() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","capacity":{"storage":"2Gi"}"#, "");
    fixture.driver.capabilities.lock().expands = false;
    let expected = "FailedMount: MountVolume.Setup failed while expanding volume for volume \"pv\" : Expander.NodeExpand \
                    found CSI plugin kubernetes.io/csi/d.example.com to not support node expansion";
    fixture.fail(&claim_pod("u"), expected).await;
    fixture.driver.capabilities.lock().expands = true;
    fixture.mount(&claim_pod("u")).await.unwrap();
}

#[tokio::test]
async fn drivers_report_the_usage_of_volumes() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    let usage = fixture.csi.usage("u").await;
    assert_eq!(
        (usage[0].name.as_str(), usage[0].capacity, usage[0].available, usage[0].used),
        ("v", 1000, 970, 30)
    );
    assert_eq!((usage[0].inodes, usage[0].inodes_free, usage[0].inodes_used), (100, 70, 30));
    fixture.driver.set_fault("stats", Some(Fault::Lie));
    assert!(fixture.csi.usage("u").await.is_empty());
    fixture.driver.capabilities.lock().has_stats = false;
    fixture.driver.take_calls();
    assert!(fixture.csi.usage("u").await.is_empty() && fixture.driver.take_calls().is_empty());
}
