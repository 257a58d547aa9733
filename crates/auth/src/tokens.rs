//! Token authentication: the [`Authenticator`] interface, and the static token file with lines of `token,user,uid`
//! and optionally `"group,group"`.
//!
//! [`Authenticator`]s are tried in order until one accepts the token. An error of one does not keep the next from
//! accepting it; the errors are reported only if none does.

use crate::User;
use env::MaybeReady;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The users of static tokens. Tokens are stored and looked up by digest, so that the time of a lookup reveals
/// nothing about them.
#[derive(Debug, Default)]
pub struct Tokens {
    users: HashMap<[u8; 32], Arc<User>>,
    /// The lengths of the tokens: a token of another length needs no digest.
    lengths: BTreeSet<usize>,
    /// Problems of the file that do not prevent its use.
    pub warnings: Vec<InvalidLine>,
}

/// The result of a successful authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedUser {
    pub user: Arc<User>,
    /// The requested audiences that the token is valid for. Left empty by authenticators that do not [read
    /// audiences](Authenticator::reads_audiences).
    pub audiences: Arc<[String]>,
    /// Audit annotations about the token: keys and values.
    pub annotations: Vec<(String, String)>,
}

impl AuthenticatedUser {
    /// A user whose token has no audiences.
    pub fn anywhere(user: Arc<User>) -> Self {
        AuthenticatedUser { user, audiences: Arc::new([]), annotations: Vec::new() }
    }
}

/// An authenticator's verdict on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The token's user.
    Known(AuthenticatedUser),
    /// Not a token of this authenticator.
    Unknown,
    /// A token of this authenticator that is not valid. TokenReviews return the reason, so it must not contain the
    /// token or a secret.
    Refused(String),
}

/// Authenticates tokens.
pub trait Authenticator: Send + Sync {
    /// Whether tokens have audiences. A token without audiences is valid for this server; the caller sees to that.
    fn reads_audiences(&self) -> bool {
        false
    }

    /// `audiences` are those of the server that received the token: at least one, unless the API server has none.
    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> MaybeReady<'a, Verdict>;
}

impl Authenticator for Tokens {
    fn identify<'a>(&'a self, token: &'a str, _: &'a [String]) -> MaybeReady<'a, Verdict> {
        self.find(token)
            .map_or(Verdict::Unknown, |user| Verdict::Known(AuthenticatedUser::anywhere(user.clone())))
            .into()
    }
}

/// A line that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct InvalidLine {
    pub line: usize,
    pub problem: &'static str,
}

impl Tokens {
    /// Parses the file. Blank lines, comments (`#`) and lines without a token are skipped; of several lines with
    /// the same token the last counts.
    pub fn parse(text: &str) -> Result<Self, InvalidLine> {
        let mut tokens = Tokens::default();
        for (at, line) in text.lines().enumerate() {
            let bad = |problem| InvalidLine { line: at + 1, problem };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line).ok_or_else(|| bad("a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = &columns[..] else {
                return Err(bad("a token, a user name and a uid are needed, separated by commas"));
            };
            if token.is_empty() {
                tokens.warnings.push(bad("it has no token and is ignored"));
                continue;
            }
            if name.is_empty() {
                return Err(bad("the user name may not be empty"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or("");
            let groups =
                groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            let user = User { uid: uid.clone(), groups: groups.collect(), ..User::named(name.as_str()) };
            if tokens.insert(token, user) {
                tokens.warnings.push(bad("its token repeats that of an earlier line, which is ignored"));
            }
        }
        Ok(tokens)
    }

    /// Adds a user's token; returns whether it replaces another user's.
    pub fn insert(&mut self, token: &str, user: User) -> bool {
        self.lengths.insert(token.len());
        self.users.insert(digest(token), Arc::new(user.authenticated())).is_some()
    }

    pub fn find(&self, token: &str) -> Option<&Arc<User>> {
        if !self.lengths.contains(&token.len()) {
            return None;
        }
        self.users.get(&digest(token))
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The comma-separated columns of a line; a quoted column may contain commas, and doubled quotes.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut out = vec![String::new()];
    let mut chars = line.trim().chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.next_if_eq(&'"').is_some() => push(&mut out, '"'),
            ('"', _) => quoted = !quoted,
            (',', false) => out.push(String::new()),
            (c, _) => push(&mut out, c),
        }
    }
    (!quoted).then_some(out)
}

fn push(columns: &mut [String], c: char) {
    if let Some(last) = columns.last_mut() {
        last.push(c);
    }
}

/// The bearer token of an `Authorization` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer<'a> {
    Token(&'a str),
    /// The token is preceded by more than one space, and is therefore ignored.
    Misplaced,
    /// The header is empty or has another scheme.
    Nothing,
}

/// Parses an `Authorization` header: the token is its second word.
pub fn bearer(header: &str) -> Bearer<'_> {
    let mut words = header.trim().splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(scheme), Some(token), rest) if scheme.eq_ignore_ascii_case("bearer") => match (token, rest) {
            ("", Some(_)) => Bearer::Misplaced,
            ("", None) => Bearer::Nothing,
            (token, _) => Bearer::Token(token),
        },
        _ => Bearer::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user;

    #[test]
    fn lines_name_users_and_groups() {
        let tokens = Tokens::parse("# comment\nt1,alice,1,\"a,b\"\n\nt2,bob,\n").unwrap();
        let alice = tokens.find("t1").unwrap();
        assert_eq!((&*alice.name, &*alice.uid), ("alice", "1"));
        assert_eq!(alice.groups, ["a", "b", user::AUTHENTICATED]);
        assert_eq!(tokens.find("t2").unwrap().groups, [user::AUTHENTICATED]);
        assert!(tokens.find("t3").is_none());
    }

    #[test]
    fn bad_lines_are_named() {
        let problem = |text| Tokens::parse(text).unwrap_err().to_string();
        assert!(problem("t1,alice,1\nt2").starts_with("line 2: a token"));
        assert!(problem("t1,alice,1,\"a").contains("quote"));
        assert!(problem("t,,1").contains("empty"));
        let odd = Tokens::parse(",alice,1\nt,a,1\nt,b,2").unwrap();
        assert_eq!(odd.warnings.iter().map(|it| it.line).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((&*odd.find("t").unwrap().name, odd.find("")), ("b", None));
    }

    #[test]
    fn bearer_tokens() {
        assert_eq!(bearer("Bearer abc"), Bearer::Token("abc"));
        assert_eq!(bearer(" bearer abc def "), Bearer::Token("abc"));
        assert_eq!(bearer("Bearer  abc"), Bearer::Misplaced);
        for none in ["Bearer ", "Basic abc", "abc", "", "Bearer\tabc"] {
            assert_eq!(bearer(none), Bearer::Nothing, "{none:?}");
        }
    }
}
