//! The source of an expression: positions, and issues at them.
//!
//! Positions count characters, not bytes. An issue prints its line with a mark below it, as upstream does.

use std::fmt;

/// The most issues that are printed; of further ones only the number is.
const DISPLAY_LIMIT: usize = 100;
/// Lines longer than this are not shown.
const LONGEST_SHOWN: usize = 16_384;

/// Something wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The line, from 1 on; -1 where the expression is wrong as a whole.
    pub line: i64,
    /// The column, from 0 on; -1 where the expression is wrong as a whole.
    pub column: i64,
    pub message: String,
}

/// All issues of an expression, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    formatted: Vec<(Issue, Option<String>)>,
    more: usize,
}

impl Issues {
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.formatted.iter().map(|(issue, _)| issue)
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (issue, line)) in self.formatted.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            write!(f, "ERROR: <input>:{}:{}: {}", issue.line, issue.column + 1, issue.message)?;
            if let Some(line) = line {
                write!(f, "\n | {line}\n | {}", mark(line, issue.column))?;
            }
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}

/// Dots up to the column and a hat below it, as wide as the characters above them.
fn mark(line: &str, column: i64) -> String {
    let mut chars = line.chars();
    let mut out = String::new();
    for _ in 0..column.max(0) {
        match chars.next() {
            None => break,
            Some(c) => out.push(if c.len_utf8() > 1 { '．' } else { '.' }),
        }
    }
    out.push(if chars.next().is_some_and(|c| c.len_utf8() > 1) { '＾' } else { '^' });
    out
}

/// The text, with the ends of its lines.
pub(crate) struct Source<'t> {
    text: &'t str,
    /// For each line, the offset of the character after its end.
    ends: Vec<usize>,
    issues: Vec<Issue>,
    count: usize,
}

impl<'t> Source<'t> {
    pub fn new(text: &'t str) -> Self {
        let mut offset = 0;
        let lines = text.split('\n').map(|line| {
            offset += line.chars().count() + 1;
            offset
        });
        Source { text, ends: lines.collect(), issues: Vec::new(), count: 0 }
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    pub fn report(&mut self, (line, column): (i64, i64), message: impl Into<String>) {
        self.count += 1;
        if self.count <= DISPLAY_LIMIT {
            self.issues.push(Issue { line, column, message: message.into() });
        }
    }

    /// An issue of the expression as a whole.
    pub fn report_whole(&mut self, message: impl Into<String>) {
        self.report((-1, -1), message);
    }

    pub fn has_issues(&self) -> bool {
        self.count > 0
    }

    /// Line and column of a character.
    pub fn location(&self, offset: usize) -> (i64, i64) {
        let line = self.ends.partition_point(|end| *end <= offset);
        let start = if line == 0 { 0 } else { self.ends[line - 1] };
        (line as i64 + 1, (offset - start) as i64)
    }

    /// The same for type errors: here the first character of a line counts to the line before.
    pub fn checked_location(&self, offset: usize) -> (i64, i64) {
        let line = self.ends.partition_point(|end| *end < offset);
        let start = if line == 0 { 0 } else { self.ends[line - 1] };
        (line as i64 + 1, (offset - start) as i64)
    }

    pub fn into_issues(mut self) -> Issues {
        self.issues.sort_by_key(|issue| (issue.line, issue.column));
        let lines: Vec<&str> = self.text.split('\n').collect();
        let line = |issue: &Issue| {
            let nth = usize::try_from(issue.line).ok()?.checked_sub(1)?;
            let line = lines.get(nth).filter(|it| !self.text.is_empty() && it.len() <= LONGEST_SHOWN)?;
            Some(line.replace('\t', " "))
        };
        let formatted = self.issues.iter().map(|issue| (issue.clone(), line(issue))).collect();
        Issues { formatted, more: self.count - self.issues.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_are_marked_in_their_line() {
        let mut source = Source::new("a.b\n我a很好");
        source.report((2, 3), "second");
        source.report((1, 1), "first");
        source.report_whole("whole");
        assert_eq!(
            source.into_issues().to_string(),
            "ERROR: <input>:-1:0: whole\n\
             ERROR: <input>:1:2: first\n | a.b\n | .^\n\
             ERROR: <input>:2:4: second\n | 我a很好\n | ．.．＾"
        );
    }

    #[test]
    fn offsets_become_lines_and_columns() {
        let source = Source::new("ab\ncd\n\ne");
        assert_eq!(source.location(0), (1, 0));
        assert_eq!(source.location(2), (1, 2));
        assert_eq!(source.location(3), (2, 0));
        assert_eq!(source.location(7), (4, 0));
        assert_eq!(source.checked_location(3), (1, 3));
        assert_eq!(source.checked_location(4), (2, 1));
    }

    #[test]
    fn beyond_a_hundred_only_the_number_is_reported() {
        let mut source = Source::new("x");
        (0..150).for_each(|nth| source.report((1, 0), nth.to_string()));
        assert!(source.into_issues().to_string().ends_with("\n50 more errors were truncated"));
    }
}
