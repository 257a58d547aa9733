//! The table of a custom kind, built from its schema.
//!
//! The table is loose: it prunes, sets defaults and merges lists, but the [schema](super::compiled) validates values
//! afterwards, with the API's error texts. Equal parts are shared: schemas repeat a lot, within one version and between
//! versions.

use super::compiled::list_kind;
use super::schema_parts::{additional, items};
use crate::{read, tables};
use schema::table::{
    Field, Flags, ListKind, ListShape, Literal, MapShape, Ref, Scalar, Shape, Text, Type, Unknown,
};
use schema::{Value, encode};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

pub(super) const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The type of the objects of a version.
pub(super) fn root(kind: &str, schema: &Value) -> Type {
    let mut maker = ShapeInterner::default();
    let mut fields = own_fields(Shape::Struct(Ref::Static(&tables::META_V1_OBJECT_META)), Flags::NONE);
    fields.extend(maker.fields(schema));
    let unknown = unknown(schema);
    Type { unknown, loose: true, ..Type::new(kind.to_owned(), "", fields) }
}

/// The type of stored objects of any version: metadata is typed, everything else untyped.
pub(super) fn stored(kind: &str) -> Type {
    let fields = own_fields(Shape::Struct(Ref::Static(&tables::META_V1_OBJECT_META)), Flags::NONE);
    Type { unknown: Unknown::Keep, loose: true, ..Type::new(kind.to_owned(), "", fields) }
}

/// The fields that every object of the API has.
fn own_fields(metadata: Shape, flags: Flags) -> Vec<Field> {
    let flags = flags.and(Flags::NILABLE);
    let text = |name: &'static str| Field { flags, ..Field::new(name, Shape::Scalar(Scalar::String)) };
    vec![text("apiVersion"), text("kind"), Field::new("metadata", metadata)]
}

/// Metadata of an object that is a part of another: the server fills nothing in.
static PART_METADATA: LazyLock<Type> =
    LazyLock::new(|| Type { standing: Cow::Borrowed(&[]), ..tables::META_V1_OBJECT_META.clone() });

fn unknown(schema: &Value) -> Unknown {
    let open = schema.at(&["additionalProperties"]) == Some(&Value::Bool(true));
    if open || read::flag(schema, &[PRESERVE]) { Unknown::Keep } else { Unknown::Report }
}

/// Makes shapes, each once.
#[derive(Default)]
struct ShapeInterner {
    /// By their content.
    known: HashMap<String, (Shape, usize)>,
}

impl ShapeInterner {
    /// The shape made by `make`, unless one that consists of the same is there already.
    fn share(&mut self, key: String, make: impl FnOnce() -> Shape) -> (Shape, usize) {
        let next = self.known.len();
        self.known.entry(key).or_insert_with(|| (make(), next)).clone()
    }

    fn fields(&mut self, schema: &Value) -> Vec<Field> {
        let properties = read::map(schema, &["properties"]).iter();
        let properties: Vec<_> = properties.filter(|(name, _)| !META.contains(name)).collect();
        properties.into_iter().map(|(name, it)| self.field(name, it).0).collect()
    }

    /// A field and its identity.
    fn field(&mut self, name: &str, schema: &Value) -> (Field, String) {
        let (shape, id) = self.shape(schema);
        let nullable = read::flag(schema, &["nullable"]);
        let flags = if nullable { Flags::NILABLE.and(Flags::NULLABLE) } else { Flags::NILABLE };
        let default = default_of(schema);
        let key = format!("{name:?}:{id}:{nullable}:{default:?},");
        (Field { flags, default, ..Field::new(name.to_owned(), shape) }, key)
    }

    /// The shape of a value, and its number.
    fn shape(&mut self, schema: &Value) -> (Shape, usize) {
        match schema.text(&["type"]) {
            "object" => self.object(schema),
            // for an apply, properties alone make an object
            "" if !read::map(schema, &["properties"]).is_empty() => self.object(schema),
            "" if read::flag(schema, &[INT_OR_STRING]) => self.scalar(Scalar::IntOrString),
            "array" => {
                let (item, id) = match items(schema) {
                    Some(item) => self.shape(item),
                    None => self.scalar(Scalar::Any),
                };
                let kind = list_kind(schema).unwrap_or(ListKind::Atomic);
                let default = items(schema).and_then(default_of_null);
                let key = format!("list {id} {kind:?} {default:?}");
                self.share(key, || Shape::List(ListShape { item, kind, default }.into()))
            }
            "string" => self.scalar(Scalar::String),
            "integer" => self.scalar(Scalar::Int64),
            "number" => self.scalar(Scalar::Float),
            "boolean" => self.scalar(Scalar::Bool),
            _ => self.scalar(Scalar::Any),
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> (Shape, usize) {
        self.share(format!("{scalar:?}"), || Shape::Scalar(scalar))
    }

    fn object(&mut self, schema: &Value) -> (Shape, usize) {
        let atomic = schema.text(&["x-kubernetes-map-type"]) == "atomic";
        let named = !read::map(schema, &["properties"]).is_empty();
        let embedded = read::flag(schema, &[EMBEDDED]);
        let more = schema.at(&["additionalProperties"]).filter(|it| **it != Value::Bool(false));
        if let (Some(more), false, false) = (more, named, embedded) {
            let nullable = *more == Value::Bool(true) || read::flag(more, &["nullable"]);
            // values without a schema may have any type: objects among them lose all fields, like an object in the
            // place of a scalar
            let (value, id) = match additional(schema) {
                Some(more) => self.shape(more),
                None => self.scalar(Scalar::IntOrString),
            };
            let open = read::flag(schema, &[PRESERVE]);
            let default = additional(schema).and_then(default_of_null);
            let key = format!("map {id} {atomic} {nullable} {open} {default:?}");
            return self
                .share(key, || Shape::Map(MapShape { value, atomic, nullable, open, default }.into()));
        }
        let mut key = format!("struct {embedded} {atomic} {:?} ", unknown(schema));
        let mut fields = Vec::new();
        if embedded {
            fields = embedded_fields(schema);
            fields.iter().for_each(|field| key.push_str(&format!("{} ", field.is(Flags::NULLABLE))));
        }
        for (name, property) in read::map(schema, &["properties"]).iter() {
            if embedded && META.contains(&name) {
                continue;
            }
            let (field, part) = self.field(name, property);
            fields.push(field);
            key.push_str(&part);
        }
        let unknown = unknown(schema);
        self.share(key, || {
            let ty = Type::new("", "", fields);
            Shape::Struct(Type { unknown, atomic, loose: true, ..ty }.into())
        })
    }
}

/// The fields that every embedded object has. Null is dropped only if the schema declares the field without it.
fn embedded_fields(schema: &Value) -> Vec<Field> {
    let mut fields = own_fields(Shape::Struct(part_metadata()), Flags::TEXT);
    // absent metadata is not checked
    if let Some(metadata) = fields.last_mut() {
        metadata.flags = Flags::NILABLE;
    }
    for field in &mut fields {
        let declared = schema.at(&["properties", &field.name]);
        if declared.is_none_or(|it| read::flag(it, &["nullable"])) {
            field.flags = field.flags.and(Flags::NULLABLE);
        }
    }
    fields
}

fn part_metadata() -> Ref<Type> {
    Ref::Static(&PART_METADATA)
}

fn default_of(schema: &Value) -> Option<Literal> {
    schema.at(&["default"]).filter(|it| !it.is_null()).map(literal)
}

/// The value that replaces `null` among the items of a list or the entries of a map.
fn default_of_null(schema: &Value) -> Option<Literal> {
    default_of(schema).filter(|_| !read::flag(schema, &["nullable"]))
}

fn literal(value: &Value) -> Literal {
    match value {
        Value::Bool(truth) => Literal::Bool(*truth),
        Value::Int(number) => Literal::Int(*number),
        Value::String(text) => Literal::Text(Text::Owned(text.as_str().to_owned())),
        other => Literal::Json(String::from_utf8_lossy(&encode::untyped(other)).into_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;
    use schema::{decode, defaults};

    /// The decoded object, without its strict errors.
    fn kept(schema: &str, object: &str) -> (String, Vec<String>) {
        let ty = root("Thing", &json(schema));
        let decoded = decode::json(object.as_bytes(), &ty).unwrap();
        let mut value = decoded.value;
        defaults::apply(&ty, &mut value);
        value.unset(&["metadata"]);
        let text = String::from_utf8(encode::untyped(&value)).unwrap();
        (text, decoded.strict_errors.iter().map(ToString::to_string).collect())
    }

    fn check(schema: &str, object: &str, expected: &str) {
        assert_eq!(kept(schema, object).0, expected, "{object}");
    }

    #[test]
    fn unknown_fields_are_pruned() {
        let schema = r#"{"type":"object","properties":{"s":{"type":"string"},"o":{"type":"object","properties":{"x":
            {"type":"integer"}}},"m":{"type":"object","additionalProperties":{"type":"integer"}},"any":
            {"x-kubernetes-preserve-unknown-fields":true},"p":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
            "properties":{"known":{"type":"object"}}},"n":{"type":"string","nullable":true}}}"#;
        check(schema, r#"{"s":"","o":{},"m":{}}"#, r#"{"m":{},"o":{},"s":""}"#);
        check(schema, r#"{"s":5,"o":[1],"m":"x"}"#, r#"{"m":"x","o":[1],"s":5}"#);
        check(schema, r#"{"s":null,"o":null,"m":{"a":null},"n":null}"#, r#"{"m":{},"n":null}"#);
        check(schema, r#"{"any":[1,null,{"a":null}]}"#, r#"{"any":[1,null,{"a":null}]}"#);
        check(schema, r#"{"p":{"a":{"b":1},"known":{"c":1}}}"#, r#"{"p":{"a":{"b":1},"known":{}}}"#);
        // a value of another type is kept without the fields of its objects
        check(schema, r#"{"o":[{"x":1},2],"m":[[{"a":1}]]}"#, r#"{"m":[[{}]],"o":[{},2]}"#);
        let merely = r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":true}}}"#;
        check(
            merely,
            r#"{"m":{"a":null,"b":[{"c":1},2],"d":{"e":1}}}"#,
            r#"{"m":{"a":null,"b":[{},2],"d":{}}}"#,
        );
        let (text, strict_errors) = kept(schema, r#"{"o":{"x":1,"y":2},"z":1}"#);
        assert_eq!(text, r#"{"o":{"x":1}}"#);
        assert_eq!(strict_errors, [r#"unknown field "o.y""#, r#"unknown field "z""#]);
    }

    #[test]
    fn defaults_replace_absent_and_invalid_null_values() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string","default":"A"},"n":{"type":"string",
            "nullable":true,"default":"N"},"o":{"type":"object","default":{},"properties":{"x":{"type":"number",
            "default":1.5}}},"l":{"type":"array","items":{"type":"object","properties":{"k":{"type":"boolean",
            "default":true}}}}}}"#;
        check(schema, "{}", r#"{"a":"A","n":"N","o":{"x":1.5}}"#);
        check(
            schema,
            r#"{"a":null,"n":null,"o":null,"l":[{},{"k":false}]}"#,
            r#"{"a":"A","l":[{"k":true},{"k":false}],"n":null,"o":{"x":1.5}}"#,
        );
        check(schema, r#"{"a":"","o":{"x":0}}"#, r#"{"a":"","n":"N","o":{"x":0}}"#);
    }

    #[test]
    fn equal_shapes_are_shared() {
        let part = r#"{"type":"object","properties":{"x":{"type":"string"}}}"#;
        let ty = root("T", &json(&format!(r#"{{"type":"object","properties":{{"a":{part},"b":{part}}}}}"#)));
        let part = |name: &str| match &ty.field(name).unwrap().1.shape {
            Shape::Struct(part) => std::ptr::from_ref(&**part),
            _ => panic!("a structure"),
        };
        assert_eq!(part("a"), part("b"));
    }

    #[test]
    fn embedded_objects_have_metadata() {
        let schema = r#"{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,
            "x-kubernetes-preserve-unknown-fields":true}}}"#;
        let object =
            r#"{"e":{"apiVersion":"v1","kind":"P","metadata":{"name":"x","bogus":1},"spec":{"a":1}}}"#;
        let (text, strict_errors) = kept(schema, object);
        assert_eq!(text, r#"{"e":{"apiVersion":"v1","kind":"P","metadata":{"name":"x"},"spec":{"a":1}}}"#);
        assert_eq!(strict_errors, [r#"unknown field "e.metadata.bogus""#]);
        let ty = root("Thing", &json(schema));
        let refused = |object: &str| decode::json(object.as_bytes(), &ty).unwrap_err().to_string();
        assert_eq!(refused(r#"{"e":{"apiVersion":5}}"#), "e.apiVersion: Invalid value: 5: must be a string");
        assert_eq!(refused(r#"{"e":{"kind":null}}"#), r#"e.kind: Invalid value: "null": must be a string"#);
        assert_eq!(
            refused(r#"{"metadata":2.0}"#),
            "json: cannot unmarshal number into Go value of type v1.ObjectMeta"
        );
        assert_eq!(
            refused(r#"{"e":{"metadata":"x"}}"#),
            "e.metadata: Invalid value: \"x\": json: cannot unmarshal string into Go value of type v1.ObjectMeta"
        );
    }
}
