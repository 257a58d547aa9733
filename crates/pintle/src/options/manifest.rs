//! Configuration files: objects in YAML or JSON with version and kind.

use schema::Value;
use schema::yaml::{self, Limits};
use std::path::Path;

/// Reads a YAML or JSON file of any kind.
pub fn any(file: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let parsed = yaml::parse(&bytes, Limits::default());
    let parsed = parsed.map_err(|why| format!("{}: {why}", file.display()))?;
    match parsed.repeated.first() {
        None => Ok(parsed.value),
        Some(field) => Err(format!("{}: duplicate field {field:?}", file.display())),
    }
}

/// Reads a file of a kind, in one of these versions.
pub fn read(file: &Path, kind: &str, versions: &[String]) -> Result<Value, String> {
    let whole = any(file)?;
    let (version, found) = (whole.text(&["apiVersion"]), whole.text(&["kind"]));
    if found != kind || !versions.iter().any(|known| known == version) {
        let known = versions.join(" or ");
        let formatted = file.display();
        return Err(format!("{formatted}: {found:?} of {version:?} is not of the kind {kind} of {known}"));
    }
    Ok(whole)
}
