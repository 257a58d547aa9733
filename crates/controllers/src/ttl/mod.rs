//! The TTL controller: annotates each node with how long its agent may cache secrets and config maps, by cluster size.
//!
//! Invariant: the steps overlap, so that a small change of the cluster size does not rewrite all nodes.

use crate::Context;
use crate::nodes;
use api::Resource;
use api::core::v1::Node;
use client::{Action, Api, Change, Client, Failure, Informer, Patch, Queue, Reconcile, run, unless};
use parking_lot::Mutex;
use serde_json::json;
use std::fmt;
use std::sync::Arc;

const WORKERS: usize = 5;

struct Step {
    /// With fewer nodes the previous step applies, with more than `most` the next.
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

/// The number of nodes, and its step.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    nodes: usize,
    step: usize,
}

impl Size {
    /// Sets the number of nodes. Returns whether the step changed.
    fn resize(&mut self, nodes: usize) -> bool {
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
    /// All nodes, after a change of the step.
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
    let (queue, size) = (Queue::new(&context.world), Arc::<Mutex<Size>>::default());
    let nodes = context.informer::<Node>();
    let annotation = context.names.well_known_under("node.alpha", "ttl");
    let (changed, shared_size, key) = (queue.clone(), size.clone(), annotation.clone());
    nodes.listen(move |change| {
        let mut size = shared_size.lock();
        let nodes = match change {
            Change::Added(_) => size.nodes + 1,
            Change::Updated { .. } => size.nodes,
            Change::Deleted(_) => size.nodes.saturating_sub(1),
        };
        if size.resize(nodes) {
            changed.add(Task::All);
        }
        if !change.is_deletion() && !is_annotated(change.object(), &key, size.seconds()) {
            changed.add(Task::Node(change.object().name().to_owned()));
        }
    });
    nodes.synced().await;
    let annotator = Annotator { client: context.client, nodes, queue: queue.clone(), size, annotation };
    run::run(Arc::new(annotator), queue, WORKERS).await;
}

fn is_annotated(node: &Node, annotation: &str, seconds: u32) -> bool {
    node.metadata.annotations.get(annotation).is_some_and(|it| it.parse() == Ok(seconds))
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
                let stale = nodes.iter().filter(|it| !is_annotated(it, &self.annotation, seconds));
                stale.for_each(|it| self.queue.add(Task::Node(it.name().to_owned())));
            }
            Task::Node(name) => self.annotate(name, seconds).await?,
        }
        Ok(Action::AwaitChange)
    }
}

impl Annotator {
    async fn annotate(&self, name: &str, seconds: u32) -> Result<(), Failure> {
        let node = self.nodes.get(&nodes::key(name));
        if node.is_none_or(|it| is_annotated(&it, &self.annotation, seconds)) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {&self.annotation: seconds.to_string()}}});
        let nodes: Api<Node> = Api::all(&self.client);
        unless(404, nodes.patch(name, &Patch::merge(patch)).await)?;
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
            assert_eq!((size.resize(nodes), size.seconds()), (changes, seconds), "{nodes}");
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
