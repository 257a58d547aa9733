//! Paths into JSON as columns of tables are declared with: `.spec.ports[0].name`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! A path is read once and then only walked. What it leads to is nothing, one value or several; a key that is not
//! there is nothing. An index beyond a list, or one into a value that is no list, and a comparison of values of
//! different types make the whole path lead to nothing. Work is linear in the values that are met, and a path that meets
//! more than a million of them leads to nothing: repeated steps, such as `[0,0][0,0]`, could meet any number.

use crate::cursor::Cursor;
use crate::value::Value;
use std::cmp::Ordering;

/// A path that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// A path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// All items, or all values.
    All,
    /// The value and all values below it that have parts.
    Below,
    Index(i64),
    Range(Option<i64>, Option<i64>, Option<i64>),
    /// Several steps side by side.
    Each(Vec<Step>),
    /// Items for which a comparison holds.
    Where(Box<Filter>),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How many values one walk may meet.
const MOST_MET: usize = 1 << 20;
/// How deep filters may stand in one another.
const MOST_NESTED: usize = 8;

impl JsonPath {
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let mut reader = Reader { cursor: Cursor::new(text), nested: 0 };
        let path = reader.path()?;
        if reader.cursor.at < text.len() {
            return Err(reader.wrong("unexpected text"));
        }
        Ok(path)
    }

    /// The values at the path, in order.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        self.walk(value, &mut Allowance(MOST_MET)).unwrap_or_default()
    }

    /// The same; an error where a step does not fit the value that it meets, and where the allowance ends.
    fn walk<'v>(&self, value: &'v Value, allowance: &mut Allowance) -> Result<Vec<&'v Value>, StepMismatch> {
        let mut values = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in values {
                step.take(value, &mut next, allowance)?;
            }
            values = next;
        }
        Ok(values)
    }

    /// The names that it begins with, joined by dots: nothing outside of them is looked at. `None` where the first is empty
    /// or has a dot itself, or the path begins otherwise.
    pub fn reads(&self) -> Option<String> {
        let names = self.steps.iter().map_while(|step| match step {
            Step::Field(name) if !name.is_empty() && !name.contains('.') => Some(name.as_str()),
            _ => None,
        });
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| names.join("."))
    }
}

/// A step that does not fit the value that it meets.
struct StepMismatch;

/// How many values a walk may still meet.
struct Allowance(usize);

impl Allowance {
    fn spend(&mut self, values: usize) -> Result<(), StepMismatch> {
        self.0 = self.0.checked_sub(values).ok_or(StepMismatch)?;
        Ok(())
    }
}

impl Step {
    fn take<'v>(
        &self,
        value: &'v Value,
        out: &mut Vec<&'v Value>,
        allowance: &mut Allowance,
    ) -> Result<(), StepMismatch> {
        let before = out.len();
        match (self, value) {
            (Step::Field(name), Value::Map(map)) => out.extend(map.get(name)),
            (Step::All, Value::Map(map)) => out.extend(map.iter().map(|(_, value)| value)),
            (Step::All, Value::List(items)) => out.extend(items),
            (Step::Field(_) | Step::All, _) => {}
            (Step::Below, value) => below(value, out),
            (Step::Each(steps), value) => {
                // each spends for itself
                return steps.iter().try_for_each(|step| step.take(value, out, allowance));
            }
            (Step::Index(_) | Step::Range(..), Value::Null) => {}
            (Step::Index(at), Value::List(items)) => {
                out.push(place(*at, items.len()).and_then(|at| items.get(at)).ok_or(StepMismatch)?);
            }
            (Step::Range(from, to, step), Value::List(items)) => {
                out.extend(range(items, (*from, *to))?.iter().step_by(stride(*step)?));
            }
            (Step::Where(filter), Value::List(items)) => {
                for item in items {
                    allowance.spend(1)?;
                    if filter.holds(item, allowance)? {
                        out.push(item);
                    }
                }
            }
            (Step::Index(_) | Step::Range(..) | Step::Where(_), _) => return Err(StepMismatch),
        }
        allowance.spend(out.len() - before)
    }
}

/// The items between two places, each of which may be counted from the end.
fn range(items: &[Value], (from, to): (Option<i64>, Option<i64>)) -> Result<&[Value], StepMismatch> {
    let len = items.len() as i64;
    let from = from.map_or(0, |at| if at < 0 { at.saturating_add(len) } else { at });
    let to = to.map_or(len, |at| if at < 0 { at.saturating_add(len) } else { at });
    if from == to {
        return Ok(&[]);
    }
    let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else { return Err(StepMismatch) };
    if from < items.len() { items.get(from..to).ok_or(StepMismatch) } else { Err(StepMismatch) }
}

fn stride(step: Option<i64>) -> Result<usize, StepMismatch> {
    usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(StepMismatch)
}

fn below<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    match value {
        Value::Map(map) if !map.is_empty() => {
            out.push(value);
            map.iter().for_each(|(_, value)| below(value, out));
        }
        Value::List(items) if !items.is_empty() => {
            out.push(value);
            items.iter().for_each(|value| below(value, out));
        }
        _ => {}
    }
}

/// Where an item is that may be counted from the end.
fn place(at: i64, len: usize) -> Option<usize> {
    usize::try_from(if at < 0 { at + len as i64 } else { at }).ok()
}

impl Filter {
    fn holds(&self, item: &Value, allowance: &mut Allowance) -> Result<bool, StepMismatch> {
        let Some((comparison, right)) = &self.comparison else {
            return Ok(!self.left.values(item, allowance).unwrap_or_default().is_empty());
        };
        let (left, right) = (self.left.values(item, allowance)?, right.values(item, allowance)?);
        match (&*left, &*right) {
            ([], _) | (_, []) => Ok(false),
            ([left], [right]) => comparison.holds(left, right),
            _ => Err(StepMismatch),
        }
    }
}

impl Operand {
    fn values<'v>(
        &'v self,
        item: &'v Value,
        allowance: &mut Allowance,
    ) -> Result<Vec<&'v Value>, StepMismatch> {
        match self {
            Operand::Path(path) => path.walk(item, allowance),
            Operand::Literal(value) => Ok(vec![value]),
        }
    }
}

impl Comparison {
    /// Values of different types cannot be compared; of truths none is the greater one.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, StepMismatch> {
        let equality = matches!(self, Comparison::Equal | Comparison::Different);
        let order = match (left, right) {
            (Value::String(a), Value::String(b)) => a.as_str().cmp(b.as_str()),
            (Value::Bool(a), Value::Bool(b)) if equality => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).ok_or(StepMismatch)?,
            _ => return Err(StepMismatch),
        };
        Ok(match self {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::Different => order != Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order != Ordering::Less,
        })
    }
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    nested: usize,
}

impl<'t> Reader<'t> {
    fn blanks(&mut self) {
        while self.cursor.peek().is_some_and(char::is_whitespace) {
            self.cursor.next();
        }
    }

    fn wrong(&self, why: &str) -> JsonPathError {
        JsonPathError(format!("{why} at {} of {:?}", self.cursor.at, self.cursor.text))
    }

    /// Steps, as far as they go.
    fn path(&mut self) -> Result<JsonPath, JsonPathError> {
        let mut steps = Vec::new();
        self.cursor.skip("$");
        loop {
            if self.cursor.skip("..") {
                steps.push(Step::Below);
                if self.cursor.peek() != Some('[') {
                    steps.push(self.name()?);
                }
            } else if self.cursor.skip(".") {
                // a dot alone is a field without a name
                let is_named = self.cursor.peek().is_some_and(|c| !matches!(c, '[' | ')' | ' '));
                steps.push(if is_named { self.name()? } else { Step::Field(String::new()) });
            } else if self.cursor.skip("[") {
                steps.push(self.brackets()?);
            } else {
                return Ok(JsonPath { steps });
            }
        }
    }

    fn name(&mut self) -> Result<Step, JsonPathError> {
        if self.cursor.skip("*") {
            return Ok(Step::All);
        }
        let mut name = String::new();
        while let Some(c) = self.cursor.peek() {
            match c {
                '\\' => {
                    self.cursor.next();
                    name.extend(self.cursor.next());
                }
                '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>' | ',' | ' ' => break,
                c => {
                    name.push(c);
                    self.cursor.next();
                }
            }
        }
        if name.is_empty() { Err(self.wrong("a name is missing")) } else { Ok(Step::Field(name)) }
    }

    fn brackets(&mut self) -> Result<Step, JsonPathError> {
        if self.cursor.skip("?(") {
            let filter = self.filter()?;
            return if self.cursor.skip(")]") { Ok(filter) } else { Err(self.wrong("unterminated filter")) };
        }
        let mut steps = vec![self.one()?];
        loop {
            self.blanks();
            if self.cursor.skip("]") {
                break;
            }
            if !self.cursor.skip(",") {
                return Err(self.wrong("unterminated array"));
            }
            self.blanks();
            steps.push(self.one()?);
        }
        Ok(match steps.pop() {
            Some(step) if steps.is_empty() => step,
            last => {
                steps.extend(last);
                Step::Each(steps)
            }
        })
    }

    /// One element between brackets or commas.
    fn one(&mut self) -> Result<Step, JsonPathError> {
        self.blanks();
        // all items: unlike `.*` nothing else has any
        if self.cursor.skip("*") {
            return Ok(Step::Range(None, None, None));
        }
        // keys have single quotes only, as upstream reads them
        if self.cursor.peek() == Some('\'') {
            return Ok(Step::Field(self.quoted()?));
        }
        let first = self.number()?;
        if !self.cursor.skip(":") {
            return first.map(Step::Index).ok_or_else(|| self.wrong("invalid array index"));
        }
        let to = self.number()?;
        let step = if self.cursor.skip(":") { self.number()? } else { None };
        Ok(Step::Range(first, to, step))
    }

    fn number(&mut self) -> Result<Option<i64>, JsonPathError> {
        let start = self.cursor.at;
        self.cursor.skip("-");
        while self.cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.cursor.next();
        }
        let digits = &self.cursor.text[start..self.cursor.at];
        if digits.is_empty() {
            return Ok(None);
        }
        digits.parse().map(Some).map_err(|_| self.wrong("invalid array index"))
    }

    fn quoted(&mut self) -> Result<String, JsonPathError> {
        let quote = self.cursor.next();
        let mut text = String::new();
        loop {
            match self.cursor.next() {
                None => return Err(self.wrong("unterminated quoted string")),
                Some('\\') => text.extend(self.cursor.next()),
                end if end == quote => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    fn filter(&mut self) -> Result<Step, JsonPathError> {
        self.nested += 1;
        if self.nested > MOST_NESTED {
            return Err(self.wrong("filters are nested too deeply"));
        }
        let left = self.operand()?;
        self.blanks();
        const ALL: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Different),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let comparison = match ALL.into_iter().find(|(sign, _)| self.cursor.skip(sign)) {
            Some((_, comparison)) => Some((comparison, self.operand()?)),
            None => None,
        };
        self.blanks();
        self.nested -= 1;
        Ok(Step::Where(Box::new(Filter { left, comparison })))
    }

    fn operand(&mut self) -> Result<Operand, JsonPathError> {
        self.blanks();
        match self.cursor.peek() {
            Some('@') => {
                self.cursor.next();
                Ok(Operand::Path(self.path()?))
            }
            Some('\'' | '"') => Ok(Operand::Literal(self.quoted()?.into())),
            _ => {
                let end = self
                    .cursor
                    .rest()
                    .find([')', ' ', '=', '!', '<', '>'])
                    .unwrap_or(self.cursor.rest().len());
                let word = &self.cursor.rest()[..end];
                self.cursor.at += end;
                match word {
                    "true" => Ok(Operand::Literal(true.into())),
                    "false" => Ok(Operand::Literal(false.into())),
                    _ => match (word.parse::<i64>(), word.parse::<f64>()) {
                        (Ok(whole), _) => Ok(Operand::Literal(whole.into())),
                        (_, Ok(number)) => Ok(Operand::Literal(Value::Float(number))),
                        _ => Err(self.wrong("unrecognized text in a filter")),
                    },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str =
        r#"{"a":{"b.c":1,"n":-2},"l":[{"k":"x","v":1},{"k":"y","v":2},{"k":"y","v":3}],"t":true}"#;

    fn found(path: &str) -> String {
        let data = crate::decode::json_untyped(DATA.as_bytes()).unwrap().value;
        let path = JsonPath::parse(path).unwrap();
        let texts = path.find(&data).into_iter().map(crate::encode::untyped);
        texts.map(|it| String::from_utf8(it).unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn paths_lead_to_values() {
        for (path, expected) in [
            (".t", "true"),
            (".a.b\\.c", "1"),
            (".a['b.c']", "1"),
            (".a.*", "1 -2"),
            (".l[0].k", "\"x\""),
            (".l[-1].v", "3"),
            (".l[*].v", "1 2 3"),
            (".l[1:].v", "2 3"),
            (".l[:2].v", "1 2"),
            (".l[::2].v", "1 3"),
            (".l[0,2].v", "1 3"),
            (".l[?(@.k==\"y\")].v", "2 3"),
            (".l[?(@.k == 'y')].v", "2 3"),
            (".l[?(@.v>=2)].v", "2 3"),
            (".l[?(@.v!=2)].v", "1 3"),
            (".l[?(@.none)].v", ""),
            ("..v", "1 2 3"),
            (".none.x[3]", ""),
            // fields without a name
            (".", ""),
            (".[0]", ""),
            (".a.", ""),
            (".l[9]", ""),
            (".t.x", ""),
            (".a[*]", ""),
            (".a[0]", ""),
            ("..[*].v", ""),
            (".l[1:9].v", ""),
            (".l[2:2].v", ""),
            (".l[-2:].v", "2 3"),
            (".a[?(@.v==1)]", ""),
            (".l[?(@.v==\"1\")].v", ""),
            (".l[?(@.v<1.5)].v", ""),
            (".l[?(@.k)].v", "1 2 3"),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for path in [".a[", ".a[x]", ".a[?(@.b]", ".a['b]", ".a]", ".l[99999999999999999999]", ".a..", "a"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        let deep = format!(".a{}", "[?(@.a".repeat(1000));
        assert!(JsonPath::parse(&deep).is_err());
    }

    #[test]
    fn a_path_that_multiplies_values_leads_to_nothing() {
        let met = |path: &str, data: &str| {
            let data = crate::decode::json_untyped(data.as_bytes()).unwrap().value;
            JsonPath::parse(path).unwrap().find(&data).len()
        };
        let nested = format!("{}{}", "[".repeat(22), "]".repeat(22));
        assert_eq!(met(&"[0,0]".repeat(10), &nested), 1 << 10);
        assert_eq!(met(&"[0,0]".repeat(21), &nested), 0);
        // the same values, by every division of the way to them
        let map = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        assert_eq!(met(&"..a".repeat(2), &map), 38 * 39 / 2 + 39);
        assert_eq!(met(&"..a".repeat(6), &map), 0);
    }

    #[test]
    fn a_path_lists_the_fields_that_it_reads() {
        let reads = |path: &str| JsonPath::parse(path).unwrap().reads();
        assert_eq!(reads(".spec.l[0].k").as_deref(), Some("spec.l"));
        assert_eq!(reads(".metadata.labels.a\\.b").as_deref(), Some("metadata.labels"));
        assert_eq!(reads("..x"), None);
        assert_eq!((reads("."), reads(".a.").as_deref()), (None, Some("a")));
    }
}
