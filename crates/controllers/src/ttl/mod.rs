//! How long agents may go on with what they have read of secrets and config maps: each node is told by an annotation,
//! and it is longer the more nodes there are.
//!
//! What always holds: between two steps there is a margin, so that a cluster whose size goes up and down a little does
//! not have all its nodes written each time.

use crate::Context;
use crate::nodes;
use client::{Action, Change, Failure, Informer, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use std::fmt;
use std::sync::Arc;

const WORKERS: usize = 5;

struct Step {
    /// With fewer nodes the step before is taken, and with more the next.
    least: usize,
    most: usize,
    seconds: u32,
}

const fn step(least: usize, most: usize, seconds: u32) -> Step {
    Step { least, most, seconds }
}

const STEPS: &[Step] = &[
    step(0, 100, 0),
    step(90, 500, 15),
    step(450, 1000, 30),
    step(900, 2000, 60),
    step(1800, usize::MAX, 300),
];

/// How many nodes there are, and which step that is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    nodes: usize,
    step: usize,
}

impl Size {
    /// There are so many now. Whether that is another step.
    fn becomes(&mut self, nodes: usize) -> bool {
        let before = self.step;
        self.nodes = nodes;
        while nodes > STEPS[self.step].most {
            self.step += 1;
        }
        while nodes < STEPS[self.step].least {
            self.step -= 1;
        }
        self.step != before
    }

    fn seconds(&self) -> u32 {
        STEPS[self.step].seconds
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// All nodes, since there is another step.
    All,
    Node(String),
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::All => out.write_str("all nodes"),
            Task::Node(name) => out.write_str(name),
        }
    }
}

struct Annotator {
    client: Client,
    nodes: Informer<Node>,
    queue: Queue<Task>,
    size: Arc<Mutex<Size>>,
    annotation: String,
}

pub async fn run(context: Context) {
    let (queue, size) = (Queue::default(), Arc::<Mutex<Size>>::default());
    let nodes = context.informer::<Node>();
    let annotation = context.names.well_known_under("node.alpha", "ttl");
    let (news, counted, said) = (queue.clone(), size.clone(), annotation.clone());
    nodes.listen(move |change| {
        let mut size = counted.lock();
        let nodes = match change {
            Change::Added(_) => size.nodes + 1,
            Change::Updated { .. } => size.nodes,
            Change::Deleted(_) => size.nodes.saturating_sub(1),
        };
        if size.becomes(nodes) {
            news.add(Task::All);
        }
        if !change.is_deletion() && !is_told(change.object(), &said, size.seconds()) {
            news.add(Task::Node(change.object().name_any()));
        }
    });
    nodes.synced().await;
    let this = Annotator { client: context.client, nodes, queue: queue.clone(), size, annotation };
    run::run(Arc::new(this), queue, WORKERS).await;
}

fn is_told(node: &Node, annotation: &str, seconds: u32) -> bool {
    node.annotations().get(annotation).is_some_and(|it| it.parse() == Ok(seconds))
}

impl Reconcile for Annotator {
    type Key = Task;

    fn name(&self) -> &'static str {
        "ttl"
    }

    fn queue_name(&self) -> &'static str {
        "ttlcontroller"
    }

    async fn reconcile(&self, task: &Task) -> Result<Action, Failure> {
        let seconds = self.size.lock().seconds();
        match task {
            Task::All => {
                let nodes = self.nodes.all();
                let others = nodes.iter().filter(|it| !is_told(it, &self.annotation, seconds));
                others.for_each(|it| self.queue.add(Task::Node(it.name_any())));
            }
            Task::Node(name) => self.tell(name, seconds).await?,
        }
        Ok(Action::AwaitChange)
    }
}

impl Annotator {
    async fn tell(&self, name: &str, seconds: u32) -> Result<(), Failure> {
        let node = self.nodes.get(&nodes::key(name));
        if node.is_none_or(|it| is_told(&it, &self.annotation, seconds)) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {&self.annotation: seconds.to_string()}}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        unless(404, nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_a_margin() {
        let mut size = Size::default();
        for (nodes, changes, seconds) in [
            (1, false, 0),
            (100, false, 0),
            (101, true, 15),
            (95, false, 15),
            (90, false, 15),
            (89, true, 0),
            (100, false, 0),
            (600, true, 30),
            (5000, true, 300),
            (1800, false, 300),
            (1799, true, 60),
            (0, true, 0),
        ] {
            assert_eq!((size.becomes(nodes), size.seconds()), (changes, seconds), "{nodes}");
        }
    }

    #[test]
    fn steps_overlap() {
        for pair in STEPS.windows(2) {
            assert!(
                pair[0].least < pair[1].least && pair[1].least < pair[0].most && pair[0].most < pair[1].most
            );
        }
    }
}
