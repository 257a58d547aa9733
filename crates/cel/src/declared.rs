//! Declarations of values: the type that an expression sees, its maximum size, and how an object's tree is read.
//!
//! A declaration comes from a structural schema, or is built by hand. An expression cannot reach fields outside the
//! schema; they still count when objects are compared.

use crate::escape::escape;
use crate::types::Type;
use schema::Value;
use std::sync::Arc;

/// The largest request, from which the sizes of values without a limit follow.
const LARGEST_REQUEST: i64 = 3 * 1024 * 1024;

/// The declaration of a value.
#[derive(Debug, Clone)]
pub struct Declared {
    pub(crate) shape: Shape,
    pub(crate) nullable: bool,
    /// The most items, entries or bytes.
    pub(crate) largest: i64,
    /// The least bytes that a value takes in JSON.
    pub(crate) smallest: i64,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Whatever the tree says.
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    IntOrString,
    List(Arc<Declared>, ListKind),
    Map(Arc<Declared>),
    Object(Arc<Object>),
    /// Kept and not described: no expression sees it.
    Opaque,
    /// Described in a way that no expression can read.
    Unreadable,
}

/// The list type, which decides the equality and the concatenation of lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// A structure with named fields.
#[derive(Debug)]
pub struct Object {
    pub(crate) name: String,
    /// Sorted by the names in the tree.
    pub(crate) fields: Vec<Field>,
    /// Whether expressions can ask for fields at all.
    pub(crate) known: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub name: String,
    /// As expressions write it, where they can.
    pub escaped: Option<String>,
    pub declared: Declared,
}

impl Object {
    /// The field of a name in the tree.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(at)
    }

    /// The field that an expression names, if it may see it.
    pub(crate) fn visible(&self, escaped: &str) -> Option<(&Field, Type)> {
        let field = self.fields.iter().find(|field| field.escaped.as_deref() == Some(escaped))?;
        Some((field, field.declared.ty()?))
    }
}

impl Declared {
    fn new(shape: Shape, largest: i64, smallest: i64) -> Declared {
        Declared { shape, nullable: false, largest, smallest }
    }

    /// Anything at all, null as well, known only when it is there.
    pub fn any() -> Declared {
        Declared { nullable: true, ..Declared::new(Shape::Dyn, 0, 1) }
    }

    pub fn bool() -> Declared {
        Declared::new(Shape::Bool, 0, 4)
    }

    pub fn int() -> Declared {
        Declared::new(Shape::Int, 0, 1)
    }

    pub fn string() -> Declared {
        Declared::new(Shape::String, 0, 2)
    }

    pub fn list(item: Declared) -> Declared {
        Declared::new(Shape::List(Arc::new(item), ListKind::Atomic), -1, 2)
    }

    pub fn map(value: Declared) -> Declared {
        Declared::new(Shape::Map(Arc::new(value)), -1, 2)
    }

    /// A structure of this name with these fields, which expressions write as they are.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, Declared)>) -> Declared {
        let fields = fields.into_iter().map(|(name, declared)| Field {
            name: name.to_owned(),
            escaped: Some(name.to_owned()),
            declared,
        });
        let mut fields: Vec<Field> = fields.collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let object = Object { name: name.to_owned(), fields, known: true };
        Declared::new(Shape::Object(Arc::new(object)), 0, 2)
    }

    /// What a structural schema describes. `name` is what messages call the type; `resource` is set for the
    /// root of an object of the API, which always has its version, kind and names. `None` when expressions
    /// cannot see such values.
    pub fn from_schema(schema: &Value, name: &str, resource: bool) -> Option<Declared> {
        let declared = read(schema, name, resource);
        declared.ty().is_some().then_some(declared)
    }

    /// The type that expressions see; `None` when they do not see it.
    pub fn ty(&self) -> Option<Type> {
        Some(match &self.shape {
            Shape::Dyn | Shape::IntOrString => Type::Dyn,
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::List(item, _) => Type::list(item.ty()?),
            Shape::Map(value) => Type::map(Type::String, value.ty()?),
            Shape::Object(object) => Type::Object(object.clone()),
            Shape::Opaque | Shape::Unreadable => return None,
        })
    }

    /// How often a value like this can be in one request.
    pub fn most_often(&self) -> u64 {
        u64::try_from(LARGEST_REQUEST / (self.smallest + 1)).unwrap_or(u64::MAX)
    }

    /// The declaration of a part, by the step that leads to it: a field as expressions write it, `@items`,
    /// `@values` or `@keys`.
    pub(crate) fn step(&self, step: &str) -> Option<&Declared> {
        match (&self.shape, step) {
            (Shape::List(item, _), "@items" | "@values") => Some(item),
            (Shape::Map(value), "@items" | "@values") => Some(value),
            (Shape::Map(_), "@keys") => Some(&KEY),
            (Shape::Object(object), step) => Some(&object.visible(step)?.0.declared),
            _ => None,
        }
    }

    /// The declaration of the items of a list or the values of a map.
    pub fn item(&self) -> Option<&Declared> {
        self.step("@items")
    }

    /// The declaration of a field, by its name in the tree.
    pub fn field(&self, name: &str) -> Option<&Declared> {
        match &self.shape {
            Shape::Object(object) => object.field(name).map(|field| &field.declared),
            _ => None,
        }
    }
}

static KEY: Declared = Declared { shape: Shape::String, nullable: false, largest: 0, smallest: 2 };

fn flag(schema: &Value, extension: &str) -> bool {
    schema.at(&[extension]).and_then(Value::as_bool).unwrap_or(false)
}

fn limit(schema: &Value, name: &str) -> Option<i64> {
    schema.at(&[name]).and_then(Value::as_int).map(|it| it.max(0))
}

fn read(schema: &Value, name: &str, resource: bool) -> Declared {
    let mut declared = shape(schema, name, resource);
    declared.nullable = flag(schema, "nullable");
    declared
}

fn shape(schema: &Value, name: &str, resource: bool) -> Declared {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Declared::new(Shape::IntOrString, LARGEST_REQUEST - 2, 1);
    }
    match schema.text(&["type"]) {
        "array" => list(schema, name),
        "object" => match schema.at(&["additionalProperties"]) {
            Some(values @ Value::Map(_)) => {
                let resource = flag(values, EMBEDDED);
                let value = read(values, &format!("{name}.@elem"), resource);
                let estimate = (LARGEST_REQUEST - 2) / (value.smallest + 6);
                let largest = limit(schema, "maxProperties").unwrap_or(estimate);
                Declared::new(Shape::Map(Arc::new(value)), largest, 2)
            }
            _ => object(schema, name, resource),
        },
        "string" => string(schema),
        "boolean" => Declared::bool(),
        "number" => Declared::new(Shape::Double, 0, 1),
        "integer" => Declared::int(),
        _ if flag(schema, PRESERVE) => Declared::new(Shape::Opaque, 0, 0),
        _ => Declared::new(Shape::Unreadable, 0, 0),
    }
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn list(schema: &Value, name: &str) -> Declared {
    let Some(items @ Value::Map(_)) = schema.at(&["items"]) else {
        return Declared::new(Shape::Unreadable, 0, 0);
    };
    let item = read(items, &format!("{name}.@idx"), flag(items, EMBEDDED));
    let estimate = (LARGEST_REQUEST - 2) / (item.smallest + 1);
    let largest = limit(schema, "maxItems").unwrap_or(estimate);
    let kind = match schema.text(&["x-kubernetes-list-type"]) {
        "set" => ListKind::Set,
        "map" => {
            let keys = schema.items(&["x-kubernetes-list-map-keys"]).iter();
            ListKind::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    };
    Declared::new(Shape::List(Arc::new(item), kind), largest, 2)
}

fn object(schema: &Value, name: &str, resource: bool) -> Declared {
    let required = schema.items(&["required"]);
    let is_required = |name: &str| required.iter().any(|it| it.as_str() == Some(name));
    let mut smallest = 2;
    let mut fields = Vec::new();
    let mut add = |field: &str, declared: Declared, defaulted: bool| {
        if declared.ty().is_some() && is_required(field) && !defaulted {
            smallest += field.len() as i64 + declared.smallest + 4;
        }
        fields.push(Field { name: field.to_owned(), escaped: escape(field), declared });
    };
    let own = schema.at(&["properties"]).and_then(Value::as_map);
    let implied = resource && !says_what_resources_have(schema);
    for (field, property) in own.into_iter().flat_map(|it| it.iter()) {
        if implied && ["kind", "apiVersion", "metadata"].contains(&field) {
            continue;
        }
        let path = format!("{name}.{}", escape(field).unwrap_or_default());
        let defaulted = property.at(&["default"]).is_some_and(|it| !it.is_null());
        add(field, read(property, &path, flag(property, EMBEDDED)), defaulted);
    }
    if implied {
        let text = || Declared::new(Shape::String, LARGEST_REQUEST - 2, 2);
        let names = [("name", text()), ("generateName", text())];
        add("kind", text(), false);
        add("apiVersion", text(), false);
        add("metadata", Declared::object(&format!("{name}.metadata"), names), false);
    }
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    // an object without properties is not readable, unless it preserves unknown fields
    let told = resource || own.is_some() || flag(schema, EMBEDDED) || flag(schema, PRESERVE);
    let object = Object { name: name.to_owned(), fields, known: told };
    Declared::new(Shape::Object(Arc::new(object)), 0, smallest)
}

/// Whether a schema of a resource declares the fields of all resources itself.
fn says_what_resources_have(schema: &Value) -> bool {
    let is = |path: &[&str], kind: &str| schema.at(path).is_some_and(|it| it.text(&["type"]) == kind);
    is(&["properties", "kind"], "string")
        && is(&["properties", "apiVersion"], "string")
        && is(&["properties", "metadata"], "object")
        && is(&["properties", "metadata", "properties", "name"], "string")
        && is(&["properties", "metadata", "properties", "generateName"], "string")
}

fn string(schema: &Value) -> Declared {
    let whole = LARGEST_REQUEST - 2;
    match schema.text(&["format"]) {
        "byte" => Declared::new(Shape::Bytes, limit(schema, "maxLength").unwrap_or(whole), 2),
        "duration" => Declared::new(Shape::Duration, 32, 3),
        "date" => Declared::new(Shape::Date, 12, 12),
        "date-time" => Declared::new(Shape::DateTime, 32, 21),
        // lengths are in characters of up to four bytes
        _ => {
            let largest = limit(schema, "maxLength").map_or(whole, |it| it.saturating_mul(4));
            Declared::new(Shape::String, largest, 2)
        }
    }
}
