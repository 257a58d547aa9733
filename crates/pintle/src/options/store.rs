//! Where objects are kept, and in which form.

use super::{Wrong, manifest};
use clap::{ArgAction, Args};
use names::Names;
use schema::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where objects are kept")]
pub struct Store {
    /// Where state, certificates and kubeconfig are kept [default: $XDG_DATA_HOME/pintle, or
    /// ~/.local/share/pintle]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,

    /// Keep everything in memory: nothing is read from or written to disk but the kubeconfig. Without
    /// --write-kubeconfig that one is a temporary file, removed at the end
    #[arg(long)]
    pub ephemeral: bool,

    /// Servers of an etcd to keep objects in. This is not there yet: objects are in the data directory. Servers on this
    /// machine are taken without effect; others are refused, since more than one API server may count on them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// The same for some resources, as group/resource#server;server: taken without effect, or refused, likewise
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,

    /// What a store elsewhere speaks: etcd3, if anything
    #[arg(long, value_name = "NAME", default_value = "", value_parser = ["", "etcd3"])]
    pub storage_backend: String,

    /// How objects are encrypted where they are kept: an EncryptionConfiguration. Only the provider identity, which
    /// encrypts nothing, is there yet; a file that asks for more is refused, so that nothing is kept in the clear that
    /// was meant to be secret
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Mark what is deleted for those who collect what depended on it, or leave it to them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_garbage_collector: bool,
}

const NO_ETCD: &str = "an etcd cannot be used yet: leave it out, and objects are kept in --data-dir";
const INSTEAD: &str = "has no effect: an etcd cannot be used yet, and objects are kept in --data-dir instead";

impl Store {
    pub fn read(&self, names: &Names, wrong: &mut Wrong) {
        let servers = self.etcd_servers.iter().map(String::as_str);
        etcd("--etcd-servers", servers, wrong);
        let overrides = self.etcd_servers_overrides.iter();
        let overrides = overrides.flat_map(|it| it.split_once('#').map_or("", |(_, to)| to).split(';'));
        etcd("--etcd-servers-overrides", overrides, wrong);
        if let Some(file) = &self.encryption_provider_config {
            wrong.take("--encryption-provider-config", in_the_clear(file, names));
        }
    }
}

/// A store on this machine may be replaced by the own one. Several API servers may share one elsewhere, and would each
/// go their own way.
fn etcd<'s>(flag: &str, servers: impl Iterator<Item = &'s str>, wrong: &mut Wrong) {
    let servers: Vec<_> = servers.collect();
    if !servers.iter().all(|server| is_here(server)) {
        wrong.add(flag, NO_ETCD);
    } else if !servers.is_empty() {
        tracing::warn!("{flag} {INSTEAD}");
    }
}

/// Whether an address is one that only this machine can reach.
fn is_here(server: &str) -> bool {
    let (scheme, rest) = server.split_once("://").unwrap_or(("", server));
    let authority = rest.split('/').next().unwrap_or_default();
    let host =
        authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(authority, |it| it.0);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<IpAddr>();
    scheme.starts_with("unix") || host == "localhost" || address.is_ok_and(|it| it.is_loopback())
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
    fn a_store_is_replaced_only_where_nobody_else_can_count_on_it() {
        let here =
            ["http://127.0.0.1:2379", "https://localhost:2379/x", "http://[::1]:2379", "[::1]", "unix://s:0"];
        for server in here.into_iter().chain(["127.0.0.9", "unixs:///run/etcd"]) {
            assert!(is_here(server), "{server}");
        }
        for server in
            ["", "http://etcd:2379", "https://10.0.0.1:2379", "http://[fd00::1]:1", "localhost.example"]
        {
            assert!(!is_here(server), "{server}");
        }
        let refused = |flag: &str, servers: &[&str]| {
            let mut wrong = Wrong::default();
            etcd(flag, servers.iter().copied(), &mut wrong);
            wrong.check().is_err()
        };
        assert!(!refused("--etcd-servers", &[]) && !refused("--etcd-servers", &here));
        assert!(refused("--etcd-servers", &["http://127.0.0.1:1", "http://10.0.0.1:1"]));
    }

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
