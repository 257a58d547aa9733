//! Where objects are kept, and in which form.

use super::{Wrong, manifest};
use clap::{ArgAction, Args};
use names::Names;
use schema::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where objects are kept")]
pub struct Store {
    /// Where state, certificates and kubeconfig are kept [default: $XDG_DATA_HOME/pintle, or
    /// ~/.local/share/pintle]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,

    /// Keep everything in memory: nothing is read from or written to disk but the kubeconfig. Without
    /// --write-kubeconfig that one is a temporary file, removed at the end. With --etcd-servers this is about certificates
    /// and keys only
    #[arg(long)]
    pub ephemeral: bool,

    /// How objects are encrypted where they are kept: an EncryptionConfiguration. Only the provider identity, which
    /// encrypts nothing, is there yet; a file that asks for more is refused, so that nothing is kept in the clear that
    /// was meant to be secret
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Mark what is deleted for those who collect what depended on it, or leave it to them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_garbage_collector: bool,
}

impl Store {
    pub fn read(&self, names: &Names, wrong: &mut Wrong) {
        if let Some(file) = &self.encryption_provider_config {
            wrong.take("--encryption-provider-config", in_the_clear(file, names));
        }
    }
}

/// Whether a file asks for nothing but what is there: objects as they are.
fn in_the_clear(file: &Path, names: &Names) -> Result<(), String> {
    let known = [format!("{}/v1", names.group("apiserver.config"))];
    let whole = manifest::read(file, "EncryptionConfiguration", &known)?;
    let of_file = |why: String| format!("{}: {why}", file.display());
    let resources = whole.items(&["resources"]);
    if resources.is_empty() {
        return Err(of_file("resources is empty".to_owned()));
    }
    for (at, entry) in resources.iter().enumerate() {
        let providers = entry.items(&["providers"]);
        if providers.is_empty() {
            return Err(of_file(format!("resources[{at}].providers is empty")));
        }
        for provider in providers.iter().filter_map(Value::as_map) {
            if let Some(other) = provider.keys().find(|name| *name != "identity") {
                let what = "only identity is there yet, so that objects would be kept in the clear";
                return Err(of_file(format!("resources[{at}] asks for {other:?}: {what}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_to_be_secret_is_not_kept_in_the_clear() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("encryption.yaml");
        let check = |providers: &str| {
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
            let text = format!("{head}resources:\n- resources: [secrets]\n  providers: {providers}\n");
            std::fs::write(&file, text).unwrap();
            in_the_clear(&file, &Names::kubernetes())
        };
        assert_eq!(check("[{identity: {}}]"), Ok(()));
        let told = check("[{identity: {}}, {aescbc: {keys: []}}]").unwrap_err();
        assert!(told.contains("\"aescbc\"") && told.contains("in the clear"), "{told}");
        assert!(check("[]").unwrap_err().contains("providers is empty"));
        std::fs::write(&file, "kind: Other\napiVersion: v1\n").unwrap();
        assert!(in_the_clear(&file, &Names::kubernetes()).unwrap_err().contains("EncryptionConfiguration"));
    }
}
