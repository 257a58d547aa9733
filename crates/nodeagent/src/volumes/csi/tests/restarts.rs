//! Volumes that an agent before this one has left.

use super::*;

#[tokio::test]
async fn another_agent_takes_volumes_from_pods_that_are_gone() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture.mount(&claim_pod("u2")).await.unwrap();
    let fixture = fixture.restart();
    assert_eq!(fixture.csi.users()["h"], ["u1", "u2"]);
    assert_eq!(*fixture.in_use.lock(), [format!("kubernetes.io/csi/{DRIVER}^h")]);
    assert_eq!(fixture.volumes.reconstruct().unwrap(), ["u1", "u2"]);
    fixture.driver.take_calls();
    fixture.volumes.remove_pod("u1").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h"]);
    // the other one lives: its volume is staged and published again, which changes nothing
    fixture.mount(&claim_pod("u2")).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h"]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_staged_volume_without_pods_is_taken_from_the_node() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.mount(&claim_pod("u")).await.unwrap_err();
    let fixture = fixture.restart();
    // an agent that ended before it wrote volume data
    std::fs::create_dir_all(fixture.path("plugins/kubernetes.io/csi/other/0000/globalmount")).unwrap();
    fixture.volumes.remove_unused().await;
    assert!(!fixture.path("plugins/kubernetes.io/csi/other/0000").exists());
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unstage h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn damaged_volume_data_stops_only_what_is_mounted() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    let file = fixture.path("pods/u/volumes/kubernetes.io~csi/pv/vol_data.json");
    std::fs::write(&file, "{").unwrap();
    let fixture = fixture.restart();
    let error = fixture.volumes.remove_pod("u").await.unwrap_err();
    assert!(error.contains("failed to parse volume data file"), "{error}");
    fixture.filesystem.mounts.lock().remove(&fixture.path("pods/u/volumes/kubernetes.io~csi/pv/mount"));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(!fixture.path("pods/u").exists());
}
