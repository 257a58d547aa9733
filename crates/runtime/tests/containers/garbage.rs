//! Images that are removed while they come into use, and what pulls leave.

use super::*;
use std::sync::Mutex;
use tracing::span;

type Hook = (&'static str, Box<dyn FnOnce() + Send>);

/// Does something once, just before a step.
static HOOK: Mutex<Option<Hook>> = Mutex::new(None);

struct StepHook;

/// A step of the runtime has a name.
struct IsStep<'a>(&'a str, bool);

impl tracing::field::Visit for IsStep<'_> {
    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.1 |= field.name() == "change" && value == self.0;
    }
}

impl tracing::Subscriber for StepHook {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == runtime::steps::TARGET
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let is_met = |(name, _): &mut Hook| {
            let mut step = IsStep(name, false);
            event.record(&mut step);
            step.1
        };
        let hook = HOOK.lock().unwrap().take_if(is_met);
        if let Some((_, act)) = hook {
            act();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Files of unpacked layers, and of content with its parts.
fn stored(machine: &Machine) -> usize {
    let images = machine.options.root.join("images");
    let folders = ["layers", "content/blobs/sha256", "content/ingest"];
    folders.iter().map(|it| fs::read_dir(images.join(it)).unwrap().count()).sum()
}

pub async fn an_image_that_is_removed_stays_for_the_container_that_is_made_of_it() {
    // a subscriber of another run of this test is as good
    let _ = tracing::subscriber::set_global_default(StepHook);
    let machine = Machine::new().await;
    let sandbox = machine.runtime.run_sandbox(&machine.sandbox_config(), handler()).await.unwrap();
    let (store, root) = (machine.runtime.image_store().clone(), machine.options.root.clone());
    let (sender, removed) = std::sync::mpsc::channel();
    let remove = move || {
        assert!(store.remove(IMAGE).unwrap());
        sender.send(store.collect_garbage(|| runtime::containers::used_layers(&root)).unwrap()).unwrap();
    };
    *HOOK.lock().unwrap() = Some(("make a folder of a container", Box::new(remove)));
    let id = machine.run(&sandbox, &container("echo ran")).await;
    assert_eq!(removed.recv().unwrap(), None, "the layers are in use");
    assert_eq!(machine.wait(&id).await.exit_code, 0);
    assert_eq!(machine.log("0.log")[0].1, "ran");
    // the container keeps its layers, and nothing else of the image
    machine.runtime.remove_image(IMAGE).await.unwrap();
    assert_eq!(stored(&machine), 1);
    machine.runtime.remove_container(&id).await.unwrap();
    machine.runtime.remove_image(IMAGE).await.unwrap();
    assert_eq!(stored(&machine), 0);
    machine.finish().await;
}

pub async fn garbage_is_removed_once_no_image_is_pulled_and_at_the_start() {
    let mut machine = Machine::new().await;
    let pull = machine.runtime.image_store().begin_use().unwrap();
    machine.runtime.remove_image(IMAGE).await.unwrap();
    assert_eq!(stored(&machine), 4);
    drop(pull);
    until(|| stored(&machine) == 0).await;
    // what a killed agent leaves: a part of a blob, and of a layer
    let images = machine.options.root.join("images");
    fs::write(images.join("content/ingest/sha256-00"), "part").unwrap();
    fs::create_dir_all(images.join("layers/.new-00-1-1/fs/etc")).unwrap();
    machine.runtime = EmbeddedRuntime::open(machine.options.clone(), world()).unwrap();
    until(|| stored(&machine) == 0).await;
    machine.finish().await;
}
