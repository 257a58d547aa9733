//! The served kinds of a definition: one for each version, with its table and its rules.
//!
//! Tables and rules are built from the schema at their first use. Most definitions of a cluster have no objects, and
//! cost only their own text until then.

use super::compiled::Schema;
use super::rules::Validator;
use super::scale::Paths;
use super::table;
use crate::read;
use rest::hooks::{
    Context, CreateHooks, Hooks, IDENTITY_AND_DELETION, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    StorageHooks, SubresourceHooks, Subresources, UpdateHooks, WriteHooks, replace,
};
use rest::versions::{Converter, CustomVersions};
use schema::jsonpath::JsonPath;
use schema::rank::rank;
use schema::table::{Column, Group, Kind, LazySchema, Lifecycle, Many, Ref, Subresource, Text, Type};
use schema::{Value, encode};
use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One version of a kind, ready to be registered.
pub struct Version {
    pub kind: Ref<Kind>,
    /// The kind of its stored objects.
    pub stored: Ref<Kind>,
    pub hooks: Hooks,
    /// Whether the version is served.
    pub served: bool,
    /// Whether it is the storage version.
    pub is_stored: bool,
}

/// Fetches the definition again, if it is still there.
pub type Fetch = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// The versions of a definition, under the names that it was given.
pub fn versions(
    definition: &Value,
    names: &Value,
    fetch: &Fetch,
    converter: Option<Arc<dyn Converter>>,
) -> Vec<Version> {
    let versions = definition.items(&["spec", "versions"]);
    let Some(storage) = versions.iter().find(|it| read::flag(it, &["storage"])) else { return Vec::new() };
    let common = Common { definition, names, storage: storage.text(&["name"]) };
    let root = Ref::from(table::stored(&common.text("kind")));
    let stored = Ref::from(common.kind(storage, root));
    let tables = versions.iter().map(|version| {
        let (kind, schema) = (common.text("kind"), schema_of(fetch, version));
        let root = Ref::lazy(move || table::root(&kind, &schema()));
        (common.api_version(version.text(&["name"])), root)
    });
    let tables: Arc<[(String, Ref<Type>)]> = tables.collect();
    let form = common.form();
    let made = versions.iter().zip(tables.iter()).map(|(version, (api_version, root))| {
        let mut kind = common.kind(version, root.clone());
        kind.declared = Some(LazySchema(Arc::new(schema_of(fetch, version))));
        let custom_versions = CustomVersions {
            form: form_of(form, api_version),
            stored: common.api_version(common.storage),
            converter: converter.clone(),
            versions: tables.clone(),
        };
        let hooks = common.hooks(version, schema_of(fetch, version), custom_versions);
        let (served, is_stored) = (read::flag(version, &["served"]), read::flag(version, &["storage"]));
        Version { kind: kind.into(), stored: stored.clone(), hooks, served, is_stored }
    });
    made.collect()
}

/// Fetches the schema of one version. If the definition is deleted, the schema accepts everything, so that the last
/// readers lose no field.
fn schema_of(fetch: &Fetch, version: &Value) -> impl Fn() -> Value + Send + Sync + 'static {
    let (fetch, name) = (fetch.clone(), version.text(&["name"]).to_owned());
    move || {
        let definition = fetch().unwrap_or_default();
        let mut versions = definition.items(&["spec", "versions"]).iter();
        let version = versions.find(|it| it.text(&["name"]) == name);
        version.and_then(|it| it.at(&["schema", "openAPIV3Schema"])).cloned().unwrap_or_else(|| {
            let mut anything = Value::map();
            anything.set(&["type"], "object");
            anything.set(&["x-kubernetes-preserve-unknown-fields"], true);
            anything
        })
    }
}

/// The common parts of all versions.
struct Common<'d> {
    definition: &'d Value,
    names: &'d Value,
    storage: &'d str,
}

const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Verbs that discovery does not list for a definition under deletion. Updates still work, to remove finalizers.
const NOT_WHILE_GOING: [&str; 3] = ["create", "patch", "update"];

impl Common<'_> {
    fn text(&self, name: &str) -> String {
        self.names.text(&[name]).to_owned()
    }

    fn group(&self) -> Group {
        Group { stem: self.definition.text(&["spec", "group"]).to_owned().into(), in_domain: false }
    }

    fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.definition.text(&["spec", "group"]))
    }

    fn kind(&self, version: &Value, root: Ref<Type>) -> Kind {
        let going = read::has(self.definition, &["metadata", "deletionTimestamp"]);
        let namespaced = self.definition.text(&["spec", "scope"]) == "Namespaced";
        let verbs = VERBS.iter().filter(|verb| !(going && NOT_WHILE_GOING.contains(verb)));
        Kind {
            name: self.text("kind").into(),
            plural: self.text("plural").into(),
            singular: self.text("singular").into(),
            group: self.group(),
            version: version.text(&["name"]).to_owned().into(),
            root,
            namespaced,
            short_names: texts(self.names.items(&["shortNames"])),
            categories: texts(self.names.items(&["categories"])),
            verbs: verbs.map(|verb| Text::Borrowed(verb)).collect(),
            subresources: subresources(version, &self.text("kind")).into(),
            selectable: Many::Borrowed(&[]),
            columns: columns(version).into(),
            stored_as: None,
            hashed_as: Some((self.group(), self.storage.to_owned().into())),
            store_key: format!("{{group}}/{}", self.names.text(&["plural"])).into(),
            put_creates: false,
            unconditional_update: false,
            counts_generation: true,
            expires: false,
            unstored: false,
            selects_namespace: namespaced,
            selects_by_name: false,
            on: true,
            gate: "".into(),
            lifecycle: Lifecycle { warning: self.warning(version).into(), ..Lifecycle::default() },
            kind_first: false,
            doc: "".into(),
            list: self.text("listKind").into(),
            declared: None,
        }
    }

    /// The warning to clients of a deprecated version.
    fn warning(&self, version: &Value) -> String {
        if !read::flag(version, &["deprecated"]) {
            return String::new();
        }
        if let Some(own) = read::opt_text(version, &["deprecationWarning"]) {
            return own.to_owned();
        }
        let (name, kind) = (version.text(&["name"]), self.names.text(&["kind"]));
        let better = self.definition.items(&["spec", "versions"]).iter().filter(|it| {
            let stays = read::flag(it, &["served"]) && !read::flag(it, &["deprecated"]);
            stays && rank(it.text(&["name"])) > rank(name)
        });
        let best = better.map(|it| it.text(&["name"])).min_by_key(|it| Reverse(rank(it)));
        let instead = best.map(|it| format!("; use {} {kind}", self.api_version(it))).unwrap_or_default();
        format!("{} {kind} is deprecated{instead}", self.api_version(name))
    }

    /// A number for what objects look like in all versions: the same for the same schemas and the same way from one to
    /// another, whenever they are met.
    fn form(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for version in self.definition.items(&["spec", "versions"]) {
            version.text(&["name"]).hash(&mut hasher);
            version.at(&["schema"]).map(encode::untyped).hash(&mut hasher);
        }
        self.definition.at(&["spec", "conversion"]).map(encode::untyped).hash(&mut hasher);
        hasher.finish()
    }

    fn hooks(
        &self,
        version: &Value,
        fetch: impl Fn() -> Value + Send + Sync + 'static,
        custom_versions: CustomVersions,
    ) -> Hooks {
        let scale = Paths::of(version);
        let views = scale.as_ref().map(Paths::views).unwrap_or_default();
        let status = read::has(version, &["subresources", "status"]);
        Hooks {
            create: CreateHooks { keeps_status: !status, ..CreateHooks::default() },
            update: UpdateHooks {
                changes_generation: Some(if status { differs_beside_status } else { differs }),
                ..UpdateHooks::default()
            },
            write: WriteHooks {
                rules: Some(Arc::new(Validator::new(move || Schema::with_rules(&fetch()), scale))),
                repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
                plain_finalizers: true,
                owns_sent: true,
                ..WriteHooks::default()
            },
            storage: StorageHooks {
                custom_versions: Some(custom_versions),
                keeps_empty_lists: true,
                ..StorageHooks::default()
            },
            read: ReadHooks {
                unknown_label: Some(|label| format!("field label not supported: {label}")),
                ..ReadHooks::default()
            },
            subresources: Subresources {
                views,
                parts: if status { STATUS } else { &[] },
                ..Subresources::default()
            },
            ..Hooks::default()
        }
    }
}

/// The same for one of the versions.
fn form_of(all: u64, version: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (all, version).hash(&mut hasher);
    // 0 stands for no form
    hasher.finish().max(1)
}

static STATUS: &[SubresourceHooks] = &[SubresourceHooks {
    apply: apply_status,
    ignored_metadata: IDENTITY_AND_DELETION,
    ..SubresourceHooks::STATUS
}];

/// The status subresource writes only the status.
fn apply_status(next: &mut Value, submitted: &Value, _: &Context<'_>) {
    replace(next, submitted, "status");
}

fn differs_beside_status(next: &Value, old: &Value) -> bool {
    content_differs(next, old, &["metadata", "kind", "apiVersion", "status"])
}

fn differs(next: &Value, old: &Value) -> bool {
    content_differs(next, old, &["metadata", "kind", "apiVersion"])
}

fn content_differs(next: &Value, old: &Value, but_for: &[&str]) -> bool {
    let (Some(next), Some(old)) = (next.as_map(), old.as_map()) else { return true };
    let content = |it: &(&str, &Value)| !but_for.contains(&it.0);
    !next.iter().filter(content).eq(old.iter().filter(content))
}

fn texts(items: &[Value]) -> Many<Text> {
    items.iter().map(|it| Text::Owned(read::text(it).to_owned())).collect()
}

fn subresources(version: &Value, kind: &str) -> Vec<Subresource> {
    let verbs: Many<Text> =
        Many::Borrowed(&[Text::Borrowed("get"), Text::Borrowed("patch"), Text::Borrowed("update")]);
    let mut all = Vec::new();
    if read::has(version, &["subresources", "status"]) {
        let kind = kind.to_owned().into();
        all.push(Subresource { name: "status".into(), kind, group_version: None, verbs: verbs.clone() });
    }
    if read::has(version, &["subresources", "scale"]) {
        let home = Group { stem: "autoscaling".into(), in_domain: false };
        let group_version = Some((home, "v1".into()));
        all.push(Subresource { name: "scale".into(), kind: "Scale".into(), group_version, verbs });
    }
    all
}

fn columns(version: &Value) -> Vec<Column> {
    let name = Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        priority: 0,
        path: "metadata.name".into(),
        doc: "Unique name of the object.".into(),
    };
    let declared = version.items(&["additionalPrinterColumns"]);
    if declared.is_empty() {
        let age = Column {
            name: "Age".into(),
            kind: "date".into(),
            format: "".into(),
            priority: 0,
            path: ".metadata.creationTimestamp".into(),
            doc: "When the object was made.".into(),
        };
        return vec![name, age];
    }
    let text = |column: &Value, field: &str| Text::Owned(column.text(&[field]).to_owned());
    // a path that cannot be parsed ends the columns
    let readable = declared.iter().take_while(|column| JsonPath::parse(column.text(&["jsonPath"])).is_ok());
    let made = readable.map(|column| Column {
        name: text(column, "name"),
        kind: text(column, "type"),
        format: text(column, "format"),
        priority: i32::try_from(read::int(column, &["priority"])).unwrap_or(0),
        path: text(column, "jsonPath"),
        doc: match column.text(&["description"]) {
            "" => {
                let path = column.text(&["jsonPath"]);
                format!("Custom resource definition column (in JSONPath format): {path}").into()
            }
            own => own.to_owned().into(),
        },
    });
    std::iter::once(name).chain(made).collect()
}
