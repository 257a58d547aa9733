//! Who signs certificates.

use super::super::ConfigErrors;
use crate::flags::any_duration;
use clap::Args;
use controllers::csrsigning::{self, authority::Source};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Who signs certificates")]
pub struct Signing {
    /// The authority that signs certificates that are asked for, in PEM, for all signers. Read again for every one
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,

    /// The key of that authority, in PEM
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,

    /// The longest that such certificates are good; who asks may ask for less
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "8760h0m0s")]
    pub cluster_signing_duration: Duration,

    /// The authority that signs certificates of clients of the API server
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,

    /// The key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,

    /// The authority that signs certificates by which agents of nodes show who they are
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,

    /// The key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,

    /// The authority that signs certificates that agents of nodes show to their clients
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,

    /// The key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,

    /// The authority that signs what was asked for before signers had names
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,

    /// The key of that authority
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl Signing {
    /// Puts what was said in the place of what is usual.
    pub fn onto(&self, options: &mut csrsigning::Options, wrong: &mut ConfigErrors) {
        options.lasts = self.cluster_signing_duration;
        let all = source(
            "--cluster-signing-cert-file",
            self.cluster_signing_cert_file.as_deref(),
            self.cluster_signing_key_file.as_deref(),
            wrong,
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
            let own = source(option, certificate.as_deref(), key.as_deref(), wrong);
            if own.is_some() && all.is_some() {
                wrong
                    .add(option, "it does not go with --cluster-signing-cert-file, which is for all signers");
            }
            if let Some(said) = own.or_else(|| all.clone()) {
                *signer = Some(said);
            }
        }
    }
}

/// An authority, if it was named; both halves and readable.
fn source(
    option: &str,
    certificate: Option<&Path>,
    key: Option<&Path>,
    wrong: &mut ConfigErrors,
) -> Option<Source> {
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return None,
        _ => {
            wrong.add(option, "a certificate and its key go together");
            return None;
        }
    };
    for file in [certificate, key] {
        wrong.text(option, Some(file))?;
    }
    Some(Source::Files { certificate: certificate.to_owned(), key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        signing: Signing,
    }

    fn read(line: &str) -> Result<csrsigning::Options, String> {
        let line =
            Line::try_parse_from(format!("x {line}").split_whitespace()).map_err(|why| why.to_string())?;
        let (mut options, mut wrong) = (csrsigning::Options::default(), ConfigErrors::default());
        line.signing.onto(&mut options, &mut wrong);
        wrong.check().map(|()| options).map_err(|why| why.to_string())
    }

    #[test]
    fn signers_have_one_authority_or_each_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("c"), "").unwrap();
        std::fs::write(path("k"), "").unwrap();
        let (c, k) = (path("c"), path("k"));
        let all = read(&format!("--cluster-signing-cert-file {c} --cluster-signing-key-file {k}")).unwrap();
        assert!(all.client.is_some() && all.legacy.is_some() && all.lasts.as_secs() == 365 * 86_400);
        let own = format!(
            "--cluster-signing-kubelet-serving-cert-file {c} --cluster-signing-kubelet-serving-key-file {k}"
        );
        let one = read(&format!("{own} --cluster-signing-duration 24h")).unwrap();
        assert!(one.agent_serving.is_some() && one.client.is_none() && one.lasts.as_secs() == 86_400);
        for (line, part) in [
            (
                format!("--cluster-signing-cert-file {c} --cluster-signing-key-file {k} {own}"),
                "does not go with",
            ),
            (format!("--cluster-signing-cert-file {c}"), "go together"),
            (format!("--cluster-signing-cert-file /none --cluster-signing-key-file {k}"), "/none"),
        ] {
            let told = read(&line).unwrap_err();
            assert!(told.contains(part), "{told}");
        }
    }
}
