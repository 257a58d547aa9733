//! Random objects of a table: every field has a value of its type.
//!
//! Always true: what is made follows from the seed, and is finite although types may hold themselves.

use super::*;
use schema::table::ListShape;
use schema::{Value, time};

/// Random numbers that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// How often a type may stand inside itself.
const TURNS: usize = 2;

/// Makes objects.
pub(crate) struct Maker<'d> {
    pub(crate) dice: &'d mut Dice,
    /// Leave fields out now and then, rather than fill in every one.
    pub(crate) sparse: bool,
    /// The types around, by address.
    open: Vec<*const Type>,
}

impl<'d> Maker<'d> {
    pub(crate) fn new(dice: &'d mut Dice, sparse: bool) -> Self {
        Maker { dice, sparse, open: Vec::new() }
    }

    /// An object of a kind, with its names.
    pub(crate) fn object(&mut self, kind: &Kind, domain: &str) -> Value {
        let mut made = self.structure(&kind.root);
        let group = kind.group.full(domain);
        let version =
            if group.is_empty() { kind.version.to_string() } else { format!("{group}/{}", kind.version) };
        made.set(&["apiVersion"], version);
        made.set(&["kind"], kind.name.to_string());
        made
    }

    fn structure(&mut self, ty: &Type) -> Value {
        let turns = self.open.iter().filter(|open| std::ptr::eq(**open, ty)).count();
        if turns >= TURNS {
            return Value::map();
        }
        self.open.push(ty);
        let mut made = Value::map();
        for field in ty.fields.iter() {
            // what has no number travels in no message
            let left_out = field.number == 0 || (self.sparse && self.dice.below(3) == 0);
            if !left_out {
                let value = self.shaped(&field.shape);
                made.make_map().insert(field.name.clone(), value);
            }
        }
        self.open.pop();
        made
    }

    fn shaped(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::Struct(ty) => self.structure(ty),
            Shape::Scalar(scalar) => self.scalar(*scalar),
            Shape::List(list) => self.list(list),
            Shape::Map(map) => {
                let mut made = Value::map();
                for _ in 0..self.some() {
                    let (key, value) = (self.text(), self.shaped(&map.value));
                    made.make_map().insert(key, value);
                }
                made
            }
        }
    }

    fn list(&mut self, list: &ListShape) -> Value {
        Value::List((0..self.some()).map(|_| self.shaped(&list.item)).collect())
    }

    /// One item most of the time: types nest deep enough for more to grow without end.
    fn some(&mut self) -> usize {
        if self.open.len() < 4 && self.dice.below(4) == 0 { 2 } else { 1 }
    }

    fn scalar(&mut self, scalar: Scalar) -> Value {
        let sign = if self.dice.below(4) == 0 { -1 } else { 1 };
        let number = 1 + (self.dice.next() >> (1 + self.dice.below(62))) as i64 / 2;
        match scalar {
            Scalar::String => self.text().into(),
            Scalar::Bool => true.into(),
            Scalar::Int32 => (sign * (1 + number % i64::from(i32::MAX))).into(),
            Scalar::Int64 => (sign * number).into(),
            Scalar::Float => Value::Float((sign * (number % 1_000_000)) as f64 + 0.25),
            Scalar::Bytes => self.dice.pick(&["AA==", "AAEC/w==", "c2VjcmV0", "eyJhIjoxfQ=="]).into(),
            Scalar::Time => time::format_time(number % 250_000_000_000).into(),
            Scalar::MicroTime => time::format_micro_time(number % 250_000_000_000_000_000).into(),
            Scalar::Duration => time::format_duration(sign * (number % 1_000_000_000_000_000)).into(),
            Scalar::Quantity => {
                let suffix = self.dice.pick(&["", "m", "k", "Ki", "M", "Gi", "n", "e3"]);
                format!("{}{suffix}", number % 100_000).into()
            }
            Scalar::IntOrString if sign < 0 => self.text().into(),
            Scalar::IntOrString => (number % i64::from(i32::MAX)).into(),
            // any JSON, of which an object is the most that may stand here
            _ => {
                let mut made = Value::map();
                made.make_map()
                    .insert(self.text(), Value::List(vec![Value::Null, true.into(), number.into()]));
                made.make_map().insert("x", self.text());
                made
            }
        }
    }

    /// Text that other notations have to be careful with.
    fn text(&mut self) -> String {
        const TEXTS: &[&str] = &[
            "a",
            "name",
            "yes",
            "null",
            "~",
            "1",
            "1e3",
            "0x1f",
            "1_000",
            "2001-01-01",
            "-",
            "- a",
            "a: b",
            "#",
            "a #b",
            "\"",
            "'",
            "\\",
            "\\n",
            "a\nb\n",
            "\n",
            " a",
            "a ",
            "\t",
            "{}",
            "[a]",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`",
            "é",
            "日本",
            "😀",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}a",
            "<<",
            "=",
            "...",
            "---",
            "a\r\nb",
            "",
            "a long text that has to be folded somewhere, because it does not fit into eighty columns  of a line",
            "\u{1}",
            "\u{1b}[0m",
            "0",
            "-0",
            "00",
            ".",
            ".5",
            ".inf",
            ".nan",
            "true",
            "True",
            "ON",
            "n",
            "12:30:45",
        ];
        let mut text = TEXTS[self.dice.below(TEXTS.len())].to_owned();
        // a number behind keeps keys apart and sometimes the text as it is
        if self.dice.below(2) == 0 {
            text += &self.dice.below(1000).to_string();
        }
        text
    }
}
