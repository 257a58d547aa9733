//! etcd options.

use super::ConfigErrors;
use crate::flags::any_duration;
use clap::Args;
use outbound::{Credentials, Dialer, Target};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct Etcd {
    /// The etcd servers (3.4 or later) to store objects in, comma-separated: http://, https:// and unix:// URLs. Any
    /// number of API servers may share an etcd. Without this flag objects are stored in the data directory
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// etcd servers for some resources, as group/resource#server;server. This has no effect: all objects share one
    /// sequence of revisions and so one store
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,

    /// The key prefix of all objects in etcd
    #[arg(long, value_name = "TEXT", default_value = "/registry")]
    pub etcd_prefix: String,

    /// The certificate authorities of the etcd servers, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// The client certificate for etcd, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// The private key of the client certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,

    /// The etcd user, for clusters with authentication
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub etcd_username: Option<String>,

    /// The file with the etcd user's password
    #[arg(long, value_name = "FILE", requires = "etcd_username")]
    pub etcd_password_file: Option<PathBuf>,

    /// How often the size of the etcd database is read; 0 for never
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub etcd_db_metric_poll_interval: Duration,

    /// For how many seconds an etcd lease is reused for events that expire at about the same time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub lease_reuse_duration_seconds: u32,

    /// The protocol of the external store: etcd3
    #[arg(long, value_name = "NAME", default_value = "", value_parser = ["", "etcd3"])]
    pub storage_backend: String,
}

impl Etcd {
    /// The etcd configuration, if `--etcd-servers` is given. `compaction` is the interval between compactions; 0 leaves
    /// them to others.
    pub fn read(
        &self,
        compaction: Duration,
        way: &Dialer,
        errors: &mut ConfigErrors,
    ) -> Option<store_etcd::Options> {
        const CERTIFICATE: &str = "--etcd-certfile";
        const KEY: &str = "--etcd-keyfile";
        let certificate = errors.text(CERTIFICATE, self.etcd_certfile.as_deref());
        let key = errors.text(KEY, self.etcd_keyfile.as_deref());
        let authorities = errors.text("--etcd-cafile", self.etcd_cafile.as_deref());
        let password = errors.text("--etcd-password-file", self.etcd_password_file.as_deref());
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            errors.add(CERTIFICATE, format!("must be given together with {KEY}"));
        }
        if !self.etcd_servers_overrides.is_empty() {
            tracing::warn!(
                "--etcd-servers-overrides has no effect: all objects share one sequence of revisions and so one store"
            );
        }
        if self.etcd_servers.is_empty() {
            self.warn_of_unused_flags();
            return None;
        }
        let identity =
            certificate.zip(key).map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes()));
        let authorities = authorities.map(String::into_bytes);
        let credentials = match self.etcd_username.clone().zip(password) {
            Some((user, password)) => {
                Credentials::Basic { user, password: password.trim_end_matches(['\r', '\n']).to_owned() }
            }
            None => Credentials::None,
        };
        let servers = self.etcd_servers.iter().map(|url| Target {
            // upstream's may be named without saying how to speak to them
            url: if url.contains(":/") { url.clone() } else { format!("http://{url}") },
            authorities: authorities.clone(),
            authority_file: self.etcd_cafile.clone(),
            identity: identity.clone(),
            identity_files: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
            credentials: credentials.clone(),
            way: way.clone(),
            ..Target::default()
        });
        let servers: Vec<_> = servers.collect();
        for server in &servers {
            errors.take("--etcd-servers", outbound::Channel::new(server, &[]));
        }
        Some(store_etcd::Options {
            servers,
            prefix: self.etcd_prefix.clone(),
            compaction_interval: Some(compaction).filter(|it| !it.is_zero()),
            size_poll_interval: Some(self.etcd_db_metric_poll_interval).filter(|it| !it.is_zero()),
            lease_reuse: Duration::from_secs(self.lease_reuse_duration_seconds.into()),
            ..store_etcd::Options::default()
        })
    }

    /// Warns of etcd flags that have no effect without etcd.
    fn warn_of_unused_flags(&self) {
        let given = [
            ("--etcd-prefix", self.etcd_prefix != "/registry"),
            ("--etcd-cafile", self.etcd_cafile.is_some()),
            ("--etcd-certfile", self.etcd_certfile.is_some()),
            ("--etcd-username", self.etcd_username.is_some()),
            ("--storage-backend", !self.storage_backend.is_empty()),
        ];
        for (flag, _) in given.iter().filter(|(_, given)| *given) {
            tracing::warn!(
                "{flag} has no effect without --etcd-servers: objects are stored in the embedded store"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn read(line: &str) -> (Option<store_etcd::Options>, Result<(), String>) {
        read_by(line, &Dialer::Direct)
    }

    fn read_by(line: &str, way: &Dialer) -> (Option<store_etcd::Options>, Result<(), String>) {
        let line = format!("pintle up {line}");
        let cli = Cli::read(line.trim().split(' ').map(Into::into), crate::config_errors).unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut errors = ConfigErrors::default();
        let read = up.server.etcd.read(up.server.limits.etcd_compaction_interval, way, &mut errors);
        (read, errors.check().map_err(|why| why.to_string()))
    }

    #[test]
    fn an_etcd_is_used_where_one_is_named() {
        let (none, checked) = read("--etcd-prefix=/x --etcd-servers-overrides=/events#http://a:1");
        assert!(none.is_none() && checked.is_ok());
        let (some, checked) = read(
            "--etcd-servers=http://a:1,b:2,unix:///c --etcd-prefix=/x --etcd-compaction-interval=1m \
             --etcd-db-metric-poll-interval=0 --lease-reuse-duration-seconds=7 --storage-backend=etcd3",
        );
        checked.unwrap();
        let some = some.unwrap();
        let urls: Vec<_> = some.servers.iter().map(|it| it.url.as_str()).collect();
        assert_eq!(urls, ["http://a:1", "http://b:2", "unix:///c"]);
        assert_eq!((some.prefix.as_str(), some.compaction_interval), ("/x", Some(Duration::from_secs(60))));
        assert_eq!((some.size_poll_interval, some.lease_reuse), (None, Duration::from_secs(7)));
        assert_eq!(
            read("--etcd-servers=a:1 --etcd-compaction-interval=0").0.unwrap().compaction_interval,
            None
        );
        let proxy = Target { url: "unix:/run/p".to_owned(), ..Target::default() };
        let proxy = outbound::Proxy::new(outbound::Protocol::Grpc, &proxy).unwrap();
        let (some, _) = read_by("--etcd-servers=a:1", &Dialer::Through(std::sync::Arc::new(proxy)));
        assert_eq!(format!("{:?}", some.unwrap().servers[0].way), "Through(Proxy(Grpc at /run/p))");
    }

    #[test]
    fn a_user_has_the_password_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let flags = format!(
            "--etcd-servers=a:1,b:2 --etcd-username=registry --etcd-password-file={}",
            file.display()
        );
        let (options, checked) = read(&flags);
        checked.unwrap();
        for server in options.unwrap().servers {
            let Credentials::Basic { user, password } = server.credentials else { panic!("no credentials") };
            assert_eq!((&*user, &*password), ("registry", "secret"));
        }
    }

    #[test]
    fn unusable_options_are_reported() {
        let message = read("--etcd-servers=ftp://a --etcd-certfile=/nowhere/a").1.unwrap_err();
        for part in ["--etcd-servers: ", "--etcd-certfile: cannot read", "together with --etcd-keyfile"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}
