//! Service account token options: signing key, issuers, verification keys.

use super::ConfigErrors;
use apiserver::authentication;
use apiserver::authentication::jose::{PublicKey, Signer};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::time::Duration;

/// The bounds of `--service-account-max-token-expiration`.
const SHORTEST: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(1 << 32);
/// The validity of injected tokens, and the extended one.
const POD_DEFAULT: Duration = Duration::from_secs(3607);
const EXTENDED: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Service account tokens")]
pub struct ServiceAccounts {
    /// The private key that signs tokens, in PEM: RSA, P-256 or P-384 [default: a key made at the first start]
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Files with keys that verify tokens, in PEM: any number of public keys, private keys or certificates (may be
    /// repeated), besides the signing key
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,

    /// The issuer of service account tokens. If repeated, the first one issues and all are accepted, which allows a
    /// change of issuer. Must be an https URL for external verifiers to find the keys [default:
    /// https://kubernetes.default.svc]
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,

    /// The URL of the keys for external verifiers, if not this server
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,

    /// The maximum validity of service account tokens: from 1h to 2^32 seconds; 0s for no limit
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub service_account_max_token_expiration: String,

    /// Extend the validity of injected service account tokens to a year, for programs that read them only once, and
    /// annotate audit events when a token is used after its original expiry
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub service_account_extend_token_expiration: bool,

    /// Accept a token from a secret only while the secret and its service account exist
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub service_account_lookup: bool,
}

impl ServiceAccounts {
    pub fn read(&self, errors: &mut ConfigErrors) -> authentication::ServiceAccounts {
        let signing = "--service-account-signing-key-file";
        let signer = errors.text(signing, self.service_account_signing_key_file.as_deref());
        let signer = signer.and_then(|pem| {
            let read = Signer::from_pem(pem.as_bytes());
            errors.take(signing, read)
        });
        let mut keys = Vec::new();
        for file in &self.service_account_key_file {
            let option = "--service-account-key-file";
            let Some(pem) = errors.text(option, Some(file)) else { continue };
            let read = PublicKey::all_from_pem(pem.as_bytes());
            let read = read.map_err(|why| format!("{} is not usable: {why}", file.display()));
            keys.extend(errors.take(option, read).unwrap_or_default());
        }
        self.check_issuers(errors);
        let longest = self.longest(errors);
        authentication::ServiceAccounts {
            signer,
            keys,
            issuers: self.service_account_issuer.clone(),
            jwks_uri: self.service_account_jwks_uri.clone(),
            max_seconds: longest.map(|it| it.as_secs() as i64),
            extend: self.service_account_extend_token_expiration,
            lookup: self.service_account_lookup,
            // set by a feature gate
            tracks_use: false,
        }
    }

    fn check_issuers(&self, errors: &mut ConfigErrors) {
        let issuers = &self.service_account_issuer;
        for (at, issuer) in issuers.iter().enumerate() {
            let option = "--service-account-issuer";
            if issuer.trim().is_empty() {
                errors.add(option, "the issuer must not be empty");
            } else if issuers[..at].contains(issuer) {
                errors.add(option, format!("{issuer:?} is repeated"));
            } else if issuer.contains(':') && !is_uri(issuer) {
                errors.add(option, format!("{issuer:?} contains a colon but is not a URL"));
            }
        }
        if let Some(at) = &self.service_account_jwks_uri
            && !(at.starts_with("https://") && is_uri(at))
        {
            errors.add("--service-account-jwks-uri", format!("{at:?} is not an https URL"));
        }
    }

    fn longest(&self, errors: &mut ConfigErrors) -> Option<Duration> {
        let option = "--service-account-max-token-expiration";
        let nanos = schema::time::parse_duration(&self.service_account_max_token_expiration);
        let nanos = errors.take(option, nanos)?;
        if nanos == 0 {
            return None;
        }
        let longest = Duration::from_nanos(u64::try_from(nanos).unwrap_or(1));
        if !(SHORTEST..=LONGEST).contains(&longest) {
            errors.add(option, "must be between 1 hour and 2^32 seconds");
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

/// Whether a text looks like a URI: a scheme, and no characters that must be escaped.
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
