//! Objects and contexts for the tests of the kinds, and the tests against recorded answers.

mod recorded;

use names::Names;
use rest::hooks::{Context, Requester};
use schema::problem::Problem;
use schema::{Value, decode};
use std::sync::LazyLock;

static NAMES: LazyLock<Names> = LazyLock::new(Names::kubernetes);
static USER: LazyLock<Requester> = LazyLock::new(|| Requester {
    name: "admin".to_owned(),
    uid: "1".to_owned(),
    groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
    extra: Vec::new(),
    ..Requester::default()
});

/// JSON text as a tree.
pub(crate) fn json(text: &str) -> Value {
    decode::json_untyped(text.as_bytes()).expect("JSON of a test").value
}

/// A context in which nothing else exists.
pub(crate) fn context() -> Context<'static> {
    Context {
        names: &NAMES,
        now: 1_600_000_000,
        user: &USER,
        lookup: &|_, _, _| None,
        list: &|_, _| Vec::new(),
        containing: &|_, _| Vec::new(),
        opened: &[],
        closed: &[],
    }
}

/// Problems as one line each.
pub(crate) fn problems(found: &[Problem]) -> Vec<String> {
    found.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
}
