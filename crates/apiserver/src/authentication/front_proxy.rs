//! Front-proxy authentication: users in the headers of a trusted proxy.
//!
//! Invariant: headers count only on a connection whose certificate was issued by the proxy authorities for an
//! allowed name. Otherwise they are ignored.

use auth::User;
use auth::impersonate::unescape;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Allowed proxies, and the headers that name the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// Allowed common names; empty allows all that the authority issued.
    pub allowed_names: Vec<String>,
    /// The first of these that is present holds the user name.
    pub username_headers: Vec<HeaderName>,
    /// Each holds groups, and may be repeated.
    pub group_headers: Vec<HeaderName>,
    /// Prefixes, in lower case, of headers that hold extra fields of the user.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// The user in the headers, if the proxy is allowed and names one.
    pub fn user(&self, headers: &HeaderMap, common_name: &str) -> Result<Option<User>, String> {
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|name| name == common_name) {
            return Err(format!("x509: subject with cn={common_name} is not in the allowed list"));
        }
        let first = |name: &HeaderName| headers.get(name).map(text).filter(|name| !name.is_empty());
        let Some(name) = self.username_headers.iter().find_map(first) else { return Ok(None) };
        let mut user = User::named(name);
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name)).map(text);
        user.groups = groups.filter(|group| !group.is_empty()).collect();
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    user.extra.entry(unescape(key)).or_default().push(text(value));
                }
            }
        }
        Ok(Some(user))
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_a_user() {
        let front = FrontProxy {
            allowed_names: vec!["proxy".to_owned()],
            username_headers: ["x-remote-user", "x-other-user"].map(HeaderName::from_static).to_vec(),
            group_headers: ["x-remote-group", "x-other-group"].map(HeaderName::from_static).to_vec(),
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        };
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &'static str| {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        };
        for (name, value) in [
            ("x-remote-user", ""),
            ("x-other-user", "jane"),
            ("x-other-group", "b"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "c"),
            ("x-remote-extra-acme.com%2fproject", "one"),
            ("x-remote-extra-acme.com%2fproject", "two"),
        ] {
            add(name, value);
        }
        let user = front.user(&headers, "proxy").unwrap().unwrap();
        assert_eq!((&*user.name, &user.groups[..]), ("jane", &["a", "c", "b"].map(str::to_owned)[..]));
        assert_eq!(user.extra["acme.com/project"], ["one", "two"]);
        assert_eq!(front.user(&HeaderMap::new(), "proxy"), Ok(None));
        assert!(front.user(&headers, "other").unwrap_err().contains("allowed list"));
        let any = FrontProxy { allowed_names: Vec::new(), ..front };
        assert!(any.user(&headers, "other").unwrap().is_some());
    }
}
