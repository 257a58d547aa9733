//! Fills in declared defaults.

use crate::decode;
use crate::path::Path;
use crate::table::{Declarations, Flags, ListShape, Literal, MapShape, Type};
use crate::value::{Map, Value};
use crate::walk::{Visitor, declaring, walk};
use crate::zero;

/// Sets the declared default of every absent field.
pub fn apply(ty: &Type, value: &mut Value) {
    walk(ty, value, &mut Defaults);
}

struct Defaults;

impl Visitor for Defaults {
    const LOOKS_FOR: Declarations = Declarations::DEFAULTS;

    fn structure(&mut self, ty: &Type, map: &mut Map, _: &Path<'_>) {
        for field in declaring(ty) {
            let Some(literal) = &field.default else { continue };
            let absent = match map.get(&field.name) {
                None => true,
                Some(Value::Null) => !field.is(Flags::NULLABLE),
                Some(value) => !field.is(Flags::NILABLE) && zero::is_zero(value),
            };
            if absent {
                map.insert(field.name.clone(), value(literal));
            }
        }
    }

    fn items(&mut self, list: &ListShape, items: &mut [Value]) {
        fill(&list.default, items.iter_mut());
    }

    fn entries(&mut self, map: &MapShape, entries: &mut Map) {
        fill(&map.default, entries.iter_mut().map(|(_, value)| value));
    }
}

fn fill<'v>(default: &Option<Literal>, values: impl Iterator<Item = &'v mut Value>) {
    let Some(literal) = default else { return };
    for empty in values.filter(|it| it.is_null()) {
        *empty = value(literal);
    }
}

/// The value that a literal stands for.
pub fn value(literal: &Literal) -> Value {
    match literal {
        Literal::Bool(truth) => (*truth).into(),
        Literal::Int(number) => (*number).into(),
        Literal::Text(text) => (&**text).into(),
        Literal::Json(text) => {
            decode::json_untyped(text.as_bytes()).map(|decoded| decoded.value).unwrap_or_default()
        }
    }
}
