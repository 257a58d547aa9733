//! What a table is: the description of an API type that every feature of Pintle is a function of.
//!
//! Built-in tables are written in the schema language, compiled at build time and live in read-only memory;
//! tables of custom resources are made while the server runs. Both are the same Rust types: text is a
//! [`Cow`], and references between types are a [`Ref`], either to a `static` or counted.
//!
//! Nothing in here knows a particular kind.

use crate::value::{Value, head};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A name or a sentence that is either compiled in or made at run time.
pub type Text = Cow<'static, str>;
/// A sequence that is either compiled in or made at run time.
pub type Many<T> = Cow<'static, [T]>;

/// A reference to a part of a table, compiled in or counted.
#[derive(Debug)]
pub enum Ref<T: 'static> {
    Static(&'static T),
    Shared(Arc<T>),
    /// Made when it is first looked at.
    Late(Arc<Late<T>>),
}

/// A part of a table and how it is made, of which one is there.
pub type Late<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

impl<T> Ref<T> {
    /// What is made when it is first looked at, and then kept.
    pub fn late(make: impl FnOnce() -> T + Send + 'static) -> Self {
        Ref::Late(Arc::new(Late::new(Box::new(make))))
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        match self {
            Ref::Static(it) => Ref::Static(it),
            Ref::Shared(it) => Ref::Shared(it.clone()),
            Ref::Late(it) => Ref::Late(it.clone()),
        }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Ref::Static(it) => it,
            Ref::Shared(it) => it,
            Ref::Late(it) => it,
        }
    }
}

impl<T> From<T> for Ref<T> {
    fn from(it: T) -> Self {
        Ref::Shared(Arc::new(it))
    }
}

/// A structure: named fields in the order in which they are written out.
#[derive(Debug, Clone)]
pub struct Type {
    /// Short name, `PodSpec`.
    pub name: Text,
    /// Where it is declared, `api.core.v1`; the full OpenAPI name is `<reversed domain>.<package>.<name>`.
    pub package: Text,
    pub doc: Text,
    pub fields: Many<Field>,
    /// Positions in `fields`, sorted by field name, for lookup.
    pub by_name: Many<u16>,
    /// How these names begin, as [`head`] gives it, in the same order.
    pub heads: Many<u64>,
    /// The ranks of the fields that the normal form has even where they are not given.
    pub standing: Many<u16>,
    /// What happens to fields that are not declared.
    pub unknown: Unknown,
    /// The whole structure is owned and replaced as one when merging.
    pub atomic: bool,
    /// A value is one of the fields itself, as its JSON form tells; only in protobuf are they fields.
    pub one_of: bool,
    /// Values are kept as they came, empty or of another form, for the kind's own rules to judge.
    pub loose: bool,
    /// Fields of which one at most is there, as another field says; published only.
    pub unions: Many<Union>,
    /// What fields here or further down declare, so that a walk passes by what has nothing for it.
    pub declares: Declares,
    /// The positions of the fields that declare a default or a rule, or have one further down.
    pub declaring: Many<u16>,
}

/// Things that a field can declare, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declares(pub u8);

impl Declares {
    pub const NOTHING: Declares = Declares(0);
    pub const DEFAULTS: Declares = Declares(1);
    pub const RULES: Declares = Declares(2);
    pub const IMMUTABLE: Declares = Declares(4);

    pub const fn has(self, other: Declares) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn and(self, other: Declares) -> Declares {
        Declares(self.0 | other.0)
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

    /// Looks up names that come in order, in one walk over both.
    pub fn in_order(&self) -> InOrder<'_> {
        InOrder { ty: self, heads: &self.heads, rank: 0 }
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

    /// Makes a type at run time; the lookup order is worked out here.
    pub fn new(name: impl Into<Text>, package: impl Into<Text>, fields: Vec<Field>) -> Self {
        let declares = fields.iter().fold(Declares::NOTHING, |all, field| all.and(field.declares()));
        let mut by_name: Vec<u16> = (0..fields.len() as u16).collect();
        by_name.sort_by(|a, b| fields[*a as usize].name.cmp(&fields[*b as usize].name));
        let heads: Vec<u64> = by_name.iter().map(|at| head(&fields[*at as usize].name)).collect();
        let told = Declares::DEFAULTS.and(Declares::RULES);
        let positions = 0..fields.len() as u16;
        let declaring = positions.filter(|at| fields[*at as usize].declares().has(told)).collect();
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
            declares,
            declaring,
        }
    }
}

/// Whether two names are the same that begin alike.
#[inline]
fn same_name(a: &str, b: &str) -> bool {
    a.len() == b.len() && (a.len() <= 8 || a == b)
}

/// A walk over the fields of a type, by name.
pub struct InOrder<'t> {
    ty: &'t Type,
    heads: &'t [u64],
    rank: usize,
}

impl<'t> InOrder<'t> {
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

/// Fields that exclude one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Union {
    /// The field that says which one is there.
    pub discriminator: Text,
    /// Each field, and what the discriminator calls it.
    pub fields: Many<(Text, Text)>,
}

/// What happens to fields that a type does not declare.
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
    /// Value taken when the field is absent (or zero where absent and zero cannot be told apart).
    pub default: Option<Literal>,
    /// Constraints that are checked without code.
    pub rules: Many<Rule>,
    /// How strategic merge patch treats the field.
    pub patch: Patch,
    /// What errors call the type of the field, or of its items, where that has a name of its own; or empty.
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

    /// What the field declares, and what is declared below it.
    pub fn declares(&self) -> Declares {
        let mut own = self.shape.declares();
        for (here, what) in [
            (self.default.is_some(), Declares::DEFAULTS),
            (self.rules.iter().any(Rule::is_checked), Declares::RULES),
            (self.is(Flags::IMMUTABLE), Declares::IMMUTABLE),
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

    /// Whether the normal form has the field even where it is not given.
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
    /// The list is declared to be replaced as one, which is published; lists are so without a word, too.
    pub const ATOMIC: Flags = Flags(128);
    /// How items are told apart is declared for itself, which is published; otherwise it follows from the rest.
    pub const LISTED: Flags = Flags(512);
    /// The structure is merged field by field although its type is atomic elsewhere.
    pub const GRANULAR: Flags = Flags(256);
    /// A text for certain, in a structure whose other values may be of any form.
    pub const TEXT: Flags = Flags(1024);

    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether the normal form has a field of these flags even where it is not given.
    pub(crate) const fn stands(self, written_empty: bool) -> bool {
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

    /// What is declared below.
    pub fn declares(&self) -> Declares {
        match self {
            Shape::Scalar(_) => Declares::NOTHING,
            Shape::Struct(ty) => ty.declares,
            Shape::List(list) => list.item.declares(),
            Shape::Map(map) => map.value.declares(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ListShape {
    pub item: Shape,
    pub kind: ListKind,
}

/// How the items of a list are told apart by server-side apply.
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
}

/// A value without parts that the table describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    /// Base64 text in JSON and in a [`Value`](crate::Value).
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
    /// Those whose zero value is null.
    pub const fn is_null_when_zero(self) -> bool {
        matches!(self, Scalar::Time | Scalar::MicroTime | Scalar::Any | Scalar::Object | Scalar::Fields)
    }

    /// Those that the API's own types keep in structures.
    pub(crate) const fn is_written_empty(self) -> bool {
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
    /// A structure whose patch drops the keys it does not name.
    RetainKeys,
    /// A structure or map whose patch takes its place.
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
    /// Whether breaking it is an error, rather than only being told to clients.
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

/// A version of a kind that is read and never served.
#[derive(Debug)]
pub struct Retired {
    pub group: Group,
    pub version: Text,
    /// The kind whose form it has: its own table, or a later version that did not change the form.
    pub form: &'static Kind,
}

/// What descriptions say of the fields that every object has. Clients know them by their first words.
pub const API_VERSION_DOC: &str =
    "APIVersion defines, by its group and version, the schema that this object follows";
pub const KIND_DOC: &str = "Kind is a string value that names the schema of this object";
pub const METADATA_DOC: &str = "Standard object's metadata: identity, labels and bookkeeping";
pub const LIST_METADATA_DOC: &str = "Standard list metadata: revision and paging";

/// A kind: a type that is served under a name of its own.
#[derive(Debug, Clone)]
pub struct Kind {
    /// `Pod`.
    pub name: Text,
    /// `pods`.
    pub plural: Text,
    pub singular: Text,
    pub group: Group,
    pub version: Text,
    pub root: Ref<Type>,
    pub namespaced: bool,
    pub short_names: Many<Text>,
    pub categories: Many<Text>,
    pub verbs: Many<Text>,
    pub subresources: Many<Subresource>,
    /// Fields beyond name and namespace that selectors may name, with the path they read.
    pub selectable: Many<Selectable>,
    pub columns: Many<Column>,
    /// The version and kind that is stored, when it is not this one: `(group, version)` of the table.
    pub stored_as: Option<(Group, Text)>,
    /// The version whose hash discovery shows, when it is neither this one nor the stored one.
    pub hashed_as: Option<(Group, Text)>,
    /// Key in the store: `/registry/<store_key>/<namespace>/<name>`, where `{group}` is the group's full name.
    pub store_key: Text,
    /// PUT on a missing name creates.
    pub put_creates: bool,
    /// PUT without a resourceVersion is allowed.
    pub unconditional_update: bool,
    /// `metadata.generation` counts changes of the spec.
    pub counts_generation: bool,
    /// Objects vanish by themselves after the configured time.
    pub expires: bool,
    /// Objects are answered and never kept.
    pub unstored: bool,
    /// Selectors may name `metadata.namespace` beside `metadata.name`.
    pub selects_namespace: bool,
    /// Labels that cannot be selected by are refused in the name of the kind.
    pub selects_by_name: bool,
    /// Served unless an operator turns it off.
    pub on: bool,
    /// The feature gate it takes besides being served; empty for none.
    pub gate: Text,
    pub lifecycle: Lifecycle,
    /// Write `kind` before `apiVersion` (built-in kinds do).
    pub kind_first: bool,
    pub doc: Text,
    /// What a list of objects is called; empty for the name with `List`.
    pub list: Text,
    /// The schema that a kind was declared with while the server ran.
    pub declared: Option<Declared>,
}

impl Kind {
    /// Where its type is declared; nowhere for a kind that was declared while the server ran.
    pub fn package(&self) -> &str {
        if self.declared.is_some() { "" } else { &self.root.package }
    }

    /// What a list of objects is called.
    pub fn list_name(&self) -> Text {
        if self.list.is_empty() { format!("{}List", self.name).into() } else { self.list.clone() }
    }
}

/// A schema that is fetched when documents are made from it: its words are many and seldom read.
#[derive(Clone)]
pub struct Declared(pub Arc<dyn Fn() -> Value + Send + Sync>);

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Declared")
    }
}

/// The releases from which on a version of a kind is there, no longer advised, and gone, such as `1.26`; or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lifecycle {
    pub introduced: Text,
    pub deprecated: Text,
    pub removed: Text,
    /// What to use instead: group and version, where there is something.
    pub replacement: Option<(Group, Text)>,
    /// All that clients are told, for a kind that follows no releases; or empty.
    pub told: Text,
}

/// A release of the API. Shown as `1.26`, compared by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
}

impl Release {
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Release { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Lifecycle {
    /// Whether a release has the version: it is introduced and not removed by then.
    pub fn is_there(&self, at: Release) -> bool {
        let began = Release::parse(&self.introduced).is_none_or(|began| began <= at);
        began && Release::parse(&self.removed).is_none_or(|removed| removed > at)
    }

    /// Whether a release advises against the version.
    pub fn is_deprecated(&self, at: Release) -> bool {
        Release::parse(&self.deprecated).is_some_and(|deprecated| deprecated <= at)
    }
}

/// An API group. The core group's name is empty; others may end in the API domain, which the dialect decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// `apps`, or the part before the domain: `node`.
    pub stem: Text,
    /// The API domain follows the stem.
    pub in_domain: bool,
}

impl Group {
    /// The name on the wire.
    pub fn full(&self, api_domain: &str) -> String {
        if self.in_domain { format!("{}.{}", self.stem, api_domain) } else { self.stem.to_string() }
    }
}

/// A path segment below an object.
#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: Text,
    /// Kind of its representation; the resource's own when it equals the kind's name.
    pub kind: Text,
    /// Group and version of that kind where they differ from the resource's.
    pub group_version: Option<(Group, Text)>,
    pub verbs: Many<Text>,
}

/// A field that selectors may name.
#[derive(Debug, Clone)]
pub struct Selectable {
    /// As the client writes it.
    pub label: Text,
    /// Dotted path inside the stored object; of several, separated by `|`, the first that holds something.
    pub path: Text,
    /// What it reads when the path is absent.
    pub absent: Text,
    /// Watches on this field are indexed.
    pub indexed: bool,
}

/// A column of the table form.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: Text,
    /// `string`, `integer`, `date`, ...
    pub kind: Text,
    pub format: Text,
    pub priority: u8,
    /// Dotted path of the cell; empty where the kind's own code fills it.
    pub path: Text,
    pub doc: Text,
}
