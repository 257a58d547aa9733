//! Bootstrap tokens: `abcdef.0123456789abcdef`, an id that may be seen and a secret.

use api::core::v1::Secret;
use api::meta::v1::ObjectMeta;
use api::{ByteString, Resource as _};
use env::World;
use names::Names;
use schema::time;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// The prefix of the Secrets' names; the id follows.
const PREFIX: &str = "bootstrap-token-";
/// The group of users that authenticate with a token.
pub const GROUP: &str = "system:bootstrappers:pintle:default-node-token";

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    pub secret: String,
}

/// The token as it is used, so only for its owner.
impl fmt::Display for BootstrapToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.id, self.secret)
    }
}

/// Keeps secrets out of logs.
impl fmt::Debug for BootstrapToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BootstrapToken({}..)", self.id)
    }
}

impl BootstrapToken {
    pub fn generate(world: &World) -> Self {
        BootstrapToken { id: random_text(world, ID_LENGTH), secret: random_text(world, SECRET_LENGTH) }
    }

    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let is_plain =
            |part: &str, length: usize| part.len() == length && part.bytes().all(|c| LETTERS.contains(&c));
        match text.trim().split_once('.') {
            Some((id, secret)) if is_plain(id, ID_LENGTH) && is_plain(secret, SECRET_LENGTH) => {
                Ok(BootstrapToken { id: id.to_owned(), secret: secret.to_owned() })
            }
            // the text may be a secret with a typing error: it is not repeated
            _ => anyhow::bail!(
                "the token is not of the form abcdef.0123456789abcdef: copy it again, or make a new one with pintle \
                 token create"
            ),
        }
    }

    /// The Secret of the token, which expires after a time; never if that is zero.
    pub fn to_object(&self, ttl: Duration, description: &str, now: i64, names: &Names) -> Secret {
        let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let expiration = if ttl == 0 { String::new() } else { time::format_time(now.saturating_add(ttl)) };
        let fields = [
            ("token-id", &*self.id),
            ("token-secret", &*self.secret),
            ("description", description),
            ("expiration", &*expiration),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
            ("auth-extra-groups", GROUP),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        Secret {
            metadata: ObjectMeta {
                name: object_name(&self.id),
                namespace: names.system_namespace(),
                ..ObjectMeta::default()
            },
            type_: names.bootstrap_token_type(),
            data: fields
                .map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())))
                .collect(),
            ..Secret::default()
        }
    }
}

/// The name of the Secret of a token.
pub fn object_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The id in a token, or the id itself.
pub fn id_of(text: &str) -> anyhow::Result<String> {
    let id = text.split('.').next().unwrap_or_default();
    let is_id = id.len() == ID_LENGTH && id.bytes().all(|c| LETTERS.contains(&c));
    anyhow::ensure!(is_id, "{id:?} is not the id of a token, which has six letters or digits");
    Ok(id.to_owned())
}

/// Letters and digits, each as likely as another.
fn random_text(world: &World, length: usize) -> String {
    let mut text = String::with_capacity(length);
    let bound = 256 - 256 % LETTERS.len();
    while text.len() < length {
        let mut byte = [0];
        world.fill(&mut byte);
        let value = usize::from(byte[0]);
        if value < bound {
            text.push(char::from(LETTERS[value % LETTERS.len()]));
        }
    }
    text
}

/// The columns of a token in a list. The secret half is not shown.
pub fn row(secret: &Secret, now: i64) -> [String; 5] {
    let data: BTreeMap<&str, String> = secret
        .data
        .iter()
        .map(|(key, value)| (key.as_str(), String::from_utf8_lossy(&value.0).into_owned()))
        .collect();
    let field = |key: &str| data.get(key).cloned().unwrap_or_default();
    let expiration = field("expiration");
    let left = match (expiration.is_empty(), time::to_unix(&expiration)) {
        (true, _) => "<forever>".to_owned(),
        (false, Some(until)) if until > now => time::human_duration(until - now),
        (false, _) => "<expired>".to_owned(),
    };
    let or_never = if expiration.is_empty() { "<never>".to_owned() } else { expiration };
    let usages = ["authentication", "signing"]
        .into_iter()
        .filter(|it| field(&format!("usage-bootstrap-{it}")) == "true");
    let id = secret.name().strip_prefix(PREFIX).unwrap_or(secret.name()).to_owned();
    [id, left, or_never, usages.collect::<Vec<_>>().join(","), field("description")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_generated_and_parsed() {
        let world: World = env::Seeded::new(1_700_000_000, 3);
        let token = BootstrapToken::generate(&world);
        assert_ne!(token, BootstrapToken::generate(&world));
        assert_eq!(BootstrapToken::parse(&format!(" {token}\n")).unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.secret));
        for bad in [
            "",
            "abcdef",
            "abcdef.",
            "abcdef.0123456789abcde",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcdeü",
        ] {
            let why = BootstrapToken::parse(bad).unwrap_err().to_string();
            assert!(why.contains("pintle token create") && !why.contains("0123456789abcde:"), "{why}");
        }
        assert_eq!(id_of("abcdef").unwrap(), "abcdef");
        assert_eq!(id_of("abcdef.0123456789abcdef").unwrap(), "abcdef");
        assert!(id_of("abc").is_err() && id_of("../../x").is_err());
    }

    #[test]
    fn a_secret_is_as_the_installer_makes_it() {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let names = Names::kubernetes();
        let secret = token.to_object(Duration::from_secs(3600), "for n2", 1_700_000_000, &names);
        assert_eq!(
            (secret.name(), &*secret.type_),
            ("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token")
        );
        assert_eq!(secret.data["expiration"].0, b"2023-11-14T23:13:20Z");
        let columns = ["abcdef", "60m", "2023-11-14T23:13:20Z", "authentication,signing", "for n2"];
        assert_eq!(row(&secret, 1_700_000_000), columns);
        assert_eq!(row(&secret, 1_700_003_600)[1], "<expired>");
        let lasting = token.to_object(Duration::ZERO, "", 1_700_000_000, &names);
        assert!(!lasting.data.contains_key("expiration"));
        assert_eq!(row(&lasting, 0)[1..3], ["<forever>", "<never>"]);
    }
}
