use super::super::csi::Volume;
use super::*;

const TIMEOUT: Duration = Duration::from_secs(360);

fn desired(exclusive: bool, elsewhere: &[&str]) -> DesiredVolume {
    DesiredVolume {
        volume: AttachableVolume::Csi(Volume { driver: "d".to_owned(), handle: "h".to_owned() }),
        object: "v".to_owned(),
        inline: None,
        exclusive,
        elsewhere: elsewhere.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn attached() -> AttachmentState {
    AttachmentState { attached: true, ..AttachmentState::default() }
}

/// One volume, whose attachment is `a`, and a node that is ready.
fn volumes(
    desired: Option<DesiredVolume>,
    attachment: Option<AttachmentState>,
    in_status: bool,
    in_use: bool,
) -> NodeVolumes {
    let one = || "a".to_owned();
    let node = Node {
        volumes_attached: in_status.then(|| "vol-a".to_owned()).into_iter().collect(),
        in_use: in_use.then(one).into_iter().collect(),
        ready: true,
        out_of_service: false,
    };
    NodeVolumes {
        node: Some(node),
        desired: desired.map(|it| (one(), it)).into_iter().collect(),
        attachments: attachment.map(|it| (one(), it)).into_iter().collect(),
        names: BTreeMap::from([(one(), "vol-a".to_owned())]),
        waited: BTreeMap::new(),
    }
}

/// A plan in short.
fn plan(volumes: &NodeVolumes) -> String {
    let plan = volumes.decide(TIMEOUT);
    let mut words = Vec::new();
    let mut list = |what: &str, names: &[String]| {
        words.extend(names.iter().map(|name| format!("{what} {name}")));
    };
    list("attach", &plan.attach);
    list("refused", &plan.refused);
    list("failed", &plan.failed);
    list("new", &plan.new);
    list("waiting", &plan.waiting);
    if let Some(volumes) = &plan.volumes_attached {
        words.push(format!("status {volumes:?}"));
    }
    words.extend(
        plan.detach.iter().map(|(name, forced)| format!("detach {name}{}", if *forced { "!" } else { "" })),
    );
    words.join(", ")
}

#[test]
fn volumes_of_pods_are_attached() {
    assert_eq!(plan(&volumes(Some(desired(true, &[])), None, false, false)), "attach a");
    assert_eq!(plan(&volumes(Some(desired(true, &["m"])), None, false, false)), "refused a");
    assert_eq!(plan(&volumes(Some(desired(false, &["m"])), None, false, false)), "attach a");
    assert_eq!(plan(&volumes(Some(desired(true, &[])), Some(AttachmentState::default()), false, false)), "");
    let failed = AttachmentState { error: Some("why".to_owned()), ..AttachmentState::default() };
    assert_eq!(plan(&volumes(Some(desired(true, &[])), Some(failed), false, false)), "failed a");
    assert_eq!(
        plan(&volumes(Some(desired(true, &[])), Some(attached()), false, false)),
        "new a, status [\"vol-a\"]"
    );
    assert_eq!(plan(&volumes(Some(desired(true, &[])), Some(attached()), true, true)), "");
    // attached again after it is gone
    let terminating = AttachmentState { is_terminating: true, ..attached() };
    assert_eq!(plan(&volumes(Some(desired(true, &[])), Some(terminating), true, false)), "status []");
}

#[test]
fn unused_volumes_are_detached_when_it_is_safe() {
    assert_eq!(plan(&volumes(None, Some(attached()), true, false)), "status [], detach a");
    assert_eq!(plan(&volumes(None, Some(AttachmentState::default()), false, false)), "detach a");
    assert_eq!(plan(&volumes(None, Some(attached()), true, true)), "waiting a");
    // wrong in the status
    assert_eq!(plan(&volumes(None, None, true, false)), "status []");
    // a node that is gone uses nothing
    let mut gone = volumes(None, Some(attached()), true, true);
    gone.node = None;
    assert_eq!(plan(&gone), "detach a");
    // but its pods must be gone, too
    let mut gone = volumes(Some(desired(true, &[])), Some(attached()), true, true);
    gone.node = None;
    assert_eq!(plan(&gone), "");
    gone.attachments.clear();
    assert_eq!(plan(&gone), "");
}

#[test]
fn volumes_are_detached_by_force_from_a_node_that_is_not_ready() {
    let of = |ready: bool, out_of_service: bool, waited: u64| {
        let mut volumes = volumes(None, Some(attached()), true, true);
        let node = volumes.node.as_mut().unwrap();
        (node.ready, node.out_of_service) = (ready, out_of_service);
        volumes.waited.insert("a".to_owned(), Duration::from_secs(waited));
        plan(&volumes)
    };
    assert_eq!(of(true, false, 1000), "waiting a");
    assert_eq!(of(false, false, 359), "waiting a");
    assert_eq!(of(false, false, 360), "status [], detach a!");
    assert_eq!(of(false, true, 0), "status [], detach a!");
}
