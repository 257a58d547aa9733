//! Nominated pods.

use super::*;

fn nominated(name: &str, node: &str) -> Handle {
    with(name, |pod| pod.nominated = node.to_owned())
}

fn on(queue: &SchedulingQueue<Handle>, node: &str) -> Vec<String> {
    queue.nominator().pods_for_node(node).iter().map(|pod| pod.name.clone()).collect()
}

#[test]
fn a_nomination_of_the_status_is_known_from_the_start() {
    let mut queue = queue();
    queue.add(s(1), nominated("a", "n1"));
    queue.add(s(1), nominated("b", "n1"));
    queue.add(s(1), pod("c"));
    assert_eq!(on(&queue, "n1"), ["a", "b"]);
    assert_eq!(queue.nominator().node_of("uid-a"), Some("n1"));
    // an attempt does not end the nomination
    queue.pop().unwrap();
    assert_eq!(on(&queue, "n1"), ["a", "b"]);
    queue.delete(&pod("a"));
    queue.delete(&pod("b"));
    assert!(queue.nominator().is_empty());
}

#[test]
fn the_outcome_of_an_attempt_replaces_the_nomination() {
    let mut queue = queue();
    let nominator = queue.nominator_mut();
    nominator.add(nominated("a", "n1"), &Nomination::Node("n2".to_owned()));
    assert_eq!(nominator.pods_for_node("n1").len(), 0);
    assert_eq!(nominator.pods_for_node("n2").len(), 1);
    nominator.add(nominated("a", "n1"), &Nomination::AsInStatus);
    assert_eq!(nominator.node_of("uid-a"), Some("n1"));
    nominator.add(nominated("a", "n1"), &Nomination::Clear);
    assert!(nominator.is_empty());
}

#[test]
fn an_update_keeps_a_nomination_that_the_status_does_not_have_yet() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeResourcesFit]);
    queue.nominator_mut().add(pod("a"), &Nomination::Node("n1".to_owned()));
    queue.update(s(1), Some(&pod("a")), pod("a"), false);
    assert_eq!(on(&queue, "n1"), ["a"]);
    queue.update(s(1), Some(&pod("a")), nominated("a", "n2"), false);
    assert_eq!((on(&queue, "n1").len(), on(&queue, "n2").len()), (0, 1));
    // the status had one and lost it
    queue.update(s(1), Some(&nominated("a", "n2")), pod("a"), false);
    assert!(queue.nominator().is_empty());
}

#[test]
fn a_pod_that_is_handed_back_has_the_nomination_of_its_status() {
    let mut queue = queue();
    queue.add(s(1), pod("a"));
    let queued = queue.pop().unwrap();
    queue.nominator_mut().add(pod("a"), &Nomination::Node("n1".to_owned()));
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(s(1), queued, cycle).unwrap();
    assert!(queue.nominator().is_empty());
}
