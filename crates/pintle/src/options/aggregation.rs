//! API aggregation options.

use super::ConfigErrors;
use apiserver::aggregation;
use clap::{ArgAction, Args};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "API aggregation")]
pub struct Aggregation {
    /// Call aggregated API servers and webhooks at the endpoints of their service instead of the cluster IP, if this
    /// machine cannot reach cluster IPs
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_aggregator_routing: bool,

    /// Reject redirects of aggregated API servers instead of passing them to the client
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub aggregator_reject_forwarding_redirect: bool,

    /// The client certificate, in PEM, with which this server authenticates as a front proxy to aggregated API servers
    /// [default: the one made at the first start]. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// The private key of the client certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
}

impl Aggregation {
    pub fn read(&self, errors: &mut ConfigErrors) -> aggregation::Options {
        const CERTIFICATE: &str = "--proxy-client-cert-file";
        const KEY: &str = "--proxy-client-key-file";
        let certificate = errors.text(CERTIFICATE, self.proxy_client_cert_file.as_deref());
        let key = errors.text(KEY, self.proxy_client_key_file.as_deref());
        if self.proxy_client_cert_file.is_some() != self.proxy_client_key_file.is_some() {
            errors.add(CERTIFICATE, format!("must be given together with {KEY}"));
        }
        let good = |text: &String| CertificateDer::from_pem_slice(text.as_bytes()).map(drop);
        certificate.as_ref().and_then(|text| errors.take(CERTIFICATE, good(text)));
        let good = |text: &String| PrivateKeyDer::from_pem_slice(text.as_bytes()).map(drop);
        key.as_ref().and_then(|text| errors.take(KEY, good(text)));
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
            let Command::Up(up) = Cli::read(words.map(Into::into), crate::config_errors).unwrap().command
            else {
                panic!("not up")
            };
            let mut errors = ConfigErrors::default();
            let read = up.server.aggregation.read(&mut errors);
            errors.check().map(|()| read).map_err(|why| why.to_string())
        };
        let usual = read(String::new()).unwrap();
        assert!(usual.identity.is_none() && !usual.to_endpoints && usual.refuse_redirects);
        let line = "--enable-aggregator-routing --aggregator-reject-forwarding-redirect=false";
        let message = format!("{line} --proxy-client-cert-file {certificate} --proxy-client-key-file {key}");
        let message = read(message).unwrap();
        assert!(message.identity.is_some() && message.to_endpoints && !message.refuse_redirects);
        let half = read(format!("--proxy-client-cert-file {certificate}")).err().unwrap();
        assert!(half.contains("together"), "{half}");
        let odd = format!("--proxy-client-cert-file {key} --proxy-client-key-file {certificate}");
        let odd = read(odd).err().unwrap();
        assert!(odd.contains("cert-file") && odd.contains("key-file"), "{odd}");
    }
}
