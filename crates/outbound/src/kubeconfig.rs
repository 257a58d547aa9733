//! Reads a [`Target`] from the current context of a kubeconfig file.

use crate::{Credentials, Dialer, HttpClient, Target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::yaml::{self, Limits};
use schema::{Value, url};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Why a kubeconfig cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct KubeconfigError {
    pub file: String,
    pub why: String,
}

impl Target {
    /// Reads a kubeconfig and the files that it names. Relative paths are resolved against its folder.
    pub fn from_kubeconfig(file: &Path) -> Result<Target, KubeconfigError> {
        let bad = |why: String| KubeconfigError { file: file.display().to_string(), why };
        let text = std::fs::read(file).map_err(|why| bad(why.to_string()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        parse(&text, folder).map_err(bad)
    }
}

impl HttpClient {
    /// A client for the server of a kubeconfig.
    pub fn from_kubeconfig(file: &Path, limits: crate::Limits) -> Result<HttpClient, KubeconfigError> {
        Self::from_kubeconfig_by(file, limits, Dialer::Direct)
    }

    /// The same through another dialer.
    pub fn from_kubeconfig_by(
        file: &Path,
        limits: crate::Limits,
        way: Dialer,
    ) -> Result<HttpClient, KubeconfigError> {
        let target = Target { way, ..Target::from_kubeconfig(file)? };
        let bad = |why: crate::InvalidTarget| KubeconfigError {
            file: file.display().to_string(),
            why: why.to_string(),
        };
        HttpClient::new(&target, limits).map_err(bad)
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
    let anonymous = Value::map();
    let user = match context.text(&["user"]) {
        "" => &anonymous,
        name => named(&config, "users", "user", name)?,
    };
    let server = cluster.text(&["server"]);
    if server.is_empty() {
        return Err(format!("cluster {:?} has no server", context.text(&["cluster"])));
    }
    let ClientCredentials { identity, identity_files, credentials } = credentials_of(user, folder)?;
    let authorities = material(cluster, "certificate-authority", folder)?;
    let insecure = cluster.at(&["insecure-skip-tls-verify"]).and_then(Value::as_bool).unwrap_or(false);
    Ok(Target {
        url: base_url(server, insecure || authorities.is_some() || identity.is_some())?,
        authorities,
        authority_file: material_file(cluster, "certificate-authority", folder),
        insecure,
        server_name: Some(cluster.text(&["tls-server-name"]).to_owned()).filter(|it| !it.is_empty()),
        identity,
        identity_files,
        client_identity: None,
        credentials,
        way: Dialer::Direct,
        connect_timeout: None,
    })
}

/// The base URL of a server. A server without a scheme is a host with an optional port.
fn base_url(server: &str, tls: bool) -> Result<String, String> {
    if url::parse(server).is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty()) {
        return url::base(server);
    }
    let with_scheme = format!("{}://{server}", if tls { "https" } else { "http" });
    match url::parse(&with_scheme)?.path {
        "" | "/" => url::base(&with_scheme),
        _ => Err(format!("the server {server:?} is neither a URL nor a host and a port")),
    }
}

/// The credentials of a kubeconfig user.
#[derive(Debug, Clone, Default)]
pub struct ClientCredentials {
    /// Certificate and key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Their files, if they are in files.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    pub credentials: Credentials,
}

/// Credentials by server, from a kubeconfig whose user names are `host:port`, `host` (for port 443), `*.domain` or
/// `*`.
#[derive(Debug, Default)]
pub struct Users {
    by_name: HashMap<String, ClientCredentials>,
    current: Option<String>,
}

impl Users {
    pub fn from_kubeconfig(file: &Path) -> Result<Users, KubeconfigError> {
        let bad = |why: String| KubeconfigError { file: file.display().to_string(), why };
        let text = std::fs::read(file).map_err(|why| bad(why.to_string()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).map_err(bad)
    }

    fn parse(text: &[u8], folder: &Path) -> Result<Users, String> {
        let config = yaml::parse(text, Limits::default()).map_err(|why| why.to_string())?.value;
        let mut by_name = HashMap::new();
        for one in config.items(&["users"]) {
            let name = one.text(&["name"]);
            let anonymous = Value::map();
            let credentials_of = credentials_of(one.at(&["user"]).unwrap_or(&anonymous), folder);
            by_name.insert(name.to_owned(), credentials_of.map_err(|why| format!("user {name:?}: {why}"))?);
        }
        let current = match config.text(&["current-context"]) {
            "" => None,
            name => Some(named(&config, "contexts", "context", name)?.text(&["user"]).to_owned()),
        };
        Ok(Users { by_name, current })
    }

    /// The credentials for a server, given as `host:port`.
    pub fn of(&self, server: &str) -> ClientCredentials {
        let without_port = server.strip_suffix(":443");
        let by_server = [Some(server), without_port].into_iter().flatten().find_map(|it| self.named(it));
        let others = || self.by_name.get("*").or_else(|| self.by_name.get(self.current.as_ref()?));
        by_server.or_else(others).cloned().unwrap_or_default()
    }

    fn named(&self, server: &str) -> Option<&ClientCredentials> {
        let domains = server.match_indices('.').map(|(at, _)| format!("*{}", &server[at..]));
        self.by_name.get(server).or_else(|| domains.into_iter().find_map(|it| self.by_name.get(&it)))
    }
}

fn credentials_of(user: &Value, folder: &Path) -> Result<ClientCredentials, String> {
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
    let file = |field: &str| material_file(user, field, folder);
    let identity_files = file("client-certificate").zip(file("client-key"));
    Ok(ClientCredentials { identity, identity_files, credentials })
}

/// The entry with this name in one of the lists.
fn named<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
    let entry = config.items(&[list]).iter().find(|one| one.text(&["name"]) == name);
    entry.and_then(|one| one.at(&[field])).ok_or_else(|| format!("there is no {field} {name:?} in {list}"))
}

/// A certificate or key: embedded, or in a file that the kubeconfig names.
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

/// The file of a certificate or key that is not embedded.
fn material_file(part: &Value, field: &str, folder: &Path) -> Option<PathBuf> {
    let path = part.text(&[field]);
    let is_embedded = !part.text(&[&format!("{field}-data")]).is_empty();
    (!path.is_empty() && !is_embedded).then(|| folder.join(path))
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
    fn the_current_context_selects_the_server() {
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
        assert_eq!(target.authority_file, Some(folder.path().join("ca.pem")));
        assert_eq!(target.identity, Some((b"A".to_vec(), b"B".to_vec())));
        assert!(matches!(&target.credentials, Credentials::Bearer(token) if token == "t"));
        assert!(!format!("{:?}", target.credentials).contains('t'));
    }

    #[test]
    fn servers_are_called_at_clean_paths() {
        let nowhere = Path::new("/nowhere");
        for (server, user, url) in [
            ("https://h:1//x/../y%2Fz/?a=b", "{}", Ok("https://h:1/y/z")),
            ("https://h", "{}", Ok("https://h/")),
            ("h:8080", "{}", Ok("http://h:8080/")),
            ("127.0.0.1:8080/", "{}", Ok("http://127.0.0.1:8080/")),
            ("h", "{client-certificate-data: QQ==, client-key-data: Qg==}", Ok("https://h/")),
            ("h:8080/x", "{}", Err("the server \"h:8080/x\" is neither a URL nor a host and a port")),
        ] {
            let target = parse(config(&format!("{{server: '{server}'}}"), user).as_bytes(), nowhere);
            assert_eq!(target.as_ref().map(|it| &*it.url).map_err(|why| &**why), url);
        }
    }

    #[test]
    fn each_server_gets_the_credentials_of_its_name() {
        let user = |name: &str, token: &str| format!("- name: '{name}'\n  user: {{token: {token}}}\n");
        let named =
            [("a.example.com:8443", "exact"), ("b.example.com", "usual"), ("*.example.com", "domain")];
        let users: String = named.iter().map(|(name, token)| user(name, token)).collect();
        let of = |text: &str, server: &str| match Users::parse(text.as_bytes(), Path::new("/nowhere"))
            .unwrap()
            .of(server)
            .credentials
        {
            Credentials::Bearer(token) => token,
            other => format!("{other:?}"),
        };
        let text = format!("users:\n{users}");
        for (server, expected) in [
            ("a.example.com:8443", "exact"),
            ("b.example.com:443", "usual"),
            ("c.example.com:443", "domain"),
            ("c.d.example.com:443", "domain"),
            ("elsewhere.com:443", "None"),
        ] {
            assert_eq!(of(&text, server), expected, "{server}");
        }
        let text = format!("{text}{}", user("*", "all"));
        assert_eq!(of(&text, "elsewhere.com:443"), "all");
        let current = format!(
            "current-context: c\ncontexts:\n- {{name: c, context: {{user: a.example.com:8443}}}}\nusers:\n{users}"
        );
        assert_eq!(of(&current, "elsewhere.com:443"), "exact");
    }

    #[test]
    fn errors_name_the_file() {
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
