//! A client of HTTP/2 that an input tells what to send: frames of any content, most of which have their right form.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes that a script makes. Each step has a kind, flags, a stream, two bytes of a length, and so much of a payload:
///
/// | kind | what is sent |
/// |---|---|
/// | 0 to 9 | a frame of this type |
/// | 10, 11 | the head of a request, which is text; the second also ends the stream |
/// | 12 | the same in two frames, the second of which continues the first |
/// | 13 | data that ends the stream |
/// | 14 | these bytes, as they are |
/// | 15 | a frame of a length that is not its own |
pub fn frames(mut script: &[u8]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    while let [kind, flags, stream, low, high, rest @ ..] = script {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        script = rest;
        // most streams are those of requests; zero is the connection
        let stream = match *stream {
            number @ ..128 => u32::from(number),
            number => u32::from(number - 127) * 2 - 1,
        };
        match kind % 16 {
            kind @ 0..=9 => frame(&mut out, kind, *flags, stream, payload),
            kind @ (10 | 11) => {
                let flags = END_HEADERS | if kind == 11 { END_STREAM } else { 0 };
                frame(&mut out, HEADERS, flags, stream, &head(payload));
            }
            12 => {
                let block = head(payload);
                let (first, second) = block.split_at(block.len() / 2);
                frame(&mut out, HEADERS, END_STREAM, stream, first);
                frame(&mut out, CONTINUATION, END_HEADERS, stream, second);
            }
            13 => frame(&mut out, 0, END_STREAM, stream, payload),
            14 => out.extend_from_slice(payload),
            _ => {
                let at = out.len();
                frame(&mut out, *flags % 10, 0, stream, payload);
                out[at + 2] ^= *flags;
            }
        }
    }
    out
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The header block of a text: method and path in the first line, then a header in each.
fn head(text: &[u8]) -> Vec<u8> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let at = first.iter().position(|byte| *byte == b' ').unwrap_or(first.len());
    let (method, path) = (&first[..at], first.get(at + 1..).unwrap_or_default());
    let mut block = Vec::new();
    for (name, value) in
        [(":method", method), (":path", path), (":scheme", b"https"), (":authority", b"localhost")]
    {
        literal(&mut block, name.as_bytes(), value);
    }
    for line in lines {
        let at = line.iter().skip(1).position(|byte| *byte == b':').map_or(line.len(), |at| at + 1);
        let value = line.get(at + 1..).unwrap_or_default();
        literal(&mut block, &line[..at], value.trim_ascii_start());
    }
    block
}

/// A header that no table has.
fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let mut length = text.len();
        if length < 127 {
            block.push(length as u8);
        } else {
            block.push(127);
            length -= 127;
            while length >= 128 {
                block.push(length as u8 | 128);
                length >>= 7;
            }
            block.push(length as u8);
        }
        block.extend_from_slice(text);
    }
}

/// Panics unless these bytes are frames that a server may send. The last one may lack its end.
pub fn check(mut received: &[u8]) {
    let mut is_first = true;
    while let [a, b, c, kind, _, s, t, u, v, rest @ ..] = received {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*s, *t, *u, *v]);
        assert!(!is_first || *kind == SETTINGS, "the first frame is of type {kind}");
        assert!(*kind <= CONTINUATION && *kind != PUSH_PROMISE, "a frame of type {kind}");
        assert!(stream == 0 || stream % 2 == 1, "a frame of type {kind} for stream {stream}");
        received = rest.get(length..).unwrap_or_default();
        is_first = false;
    }
}
