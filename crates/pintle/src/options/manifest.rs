//! Files of configuration: objects in YAML or JSON that name their version and kind.

use schema::Value;
use schema::yaml::{self, Limits};
use std::path::Path;

/// A file of YAML or JSON, whatever it says.
pub fn any(file: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let parsed = yaml::parse(&bytes, Limits::default());
    let parsed = parsed.map_err(|why| format!("{}: {why}", file.display()))?;
    match parsed.repeated.first() {
        None => Ok(parsed.value),
        Some(field) => Err(format!("{}: {field:?} stands there twice", file.display())),
    }
}

/// A file that must be of a kind, in one of these versions.
pub fn read(file: &Path, kind: &str, versions: &[String]) -> Result<Value, String> {
    let whole = any(file)?;
    let (version, found) = (whole.text(&["apiVersion"]), whole.text(&["kind"]));
    if found != kind || !versions.iter().any(|known| known == version) {
        let known = versions.join(" or ");
        let shown = file.display();
        return Err(format!("{shown}: {found:?} of {version:?} is not of the kind {kind} of {known}"));
    }
    Ok(whole)
}
