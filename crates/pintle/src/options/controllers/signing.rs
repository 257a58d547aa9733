//! Certificate signing options.

use super::super::ConfigErrors;
use crate::flags::any_duration;
use clap::Args;
use controllers::csrsigning::{self, authority::Source};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Certificate signing")]
pub struct Signing {
    /// The certificate authority that signs certificate requests, in PEM, for all signers. Read for every request
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,

    /// The private key of that authority, in PEM
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,

    /// The maximum validity of signed certificates; a request may ask for less
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "8760h0m0s")]
    pub cluster_signing_duration: Duration,

    /// The certificate authority of the signer kube-apiserver-client
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,

    /// The private key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,

    /// The certificate authority of the signer kube-apiserver-client-kubelet
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,

    /// The private key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,

    /// The certificate authority of the signer kubelet-serving
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,

    /// The private key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,

    /// The certificate authority of the signer legacy-unknown
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,

    /// The private key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl Signing {
    /// Applies the flags to the defaults.
    pub fn apply_to(&self, options: &mut csrsigning::Options, errors: &mut ConfigErrors) {
        options.max_duration = self.cluster_signing_duration;
        let all = source(
            "--cluster-signing-cert-file",
            self.cluster_signing_cert_file.as_deref(),
            self.cluster_signing_key_file.as_deref(),
            errors,
        );
        let each = [
            (
                "--cluster-signing-kube-apiserver-client-cert-file",
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
                &mut options.client,
            ),
            (
                "--cluster-signing-kubelet-client-cert-file",
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
                &mut options.agent_client,
            ),
            (
                "--cluster-signing-kubelet-serving-cert-file",
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
                &mut options.agent_serving,
            ),
            (
                "--cluster-signing-legacy-unknown-cert-file",
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
                &mut options.legacy,
            ),
        ];
        for (option, certificate, key, signer) in each {
            let own = source(option, certificate.as_deref(), key.as_deref(), errors);
            if own.is_some() && all.is_some() {
                errors.add(
                    option,
                    "cannot be given together with --cluster-signing-cert-file, which is for all signers",
                );
            }
            if let Some(client_trust) = own.or_else(|| all.clone()) {
                *signer = Some(client_trust);
            }
        }
    }
}

/// The authority of a pair of flags, if given: both files must be given and readable.
fn source(
    option: &str,
    certificate: Option<&Path>,
    key: Option<&Path>,
    errors: &mut ConfigErrors,
) -> Option<Source> {
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return None,
        _ => {
            errors.add(option, "certificate and key must be given together");
            return None;
        }
    };
    for file in [certificate, key] {
        errors.text(option, Some(file))?;
    }
    Some(Source::Files { certificate: certificate.to_owned(), key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        signing: Signing,
    }

    fn read(line: &str) -> Result<csrsigning::Options, String> {
        let line = ParsedLine::try_parse_from(format!("x {line}").split_whitespace())
            .map_err(|why| why.to_string())?;
        let (mut options, mut errors) = (csrsigning::Options::default(), ConfigErrors::default());
        line.signing.apply_to(&mut options, &mut errors);
        errors.check().map(|()| options).map_err(|why| why.to_string())
    }

    #[test]
    fn signers_have_one_authority_or_each_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("c"), "").unwrap();
        std::fs::write(path("k"), "").unwrap();
        let (c, k) = (path("c"), path("k"));
        let all = read(&format!("--cluster-signing-cert-file {c} --cluster-signing-key-file {k}")).unwrap();
        assert!(all.client.is_some() && all.legacy.is_some() && all.max_duration.as_secs() == 365 * 86_400);
        let own = format!(
            "--cluster-signing-kubelet-serving-cert-file {c} --cluster-signing-kubelet-serving-key-file {k}"
        );
        let one = read(&format!("{own} --cluster-signing-duration 24h")).unwrap();
        assert!(one.agent_serving.is_some() && one.client.is_none() && one.max_duration.as_secs() == 86_400);
        for (line, part) in [
            (
                format!("--cluster-signing-cert-file {c} --cluster-signing-key-file {k} {own}"),
                "cannot be given together with",
            ),
            (format!("--cluster-signing-cert-file {c}"), "must be given together"),
            (format!("--cluster-signing-cert-file /none --cluster-signing-key-file {k}"), "/none"),
        ] {
            let message = read(&line).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
