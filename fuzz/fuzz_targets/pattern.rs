//! Regular expressions of schemas: compiled within their estimate, and matched in time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::pattern;

fuzz_target!(|data: &[u8]| {
    let Some([text, subject]) = fuzz::texts(data) else { return };
    let size = pattern::size(text);
    // the largest ones take long to build, and are as good as the others
    if size.as_ref().is_ok_and(|size| *size > 1 << 20) {
        return;
    }
    match pattern::compile(text) {
        Ok(regex) => {
            assert!(size.is_ok());
            regex.is_match(subject);
        }
        Err(why) => drop(why),
    }
});
