//! Where objects are kept, and in which form.

use super::Wrong;
use apiserver::sealing;
use clap::{ArgAction, Args};
use names::Names;
use seal::{Configuration, Follower, Rules};
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

    /// How objects are encrypted where they are kept: an EncryptionConfiguration
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Read that file again when it changes. Key servers then have one health check together
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,

    /// Mark what is deleted for those who collect what depended on it, or leave it to them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_garbage_collector: bool,
}

const NO_ETCD: &str = "an etcd cannot be used yet: leave it out, and objects are kept in --data-dir";
const INSTEAD: &str = "has no effect: an etcd cannot be used yet, and objects are kept in --data-dir instead";

impl Store {
    pub fn read(&self, wrong: &mut Wrong) {
        let servers = self.etcd_servers.iter().map(String::as_str);
        etcd("--etcd-servers", servers, wrong);
        let overrides = self.etcd_servers_overrides.iter();
        let overrides = overrides.flat_map(|it| it.split_once('#').map_or("", |(_, to)| to).split(';'));
        etcd("--etcd-servers-overrides", overrides, wrong);
    }

    /// Who encrypts what is kept, where key servers of the second version may be asked or not.
    pub fn sealing(
        &self,
        names: &Names,
        second_version: bool,
        wrong: &mut Wrong,
    ) -> Option<sealing::Options> {
        let reloads = self.encryption_provider_config_automatic_reload;
        let Some(file) = &self.encryption_provider_config else {
            if reloads {
                let why = "must be set with --encryption-provider-config";
                wrong.add("--encryption-provider-config-automatic-reload", why);
            }
            return None;
        };
        let rules = Rules { reloads, second_version };
        wrong.take("--encryption-provider-config", encryption(file, names, rules))
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

/// What a file says about encryption, to be followed where configurations may change.
fn encryption(file: &Path, names: &Names, rules: Rules) -> Result<sealing::Options, String> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|why| format!("cannot read {shown}: {why}"))?;
    let configuration = Configuration::read(&text, names, rules).map_err(|why| format!("{shown}: {why}"))?;
    let again = rules.reloads.then(|| Follower {
        file: file.to_owned(),
        names: names.clone(),
        rules,
        last: seal::content(&text),
    });
    Ok(sealing::Options { configuration, again })
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
    fn files_about_encryption_are_read_or_what_is_wrong_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("encryption.yaml");
        let read = |providers: &str, reloads: bool| {
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
            let text = format!("{head}resources:\n- resources: [secrets]\n  providers: {providers}\n");
            std::fs::write(&file, text).unwrap();
            encryption(&file, &Names::kubernetes(), Rules { reloads, second_version: false })
        };
        let stays = read("[{identity: {}}]", false).unwrap();
        assert!(stays.configuration.is_clear() && stays.again.is_none());
        let followed = read("[{identity: {}}]", true).unwrap();
        assert_eq!(followed.again.unwrap().file, file);
        let told = read("[{aescbc: {keys: []}}]", false).err().unwrap();
        assert!(told.contains("encryption.yaml") && told.contains("resources[0].providers[0]"), "{told}");
        std::fs::remove_file(&file).unwrap();
        let rules = Rules { reloads: false, second_version: false };
        assert!(encryption(&file, &Names::kubernetes(), rules).err().unwrap().contains("cannot read"));
    }
}
