//! A rule: its statements as expressions, with a hash that is kept in the kernel beside them.

use std::sync::Arc;

use super::attribute::{Attributes, Encoder};
use super::expression;
use super::statement::Statement;

/// Types of the entries in a rule's user data: the comment, which the program `nft` shows, and our hash.
const COMMENT: u8 = 0;
const HASH: u8 = 0x50;

/// The longest comment: the kernel takes 256 bytes of user data.
const MAX_COMMENT: usize = 200;

/// A rule. Rules are equal if their expressions are, whatever their comments.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) expressions: Arc<[u8]>,
    hash: u64,
    comment: Option<Arc<str>>,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Rule {
    pub fn new(statements: impl IntoIterator<Item = Statement>) -> Self {
        let mut encoder = Encoder::default();
        for statement in statements {
            expression::encode(&statement, &mut encoder);
        }
        let expressions = encoder.into_bytes();
        Self { hash: hash(&expressions), expressions: expressions.into(), comment: None }
    }

    /// Text that the program `nft` shows beside the rule.
    pub fn with_comment(self, comment: &str) -> Self {
        Self { comment: Some(prefix(comment, MAX_COMMENT).into()), ..self }
    }

    /// A rule of the kernel: its hash is that of the expressions as they were written.
    pub(super) fn read(expressions: &[u8], user_data: &[u8]) -> Self {
        let mut rule = Self { expressions: expressions.into(), hash: 0, comment: None };
        let mut rest = user_data;
        while let [kind, length, tail @ ..] = rest {
            let Some((value, tail)) = tail.split_at_checked(usize::from(*length)) else { break };
            match *kind {
                HASH => rule.hash = value.try_into().map(u64::from_be_bytes).unwrap_or_default(),
                COMMENT => {
                    let text = value.strip_suffix(&[0]).unwrap_or(value);
                    rule.comment = std::str::from_utf8(text).ok().map(Arc::from);
                }
                _ => (),
            }
            rest = tail;
        }
        rule
    }

    pub(super) fn user_data(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(comment) = &self.comment {
            bytes.extend_from_slice(&[COMMENT, comment.len() as u8 + 1]);
            bytes.extend_from_slice(comment.as_bytes());
            bytes.push(0);
        }
        bytes.extend_from_slice(&[HASH, 8]);
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        bytes
    }

    /// Names of the rule's expressions, for messages.
    pub fn expression_names(&self) -> Vec<&str> {
        Attributes(&self.expressions).iter().filter_map(|(_, item)| Attributes(item).text(1)).collect()
    }
}

/// The longest start of a text that has at most this length.
pub(super) fn prefix(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// FNV-1a: the hash must be the same in every build of the program, as it outlives the process.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netfilter::statement::Verdict;

    #[test]
    fn rules_are_recognized_by_their_user_data() {
        let rule =
            Rule::new([Statement::Counter, Statement::Verdict(Verdict::Drop)]).with_comment("no endpoints");
        assert_eq!(rule.expression_names(), ["counter", "immediate"]);
        let read = Rule::read(&[], &rule.user_data());
        assert_eq!(read, rule);
        assert_eq!(read.comment.as_deref(), Some("no endpoints"));
        assert_ne!(read, Rule::new([Statement::Verdict(Verdict::Drop)]));
        assert_ne!(Rule::read(&[], &[HASH, 8, 1]), rule);
    }

    #[test]
    fn long_comments_are_cut_at_a_character() {
        let rule = Rule::new([]).with_comment(&"ä".repeat(300));
        assert!(rule.user_data().len() < 256);
    }
}
