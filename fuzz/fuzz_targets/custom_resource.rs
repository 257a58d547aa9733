//! Definitions of custom resources, and objects of them: what a definition accepts is a fixed point of its schema.

#![no_main]

use env::{Simulated, World};
use fuzz::objects::{NAMES, kind_of};
use fuzz::texts;
use kinds::apiextensions::serve::{self, Version};
use libfuzzer_sys::fuzz_target;
use rest::Requester;
use rest::hooks::{Context, RuledWrite};
use rest::metrics::Timing;
use schema::problem::Problems;
use schema::table::Kind;
use schema::{Value, decode, defaults, encode, rules};
use std::sync::{Arc, LazyLock};

static DEFINITION: LazyLock<&Kind> =
    LazyLock::new(|| kind_of("apiextensions.k8s.io/v1", "CustomResourceDefinition"));
static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(1_700_000_000, 7));

fuzz_target!(|data: &[u8]| {
    let Some([definition, first, second]) = texts(data) else { return };
    let Some(definition) = accepted(definition) else { return };
    let names = definition.at(&["spec", "names"]).cloned().unwrap_or_default();
    let fetch = {
        let definition = definition.clone();
        Arc::new(move || Some(definition.clone())) as serve::Fetch
    };
    for version in serve::versions(&definition, &names, &fetch, None) {
        let one = object(&version, first);
        check(&version, one.as_ref(), None);
        let other = object(&version, second);
        check(&version, other.as_ref(), one.as_ref());
    }
});

/// A definition that the server would accept.
fn accepted(text: &str) -> Option<Value> {
    let mut definition = decode::json(text.as_bytes(), &DEFINITION.root).ok()?.value;
    defaults::apply(&DEFINITION.root, &mut definition);
    let hooks = kinds::apiextensions::hooks();
    if let Some(default) = hooks.decode.default {
        default(&mut definition, &NAMES);
    }
    let context = Context {
        names: &NAMES,
        now: 1_700_000_000,
        user: &Requester::default(),
        lookup: &|_, _, _| None,
        list: &|_, _| Vec::new(),
        containing: &|_, _| Vec::new(),
        opened: &[],
        closed: &[],
    };
    if let Some(prepare) = hooks.create.prepare {
        prepare(&mut definition, &context);
    }
    let mut problems = rules::check(&DEFINITION.root, &mut definition);
    if let Some(validate) = hooks.create.validate {
        problems.extend(validate(&definition, &context));
    }
    problems.is_empty().then_some(definition)
}

/// An object in the normal form of a version, with defaults.
fn object(version: &Version, text: &str) -> Option<Value> {
    let root = &version.kind.root;
    let mut value = decode::json(text.as_bytes(), root).ok()?.value;
    let pruned = encode::json(&value, root);
    let again = decode::json(&pruned, root).expect("own text decodes");
    assert_eq!(again.value, value, "{}", String::from_utf8_lossy(&pruned));
    defaults::apply(root, &mut value);
    let once = value.clone();
    defaults::apply(root, &mut value);
    assert_eq!(value, once, "defaults of an object with defaults");
    Some(value)
}

fn check(version: &Version, object: Option<&Value>, old: Option<&Value>) {
    let (Some(object), Some(rules)) = (object, &version.hooks.write.rules) else { return };
    let write = RuledWrite { object, old, subresource: "", metadata: &Problems::new() };
    let problems = rules.check(&write, &Timing::uncounted(&WORLD));
    let again = rules.check(&write, &Timing::uncounted(&WORLD));
    assert_eq!(format!("{problems:?}"), format!("{again:?}"));
}
