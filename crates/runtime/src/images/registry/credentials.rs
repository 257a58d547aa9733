//! Credentials for a registry.

use crate::RegistryAuth;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Credentials in the one form that a registry can use.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum RegistryCredentials {
    #[default]
    Anonymous,
    Basic {
        username: String,
        password: String,
    },
    /// A token that is exchanged for those of single repositories.
    Identity(String),
    /// A token for the registry itself.
    Bearer(String),
}

impl std::fmt::Debug for RegistryCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RegistryCredentials::Anonymous => "Anonymous",
            RegistryCredentials::Basic { .. } => "Basic(..)",
            RegistryCredentials::Identity(_) => "Identity(..)",
            RegistryCredentials::Bearer(_) => "Bearer(..)",
        })
    }
}

impl RegistryCredentials {
    /// The credentials of a pod, if they are for this registry.
    pub fn of(auth: Option<&RegistryAuth>, registry: &str) -> Self {
        let Some(auth) = auth.filter(|it| is_for(&it.server_address, registry)) else {
            return RegistryCredentials::Anonymous;
        };
        if !auth.registry_token.is_empty() {
            return RegistryCredentials::Bearer(auth.registry_token.clone());
        }
        if !auth.identity_token.is_empty() {
            return RegistryCredentials::Identity(auth.identity_token.clone());
        }
        let decoded = STANDARD.decode(&auth.auth).ok().and_then(|it| String::from_utf8(it).ok());
        let decoded = decoded.as_deref().and_then(|it| it.split_once(':'));
        let (username, password) = match decoded {
            Some((username, password)) if auth.username.is_empty() => {
                (username, password.trim_end_matches('\0'))
            }
            _ => (&*auth.username, &*auth.password),
        };
        match username.is_empty() && password.is_empty() {
            true => RegistryCredentials::Anonymous,
            false => {
                RegistryCredentials::Basic { username: username.to_owned(), password: password.to_owned() }
            }
        }
    }

    /// The value of a header with the scheme `Basic`.
    pub fn basic_header(&self) -> Option<String> {
        match self {
            RegistryCredentials::Basic { username, password } => {
                Some(format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
            }
            _ => None,
        }
    }
}

/// Credentials without an address are for every registry that the agent gives them for.
fn is_for(address: &str, registry: &str) -> bool {
    let host = address.split("://").last().unwrap_or_default().split('/').next().unwrap_or_default();
    let is_hub = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    host.is_empty() || host == registry || is_hub(host) && is_hub(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_their_registry_only() {
        let auth = RegistryAuth {
            auth: STANDARD.encode("me:secret:1"),
            server_address: "https://r.test/v1/".into(),
            ..RegistryAuth::default()
        };
        let basic = RegistryCredentials::Basic { username: "me".into(), password: "secret:1".into() };
        assert_eq!(RegistryCredentials::of(Some(&auth), "r.test"), basic);
        assert_eq!(RegistryCredentials::of(Some(&auth), "evil.test"), RegistryCredentials::Anonymous);
        assert_eq!(RegistryCredentials::of(None, "r.test"), RegistryCredentials::Anonymous);
        let hub =
            RegistryAuth { server_address: "index.docker.io".into(), registry_token: "t".into(), ..auth };
        assert_eq!(RegistryCredentials::of(Some(&hub), "docker.io"), RegistryCredentials::Bearer("t".into()));
        assert!(!format!("{basic:?}").contains("secret"));
    }
}
