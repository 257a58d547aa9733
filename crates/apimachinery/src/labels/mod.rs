//! Label selectors: parsed from text or built from requirements, matched against labels.

mod parse;
mod requirement;

pub use parse::ParseError;
pub use requirement::{Operator, Requirement};

use std::collections::BTreeMap;
use std::fmt;

/// Requirements that all must hold. The default has none and matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Requirements in the order of their keys.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Selector { requirements }
    }

    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3,m<4`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::requirements(text).map(Selector::new)
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(|key| labels.get(key).map(String::as_str))
    }

    /// Matches labels by a lookup.
    pub fn matches_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(&label))
    }

    /// Whether it has no requirement, so that it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// A label that every matching object has: the first one that is required with exactly one value.
    pub fn exact_label(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|it| match (it.operator(), it.values()) {
            (Operator::Equals | Operator::In, [value]) => Some((it.key(), &**value)),
            _ => None,
        })
    }
}

/// The text that [`Selector::parse`] reads.
impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(out, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Selector::parse(selector).unwrap().matches(&labels)
    }

    #[test]
    fn equality_and_sets() {
        let labels = [("app", "web"), ("tier", "front"), ("n", "5")];
        for yes in [
            "app=web",
            "app==web",
            "app!=db",
            "x!=y",
            "app in (web,db)",
            "app notin (db)",
            "app",
            "!x",
            "n>4",
            "n<6",
            "app=web,tier=front",
            " app = web , tier in ( front ) ",
            "",
            "x notin (a)",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in [
            "app=db",
            "app!=web",
            "app notin (web)",
            "x",
            "!app",
            "n>5",
            "n<5",
            "app=",
            "x in (a,)",
            "app=web,x",
        ] {
            assert!(!matches(no, &labels), "{no}");
        }
    }

    #[test]
    fn text_that_cannot_be_parsed_is_named() {
        let message = |text: &str| Selector::parse(text).unwrap_err().0;
        assert_eq!(message("!!"), "unable to parse requirement: found '!', expected: identifier");
        assert_eq!(message("a,"), "found '', expected: identifier after ','");
        assert!(message("a in b").contains("expected: '('"));
        assert!(message("-a=b").contains("Invalid value"));
    }

    #[test]
    fn the_text_of_a_selector_parses_to_the_same() {
        let text = "a=b,c!=d,e in (f,g),h notin (i),k,!l,m>3,n<4";
        let selector = Selector::parse(text).unwrap();
        assert_eq!(selector.to_string(), text);
        assert_eq!(selector.exact_label(), Some(("a", "b")));
        assert!(!selector.is_empty() && Selector::default().is_empty());
    }
}
