//! Types of tables: structures, fields, shapes, and the rules that fields declare.

use super::reference::{Many, Ref};
use crate::text::{Text, head};
use crate::value::Value;
use std::borrow::Cow;

/// A structure: named fields in the order in which they are written out.
#[derive(Debug, Clone)]
pub struct Type {
    /// Short name, `PodSpec`.
    pub name: Text,
    /// The package, `api.core.v1`; the full OpenAPI name is `<reversed domain>.<package>.<name>`.
    pub package: Text,
    pub doc: Text,
    pub fields: Many<Field>,
    /// Positions in `fields`, sorted by field name, for lookup.
    pub by_name: Many<u16>,
    /// The [`head`] of each name, in the same order.
    pub heads: Many<u64>,
    /// The ranks of the fields that the normal form always has.
    pub standing: Many<u16>,
    /// The treatment of undeclared fields.
    pub unknown: Unknown,
    /// The whole structure is owned and replaced as one when merging.
    pub atomic: bool,
    /// A value is one of the fields itself, by its JSON form; only protobuf has the fields.
    pub one_of: bool,
    /// Values are kept as sent, even if empty or of another form; the kind's own rules check them.
    pub loose: bool,
    /// Fields of which at most one is present, by a discriminator; published only.
    pub unions: Many<Union>,
    /// Names of protobuf fields in errors that do not follow from the JSON names.
    pub proto_names: Many<ProtoName>,
    /// The declarations of the fields here and below, so that a walk skips types without any.
    pub declarations: Declarations,
    /// The positions of the fields that declare a default or a rule, or have one further down.
    pub declaring: Many<u16>,
}

/// Things that a field can declare, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declarations(pub u8);

impl Declarations {
    pub const NOTHING: Declarations = Declarations(0);
    pub const DEFAULTS: Declarations = Declarations(1);
    pub const RULES: Declarations = Declarations(2);
    pub const IMMUTABLE: Declarations = Declarations(4);

    pub const fn has(self, other: Declarations) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn and(self, other: Declarations) -> Declarations {
        Declarations(self.0 | other.0)
    }
}

impl Type {
    /// The position and declaration of the field with this JSON name.
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        let at = self.by_name[self.rank(name)?] as usize;
        Some((at, &self.fields[at]))
    }

    /// The position of a name among the names of all fields.
    pub fn rank(&self, name: &str) -> Option<usize> {
        let (heads, wanted) = (&*self.heads, head(name));
        let mut rank = heads.partition_point(|head| *head < wanted);
        // names that begin alike stand side by side
        while heads.get(rank) == Some(&wanted) {
            if same_name(&self.fields[self.by_name[rank] as usize].name, name) {
                return Some(rank);
            }
            rank += 1;
        }
        None
    }

    /// The declared name of a protobuf field of the nested message at `within`.
    pub fn proto_name(&self, within: &[u16], number: u16) -> Option<&str> {
        let is_at = |it: &&ProtoName| it.number == number && *it.within == *within;
        self.proto_names.iter().find(is_at).map(|it| &*it.name)
    }

    /// Looks up names that come in order, in one walk over both.
    pub fn in_order(&self) -> OrderedFields<'_> {
        OrderedFields { ty: self, heads: &self.heads, rank: 0 }
    }

    /// The field that a value is, where a value is one of the fields.
    pub fn alternative(&self, value: &Value) -> Option<&Field> {
        self.fields.iter().find(|field| match value {
            Value::Map(_) => matches!(field.shape, Shape::Struct(_) | Shape::Map(_)),
            Value::List(_) => matches!(field.shape, Shape::List(_)),
            Value::Bool(_) => matches!(field.shape, Shape::Scalar(Scalar::Bool)),
            _ => false,
        })
    }

    /// Creates a type at run time, and computes its lookup order.
    pub fn new(name: impl Into<Text>, package: impl Into<Text>, fields: Vec<Field>) -> Self {
        let declarations =
            fields.iter().fold(Declarations::NOTHING, |all, field| all.and(field.declarations()));
        let mut by_name: Vec<u16> = (0..fields.len() as u16).collect();
        by_name.sort_by(|a, b| fields[*a as usize].name.cmp(&fields[*b as usize].name));
        let heads: Vec<u64> = by_name.iter().map(|at| head(&fields[*at as usize].name)).collect();
        let walked = Declarations::DEFAULTS.and(Declarations::RULES);
        let positions = 0..fields.len() as u16;
        let declaring = positions.filter(|at| fields[*at as usize].declarations().has(walked)).collect();
        let ranks = 0..fields.len() as u16;
        let standing = ranks.filter(|rank| fields[by_name[*rank as usize] as usize].stands());
        Type {
            standing: standing.collect(),
            name: name.into(),
            package: package.into(),
            doc: "".into(),
            fields: fields.into(),
            by_name: by_name.into(),
            heads: heads.into(),
            unknown: Unknown::Report,
            atomic: false,
            one_of: false,
            loose: false,
            unions: Cow::Borrowed(&[]),
            proto_names: Cow::Borrowed(&[]),
            declarations,
            declaring,
        }
    }
}

/// Whether two names with the same head are equal.
#[inline]
fn same_name(a: &str, b: &str) -> bool {
    a.len() == b.len() && (a.len() <= 8 || a == b)
}

/// A walk over the fields of a type, by name.
pub struct OrderedFields<'t> {
    ty: &'t Type,
    heads: &'t [u64],
    rank: usize,
}

impl<'t> OrderedFields<'t> {
    /// The position and declaration of the field with this name, which is greater than those before it.
    #[inline]
    pub fn find(&mut self, name: &str) -> Option<(usize, &'t Field)> {
        let wanted = head(name);
        let rest = self.heads.get(self.rank..)?;
        self.rank += rest.iter().position(|head| *head >= wanted).unwrap_or(rest.len());
        while self.heads.get(self.rank) == Some(&wanted) {
            let at = self.ty.by_name[self.rank] as usize;
            let field = &self.ty.fields[at];
            if same_name(&field.name, name) {
                return Some((at, field));
            }
            if *field.name > *name {
                return None;
            }
            self.rank += 1;
        }
        None
    }
}

/// The name of a protobuf field in errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtoName {
    /// Numbers of the nested messages that hold the field, outermost first.
    pub within: Many<u16>,
    pub number: u16,
    pub name: Text,
}

/// Fields that exclude one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Union {
    /// The field that names the present one.
    pub discriminator: Text,
    /// Each field, and its name in the discriminator.
    pub fields: Many<(Text, Text)>,
}

/// The treatment of fields that a type does not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Dropped, and reported according to `fieldValidation`.
    Report,
    /// Kept as they are.
    Keep,
}

/// One field of a structure.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: Text,
    /// Protobuf number; 0 where the field has none.
    pub number: u16,
    /// Numbers of the nested protobuf messages, outermost first, that hold this field when its type is
    /// embedded in JSON but not in protobuf (a volume's source); most fields have none.
    pub within: Many<u16>,
    pub shape: Shape,
    pub flags: Flags,
    /// Value of an absent field (or of a zero one, unless absent and zero differ).
    pub default: Option<Literal>,
    /// Constraints that are checked without code.
    pub rules: Many<Rule>,
    /// How strategic merge patch treats the field.
    pub patch: Patch,
    /// The name of the type of the field, of its items, or of the lists in its map, in errors, if it has its own; or empty.
    pub named: Text,
    pub doc: Text,
}

impl Field {
    /// An optional field with nothing declared but its shape.
    pub fn new(name: impl Into<Text>, shape: Shape) -> Self {
        Field {
            name: name.into(),
            number: 0,
            within: Cow::Borrowed(&[]),
            shape,
            flags: Flags::NONE,
            default: None,
            rules: Cow::Borrowed(&[]),
            patch: Patch::Replace,
            named: "".into(),
            doc: "".into(),
        }
    }

    /// The declarations of the field, and of the fields below it.
    pub fn declarations(&self) -> Declarations {
        let mut own = self.shape.declarations();
        for (here, what) in [
            (self.default.is_some(), Declarations::DEFAULTS),
            (self.rules.iter().any(Rule::is_checked), Declarations::RULES),
            (self.is(Flags::IMMUTABLE), Declarations::IMMUTABLE),
        ] {
            if here {
                own = own.and(what);
            }
        }
        own
    }

    pub fn is(&self, flag: Flags) -> bool {
        self.flags.has(flag)
    }

    /// Whether the normal form always has the field.
    pub fn stands(&self) -> bool {
        self.flags.stands(self.shape.is_written_empty())
    }
}

/// Yes-or-no properties of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    pub const NONE: Flags = Flags(0);
    /// Must be given (published as `required`).
    pub const REQUIRED: Flags = Flags(1);
    /// Written out even when empty.
    pub const ALWAYS: Flags = Flags(2);
    /// Absent and zero are different things.
    pub const NILABLE: Flags = Flags(4);
    /// `null` is a value of its own (custom resources).
    pub const NULLABLE: Flags = Flags(8);
    /// Cannot change after creation.
    pub const IMMUTABLE: Flags = Flags(16);
    /// Filled in at the commit: the object's revision.
    pub const STAMPED: Flags = Flags(32);
    /// The default is part of the published schema.
    pub const PUBLISHED: Flags = Flags(64);
    /// The list is declared atomic, which is published; lists are atomic by default, too.
    pub const ATOMIC: Flags = Flags(128);
    /// The list type is declared, which is published; otherwise it follows from the strategic merge.
    pub const LISTED: Flags = Flags(512);
    /// The structure is merged field by field although its type is atomic elsewhere.
    pub const GRANULAR: Flags = Flags(256);
    /// Absent and zero are different things in the metadata of the object itself only.
    pub const OWN: Flags = Flags(2048);
    /// Always text, in a structure whose other values may have any form.
    pub const TEXT: Flags = Flags(1024);

    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether the normal form always has a field with these flags.
    pub const fn stands(self, written_empty: bool) -> bool {
        self.has(Flags::ALWAYS) || written_empty && !self.has(Flags::NILABLE)
    }
}

/// The form of a value.
#[derive(Debug, Clone)]
pub enum Shape {
    Scalar(Scalar),
    Struct(Ref<Type>),
    List(Ref<ListShape>),
    /// String keys to values of one shape.
    Map(Ref<MapShape>),
}

impl Shape {
    /// Whether a value of this shape is written even when it is empty, unless it can be nil.
    pub fn is_written_empty(&self) -> bool {
        match self {
            Shape::Struct(_) => true,
            Shape::Scalar(scalar) => scalar.is_written_empty(),
            Shape::List(_) | Shape::Map(_) => false,
        }
    }

    /// The declarations of the fields below.
    pub fn declarations(&self) -> Declarations {
        match self {
            Shape::Scalar(_) => Declarations::NOTHING,
            Shape::Struct(ty) => ty.declarations,
            Shape::List(list) => list.item.declarations().and(defaults(&list.default)),
            Shape::Map(map) => map.value.declarations().and(defaults(&map.default)),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ListShape {
    pub item: Shape,
    pub kind: ListKind,
    /// The value of an item that is `null`.
    pub default: Option<Literal>,
}

/// The list type of server-side apply, which defines the identity of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    Map { keys: Many<Text> },
}

#[derive(Debug, Clone)]
pub struct MapShape {
    pub value: Shape,
    pub atomic: bool,
    /// `null` is a value of its own.
    pub nullable: bool,
    /// A value that is no map is kept as it is.
    pub open: bool,
    /// The value of an entry that is `null`.
    pub default: Option<Literal>,
}

fn defaults(default: &Option<Literal>) -> Declarations {
    if default.is_some() { Declarations::DEFAULTS } else { Declarations::NOTHING }
}

/// A value without parts that the table describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    /// Base64 text in JSON and in a [`Value`](crate::value::Value).
    Bytes,
    /// RFC 3339, whole seconds, UTC.
    Time,
    /// RFC 3339, six digits of fraction, UTC.
    MicroTime,
    /// Text such as `1m30s`.
    Duration,
    /// Amount with a suffix, kept in canonical form.
    Quantity,
    IntOrString,
    /// Any JSON value at all.
    Any,
    /// Any JSON object, kept as it is.
    Object,
    /// A set of field paths: an object that is kept as text.
    Fields,
}

impl Scalar {
    /// Whether the zero value is null.
    pub const fn is_null_when_zero(self) -> bool {
        matches!(self, Scalar::Time | Scalar::MicroTime | Scalar::Any | Scalar::Object | Scalar::Fields)
    }

    /// Whether the API's own types keep it in a structure.
    pub const fn is_written_empty(self) -> bool {
        matches!(
            self,
            Scalar::Time
                | Scalar::MicroTime
                | Scalar::Quantity
                | Scalar::IntOrString
                | Scalar::Object
                | Scalar::Fields
                | Scalar::Duration
        )
    }
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    Replace,
    /// Maps, structures and sets of scalars merge; lists of structures merge on `key`.
    Merge {
        key: Text,
        retain_keys: bool,
    },
    /// A structure whose patch removes the keys that it does not have.
    RetainKeys,
    /// A structure or map that a patch replaces.
    Whole,
}

/// A value that can stand in a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Bool(bool),
    Int(i64),
    Text(Text),
    /// JSON text, for the few that have structure.
    Json(Text),
}

/// A constraint that is checked by the walker.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    Min(i64),
    Max(i64),
    MinLength(u32),
    MaxLength(u32),
    MinItems(u32),
    MaxItems(u32),
    /// Published and enforced.
    Enum(Many<Text>),
    /// Published only; the kind's own code decides.
    Values(Many<Text>),
    Format(Format),
    /// Must not be empty.
    NotEmpty,
}

impl Rule {
    /// Whether a breach is an error; other rules are only published.
    pub fn is_checked(&self) -> bool {
        !matches!(self, Rule::Values(_))
    }
}

/// Named forms of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    LabelValue,
    /// Relative path without `..`.
    PathSegment,
    IpAddress,
    PortName,
    EnvName,
    ConfigKey,
}
