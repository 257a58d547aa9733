//! Details of the runtime and its objects for people, as `crictl inspect` shows them.

use super::state::State;
use crate::images::Image;
use crate::{DetailsSubject, RuntimeError};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The details of an object other than an image.
pub fn details(state: &State, subject: DetailsSubject<'_>) -> Result<BTreeMap<String, String>, RuntimeError> {
    Ok(match subject {
        DetailsSubject::Runtime => named("config", &runtime(state)),
        DetailsSubject::Sandbox(id) => named("info", &sandbox(state, id)?),
        DetailsSubject::Container(id) => named("info", &container(state, id)?),
        DetailsSubject::Image(_) => BTreeMap::new(),
    })
}

pub fn image_details(image: &Image) -> BTreeMap<String, String> {
    let config = &image.parsed.config.config;
    let value = json!({
        "imageSpec": {
            "user": config.user,
            "env": config.env,
            "entrypoint": config.entrypoint,
            "cmd": config.cmd,
            "workingDir": config.working_dir,
            "stopSignal": config.stop_signal,
        },
        "layers": image.parsed.config.chain_ids().iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    named("info", &value)
}

fn named(name: &str, value: &Value) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_string())])
}

/// The folders of CNI are where those of containerd are, for programs that read them.
fn runtime(state: &State) -> Value {
    let options = &state.options;
    json!({
        "root": options.root,
        "state": options.run,
        "registries": options.registries,
        "cgroupDriver": "cgroupfs",
        "hasOverlay": state.has_overlay,
        "cni": { "confDir": options.cni.configurations, "binDirs": options.cni.plugins },
    })
}

fn sandbox(state: &State, id: &str) -> Result<Value, RuntimeError> {
    let sandbox = state.sandbox(id)?;
    let record = sandbox.record.lock();
    Ok(json!({
        "pid": record.monitor.map(|it| it.pid()),
        "runtimeHandler": record.handler,
        "config": record.config,
        "cniResult": record.network.as_ref().map(|it| &it.result),
    }))
}

fn container(state: &State, id: &str) -> Result<Value, RuntimeError> {
    let container = state.container(id)?;
    let record = container.record.lock();
    Ok(json!({
        "sandboxID": record.sandbox_id,
        "pid": record.process_id,
        "cgroup": record.cgroup,
        "layers": record.layers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "config": record.config,
        "process": record.process,
    }))
}
