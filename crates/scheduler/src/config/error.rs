//! Errors of a configuration.

/// The error of a configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not a configuration.
    #[error("{0}")]
    Decode(String),
    /// All mistakes of its values, each with its field.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<String>),
    /// A profile whose plugins do not go together.
    #[error("{0}")]
    Profile(String),
    /// An extender that cannot be called.
    #[error("extender {url}: {why}")]
    Extender { url: String, why: String },
}

/// Several messages as one; equal ones appear once.
pub(super) fn aggregate(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for message in messages {
        if seen.insert(message) {
            distinct.push(message);
        }
    }
    match distinct[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}
