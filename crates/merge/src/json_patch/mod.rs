//! JSON patch (RFC 6902): a list of operations, all of which apply or none.
//!
//! [`JsonPatch::parse`] checks the form once; [`JsonPatch::apply`] may run many times, because a write that lost a
//! race is patched again. Pointers follow the API's established rules: text before the first `/` is ignored, a
//! negative index counts from the end of a list, an operation without a value has the value `null`, and `test`
//! treats an absent value as `null`.
//!
//! Invariants: the result nests no deeper than [`MAX_DEPTH`] if the object did not, copies grow it by
//! [`MAX_COPIED`] bytes at most, and shifted entries of long lists and maps are counted, so that the cost of a small
//! patch is bounded.

use crate::error::{Error, Rejection};
use crate::limits::{MAX_COPIED, MAX_DEPTH, MAX_OPERATIONS, MAX_SHIFTED};
use schema::decode::STRICT_ERRORS_LIMIT;
use schema::problem::quoted;
use schema::{Map, Value};

/// A parsed patch.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Add {
        path: Pointer,
        value: Value,
    },
    Remove {
        path: Pointer,
    },
    Replace {
        path: Pointer,
        value: Value,
    },
    Move {
        from: Pointer,
        path: Pointer,
    },
    Copy {
        from: Pointer,
        path: Pointer,
    },
    Test {
        path: Pointer,
        value: Value,
    },
    /// An operation that cannot run. It fails in its turn: the operations before it may fail with their own error.
    Invalid(Rejection),
}

impl JsonPatch {
    /// Parses a patch, and returns a warning for each unknown member of an operation. With [`Form::Unchecked`], an
    /// operation with members of other types fails only when it runs.
    pub fn parse(patch: &Value, form: Form) -> Result<(Self, Vec<String>), Error> {
        let list: &[Value] = match patch {
            Value::Null => &[],
            Value::List(list) => list,
            other => return Err(form.wrong_type(other, "[]handlers.jsonPatchOp", "jsonpatch.Patch")),
        };
        if list.len() > MAX_OPERATIONS {
            return Err(Error::TooManyOperations(list.len()));
        }
        let mut warnings = Vec::new();
        let mut operations = Vec::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            operations.push(operation(at, item, form, &mut warnings)?);
        }
        Ok((JsonPatch { operations }, warnings))
    }

    /// The object after all operations.
    pub fn apply(&self, object: Value) -> Result<Value, Error> {
        let mut state = PatchState { object, copied: 0, shifted: 0 };
        for operation in &self.operations {
            state.run(operation)?;
        }
        Ok(state.object)
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

/// Whether the members of operations must be of their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Checked,
    Unchecked,
}

impl Form {
    /// The error of a value that is neither a patch nor an operation. Its text depends on the decoder that fails first.
    fn wrong_type(self, found: &Value, checked: &str, unchecked: &str) -> Error {
        let why =
            |wanted| format!("json: cannot unmarshal {} into Go value of type {wanted}", found.json_type());
        match self {
            Form::Checked => Error::Malformed(why(checked)),
            Form::Unchecked => Error::InvalidPatch(why(unchecked)),
        }
    }
}

fn operation(at: usize, item: &Value, form: Form, warnings: &mut Vec<String>) -> Result<Operation, Error> {
    let nothing = Map::new();
    let map = match item {
        Value::Map(map) => map,
        Value::Null => &nothing,
        other => return Err(form.wrong_type(other, "handlers.jsonPatchOp", "jsonpatch.Operation")),
    };
    for name in map.keys() {
        let known = matches!(name, "op" | "path" | "from" | "value");
        if !known && warnings.len() < STRICT_ERRORS_LIMIT {
            warnings.push(format!("json patch unknown field {}", quoted(&format!("[{at}].{name}"))));
        }
    }
    let text = |name: &'static str| match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) if form == Form::Unchecked => Ok(None),
        Some(other) => Err(Error::Malformed(format!(
            "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
            other.json_type()
        ))),
    };
    let (op, path, from) = (text("op")?, text("path")?, text("from")?);
    let path = || path.map(Pointer::parse).ok_or(Rejection::Lacks(at, "path"));
    let from = || from.map(Pointer::parse).ok_or(Rejection::Lacks(at, "from"));
    let value = || map.get("value").cloned().unwrap_or_default();
    let built = || {
        Ok(match op {
            Some("add") => Operation::Add { path: path()?, value: value() },
            Some("remove") => Operation::Remove { path: path()? },
            Some("replace") => Operation::Replace { path: path()?, value: value() },
            Some("move") => Operation::Move { from: from()?, path: path()? },
            Some("copy") => Operation::Copy { from: from()?, path: path()? },
            Some("test") => Operation::Test { path: path()?, value: value() },
            Some(other) => return Err(Rejection::UnknownOperation(at, other.to_owned())),
            None => return Err(Rejection::Lacks(at, "op")),
        })
    };
    Ok(built().unwrap_or_else(Operation::Invalid))
}

/// A JSON pointer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pointer {
    /// As the client wrote it, for messages; empty for the whole object.
    text: String,
    /// Names and indices of the steps; empty if the text has none.
    pub(crate) steps: Vec<String>,
}

impl Pointer {
    pub(crate) fn parse(text: &str) -> Pointer {
        let steps = text.split('/').skip(1).map(unescape).collect();
        Pointer { text: text.to_owned(), steps }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.text.is_empty()
    }

    fn missing(&self) -> Rejection {
        Rejection::Missing(self.text.clone())
    }

    fn bad_index(&self) -> Rejection {
        Rejection::InvalidIndex(self.text.clone())
    }

    /// The map or list that holds the last step, and that step.
    fn holder<'v>(&self, object: &'v mut Value) -> Result<(Holder<'v>, &str), Rejection> {
        let Some((last, parents)) = self.steps.split_last() else { return Err(self.missing()) };
        let mut here = object;
        for step in parents {
            let next = match here {
                Value::Map(map) => map.get_mut(step),
                Value::List(list) => index(step, list.len()).and_then(|at| list.get_mut(at)),
                _ => None,
            };
            here = next.ok_or_else(|| self.missing())?;
        }
        match here {
            Value::Map(map) => Ok((Holder::Map(map), last)),
            Value::List(list) => Ok((Holder::List(list), last)),
            _ => Err(self.missing()),
        }
    }

    /// The value at the pointer; `None` if its map has no such key.
    fn find<'v>(&self, object: &'v mut Value) -> Result<Option<&'v mut Value>, Rejection> {
        match self.holder(object)? {
            (Holder::Map(map), key) => Ok(map.get_mut(key)),
            (Holder::List(list), step) => match index(step, list.len()) {
                Some(at) => Ok(list.get_mut(at)),
                None => Err(self.bad_index()),
            },
        }
    }
}

enum Holder<'v> {
    Map(&'v mut Map),
    List(&'v mut Vec<Value>),
}

/// `~1` is a slash and `~0` a tilde; any other tilde is itself.
fn unescape(step: &str) -> String {
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (plain, taken) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(plain);
        rest = &rest[at + taken..];
    }
    out.push_str(rest);
    out
}

/// The position that a step names in a list with `places` places; a negative index counts from the end.
pub(crate) fn index(step: &str, places: usize) -> Option<usize> {
    let number: i64 = step.parse().ok()?;
    let places = i64::try_from(places).ok()?;
    let at = if number < 0 { number + places } else { number };
    if (0..places).contains(&at) { usize::try_from(at).ok() } else { None }
}

/// The object during a patch, with the cost of the patch so far.
struct PatchState {
    object: Value,
    copied: usize,
    shifted: usize,
}

impl PatchState {
    fn run(&mut self, operation: &Operation) -> Result<(), Rejection> {
        match operation {
            Operation::Add { path, value } => {
                fits(path, value)?;
                self.add(path, value.clone())
            }
            Operation::Remove { path } => self.remove(path).map(drop),
            Operation::Replace { path, value } => self.replace(path, value),
            Operation::Move { from, path } => {
                let value = self.remove(from)?;
                // a value that does not move deeper cannot nest too deep
                if path.steps.len() > from.steps.len() {
                    measure(&mut self.copied, path, &value)?;
                }
                self.add(path, value)
            }
            Operation::Copy { from, path } => {
                let copy = match from.find(&mut self.object)? {
                    Some(value) => {
                        measure(&mut self.copied, path, value)?;
                        value.clone()
                    }
                    // copying an absent member of a map copies null
                    None => match from.holder(&mut self.object)? {
                        (Holder::Map(_), _) => Value::Null,
                        _ => return Err(from.missing()),
                    },
                };
                self.add(path, copy)
            }
            Operation::Test { path, value } => self.test(path, value),
            Operation::Invalid(why) => Err(why.clone()),
        }
    }

    fn add(&mut self, path: &Pointer, value: Value) -> Result<(), Rejection> {
        match path.holder(&mut self.object)? {
            (Holder::Map(map), key) => {
                if let Some(place) = map.get_mut(key) {
                    *place = value;
                    return Ok(());
                }
                shift(&mut self.shifted, map.len())?;
                map.insert(key.to_owned(), value);
            }
            (Holder::List(list), "-") => list.push(value),
            (Holder::List(list), step) => {
                let at = index(step, list.len() + 1).ok_or_else(|| path.bad_index())?;
                shift(&mut self.shifted, list.len() - at)?;
                list.insert(at, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &Pointer) -> Result<Value, Rejection> {
        match path.holder(&mut self.object)? {
            (Holder::Map(map), key) => {
                shift(&mut self.shifted, map.len())?;
                map.remove(key).ok_or_else(|| path.missing())
            }
            (Holder::List(list), step) => {
                let at = index(step, list.len()).ok_or_else(|| path.bad_index())?;
                shift(&mut self.shifted, list.len() - at)?;
                Ok(list.remove(at))
            }
        }
    }

    fn replace(&mut self, path: &Pointer, value: &Value) -> Result<(), Rejection> {
        fits(path, value)?;
        if path.is_whole() {
            // clients rely on this: anything but a map or a list leaves the object as it is
            if matches!(value, Value::Map(_) | Value::List(_)) {
                self.object = value.clone();
            }
            return Ok(());
        }
        if let Some(place) = path.find(&mut self.object)? {
            *place = value.clone();
            return Ok(());
        }
        match path.holder(&mut self.object)? {
            // clients rely on this: replacing an absent member adds it
            (Holder::Map(_), _) => {
                measure(&mut self.copied, path, value)?;
                self.add(path, value.clone())
            }
            (Holder::List(_), _) => Err(path.missing()),
        }
    }

    fn test(&mut self, path: &Pointer, value: &Value) -> Result<(), Rejection> {
        let target = if path.is_whole() { Some(&mut self.object) } else { path.find(&mut self.object)? };
        let same = target.map_or(value.is_null(), |target| same(target, value));
        if same { Ok(()) } else { Err(Rejection::TestFailed(path.text.clone())) }
    }
}

/// Counts a value that is added at a new place.
fn measure(copied: &mut usize, path: &Pointer, value: &Value) -> Result<(), Rejection> {
    let mut left = MAX_COPIED - *copied;
    weigh(value, MAX_DEPTH.saturating_sub(path.steps.len()), &mut left)?;
    *copied = MAX_COPIED - left;
    Ok(())
}

fn shift(shifted: &mut usize, entries: usize) -> Result<(), Rejection> {
    *shifted += entries;
    if *shifted > MAX_SHIFTED { Err(Rejection::TooMuchMoved) } else { Ok(()) }
}

/// Checks the depth of a value of the patch itself. Its size is bounded by the size of the request.
fn fits(path: &Pointer, value: &Value) -> Result<(), Rejection> {
    let mut unbounded = usize::MAX;
    weigh(value, MAX_DEPTH.saturating_sub(path.steps.len()), &mut unbounded)
}

/// Subtracts the size of a value from `left`, and checks that it nests at most `room` levels deep.
fn weigh(value: &Value, room: usize, left: &mut usize) -> Result<(), Rejection> {
    let own = match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Int(_) | Value::Float(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Json(text) => text.len(),
        Value::List(list) => list.len() + 2,
        Value::Map(map) => map.keys().map(|key| key.len() + 4).sum::<usize>() + 2,
    };
    *left = left.checked_sub(own).ok_or(Rejection::TooMuchCopied)?;
    let below = || room.checked_sub(1).ok_or(Rejection::TooDeep);
    match value {
        Value::List(list) => {
            let room = below()?;
            list.iter().try_for_each(|item| weigh(item, room, left))
        }
        Value::Map(map) => {
            let room = below()?;
            map.iter().try_for_each(|(_, item)| weigh(item, room, left))
        }
        _ => Ok(()),
    }
}

/// Equality of JSON values: numbers are equal when they are the same number.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    same_or(a, b, |_, _| false)
}

/// The same, and values of two types are equal too where `or` says so.
pub(crate) fn same_or(a: &Value, b: &Value, or: fn(&Value, &Value) -> bool) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_or(a, b, or))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|((k, a), (l, b))| k == l && same_or(a, b, or))
        }
        _ => a == b || or(a, b),
    }
}

#[cfg(test)]
mod tests;
