//! TLS serving options: certificates, versions, cipher suites.

use super::ConfigErrors;
use apiserver::serve::{self, Pair, TlsMaterial};
use clap::Args;
use rustls::CipherSuite;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Secure serving")]
pub struct Tls {
    /// The serving certificate, in PEM, followed by its intermediate certificates [default: a certificate made at the
    /// first start]. Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// The private key of the serving certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// A certificate and its key for certain server names (SNI): CERT,KEY for the names in the certificate, or
    /// CERT,KEY:*.example.org,example.org (may be repeated)
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub tls_sni_cert_key: Vec<String>,

    /// The minimum TLS version: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,

    /// The directory of the serving certificate, as apiserver.crt and apiserver.key; written there if missing [default:
    /// none, the data directory is used]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// Let other processes listen on the same port, so that a new server can start before the old one has ended
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub permit_port_sharing: bool,

    /// The allowed cipher suites, comma-separated [default: all secure ones]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
}

/// The certificates and TLS settings that the operator chose.
#[derive(Clone, Default)]
pub struct ServingCertificates {
    /// Replaces the server's own certificate.
    pub default_pair: Option<Pair>,
    pub by_name: Vec<Pair>,
    pub newest_only: bool,
    pub suites: Vec<CipherSuite>,
}

impl ServingCertificates {
    /// The authorities in the administrator's kubeconfig: the server's own, and the chain of a certificate that
    /// replaces it, which often ends in its root.
    pub fn kubeconfig_authorities(&self, own: &str) -> String {
        let instead = self.default_pair.as_ref().map(|pair| String::from_utf8_lossy(&pair.certificate));
        format!("{own}{}", instead.unwrap_or_default())
    }

    /// Applies the operator's choices to the defaults.
    pub fn apply_to(self, usual: TlsMaterial) -> TlsMaterial {
        let mut tls = TlsMaterial {
            by_name: self.by_name,
            newest_only: self.newest_only,
            suites: self.suites,
            ..usual
        };
        if let Some(pair) = self.default_pair {
            (tls.certificate_chain, tls.private_key, tls.files) = (pair.certificate, pair.key, pair.files);
        }
        tls
    }
}

impl Tls {
    /// The files in `--cert-dir`, unless other files are given.
    pub fn cert_dir_files(&self) -> Option<(PathBuf, PathBuf)> {
        let folder = self.cert_dir.as_ref().filter(|_| self.tls_cert_file.is_none())?;
        Some((folder.join("apiserver.crt"), folder.join("apiserver.key")))
    }

    fn cert_dir_pair(&self, errors: &mut ConfigErrors) -> Option<Pair> {
        let (certificate, key) =
            self.cert_dir_files().filter(|(certificate, key)| certificate.exists() && key.exists())?;
        pair(("--cert-dir", "--cert-dir"), &certificate, &key, errors)
    }

    pub fn read(&self, errors: &mut ConfigErrors) -> ServingCertificates {
        let default_pair = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                pair(("--tls-cert-file", "--tls-private-key-file"), certificate, key, errors)
            }
            (None, None) => self.cert_dir_pair(errors),
            (Some(_), None) => {
                errors.add("--tls-cert-file", "must be given together with --tls-private-key-file");
                None
            }
            (None, Some(_)) => {
                errors.add("--tls-private-key-file", "must be given together with --tls-cert-file");
                None
            }
        };
        let by_name = self.tls_sni_cert_key.iter().filter_map(|text| named(text, errors)).collect();
        let newest_only = match self.tls_min_version.as_deref() {
            None | Some("" | "VersionTLS12") => false,
            Some("VersionTLS13") => true,
            Some(old @ ("VersionTLS10" | "VersionTLS11")) => {
                let why = format!("{old} is insecure and not supported; the minimum is VersionTLS12");
                errors.add("--tls-min-version", why);
                false
            }
            Some(other) => {
                let why = format!("{other:?} is not a TLS version; use VersionTLS12 or VersionTLS13");
                errors.add("--tls-min-version", why);
                false
            }
        };
        let suites = self.tls_cipher_suites.iter().filter_map(|name| {
            let known = suite(name.trim());
            errors.take("--tls-cipher-suites", known)
        });
        let suites = suites.collect();
        ServingCertificates { default_pair, by_name, newest_only, suites }
    }
}

fn pair(options: (&str, &str), certificate: &Path, key: &Path, errors: &mut ConfigErrors) -> Option<Pair> {
    let files = Some((certificate.to_owned(), key.to_owned()));
    let certificate = errors.text(options.0, Some(certificate));
    let key = errors.text(options.1, Some(key));
    let pair =
        Pair { certificate: certificate?.into_bytes(), key: key?.into_bytes(), files, names: Vec::new() };
    errors.take(options.0, pair.check()).map(|()| pair)
}

fn named(text: &str, errors: &mut ConfigErrors) -> Option<Pair> {
    const OPTION: &str = "--tls-sni-cert-key";
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, Some(names)),
        None => (text, None),
    };
    let Some((certificate, key)) = files.split_once(',').filter(|(_, key)| !key.contains(',')) else {
        errors.add(OPTION, format!("{text:?} is not CERT,KEY or CERT,KEY:NAMES"));
        return None;
    };
    let names = names.map(|names| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    if names.as_ref().is_some_and(|names| names.iter().any(String::is_empty)) {
        errors.add(OPTION, format!("a name in {text:?} is empty"));
        return None;
    }
    let pair = pair((OPTION, OPTION), Path::new(certificate.trim()), Path::new(key.trim()), errors)?;
    Some(Pair { names: names.unwrap_or_default(), ..pair })
}

/// Suites of upstream that are not supported: CBC with MAC-then-encrypt.
const UNSUPPORTED: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Insecure suites.
const INSECURE: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Parses the IANA name of a suite.
fn suite(name: &str) -> Result<CipherSuite, String> {
    let there = serve::suites();
    // rustls says TLS13_… for IANA's TLS_…
    let called = |suite: &CipherSuite| {
        let text = suite.as_str().unwrap_or_default().replace("TLS13_", "TLS_");
        text == name
            || text.strip_suffix("_SHA256").is_some_and(|short| short == name && short.ends_with("1305"))
    };
    if let Some(found) = there.iter().find(|suite| called(suite)) {
        return Ok(*found);
    }
    let names: Vec<_> = there.iter().filter_map(CipherSuite::as_str).collect();
    let names = names.join(", ").replace("TLS13_", "TLS_");
    let why = match name {
        _ if UNSUPPORTED.contains(&name) => "is not supported",
        _ if INSECURE.contains(&name) => "is insecure",
        _ => "is unknown",
    };
    Err(format!("{name} {why}; there are {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        tls: Tls,
    }

    fn read(line: &str) -> Result<ServingCertificates, String> {
        let read = ParsedLine::try_parse_from(format!("x {line}").split_whitespace())
            .map_err(|it| it.to_string())?;
        let mut errors = ConfigErrors::default();
        let formatted = read.tls.read(&mut errors);
        errors.check().map(|()| formatted).map_err(|why| why.to_string())
    }

    #[test]
    fn certificates_are_read_with_their_keys_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a", "b"] {
            let made = rcgen::generate_simple_self_signed([format!("{name}.example")]).unwrap();
            std::fs::write(path(&format!("{name}.crt")), made.cert.pem()).unwrap();
            std::fs::write(path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
        }
        let (a, ak, b, bk) = (path("a.crt"), path("a.key"), path("b.crt"), path("b.key"));
        let formatted = read(&format!(
            "--tls-cert-file {a} --tls-private-key-file {ak} --tls-sni-cert-key {b},{bk} \
             --tls-sni-cert-key {a},{ak}:*.x.example,y.example --tls-min-version VersionTLS13"
        ))
        .unwrap();
        assert!(formatted.newest_only && formatted.suites.is_empty());
        let default_pair = formatted.default_pair.clone().unwrap();
        assert_eq!(default_pair.files, Some((a.clone().into(), ak.clone().into())));
        assert_eq!(formatted.by_name[0].names, [""; 0]);
        assert_eq!(formatted.by_name[1].names, ["*.x.example", "y.example"]);
        let tls = formatted.apply_to(TlsMaterial::default());
        assert_eq!((tls.by_name.len(), tls.certificate_chain), (2, default_pair.certificate));
        let message = read(&format!(
            "--tls-cert-file {a} --tls-private-key-file {bk} --tls-sni-cert-key {b} \
             --tls-sni-cert-key {b},{bk}: --tls-sni-cert-key /nowhere,{bk}"
        ))
        .err()
        .unwrap();
        for part in ["--tls-cert-file: server certificate", "is not CERT,KEY", "a name in", "/nowhere"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(read(&format!("--tls-cert-file {a}")).err().unwrap().contains("--tls-private-key-file"));
        assert!(read(&format!("--tls-private-key-file {a}")).err().unwrap().contains("--tls-cert-file"));
    }

    #[test]
    fn only_good_versions_and_suites_are_spoken() {
        let formatted = read(
            "--tls-cipher-suites TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305 \
             --tls-cipher-suites TLS_AES_256_GCM_SHA384",
        );
        assert_eq!(
            formatted.unwrap().suites,
            [
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_256_GCM_SHA384,
            ]
        );
        for (line, part) in [
            ("--tls-min-version VersionTLS11", "VersionTLS11 is insecure"),
            ("--tls-min-version 1.3", "\"1.3\" is not a TLS version"),
            ("--tls-cipher-suites TLS_RSA_WITH_RC4_128_SHA", "is insecure; there are TLS_AES_"),
            ("--tls-cipher-suites TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "is not supported; there are"),
            ("--tls-cipher-suites x", "x is unknown"),
        ] {
            let message = read(line).err().unwrap();
            assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        }
    }
}
