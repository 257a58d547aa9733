//! Store options: data directory and encryption at rest.

use super::ConfigErrors;
use apiserver::encryption_at_rest;
use clap::{ArgAction, Args};
use encryption::{ConfigReloader, Configuration, Rules};
use names::Names;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct Store {
    /// Where state, certificates and kubeconfig are kept [default: $XDG_DATA_HOME/pintle, or
    /// ~/.local/share/pintle; none for an API server alone with --etcd-servers]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,

    /// Keep everything in memory: nothing is read from or written to disk but the kubeconfig. Without
    /// --write-kubeconfig that one is a temporary file, removed at the end. With --etcd-servers this is about certificates
    /// and keys only
    #[arg(long)]
    pub ephemeral: bool,

    /// The EncryptionConfiguration file for encryption at rest
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Reload the encryption configuration when the file changes. KMS plugins then share one health check
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,

    /// Set the finalizers of the garbage collector on deleted objects that have dependents. Must match the controller
    /// manager
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_garbage_collector: bool,
}

impl Store {
    /// The configuration of encryption at rest. `second_version` allows KMS v2.
    pub fn sealing(
        &self,
        names: &Names,
        second_version: bool,
        errors: &mut ConfigErrors,
    ) -> Option<encryption_at_rest::Options> {
        let reloads = self.encryption_provider_config_automatic_reload;
        let Some(file) = &self.encryption_provider_config else {
            if reloads {
                let why = "must be set with --encryption-provider-config";
                errors.add("--encryption-provider-config-automatic-reload", why);
            }
            return None;
        };
        let rules = Rules { reloads, second_version };
        errors.take("--encryption-provider-config", encryption(file, names, rules))
    }
}

/// Reads an encryption configuration, and follows the file if it may be reloaded.
fn encryption(file: &Path, names: &Names, rules: Rules) -> Result<encryption_at_rest::Options, String> {
    let formatted = file.display();
    let text = std::fs::read(file).map_err(|why| format!("cannot read {formatted}: {why}"))?;
    let configuration =
        Configuration::read(&text, names, rules).map_err(|why| format!("{formatted}: {why}"))?;
    let reload = rules.reloads.then(|| ConfigReloader {
        file: file.to_owned(),
        names: names.clone(),
        rules,
        last: encryption::content(&text),
    });
    Ok(encryption_at_rest::Options { configuration, reload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_files_are_parsed_or_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("encryption.yaml");
        let read = |providers: &str, reloads: bool| {
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
            let text = format!("{head}resources:\n- resources: [secrets]\n  providers: {providers}\n");
            std::fs::write(&file, text).unwrap();
            encryption(&file, &Names::kubernetes(), Rules { reloads, second_version: false })
        };
        let stays = read("[{identity: {}}]", false).unwrap();
        assert!(stays.configuration.is_plaintext() && stays.reload.is_none());
        let followed = read("[{identity: {}}]", true).unwrap();
        assert_eq!(followed.reload.unwrap().file, file);
        let message = read("[{aescbc: {keys: []}}]", false).err().unwrap();
        assert!(
            message.contains("encryption.yaml") && message.contains("resources[0].providers[0]"),
            "{message}"
        );
        std::fs::remove_file(&file).unwrap();
        let rules = Rules { reloads: false, second_version: false };
        assert!(encryption(&file, &Names::kubernetes(), rules).err().unwrap().contains("cannot read"));
    }
}
