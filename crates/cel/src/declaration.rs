//! Declarations of values: the type that an expression sees, its maximum size, and how an object's tree is read.
//!
//! A declaration comes from a structural schema, or is built by hand. An expression cannot reach fields outside the
//! schema; they still count when objects are compared.

use crate::escape::escape;
use schema::Value;
use std::sync::Arc;

/// The largest request, from which the sizes of values without a limit follow.
const LARGEST_REQUEST: i64 = 3 * 1024 * 1024;

/// The declaration of a value.
#[derive(Debug, Clone)]
pub struct Declaration {
    pub(crate) shape: Shape,
    pub(crate) nullable: bool,
    /// The most items, entries or bytes.
    pub(crate) largest: i64,
    /// The least bytes that a value takes in JSON.
    pub(crate) smallest: i64,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Any type; the tree decides.
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
    List(Arc<Declaration>, ListKind),
    Map(Arc<Declaration>),
    Object(Arc<Object>),
    /// Preserved but not described: expressions do not see it.
    Opaque,
    /// Described in a form that expressions cannot read.
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
    /// Whether expressions can read fields of the object.
    pub(crate) known: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub name: String,
    /// The name in expressions; `None` if they cannot write it.
    pub escaped: Option<String>,
    pub declaration: Declaration,
}

impl Object {
    /// The field of a name in the tree.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(at)
    }

    /// The field of a name in an expression, if expressions see it.
    pub(crate) fn visible(&self, escaped: &str) -> Option<&Field> {
        let field = self.fields.iter().find(|field| field.escaped.as_deref() == Some(escaped))?;
        field.declaration.is_visible().then_some(field)
    }
}

impl Declaration {
    fn new(shape: Shape, largest: i64, smallest: i64) -> Declaration {
        Declaration { shape, nullable: false, largest, smallest }
    }

    /// Any value, including null; its type is known only at evaluation.
    pub fn any() -> Declaration {
        Declaration { nullable: true, ..Declaration::new(Shape::Dyn, 0, 1) }
    }

    pub fn bool() -> Declaration {
        Declaration::new(Shape::Bool, 0, 4)
    }

    pub fn int() -> Declaration {
        Declaration::new(Shape::Int, 0, 1)
    }

    pub fn string() -> Declaration {
        Declaration::new(Shape::String, 0, 2)
    }

    pub fn list(item: Declaration) -> Declaration {
        Declaration::new(Shape::List(Arc::new(item), ListKind::Atomic), -1, 2)
    }

    pub fn map(value: Declaration) -> Declaration {
        Declaration::new(Shape::Map(Arc::new(value)), -1, 2)
    }

    /// A structure of this name with these fields, whose names need no escaping.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, Declaration)>) -> Declaration {
        let fields = fields.into_iter().map(|(name, declaration)| Field {
            name: name.to_owned(),
            escaped: Some(name.to_owned()),
            declaration,
        });
        let mut fields: Vec<Field> = fields.collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let object = Object { name: name.to_owned(), fields, known: true };
        Declaration::new(Shape::Object(Arc::new(object)), 0, 2)
    }

    /// The declaration of a structural schema. Messages use `name` for the type; `resource` is set for the root of an
    /// API object, which always has its version, kind and names. `None` if expressions do not see such values.
    pub fn from_schema(schema: &Value, name: &str, resource: bool) -> Option<Declaration> {
        let declaration = read(schema, name, resource);
        declaration.is_visible().then_some(declaration)
    }

    /// Whether expressions see such values.
    pub fn is_visible(&self) -> bool {
        match &self.shape {
            Shape::List(part, _) | Shape::Map(part) => part.is_visible(),
            Shape::Opaque | Shape::Unreadable => false,
            _ => true,
        }
    }

    /// The most occurrences of such a value in one request.
    pub fn most_often(&self) -> u64 {
        u64::try_from(LARGEST_REQUEST / (self.smallest + 1)).unwrap_or(u64::MAX)
    }

    /// The declaration of a part, by its path step: a field as expressions write it, `@items`,
    /// `@values` or `@keys`.
    pub(crate) fn step(&self, step: &str) -> Option<&Declaration> {
        match (&self.shape, step) {
            (Shape::List(item, _), "@items" | "@values") => Some(item),
            (Shape::Map(value), "@items" | "@values") => Some(value),
            (Shape::Map(_), "@keys") => Some(&KEY),
            (Shape::Object(object), step) => Some(&object.visible(step)?.declaration),
            _ => None,
        }
    }

    /// The declaration of the items of a list or the values of a map.
    pub fn item(&self) -> Option<&Declaration> {
        self.step("@items")
    }

    /// The declaration of a field, by its name in the tree.
    pub fn field(&self, name: &str) -> Option<&Declaration> {
        match &self.shape {
            Shape::Object(object) => object.field(name).map(|field| &field.declaration),
            _ => None,
        }
    }
}

static KEY: Declaration = Declaration { shape: Shape::String, nullable: false, largest: 0, smallest: 2 };

fn flag(schema: &Value, extension: &str) -> bool {
    schema.at(&[extension]).and_then(Value::as_bool).unwrap_or(false)
}

fn limit(schema: &Value, name: &str) -> Option<i64> {
    schema.at(&[name]).and_then(Value::as_int).map(|it| it.max(0))
}

fn read(schema: &Value, name: &str, resource: bool) -> Declaration {
    let mut declaration = shape(schema, name, resource);
    declaration.nullable = flag(schema, "nullable");
    declaration
}

fn shape(schema: &Value, name: &str, resource: bool) -> Declaration {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Declaration::new(Shape::IntOrString, LARGEST_REQUEST - 2, 1);
    }
    match schema.text(&["type"]) {
        "array" => list(schema, name),
        "object" => match schema.at(&["additionalProperties"]) {
            Some(values @ Value::Map(_)) => {
                let resource = flag(values, EMBEDDED);
                let value = read(values, &format!("{name}.@elem"), resource);
                let estimate = (LARGEST_REQUEST - 2) / (value.smallest + 6);
                let largest = limit(schema, "maxProperties").unwrap_or(estimate);
                Declaration::new(Shape::Map(Arc::new(value)), largest, 2)
            }
            _ => object(schema, name, resource),
        },
        "string" => string(schema),
        "boolean" => Declaration::bool(),
        "number" => Declaration::new(Shape::Double, 0, 1),
        "integer" => Declaration::int(),
        _ if flag(schema, PRESERVE) => Declaration::new(Shape::Opaque, 0, 0),
        _ => Declaration::new(Shape::Unreadable, 0, 0),
    }
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn list(schema: &Value, name: &str) -> Declaration {
    let Some(items @ Value::Map(_)) = schema.at(&["items"]) else {
        return Declaration::new(Shape::Unreadable, 0, 0);
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
    Declaration::new(Shape::List(Arc::new(item), kind), largest, 2)
}

fn object(schema: &Value, name: &str, resource: bool) -> Declaration {
    let required = schema.items(&["required"]);
    let is_required = |name: &str| required.iter().any(|it| it.as_str() == Some(name));
    let mut smallest = 2;
    let mut fields = Vec::new();
    let mut add = |field: &str, declaration: Declaration, defaulted: bool| {
        if declaration.is_visible() && is_required(field) && !defaulted {
            smallest += field.len() as i64 + declaration.smallest + 4;
        }
        fields.push(Field { name: field.to_owned(), escaped: escape(field), declaration });
    };
    let own = schema.at(&["properties"]).and_then(Value::as_map);
    let implied = resource && !declares_resource_fields(schema);
    for (field, property) in own.into_iter().flat_map(|it| it.iter()) {
        if implied && ["kind", "apiVersion", "metadata"].contains(&field) {
            continue;
        }
        let path = format!("{name}.{}", escape(field).unwrap_or_default());
        let defaulted = property.at(&["default"]).is_some_and(|it| !it.is_null());
        add(field, read(property, &path, flag(property, EMBEDDED)), defaulted);
    }
    if implied {
        let text = || Declaration::new(Shape::String, LARGEST_REQUEST - 2, 2);
        let names = [("name", text()), ("generateName", text())];
        add("kind", text(), false);
        add("apiVersion", text(), false);
        add("metadata", Declaration::object(&format!("{name}.metadata"), names), false);
    }
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    // an object without properties is not readable, unless it preserves unknown fields
    let known = resource || own.is_some() || flag(schema, EMBEDDED) || flag(schema, PRESERVE);
    let object = Object { name: name.to_owned(), fields, known };
    Declaration::new(Shape::Object(Arc::new(object)), 0, smallest)
}

/// Whether a schema of a resource declares the fields of all resources itself.
fn declares_resource_fields(schema: &Value) -> bool {
    let is = |path: &[&str], kind: &str| schema.at(path).is_some_and(|it| it.text(&["type"]) == kind);
    is(&["properties", "kind"], "string")
        && is(&["properties", "apiVersion"], "string")
        && is(&["properties", "metadata"], "object")
        && is(&["properties", "metadata", "properties", "name"], "string")
        && is(&["properties", "metadata", "properties", "generateName"], "string")
}

fn string(schema: &Value) -> Declaration {
    let whole = LARGEST_REQUEST - 2;
    match schema.text(&["format"]) {
        "byte" => Declaration::new(Shape::Bytes, limit(schema, "maxLength").unwrap_or(whole), 2),
        "duration" => Declaration::new(Shape::Duration, 32, 3),
        "date" => Declaration::new(Shape::Date, 12, 12),
        "date-time" => Declaration::new(Shape::DateTime, 32, 21),
        // lengths are in characters of up to four bytes
        _ => {
            let largest = limit(schema, "maxLength").map_or(whole, |it| it.saturating_mul(4));
            Declaration::new(Shape::String, largest, 2)
        }
    }
}
