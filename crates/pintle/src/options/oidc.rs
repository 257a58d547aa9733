//! OpenID Connect options.

use super::ConfigErrors;
use apiserver::authentication::oidc;
use clap::Args;
use outbound::{HttpClient, Limits, Target};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "OpenID Connect")]
pub struct Oidc {
    /// The https URL of the provider whose ID tokens are accepted; its discovery document and keys are below that URL
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,

    /// The client ID of this cluster at the provider, which ID tokens must name as audience
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,

    /// The certificate authorities of the provider, in PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,

    /// The claim with the user's name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,

    /// The prefix of user names; - for none [default: the issuer's URL and #, none for mail addresses]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub oidc_username_prefix: String,

    /// The claim with the user's groups: a text or a list of texts [default: no groups]
    #[arg(long, value_name = "CLAIM", default_value = "", hide_default_value = true)]
    pub oidc_groups_claim: String,

    /// The prefix of group names [default: none]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub oidc_groups_prefix: String,

    /// The accepted signature algorithms of ID tokens, comma-separated: RS256, RS384, RS512, ES256, ES384, ES512,
    /// PS256, PS384, PS512
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,

    /// A claim that ID tokens must have, with its value (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub oidc_required_claim: Vec<String>,
}

/// The limits of requests to the provider.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 1024 * 1024 };

impl Oidc {
    pub fn read(&self, errors: &mut ConfigErrors) -> Option<oidc::Options> {
        for name in &self.oidc_signing_algs {
            if !oidc::ALGORITHMS.contains(&name.as_str()) {
                let known = oidc::ALGORITHMS.join(", ");
                errors.add("--oidc-signing-algs", format!("{name:?} is not among {known}"));
            }
        }
        if self.oidc_username_claim.is_empty() {
            errors.add("--oidc-username-claim", "must not be empty");
        }
        let required = self.required(errors);
        let authorities = self.oidc_ca_file.as_deref();
        let authorities = errors.text("--oidc-ca-file", authorities).map(String::into_bytes);
        let (issuer, client_id) = match (&self.oidc_issuer_url, &self.oidc_client_id) {
            (Some(issuer), Some(client_id)) if !issuer.is_empty() && !client_id.is_empty() => {
                (issuer, client_id)
            }
            (None, None) => return None,
            _ => {
                errors.add(
                    "--oidc-issuer-url",
                    "goes together with --oidc-client-id, and neither may be empty",
                );
                return None;
            }
        };
        if !oidc::is_https(issuer) {
            errors.add("--oidc-issuer-url", format!("{issuer:?} is not an https URL"));
            return None;
        }
        let authority_file = self.oidc_ca_file.clone();
        let target = Target { url: issuer.clone(), authorities, authority_file, ..Target::default() };
        let caller = errors.take("--oidc-ca-file", HttpClient::new(&target, LIMITS))?;
        let claim = &self.oidc_username_claim;
        Some(oidc::Options {
            username_claim: claim.clone(),
            username_prefix: oidc::Options::username_prefix(&self.oidc_username_prefix, claim, issuer),
            groups_claim: self.oidc_groups_claim.clone(),
            groups_prefix: self.oidc_groups_prefix.clone(),
            algorithms: self.oidc_signing_algs.clone(),
            required,
            ..oidc::Options::new(issuer, client_id, caller)
        })
    }

    fn required(&self, errors: &mut ConfigErrors) -> Vec<(String, String)> {
        let mut required: Vec<(String, String)> = Vec::new();
        for one in &self.oidc_required_claim {
            match one.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
                Some((key, value)) if !key.is_empty() => {
                    // the last value counts
                    required.retain(|(known, _)| known != key);
                    required.push((key.to_owned(), value.to_owned()));
                }
                _ => errors.add("--oidc-required-claim", format!("{one:?} is not of the form key=value")),
            }
        }
        required
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        oidc: Oidc,
    }

    fn read(line: &str) -> Result<Option<oidc::Options>, String> {
        let read = ParsedLine::try_parse_from(format!("pintle {line}").split_whitespace());
        let mut errors = ConfigErrors::default();
        let options = read.map_err(|why| why.to_string())?.oidc.read(&mut errors);
        errors.check().map_err(|why| why.to_string())?;
        Ok(options)
    }

    const BOTH: &str = "--oidc-issuer-url https://i.example/x --oidc-client-id c";

    #[test]
    fn user_names_have_the_prefix() {
        assert!(read("").unwrap().is_none());
        for (line, prefix) in [
            ("", "https://i.example/x#"),
            ("--oidc-username-claim email", ""),
            ("--oidc-username-claim name", "https://i.example/x#"),
            ("--oidc-username-prefix -", ""),
            ("--oidc-username-prefix=-", ""),
            ("--oidc-username-claim email --oidc-username-prefix o:", "o:"),
        ] {
            assert_eq!(read(&format!("{BOTH} {line}")).unwrap().unwrap().username_prefix, prefix, "{line}");
        }
        let line = format!(
            "{BOTH} --oidc-required-claim a=b --oidc-required-claim c=d=e --oidc-required-claim a=f \
             --oidc-signing-algs RS256,ES384"
        );
        let options = read(&line).unwrap().unwrap();
        let required: Vec<_> = options.required.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        assert_eq!(required, ["c:d=e", "a:f"]);
        assert_eq!(options.algorithms, ["RS256", "ES384"]);
    }

    #[test]
    fn errors_name_their_option() {
        for (line, parts) in [
            ("--oidc-issuer-url https://i.example", vec!["--oidc-client-id"]),
            ("--oidc-client-id c", vec!["--oidc-issuer-url"]),
            (
                "--oidc-issuer-url http://i.example --oidc-client-id c",
                vec!["--oidc-issuer-url: ", "not an https URL"],
            ),
            ("--oidc-issuer-url i.example --oidc-client-id c", vec!["not an https URL"]),
            (
                &format!(
                    "{BOTH} --oidc-signing-algs RS256,none,HS256 --oidc-required-claim x --oidc-ca-file /none"
                ),
                vec![
                    "\"none\" is not among",
                    "\"HS256\" is not among",
                    "key=value",
                    "--oidc-ca-file: cannot read",
                ],
            ),
            (&format!("{BOTH} --oidc-ca-file /dev/null"), vec!["--oidc-ca-file: ", "no certificate"]),
        ] {
            let message = read(line).err().unwrap_or_default();
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
    }
}
