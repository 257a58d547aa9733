//! Tests of extenders: the decisions of a cycle, and calls of real servers.

mod http;

use super::*;
use crate::cycle::{Cycle, Outcome};
use crate::evaluation::CompiledProfile;
use api::from_json;

/// Accepts the nodes `n1` and `n2`, and prefers `n2`.
struct Picky {
    ignorable: bool,
    fails: bool,
}

impl Extender for Picky {
    fn is_interested(&self, _: &PodInfo) -> bool {
        true
    }

    fn is_ignorable(&self) -> bool {
        self.ignorable
    }

    fn weight(&self) -> i64 {
        5
    }

    fn filter(&self, _: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String> {
        if self.fails {
            return Err("timeout".to_owned());
        }
        let (kept, failed): (Vec<_>, Vec<_>) =
            nodes.iter().map(|node| node.name().to_owned()).partition(|name| ["n1", "n2"].contains(&&**name));
        let failed = failed.into_iter().map(|name| (name, "not mine".to_owned())).collect();
        // a node that does not exist has no effect
        let lies = vec![("no such node".to_owned(), "lie".to_owned())];
        Ok(Filtered { nodes: kept, failed, failed_and_unresolvable: lies })
    }

    fn prioritize(&self, _: &PodInfo, _: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String> {
        Ok(vec![("n2".to_owned(), 10), ("other".to_owned(), i64::MAX)])
    }

    fn supports_preemption(&self) -> bool {
        false
    }

    fn process_preemption(
        &self,
        _: &PodInfo,
        _: &[Candidate],
        _: &Snapshot,
    ) -> Result<Vec<Candidate>, String> {
        Ok(Vec::new())
    }
}

fn schedule(nodes: &[&str], extender: Picky) -> Result<String, String> {
    let mut snapshot = Snapshot::new();
    for name in nodes {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"pods":"1","cpu":"1"}}}}}}"#
        );
        snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
    }
    let json = br#"{"metadata":{"name":"p","uid":"p"},"spec":{"containers":[{"name":"c"}]}}"#;
    let pod = Arc::new(PodInfo::new(Arc::new(from_json(json).unwrap())));
    let mut cycle = Cycle::new(env::Simulated::new(1, 1), 0).with_extenders(vec![Box::new(extender)]);
    match cycle.schedule(&CompiledProfile::default(), &mut snapshot, &(), &pod) {
        Outcome::Placed(placement) => Ok(placement.node),
        Outcome::Failed(failure) => Err(format!("{}: {}", failure.reason(), failure.message())),
    }
}

#[test]
fn extenders_filter_and_score() {
    let good = || Picky { ignorable: false, fails: false };
    assert_eq!(schedule(&["n0", "n1", "n2"], good()), Ok("n2".to_owned()));
    let message = schedule(&["n0"], good()).unwrap_err();
    assert!(
        message.starts_with("Unschedulable: 0/1 nodes are available: 1 not mine. preemption: "),
        "{message}"
    );
}

#[test]
fn only_an_ignorable_extender_may_fail() {
    let failing = |ignorable: bool| schedule(&["n0"], Picky { ignorable, fails: true });
    assert_eq!(failing(false), Err("SchedulerError: timeout".to_owned()));
    assert_eq!(failing(true), Ok("n0".to_owned()));
}
