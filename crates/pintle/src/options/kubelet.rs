//! Options of connections from the API server to node agents.

use super::ConfigErrors;
use crate::flags::duration;
use apiserver::node_proxy;
use clap::Args;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connections to kubelets")]
pub struct Kubelet {
    /// The CA certificates, in PEM, that sign the serving certificates of kubelets; without them, any certificate is
    /// accepted. Reloaded when they change
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// The client certificate, in PEM, with which this server authenticates to kubelets [default: the administrator's,
    /// if it was made at the first start]. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,

    /// The private key of the client certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,

    /// The types of node addresses for connections to kubelets; the first one that a node has is used
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "InternalIP,ExternalIP,Hostname,InternalDNS,ExternalDNS"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// Deprecated: The port of kubelets whose node reports none
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub kubelet_port: u16,

    /// The timeout of connecting to a kubelet
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub kubelet_timeout: Duration,
}

impl Kubelet {
    pub fn read(&self, errors: &mut ConfigErrors) -> node_proxy::Options {
        const AUTHORITY: &str = "--kubelet-certificate-authority";
        const CERTIFICATE: &str = "--kubelet-client-certificate";
        const KEY: &str = "--kubelet-client-key";
        let authorities = errors.text(AUTHORITY, self.kubelet_certificate_authority.as_deref());
        let certificate = errors.text(CERTIFICATE, self.kubelet_client_certificate.as_deref());
        let key = errors.text(KEY, self.kubelet_client_key.as_deref());
        if self.kubelet_client_certificate.is_some() != self.kubelet_client_key.is_some() {
            errors.add(CERTIFICATE, format!("must be given together with {KEY}"));
        }
        let good = |text: &String| CertificateDer::from_pem_slice(text.as_bytes()).map(drop);
        authorities.as_ref().and_then(|text| errors.take(AUTHORITY, good(text)));
        certificate.as_ref().and_then(|text| errors.take(CERTIFICATE, good(text)));
        let good = |text: &String| PrivateKeyDer::from_pem_slice(text.as_bytes()).map(drop);
        key.as_ref().and_then(|text| errors.take(KEY, good(text)));
        node_proxy::Options {
            authorities: authorities.map(String::into_bytes),
            authority_file: self.kubelet_certificate_authority.clone(),
            identity: certificate.zip(key).map(|(certificate, key)| (certificate.into(), key.into())),
            identity_files: self.kubelet_client_certificate.clone().zip(self.kubelet_client_key.clone()),
            preferred_address_types: self.kubelet_preferred_address_types.clone(),
            port: self.kubelet_port,
            timeout: self.kubelet_timeout,
            ..node_proxy::Options::default()
        }
    }
}
