//! How the server shows who it is, and what it speaks.

use super::ConfigErrors;
use apiserver::serve::{self, Pair, TlsMaterial};
use clap::Args;
use rustls::CipherSuite;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How it is served")]
pub struct Tls {
    /// The certificate that clients are shown, in PEM, followed by those between it and its root [default: one of
    /// its own]. Read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// A certificate and its key for clients that ask for certain names: CERT,KEY for those in the certificate, or
    /// CERT,KEY:*.example.org,example.org (may be repeated)
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub tls_sni_cert_key: Vec<String>,

    /// The oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,

    /// Where a certificate and its key are looked for, as apiserver.crt and apiserver.key, and put if there are none
    /// [default: none, those in the data directory are used]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// Let other processes listen on the same port, so that a new server can start before the old one has ended
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub permit_port_sharing: bool,

    /// The cipher suites to choose from, with commas between [default: all good ones]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
}

/// What clients are shown, as far as the operator decided.
#[derive(Clone, Default)]
pub struct ServingCertificates {
    /// In place of the server's own certificate.
    pub everybody: Option<Pair>,
    pub by_name: Vec<Pair>,
    pub newest_only: bool,
    pub suites: Vec<CipherSuite>,
}

impl ServingCertificates {
    /// Whom the administrator's client believes: the server's own authority, and whatever stands in the file of a
    /// certificate that is shown instead, which often ends in its root.
    pub fn believed(&self, own: &str) -> String {
        let instead = self.everybody.as_ref().map(|pair| String::from_utf8_lossy(&pair.certificate));
        format!("{own}{}", instead.unwrap_or_default())
    }

    /// Puts what was decided in the place of what is usual.
    pub fn onto(self, usual: TlsMaterial) -> TlsMaterial {
        let mut tls = TlsMaterial {
            by_name: self.by_name,
            newest_only: self.newest_only,
            suites: self.suites,
            ..usual
        };
        if let Some(pair) = self.everybody {
            (tls.certificate_chain, tls.private_key, tls.files) = (pair.certificate, pair.key, pair.files);
        }
        tls
    }
}

impl Tls {
    /// Where a certificate and its key are kept, if somebody said so and gave no others.
    pub fn kept_at(&self) -> Option<(PathBuf, PathBuf)> {
        let folder = self.cert_dir.as_ref().filter(|_| self.tls_cert_file.is_none())?;
        Some((folder.join("apiserver.crt"), folder.join("apiserver.key")))
    }

    fn kept_pair(&self, wrong: &mut ConfigErrors) -> Option<Pair> {
        let (certificate, key) =
            self.kept_at().filter(|(certificate, key)| certificate.exists() && key.exists())?;
        pair(("--cert-dir", "--cert-dir"), &certificate, &key, wrong)
    }

    pub fn read(&self, wrong: &mut ConfigErrors) -> ServingCertificates {
        let everybody = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                pair(("--tls-cert-file", "--tls-private-key-file"), certificate, key, wrong)
            }
            (None, None) => self.kept_pair(wrong),
            (Some(_), None) => {
                wrong.add("--tls-cert-file", "it goes with --tls-private-key-file");
                None
            }
            (None, Some(_)) => {
                wrong.add("--tls-private-key-file", "it goes with --tls-cert-file");
                None
            }
        };
        let by_name = self.tls_sni_cert_key.iter().filter_map(|text| named(text, wrong)).collect();
        let newest_only = match self.tls_min_version.as_deref() {
            None | Some("" | "VersionTLS12") => false,
            Some("VersionTLS13") => true,
            Some(old @ ("VersionTLS10" | "VersionTLS11")) => {
                let why = format!("{old} is no longer safe and not spoken; the least is VersionTLS12");
                wrong.add("--tls-min-version", why);
                false
            }
            Some(other) => {
                let why = format!("{other:?} is no version; there are VersionTLS12, VersionTLS13");
                wrong.add("--tls-min-version", why);
                false
            }
        };
        let suites = self.tls_cipher_suites.iter().filter_map(|name| {
            let known = suite(name.trim());
            wrong.take("--tls-cipher-suites", known)
        });
        let suites = suites.collect();
        ServingCertificates { everybody, by_name, newest_only, suites }
    }
}

fn pair(options: (&str, &str), certificate: &Path, key: &Path, wrong: &mut ConfigErrors) -> Option<Pair> {
    let files = Some((certificate.to_owned(), key.to_owned()));
    let certificate = wrong.text(options.0, Some(certificate));
    let key = wrong.text(options.1, Some(key));
    let pair =
        Pair { certificate: certificate?.into_bytes(), key: key?.into_bytes(), files, names: Vec::new() };
    wrong.take(options.0, pair.check()).map(|()| pair)
}

fn named(text: &str, wrong: &mut ConfigErrors) -> Option<Pair> {
    const OPTION: &str = "--tls-sni-cert-key";
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, Some(names)),
        None => (text, None),
    };
    let Some((certificate, key)) = files.split_once(',').filter(|(_, key)| !key.contains(',')) else {
        wrong.add(OPTION, format!("{text:?} does not name a certificate and a key, with a comma between"));
        return None;
    };
    let names = names.map(|names| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    if names.as_ref().is_some_and(|names| names.iter().any(String::is_empty)) {
        wrong.add(OPTION, format!("in {text:?} a name is empty"));
        return None;
    }
    let pair = pair((OPTION, OPTION), Path::new(certificate.trim()), Path::new(key.trim()), wrong)?;
    Some(Pair { names: names.unwrap_or_default(), ..pair })
}

/// Suites that are known elsewhere and not spoken here: they authenticate after they encrypt.
const UNSPOKEN: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Suites that nobody should speak any more.
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

/// The suite of a name, as operators know it.
fn suite(name: &str) -> Result<CipherSuite, String> {
    let there = serve::suites();
    // what is called TLS13_… inside is called TLS_… everywhere else
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
        _ if UNSPOKEN.contains(&name) => "is not spoken here",
        _ if INSECURE.contains(&name) => "is insecure",
        _ => "is not known",
    };
    Err(format!("{name} {why}; there are {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tls: Tls,
    }

    fn read(line: &str) -> Result<ServingCertificates, String> {
        let read =
            Line::try_parse_from(format!("x {line}").split_whitespace()).map_err(|it| it.to_string())?;
        let mut wrong = ConfigErrors::default();
        let shown = read.tls.read(&mut wrong);
        wrong.check().map(|()| shown).map_err(|why| why.to_string())
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
        let shown = read(&format!(
            "--tls-cert-file {a} --tls-private-key-file {ak} --tls-sni-cert-key {b},{bk} \
             --tls-sni-cert-key {a},{ak}:*.x.example,y.example --tls-min-version VersionTLS13"
        ))
        .unwrap();
        assert!(shown.newest_only && shown.suites.is_empty());
        let everybody = shown.everybody.clone().unwrap();
        assert_eq!(everybody.files, Some((a.clone().into(), ak.clone().into())));
        assert_eq!(shown.by_name[0].names, [""; 0]);
        assert_eq!(shown.by_name[1].names, ["*.x.example", "y.example"]);
        let tls = shown.onto(TlsMaterial::default());
        assert_eq!((tls.by_name.len(), tls.certificate_chain), (2, everybody.certificate));
        let told = read(&format!(
            "--tls-cert-file {a} --tls-private-key-file {bk} --tls-sni-cert-key {b} \
             --tls-sni-cert-key {b},{bk}: --tls-sni-cert-key /nowhere,{bk}"
        ))
        .err()
        .unwrap();
        for part in [
            "--tls-cert-file: server certificate",
            "does not name a certificate and a key",
            "a name is empty",
            "/nowhere",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        assert!(read(&format!("--tls-cert-file {a}")).err().unwrap().contains("--tls-private-key-file"));
        assert!(read(&format!("--tls-private-key-file {a}")).err().unwrap().contains("--tls-cert-file"));
    }

    #[test]
    fn only_good_versions_and_suites_are_spoken() {
        let shown = read(
            "--tls-cipher-suites TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305 \
             --tls-cipher-suites TLS_AES_256_GCM_SHA384",
        );
        assert_eq!(
            shown.unwrap().suites,
            [
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_256_GCM_SHA384,
            ]
        );
        for (line, part) in [
            ("--tls-min-version VersionTLS11", "VersionTLS11 is no longer safe"),
            ("--tls-min-version 1.3", "\"1.3\" is no version"),
            ("--tls-cipher-suites TLS_RSA_WITH_RC4_128_SHA", "is insecure; there are TLS_AES_"),
            ("--tls-cipher-suites TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "is not spoken here; there are"),
            ("--tls-cipher-suites x", "x is not known"),
        ] {
            let told = read(line).err().unwrap();
            assert!(told.contains(part) && told.lines().count() == 1, "{told}");
        }
    }
}
