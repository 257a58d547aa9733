//! Bootstrap tokens: secrets with which new nodes authenticate.

use api::Resource;
use api::core::v1::Secret;
use schema::time;

/// The prefix of their names; the token's id follows.
const PREFIX: &str = "bootstrap-token-";

/// The value of a key of a secret, if it is text and not empty.
fn text<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    let held = &secret.data.get(key)?.0;
    std::str::from_utf8(held).ok().filter(|it| !it.is_empty())
}

/// When a token expires, in Unix seconds; `None` if never. A time that cannot be parsed has passed.
pub fn expiration(secret: &Secret) -> Option<i64> {
    let held = secret.data.get("expiration").filter(|it| !it.0.is_empty())?;
    let expires = std::str::from_utf8(&held.0).ok().and_then(time::to_unix);
    Some(expires.unwrap_or(i64::MIN))
}

/// Id and secret half of a token that signs the public cluster information.
pub fn signing(secret: &Secret, now: i64) -> Option<(&str, &str)> {
    let (id, half) = (text(secret, "token-id")?, text(secret, "token-secret")?);
    let named = secret.name().strip_prefix(PREFIX) == Some(id);
    let is_valid = expiration(secret).is_none_or(|at| at > now);
    let signs = text(secret, "usage-bootstrap-signing") == Some("true");
    (named && is_valid && signs && secret.metadata.deletion_timestamp.is_none()).then_some((id, half))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use api::ByteString;

    /// A token that signs, with changes; an empty text removes a value.
    pub(crate) fn secret(id: &str, changes: &[(&str, &str)]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = format!("{PREFIX}{id}");
        let usual =
            [("token-id", id), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")];
        let data = &mut secret.data;
        for (key, text) in usual.iter().chain(changes) {
            data.insert((*key).to_owned(), ByteString(text.as_bytes().to_vec()));
        }
        secret
    }

    #[test]
    fn only_valid_tokens_sign() {
        const NOW: i64 = 1_700_000_000; // 2023-11-14T22:13:20Z
        let signs = |changes: &[(&str, &str)]| signing(&secret("abcdef", changes), NOW).is_some();
        assert_eq!(signing(&secret("abcdef", &[]), NOW), Some(("abcdef", "0123456789abcdef")));
        assert!(signs(&[("expiration", "2023-11-14T22:13:21Z")]));
        for bad in [
            ("expiration", "2023-11-14T22:13:20Z"),
            ("expiration", "tomorrow"),
            ("token-id", "others"),
            ("token-secret", ""),
            ("usage-bootstrap-signing", "yes"),
            ("usage-bootstrap-signing", ""),
        ] {
            assert!(!signs(&[bad]), "{bad:?}");
        }
    }

    #[test]
    fn expiration_is_parsed() {
        let until = |text: &str| expiration(&secret("abcdef", &[("expiration", text)]));
        assert_eq!(until(""), None);
        assert_eq!(until("2023-11-15T00:13:20+02:00"), Some(1_700_000_000));
        assert_eq!(until("soon"), Some(i64::MIN));
    }
}
