//! From a checked model to typed Rust structs.
//!
//! A struct holds what the API's own Go type holds: `Option` where absent and zero differ, the plain type where they
//! do not, `Box` behind an optional structure, `Vec` and `BTreeMap` for lists and maps. Each has `unknown_fields`, so
//! that an object of a newer server is written back whole. The source is one module per group and version, and
//! expects the codec of the crate that includes it in `crate::codec` and the tables in `crate::tables`.
//!
//! Types that only retired versions use are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::emit::{idents, screaming};
use super::model::{FieldModel, KindModel, Model, ShapeModel, TypeModel};
use tables::table::{Flags, Scalar};

pub(super) fn emit(model: &Model) -> String {
    let used = used_types(model);
    let kinds: BTreeMap<usize, &KindModel> = model.kinds.iter().map(|kind| (kind.root, kind)).collect();
    let emitter = Emitter { model, tables: idents(model), kinds, used };
    let mut modules: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for at in emitter.used.iter().copied() {
        let module = modules.entry(module_path(&model.types[at].package)).or_default();
        emitter.type_items(at, module);
    }
    let mut out = String::from("// Compiled from the schema language; not to be edited.\n");
    let mut open = "";
    for ((group, version), items) in &modules {
        if *group != open {
            if !open.is_empty() {
                out.push_str("}\n");
            }
            let _ = writeln!(out, "pub mod {group} {{");
            open = group;
        }
        let _ = writeln!(out, "pub mod {version} {{\nuse crate::codec::*;\n{items}}}");
    }
    out.push_str("}\n");
    out.push_str(&emitter.round_trips());
    out
}

/// The types that versions which are still served use, and those without a kind that nothing refers to.
fn used_types(model: &Model) -> BTreeSet<usize> {
    let retired: BTreeSet<&str> =
        model.kinds.iter().filter(|it| it.retired).map(|it| &*model.types[it.root].package).collect();
    let served = |package: &str| {
        model.kinds.iter().any(|kind| !kind.retired && model.types[kind.root].package == package)
    };
    let types = model.types.iter().enumerate();
    let roots = types.filter(|(_, it)| !retired.contains(&*it.package) || served(&it.package));
    let mut used: BTreeSet<usize> = BTreeSet::new();
    let mut pending: Vec<usize> = roots.map(|(at, _)| at).collect();
    while let Some(at) = pending.pop() {
        if used.insert(at) {
            pending.extend(model.types[at].fields.iter().filter_map(|field| struct_in(&field.shape)));
        }
    }
    used
}

fn struct_in(shape: &ShapeModel) -> Option<usize> {
    match shape {
        ShapeModel::Scalar(_) => None,
        ShapeModel::Struct(at) => Some(*at),
        ShapeModel::List(item, _) | ShapeModel::Map(item, _) => struct_in(item),
    }
}

/// `api.core.v1` becomes `core` and `v1`; `apimachinery.pkg.version`, which has no version, `version` and `info`.
fn module_path(package: &str) -> (&str, &str) {
    let (before, last) = package.rsplit_once('.').unwrap_or(("", package));
    let is_version = last.strip_prefix('v').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    if is_version { (before.rsplit('.').next().unwrap_or(before), last) } else { (last, "info") }
}

struct Emitter<'m> {
    model: &'m Model,
    /// Names of the types' tables.
    tables: Vec<String>,
    kinds: BTreeMap<usize, &'m KindModel>,
    used: BTreeSet<usize>,
}

impl Emitter<'_> {
    fn type_items(&self, at: usize, out: &mut String) {
        let ty = &self.model.types[at];
        if ty.one_of {
            return self.one_of_items(ty, out);
        }
        doc(&ty.doc, out);
        let _ = writeln!(out, "#[derive(Debug, Clone, Default, PartialEq)]\npub struct {} {{", ty.name);
        for field in &ty.fields {
            doc(&field.doc, out);
            let _ = writeln!(out, "pub {}: {},", ident(&field.name), self.field_type(field));
        }
        out.push_str("/// Fields that the type does not declare.\npub unknown_fields: UnknownFields,\n}\n");
        self.codec(ty, out);
        self.resource(at, ty, out);
    }

    fn codec(&self, ty: &TypeModel, out: &mut String) {
        let _ = writeln!(out, "struct_json!({});", ty.name);
        if ty.fields.is_empty() {
            out.push_str("#[allow(clippy::match_single_binding, unused_variables)]\n");
        }
        let _ = writeln!(out, "impl Struct for {} {{", ty.name);
        out.push_str("fn read_field(&mut self, name: &str, input: &mut Reader<'_>) -> ReadResult<bool> {\n");
        out.push_str("match name {\n");
        for field in &ty.fields {
            let _ = writeln!(
                out,
                "{:?} => input.read(&mut self.{}).map(|()| true),",
                field.name,
                ident(&field.name)
            );
        }
        out.push_str("_ => Ok(false),\n}\n}\n");
        out.push_str("fn write_fields(&self, out: &mut Writer) {\n");
        for field in &ty.fields {
            let method = if field.stands() { "always" } else { "field" };
            let _ = writeln!(out, "out.{method}({:?}, &self.{});", field.name, ident(&field.name));
        }
        out.push_str("}\nfn unknown_fields(&self) -> &UnknownFields { &self.unknown_fields }\n");
        out.push_str(
            "fn unknown_fields_mut(&mut self) -> &mut UnknownFields { &mut self.unknown_fields }\n}\n",
        );
    }

    /// A list of all kinds, for tests that read and write each.
    fn round_trips(&self) -> String {
        let kinds = self.used.iter().filter(|at| self.kinds.contains_key(at));
        let entries = kinds.map(|at| format!("object::tests::round_trip::<{}>(),\n", self.path(*at)));
        let entries: String = entries.collect();
        format!(
            "#[cfg(test)]\npub(crate) fn round_trips() -> Vec<object::tests::RoundTrip> {{\nvec![\n{entries}]\n}}\n"
        )
    }

    /// Objects with metadata of their own are resources.
    fn resource(&self, at: usize, ty: &TypeModel, out: &mut String) {
        let Some(kind) = self.kinds.get(&at) else { return };
        let has = |name: &str, type_name: &str| {
            let field = ty.fields.iter().find(|it| it.name == name);
            field.is_some_and(|it| self.field_type(it).ends_with(type_name))
        };
        let table = &self.tables[at];
        let _ = writeln!(
            out,
            "impl Kinded for {0} {{\nfn kind() -> &'static Kind {{ &crate::tables::K_{table} }}\n\
             fn type_meta_mut(&mut self) -> (&mut String, &mut String) {{ (&mut self.kind, &mut self.api_version) }}\n}}",
            ty.name
        );
        if !kind.plural.is_empty() && has("metadata", "meta::v1::ObjectMeta") {
            let _ = writeln!(
                out,
                "impl Resource for {} {{\nfn metadata(&self) -> &crate::meta::v1::ObjectMeta {{ &self.metadata }}\n\
                 fn metadata_mut(&mut self) -> &mut crate::meta::v1::ObjectMeta {{ &mut self.metadata }}\n}}",
                ty.name
            );
        }
    }

    /// An enum for a value of several forms; the first JSON token decides which.
    fn one_of_items(&self, ty: &TypeModel, out: &mut String) {
        doc(&ty.doc, out);
        let _ = writeln!(out, "#[derive(Debug, Clone, Default, PartialEq)]\npub enum {} {{", ty.name);
        out.push_str("/// Neither.\n#[default]\nNull,\n");
        let (mut reads, mut writes) = (String::new(), String::new());
        for field in &ty.fields {
            let (variant, token) = match field.shape {
                ShapeModel::Struct(_) | ShapeModel::Map(..) => ("Object", "Token::Map"),
                ShapeModel::List(..) => ("List", "Token::List"),
                ShapeModel::Scalar(_) => ("Bool", "Token::Bool(_)"),
            };
            doc(&field.doc, out);
            let inner = self.shape_type(&field.shape);
            let inner = if variant == "Object" { format!("Box<{inner}>") } else { inner };
            let _ = writeln!(out, "{variant}({inner}),");
            let _ = writeln!(
                reads,
                "{token} => {{ let mut value = {}::default(); value.read(token, input)?; *self = Self::{variant}(value); }}",
                inner.replacen('<', "::<", 1)
            );
            let _ = writeln!(writes, "Self::{variant}(value) => value.write(out),");
        }
        let _ = writeln!(
            out,
            "}}\nimpl Json for {} {{\n\
             fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {{\n\
             match token {{\nToken::Null => *self = Self::Null,\n{reads}\
             #[allow(unreachable_patterns)] other => return Err(ReadError::form(&other)),\n}}\nOk(())\n}}\n\
             fn write(&self, out: &mut Writer) {{\nmatch self {{\nSelf::Null => out.null(),\n{writes}}}\n}}\n\
             fn is_empty(&self) -> bool {{ matches!(self, Self::Null) }}\n}}",
            ty.name
        );
    }

    fn field_type(&self, field: &FieldModel) -> String {
        let plain = self.shape_type(&field.shape);
        let optional = field.flags.has(Flags::NILABLE);
        match &field.shape {
            // a list or map that can be nil is one that can be empty
            ShapeModel::List(..) | ShapeModel::Map(..) => plain,
            ShapeModel::Struct(_) if optional => format!("Option<Box<{plain}>>"),
            ShapeModel::Scalar(Scalar::Time | Scalar::MicroTime) => format!("Option<{plain}>"),
            ShapeModel::Scalar(Scalar::Any | Scalar::Object | Scalar::Fields) => plain,
            _ if optional => format!("Option<{plain}>"),
            _ => plain,
        }
    }

    fn path(&self, at: usize) -> String {
        let ty = &self.model.types[at];
        let (group, version) = module_path(&ty.package);
        format!("crate::{group}::{version}::{}", ty.name)
    }

    fn shape_type(&self, shape: &ShapeModel) -> String {
        match shape {
            ShapeModel::Scalar(scalar) => scalar_type(*scalar).to_owned(),
            ShapeModel::Struct(at) => self.path(*at),
            ShapeModel::List(item, _) => format!("Vec<{}>", self.shape_type(item)),
            ShapeModel::Map(value, _) => format!("BTreeMap<String, {}>", self.shape_type(value)),
        }
    }
}

fn scalar_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "String",
        Scalar::Bool => "bool",
        Scalar::Int32 => "i32",
        Scalar::Int64 => "i64",
        Scalar::Float => "f64",
        Scalar::Bytes => "ByteString",
        Scalar::Time => "Time",
        Scalar::MicroTime => "MicroTime",
        Scalar::Duration => "Duration",
        Scalar::Quantity => "Quantity",
        Scalar::IntOrString => "IntOrString",
        Scalar::Fields => "FieldsV1",
        Scalar::Any | Scalar::Object => "Value",
    }
}

fn doc(text: &str, out: &mut String) {
    if !text.is_empty() {
        let _ = writeln!(out, "#[doc = {text:?}]");
    }
}

/// The name of a field in Rust: `clusterIPs` becomes `cluster_ips`, and `type`, which is a keyword, `type_`.
fn ident(name: &str) -> String {
    let name = screaming(name.trim_start_matches('$')).to_ascii_lowercase();
    match &*name {
        "type" | "match" | "continue" | "ref" | "enum" | "static" | "const" | "default" => format!("{name}_"),
        _ => name,
    }
}
