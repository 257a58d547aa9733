//! Partial decoding: decodes some fields of an object and skips the others.
//!
//! A row of a table shows a few fields of an object that has hundreds. Wanted fields are decoded into their normal
//! form; other fields, zero values included, are absent.

use super::decoder::Decoder;
use super::error::DecodeError;
use super::mismatch::{Place, found};
use crate::path::Path;
use crate::source::{Json, Source, SyntaxError, Token};
use crate::table::{Shape, Type};
use crate::value::{Map, Value};

/// The fields to decode, as a tree of their names. A field without children is decoded whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    below: Vec<(Box<str>, Wanted)>,
}

impl Wanted {
    /// The fields at paths of the form `spec.containers.name`; a step applies to each item of a list. Without paths,
    /// all fields are decoded.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        let mut wanted = Wanted::default();
        let mut paths: Vec<&str> = paths.into_iter().collect();
        paths.sort_unstable();
        for path in paths {
            wanted.add(path);
        }
        wanted
    }

    /// Adds a path. Paths come sorted, so a whole field precedes its parts, which then change nothing.
    fn add(&mut self, path: &str) {
        let mut here = self;
        for step in path.split('.') {
            let at = match here.below.iter().position(|(name, _)| **name == *step) {
                Some(at) if here.below[at].1.is_all() => return,
                Some(at) => at,
                None => {
                    here.below.push((step.into(), Wanted::default()));
                    here.below.len() - 1
                }
            };
            here = &mut here.below[at].1;
        }
    }

    /// Whether all fields are decoded.
    pub fn is_all(&self) -> bool {
        self.below.is_empty()
    }

    fn get(&self, name: &str) -> Option<&Wanted> {
        self.below.iter().find(|(it, _)| **it == *name).map(|(_, below)| below)
    }
}

/// Decodes the wanted fields of an object from text that [`encode`](crate::encode) wrote.
pub fn canonical_parts(bytes: &[u8], ty: &Type, wanted: &Wanted) -> Result<Value, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|why| SyntaxError(why.to_string()))?;
    let mut decoder = Decoder::untyped(Json::canonical(text));
    let value = match decoder.source.value()? {
        Token::Map if wanted.is_all() => decoder.structure(ty, &Path::ROOT)?,
        Token::Map => decoder.parts(ty, wanted, &Path::ROOT)?,
        other => return Err(DecodeError::NotAnObject(found(&other))),
    };
    decoder.mismatch.map_or(Ok(value), Err)
}

impl<'a> Decoder<Json<'a>> {
    fn parts(&mut self, ty: &Type, wanted: &Wanted, path: &Path<'_>) -> Result<Value, DecodeError> {
        let mut entries = Vec::with_capacity(wanted.below.len());
        while let Some(key) = self.source.key()? {
            let Some(below) = wanted.get(&key) else {
                let token = self.source.value()?;
                self.source.skip(&token)?;
                continue;
            };
            let Some((_, field)) = ty.field(&key) else {
                self.undeclared(ty, key, path, &mut entries)?;
                continue;
            };
            let token = self.source.value()?;
            let path = path.field(&field.name);
            let value = self.part(&field.shape, token, below, &Place { owner: ty, path: &path })?;
            entries.push((field.name.clone(), value));
        }
        Ok(Value::Map(Map::from_unsorted(entries).0))
    }

    fn part(
        &mut self,
        shape: &Shape,
        token: Token<'a>,
        wanted: &Wanted,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        match (shape, token) {
            (Shape::Struct(ty), Token::Map) if !wanted.is_all() => self.parts(ty, wanted, place.path),
            (Shape::List(list), Token::List) if !wanted.is_all() => {
                let mut items = Vec::new();
                while self.source.item()? {
                    let token = self.source.value()?;
                    items.push(self.part(&list.item, token, wanted, place)?);
                }
                Ok(Value::List(items))
            }
            (shape, token) => self.shaped(shape, token, place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Field, ListKind, ListShape, Ref, Scalar};

    #[test]
    fn only_what_is_wanted_is_there() {
        let text = |name: &'static str| Field::new(name, Shape::Scalar(Scalar::String));
        let item = Shape::Struct(Ref::from(Type::new("Item", "x", vec![text("name"), text("image")])));
        let list = Shape::List(Ref::from(ListShape { item: item.clone(), kind: ListKind::Atomic }));
        let spec =
            Type::new("Spec", "x", vec![Field::new("items", list), text("node"), Field::new("one", item)]);
        let ty =
            Type::new("Thing", "x", vec![text("kind"), Field::new("spec", Shape::Struct(Ref::from(spec)))]);
        let json = br#"{"kind":"K","spec":{"items":[{"image":"i]","name":"a"},{}],"node":"n","one":{"name":"o","image":"p"}},"more":{"kind":"x"}}"#;
        let check = |paths: &[&str], expected: &str| {
            let found = canonical_parts(json, &ty, &Wanted::of(paths.iter().copied())).unwrap();
            assert_eq!(found, crate::decode::json_untyped(expected.as_bytes()).unwrap().value, "{paths:?}");
        };
        check(&["spec.items.name"], r#"{"spec":{"items":[{"name":"a"},{}]}}"#);
        check(
            &["kind", "spec.node", "spec.one"],
            r#"{"kind":"K","spec":{"node":"n","one":{"image":"p","name":"o"}}}"#,
        );
        check(&["spec.one.name", "spec.one", "nothing"], r#"{"spec":{"one":{"image":"p","name":"o"}}}"#);
        let all = canonical_parts(json, &ty, &Wanted::of([])).unwrap();
        assert_eq!(all, crate::decode::json(json, &ty).unwrap().value);
    }
}
