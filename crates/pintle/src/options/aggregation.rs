//! How requests are passed on to other API servers.

use super::ConfigErrors;
use apiserver::aggregation;
use clap::{ArgAction, Args};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Other API servers")]
pub struct Aggregation {
    /// Pass requests on to the addresses behind a service, rather than to that of the service, and call webhooks there: for
    /// clusters in which this machine cannot reach services
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_aggregator_routing: bool,

    /// Refuse answers of other API servers that lead elsewhere, rather than handing them to the client
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub aggregator_reject_forwarding_redirect: bool,

    /// The certificate, in PEM, by which other API servers know that this one may say who is calling [default: the one
    /// that is made at the first start]. Read again when it changes
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
}

impl Aggregation {
    pub fn read(&self, wrong: &mut ConfigErrors) -> aggregation::Options {
        const CERTIFICATE: &str = "--proxy-client-cert-file";
        const KEY: &str = "--proxy-client-key-file";
        let certificate = wrong.text(CERTIFICATE, self.proxy_client_cert_file.as_deref());
        let key = wrong.text(KEY, self.proxy_client_key_file.as_deref());
        if self.proxy_client_cert_file.is_some() != self.proxy_client_key_file.is_some() {
            wrong.add(CERTIFICATE, format!("must be given together with {KEY}"));
        }
        let good = |text: &String| CertificateDer::from_pem_slice(text.as_bytes()).map(drop);
        certificate.as_ref().and_then(|text| wrong.take(CERTIFICATE, good(text)));
        let good = |text: &String| PrivateKeyDer::from_pem_slice(text.as_bytes()).map(drop);
        key.as_ref().and_then(|text| wrong.take(KEY, good(text)));
        aggregation::Options {
            identity_files: self.proxy_client_cert_file.clone().zip(self.proxy_client_key_file.clone()),
            identity: certificate.zip(key).map(|(certificate, key)| (certificate.into(), key.into())),
            to_endpoints: self.enable_aggregator_routing,
            refuse_redirects: self.aggregator_reject_forwarding_redirect,
            ..aggregation::Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn a_certificate_comes_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["proxy".to_owned()]).unwrap();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = (file("c", made.cert.pem()), file("k", made.signing_key.serialize_pem()));
        let read = |line: String| {
            let words = ["pintle", "up"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
            let Command::Up(up) = Cli::read(words.map(Into::into)).unwrap().command else { panic!("not up") };
            let mut wrong = ConfigErrors::default();
            let read = up.server.aggregation.read(&mut wrong);
            wrong.check().map(|()| read).map_err(|why| why.to_string())
        };
        let usual = read(String::new()).unwrap();
        assert!(usual.identity.is_none() && !usual.to_endpoints && usual.refuse_redirects);
        let line = "--enable-aggregator-routing --aggregator-reject-forwarding-redirect=false";
        let told = format!("{line} --proxy-client-cert-file {certificate} --proxy-client-key-file {key}");
        let told = read(told).unwrap();
        assert!(told.identity.is_some() && told.to_endpoints && !told.refuse_redirects);
        let half = read(format!("--proxy-client-cert-file {certificate}")).err().unwrap();
        assert!(half.contains("together"), "{half}");
        let odd = format!("--proxy-client-cert-file {key} --proxy-client-key-file {certificate}");
        let odd = read(odd).err().unwrap();
        assert!(odd.contains("cert-file") && odd.contains("key-file"), "{odd}");
    }
}
