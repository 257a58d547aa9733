//! The facts of an object: what is known of it without decoding it, and their summary, from which the next start of the
//! same program takes them.
//!
//! ```text
//! summary   place of the revision | number of parts | length of each part | text of all parts
//! ```
//!
//! Numbers have seven bits to a byte, the lowest first. Only the very program that wrote a summary reads it, so that its
//! form may change.

use schema::Value;
use schema::decode::FieldTree;
use schema::table::Kind;

/// The kind of a collection, and the selectable field that its watches are indexed by.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    pub kind: &'a Kind,
    pub field: Option<usize>,
}

impl Index<'_> {
    /// The fields that facts are made of.
    pub(crate) fn facts(&self) -> FieldTree {
        let selectable = self.kind.selectable.iter().flat_map(|one| one.path.split('|'));
        FieldTree::of(selectable.chain(["metadata.labels"]))
    }
}

/// The parts of an object that are read without decoding it: selectable fields, then keys and values of labels. One
/// text in two pieces of memory, shared by all revisions with the same facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    text: Box<str>,
    /// Where each part ends.
    ends: Box<[u32]>,
    /// How many parts are fields.
    fields: u32,
    /// The value in the store is of another form.
    pub(crate) stale: bool,
    /// Which of the fields watches are indexed by.
    pub(crate) indexed: Option<usize>,
    /// The form that the object's bytes are.
    pub(crate) made_for: u64,
}

impl Facts {
    pub(crate) fn of(value: &Value, index: Index<'_>, made_for: u64) -> Self {
        let (mut text, mut ends) = (String::with_capacity(256), Vec::with_capacity(32));
        let selectable = &index.kind.selectable;
        for one in selectable.iter() {
            push_field(value, &one.path, &one.absent, &mut text);
            ends.push(text.len() as u32);
        }
        if let Some(Value::Map(labels)) = value.at(&["metadata", "labels"]) {
            for (key, value) in labels.iter() {
                for part in [key, value.as_str().unwrap_or("")] {
                    text.push_str(part);
                    ends.push(text.len() as u32);
                }
            }
        }
        let (text, ends) = (text.into(), ends.into());
        let fields = selectable.len() as u32;
        Facts { text, ends, fields, stale: false, indexed: index.field, made_for }
    }

    fn part(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }

    pub(crate) fn field(&self, at: usize) -> Option<&str> {
        (at < self.fields as usize).then(|| self.part(at))?
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let keys = (self.fields as usize..self.ends.len()).step_by(2);
        keys.into_iter().find(|at| self.part(*at) == Some(key)).and_then(|at| self.part(at + 1))
    }
}

/// A selectable field as text: the first of its paths that holds something.
fn push_field(value: &Value, paths: &str, absent: &str, out: &mut String) {
    for path in paths.split('|') {
        let field = path.split('.').try_fold(value, |value, step| value.as_map()?.get(step));
        match field {
            Some(Value::String(text)) if !text.is_empty() => return out.push_str(text),
            Some(Value::Int(number)) => return out.push_str(&number.to_string()),
            Some(Value::Bool(truth)) => return out.push_str(if *truth { "true" } else { "false" }),
            _ => {}
        }
    }
    out.push_str(absent);
}

/// A summary, taken apart.
pub(crate) struct Summary<'s> {
    /// Where in the value the digits of the revision belong.
    pub stamp_at: usize,
    /// The facts, as [`Facts::read`] reads them. Equal bytes are equal facts.
    pub facts: &'s [u8],
}

impl<'s> Summary<'s> {
    /// `None` if these bytes are not one.
    pub(crate) fn of(mut bytes: &'s [u8]) -> Option<Self> {
        let stamp_at = take_number(&mut bytes)?;
        Some(Summary { stamp_at, facts: bytes })
    }
}

impl Facts {
    /// The summary of an object of a built-in kind with these facts.
    pub(crate) fn summary(&self, stamp_at: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.ends.len() + self.text.len());
        put_number(stamp_at, &mut out);
        put_number(self.ends.len(), &mut out);
        let mut start = 0;
        for end in &self.ends {
            put_number((end - start) as usize, &mut out);
            start = *end;
        }
        out.extend_from_slice(self.text.as_bytes());
        out
    }

    /// The facts of a summary of a kind with so many fields; `None` if these bytes are not that.
    pub(crate) fn read(mut bytes: &[u8], fields: usize, indexed: Option<usize>) -> Option<Self> {
        let parts = take_number(&mut bytes)?;
        // each has a length
        if parts < fields || parts > bytes.len() {
            return None;
        }
        let mut ends = Vec::with_capacity(parts);
        let mut end = 0_u32;
        for _ in 0..parts {
            end = end.checked_add(u32::try_from(take_number(&mut bytes)?).ok()?)?;
            ends.push(end);
        }
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == end as usize)?;
        Some(Facts {
            text: text.into(),
            ends: ends.into(),
            fields: fields as u32,
            stale: false,
            indexed,
            made_for: 0,
        })
    }
}

fn put_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(parts: &[&str]) -> Facts {
        let ends = parts.iter().scan(0, |end, part| {
            *end += part.len() as u32;
            Some(*end)
        });
        let (text, ends) = (parts.concat().into(), ends.collect());
        Facts { text, ends, fields: 2, stale: false, indexed: Some(0), made_for: 0 }
    }

    #[test]
    fn a_summary_has_the_facts() {
        let long = "b".repeat(300);
        for facts in [facts(&["", ""]), facts(&["n\u{fc}", "", "a", &long, "c", ""])] {
            for stamp_at in [0, 127, 128, 20_000, u32::MAX as usize] {
                let bytes = facts.summary(stamp_at);
                let summary = Summary::of(&bytes).unwrap();
                assert_eq!(summary.stamp_at, stamp_at);
                assert_eq!(Facts::read(summary.facts, 2, Some(0)).as_ref(), Some(&facts));
                for end in 0..bytes.len() {
                    let cut = Summary::of(&bytes[..end]).and_then(|it| Facts::read(it.facts, 2, None));
                    assert_eq!(cut, None, "cut at {end}");
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_no_summary() {
        assert!(Summary::of(&[]).is_none());
        assert!(Summary::of(&[0xff; 9]).is_none());
        assert!(Facts::read(&[0xff, 0xff, 0xff, 0xff, 0x7f], 0, None).is_none(), "no memory is taken for it");
        assert!(Facts::read(&[1, 0], 2, None).is_none(), "fewer parts than fields");
        assert!(Facts::read(&[1, 0, b'x'], 0, None).is_none(), "more text than parts");
        assert!(Facts::read(&[1, 1, 0xff], 0, None).is_none(), "no text");
        assert!(Facts::read(&[2, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, b'x'], 0, None).is_none(), "a long part");
    }
}
