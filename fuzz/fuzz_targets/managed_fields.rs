//! Sets of fields: the text of one is read as the same; union, difference and intersection agree.

#![no_main]

use fuzz::texts;
use libfuzzer_sys::fuzz_target;
use merge::managed::FieldSet;

fuzz_target!(|data: &[u8]| {
    let Some([a, b]) = texts(data) else { return };
    let Ok(a) = FieldSet::parse(a) else { return };
    let text = a.to_text();
    let again = FieldSet::parse(&text).expect("own text parses");
    assert_eq!(again, a, "{text}");
    assert_eq!(again.to_text(), text);
    let Ok(b) = FieldSet::parse(b) else { return };
    let (mut both, mut difference) = (a.clone(), a.clone());
    both.unite(b.clone());
    assert!(a.is_within(&both) && b.is_within(&both));
    let common = a.intersection(&b);
    assert!(common.is_within(&a) && common.is_within(&b));
    difference.subtract(&b);
    assert!(difference.intersection(&b).is_empty() && difference.is_within(&a));
    assert_eq!(difference.len() + common.len(), a.len());
    assert_eq!(a.len() + b.len(), both.len() + common.len());
});
