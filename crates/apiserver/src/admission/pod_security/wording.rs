//! Texts of violations.

use schema::problem::quoted;
use std::collections::BTreeSet;

/// `container "a"`, `containers "a", "b"`.
pub fn counted(one: &str, names: &[&str]) -> String {
    format!("{} {}", plural(one, names.len()), quotes(names))
}

/// `volume`, `volumes`.
pub fn plural(one: &str, count: usize) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

/// `"a", "b"`.
pub fn quotes<'t>(texts: impl IntoIterator<Item = &'t (impl AsRef<str> + ?Sized + 't)>) -> String {
    texts.into_iter().map(|text| quoted(text.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The subjects of a violation: `pod and containers "a", "b"`; empty without any.
pub fn setters(pod: bool, containers: &[&str]) -> String {
    match (pod, containers) {
        (false, []) => String::new(),
        (true, []) => "pod".to_owned(),
        (false, some) => counted("container", some),
        (true, some) => format!("pod and {}", counted("container", some)),
    }
}

/// Distinct texts in order.
pub type Texts<'a> = BTreeSet<&'a str>;
