//! URLs, paths and queries: escaping and cleaning are undone and settle.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::{format, url};

fuzz_target!(|data: &[u8]| {
    assert_eq!(url::unescape_path(&url::escape_path(data)), data);
    let clean = url::clean_path(data);
    assert_eq!(url::clean_path(&clean), clean);
    let Some(text) = fuzz::text(data) else { return };
    let is_absolute = url::parse(text).is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty());
    if let Ok(base) = url::base(text)
        && is_absolute
    {
        assert_eq!(url::base(&base), Ok(base.clone()), "{text}");
    }
    let query = url::canonical_query(text);
    assert_eq!(url::canonical_query(&query), query);
    if let Some(address) = format::parse_ip(text) {
        assert_eq!(format::parse_ip(&address.to_string()), Some(address));
    }
    let _ = (format::parse_cidr(text), format::qualified_name(text), format::dns1123_subdomain(text));
});
