//! Rewrites the links of an HTML page on its way through a proxy, so that they stay within the proxy.
//!
//! Invariants: bytes outside of rewritten values are passed on as they came; of a page no more than one tag is held
//! back, and a tag of more than [`TAG_LIMIT`] bytes is passed on as it is. Scripts, styles and comments are not looked
//! into.

use crate::serve::Body;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Frame;
use schema::url;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The longest tag whose links are rewritten.
const TAG_LIMIT: usize = 64 << 10;

/// The bytes of a compressed page that are read at once: they may grow a thousandfold.
const COMPRESSED_PIECE: usize = 4 << 10;

/// Attributes that have a URL, by element.
const URL_ATTRIBUTES: [(&str, &[&str]); 26] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("track", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content has no tags.
const RAW_ELEMENTS: [&str; 8] =
    ["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"];

/// Where links lead: those within the proxied server get the path of the proxy.
#[derive(Debug, Clone)]
pub struct LinkTarget {
    /// The path of the proxy.
    pub prefix: String,
    /// The address of the proxied server.
    pub host: String,
    /// The address of this server, as the client knows it.
    pub client_host: String,
}

impl LinkTarget {
    /// The link by way of the proxy; `None` for one that leads elsewhere or is relative.
    pub fn rewrite(&self, link: &str) -> Option<String> {
        let parsed = url::parse(link).ok()?;
        let is_other = !parsed.host.is_empty() && parsed.host != self.host && parsed.host != self.client_host;
        if is_other || !parsed.path.starts_with('/') {
            return None;
        }
        let mut rewritten = match parsed.path.starts_with(&self.prefix) {
            true => parsed.path.to_owned(),
            false => format!("{}{}", self.prefix, parsed.path),
        };
        for (mark, rest) in [('?', parsed.query), ('#', parsed.fragment)] {
            if !rest.is_empty() {
                rewritten.push(mark);
                rewritten.push_str(rest);
            }
        }
        Some(rewritten)
    }
}

/// Rewrites the links of a response if it is a page that can be read.
pub fn rewrite_page(response: Response<Body>, mut target: LinkTarget) -> Response<Body> {
    let Some(is_gzip) = readable_page(response.status(), response.headers()) else { return response };
    let (mut parts, body) = response.into_parts();
    let Body::Proxied { body, is_stream } = body else { return Response::from_parts(parts, body) };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    target.prefix = target.prefix.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;");
    let decoder = is_gzip.then(|| MultiGzDecoder::new(Vec::new()));
    let page = PageBody {
        body,
        decoder,
        rewriter: LinkRewriter::new(target),
        pending: Bytes::new(),
        is_ended: false,
    };
    Response::from_parts(parts, Body::Proxied { body: Box::pin(page), is_stream })
}

/// Whether a page is compressed; `None` for what is no page, or a part of one, or cannot be read.
fn readable_page(status: StatusCode, headers: &HeaderMap) -> Option<bool> {
    let text = |name| headers.get(name).map_or(Some(""), |it| it.to_str().ok());
    let media = text(header::CONTENT_TYPE)?.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("text/html") || status == StatusCode::PARTIAL_CONTENT {
        return None;
    }
    match text(header::CONTENT_ENCODING)? {
        "" | "identity" => Some(false),
        "gzip" => Some(true),
        _ => None,
    }
}

/// The body of a page with its links rewritten.
struct PageBody {
    body: Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error> + Send>>,
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    rewriter: LinkRewriter,
    /// Bytes of the last frame that are not read yet.
    pending: Bytes,
    is_ended: bool,
}

impl PageBody {
    /// The next bytes of the last frame.
    fn next_piece(&mut self) -> Bytes {
        let limit = if self.decoder.is_some() { COMPRESSED_PIECE } else { self.pending.len() };
        self.pending.split_to(limit.min(self.pending.len()))
    }

    fn take(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(data.len());
        match &mut self.decoder {
            Some(decoder) => {
                decoder.write_all(data)?;
                self.rewriter.take(&std::mem::take(decoder.get_mut()), &mut out);
            }
            None => self.rewriter.take(data, &mut out),
        }
        Ok(out)
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(decoder) = &mut self.decoder {
            decoder.try_finish()?;
            self.rewriter.take(&std::mem::take(decoder.get_mut()), &mut out);
        }
        out.append(&mut self.rewriter.held);
        Ok(out)
    }
}

impl http_body::Body for PageBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while !self.is_ended {
            if !self.pending.is_empty() {
                let piece = self.next_piece();
                match self.take(&piece) {
                    Ok(page) if page.is_empty() => continue,
                    other => return Poll::Ready(Some(other.map(|page| Frame::data(page.into())))),
                }
            }
            let frame = match ready!(self.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(why)) => return Poll::Ready(Some(Err(why))),
                None => {
                    self.is_ended = true;
                    let rest = self.finish();
                    return Poll::Ready(match rest {
                        Ok(rest) if rest.is_empty() => None,
                        other => Some(other.map(|rest| Frame::data(rest.into()))),
                    });
                }
            };
            // trailers come after the last byte, and are left out
            self.pending = frame.into_data().unwrap_or_default();
        }
        Poll::Ready(None)
    }
}

/// Where in a page a rewriter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After `<`, which is held back.
    Open,
    /// In a start tag.
    Tag {
        quote: Option<u8>,
        is_value: bool,
    },
    /// After `<!`, with so many dashes.
    Declaration(u8),
    /// In a comment, after so many dashes.
    Comment(u8),
    /// In other markup, up to `>`.
    Markup,
    /// In the content of an element without tags, with so many bytes of its end.
    Raw(&'static str, usize),
}

/// Rewrites the links of a page that arrives in pieces.
struct LinkRewriter {
    target: LinkTarget,
    state: State,
    /// The start tag so far, or what may begin one.
    held: Vec<u8>,
    /// The element of a tag that was too long to be held.
    passed: Option<&'static str>,
    is_passing: bool,
}

impl LinkRewriter {
    fn new(target: LinkTarget) -> Self {
        LinkRewriter { target, state: State::Text, held: Vec::new(), passed: None, is_passing: false }
    }

    fn take(&mut self, data: &[u8], out: &mut Vec<u8>) {
        for byte in data {
            self.step(*byte, out);
        }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        let next = match self.state {
            State::Text if byte == b'<' => {
                self.held.push(byte);
                self.state = State::Open;
                return;
            }
            State::Text => State::Text,
            State::Open if byte.is_ascii_alphabetic() => {
                (self.is_passing, self.passed) = (false, None);
                self.state = State::Tag { quote: None, is_value: false };
                return self.hold(byte, out);
            }
            State::Open => {
                out.append(&mut self.held);
                match byte {
                    b'!' => State::Declaration(0),
                    b'/' | b'?' => State::Markup,
                    b'<' => {
                        self.held.push(byte);
                        return;
                    }
                    _ => State::Text,
                }
            }
            State::Tag { quote: None, .. } if byte == b'>' => return self.end_tag(out),
            State::Tag { quote, is_value } => {
                self.state = match quote {
                    Some(mark) if mark == byte => State::Tag { quote: None, is_value: false },
                    Some(_) => self.state,
                    None if is_value && matches!(byte, b'"' | b'\'') => {
                        State::Tag { quote: Some(byte), is_value: false }
                    }
                    None if is_value && byte.is_ascii_whitespace() => self.state,
                    None => State::Tag { quote: None, is_value: byte == b'=' },
                };
                return self.hold(byte, out);
            }
            State::Declaration(1) if byte == b'-' => State::Comment(2),
            State::Declaration(0) if byte == b'-' => State::Declaration(1),
            State::Declaration(_) | State::Markup if byte == b'>' => State::Text,
            State::Declaration(_) | State::Markup => State::Markup,
            State::Comment(dashes) => match byte {
                b'-' => State::Comment(dashes.saturating_add(1)),
                b'>' if dashes >= 2 => State::Text,
                _ => State::Comment(0),
            },
            State::Raw(element, matched) => {
                let expected = [b'<', b'/'].into_iter().chain(element.bytes()).nth(matched);
                match expected {
                    Some(expected) if expected == byte.to_ascii_lowercase() => {
                        State::Raw(element, matched + 1)
                    }
                    None if byte == b'>' => State::Text,
                    None if byte == b'/' || byte.is_ascii_whitespace() => State::Markup,
                    _ => State::Raw(element, usize::from(byte == b'<')),
                }
            }
        };
        self.state = next;
        out.push(byte);
    }

    /// Holds a byte of a tag back, unless the tag is too long.
    fn hold(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.is_passing {
            out.push(byte);
            return;
        }
        self.held.push(byte);
        if self.held.len() > TAG_LIMIT {
            self.is_passing = true;
            self.passed = raw_element(&element_of(&self.held));
            out.append(&mut self.held);
        }
    }

    fn end_tag(&mut self, out: &mut Vec<u8>) {
        let raw = match self.is_passing {
            true => {
                out.push(b'>');
                self.passed
            }
            false => {
                self.held.push(b'>');
                let tag = std::mem::take(&mut self.held);
                let element = element_of(&tag);
                rewrite_tag(&tag, &element, &self.target, out);
                raw_element(&element)
            }
        };
        self.state = raw.map_or(State::Text, |element| State::Raw(element, 0));
    }
}

fn is_name_end(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')
}

/// The name of a tag's element in lower case.
fn element_of(tag: &[u8]) -> String {
    let name = tag.get(1..).unwrap_or_default();
    let end = name.iter().position(is_name_end).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).to_ascii_lowercase()
}

fn raw_element(element: &str) -> Option<&'static str> {
    RAW_ELEMENTS.into_iter().find(|it| *it == element)
}

/// Writes a whole start tag with its links rewritten.
fn rewrite_tag(tag: &[u8], element: &str, target: &LinkTarget, out: &mut Vec<u8>) {
    let attributes = URL_ATTRIBUTES.iter().find(|it| it.0 == element).map_or(&[][..], |it| it.1);
    let mut written = 0;
    for (name, value) in attributes_of(tag, 1 + element.len()) {
        let is_link = attributes.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(&tag[name.clone()]));
        let link = std::str::from_utf8(&tag[value.clone()]).ok().filter(|_| is_link);
        if let Some(rewritten) = link.and_then(|link| target.rewrite(link)) {
            out.extend_from_slice(&tag[written..value.start]);
            out.extend_from_slice(rewritten.as_bytes());
            written = value.end;
        }
    }
    out.extend_from_slice(&tag[written..]);
}

type Span = std::ops::Range<usize>;

/// Where the names and values of a tag's attributes are.
fn attributes_of(tag: &[u8], start: usize) -> Vec<(Span, Span)> {
    let skip = |from: usize, is_skipped: fn(&u8) -> bool| {
        let rest = tag.get(from..).unwrap_or_default();
        from + rest.iter().position(|byte| !is_skipped(byte)).unwrap_or(rest.len())
    };
    let (mut found, mut at) = (Vec::new(), start);
    loop {
        at = skip(at, |byte| byte.is_ascii_whitespace() || *byte == b'/');
        if at >= tag.len() || tag[at] == b'>' {
            return found;
        }
        // a name may begin with `=`
        let end = skip(at + 1, |byte| !is_name_end(byte) && *byte != b'=');
        let name = at..end;
        at = skip(end, u8::is_ascii_whitespace);
        if tag.get(at) != Some(&b'=') {
            continue;
        }
        at = skip(at + 1, u8::is_ascii_whitespace);
        let value = match tag.get(at) {
            Some(b'"') => at + 1..skip(at + 1, |byte| *byte != b'"'),
            Some(b'\'') => at + 1..skip(at + 1, |byte| *byte != b'\''),
            _ => at..skip(at, |byte| !byte.is_ascii_whitespace() && *byte != b'>'),
        };
        at = value.end + usize::from(matches!(tag.get(value.end), Some(b'"' | b'\'')));
        found.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    fn target() -> LinkTarget {
        LinkTarget { prefix: "/p".to_owned(), host: "10.0.0.1:80".to_owned(), client_host: "here".to_owned() }
    }

    /// The page, whatever the pieces in which it arrives.
    fn rewritten(page: &[u8]) -> String {
        let mut results = Vec::new();
        for size in [1, 2, 3, 7, page.len().max(1)] {
            let (mut rewriter, mut out) = (LinkRewriter::new(target()), Vec::new());
            for piece in page.chunks(size) {
                let mut part = Vec::new();
                rewriter.take(piece, &mut part);
                out.extend(part);
            }
            out.append(&mut rewriter.held);
            results.push(String::from_utf8(out).unwrap());
        }
        results.dedup();
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }

    #[test]
    fn links_within_the_server_lead_through_the_proxy() {
        for (page, expected) in [
            (r#"<a href="/x">t</a>"#, r#"<a href="/p/x">t</a>"#),
            ("<A class=b HREF = '/x?a=1&amp;b#c' >", "<A class=b HREF = '/p/x?a=1&amp;b#c' >"),
            ("<img src=/x.png/>", "<img src=/p/x.png/>"),
            (r#"<img alt="a > b" src="http://10.0.0.1:80/x">"#, r#"<img alt="a > b" src="/p/x">"#),
            (r#"<video poster="/a" src="/b" title="/c">"#, r#"<video poster="/p/a" src="/p/b" title="/c">"#),
            (
                r#"<script src="/x">"</script><a href="/y">"#,
                r#"<script src="/p/x">"</script><a href="/p/y">"#,
            ),
        ] {
            assert_eq!(rewritten(page.as_bytes()), expected);
        }
    }

    #[test]
    fn other_bytes_of_a_page_are_passed_on() {
        for page in [
            r#"<a href="x">, <a href="//other/x">, <a href="http://other/x">, <a href="/p/x">"#,
            r#"<!-- <a href="/x"> --><p title="/x">1 < 2 <3 <<b>"#,
            r#"<script>if (a < b) { s = '<a href="/x">'; }</script>"#,
            r#"<STYLE></styles><a href="/x"></STYLE ><title><a href="/x">"#,
            r#"<!DOCTYPE html><?xml version="1"?></a href="/x"><a href="/unfinished"#,
            r#"<a href=>, <a href>, <a =/x>, <a href="/%zz">, <"#,
        ] {
            assert_eq!(rewritten(page.as_bytes()), page);
        }
        let long = format!(r#"<a title="{}" href="/x"><a href="/y">"#, "t".repeat(TAG_LIMIT));
        assert!(rewritten(long.as_bytes()).ends_with(r#" href="/x"><a href="/p/y">"#));
    }

    async fn page(content_type: &str, encoding: Option<&str>, content: Vec<u8>) -> (HeaderMap, Vec<u8>) {
        let body = Full::new(Bytes::from(content.clone())).map_err(|never| -> io::Error { match never {} });
        let mut response = Response::new(Body::Proxied { body: Box::pin(body), is_stream: true });
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        headers.insert(header::CONTENT_LENGTH, content.len().into());
        if let Some(encoding) = encoding {
            headers.insert(header::CONTENT_ENCODING, encoding.parse().unwrap());
        }
        let response = rewrite_page(response, target());
        let headers = response.headers().clone();
        (headers, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn pages_are_rewritten_and_other_responses_are_not() {
        let (plain, expected) = (br#"<a href="/x">"#.to_vec(), br#"<a href="/p/x">"#.to_vec());
        let (headers, body) = page("text/html; charset=utf-8", None, plain.clone()).await;
        assert!(!headers.contains_key(header::CONTENT_LENGTH));
        assert_eq!(body, expected);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).unwrap();
        let (headers, body) = page("text/html", Some("gzip"), encoder.finish().unwrap()).await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING));
        assert_eq!(body, expected);
        for (media, encoding) in [("text/plain", None), ("text/html", Some("br"))] {
            let (headers, body) = page(media, encoding, plain.clone()).await;
            assert_eq!((headers[header::CONTENT_LENGTH].to_str().unwrap(), body), ("13", plain.clone()));
        }
    }
}
