//! Loads the configuration: the file, the flags over it, defaults, checks.

use super::decode::decode;
use super::error::StartError;
use super::flags::Flags;
use super::gates::{Gate, Gates};
use super::values::Configuration;
use super::{flag_checks, start, validate};
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
    let flag_gates = Gates::new(known_gates, &flags.feature_gates())?;
    flag_checks::validate(flags, &flag_gates, names)?;
    let tree = match flags.given("config") {
        Some(path) => read(Path::new(path), names)?,
        // what is printed becomes a file, with the defaults of one
        None if flags.asks_for_config => Value::map(),
        None => legacy_defaults(),
    };
    let configuration = Configuration::with_defaults(tree).with_flags(flags);
    let gates = Gates::new(known_gates, &configuration.feature_gates())?;
    validate::logging(&configuration, flags, &gates)?;
    let errors = validate::validate(&configuration, &gates, names);
    if !errors.is_empty() {
        let message = format!(
            "failed to validate kubelet configuration, error: {}, path: &TypeMeta{{Kind:,APIVersion:,}}",
            validate::aggregate(&errors)
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

#[cfg(test)]
mod tests;
