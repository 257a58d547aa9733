//! Selectors by a label that they require, so that the labels of an object lead to the few that may match.
//!
//! ```text
//! app=web              below the label app, value web
//! app in (web, db)     below the label app, values web and db
//! app                  below the label app, any value
//! !app                 among those that any labels may match
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use apimachinery::labels::{Operator, Selector};

/// The labels that objects of a selector have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredLabel<'a> {
    /// One of these values.
    Values(&'a str, &'a [String]),
    Any(&'a str),
    /// None that is known.
    Unknown,
}

impl<'a> RequiredLabel<'a> {
    /// The requirement that leaves the fewest values.
    pub fn of(selector: &'a Selector) -> Self {
        let mut best = RequiredLabel::Unknown;
        for requirement in selector.requirements() {
            let (key, values) = (requirement.key(), requirement.values());
            let found = match requirement.operator() {
                Operator::Equals | Operator::In => RequiredLabel::Values(key, values),
                Operator::Exists | Operator::GreaterThan | Operator::LessThan => RequiredLabel::Any(key),
                Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist => continue,
            };
            if found.rank() < best.rank() {
                best = found;
            }
        }
        best
    }

    fn rank(&self) -> usize {
        match self {
            Self::Values(_, values) => values.len(),
            Self::Any(_) => usize::MAX - 1,
            Self::Unknown => usize::MAX,
        }
    }
}

/// See the module. `T` identifies a selector.
pub struct SelectorIndex<T> {
    by_label: HashMap<String, LabelEntry<T>>,
    others: BTreeSet<T>,
}

struct LabelEntry<T> {
    by_value: HashMap<String, BTreeSet<T>>,
    any: BTreeSet<T>,
}

impl<T> Default for SelectorIndex<T> {
    fn default() -> Self {
        Self { by_label: HashMap::new(), others: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> SelectorIndex<T> {
    pub fn insert(&mut self, selector: &Selector, id: T) {
        let entry =
            |by_label: &mut HashMap<String, LabelEntry<T>>, key: &str, apply: &dyn Fn(&mut LabelEntry<T>)| {
                let empty = || LabelEntry { by_value: HashMap::new(), any: BTreeSet::new() };
                apply(by_label.entry(key.to_owned()).or_insert_with(empty));
            };
        match RequiredLabel::of(selector) {
            RequiredLabel::Values(key, values) => entry(&mut self.by_label, key, &|label| {
                for value in values {
                    label.by_value.entry(value.clone()).or_default().insert(id);
                }
            }),
            RequiredLabel::Any(key) => entry(&mut self.by_label, key, &|label| _ = label.any.insert(id)),
            RequiredLabel::Unknown => _ = self.others.insert(id),
        }
    }

    pub fn remove(&mut self, selector: &Selector, id: T) {
        let (key, values) = match RequiredLabel::of(selector) {
            RequiredLabel::Values(key, values) => (key, values),
            RequiredLabel::Any(key) => (key, &[][..]),
            RequiredLabel::Unknown => {
                self.others.remove(&id);
                return;
            }
        };
        let Some(label) = self.by_label.get_mut(key) else { return };
        if values.is_empty() {
            label.any.remove(&id);
        }
        for value in values {
            if let Some(ids) = label.by_value.get_mut(value) {
                ids.remove(&id);
                if ids.is_empty() {
                    label.by_value.remove(value);
                }
            }
        }
        if label.any.is_empty() && label.by_value.is_empty() {
            self.by_label.remove(key);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_label.is_empty() && self.others.is_empty()
    }

    /// The selectors that may match these labels, each once.
    pub fn candidates<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> impl Iterator<Item = T> + 'a {
        let of_label = |(key, value): (&String, &String)| {
            let label = self.by_label.get(key)?;
            Some(label.by_value.get(value).into_iter().flatten().chain(&label.any))
        };
        labels.iter().filter_map(of_label).flatten().chain(&self.others).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lead_to_the_selectors_that_may_match() {
        let mut index = SelectorIndex::default();
        let texts =
            ["app=web", "app in (web,db)", "app", "!app", "tier=a,app=db", "n>3", "app notin (web)", ""];
        for (id, text) in texts.iter().enumerate() {
            index.insert(&Selector::parse(text).unwrap(), id);
        }
        let candidates = |index: &SelectorIndex<usize>, labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            index.candidates(&labels).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(candidates(&index, &[("app", "web")]), [0, 1, 2, 3, 6, 7]);
        // the first of two requirements with one value counts
        assert_eq!(candidates(&index, &[("app", "db")]), [1, 2, 3, 4, 6, 7]);
        assert_eq!(candidates(&index, &[("tier", "a"), ("n", "9")]), [3, 5, 6, 7]);
        for (id, text) in texts.iter().enumerate() {
            index.remove(&Selector::parse(text).unwrap(), id);
        }
        assert!(index.is_empty());
    }
}
