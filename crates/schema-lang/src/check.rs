//! The checker: builds the model from the declarations of all files.
//!
//! It checks all files together and reports every problem, not just the first. The model of a set of files with
//! problems is incomplete and must not be used.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::attributes::{check_keys, finish_shape, literal, resolve_path, rule_fits};
use super::model::{FieldModel, KindModel, Model, ShapeModel, TypeModel};
use super::problem::Problem;
use super::syntax::{FieldDecl, File, KindDecl, Member, TypeDecl, TypeExpr, TypeName, text};
use tables::table::{
    API_VERSION_DOC, Flags, Group, KIND_DOC, ListKind, Patch, ProtoName, Scalar, Subresource, Union,
};

/// Builds the model, and reports problems.
pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) -> Model {
    let mut checker = Checker { files, order: Vec::new(), index: HashMap::new(), problems };
    checker.collect();
    let fields = checker.resolve_fields();
    let types = checker.assemble(fields);
    checker.check_references(&types);
    let kinds = checker.kinds(&types);
    Model { types, kinds }
}

/// The declaration of a type, with its file.
#[derive(Clone, Copy)]
struct Declaration<'a> {
    file: &'a File,
    decl: &'a TypeDecl,
}

/// A member of a type: a field of its own, or the fields of another type.
enum Part {
    Field(Box<FieldModel>),
    Inline { line: u32, number: u16, from: usize },
}

struct Checker<'a, 'p> {
    files: &'a [File],
    order: Vec<Declaration<'a>>,
    index: HashMap<(&'a str, &'a str), usize>,
    problems: &'p mut Vec<Problem>,
}

impl<'a> Checker<'a, '_> {
    fn report(&mut self, file: &File, line: u32, message: String) {
        self.problems.push(Problem { file: file.name.clone(), line, message });
    }

    /// Orders all types and makes them findable.
    fn collect(&mut self) {
        let files = self.files;
        let declared =
            files.iter().flat_map(|file| file.types.iter().map(move |decl| Declaration { file, decl }));
        let mut named: BTreeMap<(&str, &str), Declaration<'a>> = BTreeMap::new();
        for it in declared {
            let key = (it.file.package.as_str(), it.decl.name.as_str());
            if named.insert(key, it).is_some() {
                self.report(it.file, it.decl.line, format!("`{}` is declared twice", it.decl.name));
            }
        }
        let packages: HashSet<&str> = files.iter().map(|it| it.package.as_str()).collect();
        for file in files {
            for import in file.imports.iter().filter(|it| !packages.contains(it.package.as_str())) {
                self.report(file, import.line, format!("there is no package `{}`", import.package));
            }
        }
        for (at, (key, it)) in named.into_iter().enumerate() {
            self.index.insert(key, at);
            self.order.push(it);
        }
    }

    fn find(&mut self, file: &'a File, line: u32, name: &TypeName) -> Option<usize> {
        let package = match &name.alias {
            None => file.package.as_str(),
            Some(alias) => match file.imports.iter().find(|it| it.alias == *alias) {
                Some(import) => import.package.as_str(),
                None => {
                    self.report(file, line, format!("`{alias}` is not imported"));
                    return None;
                }
            },
        };
        let position = self.index.get(&(package, name.name.as_str())).copied();
        if position.is_none() {
            self.report(file, line, format!("there is no type `{}` in `{package}`", name.name));
        }
        position
    }

    /// The members of every type with their names resolved, inlined types not yet taken over.
    fn resolve_fields(&mut self) -> Vec<Vec<Part>> {
        let order = self.order.clone();
        order.iter().map(|it| self.parts(*it)).collect()
    }

    fn parts(&mut self, it: Declaration<'a>) -> Vec<Part> {
        let mut parts = Vec::new();
        if it.decl.kind.is_some() {
            parts.push(Part::Field(Box::new(type_meta("kind", KIND_DOC))));
            parts.push(Part::Field(Box::new(type_meta("apiVersion", API_VERSION_DOC))));
        }
        for member in &it.decl.members {
            match member {
                Member::Field(field) => {
                    parts.extend(self.field(it.file, field).map(Box::new).map(Part::Field))
                }
                Member::Inline { line, number, ty } => {
                    let from = self.find(it.file, *line, ty);
                    parts.extend(from.map(|from| Part::Inline { line: *line, number: *number, from }));
                }
            }
        }
        parts
    }

    fn field(&mut self, file: &'a File, field: &FieldDecl) -> Option<FieldModel> {
        let mut shape = self.shape(file, field.line, &field.ty)?;
        if let Err(message) = finish_shape(&mut shape, field) {
            self.report(file, field.line, message);
        }
        let default = match field.default.as_deref().map(|it| literal(it, &shape)) {
            Some(Err(message)) => {
                self.report(file, field.line, message);
                None
            }
            Some(Ok(literal)) => Some(literal),
            None => None,
        };
        if default.is_none() && field.flags.has(Flags::PUBLISHED) && field.default.is_none() {
            self.report(file, field.line, "`published` without a default".into());
        }
        for rule in &field.rules {
            if !rule_fits(rule, &shape) {
                self.report(file, field.line, format!("a rule does not suit the type: {rule:?}"));
            }
        }
        Some(FieldModel {
            name: field.name.clone(),
            number: field.number,
            within: field.within.clone(),
            shape,
            flags: field.flags,
            default,
            rules: field.rules.clone(),
            patch: field.patch.clone(),
            named: named(&file.package, &field.named),
            proto_name: field.proto_name.clone(),
            doc: field.doc.clone(),
        })
    }

    fn shape(&mut self, file: &'a File, line: u32, ty: &TypeExpr) -> Option<ShapeModel> {
        Some(match ty {
            TypeExpr::Scalar(scalar) => ShapeModel::Scalar(*scalar),
            TypeExpr::Named(name) => ShapeModel::Struct(self.find(file, line, name)?),
            TypeExpr::List(item) => {
                ShapeModel::List(Box::new(self.shape(file, line, item)?), ListKind::Atomic)
            }
            TypeExpr::Map(value) => ShapeModel::Map(Box::new(self.shape(file, line, value)?), false),
        })
    }

    /// Takes over the fields of inlined types and checks names and numbers of the outcome.
    fn assemble(&mut self, parts: Vec<Vec<Part>>) -> Vec<TypeModel> {
        let order = self.order.clone();
        let mut types = Vec::with_capacity(parts.len());
        for (at, it) in order.iter().enumerate() {
            let (mut fields, mut proto_names) = (Vec::new(), Vec::new());
            self.flatten(*it, at, &parts, &mut vec![at], &mut fields, &mut proto_names);
            self.check_fields(*it, &parts[at], &fields);
            if it.decl.one_of {
                self.check_alternatives(*it, &fields);
            }
            types.push(TypeModel {
                name: it.decl.name.clone(),
                package: it.file.package.clone(),
                doc: it.decl.doc.clone(),
                atomic: it.decl.atomic,
                open: it.decl.open,
                one_of: it.decl.one_of,
                unions: self.unions(*it, &fields),
                proto_names,
                fields,
            });
        }
        types
    }

    /// Appends the fields of the type at `at`; `above` are the types it is being inlined into.
    fn flatten(
        &mut self,
        it: Declaration<'a>,
        at: usize,
        parts: &[Vec<Part>],
        above: &mut Vec<usize>,
        into: &mut Vec<FieldModel>,
        proto_names: &mut Vec<ProtoName>,
    ) {
        for part in &parts[at] {
            let (line, number, from) = match part {
                Part::Field(field) => {
                    if !field.proto_name.is_empty() {
                        proto_names.push(proto_name(&field.within, field.number, &field.proto_name));
                    }
                    into.push((**field).clone());
                    continue;
                }
                Part::Inline { line, number, from } => (*line, *number, *from),
            };
            if above.contains(&from) {
                self.report(it.file, line, format!("`{}` contains itself", self.order[from].decl.name));
                continue;
            }
            let (start, first_name) = (into.len(), proto_names.len());
            above.push(from);
            self.flatten(self.order[from], from, parts, above, into, proto_names);
            above.pop();
            if number == 0 {
                continue;
            }
            for field in &mut into[start..] {
                field.within.insert(0, number);
            }
            for name in &mut proto_names[first_name..] {
                name.within.to_mut().insert(0, number);
            }
            // protobuf has the inlined type as a field that bears its name
            proto_names.push(proto_name(&[], number, &self.order[from].decl.name));
        }
    }

    fn check_fields(&mut self, it: Declaration<'a>, parts: &[Part], fields: &[FieldModel]) {
        let inlined = parts.iter().filter_map(|part| match part {
            Part::Inline { number, .. } if *number != 0 => Some(*number),
            _ => None,
        });
        // a nested message is where its path leads, and so is a field
        let mut messages: HashSet<Vec<u16>> = inlined.map(|number| vec![number]).collect();
        for field in fields {
            messages.extend((1..=field.within.len()).map(|depth| field.within[..depth].to_vec()));
        }
        let mut names = HashSet::new();
        let mut numbers = HashSet::new();
        for field in fields {
            let line = self.line_of(it, &field.name);
            if !names.insert(field.name.as_str()) {
                self.report(it.file, line, format!("`{}.{}` is declared twice", it.decl.name, field.name));
            }
            let place = [&field.within[..], &[field.number]].concat();
            let taken = messages.contains(&place);
            if field.number != 0 && (taken || !numbers.insert(place)) {
                let number = field.number;
                self.report(it.file, line, format!("`{}` has number {number} twice", it.decl.name));
            }
        }
    }

    /// Checks that alternatives have different JSON forms.
    fn check_alternatives(&mut self, it: Declaration<'a>, fields: &[FieldModel]) {
        let mut forms = HashSet::new();
        for field in fields {
            let form = match &field.shape {
                ShapeModel::Struct(_) | ShapeModel::Map(..) => "object",
                ShapeModel::List(..) => "list",
                ShapeModel::Scalar(Scalar::Bool) => "truth",
                ShapeModel::Scalar(_) => {
                    let message = format!("`{}` cannot be an alternative", field.name);
                    self.report(it.file, self.line_of(it, &field.name), message);
                    continue;
                }
            };
            if !forms.insert(form) {
                let message = format!("`{}` has the same form as another alternative", field.name);
                self.report(it.file, self.line_of(it, &field.name), message);
            }
        }
    }

    fn unions(&mut self, it: Declaration<'a>, fields: &[FieldModel]) -> Vec<Union> {
        for (line, union) in &it.decl.unions {
            let named = union.fields.iter().map(|(field, _)| field).chain([&union.discriminator]);
            for missing in named.filter(|name| !fields.iter().any(|it| it.name == ***name)) {
                self.report(it.file, *line, format!("`{}` has no field `{missing}`", it.decl.name));
            }
        }
        it.decl.unions.iter().map(|(_, union)| union.clone()).collect()
    }

    /// The line to blame for a field, which may have been taken over from another type.
    fn line_of(&self, it: Declaration<'a>, name: &str) -> u32 {
        let own = it.decl.members.iter().rev().find_map(|member| match member {
            Member::Field(field) if field.name == name => Some(field.line),
            _ => None,
        });
        own.unwrap_or(it.decl.line)
    }

    /// Checks what needs the finished types: list keys, merge keys, sets.
    fn check_references(&mut self, types: &[TypeModel]) {
        let order = self.order.clone();
        for (it, model) in order.iter().zip(types) {
            for field in &model.fields {
                if let Err(message) = check_keys(field, types) {
                    self.report(it.file, self.line_of(*it, &field.name), message);
                }
            }
        }
    }

    fn kinds(&mut self, types: &[TypeModel]) -> Vec<KindModel> {
        let order = self.order.clone();
        let declared: Vec<(usize, Declaration<'a>, &KindDecl)> = order
            .iter()
            .enumerate()
            .filter_map(|(at, it)| it.decl.kind.as_ref().map(|kind| (at, *it, kind)))
            .collect();
        let roots: HashMap<(Group, String, String), usize> = declared
            .iter()
            .map(|(at, it, kind)| ((kind.group.clone(), kind.version.clone(), it.decl.name.clone()), *at))
            .collect();
        let mut served = BTreeSet::new();
        let mut kinds = Vec::new();
        for (root, it, kind) in &declared {
            let resource = (kind.group.full("*"), kind.version.clone(), kind.plural.clone());
            if !kind.plural.is_empty() && !served.insert(resource) {
                self.report(it.file, it.decl.line, format!("`{}` is served twice", kind.plural));
            }
            self.check_kind(*it, kind, &types[*root]);
            let reads = self.stored_root(*it, kind, &roots).unwrap_or(*root);
            self.check_paths(*it, kind, types, *root, reads);
            let subresources = self.subresources(*it, kind, &roots);
            kinds.push(kind_model(*root, it.decl, kind, subresources));
        }
        kinds
    }

    fn check_kind(&mut self, it: Declaration<'a>, kind: &KindDecl, root: &TypeModel) {
        let name = &it.decl.name;
        let resource = !kind.plural.is_empty();
        let mut wrong = Vec::new();
        if resource && kind.namespaced.is_none() {
            wrong.push(format!("`{name}` is neither `namespaced` nor `cluster`"));
        }
        if resource && kind.verbs.is_empty() {
            wrong.push(format!("`{name}` has no verbs"));
        }
        if resource && !kind.unstored && !root.fields.iter().any(|it| it.name == "metadata") {
            wrong.push(format!("`{name}` has no metadata"));
        }
        let given = kind.namespaced.is_some() || !kind.verbs.is_empty() || !kind.subresources.is_empty();
        if !resource && (given || !kind.selectable.is_empty()) {
            wrong.push(format!("`{name}` has no plural but is described as a resource"));
        }
        if resource && kind.retired {
            wrong.push(format!("`{name}` is served and retired"));
        }
        for message in wrong {
            self.report(it.file, it.decl.line, message);
        }
    }

    fn stored_root(
        &mut self,
        it: Declaration<'a>,
        kind: &KindDecl,
        roots: &HashMap<(Group, String, String), usize>,
    ) -> Option<usize> {
        let (group, version) = kind.stored_as.as_ref()?;
        let root = roots.get(&(group.clone(), version.to_string(), it.decl.name.clone())).copied();
        let stored_again = root
            .is_some_and(|at| self.order[at].decl.kind.as_ref().is_some_and(|kind| kind.stored_as.is_some()));
        if root.is_none() || stored_again {
            self.report(it.file, it.decl.line, format!("`{}` is not stored as declared", it.decl.name));
        }
        root
    }

    fn check_paths(
        &mut self,
        it: Declaration<'a>,
        kind: &KindDecl,
        types: &[TypeModel],
        root: usize,
        reads: usize,
    ) {
        let mut labels = HashSet::new();
        for (line, select) in &kind.selectable {
            if !labels.insert(&select.label) {
                self.report(it.file, *line, format!("`{}` can be selected twice", select.label));
            }
            for path in select.path.split('|') {
                if let Err(message) = resolve_path(types, reads, path) {
                    self.report(it.file, *line, message);
                }
            }
        }
        for (line, column) in kind.columns.iter().filter(|(_, column)| !column.path.is_empty()) {
            if let Err(message) = resolve_path(types, root, &column.path) {
                self.report(it.file, *line, message);
            }
        }
    }

    fn subresources(
        &mut self,
        it: Declaration<'a>,
        kind: &KindDecl,
        roots: &HashMap<(Group, String, String), usize>,
    ) -> Vec<Subresource> {
        let mut names = HashSet::new();
        let mut made = Vec::new();
        for sub in &kind.subresources {
            if !names.insert(&sub.name) {
                self.report(it.file, sub.line, format!("subresource `{}` is declared twice", sub.name));
            }
            let represented = sub.kind.clone().unwrap_or_else(|| it.decl.name.clone());
            let (group, version) = match &sub.group_version {
                Some((group, version)) => (group.clone(), version.to_string()),
                None => (kind.group.clone(), kind.version.clone()),
            };
            if !roots.contains_key(&(group, version, represented.clone())) {
                self.report(it.file, sub.line, format!("there is no kind `{represented}` there"));
            }
            made.push(Subresource {
                name: text(&sub.name),
                kind: represented.into(),
                group_version: sub.group_version.clone(),
                verbs: sub.verbs.clone().into(),
            });
        }
        made
    }
}

fn type_meta(name: &str, doc: &str) -> FieldModel {
    FieldModel {
        name: name.into(),
        number: 0,
        within: Vec::new(),
        shape: ShapeModel::Scalar(Scalar::String),
        flags: Flags::NONE,
        default: None,
        rules: Vec::new(),
        patch: Patch::Replace,
        named: String::new(),
        proto_name: String::new(),
        doc: doc.into(),
    }
}

fn proto_name(within: &[u16], number: u16, name: &str) -> ProtoName {
    ProtoName { within: within.to_vec().into(), number, name: name.to_owned().into() }
}

/// Names without a package are of the version they stand in.
fn named(package: &str, name: &str) -> String {
    match package.rsplit('.').next() {
        Some(version) if !name.is_empty() && !name.contains('.') => format!("{version}.{name}"),
        _ => name.to_owned(),
    }
}

fn kind_model(root: usize, decl: &TypeDecl, kind: &KindDecl, subresources: Vec<Subresource>) -> KindModel {
    KindModel {
        name: decl.name.clone(),
        root,
        group: kind.group.clone(),
        version: kind.version.clone(),
        plural: kind.plural.clone(),
        singular: kind.singular.clone(),
        namespaced: kind.namespaced.unwrap_or(false),
        short_names: kind.short_names.clone(),
        categories: kind.categories.clone(),
        verbs: kind.verbs.clone(),
        subresources,
        selectable: kind.selectable.iter().map(|(_, it)| it.clone()).collect(),
        columns: kind.columns.iter().map(|(_, it)| it.clone()).collect(),
        stored_as: kind.stored_as.clone(),
        hashed_as: kind.hashed_as.clone(),
        retired: kind.retired,
        retired_as: kind.retired_as.clone(),
        store_key: kind.store_key.clone(),
        put_creates: kind.put_creates,
        unconditional_update: kind.unconditional_update,
        counts_generation: kind.counts_generation,
        expires: kind.expires,
        unstored: kind.unstored,
        selects_namespace: kind.selects_namespace,
        selects_by_name: kind.selects_by_name,
        on: kind.on,
        gate: kind.gate.clone(),
        lifecycle: kind.lifecycle.clone(),
        doc: decl.doc.clone(),
    }
}
