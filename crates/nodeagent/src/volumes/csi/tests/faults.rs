//! Drivers that fail, hang, lie or are away.

use super::*;

const CODES: [(Code, &str, bool); 16] = [
    (Code::Cancelled, "Canceled", false),
    (Code::Unknown, "Unknown", true),
    (Code::InvalidArgument, "InvalidArgument", true),
    (Code::DeadlineExceeded, "DeadlineExceeded", false),
    (Code::NotFound, "NotFound", true),
    (Code::AlreadyExists, "AlreadyExists", true),
    (Code::PermissionDenied, "PermissionDenied", true),
    (Code::ResourceExhausted, "ResourceExhausted", false),
    (Code::FailedPrecondition, "FailedPrecondition", true),
    (Code::Aborted, "Aborted", false),
    (Code::OutOfRange, "OutOfRange", true),
    (Code::Unimplemented, "Unimplemented", true),
    (Code::Internal, "Internal", true),
    (Code::Unavailable, "Unavailable", false),
    (Code::DataLoss, "DataLoss", true),
    (Code::Unauthenticated, "Unauthenticated", true),
];

/// After an error that leaves it open whether the driver has done its work, the work is undone when the pod ends; after the
/// others nothing is there to undo.
#[tokio::test]
async fn errors_of_every_code_are_events_and_leave_nothing() {
    for (code, name, is_final) in CODES {
        for (method, operation) in
            [("stage", "MountVolume.MountDevice failed"), ("publish", "MountVolume.SetUp failed")]
        {
            let fixture = Fixture::new();
            fixture.set_volume("", "");
            let fault = if is_final { Fault::Fail(code) } else { Fault::DoneButFailed(code) };
            fixture.driver.set_fault(method, Some(fault));
            let expected = format!(
                "FailedMount: {operation} for volume \"pv\" : rpc error: code = {name} desc = on fire"
            );
            fixture.fail(&claim_pod("u"), &expected).await;
            let is_kept = match method {
                "stage" => !fixture.list().is_empty(),
                _ => fixture.list().iter().any(|it| it.starts_with("pods")),
            };
            assert_eq!(is_kept, !is_final, "{method} {name}");
            fixture.volumes.remove_pod("u").await.unwrap();
            fixture.check_empty();
        }
    }
}

#[tokio::test]
async fn errors_on_the_way_back_are_repeated() {
    for (code, name, _) in CODES {
        let fixture = Fixture::new();
        fixture.set_volume("", "");
        fixture.mount(&claim_pod("u")).await.unwrap();
        fixture.driver.set_fault("unpublish", Some(Fault::Fail(code)));
        let error = fixture.volumes.remove_pod("u").await.unwrap_err();
        let expected = "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code =";
        assert_eq!(error, format!("{expected} {name} desc = on fire"));
        assert_eq!(fixture.mounts().len(), 2, "nothing is removed while the driver has not done its part");
        fixture.driver.set_fault("unpublish", None);
        fixture.driver.set_fault("unstage", Some(Fault::Fail(code)));
        // the end of the pod does not depend on the stage
        let removed = tokio::spawn({
            let volumes = fixture.volumes.clone();
            async move { volumes.remove_pod("u").await }
        });
        while !removed.is_finished() {
            tokio::task::yield_now().await;
            fixture.clock.advance(Duration::from_millis(100));
        }
        removed.await.unwrap().unwrap();
        assert_eq!(fixture.mounts().len(), 1);
        fixture.driver.set_fault("unstage", None);
        while !fixture.mounts().is_empty() || !fixture.csi.users().is_empty() {
            tokio::task::yield_now().await;
            fixture.clock.advance(Duration::from_secs(1));
        }
        fixture.check_empty();
    }
}

#[tokio::test]
async fn a_driver_that_hangs_is_called_once() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.driver.set_fault("stage", Some(Fault::Hang));
    let pod = claim_pod("u");
    for _ in 0..3 {
        let mount = fixture.mount(&pod);
        tokio::pin!(mount);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut mount => break outcome,
                () = tokio::task::yield_now() => fixture.clock.advance(Duration::from_millis(500)),
            }
        };
        assert_eq!(outcome.unwrap_err(), Vec::<String>::new());
    }
    fixture.driver.called.subscribe().wait_for(|count| *count > 0).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h"]);
    // the pod cannot end before the call has
    let ended = fixture.volumes.remove_pod("u");
    tokio::pin!(ended);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended,
            () = tokio::task::yield_now() => fixture.clock.advance(Duration::from_millis(500)),
        }
    };
    assert_eq!(ended.unwrap_err(), "a mount of the pod's volumes is under way");
}

#[tokio::test]
async fn the_outcome_of_a_slow_driver_is_not_lost() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    let socket = fixture.dir.path().join("csi.sock");
    let server = serve(fixture.driver.clone(), &socket);
    fixture.driver.set_fault("stage", Some(Fault::Hang));
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(60)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    let pod = claim_pod("u");
    let mut called = fixture.driver.called.subscribe();
    let waiting = async {
        called.wait_for(|count| *count > 0).await.unwrap();
        fixture.clock.advance(Duration::from_secs(11));
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = fixture.mount(&pod) => outcome,
        () = waiting => unreachable!(),
    };
    assert_eq!(outcome.unwrap_err(), Vec::<String>::new());
    // the driver dies: the call ends, and the pod is woken for it
    server.abort();
    while fixture.woken.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let errors = fixture.mount(&pod).await.unwrap_err();
    let prefix = "FailedMount: MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Unavailable desc = ";
    assert!(errors[0].starts_with(prefix), "{errors:?}");
    // another one is there
    fixture.driver.set_fault("stage", None);
    let _server = serve(fixture.driver.clone(), &socket);
    fixture.mount(&pod).await.unwrap();
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_an_error_and_is_undone() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    let socket = fixture.dir.path().join("csi.sock");
    let _server = serve(fixture.driver.clone(), &socket);
    fixture.driver.set_fault("publish", Some(Fault::Hang));
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(1)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"pv\" : rpc error: code = DeadlineExceeded desc = \
                    context deadline exceeded";
    fixture.fail(&claim_pod("u"), expected).await;
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(60)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unpublish h", "unstage h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn a_driver_that_says_that_it_unmounted_and_did_not_loses_its_mounts() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    fixture.driver.set_fault("unpublish", Some(Fault::Lie));
    fixture.driver.set_fault("unstage", Some(Fault::Lie));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!((fixture.list(), fixture.mounts()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_driver_that_is_not_registered_is_an_error() {
    let fixture = Fixture::new();
    let volume = r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"uid":"cu"},"csi":{"driver":"none","volumeHandle":"h"}}}"#;
    fixture.set_volume("", "");
    fixture.objects.volumes.lock().insert("pv".to_owned(), object(volume));
    let node = object(
        r#"{"metadata":{"name":"n1"},"status":{"volumesInUse":["kubernetes.io/csi/none^h"],
            "volumesAttached":[{"name":"kubernetes.io/csi/none^h","devicePath":""}]}}"#,
    );
    *fixture.storage.node.lock() = Some(Arc::new(node));
    let attachment = VolumeId { driver: "none".to_owned(), handle: "h".to_owned() }.attachment("n1");
    fixture.storage.attachments.lock().insert(attachment, object(r#"{"status":{"attached":true}}"#));
    let why = "driver name none not found in the list of registered CSI drivers";
    let expected = format!(
        "FailedMount: MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed to \
         create newCsiDriverClient: {why}"
    );
    fixture.fail(&claim_pod("u"), &expected).await;
    let inline = pod_of("u", r#"{"name":"v","csi":{"driver":"none"}}"#);
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
                    check volume lifecycle mode: volume mode \"Ephemeral\" not supported by driver none (no CSIDriver object)";
    fixture.fail(&inline, expected).await;
    // a driver that has gone keeps its volumes
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    fixture.drivers.clear();
    let error = fixture.volumes.remove_pod("u").await.unwrap_err();
    let expected = "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: driver name d.example.com not found in \
                    the list of registered CSI drivers";
    assert_eq!(error, expected);
    fixture.drivers.insert(DRIVER, fixture.driver.clone());
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}
