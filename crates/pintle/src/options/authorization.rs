//! Authorization options.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::authorization::{self, policy_file, webhook};
use auth::{Abac, Mode};
use clap::Args;
use names::Names;
use outbound::{Dialer, HttpClient, Limits, Version};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authorization")]
pub struct Authorization {
    /// The authorization modes, comma-separated and in order: Node (kubelets, for objects of their node), RBAC (roles),
    /// ABAC (a policy file), Webhook (another server), AlwaysAllow, AlwaysDeny. Members of the group system:masters are
    /// always allowed
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = mode, default_value = "Node,RBAC")]
    pub authorization_mode: Vec<Mode>,

    /// The policy file of the mode ABAC: one policy per line, as a JSON object
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,

    /// The kubeconfig of the authorization webhook of the mode Webhook. It gets a SubjectAccessReview for each decision
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,

    /// The API version of the reviews sent to the webhook: v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authorization_webhook_version: Version,

    /// How long allowing answers of the webhook are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub authorization_webhook_cache_authorized_ttl: Duration,

    /// How long denying answers of the webhook are cached
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

const POLICY_FILE: &str = "--authorization-policy-file";
const WEBHOOK_FILE: &str = "--authorization-webhook-config-file";

impl Authorization {
    /// `way` is the dialer of the authorization webhook.
    pub fn read(&self, names: &Names, way: &Dialer, errors: &mut ConfigErrors) -> authorization::Options {
        let modes = &self.authorization_mode;
        if modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode)) {
            errors.add("--authorization-mode", "a mode is repeated");
        }
        let policies =
            self.file_for(Mode::Abac, "ABAC", POLICY_FILE, &self.authorization_policy_file, errors);
        let policies = policies.and_then(|file| policies_in(file, names, errors));
        let hook = &self.authorization_webhook_config_file;
        let hook = self.file_for(Mode::Webhook, "Webhook", WEBHOOK_FILE, hook, errors);
        let caller = hook.and_then(|file| {
            errors.take(WEBHOOK_FILE, HttpClient::from_kubeconfig_by(file, Limits::REVIEW, way.clone()))
        });
        authorization::Options {
            modes: modes.clone(),
            policies: policies.unwrap_or_default(),
            webhook: caller.map(|caller| webhook::Options {
                version: self.authorization_webhook_version,
                authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
                unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
                ..webhook::Options::new(caller)
            }),
        }
    }

    /// The file of a mode: required with the mode, invalid without it.
    fn file_for<'a>(
        &self,
        mode: Mode,
        name: &str,
        option: &str,
        file: &'a Option<PathBuf>,
        errors: &mut ConfigErrors,
    ) -> Option<&'a Path> {
        match (self.authorization_mode.contains(&mode), file) {
            (true, None) => errors.add(option, format!("required for the authorization mode {name}")),
            (false, Some(_)) => {
                errors.add(option, format!("is only valid with --authorization-mode={name}"));
            }
            (true, Some(file)) => return Some(file),
            (false, None) => {}
        }
        None
    }
}

fn policies_in(file: &Path, names: &Names, errors: &mut ConfigErrors) -> Option<Abac> {
    let text = errors.text(POLICY_FILE, Some(file))?;
    match policy_file::parse(&text, names) {
        Ok(policies) => Some(policies),
        Err(bad) => {
            for one in bad {
                errors.add(POLICY_FILE, format!("{}, {one}", file.display()));
            }
            None
        }
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    let known = Mode::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, mode)| *mode).ok_or_else(|| {
        let names: Vec<_> = Mode::ALL.iter().map(|(name, _)| *name).collect();
        format!("unknown mode; the modes are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        authorization: Authorization,
    }

    fn message(line: &str) -> String {
        let read = ParsedLine::try_parse_from(format!("pintle {line}").split_whitespace());
        let mut errors = ConfigErrors::default();
        match read {
            Ok(line) => drop(line.authorization.read(&Names::kubernetes(), &Dialer::Direct, &mut errors)),
            Err(why) => return why.to_string(),
        }
        errors.check().err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn files_go_with_their_modes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name).display().to_string()
        };
        let good = file("good", "# all\n{}\n");
        let bad = file("bad", "{}\nx\n{\"user\":1}\n");
        let hook = file(
            "hook",
            "{current-context: c, contexts: [{name: c, context: {cluster: k}}], \
             clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1/x'}}]}",
        );
        let without = file("without", "{current-context: c}");
        for (line, parts) in [
            (String::new(), vec![]),
            (format!("--authorization-mode ABAC --authorization-policy-file {good}"), vec![]),
            (format!("--authorization-mode Webhook --authorization-webhook-config-file {hook}"), vec![]),
            (
                "--authorization-mode ABAC,Webhook,ABAC".to_owned(),
                vec!["--authorization-mode: a mode is repeated", POLICY_FILE, WEBHOOK_FILE, "required for"],
            ),
            (
                format!("--authorization-policy-file {good} --authorization-webhook-config-file {hook}"),
                vec!["with --authorization-mode=ABAC", "with --authorization-mode=Webhook"],
            ),
            (
                format!("--authorization-mode ABAC --authorization-policy-file {bad}"),
                vec!["bad, line 2: not JSON", "bad, line 3: user must be text"],
            ),
            (
                "--authorization-mode ABAC --authorization-policy-file /none".to_owned(),
                vec!["cannot read /none"],
            ),
            (
                format!("--authorization-mode Webhook --authorization-webhook-config-file {without}"),
                vec!["--authorization-webhook-config-file: ", "no context \"c\""],
            ),
            ("--authorization-webhook-version v2".to_owned(), vec!["unknown version"]),
            ("--authorization-webhook-cache-authorized-ttl soon".to_owned(), vec!["soon"]),
            ("--authorization-mode Nonsense".to_owned(), vec!["unknown mode"]),
        ] {
            let message = message(&line);
            assert_eq!(message.is_empty(), parts.is_empty(), "{line}: {message}");
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
    }
}
