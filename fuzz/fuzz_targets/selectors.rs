//! Label and field selectors: the text of a parsed one is parsed as the same.

#![no_main]

use apimachinery::labels::Selector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(text) = fuzz::text(data) else { return };
    let _ = rest::selector::check_fields(text);
    let Ok(selector) = Selector::parse(text) else { return };
    let printed = selector.to_string();
    let again = Selector::parse(&printed).expect("own text parses");
    assert_eq!(again, selector, "{printed}");
    if let Some((key, value)) = selector.exact_label() {
        let other = format!("{value}-");
        assert!(!selector.matches_by(|it| (it == key).then_some(&*other)));
    }
});
