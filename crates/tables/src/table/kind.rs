//! Kinds: types that are served under a name, with their group, subresources, selectable fields and columns.

use super::reference::{Many, Ref};
use super::types::Type;
use crate::text::Text;
use crate::value::Value;
use std::fmt;
use std::sync::Arc;

/// A version of a kind that is only read, not served.
#[derive(Debug)]
pub struct RetiredVersion {
    pub group: Group,
    pub version: Text,
    /// The kind that has its form: its own table, or a later version with the same form.
    pub form: &'static Kind,
}

/// Descriptions of the fields that every object has. Clients recognize them by their first words.
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
    /// Objects expire after the configured time.
    pub expires: bool,
    /// Objects are returned and not stored.
    pub unstored: bool,
    /// Selectors may name `metadata.namespace` beside `metadata.name`.
    pub selects_namespace: bool,
    /// The error of an unknown selector label names the kind.
    pub selects_by_name: bool,
    /// Served unless an operator turns it off.
    pub on: bool,
    /// The feature gate that it also requires; empty for none.
    pub gate: Text,
    pub lifecycle: Lifecycle,
    /// Write `kind` before `apiVersion` (built-in kinds do).
    pub kind_first: bool,
    pub doc: Text,
    /// The name of a list of objects; empty for the kind's name with `List`.
    pub list: Text,
    /// The schema of a kind that was declared at run time.
    pub declared: Option<LazySchema>,
}

impl Kind {
    /// The package of its type; empty for a kind that was declared at run time.
    pub fn package(&self) -> &str {
        if self.declared.is_some() { "" } else { &self.root.package }
    }

    /// The name of a list of objects.
    pub fn list_name(&self) -> Text {
        if self.list.is_empty() { format!("{}List", self.name).into() } else { self.list.clone() }
    }
}

/// A schema that is fetched when a document needs it: it is large and seldom read.
#[derive(Clone)]
pub struct LazySchema(pub Arc<dyn Fn() -> Value + Send + Sync>);

impl std::fmt::Debug for LazySchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LazySchema")
    }
}

/// The releases that introduce, deprecate and remove a version of a kind, such as `1.26`; or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lifecycle {
    pub introduced: Text,
    pub deprecated: Text,
    pub removed: Text,
    /// Group and version of the replacement, if any.
    pub replacement: Option<(Group, Text)>,
    /// The whole warning to clients, for a kind that follows no releases; or empty.
    pub warning: Text,
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
    /// Whether a release serves the version: it is introduced and not yet removed.
    pub fn is_there(&self, at: Release) -> bool {
        let began = Release::parse(&self.introduced).is_none_or(|began| began <= at);
        began && Release::parse(&self.removed).is_none_or(|removed| removed > at)
    }

    /// Whether the version is deprecated in a release.
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
    /// Dotted path inside the stored object; of several, separated by `|`, the first non-empty one is read.
    pub path: Text,
    /// The value of an absent path.
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
    pub priority: i32,
    /// Dotted path of the cell; empty where the kind's own code fills it.
    pub path: Text,
    pub doc: Text,
}
