//! The conditions of a node, and the events of their changes.

use api::Time;
use api::core::v1::NodeCondition;
use client::Note;

/// The pressures under which pods are evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressures {
    pub has_memory_pressure: bool,
    pub has_disk_pressure: bool,
    pub has_pid_pressure: bool,
}

/// A condition without its times.
struct NewCondition {
    kind: &'static str,
    is_true: bool,
    reason: &'static str,
    message: String,
    /// The reason of the event of a change.
    event: &'static str,
    /// Whether the first state has an event, too.
    is_first_an_event: bool,
}

fn pressure(
    kind: &'static str,
    is_true: bool,
    (reason, message, event): (&'static str, &str, &'static str),
) -> NewCondition {
    NewCondition { kind, is_true, reason, message: message.to_owned(), event, is_first_an_event: true }
}

fn conditions(pressures: Pressures, errors: &[String]) -> [NewCondition; 4] {
    let memory = match pressures.has_memory_pressure {
        true => (
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            "NodeHasInsufficientMemory",
        ),
        false => (
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            "NodeHasSufficientMemory",
        ),
    };
    let disk = match pressures.has_disk_pressure {
        true => ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        false => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    };
    let pid = match pressures.has_pid_pressure {
        true => {
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID")
        }
        false => ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    };
    let ready = match errors {
        [] => ("KubeletReady", "kubelet is posting ready status".to_owned(), "NodeReady"),
        [one] => ("KubeletNotReady", one.clone(), "NodeNotReady"),
        all => ("KubeletNotReady", format!("[{}]", all.join(", ")), "NodeNotReady"),
    };
    let (reason, message, event) = ready;
    [
        pressure("MemoryPressure", pressures.has_memory_pressure, memory),
        pressure("DiskPressure", pressures.has_disk_pressure, disk),
        pressure("PIDPressure", pressures.has_pid_pressure, pid),
        NewCondition {
            kind: "Ready",
            is_true: errors.is_empty(),
            reason,
            message,
            event,
            is_first_an_event: false,
        },
    ]
}

/// Brings the conditions of a node up to date; those of others stay. `errors` are the reasons why it is not ready.
pub fn update(
    current: &mut Vec<NodeCondition>,
    node: &str,
    pressures: Pressures,
    errors: &[String],
    now: Time,
) -> Vec<Note> {
    let mut notes = Vec::new();
    for new in conditions(pressures, errors) {
        let status = if new.is_true { "True" } else { "False" };
        let index = current.iter().position(|it| it.type_ == new.kind);
        let is_same = index.is_some_and(|index| current[index].status == status);
        let since = index.filter(|_| is_same).and_then(|index| current[index].last_transition_time);
        let condition = NodeCondition {
            type_: new.kind.to_owned(),
            status: status.to_owned(),
            last_heartbeat_time: Some(now),
            last_transition_time: since.or(Some(now)),
            reason: new.reason.to_owned(),
            message: new.message,
            ..NodeCondition::default()
        };
        match index {
            Some(index) => current[index] = condition,
            None => current.push(condition),
        }
        if !is_same && (index.is_some() || new.is_first_an_event) {
            notes.push(Note::normal(new.event, format!("Node {node} status is now: {}", new.event)));
        }
    }
    notes
}

/// Whether conditions differ in more than their heartbeats.
pub fn has_changed(old: &[NodeCondition], new: &[NodeCondition]) -> bool {
    let key = |it: &NodeCondition| {
        (it.type_.clone(), it.status.clone(), it.reason.clone(), it.message.clone(), it.last_transition_time)
    };
    let sorted = |list: &[NodeCondition]| {
        let mut keys: Vec<_> = list.iter().map(key).collect();
        keys.sort();
        keys
    };
    sorted(old) != sorted(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(conditions: &[NodeCondition]) -> Vec<String> {
        let text = |it: &NodeCondition| format!("{} {} {}: {}", it.type_, it.status, it.reason, it.message);
        conditions.iter().map(text).collect()
    }

    #[test]
    fn conditions_have_upstreams_texts_and_keep_their_times() {
        let mut all =
            vec![NodeCondition { type_: "NetworkUnavailable".to_owned(), ..NodeCondition::default() }];
        let notes = update(&mut all, "n", Pressures::default(), &[], Time(10));
        assert_eq!(
            texts(&all)[1..],
            [
                "MemoryPressure False KubeletHasSufficientMemory: kubelet has sufficient memory available",
                "DiskPressure False KubeletHasNoDiskPressure: kubelet has no disk pressure",
                "PIDPressure False KubeletHasSufficientPID: kubelet has sufficient PID available",
                "Ready True KubeletReady: kubelet is posting ready status",
            ]
        );
        let reasons: Vec<_> = notes.iter().map(|note| note.reason).collect();
        assert_eq!(reasons, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(notes[0].message, "Node n status is now: NodeHasSufficientMemory");
        let old = all.clone();
        assert!(update(&mut all, "n", Pressures::default(), &[], Time(20)).is_empty());
        assert_eq!(all[4].last_heartbeat_time, Some(Time(20)));
        assert_eq!(all[4].last_transition_time, Some(Time(10)));
        assert!(!has_changed(&old, &all));
        let errors = ["container runtime is down".to_owned(), "b".to_owned()];
        let notes = update(&mut all, "n", Pressures::default(), &errors, Time(30));
        assert_eq!(notes, [Note::normal("NodeNotReady", "Node n status is now: NodeNotReady")]);
        assert_eq!(texts(&all)[4], "Ready False KubeletNotReady: [container runtime is down, b]");
        assert_eq!(all[4].last_transition_time, Some(Time(30)));
        assert!(has_changed(&old, &all));
        update(&mut all, "n", Pressures::default(), &errors[..1], Time(40));
        assert_eq!(texts(&all)[4], "Ready False KubeletNotReady: container runtime is down");
        assert_eq!(all[4].last_transition_time, Some(Time(30)));
    }
}
