//! Encryption at rest: a configuration with one key, for the proof alone.

use std::path::Path;

const CONFIGURATION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps, notes.proof.example.com]
  providers:
  - aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
";

/// Writes the configuration into a directory; the argument of a server that uses it.
pub fn configure(directory: &Path) -> anyhow::Result<String> {
    let file = directory.join("encryption.yaml");
    std::fs::write(&file, CONFIGURATION)?;
    Ok(format!("--encryption-provider-config={}", file.display()))
}
