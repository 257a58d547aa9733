//! Reading PEM blocks, the textual form of certificates and of requests for them.
//!
//! Text around blocks is ignored, as is a block that is not well formed; each byte is looked at a bounded
//! number of times.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'t> {
    /// `CERTIFICATE`.
    pub label: &'t str,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

/// All blocks of a text.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    let mut line = lines.next();
    while let Some(at) = line {
        line = match at.trim_end().strip_prefix("-----BEGIN ").and_then(|it| it.strip_suffix("-----")) {
            None => lines.next(),
            Some(label) => {
                let (block, next) = body(label, &mut lines);
                blocks.extend(block);
                next
            }
        };
    }
    blocks
}

/// The block after its first line, and the line to go on with.
fn body<'t>(label: &'t str, lines: &mut std::str::Lines<'t>) -> (Option<Block<'t>>, Option<&'t str>) {
    let (mut base64, mut has_headers) = (String::new(), false);
    for line in lines.by_ref() {
        // a block begins and ends where a line does
        let line = line.trim_end();
        if let Some(end) = line.strip_prefix("-----END ") {
            let fits = end.strip_suffix("-----") == Some(label);
            let bytes = STANDARD.decode(&base64).ok().filter(|_| fits);
            return (bytes.map(|bytes| Block { label, has_headers, bytes }), lines.next());
        }
        if line.starts_with("-----BEGIN ") {
            return (None, Some(line));
        }
        if base64.is_empty() && line.contains(':') {
            has_headers = true;
        } else {
            base64.extend(line.chars().filter(|c| !c.is_whitespace()));
        }
    }
    (None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_other_text() {
        let text = "x\n-----BEGIN A-----\nYQ==\n-----END A-----\ny\n-----BEGIN B-----\nh: v\n\nYg==\n-----END B-----\n";
        let expected = [
            Block { label: "A", has_headers: false, bytes: b"a".to_vec() },
            Block { label: "B", has_headers: true, bytes: b"b".to_vec() },
        ];
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn broken_blocks_are_skipped() {
        let check = |text: &str| assert_eq!(blocks(text), [], "{text}");
        check("");
        check("-----BEGIN A-----\nYQ==\n");
        check("-----BEGIN A-----\nYQ==\n-----END B-----\n");
        check("-----BEGIN A-----\n!!\n-----END A-----\n");
        assert_eq!(blocks("-----BEGIN A-----\n-----BEGIN B-----\nYQ==\n-----END B-----").len(), 1);
    }
}
