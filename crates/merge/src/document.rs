//! The text of a patched object, as an error shows it.
//!
//! Clients know this text from an implementation that takes a document apart only where a patch looks into it:
//! a map that was opened has its keys by name, everything else keeps the text that it came with, but for the escapes
//! of HTML. So the text of an object and the text of a patch give the text of the result. It is made for errors only,
//! after the patch was applied to the tree; a patch that does not apply leaves the document as it is at that operation.
//!
//! Invariant: each text is read once, and a map is sorted once.

use crate::json_patch::{Pointer, index};
use schema::{Value, decode, encode};
use std::borrow::Cow;

/// The text of `object` after the JSON patch `patch`.
pub fn json_patched(object: &str, patch: &str) -> String {
    let (object, patch) = (compact(object), compact(patch));
    let mut document = Node::parse(&object);
    document.open();
    for operation in Node::parse(&patch).items() {
        let Some(operation) = Operation::read(operation) else { break };
        if operation.run(&mut document).is_none() {
            break;
        }
    }
    document.print()
}

/// The text of `object` after the merge patch `patch`.
pub fn merge_patched(object: &str, patch: &str) -> String {
    let (object, patch) = (compact(object), compact(patch));
    let (mut document, mut patch) = (Node::parse(&object), Node::parse(&patch));
    document.open();
    patch.open();
    match patch.form {
        Form::Map(_) => merge(&mut document, patch),
        _ => {
            patch.prune();
            document = patch;
        }
    }
    document.print()
}

/// A part of a document.
#[derive(Debug, Clone)]
struct Node<'a> {
    /// As it came; what is printed until the node is opened.
    text: &'a str,
    form: Form<'a>,
    is_open: bool,
}

#[derive(Debug, Clone)]
enum Form<'a> {
    Scalar,
    /// By name once the node is open.
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
    List(Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    const NULL: Node<'static> = Node { text: "null", form: Form::Scalar, is_open: false };

    /// A document from compact text, which is known to be JSON.
    fn parse(text: &'a str) -> Node<'a> {
        Reader { text, at: 0 }.node()
    }

    fn is_null(&self) -> bool {
        self.text == "null" && matches!(self.form, Form::Scalar)
    }

    fn items(self) -> Vec<Node<'a>> {
        match self.form {
            Form::List(items) => items,
            _ => Vec::new(),
        }
    }

    /// Splits a map or list into members; the last of duplicate members wins.
    fn open(&mut self) {
        if !self.is_open
            && let Form::Map(members) = &mut self.form
        {
            members.reverse();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.dedup_by(|next, kept| next.0 == kept.0);
        }
        self.is_open |= !matches!(self.form, Form::Scalar);
    }

    fn open_all(&mut self) {
        self.open();
        match &mut self.form {
            Form::Map(members) => members.iter_mut().for_each(|(_, node)| node.open_all()),
            Form::List(items) => items.iter_mut().for_each(Node::open_all),
            Form::Scalar => {}
        }
    }

    /// Removes null members, also in maps inside lists.
    fn prune(&mut self) {
        self.open();
        match &mut self.form {
            Form::Map(members) => {
                members.retain(|(_, node)| !node.is_null());
                members.iter_mut().for_each(|(_, node)| node.prune());
            }
            Form::List(items) => items.iter_mut().for_each(Node::prune),
            Form::Scalar => {}
        }
    }

    /// The place of a member of an open map, or where it belongs.
    fn place(members: &[(Cow<'a, str>, Node<'a>)], name: &str) -> Result<usize, usize> {
        members.binary_search_by(|(key, _)| key.as_ref().cmp(name))
    }

    fn child(&mut self, step: &str) -> Option<&mut Node<'a>> {
        self.open();
        match &mut self.form {
            Form::Map(members) => {
                let at = Node::place(members, step).ok()?;
                Some(&mut members[at].1)
            }
            Form::List(items) => {
                let at = index(step, items.len())?;
                items.get_mut(at)
            }
            Form::Scalar => None,
        }
    }

    /// The map or list that holds the last step, opened, and that step.
    fn holder<'p>(&mut self, pointer: &'p Pointer) -> Option<(&mut Node<'a>, &'p str)> {
        let (last, parents) = pointer.steps.split_last()?;
        let mut here = self;
        for step in parents {
            here = here.child(step)?;
        }
        here.open();
        Some((here, last))
    }

    fn add(&mut self, pointer: &Pointer, node: Node<'a>) -> Option<()> {
        let (holder, step) = self.holder(pointer)?;
        match &mut holder.form {
            Form::Map(members) => match Node::place(members, step) {
                Ok(at) => members[at].1 = node,
                Err(at) => members.insert(at, (Cow::Owned(step.to_owned()), node)),
            },
            Form::List(items) if step == "-" => items.push(node),
            Form::List(items) => {
                let at = index(step, items.len() + 1)?;
                items.insert(at, node);
            }
            Form::Scalar => return None,
        }
        Some(())
    }

    fn remove(&mut self, pointer: &Pointer) -> Option<Node<'a>> {
        let (holder, step) = self.holder(pointer)?;
        match &mut holder.form {
            Form::Map(members) => {
                let at = Node::place(members, step).ok()?;
                Some(members.remove(at).1)
            }
            Form::List(items) => {
                let at = index(step, items.len())?;
                Some(items.remove(at))
            }
            Form::Scalar => None,
        }
    }

    fn print(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 256);
        self.write(&mut out);
        encode::escape_html(&out).into_owned()
    }

    fn write(&self, out: &mut String) {
        if !self.is_open {
            return out.push_str(self.text);
        }
        match &self.form {
            Form::Scalar => out.push_str(self.text),
            Form::Map(members) => {
                out.push('{');
                for (nth, (name, node)) in members.iter().enumerate() {
                    if nth > 0 {
                        out.push(',');
                    }
                    let name = encode::untyped(&Value::String(name.as_ref().into()));
                    out.push_str(&String::from_utf8_lossy(&name));
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
            Form::List(items) => {
                out.push('[');
                for (nth, item) in items.iter().enumerate() {
                    if nth > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
        }
    }
}

/// Merges an open map into another one.
fn merge<'a>(target: &mut Node<'a>, patch: Node<'a>) {
    let (Form::Map(members), Form::Map(changes)) = (&mut target.form, patch.form) else { return };
    // one pass over both: members are taken, merged or left in the order of their names
    let mut merged = Vec::with_capacity(members.len() + changes.len());
    let mut before = std::mem::take(members).into_iter().peekable();
    for (name, mut change) in changes {
        while let Some(member) = before.next_if(|(key, _)| *key < name) {
            merged.push(member);
        }
        let held = before.next_if(|(key, _)| *key == name).map(|(_, node)| node);
        if change.is_null() {
            continue;
        }
        let next = match held {
            Some(mut held) if matches!(held.form, Form::Map(_)) => {
                held.open();
                if matches!(change.form, Form::Map(_)) {
                    change.open();
                    merge(&mut held, change);
                    held
                } else {
                    change
                }
            }
            _ => {
                change.prune();
                change
            }
        };
        merged.push((name, next));
    }
    merged.extend(before);
    *members = merged;
}

struct Operation<'a> {
    name: String,
    path: Option<Pointer>,
    from: Option<Pointer>,
    value: Node<'a>,
}

impl<'a> Operation<'a> {
    fn read(node: Node<'a>) -> Option<Self> {
        let Form::Map(members) = node.form else { return None };
        let mut read = Operation { name: String::new(), path: None, from: None, value: Node::NULL };
        for (name, node) in members {
            let pointer = || unquoted(node.text).map(|text| Pointer::parse(&text));
            match name.as_ref() {
                "op" => read.name = unquoted(node.text)?.into_owned(),
                "path" => read.path = pointer(),
                "from" => read.from = pointer(),
                "value" => read.value = node,
                _ => {}
            }
        }
        Some(read)
    }

    fn run(self, document: &mut Node<'a>) -> Option<()> {
        let path = self.path?;
        match self.name.as_str() {
            "add" => document.add(&path, self.value),
            "remove" => document.remove(&path).map(drop),
            "replace" if path.is_whole() => {
                if !matches!(self.value.form, Form::Scalar) {
                    *document = self.value;
                    document.open();
                }
                Some(())
            }
            "replace" => {
                let (holder, step) = document.holder(&path)?;
                match holder.child(step) {
                    Some(place) => {
                        *place = self.value;
                        Some(())
                    }
                    None => document.add(&path, self.value),
                }
            }
            "move" => {
                let node = document.remove(&self.from?)?;
                document.add(&path, node)
            }
            "copy" => {
                // the place is looked up before the copy is made
                document.holder(&path)?;
                let (holder, step) = document.holder(self.from.as_ref()?)?;
                let copy = holder.child(step).map_or(Node::NULL, |node| node.clone());
                document.add(&path, copy)
            }
            // values that are compared are taken apart
            "test" if path.is_whole() => {
                document.open_all();
                Some(())
            }
            "test" => {
                let (holder, step) = document.holder(&path)?;
                if let Some(node) = holder.child(step) {
                    node.open_all();
                }
                Some(())
            }
            _ => None,
        }
    }
}

/// A string without its quotes and escapes.
fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    match decode::json_untyped(text.as_bytes()).ok()?.value {
        Value::String(text) => Some(Cow::Owned(text.as_str().to_owned())),
        _ => None,
    }
}

/// JSON without the blanks between its tokens.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for letter in text.chars() {
        if in_string {
            in_string = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
        } else if letter.is_ascii_whitespace() {
            continue;
        } else {
            in_string = letter == '"';
        }
        out.push(letter);
    }
    out
}

/// Reads compact JSON that a decoder has read before, so what does not fit ends the part that it is in.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(b'}')
    }

    fn node(&mut self) -> Node<'a> {
        let start = self.at;
        let form = match self.peek() {
            b'{' => Form::Map(self.members()),
            b'[' => Form::List(self.list()),
            b'"' => {
                self.string();
                Form::Scalar
            }
            _ => {
                while !matches!(self.peek(), b',' | b'}' | b']') {
                    self.at += 1;
                }
                Form::Scalar
            }
        };
        let end = self.at.min(self.text.len());
        Node { text: &self.text[start.min(end)..end], form, is_open: false }
    }

    fn string(&mut self) -> &'a str {
        let start = self.at;
        self.at += 1;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(bytes.len());
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn members(&mut self) -> Vec<(Cow<'a, str>, Node<'a>)> {
        let mut members = Vec::new();
        self.at += 1;
        while self.peek() == b'"' {
            let name = self.string();
            self.at += 1;
            members.push((unquoted(name).unwrap_or_default(), self.node()));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        members
    }

    fn list(&mut self) -> Vec<Node<'a>> {
        let mut items = Vec::new();
        self.at += 1;
        while !matches!(self.peek(), b']' | b'}') {
            items.push(self.node());
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str =
        r#"{"kind":"K","spec":{"name":"c","image":"i","list":[{"b":1,"a":2},{"d":1,"c":2}]}}"#;

    #[test]
    fn unpatched_values_keep_their_text() {
        let after = merge_patched(OBJECT, r#"{"z":{"y":null,"x":{"q":1,"p":[{"n":1,"m":null}]}}, "a": 1}"#);
        let text = r#"{"a":1,"kind":"K","spec":{"name":"c","image":"i","list":[{"b":1,"a":2},{"d":1,"c":2}]},"z":{"x":{"p":[{"n":1}],"q":1}}}"#;
        assert_eq!(after, text);
        let after = merge_patched(OBJECT, r#"{"spec":{"list":[{"z":1,"y":{"x":1,"w":2}}]}}"#);
        let text = r#"{"kind":"K","spec":{"image":"i","list":[{"y":{"w":2,"x":1},"z":1}],"name":"c"}}"#;
        assert_eq!(after, text);
        // the replacement of a map is taken unchanged
        let after = merge_patched(OBJECT, r#"{"spec":[{"b":null,"a":1}]}"#);
        assert_eq!(after, r#"{"kind":"K","spec":[{"b":null,"a":1}]}"#);
        assert_eq!(merge_patched(OBJECT, r#"[1,{"b":1,"a":null}]"#), r#"[1,{"b":1}]"#);
    }

    #[test]
    fn an_operation_parses_the_values_on_its_path() {
        let check = |patch: &str, text: &str| assert_eq!(json_patched(OBJECT, patch), text, "{patch}");
        check(
            r#"[{"op": "add", "path": "/spec/list/0", "value": {"n": 1, "m": "a \" b"}}]"#,
            r#"{"kind":"K","spec":{"image":"i","list":[{"n":1,"m":"a \" b"},{"b":1,"a":2},{"d":1,"c":2}],"name":"c"}}"#,
        );
        check(
            r#"[{"op":"move","from":"/spec","path":"/a"},{"op":"copy","from":"/a/list/0","path":"/b"}]"#,
            r#"{"a":{"image":"i","list":[{"b":1,"a":2},{"d":1,"c":2}],"name":"c"},"b":{"b":1,"a":2},"kind":"K"}"#,
        );
        check(
            r#"[{"op":"test","path":"/spec/list/1","value":{"c":2,"d":1}},{"op":"remove","path":"/kind"}]"#,
            r#"{"spec":{"image":"i","list":[{"b":1,"a":2},{"c":2,"d":1}],"name":"c"}}"#,
        );
        check(
            r#"[{"op":"replace","path":"","value":{"b":{"d":1,"c":2},"a":1}}]"#,
            r#"{"a":1,"b":{"d":1,"c":2}}"#,
        );
        check(
            r#"[{"op":"copy","from":"/none","path":"/spec"},{"op":"replace","path":"/kind","value":[1 , 2]}]"#,
            r#"{"kind":[1,2],"spec":null}"#,
        );
    }

    #[test]
    fn a_copy_has_the_parsed_state_of_its_source() {
        let after = json_patched(
            r#"{"m":{"b":1,"a":{"d":1,"c":2}}}"#,
            r#"[{"op":"copy","from":"/m","path":"/m/x"}]"#,
        );
        assert_eq!(after, r#"{"m":{"a":{"d":1,"c":2},"b":1,"x":{"a":{"d":1,"c":2},"b":1}}}"#);
    }

    #[test]
    fn html_is_escaped_in_names_and_values() {
        let after = merge_patched(r#"{"a":{"z":"&"}}"#, "{\"<\":{\"x\":\"\u{2028}\"}}");
        assert_eq!(after, r#"{"\u003c":{"x":"\u2028"},"a":{"z":"\u0026"}}"#);
        let after = json_patched(r#"{"a":">"}"#, r#"[{"op":"add","path":"/b","value":["<"]}]"#);
        assert_eq!(after, r#"{"a":"\u003e","b":["\u003c"]}"#);
    }

    #[test]
    fn names_are_read_and_the_last_of_equal_ones_counts() {
        let after = merge_patched(r#"{"a\"b":1}"#, r#"{"a\u0022b":{"x":1,"y":2,"x":3}}"#);
        assert_eq!(after, r#"{"a\"b":{"x":3,"y":2}}"#);
    }
}
