//! Loads the configuration: the file, the flags over it, defaults, checks.

use super::decode::decode;
use super::error::StartError;
use super::flags::Flags;
use super::gates::{Gate, Gates};
use super::values::Configuration;
use super::{node_labels, start, validate};
use names::Names;
use schema::Value;
use std::path::Path;

/// A configuration that passed all checks.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub configuration: Configuration,
    pub gates: Gates,
}

/// Loads and checks everything that can be checked without a cluster and a runtime.
pub fn load(flags: &Flags, known_gates: &[Gate], names: &Names) -> Result<Loaded, StartError> {
    node_labels::validate(flags, names)?;
    let mut tree = match flags.given("config") {
        Some(path) => read(Path::new(path), names)?,
        None => legacy_defaults(),
    };
    flags.apply_to(&mut tree);
    let configuration = Configuration::with_defaults(tree);
    let gates = Gates::new(known_gates, &configuration.feature_gates())?;
    validate::logging(&configuration)?;
    let errors = validate::validate(&configuration, &gates, names);
    if !errors.is_empty() {
        let message = format!(
            "failed to validate kubelet configuration, error: {}, path: &TypeMeta{{Kind:,APIVersion:,}}",
            aggregate(&errors)
        );
        return Err(StartError::new(message));
    }
    start::check(&configuration, flags, &gates)?;
    Ok(Loaded { configuration, gates })
}

fn read(path: &Path, names: &Names) -> Result<Value, StartError> {
    let shown = path.display();
    let wrap = |why: String| {
        StartError::new(format!(
            "failed to load kubelet config file, error: failed to load Kubelet config file {shown}, error {why}, path: {shown}"
        ))
    };
    let text = std::fs::read(path).map_err(|why| {
        let (call, why) = match why.kind() {
            std::io::ErrorKind::NotFound => ("open", "no such file or directory".to_owned()),
            std::io::ErrorKind::IsADirectory => ("read", "is a directory".to_owned()),
            std::io::ErrorKind::PermissionDenied => ("open", "permission denied".to_owned()),
            _ => ("read", why.to_string()),
        };
        wrap(format!("failed to read kubelet config file \"{shown}\", error: {call} {shown}: {why}"))
    })?;
    if text.is_empty() {
        return Err(wrap(format!("kubelet config file \"{shown}\" was empty")));
    }
    decode(&text, names).map_err(wrap)
}

/// The values of an agent without a file, which differ from the defaults of a file.
fn legacy_defaults() -> Value {
    let mut tree = Value::map();
    tree.set(&["authentication", "anonymous", "enabled"], true);
    tree.set(&["authentication", "webhook", "enabled"], false);
    tree.set(&["authorization", "mode"], "AlwaysAllow");
    tree.set(&["readOnlyPort"], 10255);
    tree
}

/// Several messages as one; equal ones appear once.
fn aggregate(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for message in messages {
        if !distinct.contains(&message.as_str()) {
            distinct.push(message);
        }
    }
    match distinct[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

#[cfg(test)]
mod tests;
