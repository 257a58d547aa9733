//! JSONPath of columns: reads every path and object, in time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::jsonpath::JsonPath;

fuzz_target!(|data: &[u8]| {
    let Some([path, object]) = fuzz::texts(data) else { return };
    let Ok(path) = JsonPath::parse(path) else { return };
    let _ = path.reads();
    if let Some(object) = fuzz::json(object) {
        path.find(&object);
    }
});
