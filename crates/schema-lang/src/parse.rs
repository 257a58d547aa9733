//! From the text of a file to its declarations.
//!
//! Looks at one line at a time. Whatever can be judged without knowing other declarations is judged here;
//! what a name refers to, and whether attributes suit a type, is the matter of [`check`](super::check).

use std::borrow::Cow;

use super::problem::{Problem, Source};
use super::syntax::{FieldDecl, File, Import, KindDecl, Member, SubresourceDecl, TypeDecl, TypeExpr, text};
use super::terms::{
    Outcome, check_type_name, is_plural, parse_format, parse_group, parse_group_version, parse_list_kind,
    parse_number, parse_type, parse_verbs,
};
use tables::table::{Column, Flags, Group, Lifecycle, ListKind, Patch, Rule, Selectable, Union};

/// A word of a line; `quoted` when it begins with a quotation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
}

pub(super) fn parse(source: &Source<'_>, problems: &mut Vec<Problem>) -> File {
    let mut parser = Parser {
        file: File {
            name: source.name.to_string(),
            package: String::new(),
            imports: Vec::new(),
            types: Vec::new(),
        },
        group: None,
        version: String::new(),
        line: 0,
    };
    for (at, text) in source.text.lines().enumerate() {
        parser.line = at as u32 + 1;
        let outcome = words(text).and_then(|words| parser.statement(words));
        if let Err(message) = outcome {
            problems.push(Problem { file: source.name.to_string(), line: parser.line, message });
        }
    }
    if parser.file.package.is_empty() {
        let message = "the file names no `package`".to_string();
        problems.push(Problem { file: source.name.to_string(), line: 1, message });
    }
    parser.file
}

/// Splits a line; a comment ends it.
fn words(line: &str) -> Outcome<Vec<Word>> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = chars.peek().copied().filter(|c| *c != '#') else { return Ok(words) };
        let mut word = Word { text: String::new(), quoted: first == '"' };
        let mut inside = false;
        while let Some(c) = chars.next_if(|c| inside || !c.is_whitespace()) {
            match c {
                '"' => inside = !inside,
                '\\' if inside => match chars.next() {
                    Some(c @ ('"' | '\\')) => word.text.push(c),
                    _ => return Err("only `\\\"` and `\\\\` are escapes".into()),
                },
                c => word.text.push(c),
            }
        }
        if inside {
            return Err("a quotation is not closed".into());
        }
        words.push(word);
    }
}

struct Parser {
    file: File,
    group: Option<Group>,
    version: String,
    line: u32,
}

impl Parser {
    fn statement(&mut self, mut words: Vec<Word>) -> Outcome<()> {
        if words.is_empty() {
            return Ok(());
        }
        let doc = match words.last() {
            Some(last) if last.quoted && !is_column_name(&words) => words.pop().map(|it| it.text),
            _ => None,
        };
        let Some(first) = words.first().cloned() else { return self.document(doc.unwrap_or_default()) };
        let rest: Vec<&str> = words[1..].iter().map(|it| it.text.as_str()).collect();
        match first.text.as_str() {
            "kind" => return self.begin_kind(&rest, doc.unwrap_or_default()),
            "type" => return self.begin_type(&rest, doc.unwrap_or_default()),
            "column" => return self.column(&rest, doc.unwrap_or_default()),
            text if text == "-" || text.starts_with(|c: char| c.is_ascii_digit()) => {
                return self.field(text, &rest, doc.unwrap_or_default());
            }
            _ => {}
        }
        if doc.is_some() {
            return Err(format!("`{}` takes no documentation", first.text));
        }
        match (first.text.as_str(), rest.as_slice()) {
            ("package", [package]) => self.file.package = package.to_string(),
            ("group", [group]) => self.group = Some(parse_group(group)?),
            ("version", [version]) => self.version = version.to_string(),
            ("import", [alias, package]) => self.file.imports.push(Import {
                alias: alias.to_string(),
                package: package.to_string(),
                line: self.line,
            }),
            ("verbs", verbs) => {
                let verbs = parse_verbs(verbs)?;
                self.kind("verbs")?.verbs = verbs;
            }
            ("retired", versions) => {
                let versions =
                    versions.iter().map(|it| parse_group_version(it)).collect::<Outcome<Vec<_>>>()?;
                self.kind("retired")?.retired_as.extend(versions);
            }
            ("subresource", rest) => return self.subresource(rest),
            ("select", rest) => return self.select(rest),
            ("inline", rest) => return self.inline(rest),
            ("union", rest) => return self.union(rest),
            ("package" | "group" | "version", _) => return Err(format!("`{}` takes one word", first.text)),
            ("import", _) => return Err("`import` takes an alias and a package".into()),
            (word, _) => return Err(format!("`{word}` is no statement")),
        }
        Ok(())
    }

    fn open_type(&mut self, what: &str) -> Outcome<&mut TypeDecl> {
        self.file.types.last_mut().ok_or_else(|| format!("{what} outside of a `type` or `kind`"))
    }

    fn kind(&mut self, what: &str) -> Outcome<&mut KindDecl> {
        let missing = || format!("`{what}` outside of a `kind`");
        self.file.types.last_mut().and_then(|it| it.kind.as_mut()).ok_or_else(missing)
    }

    fn document(&mut self, doc: String) -> Outcome<()> {
        let open = self.open_type("documentation")?;
        if !open.doc.is_empty() {
            return Err(format!("`{}` is documented twice", open.name));
        }
        open.doc = doc;
        Ok(())
    }

    fn begin_type(&mut self, words: &[&str], doc: String) -> Outcome<()> {
        let [name, attributes @ ..] = words else { return Err("`type` needs a name".into()) };
        check_type_name(name)?;
        let mut open = self.new_type(name, doc);
        for attribute in attributes {
            match *attribute {
                "atomic" => open.atomic = true,
                "open" => open.open = true,
                "oneof" => open.one_of = true,
                other => return Err(format!("`{other}` is no attribute of a type")),
            }
        }
        self.file.types.push(open);
        Ok(())
    }

    fn new_type(&self, name: &str, doc: String) -> TypeDecl {
        TypeDecl {
            line: self.line,
            name: name.to_string(),
            doc,
            atomic: false,
            open: false,
            one_of: false,
            members: Vec::new(),
            unions: Vec::new(),
            kind: None,
        }
    }

    fn begin_kind(&mut self, words: &[&str], doc: String) -> Outcome<()> {
        let [name, attributes @ ..] = words else { return Err("`kind` needs a name".into()) };
        check_type_name(name)?;
        let group = self.group.clone().ok_or("`group` must come before the first kind")?;
        if self.version.is_empty() {
            return Err("`version` must come before the first kind".into());
        }
        let mut kind = KindDecl::new(group, self.version.clone());
        let mut open = self.new_type(name, doc);
        let mut attributes = attributes.iter().peekable();
        if let Some(plural) = attributes.next_if(|it| !it.contains('=') && is_plural(it)) {
            kind.plural = plural.to_string();
            kind.singular = name.to_ascii_lowercase();
            kind.store_key = kind.plural.clone();
        }
        let mut outcome = Ok(());
        for attribute in attributes {
            match *attribute {
                "atomic" => open.atomic = true,
                "open" => open.open = true,
                other => outcome = outcome.and(kind.attribute(other)),
            }
        }
        open.kind = Some(kind);
        // Declared even with a wrong attribute, so that one mistake does not make every member one.
        self.file.types.push(open);
        outcome
    }

    fn subresource(&mut self, words: &[&str]) -> Outcome<()> {
        let line = self.line;
        let kind = self.kind("subresource")?;
        let [name, rest @ ..] = words else { return Err("`subresource` needs a name".into()) };
        let (verbs, represented) = match rest.iter().position(|it| *it == "as") {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &[][..]),
        };
        let (group_version, represented) = match represented {
            [] if rest.contains(&"as") => return Err("`as` needs a kind".into()),
            [] => (None, None),
            [kind] => (None, Some(kind.to_string())),
            [group_version, kind] => (Some(parse_group_version(group_version)?), Some(kind.to_string())),
            _ => return Err("`as` takes a kind, or a group and version and a kind".into()),
        };
        kind.subresources.push(SubresourceDecl {
            line,
            name: name.to_string(),
            verbs: parse_verbs(verbs)?,
            kind: represented,
            group_version,
        });
        Ok(())
    }

    fn select(&mut self, words: &[&str]) -> Outcome<()> {
        let line = self.line;
        let [label, rest @ ..] = words else { return Err("`select` needs a field".into()) };
        let (path, rest) = match rest {
            ["=", path, rest @ ..] => (*path, rest),
            rest => (*label, rest),
        };
        let mut it = Selectable {
            label: text(label),
            path: text(path.strip_prefix('.').unwrap_or(path)),
            absent: text(""),
            indexed: false,
        };
        for attribute in rest {
            match attribute.split_once('=') {
                None if *attribute == "indexed" => it.indexed = true,
                Some(("absent", value)) => it.absent = text(value),
                _ => return Err(format!("`{attribute}` is no attribute of `select`")),
            }
        }
        self.kind("select")?.selectable.push((line, it));
        Ok(())
    }

    fn column(&mut self, words: &[&str], doc: String) -> Outcome<()> {
        let line = self.line;
        let [name, kind, rest @ ..] = words else { return Err("`column` needs a name and a type".into()) };
        if !matches!(*kind, "string" | "integer" | "number" | "boolean" | "date") {
            return Err(format!("`{kind}` is no type of a column"));
        }
        let mut column = Column {
            name: text(name),
            kind: text(kind),
            format: text(""),
            priority: 0,
            path: text(""),
            doc: Cow::Owned(doc),
        };
        for attribute in rest {
            match (attribute.strip_prefix('.'), attribute.split_once('=')) {
                (Some(path), _) => column.path = text(path),
                (_, Some(("format", value))) => column.format = text(value),
                (_, Some(("priority", value))) => column.priority = parse_number("priority", value)?,
                (None, None) if *attribute == "wide" => column.priority = 1,
                _ => return Err(format!("`{attribute}` is no attribute of `column`")),
            }
        }
        self.kind("column")?.columns.push((line, column));
        Ok(())
    }

    fn inline(&mut self, words: &[&str]) -> Outcome<()> {
        let line = self.line;
        let (number, name) = match words {
            [name] => (0, *name),
            [number, name] => (parse_number("protobuf number", number)?, *name),
            _ => return Err("`inline` takes a number and a type".into()),
        };
        let TypeExpr::Named(ty) = parse_type(name, 0)? else {
            return Err(format!("`{name}` cannot be inlined"));
        };
        self.open_type("`inline`")?.members.push(Member::Inline { line, number, ty });
        Ok(())
    }

    fn union(&mut self, words: &[&str]) -> Outcome<()> {
        let line = self.line;
        let [discriminator, fields @ ..] = words else {
            return Err("`union` needs a field that decides".into());
        };
        let fields: Outcome<Vec<_>> = fields
            .iter()
            .map(|it| it.split_once('=').ok_or_else(|| format!("`{it}` is no `field=Name` of a union")))
            .map(|it| it.map(|(field, name)| (text(field), text(name))))
            .collect();
        let union = Union { discriminator: text(discriminator), fields: fields?.into() };
        self.open_type("`union`")?.unions.push((line, union));
        Ok(())
    }

    fn field(&mut self, number: &str, words: &[&str], doc: String) -> Outcome<()> {
        let mut within: Vec<u16> = match number {
            "-" => vec![0],
            path => path.split('.').map(|it| parse_number("protobuf number", it)).collect::<Outcome<_>>()?,
        };
        let number = within.pop().unwrap_or(0);
        let [name, ty, attributes @ ..] = words else { return Err("a field needs a name and a type".into()) };
        let (ty, flags) = match ty.strip_suffix('?') {
            Some(ty) => (ty, Flags::NILABLE),
            None => (*ty, Flags::NONE),
        };
        let mut field = FieldDecl {
            line: self.line,
            name: name.to_string(),
            number,
            within,
            ty: parse_type(ty, 0)?,
            flags,
            default: None,
            rules: Vec::new(),
            list: None,
            map_atomic: false,
            granular: false,
            patch: Patch::Replace,
            named: String::new(),
            proto_name: String::new(),
            doc,
        };
        for (at, attribute) in attributes.iter().enumerate() {
            let key = |it: &str| it.split('=').next().unwrap_or_default().to_string();
            if attributes[..at].iter().any(|before| key(before) == key(attribute)) {
                return Err(format!("`{}` is given twice", key(attribute)));
            }
            field.attribute(attribute)?;
        }
        self.open_type("a field")?.members.push(Member::Field(Box::new(field)));
        Ok(())
    }
}

impl FieldDecl {
    fn attribute(&mut self, attribute: &str) -> Outcome<()> {
        let Some((key, value)) = attribute.split_once('=') else { return self.flag(attribute) };
        if value.is_empty() && key != "default" {
            return Err(format!("`{key}=` needs a value"));
        }
        match key {
            "default" => self.default = Some(value.to_string()),
            "min" => self.rules.push(Rule::Min(parse_number(key, value)?)),
            "max" => self.rules.push(Rule::Max(parse_number(key, value)?)),
            "minlen" => self.rules.push(Rule::MinLength(parse_number(key, value)?)),
            "maxlen" => self.rules.push(Rule::MaxLength(parse_number(key, value)?)),
            "minitems" => self.rules.push(Rule::MinItems(parse_number(key, value)?)),
            "maxitems" => self.rules.push(Rule::MaxItems(parse_number(key, value)?)),
            "enum" => self.rules.push(Rule::Enum(value.split('|').map(text).collect())),
            "values" => self.rules.push(Rule::Values(value.split('|').map(text).collect())),
            "named" => self.named = value.to_string(),
            "proto" => self.proto_name = value.to_string(),
            "format" => self.rules.push(Rule::Format(parse_format(value)?)),
            "list" => {
                let kind = parse_list_kind(value)?;
                let declared = if kind == ListKind::Atomic { Flags::ATOMIC } else { Flags::LISTED };
                self.flags = self.flags.and(declared);
                self.list = Some(kind);
            }
            "map" if value == "atomic" => self.map_atomic = true,
            "map" if value == "granular" => {
                self.granular = true;
                self.flags = self.flags.and(Flags::GRANULAR);
            }
            "map" => return Err("`map=` can be `atomic` or `granular`".into()),
            "merge" => match value.split_once(',') {
                None => self.patch = Patch::Merge { key: text(value), retain_keys: false },
                Some((key, "retainKeys")) => self.patch = Patch::Merge { key: text(key), retain_keys: true },
                Some((_, other)) => return Err(format!("`{other}` is no way to merge")),
            },
            _ => return Err(format!("`{key}=` is no attribute of a field")),
        }
        Ok(())
    }

    fn flag(&mut self, word: &str) -> Outcome<()> {
        let flag = match word {
            "required" => Flags::REQUIRED.and(Flags::ALWAYS),
            "always" => Flags::ALWAYS,
            "nullable" => Flags::NULLABLE,
            "immutable" => Flags::IMMUTABLE,
            "stamped" => Flags::STAMPED,
            "own" => Flags::OWN,
            "published" => Flags::PUBLISHED,
            "nonempty" => {
                self.rules.push(Rule::NotEmpty);
                Flags::NONE
            }
            "merge" => {
                self.patch = Patch::Merge { key: text(""), retain_keys: false };
                Flags::NONE
            }
            "retainKeys" => {
                self.patch = Patch::RetainKeys;
                Flags::NONE
            }
            "replace" => {
                self.patch = Patch::Whole;
                Flags::NONE
            }
            _ => return Err(format!("`{word}` is no attribute of a field")),
        };
        self.flags = self.flags.and(flag);
        Ok(())
    }
}

impl KindDecl {
    fn new(group: Group, version: String) -> Self {
        KindDecl {
            group,
            version,
            plural: String::new(),
            singular: String::new(),
            namespaced: None,
            short_names: Vec::new(),
            categories: Vec::new(),
            verbs: Vec::new(),
            subresources: Vec::new(),
            selectable: Vec::new(),
            columns: Vec::new(),
            stored_as: None,
            hashed_as: None,
            retired: false,
            retired_as: Vec::new(),
            store_key: String::new(),
            put_creates: false,
            unconditional_update: false,
            counts_generation: false,
            expires: false,
            unstored: false,
            selects_namespace: true,
            selects_by_name: false,
            on: true,
            gate: String::new(),
            lifecycle: Lifecycle::default(),
        }
    }

    fn attribute(&mut self, attribute: &str) -> Outcome<()> {
        match attribute.split_once('=') {
            Some(("singular", value)) => self.singular = value.to_string(),
            Some(("short", value)) => self.short_names = value.split(',').map(text).collect(),
            Some(("category", value)) => self.categories = value.split(',').map(text).collect(),
            Some(("put", "creates")) => self.put_creates = true,
            Some(("put", "update-only")) => self.put_creates = false,
            Some(("put", _)) => return Err("`put=` can be `creates` or `update-only`".into()),
            Some(("store", value)) => self.store_key = value.to_string(),
            Some(("stored", value)) => self.stored_as = Some(parse_group_version(value)?),
            Some(("group", value)) => self.group = parse_group(value)?,
            Some(("hashed", value)) => self.hashed_as = Some(parse_group_version(value)?),
            Some(("gate", value)) => self.gate = value.to_string(),
            Some(("introduced", value)) => self.lifecycle.introduced = text(value),
            Some(("deprecated", value)) => self.lifecycle.deprecated = text(value),
            Some(("removed", value)) => self.lifecycle.removed = text(value),
            Some(("instead", value)) => self.lifecycle.replacement = Some(parse_group_version(value)?),
            Some(("select", "name")) => self.selects_namespace = false,
            Some(("select", "kind")) => self.selects_by_name = true,
            Some(("select", _)) => return Err("`select=` can be `kind` or `name`".into()),
            None if attribute == "namespaced" => self.namespaced = Some(true),
            None if attribute == "cluster" => self.namespaced = Some(false),
            None if attribute == "unconditional" => self.unconditional_update = true,
            None if attribute == "generation" => self.counts_generation = true,
            None if attribute == "ttl" => self.expires = true,
            None if attribute == "unstored" => self.unstored = true,
            None if attribute == "off" => self.on = false,
            None if attribute == "retired" => self.retired = true,
            _ => return Err(format!("`{attribute}` is no attribute of a kind")),
        }
        Ok(())
    }
}

/// `column "Nominated Node"` ends in a quotation that is no documentation.
fn is_column_name(words: &[Word]) -> bool {
    words.len() == 2 && words[0].text == "column"
}
