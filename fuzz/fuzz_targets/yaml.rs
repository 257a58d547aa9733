//! YAML: what is written is read as the same; aliases cannot multiply; JSON is YAML.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::yaml::{self, Limits};

fuzz_target!(
    // panics of the parser's library are errors of a document, and caught
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let limits = Limits { copies: 1 << 20, ..Limits::default() };
        let Ok(document) = yaml::parse(data, limits) else { return };
        let text = yaml::emit(&document.value);
        let again = match yaml::parse(text.as_bytes(), Limits::default()) {
            Ok(again) => again.value,
            Err(why) => panic!("{why}: {text:?}"),
        };
        assert_eq!(yaml::emit(&again), text, "{:?}", document.value);
    }
);
