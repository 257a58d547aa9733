//! An etcd to keep objects in.

use super::ConfigErrors;
use crate::flags::any_duration;
use clap::Args;
use outbound::{Dialer, Target};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where objects are kept")]
pub struct Etcd {
    /// Servers of an etcd (3.4 or later) to keep objects in, with commas between: http://, https:// and unix:// URLs. Any
    /// number of API servers may share it. Without it objects are kept in the data directory
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// Servers for some resources, as group/resource#server;server. This has no effect: all objects are kept in one place,
    /// since they have one sequence of revisions
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub etcd_servers_overrides: Vec<String>,

    /// What the keys of all objects begin with in the etcd
    #[arg(long, value_name = "TEXT", default_value = "/registry")]
    pub etcd_prefix: String,

    /// Who vouches for the etcd's servers, in PEM [default: those whom this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// The certificate, in PEM, by which the etcd knows who calls
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,

    /// How often the etcd is asked how large it is; 0 is never
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub etcd_db_metric_poll_interval: Duration,

    /// For how many seconds one lease of the etcd serves the events that are to end at about the same time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub lease_reuse_duration_seconds: u32,

    /// What a store elsewhere speaks: etcd3, if anything
    #[arg(long, value_name = "NAME", default_value = "", value_parser = ["", "etcd3"])]
    pub storage_backend: String,
}

impl Etcd {
    /// The etcd that is asked for, if one is. History is forgotten every so often; 0 leaves that to others.
    /// `way` leads to it.
    pub fn read(
        &self,
        compaction: Duration,
        way: &Dialer,
        wrong: &mut ConfigErrors,
    ) -> Option<store_etcd::Options> {
        const CERTIFICATE: &str = "--etcd-certfile";
        const KEY: &str = "--etcd-keyfile";
        let certificate = wrong.text(CERTIFICATE, self.etcd_certfile.as_deref());
        let key = wrong.text(KEY, self.etcd_keyfile.as_deref());
        let authorities = wrong.text("--etcd-cafile", self.etcd_cafile.as_deref());
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            wrong.add(CERTIFICATE, format!("must be given together with {KEY}"));
        }
        if !self.etcd_servers_overrides.is_empty() {
            tracing::warn!(
                "--etcd-servers-overrides has no effect: the objects of a cluster have one sequence of revisions, and so one store"
            );
        }
        if self.etcd_servers.is_empty() {
            self.warn_of_nothing();
            return None;
        }
        let identity =
            certificate.zip(key).map(|(certificate, key)| (certificate.into_bytes(), key.into_bytes()));
        let authorities = authorities.map(String::into_bytes);
        let servers = self.etcd_servers.iter().map(|url| Target {
            // upstream's may be named without saying how to speak to them
            url: if url.contains(":/") { url.clone() } else { format!("http://{url}") },
            authorities: authorities.clone(),
            authority_file: self.etcd_cafile.clone(),
            identity: identity.clone(),
            identity_files: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
            way: way.clone(),
            ..Target::default()
        });
        let servers: Vec<_> = servers.collect();
        for server in &servers {
            wrong.take("--etcd-servers", outbound::Channel::new(server, &[]));
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

    /// Says what was said in vain where no etcd is used.
    fn warn_of_nothing(&self) {
        let given = [
            ("--etcd-prefix", self.etcd_prefix != "/registry"),
            ("--etcd-cafile", self.etcd_cafile.is_some()),
            ("--etcd-certfile", self.etcd_certfile.is_some()),
            ("--storage-backend", !self.storage_backend.is_empty()),
        ];
        for (flag, _) in given.iter().filter(|(_, given)| *given) {
            tracing::warn!(
                "{flag} has no effect without --etcd-servers: objects are kept in a store of the server's own"
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
        let cli = Cli::read(line.trim().split(' ').map(Into::into)).unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut wrong = ConfigErrors::default();
        let read = up.server.etcd.read(up.server.limits.etcd_compaction_interval, way, &mut wrong);
        (read, wrong.check().map_err(|why| why.to_string()))
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
    fn what_cannot_be_used_is_said() {
        let told = read("--etcd-servers=ftp://a --etcd-certfile=/nowhere/a").1.unwrap_err();
        for part in ["--etcd-servers: ", "--etcd-certfile: cannot read", "together with --etcd-keyfile"] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
}
