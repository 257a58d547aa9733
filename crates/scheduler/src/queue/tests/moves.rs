//! Order, backoff, timeouts and moves by events.

use super::*;

#[test]
fn pods_are_popped_by_priority_then_by_age() {
    let mut queue = queue();
    queue.add(s(2), pod("late"));
    queue.add(s(1), pod("early"));
    queue.add(s(3), with("high", |pod| pod.priority = 10));
    queue.add(s(3), with("low", |pod| pod.priority = -1));
    queue.add(s(2), pod("same-time"));
    assert_eq!(names(&mut queue), ["high", "early", "late", "same-time", "low"]);
    assert_eq!(queue.scheduling_cycle(), 5);
}

#[test]
fn backoff_doubles_up_to_its_maximum() {
    let backoff = Backoff::default();
    let seconds: Vec<u64> = (0..8).map(|attempts| backoff.after(attempts).as_secs()).collect();
    assert_eq!(seconds, [1, 1, 2, 4, 8, 10, 10, 10]);
    assert_eq!(backoff.after(u32::MAX), s(10));
    let large = Backoff { initial: s(1), max: Duration::MAX };
    assert_eq!(large.after(u32::MAX), Duration::MAX);
    assert_eq!(Backoff { initial: Duration::ZERO, max: s(1) }.after(u32::MAX), Duration::ZERO);
}

#[test]
fn an_event_moves_a_pod_to_backoff_until_its_backoff_is_over() {
    let mut queue = queue();
    fail(&mut queue, s(100), pod("a"), &[Plugin::NodeResourcesFit]);
    assert_eq!(pending(&queue), [0, 0, 1, 0]);
    assert!(!queue.move_on(s(100), &ClusterEvent::NODE_ADD, |_| true));
    assert_eq!(pending(&queue), [0, 1, 0, 0]);
    assert_eq!(queue.next_wakeup(), Some(s(101)));
    assert!(!queue.flush(s(100)));
    assert!(queue.flush(s(101)));
    let queued = queue.pop().unwrap();
    assert_eq!((queued.attempts, queued.initial_attempt_timestamp), (2, s(100)));
    assert_eq!(queue.next_wakeup(), None);
}

#[test]
fn an_event_after_the_backoff_makes_a_pod_active() {
    let mut queue = queue();
    fail(&mut queue, s(100), pod("a"), &[Plugin::NodeResourcesFit]);
    assert!(queue.move_on(s(101), &ClusterEvent::NODE_ADD, |_| true));
    assert_eq!(pending(&queue), [1, 0, 0, 0]);
}

#[test]
fn only_pods_whose_plugins_registered_for_an_event_move() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("fit"), &[Plugin::NodeResourcesFit]);
    fail(&mut queue, s(1), pod("spread"), &[Plugin::PodTopologySpread]);
    fail(&mut queue, s(1), pod("both"), &[Plugin::PodTopologySpread, Plugin::TaintToleration]);
    fail(&mut queue, s(1), pod("error"), &[]);
    queue.move_on(s(10), &ClusterEvent::NODE_TAINT_CHANGE, |_| true);
    assert_eq!(names(&mut queue), ["fit", "both", "error"]);
    queue.move_on(s(10), &ClusterEvent::WILDCARD, |_| true);
    assert_eq!(names(&mut queue), ["spread"]);
}

#[test]
fn a_precheck_keeps_pods_back() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeResourcesFit]);
    fail(&mut queue, s(1), pod("b"), &[Plugin::NodeResourcesFit]);
    queue.move_on(s(10), &ClusterEvent::NODE_ADD, |pod| pod.name == "b");
    assert_eq!(names(&mut queue), ["b"]);
    assert_eq!(pending(&queue), [0, 0, 1, 0]);
}

#[test]
fn a_pod_that_failed_while_something_moved_goes_to_backoff() {
    let mut queue = queue();
    queue.add(s(1), pod("a"));
    let queued = queue.pop().unwrap();
    queue.move_on(s(1), &ClusterEvent::PV_ADD, |_| true);
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(s(1), queued, cycle).unwrap();
    assert_eq!(pending(&queue), [0, 1, 0, 0]);
    // the move is older than the next attempt
    queue.flush(s(2));
    let queued = queue.pop().unwrap();
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(s(2), queued, cycle).unwrap();
    assert_eq!(pending(&queue), [0, 0, 1, 0]);
}

#[test]
fn a_move_that_finds_no_pod_counts_too() {
    let mut queue = queue();
    queue.add(s(1), pod("a"));
    let queued = queue.pop().unwrap();
    queue.assigned_pod_added(s(1), |_| false);
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(s(1), queued, cycle).unwrap();
    assert_eq!(pending(&queue), [0, 1, 0, 0]);
}

#[test]
fn unschedulable_pods_are_tried_again_after_five_minutes() {
    let mut queue = queue();
    fail(&mut queue, s(10), pod("a"), &[Plugin::NodeAffinity]);
    assert_eq!(queue.next_wakeup(), Some(s(310) + Duration::from_nanos(1)));
    assert!(!queue.flush(s(310)));
    assert!(queue.flush(s(310) + Duration::from_nanos(1)));
    assert_eq!(names(&mut queue), ["a"]);
    let counts: Vec<_> = queue.incoming().filter(|count| count.1 == "UnschedulableTimeout").collect();
    assert_eq!(counts, [(QueueName::Active, "UnschedulableTimeout", 1)]);
}

#[test]
fn activation_ignores_backoff() {
    let mut queue = queue();
    let a = pod("a");
    fail(&mut queue, s(1), a.clone(), &[Plugin::NodeAffinity]);
    let b = pod("b");
    fail(&mut queue, s(1), b.clone(), &[Plugin::NodeAffinity]);
    queue.move_on(s(1), &ClusterEvent::NODE_ADD, |pod| pod.name == "b");
    assert_eq!(pending(&queue), [0, 1, 1, 0]);
    assert!(queue.activate([&a, &b, &pod("unknown")]));
    assert_eq!(pending(&queue), [2, 0, 0, 0]);
    assert!(!queue.activate([&a]));
}

#[test]
fn a_pod_that_is_queued_again_is_not_handed_back() {
    let mut queue = queue();
    let handed = |queue: &mut SchedulingQueue<Handle>, queued: &QueuedPod<Handle>| {
        let cycle = queue.scheduling_cycle();
        queue.add_unschedulable(s(1), queued.clone(), cycle).unwrap_err().to_string()
    };
    queue.add(s(1), pod("a"));
    let queued = queue.pop().unwrap();
    queue.update(s(1), Some(&pod("a")), pod("a"), true);
    assert_eq!(handed(&mut queue, &queued), "Pod ns/a is already present in the active queue");
    queue.delete(&pod("a"));
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(s(1), queued.clone(), cycle).unwrap();
    assert_eq!(handed(&mut queue, &queued), "Pod ns/a is already present in unschedulable queue");
    queue.move_on(s(1), &ClusterEvent::WILDCARD, |_| true);
    assert_eq!(handed(&mut queue, &queued), "Pod ns/a is already present in the backoff queue");
}

#[test]
fn incoming_pods_and_rejections_are_counted() {
    let mut queue = queue();
    fail(&mut queue, s(1), pod("a"), &[Plugin::NodeAffinity, Plugin::NodeResourcesFit]);
    let rejected: Vec<_> = queue.rejected().collect();
    let profile = "default-scheduler";
    assert_eq!(rejected, [(profile, Plugin::NodeAffinity, 1), (profile, Plugin::NodeResourcesFit, 1)]);
    queue.move_on(s(1), &ClusterEvent::NODE_ADD, |_| true);
    queue.flush(s(2));
    queue.pop().unwrap();
    assert!(queue.rejected().all(|(_, _, count)| count == 0));
    let incoming: Vec<_> = queue.incoming().map(|(queue, event, n)| (queue.name(), event, n)).collect();
    let expected = [
        ("active", "BackoffComplete", 1),
        ("active", "PodAdd", 1),
        ("backoff", "NodeAdd", 1),
        ("unschedulable", "ScheduleAttemptFailure", 1),
    ];
    assert_eq!(incoming, expected);
}

#[test]
fn a_queue_is_used_again_after_a_burst() {
    let mut queue = queue();
    for round in 0..3 {
        for number in 0..3000 {
            queue.add(s(round), pod(&format!("p{number}")));
        }
        assert_eq!(names(&mut queue).len(), 3000);
        assert_eq!(pending(&queue), [0, 0, 0, 0]);
    }
}
