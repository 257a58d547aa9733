//! How the server calls others.

use super::{Wrong, manifest};
use clap::Args;
use names::Names;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How it calls others")]
pub struct Outward {
    /// Which way calls to others take: an EgressSelectorConfiguration. Only direct connections are there yet; a file that
    /// asks for a proxy is refused
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
}

impl Outward {
    pub fn read(&self, names: &Names, wrong: &mut Wrong) {
        if let Some(file) = &self.egress_selector_config_file {
            wrong.take("--egress-selector-config-file", direct(file, names));
        }
    }
}

/// Whether all calls go where they would go anyway.
fn direct(file: &Path, names: &Names) -> Result<(), String> {
    let known = ["v1beta1", "v1alpha1"].map(|version| format!("{}/{version}", names.group("apiserver")));
    let whole = manifest::read(file, "EgressSelectorConfiguration", &known)?;
    for selection in whole.items(&["egressSelections"]) {
        let (name, way) = (selection.text(&["name"]), selection.text(&["connection", "proxyProtocol"]));
        if !["master", "controlplane", "etcd", "cluster"].contains(&name) {
            return Err(format!("{}: there is no kind of calls {name:?}", file.display()));
        }
        if way != "Direct" {
            let shown = file.display();
            return Err(format!("{shown}: calls of the kind {name:?} cannot go by {way:?} yet, only Direct"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_direct_calls_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("egress.yaml");
        let check = |name: &str, way: &str| {
            let head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
            let text =
                format!("{head}egressSelections:\n- name: {name}\n  connection: {{proxyProtocol: {way}}}\n");
            std::fs::write(&file, text).unwrap();
            direct(&file, &Names::kubernetes())
        };
        assert_eq!(check("cluster", "Direct"), Ok(()));
        assert!(check("cluster", "GRPC").unwrap_err().contains("\"GRPC\""));
        assert!(check("moon", "Direct").unwrap_err().contains("\"moon\""));
    }
}
