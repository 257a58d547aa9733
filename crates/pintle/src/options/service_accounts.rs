//! Tokens of service accounts: who signs them, who issues them, what they are verified with.

use super::ConfigErrors;
use apiserver::authentication;
use apiserver::authentication::jose::{PublicKey, Signer};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::time::Duration;

/// The bounds of the longest time that a token may be valid.
const SHORTEST: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(1 << 32);
/// For how long the tokens are good that pods get by default, and what is made of that.
const POD_DEFAULT: Duration = Duration::from_secs(3607);
const EXTENDED: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tokens of service accounts")]
pub struct ServiceAccounts {
    /// The private key that signs tokens, in PEM: RSA, P-256 or P-384 [default: one of its own]
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Keys that tokens are verified with, in PEM: public or private ones, or certificates, as many as there are in
    /// the file (may be repeated), besides the key that signs
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,

    /// What the issuer of tokens calls itself. Repeated, the first issues and all are believed, which is how an
    /// issuer is changed. Verifiers elsewhere find the keys only if it is a URL of the scheme https
    /// [default: https://kubernetes.default.svc]
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,

    /// Where verifiers elsewhere fetch the keys, if not from this server
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,

    /// The longest that a token is valid, whatever is asked for: from 1h to 2^32 seconds; 0s for no limit
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub service_account_max_token_expiration: String,

    /// Make the tokens that pods get by default good for a year, for programs that read them only once, and note in
    /// the audit log when one is used after its time
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub service_account_extend_token_expiration: bool,

    /// Believe a token that is kept in a secret only while that secret holds it and its account exists
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub service_account_lookup: bool,
}

impl ServiceAccounts {
    pub fn read(&self, wrong: &mut ConfigErrors) -> authentication::ServiceAccounts {
        let signing = "--service-account-signing-key-file";
        let signer = wrong.text(signing, self.service_account_signing_key_file.as_deref());
        let signer = signer.and_then(|pem| {
            let read = Signer::from_pem(pem.as_bytes());
            wrong.take(signing, read)
        });
        let mut keys = Vec::new();
        for file in &self.service_account_key_file {
            let option = "--service-account-key-file";
            let Some(pem) = wrong.text(option, Some(file)) else { continue };
            let read = PublicKey::all_from_pem(pem.as_bytes());
            let read = read.map_err(|why| format!("{} is of no use: {why}", file.display()));
            keys.extend(wrong.take(option, read).unwrap_or_default());
        }
        self.check_issuers(wrong);
        let longest = self.longest(wrong);
        authentication::ServiceAccounts {
            signer,
            keys,
            issuers: self.service_account_issuer.clone(),
            keys_at: self.service_account_jwks_uri.clone(),
            longest: longest.map(|it| it.as_secs() as i64),
            extend: self.service_account_extend_token_expiration,
            lookup: self.service_account_lookup,
            // a gate decides
            tracked: false,
        }
    }

    fn check_issuers(&self, wrong: &mut ConfigErrors) {
        let issuers = &self.service_account_issuer;
        for (at, issuer) in issuers.iter().enumerate() {
            let option = "--service-account-issuer";
            if issuer.trim().is_empty() {
                wrong.add(option, "an issuer must be called something");
            } else if issuers[..at].contains(issuer) {
                wrong.add(option, format!("{issuer:?} is named twice"));
            } else if issuer.contains(':') && !is_uri(issuer) {
                wrong.add(option, format!("{issuer:?} has a colon and so must be a URL, which it is not"));
            }
        }
        if let Some(at) = &self.service_account_jwks_uri
            && !(at.starts_with("https://") && is_uri(at))
        {
            wrong.add("--service-account-jwks-uri", format!("{at:?} is not a URL of the scheme https"));
        }
    }

    fn longest(&self, wrong: &mut ConfigErrors) -> Option<Duration> {
        let option = "--service-account-max-token-expiration";
        let nanos = schema::time::parse_duration(&self.service_account_max_token_expiration);
        let nanos = wrong.take(option, nanos)?;
        if nanos == 0 {
            return None;
        }
        let longest = Duration::from_nanos(u64::try_from(nanos).unwrap_or(1));
        if !(SHORTEST..=LONGEST).contains(&longest) {
            wrong.add(option, "must be between 1 hour and 2^32 seconds");
            return None;
        }
        if self.service_account_extend_token_expiration && longest < EXTENDED {
            let never = longest < POD_DEFAULT;
            tracing::warn!(
                never,
                "--service-account-extend-token-expiration makes tokens of pods good for a year, longer than \
                 --service-account-max-token-expiration; below 3607s it does nothing"
            );
        }
        Some(longest)
    }
}

/// Whether a text is a URI as far as it matters here: a scheme, and nothing that must be escaped.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut scheme = scheme.bytes();
    let escapes = rest.split('%').skip(1);
    let escaped =
        |part: &str| part.as_bytes().get(..2).is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit));
    scheme.next().is_some_and(|c| c.is_ascii_alphabetic())
        && scheme.all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
        && !rest.is_empty()
        && rest.bytes().all(|c| c.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&c))
        && escapes.into_iter().all(escaped)
}
