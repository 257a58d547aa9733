//! Partial decoding: decodes some fields of an object and skips the others.
//!
//! A row of a table shows a few fields of an object that has hundreds. Selected fields are decoded into their normal
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
pub struct FieldTree {
    below: Vec<(Box<str>, FieldTree)>,
}

impl FieldTree {
    /// The fields at paths of the form `spec.containers.name`; a step applies to each item of a list. Without paths,
    /// all fields are decoded.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        let mut fields = FieldTree::default();
        let mut paths: Vec<&str> = paths.into_iter().collect();
        paths.sort_unstable();
        for path in paths {
            fields.add(path);
        }
        fields
    }

    /// Adds a path. Paths come sorted, so a whole field precedes its parts, which then change nothing.
    fn add(&mut self, path: &str) {
        let mut here = self;
        for step in path.split('.') {
            let at = match here.below.iter().position(|(name, _)| **name == *step) {
                Some(at) if here.below[at].1.is_all() => return,
                Some(at) => at,
                None => {
                    here.below.push((step.into(), FieldTree::default()));
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

    fn get(&self, name: &str) -> Option<&FieldTree> {
        self.below.iter().find(|(it, _)| **it == *name).map(|(_, below)| below)
    }
}

/// Decodes the selected fields of an object from text that [`encode`](crate::encode) wrote.
pub fn canonical_parts(bytes: &[u8], ty: &Type, fields: &FieldTree) -> Result<Value, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|why| SyntaxError(why.to_string()))?;
    let mut decoder = Decoder::untyped(Json::canonical(text));
    let value = match decoder.source.value()? {
        Token::Map if fields.is_all() => decoder.structure(ty, &Path::ROOT)?,
        Token::Map => decoder.parts(ty, fields, &Path::ROOT)?,
        other => return Err(DecodeError::NotAnObject(found(&other))),
    };
    decoder.mismatch.map_or(Ok(value), Err)
}

impl<'a> Decoder<Json<'a>> {
    fn parts(&mut self, ty: &Type, fields: &FieldTree, path: &Path<'_>) -> Result<Value, DecodeError> {
        let mut entries = Vec::with_capacity(fields.below.len());
        while let Some(key) = self.source.key()? {
            let Some(below) = fields.get(&key) else {
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
        fields: &FieldTree,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        match (shape, token) {
            (Shape::Struct(ty), Token::Map) if !fields.is_all() => self.parts(ty, fields, place.path),
            (Shape::List(list), Token::List) if !fields.is_all() => {
                let mut items = Vec::new();
                while self.source.item()? {
                    let token = self.source.value()?;
                    items.push(self.part(&list.item, token, fields, place)?);
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
    fn other_fields_are_absent() {
        let text = |name: &'static str| Field::new(name, Shape::Scalar(Scalar::String));
        let item = Shape::Struct(Ref::from(Type::new("Item", "x", vec![text("name"), text("image")])));
        let list =
            Shape::List(Ref::from(ListShape { item: item.clone(), kind: ListKind::Atomic, default: None }));
        let spec =
            Type::new("Spec", "x", vec![Field::new("items", list), text("node"), Field::new("one", item)]);
        let ty =
            Type::new("Thing", "x", vec![text("kind"), Field::new("spec", Shape::Struct(Ref::from(spec)))]);
        let json = br#"{"kind":"K","spec":{"items":[{"image":"i]","name":"a"},{}],"node":"n","one":{"name":"o","image":"p"}},"more":{"kind":"x"}}"#;
        let check = |paths: &[&str], expected: &str| {
            let found = canonical_parts(json, &ty, &FieldTree::of(paths.iter().copied())).unwrap();
            assert_eq!(found, crate::decode::json_untyped(expected.as_bytes()).unwrap().value, "{paths:?}");
        };
        check(&["spec.items.name"], r#"{"spec":{"items":[{"name":"a"},{}]}}"#);
        check(
            &["kind", "spec.node", "spec.one"],
            r#"{"kind":"K","spec":{"node":"n","one":{"image":"p","name":"o"}}}"#,
        );
        check(&["spec.one.name", "spec.one", "nothing"], r#"{"spec":{"one":{"image":"p","name":"o"}}}"#);
        let all = canonical_parts(json, &ty, &FieldTree::of([])).unwrap();
        assert_eq!(all, crate::decode::json(json, &ty).unwrap().value);
    }
}
