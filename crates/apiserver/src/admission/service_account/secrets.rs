//! Checks of the secrets that a pod references. Pure.

use kinds::core::pod::references::{self, ReferenceKind};
use schema::Value;
use std::collections::HashSet;

/// Why an account does not permit one of a pod's secrets; `None` if it permits all.
///
/// Upstream 1.26 ignores `envFrom` secrets, which later releases fixed; they are checked here.
pub fn forbidden_secret(pod: &Value, account: &Value) -> Option<String> {
    let allowed = AllowedSecrets::of(account);
    let volumes = pod.items(&["spec", "volumes"]).iter().find_map(|volume| {
        let name = volume.at(&["secret", "secretName"])?.as_str()?;
        allowed.refuses(name).then(|| allowed.refusal("volume with", name))
    });
    let containers = || {
        [("initContainers", "init container"), ("containers", "container")]
            .into_iter()
            .find_map(|(kind, called)| allowed.environment(pod, kind, called))
    };
    let pulls = || {
        let listed = account.items(&["imagePullSecrets"]).iter();
        let listed: HashSet<&str> = listed.map(|it| it.text(&["name"])).collect();
        let pulls = pod.items(&["spec", "imagePullSecrets"]).iter().map(|it| it.text(&["name"])).enumerate();
        pulls.into_iter().find(|(_, name)| !listed.contains(name)).map(|(at, name)| {
            format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {} does not reference \
                 that imagePullSecret",
                allowed.account
            )
        })
    };
    volumes.or_else(containers).or_else(pulls)
}

/// The same for ephemeral containers.
pub fn forbidden_ephemeral_secret(pod: &Value, account: &Value) -> Option<String> {
    AllowedSecrets::of(account).environment(pod, "ephemeralContainers", "ephemeral container")
}

struct AllowedSecrets<'a> {
    account: &'a str,
    secrets: HashSet<&'a str>,
}

impl<'a> AllowedSecrets<'a> {
    fn of(account: &'a Value) -> Self {
        let secrets = account.items(&["secrets"]).iter().map(|it| it.text(&["name"])).collect();
        AllowedSecrets { account: account.text(&["metadata", "name"]), secrets }
    }

    fn refuses(&self, secret: &str) -> bool {
        !self.secrets.contains(secret)
    }

    fn refusal(&self, subject: &str, secret: &str) -> String {
        format!(
            "{subject} secret.secretName=\"{secret}\" is not allowed because service account {} does not reference that \
             secret",
            self.account
        )
    }

    fn environment(&self, pod: &Value, kind: &str, called: &str) -> Option<String> {
        pod.items(&["spec", kind]).iter().find_map(|container| {
            let name = container.text(&["name"]);
            let variables = container.items(&["env"]).iter().find_map(|variable| {
                let secret = variable.at(&["valueFrom", "secretKeyRef"])?.text(&["name"]);
                let subject = format!("{called} {name} with envVar {} referencing", variable.text(&["name"]));
                self.refuses(secret).then(|| self.refusal(&subject, secret))
            });
            let whole = || {
                container.items(&["envFrom"]).iter().find_map(|source| {
                    let secret = source.at(&["secretRef"])?.text(&["name"]);
                    let subject = format!("{called} {name} with envFrom referencing");
                    self.refuses(secret).then(|| self.refusal(&subject, secret))
                })
            };
            variables.or_else(whole)
        })
    }
}

/// Why a pod cannot be a mirror pod; `None` if it can.
pub fn mirrored(pod: &Value) -> Option<&'static str> {
    if !pod.text(&["spec", "serviceAccountName"]).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if references::any(pod, |kind, _| kind == ReferenceKind::Secret) {
        return Some("a mirror pod may not reference secrets");
    }
    let volumes = pod.items(&["spec", "volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| volume.items(&["projected", "sources"]));
    let token = sources.any(|source| source.at(&["serviceAccountToken"]).is_some_and(|it| !it.is_null()));
    token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}
