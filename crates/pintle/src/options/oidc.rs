//! A provider of identity that speaks OpenID Connect.

use super::ConfigErrors;
use apiserver::authentication::oidc;
use clap::Args;
use outbound::{HttpClient, Limits, Target};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Users of an OpenID Connect provider")]
pub struct Oidc {
    /// A provider whose ID tokens are believed: the https URL that it calls itself, below which it describes
    /// itself and its keys
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,

    /// For whom ID tokens must be meant: what this cluster is called at the provider
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,

    /// Who vouches for the provider's certificate, in PEM [default: those whom this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,

    /// The claim with the user's name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,

    /// What users' names are made to begin with; - is nothing [default: the issuer's URL and #, nothing for mail
    /// addresses]
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

    /// What names of groups are made to begin with [default: nothing]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub oidc_groups_prefix: String,

    /// How ID tokens may be signed, with commas between: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384,
    /// PS512
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,

    /// A claim that must be there and what it must be (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub oidc_required_claim: Vec<String>,
}

/// A provider must answer soon, and what it describes is short.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 1024 * 1024 };

impl Oidc {
    pub fn read(&self, wrong: &mut ConfigErrors) -> Option<oidc::Options> {
        for name in &self.oidc_signing_algs {
            if !oidc::ALGORITHMS.contains(&name.as_str()) {
                let known = oidc::ALGORITHMS.join(", ");
                wrong.add("--oidc-signing-algs", format!("{name:?} is not among {known}"));
            }
        }
        if self.oidc_username_claim.is_empty() {
            wrong.add("--oidc-username-claim", "must not be empty");
        }
        let required = self.required(wrong);
        let authorities = self.oidc_ca_file.as_deref();
        let authorities = wrong.text("--oidc-ca-file", authorities).map(String::into_bytes);
        let (issuer, client_id) = match (&self.oidc_issuer_url, &self.oidc_client_id) {
            (Some(issuer), Some(client_id)) if !issuer.is_empty() && !client_id.is_empty() => {
                (issuer, client_id)
            }
            (None, None) => return None,
            _ => {
                wrong.add(
                    "--oidc-issuer-url",
                    "goes together with --oidc-client-id, and neither may be empty",
                );
                return None;
            }
        };
        if !oidc::is_https(issuer) {
            wrong.add("--oidc-issuer-url", format!("{issuer:?} is not an https URL"));
            return None;
        }
        let authority_file = self.oidc_ca_file.clone();
        let target = Target { url: issuer.clone(), authorities, authority_file, ..Target::default() };
        let caller = wrong.take("--oidc-ca-file", HttpClient::new(&target, LIMITS))?;
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

    fn required(&self, wrong: &mut ConfigErrors) -> Vec<(String, String)> {
        let mut required: Vec<(String, String)> = Vec::new();
        for one in &self.oidc_required_claim {
            match one.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
                Some((key, value)) if !key.is_empty() => {
                    // what is said last counts
                    required.retain(|(known, _)| known != key);
                    required.push((key.to_owned(), value.to_owned()));
                }
                _ => wrong.add("--oidc-required-claim", format!("{one:?} is not of the form key=value")),
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
    struct Line {
        #[command(flatten)]
        oidc: Oidc,
    }

    fn read(line: &str) -> Result<Option<oidc::Options>, String> {
        let read = Line::try_parse_from(format!("pintle {line}").split_whitespace());
        let mut wrong = ConfigErrors::default();
        let options = read.map_err(|why| why.to_string())?.oidc.read(&mut wrong);
        wrong.check().map_err(|why| why.to_string())?;
        Ok(options)
    }

    const BOTH: &str = "--oidc-issuer-url https://i.example/x --oidc-client-id c";

    #[test]
    fn names_begin_with_what_was_said() {
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
    fn what_is_wrong_is_named() {
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
            let told = read(line).err().unwrap_or_default();
            for part in parts {
                assert!(told.contains(part), "{line}: {told}");
            }
        }
    }
}
