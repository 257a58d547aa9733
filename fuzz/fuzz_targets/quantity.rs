//! Quantities: the canonical form is a fixed point and the same amount; order and arithmetic agree.

#![no_main]

use fuzz::texts;
use libfuzzer_sys::fuzz_target;
use schema::quantity::{self, Quantity};

fuzz_target!(|data: &[u8]| {
    let Some([a, b]) = texts(data) else { return };
    let Ok(x) = a.parse::<Quantity>() else { return };
    let canonical = quantity::canonical(a).expect("a quantity has a canonical form");
    assert_eq!(quantity::canonical(&canonical).as_deref(), Ok(&*canonical), "{a}");
    let again: Quantity = canonical.parse().expect("own text parses");
    assert_eq!(again, x, "{a} {canonical}");
    let _ = (quantity::canonical_milli(a), x.whole(), x.milli(), x.is_whole(), x.as_whole());
    let Ok(y) = b.parse::<Quantity>() else { return };
    assert_eq!(x.cmp(&y), y.cmp(&x).reverse());
    assert_eq!(x == y, x.cmp(&y).is_eq());
    assert_eq!(x.minus(&y).sign(), x.cmp(&y) as i32, "{a} {b}");
    assert_eq!(x.plus(&y), y.plus(&x));
    if x <= y {
        assert!(x.whole() <= y.whole() && x.milli() <= y.milli(), "{a} {b}");
    }
});
