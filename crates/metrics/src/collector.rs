//! The interface between the registry and its families.

use crate::descriptor::Descriptor;
use crate::text::Text;
use std::collections::{BTreeMap, BTreeSet};

/// Replaces label values that are not in the allow list.
const UNEXPECTED: &str = "unexpected";

/// The label values that an operator allows; others become [`UNEXPECTED`].
#[derive(Default)]
pub(crate) struct LabelAllowList(pub BTreeMap<(String, String), BTreeSet<String>>);

impl LabelAllowList {
    pub fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn of<'a>(&self, descriptor: &Descriptor, values: &[&'a str]) -> Vec<&'a str> {
        let value = |(label, value): (&&str, &&'a str)| {
            let listed = self.0.get(&(descriptor.name.to_owned(), (*label).to_owned()));
            if listed.is_none_or(|listed| listed.contains(*value)) { *value } else { UNEXPECTED }
        };
        descriptor.labels.iter().zip(values).map(value).collect()
    }
}

/// Writes its series into the exposition.
pub(crate) trait Collector: Send + Sync {
    fn descriptor(&self) -> &Descriptor;
    fn encode(&self, out: &mut Text);
}
