//! Whom to call, as a kubeconfig file says it: that of the current context.

use crate::{Caller, Credentials, Target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::Value;
use schema::yaml::{self, Limits};
use std::path::Path;

/// Why a kubeconfig cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct BadKubeconfig {
    pub file: String,
    pub why: String,
}

impl Target {
    /// Reads a kubeconfig and the files that it names. Paths in it are relative to where it lies.
    pub fn from_kubeconfig(file: &Path) -> Result<Target, BadKubeconfig> {
        let bad = |why: String| BadKubeconfig { file: file.display().to_string(), why };
        let text = std::fs::read(file).map_err(|why| bad(why.to_string()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        parse(&text, folder).map_err(bad)
    }
}

impl Caller {
    /// Calls whom a kubeconfig names.
    pub fn from_kubeconfig(file: &Path, limits: crate::Limits) -> Result<Caller, BadKubeconfig> {
        let target = Target::from_kubeconfig(file)?;
        let bad =
            |why: crate::BadTarget| BadKubeconfig { file: file.display().to_string(), why: why.to_string() };
        Caller::new(&target, limits).map_err(bad)
    }
}

fn parse(text: &[u8], folder: &Path) -> Result<Target, String> {
    let config = yaml::parse(text, Limits::default()).map_err(|why| why.to_string())?.value;
    let current = config.text(&["current-context"]);
    if current.is_empty() {
        return Err("current-context is not set".to_owned());
    }
    let context = named(&config, "contexts", "context", current)?;
    let cluster = named(&config, "clusters", "cluster", context.text(&["cluster"]))?;
    let nobody = Value::map();
    let user = match context.text(&["user"]) {
        "" => &nobody,
        name => named(&config, "users", "user", name)?,
    };
    let url = cluster.text(&["server"]).to_owned();
    if url.is_empty() {
        return Err(format!("cluster {:?} has no server", context.text(&["cluster"])));
    }
    for unable in ["exec", "auth-provider"] {
        if user.at(&[unable]).is_some() {
            return Err(format!("{unable} is not supported: name a certificate, a token or a password"));
        }
    }
    let certificate = material(user, "client-certificate", folder)?;
    let key = material(user, "client-key", folder)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("client-certificate and client-key go together".to_owned()),
    };
    let text = |field: &str| Some(user.text(&[field]).to_owned()).filter(|it| !it.is_empty());
    let credentials = match (text("token"), text("tokenFile"), text("username")) {
        (_, Some(path), _) => Credentials::BearerFile(folder.join(path)),
        (Some(token), None, _) => Credentials::Bearer(token),
        (None, None, Some(user_name)) => {
            Credentials::Basic { user: user_name, password: text("password").unwrap_or_default() }
        }
        (None, None, None) => Credentials::None,
    };
    Ok(Target {
        url,
        authorities: material(cluster, "certificate-authority", folder)?,
        insecure: cluster.at(&["insecure-skip-tls-verify"]).and_then(Value::as_bool).unwrap_or(false),
        server_name: Some(cluster.text(&["tls-server-name"]).to_owned()).filter(|it| !it.is_empty()),
        identity,
        credentials,
    })
}

/// What stands under a name in one of the lists.
fn named<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
    let found = config.items(&[list]).iter().find(|one| one.text(&["name"]) == name);
    found.and_then(|one| one.at(&[field])).ok_or_else(|| format!("there is no {field} {name:?} in {list}"))
}

/// A certificate or key: in the file itself, or in one that it names.
fn material(part: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    let embedded = part.text(&[&format!("{field}-data")]);
    if !embedded.is_empty() {
        return STANDARD.decode(embedded).map(Some).map_err(|why| format!("{field}-data: {why}"));
    }
    let path = part.text(&[field]);
    if path.is_empty() {
        return Ok(None);
    }
    std::fs::read(folder.join(path)).map(Some).map_err(|why| format!("{field} {path:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
             clusters:\n- name: k\n  cluster: {cluster}\nusers:\n- name: u\n  user: {user}\n"
        )
    }

    #[test]
    fn the_current_context_says_whom_to_call() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), "CA").unwrap();
        let file = folder.path().join("config");
        let text = config(
            "{server: 'https://h:1/x', certificate-authority: ca.pem, tls-server-name: there.example}",
            "{client-certificate-data: QQ==, client-key-data: Qg==, token: t}",
        );
        std::fs::write(&file, text).unwrap();
        let target = Target::from_kubeconfig(&file).unwrap();
        assert_eq!((&*target.url, target.server_name.as_deref()), ("https://h:1/x", Some("there.example")));
        assert_eq!(target.authorities.as_deref(), Some(&b"CA"[..]));
        assert_eq!(target.identity, Some((b"A".to_vec(), b"B".to_vec())));
        assert!(matches!(&target.credentials, Credentials::Bearer(token) if token == "t"));
        assert!(!format!("{:?}", target.credentials).contains('t'));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_file() {
        for (text, part) in [
            ("a: [".to_owned(), ""),
            ("kind: Config".to_owned(), "current-context is not set"),
            ("current-context: x".to_owned(), "no context \"x\" in contexts"),
            (config("{}", "{}"), "cluster \"k\" has no server"),
            (config("{server: s}", "{exec: {command: x}}"), "exec is not supported"),
            (config("{server: s}", "{client-key-data: QQ==}"), "go together"),
            (config("{server: s, certificate-authority: none.pem}", "{}"), "none.pem"),
            (config("{server: s, certificate-authority-data: '*'}", "{}"), "certificate-authority-data"),
        ] {
            let why = parse(text.as_bytes(), Path::new("/nowhere")).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        let missing = Target::from_kubeconfig(Path::new("/nowhere/config")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/config: "), "{missing}");
    }
}
