//! From a checked model to Rust source.
//!
//! The source holds nothing but `static` items and constant functions, so tables cost nothing at start. Types
//! refer to one another by name, which Rust allows in any direction; lists and maps become items of their
//! own, shared by every field that has the same one.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::model::{FieldModel, KindModel, Model, ShapeModel, TypeModel};
use tables::table::{
    Column, Declarations, Flags, Group, Lifecycle, ListKind, Literal, Patch, ProtoName, Rule, Selectable,
    Subresource, Text, Union,
};
use tables::text::head;

/// Builders that keep the source short: everything borrowed, in the order of the declarations.
const PRELUDE: &str = r#"// Compiled from the schema language; not to be edited.
use std::borrow::Cow::Borrowed as B;
use schema::table::{
    Column, Declarations, Field, Flags, Format, Group, Kind, Lifecycle, ListKind, ListShape, Literal, MapShape, Patch, ProtoName, Ref,
    RetiredVersion, Rule, Scalar, Selectable, Shape, Subresource, Type, Union, Unknown,
};
type S = &'static str;
#[allow(clippy::too_many_arguments)]
const fn field(name: S, number: u16, within: &'static [u16], shape: Shape, flags: u16, default: Option<Literal>, rules: &'static [Rule], patch: Patch, named: S, doc: S) -> Field {
    Field { name: B(name), number, within: B(within), shape, flags: Flags(flags), default, rules: B(rules), patch, named: B(named), doc: B(doc) }
}
const fn group(stem: S, in_domain: bool) -> Group { Group { stem: B(stem), in_domain } }
const fn scalar(it: Scalar) -> Shape { Shape::Scalar(it) }
const fn structure(it: &'static Type) -> Shape { Shape::Struct(Ref::Static(it)) }
const fn list(it: &'static ListShape) -> Shape { Shape::List(Ref::Static(it)) }
const fn map(it: &'static MapShape) -> Shape { Shape::Map(Ref::Static(it)) }
"#;

pub(super) fn emit(model: &Model) -> String {
    let mut emitter = Emitter {
        idents: idents(model),
        declarations: declarations(model),
        granular: granulars(model),
        model,
        shared: HashMap::new(),
        items: String::new(),
    };
    let mut out = String::from(PRELUDE);
    for (at, it) in model.types.iter().enumerate() {
        emitter.type_item(at, it);
    }
    for it in &model.kinds {
        emitter.kind_item(it);
    }
    out.push_str(&emitter.items);
    let types: Vec<String> = emitter.idents.iter().map(|it| format!("&{it}")).collect();
    let _ = writeln!(out, "/// All types, sorted by package and name.");
    let _ = writeln!(out, "pub static TYPES: &[&Type] = &[{}];", types.join(","));
    let lists = [
        ("KINDS", false, "Kinds that are served as resources."),
        ("TRAVELLING", true, "Kinds that are bodies and answers but no resources."),
    ];
    for (name, travelling, doc) in lists {
        let kinds = model.kinds.iter().filter(|it| it.plural.is_empty() == travelling && !it.retired);
        let kinds: Vec<String> = kinds.map(|it| format!("&K_{}", emitter.idents[it.root])).collect();
        let _ = writeln!(out, "/// {doc}\npub static {name}: &[&Kind] = &[{}];", kinds.join(","));
    }
    out.push_str(&retired(model, &emitter.idents));
    out
}

/// The list of versions that are only read, each with the kind whose form it has.
fn retired(model: &Model, idents: &[String]) -> String {
    let mut entries = Vec::new();
    for it in &model.kinds {
        let own = it.retired.then(|| (it.group.clone(), it.version.clone().into()));
        for (group, version) in own.iter().chain(&it.retired_as) {
            let (group, ident) = (group_literal(group), &idents[it.root]);
            entries.push(format!(
                "RetiredVersion {{ group: {group}, version: B({version:?}), form: &K_{ident} }}"
            ));
        }
    }
    format!(
        "/// Versions of kinds that are read and never served.\npub static RETIRED: &[RetiredVersion] = &[{}];\n",
        entries.join(",")
    )
}

/// A name for each type's item: `api.core.v1` and `PodSpec` make `CORE_V1_POD_SPEC`.
pub(super) fn idents(model: &Model) -> Vec<String> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let name = |it: &TypeModel| {
        let plain = ["api", "apis", "pkg", "apimachinery"];
        let package: Vec<&str> = it.package.split('.').filter(|part| !plain.contains(part)).collect();
        screaming(&format!("{}_{}", package.join("_"), it.name))
    };
    let mut distinct = |base: String| {
        let count = taken.entry(base.clone()).or_default();
        *count += 1;
        if *count == 1 { base } else { format!("{base}__{count}") }
    };
    model.types.iter().map(|it| distinct(name(it))).collect()
}

/// The types that some field merges field by field although they are atomic elsewhere.
fn granulars(model: &Model) -> HashSet<usize> {
    let fields = model.types.iter().flat_map(|it| &it.fields).filter(|it| it.flags.has(Flags::GRANULAR));
    let struct_of = |it: &FieldModel| if let ShapeModel::Struct(at) = it.shape { Some(at) } else { None };
    fields.filter_map(struct_of).collect()
}

/// The name of a type's form that is not atomic.
fn granular(ident: &str) -> String {
    format!("{ident}__GRANULAR")
}

/// `TCPSocketAction` becomes `TCP_SOCKET_ACTION`: a capital begins a word after a small letter, or at the end of
/// an abbreviation, unless only a plural's `s` follows (`PodIPs` becomes `POD_IPS`).
pub(super) fn screaming(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len() + 8);
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        let begins = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || (before.is_ascii_uppercase()
                        && after.is_some_and(|after| after.is_ascii_lowercase() && *after != 's'))
            });
        if begins {
            out.push('_');
        }
        out.push(if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    }
    out
}

/// The declarations of each type's fields, here and below. Types may refer to each other in cycles, so this
/// goes on until nothing is added.
fn declarations(model: &Model) -> Vec<Declarations> {
    fn below(shape: &ShapeModel, known: &[Declarations]) -> Declarations {
        match shape {
            ShapeModel::Scalar(_) => Declarations::NOTHING,
            ShapeModel::Struct(at) => known[*at],
            ShapeModel::List(item, _) | ShapeModel::Map(item, _) => below(item, known),
        }
    }
    let mut known = vec![Declarations::NOTHING; model.types.len()];
    loop {
        let mut grew = false;
        for (at, ty) in model.types.iter().enumerate() {
            let mut all = known[at];
            for field in &ty.fields {
                all = all.and(below(&field.shape, &known));
                for (here, what) in [
                    (field.default.is_some(), Declarations::DEFAULTS),
                    (field.rules.iter().any(Rule::is_checked), Declarations::RULES),
                    (field.flags.has(Flags::IMMUTABLE), Declarations::IMMUTABLE),
                ] {
                    if here {
                        all = all.and(what);
                    }
                }
            }
            grew |= all != known[at];
            known[at] = all;
        }
        if !grew {
            return known;
        }
    }
}

struct Emitter<'a> {
    model: &'a Model,
    idents: Vec<String>,
    /// The declarations of each type, including the types below it.
    declarations: Vec<Declarations>,
    granular: HashSet<usize>,
    /// Source of a list or map → the name of its item.
    shared: HashMap<String, String>,
    items: String,
}

impl Emitter<'_> {
    fn type_item(&mut self, at: usize, it: &TypeModel) {
        let fields: Vec<String> = it.fields.iter().map(|field| self.field(field)).collect();
        let mut by_name: Vec<usize> = (0..it.fields.len()).collect();
        by_name.sort_by(|a, b| it.fields[*a].name.cmp(&it.fields[*b].name));
        let heads: Vec<String> = by_name.iter().map(|at| head(&it.fields[*at].name).to_string()).collect();
        let standing = by_name.iter().enumerate().filter(|(_, at)| it.fields[**at].stands());
        let standing: Vec<String> = standing.map(|(rank, _)| rank.to_string()).collect();
        let by_name: Vec<String> = by_name.iter().map(usize::to_string).collect();
        let declaring = (0..it.fields.len()).filter(|at| self.is_declaring(&it.fields[*at]));
        let declaring: Vec<String> = declaring.map(|at| at.to_string()).collect();
        let ident = &self.idents[at];
        let unknown = if it.open { "Keep" } else { "Report" };
        let _ = writeln!(
            self.items,
            "static {ident}_FIELDS: [Field; {}] = [\n{}];",
            fields.len(),
            fields.concat()
        );
        let mut item = |ident: &str, atomic: bool| {
            let _ = writeln!(
                self.items,
                "pub static {ident}: Type = Type {{ name: B({:?}), package: B({:?}), doc: B({:?}), \
                 fields: B(&{}_FIELDS), by_name: B(&[{}]), heads: B(&[{}]), standing: B(&[{}]), unknown: Unknown::{unknown}, \
                 atomic: {atomic}, one_of: {}, loose: false, unions: {}, proto_names: {}, declarations: Declarations({}), declaring: B(&[{}]) }};",
                it.name,
                it.package,
                it.doc,
                self.idents[at],
                by_name.join(","),
                heads.join(","),
                standing.join(","),
                it.one_of,
                many(&it.unions, union),
                many(&it.proto_names, proto_name),
                self.declarations[at].0,
                declaring.join(","),
            );
        };
        item(ident, it.atomic);
        if it.atomic && self.granular.contains(&at) {
            item(&granular(ident), false);
        }
    }

    /// Whether a field declares a default or a rule, or has one further down.
    fn is_declaring(&self, it: &FieldModel) -> bool {
        let mut shape = &it.shape;
        while let ShapeModel::List(item, _) | ShapeModel::Map(item, _) = shape {
            shape = item;
        }
        let below = match shape {
            ShapeModel::Struct(at) => self.declarations[*at],
            _ => Declarations::NOTHING,
        };
        it.default.is_some()
            || it.rules.iter().any(Rule::is_checked)
            || below.has(Declarations::DEFAULTS.and(Declarations::RULES))
    }

    fn field(&mut self, it: &FieldModel) -> String {
        let rules: Vec<String> = it.rules.iter().map(rule).collect();
        format!(
            "field({:?},{},&{:?},{},{},{},&[{}],{},{:?},{:?}),\n",
            it.name,
            it.number,
            it.within,
            self.field_shape(it),
            it.flags.0,
            default(it.default.as_ref()),
            rules.join(","),
            patch(&it.patch),
            it.named,
            it.doc,
        )
    }

    fn field_shape(&mut self, it: &FieldModel) -> String {
        match it.shape {
            ShapeModel::Struct(at) if it.flags.has(Flags::GRANULAR) && self.model.types[at].atomic => {
                format!("structure(&{})", granular(&self.idents[at]))
            }
            _ => self.shape(&it.shape),
        }
    }

    fn shape(&mut self, it: &ShapeModel) -> String {
        match it {
            ShapeModel::Scalar(scalar) => format!("scalar(Scalar::{scalar:?})"),
            ShapeModel::Struct(at) => format!("structure(&{})", self.idents[*at]),
            ShapeModel::List(item, kind) => {
                let item = self.shape(item);
                let kind = match kind {
                    ListKind::Atomic => "ListKind::Atomic".to_string(),
                    ListKind::Set => "ListKind::Set".to_string(),
                    ListKind::Map { keys } => format!("ListKind::Map {{ keys: {} }}", texts(keys)),
                };
                let item = self.share(
                    "L",
                    "ListShape",
                    format!("ListShape {{ item: {item}, kind: {kind}, default: None }}"),
                );
                format!("list(&{item})")
            }
            ShapeModel::Map(value, atomic) => {
                let value = self.shape(value);
                let item = self.share(
                    "M",
                    "MapShape",
                    format!(
                        "MapShape {{ value: {value}, atomic: {atomic}, nullable: false, open: false, default: None }}"
                    ),
                );
                format!("map(&{item})")
            }
        }
    }

    fn share(&mut self, prefix: &str, ty: &str, source: String) -> String {
        if let Some(name) = self.shared.get(&source) {
            return name.clone();
        }
        let name = format!("{prefix}{}", self.shared.len());
        let _ = writeln!(self.items, "static {name}: {ty} = {source};");
        self.shared.insert(source, name.clone());
        name
    }

    fn kind_item(&mut self, it: &KindModel) {
        let root = &self.idents[it.root];
        debug_assert_eq!(self.model.types[it.root].name, it.name);
        let _ = writeln!(
            self.items,
            "pub static K_{root}: Kind = Kind {{ name: B({:?}), plural: B({:?}), singular: B({:?}), group: {}, \
             version: B({:?}), root: Ref::Static(&{root}), namespaced: {}, short_names: {}, categories: {}, \
             verbs: {}, subresources: {}, selectable: {}, columns: {}, stored_as: {}, hashed_as: {}, store_key: B({:?}), \
             put_creates: {}, unconditional_update: {}, counts_generation: {}, expires: {}, unstored: {}, \
             selects_namespace: {}, selects_by_name: {}, on: {}, gate: B({:?}), lifecycle: {}, kind_first: true, doc: B({:?}), list: B(\"\"), declared: None }};",
            it.name,
            it.plural,
            it.singular,
            group(&it.group),
            it.version,
            it.namespaced,
            texts(&it.short_names),
            texts(&it.categories),
            texts(&it.verbs),
            many(&it.subresources, subresource),
            many(&it.selectable, selectable),
            many(&it.columns, column),
            group_version(it.stored_as.as_ref()),
            group_version(it.hashed_as.as_ref()),
            it.store_key,
            it.put_creates,
            it.unconditional_update,
            it.counts_generation,
            it.expires,
            it.unstored,
            it.selects_namespace,
            it.selects_by_name,
            it.on,
            it.gate,
            lifecycle(&it.lifecycle),
            it.doc,
        );
    }
}

fn many<T>(items: &[T], each: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(each).collect();
    format!("B(&[{}])", items.join(","))
}

fn texts(items: &[Text]) -> String {
    many(items, |it| format!("B({it:?})"))
}

fn group(it: &Group) -> String {
    format!("group({:?},{})", it.stem, it.in_domain)
}

fn group_version(it: Option<&(Group, Text)>) -> String {
    it.map_or("None".into(), |(it, version)| format!("Some(({},B({version:?})))", group_literal(it)))
}

/// Inside a borrowed sequence a call of a constant function would not outlive the statement.
fn group_literal(it: &Group) -> String {
    format!("Group {{ stem: B({:?}), in_domain: {} }}", it.stem, it.in_domain)
}

fn lifecycle(it: &Lifecycle) -> String {
    format!(
        "Lifecycle {{ introduced: B({:?}), deprecated: B({:?}), removed: B({:?}), replacement: {}, warning: B(\"\") }}",
        it.introduced,
        it.deprecated,
        it.removed,
        group_version(it.replacement.as_ref())
    )
}

fn union(it: &Union) -> String {
    let fields = many(&it.fields, |(field, name)| format!("(B({field:?}),B({name:?}))"));
    format!("Union {{ discriminator: B({:?}), fields: {fields} }}", it.discriminator)
}

fn proto_name(it: &ProtoName) -> String {
    format!("ProtoName {{ within: B(&{:?}), number: {}, name: B({:?}) }}", it.within, it.number, it.name)
}

fn subresource(it: &Subresource) -> String {
    format!(
        "Subresource {{ name: B({:?}), kind: B({:?}), group_version: {}, verbs: {} }}",
        it.name,
        it.kind,
        group_version(it.group_version.as_ref()),
        texts(&it.verbs)
    )
}

fn selectable(it: &Selectable) -> String {
    format!(
        "Selectable {{ label: B({:?}), path: B({:?}), absent: B({:?}), indexed: {} }}",
        it.label, it.path, it.absent, it.indexed
    )
}

fn column(it: &Column) -> String {
    format!(
        "Column {{ name: B({:?}), kind: B({:?}), format: B({:?}), priority: {}, path: B({:?}), doc: B({:?}) }}",
        it.name, it.kind, it.format, it.priority, it.path, it.doc
    )
}

fn default(it: Option<&Literal>) -> String {
    match it {
        None => "None".into(),
        Some(Literal::Bool(it)) => format!("Some(Literal::Bool({it}))"),
        Some(Literal::Int(it)) => format!("Some(Literal::Int({it}))"),
        Some(Literal::Text(it)) => format!("Some(Literal::Text(B({it:?})))"),
        Some(Literal::Json(it)) => format!("Some(Literal::Json(B({it:?})))"),
    }
}

fn rule(it: &Rule) -> String {
    match it {
        Rule::Enum(values) => format!("Rule::Enum({})", texts(values)),
        Rule::Values(values) => format!("Rule::Values({})", texts(values)),
        Rule::Format(format) => format!("Rule::Format(Format::{format:?})"),
        other => format!("Rule::{other:?}"),
    }
}

fn patch(it: &Patch) -> String {
    match it {
        Patch::Replace => "Patch::Replace".into(),
        Patch::RetainKeys => "Patch::RetainKeys".into(),
        Patch::Whole => "Patch::Whole".into(),
        Patch::Merge { key, retain_keys } => {
            format!("Patch::Merge {{ key: B({key:?}), retain_keys: {retain_keys} }}")
        }
    }
}
