//! Definitions: the schema of each type.

use super::{Flavour, META, Source, described, object, texts};
use crate::table::{API_VERSION_DOC, KIND_DOC, LIST_METADATA_DOC};
use crate::table::{
    Field, Flags, Group, Kind, ListKind, Literal, MapShape, Patch, Ref, Rule, Scalar, Shape, Type, Union,
};
use crate::value::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The definition that a name in a document refers to.
pub(super) enum Definition<'a> {
    Type(Ref<Type>),
    /// The root of a kind; its own definition may stand without a package.
    Kind(&'a Kind),
    List(&'a Kind),
    Scalar(Scalar),
    /// An object with untyped content only.
    Fields,
    Patch,
}

/// Definitions by name, with the kinds that they are known as.
#[derive(Default)]
pub(super) struct Definitions<'a> {
    entries: BTreeMap<String, (Definition<'a>, Vec<Value>)>,
}

impl<'a> Definitions<'a> {
    /// The wanted ones and all that they refer to, directly or not, and the extra types.
    pub(super) fn of(source: &Source<'a>, wanted: &BTreeSet<String>) -> Self {
        let mut all = Definitions::default();
        let mut waiting: Vec<Ref<Type>> = Vec::new();
        for kind in source.kinds {
            let (name, list) = (source.kind_name(kind, ""), source.kind_name(kind, "List"));
            let listed = !kind.plural.is_empty() && wanted.contains(&list);
            if listed {
                let own = source.gvk(&kind.group, &kind.version, &format!("{}List", kind.name));
                all.add(list, Definition::List(kind)).push(own);
                if let Some(ty) = (source.find_type)(META, "ListMeta") {
                    all.meet(source, &ty, &mut waiting);
                }
            }
            if listed || wanted.contains(&name) {
                all.add(name, Definition::Kind(kind));
                match kind.declared {
                    None => all.needs(source, &kind.root, &mut waiting),
                    Some(_) => {
                        if let Some(metadata) = (source.find_type)(META, "ObjectMeta") {
                            all.meet(source, &metadata, &mut waiting);
                        }
                    }
                }
            }
        }
        for ty in source.extra_types {
            all.meet(source, ty, &mut waiting);
        }
        for name in SHARED {
            if let Some(ty) = (source.find_type)(META, name)
                && wanted.contains(&source.type_name(&ty))
            {
                all.meet(source, &ty, &mut waiting);
            }
        }
        let patch = source.name(META, "Patch");
        if wanted.contains(&patch) {
            all.add(patch, Definition::Patch);
        }
        while let Some(ty) = waiting.pop() {
            all.needs(source, &ty, &mut waiting);
        }
        all.know(source);
        all
    }

    /// Says which kinds the definitions are known as.
    fn know(&mut self, source: &Source<'a>) {
        for kind in source.kinds {
            if let Some((_, known)) = self.entries.get_mut(&source.kind_name(kind, "")) {
                known.push(source.gvk(&kind.group, &kind.version, &kind.name));
            }
        }
        for name in SHARED {
            if let Some((_, known)) = self.entries.get_mut(&source.name(META, name)) {
                known.extend(shared_kinds(source, name));
                known.dedup();
            }
        }
    }

    fn add(&mut self, name: String, definition: Definition<'a>) -> &mut Vec<Value> {
        &mut self.entries.entry(name).or_insert_with(|| (definition, Vec::new())).1
    }

    /// Notes a type with a name; a new one waits to be looked into.
    fn meet(&mut self, source: &Source<'a>, ty: &Ref<Type>, waiting: &mut Vec<Ref<Type>>) -> &mut Vec<Value> {
        let name = source.type_name(ty);
        if !self.entries.contains_key(&name) {
            waiting.push(ty.clone());
        }
        self.add(name, Definition::Type(ty.clone()))
    }

    fn needs(&mut self, source: &Source<'a>, ty: &Type, waiting: &mut Vec<Ref<Type>>) {
        for field in ty.fields.iter() {
            self.needs_shape(source, &field.shape, ty.package.is_empty(), waiting);
        }
    }

    fn needs_shape(
        &mut self,
        source: &Source<'a>,
        shape: &Shape,
        inline: bool,
        waiting: &mut Vec<Ref<Type>>,
    ) {
        match shape {
            Shape::Struct(ty) if ty.package.is_empty() => self.needs(source, ty, waiting),
            Shape::Struct(ty) => {
                self.meet(source, ty, waiting);
            }
            Shape::List(list) => self.needs_shape(source, &list.item, inline, waiting),
            Shape::Map(map) => self.needs_shape(source, &map.value, inline, waiting),
            Shape::Scalar(scalar) => {
                if let (Some((package, name)), false) = (home(*scalar), inline) {
                    let definition =
                        if name == FIELDS { Definition::Fields } else { Definition::Scalar(*scalar) };
                    self.add(source.name(package, name), definition);
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &(Definition<'a>, Vec<Value>))> {
        self.entries.iter()
    }
}

/// Types of all APIs that paths speak of.
const SHARED: [&str; 7] =
    ["Status", "DeleteOptions", "WatchEvent", "APIResourceList", "APIGroup", "APIGroupList", "APIVersions"];

/// The kinds that a type of all APIs is known as: options and events once per group and version.
fn shared_kinds(source: &Source<'_>, name: &str) -> Vec<Value> {
    let core = Group { stem: "".into(), in_domain: false };
    match name {
        "Status" | "APIResourceList" | "APIGroup" | "APIGroupList" | "APIVersions" => {
            vec![source.gvk(&core, "v1", name)]
        }
        "DeleteOptions" | "WatchEvent" => {
            let mut versions: Vec<_> =
                source.kinds.iter().map(|kind| (kind.group.full(source.dialect.api_domain), kind)).collect();
            versions.sort_by(|a, b| (&a.0, &a.1.version).cmp(&(&b.0, &b.1.version)));
            versions.dedup_by(|a, b| a.0 == b.0 && a.1.version == b.1.version);
            versions.iter().map(|(_, kind)| source.gvk(&kind.group, &kind.version, name)).collect()
        }
        _ => Vec::new(),
    }
}

const FIELDS: &str = "FieldsV1";

/// Package and name of the scalars that have a definition of their own.
fn home(scalar: Scalar) -> Option<(&'static str, &'static str)> {
    match scalar {
        Scalar::Time => Some((META, "Time")),
        Scalar::MicroTime => Some((META, "MicroTime")),
        Scalar::Duration => Some((META, "Duration")),
        Scalar::Quantity => Some(("apimachinery.pkg.api.resource", "Quantity")),
        Scalar::IntOrString => Some(("apimachinery.pkg.util.intstr", "IntOrString")),
        Scalar::Any => Some(("apiextensions-apiserver.pkg.apis.apiextensions.v1", "JSON")),
        Scalar::Fields => Some((META, FIELDS)),
        Scalar::Object => Some(("apimachinery.pkg.runtime", "RawExtension")),
        Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::Bytes => None,
    }
}

/// One definition as a tree.
pub(super) fn render(
    source: &Source<'_>,
    flavour: Flavour,
    definition: &Definition<'_>,
    known_as: &[Value],
) -> Value {
    let renderer = Renderer { source, flavour };
    let mut tree = match definition {
        Definition::Type(ty) => renderer.structure(ty),
        Definition::Kind(Kind { declared: Some(declared), .. }) => {
            super::declared::render(source, flavour, (declared.0)())
        }
        Definition::Kind(kind) => {
            let mut tree = renderer.structure(&kind.root);
            if kind.root.doc.is_empty() && !kind.doc.is_empty() {
                tree.make_map().insert("description", &*kind.doc);
            }
            tree
        }
        Definition::List(kind) => renderer.list(kind),
        Definition::Scalar(scalar) => renderer.scalar_definition(*scalar),
        Definition::Fields => object([("description", "a set of fields".into()), ("type", "object".into())]),
        Definition::Patch => {
            object([("description", "changes to an object".into()), ("type", "object".into())])
        }
    };
    if !known_as.is_empty() {
        let list = Value::List(known_as.to_vec());
        tree.make_map().insert(source.extension("group-version-kind"), list);
    }
    tree
}

struct Renderer<'r> {
    source: &'r Source<'r>,
    flavour: Flavour,
}

impl Renderer<'_> {
    fn structure(&self, ty: &Type) -> Value {
        let mut tree = Map::new();
        let inline = ty.package.is_empty();
        if !ty.doc.is_empty() {
            tree.insert("description", &*ty.doc);
        }
        if ty.one_of {
            return Value::Map(tree);
        }
        tree.insert("type", "object");
        let properties: Map =
            ty.fields.iter().map(|field| (field.name.clone(), self.field(field, inline))).collect();
        if !properties.is_empty() {
            tree.insert("properties", properties);
        }
        let mut required: Vec<_> =
            ty.fields.iter().filter(|it| it.is(Flags::REQUIRED)).map(|it| &*it.name).collect();
        if !required.is_empty() {
            required.sort_unstable();
            tree.insert("required", texts(required));
        }
        if ty.atomic {
            tree.insert(self.source.extension("map-type"), "atomic");
        }
        if !ty.unions.is_empty() {
            let unions = ty.unions.iter().map(union).collect();
            tree.insert(self.source.extension("unions"), Value::List(unions));
        }
        if inline && ty.unknown == crate::table::Unknown::Keep {
            tree.insert(self.source.extension("preserve-unknown-fields"), true);
        }
        Value::Map(tree)
    }

    fn list(&self, kind: &Kind) -> Value {
        // lists of kinds that were declared while the server ran say less
        let is_declared = kind.declared.is_some();
        let item = self.flavour.reference(&self.source.kind_name(kind, ""));
        let items = match self.flavour {
            Flavour::V3 if !is_declared => {
                object([("allOf", Value::List(vec![item])), ("default", Value::map())])
            }
            _ => item,
        };
        let text = |doc: &str| object([("description", doc.into()), ("type", "string".into())]);
        let doc = format!("List of {}", kind.plural);
        let mut properties = object([
            ("apiVersion", text(API_VERSION_DOC)),
            ("kind", text(KIND_DOC)),
            ("items", object([("description", doc.into()), ("type", "array".into()), ("items", items)])),
        ]);
        if let Some(meta) = (self.source.find_type)(META, "ListMeta") {
            let mut metadata = self.flavour.reference(&self.source.type_name(&meta));
            metadata.make_map().insert("description", LIST_METADATA_DOC);
            if self.flavour == Flavour::V3 && !is_declared {
                metadata.make_map().insert("default", Value::map());
            }
            properties.make_map().insert("metadata", self.wrapped(metadata));
        }
        let mut list = object([
            ("description", format!("{0}List is a list of {0}", kind.name).into()),
            ("properties", properties),
            ("required", texts(["items"])),
        ]);
        if !is_declared {
            list.make_map().insert("type", "object");
        }
        list
    }

    fn field(&self, field: &Field, inline: bool) -> Value {
        let mut tree = self.shape(&field.shape, inline);
        let map = tree.make_map();
        self.rules(field, map, inline);
        if !field.doc.is_empty() || map.contains("enum") {
            let doc = documented(&field.doc, map.get("enum"));
            map.insert("description", doc);
        }
        if field.is(Flags::NULLABLE) {
            map.insert("nullable", true);
        }
        self.merging(field, map, inline);
        // the older form never had defaults of built-in types
        if (self.flavour == Flavour::V3 || inline)
            && let Some(default) = published_default(field, inline)
        {
            map.insert("default", default);
        }
        self.wrapped(tree)
    }

    /// In version 3 nothing may stand beside a reference.
    fn wrapped(&self, mut tree: Value) -> Value {
        if self.flavour == Flavour::V3
            && let Value::Map(map) = &mut tree
            && map.len() > 1
            && let Some(target) = map.remove("$ref")
        {
            map.insert("allOf", Value::List(vec![object([("$ref", target)])]));
        }
        tree
    }

    fn shape(&self, shape: &Shape, inline: bool) -> Value {
        match shape {
            Shape::Struct(ty) if ty.package.is_empty() => self.structure(ty),
            Shape::Struct(ty) => self.flavour.reference(&self.source.type_name(ty)),
            Shape::List(list) => object([("type", "array".into()), ("items", self.part(&list.item, inline))]),
            Shape::Map(map) => self.map(map, inline),
            Shape::Scalar(scalar) if inline => self.inline_scalar(*scalar),
            Shape::Scalar(scalar) => match home(*scalar) {
                Some((package, name)) => self.flavour.reference(&self.source.name(package, name)),
                None => plain_scalar(*scalar),
            },
        }
    }

    fn map(&self, map: &MapShape, inline: bool) -> Value {
        let mut tree =
            object([("type", "object".into()), ("additionalProperties", self.part(&map.value, inline))]);
        if map.atomic {
            tree.make_map().insert(self.source.extension("map-type"), "atomic");
        }
        tree
    }

    /// An item of a list or a value of a map.
    fn part(&self, shape: &Shape, inline: bool) -> Value {
        let mut tree = self.shape(shape, inline);
        if self.flavour == Flavour::V3
            && !inline
            && let Some(zero) = published_zero(shape)
        {
            tree.make_map().insert("default", zero);
        }
        self.wrapped(tree)
    }

    fn inline_scalar(&self, scalar: Scalar) -> Value {
        let flag = |name: &str| (Cow::Owned(self.source.extension(name)), Value::Bool(true));
        match scalar {
            Scalar::Any => Value::Map([flag("preserve-unknown-fields")].into_iter().collect()),
            Scalar::Object | Scalar::Fields => Value::Map(
                [("type".into(), "object".into()), flag("preserve-unknown-fields")].into_iter().collect(),
            ),
            Scalar::IntOrString => Value::Map([flag("int-or-string")].into_iter().collect()),
            Scalar::Time | Scalar::MicroTime => typed("string", "date-time"),
            Scalar::Duration | Scalar::Quantity => object([("type", "string".into())]),
            other => plain_scalar(other),
        }
    }

    fn scalar_definition(&self, scalar: Scalar) -> Value {
        let one_of = |types: [&str; 2]| Value::List(types.map(|it| object([("type", it.into())])).into());
        let v3 = self.flavour == Flavour::V3;
        let (doc, mut tree) = match scalar {
            Scalar::Time => ("a point in time, to the second", typed("string", "date-time")),
            Scalar::MicroTime => ("a point in time, to the microsecond", typed("string", "date-time")),
            Scalar::Duration => ("a length of time such as 1h30m", object([("type", "string".into())])),
            Scalar::Quantity if v3 => {
                ("an amount such as 500m or 2Gi", object([("oneOf", one_of(["string", "number"]))]))
            }
            Scalar::Quantity => ("an amount such as 500m or 2Gi", object([("type", "string".into())])),
            Scalar::IntOrString => {
                let form = ("format", "int-or-string".into());
                let tree = if v3 {
                    object([("oneOf", one_of(["integer", "string"])), form])
                } else {
                    object([("type", "string".into()), form])
                };
                ("a number, or text such as a name or a percentage", tree)
            }
            Scalar::Any => ("any JSON value", Value::map()),
            Scalar::Object | Scalar::Fields => {
                ("any object, kept as it is", object([("type", "object".into())]))
            }
            other => ("", plain_scalar(other)),
        };
        tree.make_map().insert("description", doc);
        tree
    }

    fn rules(&self, field: &Field, map: &mut Map, inline: bool) {
        for rule in field.rules.iter() {
            let place = match (rule, &field.shape) {
                (Rule::Enum(_) | Rule::Values(_), _) if !inline && !self.source.tells_values => continue,
                // values of a list's items are said at the items
                (Rule::Enum(values) | Rule::Values(values), Shape::List(_)) => {
                    if let Some(items) = map.get_mut("items") {
                        items.make_map().insert("enum", texts(values.iter()));
                    }
                    continue;
                }
                (Rule::Enum(values) | Rule::Values(values), _) => ("enum", texts(values.iter())),
                // built-in types publish no other constraints
                _ if !inline => continue,
                (Rule::Min(least), _) => ("minimum", (*least).into()),
                (Rule::Max(most), _) => ("maximum", (*most).into()),
                (Rule::MinLength(least), _) => ("minLength", i64::from(*least).into()),
                (Rule::MaxLength(most), _) => ("maxLength", i64::from(*most).into()),
                (Rule::MinItems(least), _) => ("minItems", i64::from(*least).into()),
                (Rule::MaxItems(most), _) => ("maxItems", i64::from(*most).into()),
                (Rule::Format(_) | Rule::NotEmpty, _) => continue,
            };
            map.insert(place.0, place.1);
        }
    }

    /// The identity of items in apply and strategic merge.
    fn merging(&self, field: &Field, map: &mut Map, inline: bool) {
        let extension = |name: &str| self.source.extension(name);
        if field.is(Flags::GRANULAR) {
            map.insert(extension("map-type"), "granular");
        }
        if field.is(Flags::ATOMIC) && matches!(field.shape, Shape::Scalar(_)) {
            map.insert(extension("list-type"), "atomic");
        }
        if let Shape::List(list) = &field.shape {
            match &list.kind {
                // extensions that follow from the patch strategy are left out
                ListKind::Atomic if !inline && !field.is(Flags::ATOMIC) => {}
                ListKind::Set | ListKind::Map { .. } if !inline && !field.is(Flags::LISTED) => {}
                ListKind::Atomic => drop(map.insert(extension("list-type"), "atomic")),
                ListKind::Set => drop(map.insert(extension("list-type"), "set")),
                ListKind::Map { keys } => {
                    map.insert(extension("list-type"), "map");
                    map.insert(extension("list-map-keys"), texts(keys.iter()));
                }
            }
        }
        let strategy = match &field.patch {
            Patch::Replace => return,
            Patch::RetainKeys => "retainKeys",
            Patch::Whole => "replace",
            Patch::Merge { key, retain_keys } => {
                if !key.is_empty() {
                    map.insert(extension("patch-merge-key"), &**key);
                }
                if *retain_keys { "merge,retainKeys" } else { "merge" }
            }
        };
        map.insert(extension("patch-strategy"), strategy);
    }
}

/// The published unions: fields of which at most one is present.
fn union(it: &Union) -> Value {
    let fields: Map = it.fields.iter().map(|(field, name)| (field.clone(), Value::from(&**name))).collect();
    object([("discriminator", (&*it.discriminator).into()), ("fields-to-discriminateBy", Value::Map(fields))])
}

/// A field's words, and the values it may have.
fn documented(doc: &str, values: Option<&Value>) -> String {
    let mut out = doc.to_owned();
    if let Some(values) = values.and_then(Value::as_list) {
        out.push_str(if out.is_empty() { "One of:" } else { "\n\nOne of:" });
        for value in values {
            out.push_str("\n - ");
            out.push_str(&crate::problem::quoted(value.as_str().unwrap_or_default()));
        }
    }
    out
}

fn typed(kind: &str, format: &str) -> Value {
    object([("type", kind.into()), ("format", format.into())])
}

fn plain_scalar(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => object([("type", "string".into())]),
        Scalar::Bool => object([("type", "boolean".into())]),
        Scalar::Int32 => typed("integer", "int32"),
        Scalar::Int64 => typed("integer", "int64"),
        Scalar::Float => typed("number", "double"),
        Scalar::Bytes => typed("string", "byte"),
        _ => described(""),
    }
}

/// The published default of a value that is never absent.
fn published_zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::Struct(_) => Some(Value::map()),
        Shape::List(_) | Shape::Map(_) => None,
        Shape::Scalar(scalar) => match scalar {
            Scalar::String => Some("".into()),
            Scalar::Bool => Some(false.into()),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float => Some(0.into()),
            Scalar::Bytes => None,
            _ => Some(Value::map()),
        },
    }
}

fn published_default(field: &Field, inline: bool) -> Option<Value> {
    if inline || field.is(Flags::PUBLISHED) {
        return field.default.as_ref().map(literal);
    }
    if field.is(Flags::NILABLE) {
        return None;
    }
    let zero = published_zero(&field.shape)?;
    let always = field.is(Flags::ALWAYS) || field.is(Flags::REQUIRED);
    (zero == Value::map() || always).then_some(zero)
}

fn literal(literal: &Literal) -> Value {
    match literal {
        Literal::Bool(truth) => (*truth).into(),
        Literal::Int(number) => (*number).into(),
        Literal::Text(text) => (&**text).into(),
        Literal::Json(text) => {
            crate::decode::json_untyped(text.as_bytes()).map_or(Value::Null, |it| it.value)
        }
    }
}
