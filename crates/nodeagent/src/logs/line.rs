//! A line of a log file.

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine<'l> {
    pub time: &'l [u8],
    pub is_stderr: bool,
    /// Whether the line of output goes on in the next one.
    pub is_partial: bool,
    /// The text, without a newline.
    pub text: &'l [u8],
}

impl<'l> LogLine<'l> {
    /// Parses a line with or without its newline; `None` if it is none.
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
        let text = parts.next().unwrap_or_default();
        let is_stderr = match stream {
            b"stdout" => false,
            b"stderr" => true,
            _ => return None,
        };
        schema::time::to_unix(std::str::from_utf8(time).ok()?)?;
        let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
        Some(LogLine { time, is_stderr, is_partial, text })
    }

    /// Nanoseconds since the epoch.
    pub fn nanos(&self) -> i128 {
        let text = std::str::from_utf8(self.time).unwrap_or_default();
        let seconds = i128::from(schema::time::to_unix(text).unwrap_or(0));
        let digits = text.split_once('.').map_or("", |(_, rest)| rest);
        let digits: String = digits.chars().take_while(char::is_ascii_digit).take(9).collect();
        let fraction: i128 = format!("{digits:0<9}").parse().unwrap_or(0);
        seconds * 1_000_000_000 + fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = LogLine::parse(b"2020-01-01T00:00:00.5Z stderr P a b\n").unwrap();
        assert!(line.is_stderr && line.is_partial);
        assert_eq!((line.text, line.nanos()), (&b"a b"[..], 1_577_836_800_500_000_000));
        let empty = LogLine::parse(b"2020-01-01T00:00:00.000000001Z stdout F ").unwrap();
        assert_eq!((empty.text, empty.is_partial), (&b""[..], false));
        for bad in [&b"nonsense"[..], b"2020-01-01T00:00:00Z stdin F x", b"x stdout F y", b""] {
            assert_eq!(LogLine::parse(bad), None);
        }
    }
}
