//! Compiled label selectors.

use std::collections::BTreeMap;

use api::meta::v1::LabelSelector;
use apimachinery::labels::{Operator, ParseError, Requirement, Selector};

pub type Labels = BTreeMap<String, String>;

/// A label selector that may match nothing: an absent one does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelMatcher(Option<Selector>);

impl LabelMatcher {
    pub const NOTHING: LabelMatcher = LabelMatcher(None);

    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, ParseError> {
        let Some(selector) = selector else { return Ok(LabelMatcher::NOTHING) };
        let selector = Selector::try_from(selector)?;
        match selector.requirements().iter().find_map(Requirement::problem) {
            Some(problem) => Err(ParseError(problem)),
            None => Ok(LabelMatcher(Some(selector))),
        }
    }

    /// All of the labels must be there.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let equals = |(key, value): (&String, &String)| {
            Requirement::new(key.clone(), Operator::Equals, vec![value.clone()])
        };
        LabelMatcher(Some(Selector::new(labels.into_iter().map(equals).collect())))
    }

    /// Both must match; a selector that matches nothing adds no requirement to labels.
    pub fn and(self, other: &LabelMatcher) -> Self {
        match (self.0, &other.0) {
            (Some(one), Some(two)) => {
                let requirements = one.requirements().iter().chain(two.requirements()).cloned().collect();
                LabelMatcher(Some(Selector::new(requirements)))
            }
            (one, _) => LabelMatcher(one),
        }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(Selector::is_empty)
    }

    pub fn is_nothing(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_label_selector_matches_nothing() {
        let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
        assert!(!LabelMatcher::new(None).unwrap().matches(&labels));
        let all = LabelMatcher::new(Some(&LabelSelector::default())).unwrap();
        assert!(all.matches(&labels) && all.is_everything());
        assert!(LabelMatcher::from_labels(&labels).and(&LabelMatcher::NOTHING).matches(&labels));
    }
}
