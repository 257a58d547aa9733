use super::*;

const TIMEOUT: Duration = Duration::from_secs(360);

fn wanted(exclusive: bool, elsewhere: &[&str]) -> DesiredVolume {
    DesiredVolume {
        volume: Volume { driver: "d".to_owned(), handle: "h".to_owned() },
        object: "v".to_owned(),
        exclusive,
        elsewhere: elsewhere.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn attached() -> AttachmentState {
    AttachmentState { attached: true, ..AttachmentState::default() }
}

/// One volume, whose attachment is `a`, and a node that is ready.
fn seen(
    wanted: Option<DesiredVolume>,
    there: Option<AttachmentState>,
    told: bool,
    in_use: bool,
) -> NodeVolumes {
    let one = || "a".to_owned();
    let node = Node {
        told: told.then(|| "vol-a".to_owned()).into_iter().collect(),
        in_use: in_use.then(one).into_iter().collect(),
        ready: true,
        out_of_service: false,
    };
    NodeVolumes {
        node: Some(node),
        wanted: wanted.map(|it| (one(), it)).into_iter().collect(),
        there: there.map(|it| (one(), it)).into_iter().collect(),
        names: BTreeMap::from([(one(), "vol-a".to_owned())]),
        waited: BTreeMap::new(),
    }
}

/// A plan in short.
fn told(seen: &NodeVolumes) -> String {
    let plan = seen.decide(TIMEOUT);
    let mut words = Vec::new();
    let mut say = |what: &str, names: &[String]| {
        words.extend(names.iter().map(|name| format!("{what} {name}")));
    };
    say("attach", &plan.attach);
    say("refused", &plan.refused);
    say("failed", &plan.failed);
    say("new", &plan.new);
    say("waiting", &plan.waiting);
    if let Some(tell) = &plan.tell {
        words.push(format!("tell {tell:?}"));
    }
    words.extend(
        plan.detach.iter().map(|(name, forced)| format!("detach {name}{}", if *forced { "!" } else { "" })),
    );
    words.join(", ")
}

#[test]
fn what_pods_want_is_attached_and_told() {
    assert_eq!(told(&seen(Some(wanted(true, &[])), None, false, false)), "attach a");
    assert_eq!(told(&seen(Some(wanted(true, &["m"])), None, false, false)), "refused a");
    assert_eq!(told(&seen(Some(wanted(false, &["m"])), None, false, false)), "attach a");
    assert_eq!(told(&seen(Some(wanted(true, &[])), Some(AttachmentState::default()), false, false)), "");
    let failed = AttachmentState { error: Some("why".to_owned()), ..AttachmentState::default() };
    assert_eq!(told(&seen(Some(wanted(true, &[])), Some(failed), false, false)), "failed a");
    assert_eq!(
        told(&seen(Some(wanted(true, &[])), Some(attached()), false, false)),
        "new a, tell [\"vol-a\"]"
    );
    assert_eq!(told(&seen(Some(wanted(true, &[])), Some(attached()), true, true)), "");
    // it goes, and comes again when it is gone
    let leaving = AttachmentState { leaving: true, ..attached() };
    assert_eq!(told(&seen(Some(wanted(true, &[])), Some(leaving), true, false)), "tell []");
}

#[test]
fn what_nobody_wants_is_detached_when_it_is_safe() {
    assert_eq!(told(&seen(None, Some(attached()), true, false)), "tell [], detach a");
    assert_eq!(told(&seen(None, Some(AttachmentState::default()), false, false)), "detach a");
    assert_eq!(told(&seen(None, Some(attached()), true, true)), "waiting a");
    // what the node was told wrongly
    assert_eq!(told(&seen(None, None, true, false)), "tell []");
    // a node that is gone uses nothing
    let mut gone = seen(None, Some(attached()), true, true);
    gone.node = None;
    assert_eq!(told(&gone), "detach a");
    // but its pods must be gone, too
    let mut gone = seen(Some(wanted(true, &[])), Some(attached()), true, true);
    gone.node = None;
    assert_eq!(told(&gone), "");
    gone.there.clear();
    assert_eq!(told(&gone), "");
}

#[test]
fn an_agent_that_is_not_heard_of_is_not_waited_for_forever() {
    let of = |ready: bool, out_of_service: bool, waited: u64| {
        let mut seen = seen(None, Some(attached()), true, true);
        let node = seen.node.as_mut().unwrap();
        (node.ready, node.out_of_service) = (ready, out_of_service);
        seen.waited.insert("a".to_owned(), Duration::from_secs(waited));
        told(&seen)
    };
    assert_eq!(of(true, false, 1000), "waiting a");
    assert_eq!(of(false, false, 359), "waiting a");
    assert_eq!(of(false, false, 360), "tell [], detach a!");
    assert_eq!(of(false, true, 0), "tell [], detach a!");
}
