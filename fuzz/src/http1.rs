//! Responses of HTTP/1.1, as a client reads them from a connection.

/// The status codes of whole responses. Panics if something else was sent; the last response may lack its end.
pub fn statuses(mut received: &[u8], has_heads: bool) -> Vec<u16> {
    let mut out = Vec::new();
    while !received.is_empty() {
        let Some((head, rest)) = split(received, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let version = first.strip_prefix("HTTP/1.1 ").or(first.strip_prefix("HTTP/1.0 "));
        let code = version.and_then(|it| it.get(..3)?.parse().ok());
        out.push(code.unwrap_or_else(|| panic!("a status line: {first:?}")));
        let (mut length, mut is_chunked) = (None, false);
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("a header: {line:?}"));
            match &*name.to_ascii_lowercase() {
                "content-length" => length = Some(value.parse::<usize>().expect("a length")),
                "transfer-encoding" => is_chunked = value == "chunked",
                _ => {}
            }
        }
        // the response to HEAD has the length of another, and an upgraded connection has no more responses
        if has_heads || code == Some(101) {
            break;
        }
        received = match (is_chunked, length) {
            (true, _) => match chunked(rest) {
                Some(rest) => rest,
                None => break,
            },
            (false, Some(length)) => rest.get(length..).unwrap_or_default(),
            // without a length the body goes on to the end
            (false, None) if matches!(code, Some(100..=199 | 204 | 304)) => rest,
            (false, None) => break,
        };
    }
    out
}

/// The bytes after a chunked body; `None` if it goes on.
fn chunked(mut body: &[u8]) -> Option<&[u8]> {
    loop {
        let (size, rest) = split(body, b"\r\n")?;
        let size = std::str::from_utf8(size).ok().and_then(|it| usize::from_str_radix(it, 16).ok());
        let size = size.expect("the size of a chunk");
        let end = rest.get(size..size + 2)?;
        assert_eq!(end, b"\r\n", "the end of a chunk");
        body = &rest[size + 2..];
        if size == 0 {
            return Some(body);
        }
    }
}

fn split<'a>(bytes: &'a [u8], by: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(by.len()).position(|it| it == by)?;
    Some((&bytes[..at], &bytes[at + by.len()..]))
}
