//! Updates, deletions, gates, and pods that others' assignment wakes.

use super::*;

#[test]
fn a_gated_pod_waits_until_its_gates_are_removed() {
    let mut queue = queue();
    let gated = with("a", |pod| pod.gates = true);
    assert!(!queue.add(s(1), gated.clone()));
    assert_eq!(pending(&queue), [0, 0, 0, 1]);
    assert_eq!(queue.rejected().collect::<Vec<_>>(), [("default-scheduler", Plugin::SchedulingGates, 1)]);
    queue.move_on(s(9), &ClusterEvent::WILDCARD, |_| true);
    assert!(!queue.activate([&gated]));
    assert!(!queue.flush(s(1000)));
    assert!(!queue.update(s(9), Some(&gated), gated.clone(), true));
    assert_eq!(pending(&queue), [0, 0, 0, 1]);
    assert!(queue.update(s(9), Some(&gated), pod("a"), true));
    assert_eq!(pending(&queue), [1, 0, 0, 0]);
    // the time that it waited for its gates counts for its place
    assert_eq!(queue.pop().unwrap().timestamp, s(1));
    assert!(queue.rejected().all(|(_, _, count)| count == 0));
}

#[test]
fn gates_mean_nothing_to_a_profile_without_the_plugin() {
    let mut queue: SchedulingQueue<Handle> = SchedulingQueue::new(Options::default());
    assert!(queue.add(s(1), with("a", |pod| pod.gates = true)));
}

#[test]
fn an_update_of_an_active_pod_keeps_its_place() {
    let mut queue = queue();
    queue.add(s(1), pod("a"));
    queue.add(s(2), pod("b"));
    let newer = with("a", |pod| pod.nominated = "n".to_owned());
    queue.update(s(3), Some(&pod("a")), newer.clone(), true);
    assert_eq!(queue.pop().unwrap().pod, newer);
    queue.update(s(3), Some(&pod("b")), with("b", |pod| pod.priority = 7), true);
    queue.add(s(1), pod("c"));
    assert_eq!(names(&mut queue), ["b", "c"]);
}

#[test]
fn an_update_that_may_help_moves_an_unschedulable_pod() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeAffinity]);
    assert!(!queue.update(s(9), Some(&pod("a")), pod("a"), false));
    assert_eq!(pending(&queue), [0, 0, 1, 0]);
    assert!(!queue.update(s(1), Some(&pod("a")), pod("a"), true));
    assert_eq!(pending(&queue), [0, 1, 0, 0]);
    queue.delete(&pod("a"));
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeAffinity]);
    assert!(queue.update(s(9), Some(&pod("a")), pod("a"), true));
    assert_eq!(pending(&queue), [1, 0, 0, 0]);
}

#[test]
fn an_update_of_an_unknown_pod_adds_it() {
    let mut queue = queue();
    assert!(queue.update(s(1), None, pod("a"), false));
    assert_eq!(pending(&queue), [1, 0, 0, 0]);
}

#[test]
fn a_deleted_pod_is_in_no_queue() {
    let mut queue = queue();
    queue.add(s(1), pod("active"));
    queue.delete(&pod("active"));
    queue.add(s(1), with("gated", |pod| pod.gates = true));
    queue.delete(&pod("gated"));
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeAffinity]);
    queue.delete(&pod("a"));
    fail(&mut queue, s(1), pod("b"), &[Plugin::NodeAffinity]);
    queue.move_on(s(1), &ClusterEvent::NODE_ADD, |_| true);
    queue.delete(&pod("b"));
    queue.delete(&pod("unknown"));
    assert_eq!(pending(&queue), [0, 0, 0, 0]);
    assert_eq!((queue.pods().count(), queue.next_wakeup()), (0, None));
    assert!(queue.rejected().all(|(_, _, count)| count == 0));
}

#[test]
fn a_pod_added_twice_is_there_once() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeAffinity]);
    queue.add(s(2), pod("a"));
    queue.add(s(3), pod("a"));
    assert_eq!(pending(&queue), [1, 0, 0, 0]);
    let queued = queue.pop().unwrap();
    assert_eq!((queued.attempts, queued.timestamp), (1, s(3)));
}

#[test]
fn an_assigned_pod_wakes_pods_with_matching_affinity() {
    let mut queue = queue();
    let affine = |name: &str| with(name, |pod| pod.affinity = true);
    fail(&mut queue, s(1), affine("matches"), &[Plugin::InterPodAffinity]);
    fail(&mut queue, s(1), affine("other-term"), &[Plugin::InterPodAffinity]);
    fail(&mut queue, s(1), affine("other-plugin"), &[Plugin::NodeResourcesFit]);
    fail(&mut queue, s(1), pod("no-term"), &[Plugin::InterPodAffinity]);
    let mut seen = Vec::new();
    queue.assigned_pod_added(s(9), |pod| {
        seen.push(pod.name.clone());
        pod.name != "other-term"
    });
    assert_eq!(seen, ["matches", "other-term"]);
    assert_eq!(names(&mut queue), ["matches"]);
    queue.assigned_pod_updated(s(9), |_| true);
    assert_eq!(names(&mut queue), ["other-term"]);
}

#[test]
fn status_and_bookkeeping_are_no_update() {
    let read = |text: &str| api::from_json::<api::core::v1::Pod>(text.as_bytes()).unwrap();
    let old = read(r#"{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"nodeSelector":{"a":"b"}}}"#);
    let status = r#"{"metadata":{"name":"a","resourceVersion":"2","generation":3,"finalizers":["x"],
        "managedFields":[{"manager":"m"}]},"spec":{"nodeSelector":{"a":"b"}},"status":{"phase":"Pending"}}"#;
    assert!(!is_pod_updated(&old, &read(status)));
    assert!(is_pod_updated(&old, &read(r#"{"metadata":{"name":"a"},"spec":{"nodeSelector":{"a":"c"}}}"#)));
    let labels = r#"{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"nodeSelector":{"a":"b"}}}"#;
    assert!(is_pod_updated(&old, &read(labels)));
}
