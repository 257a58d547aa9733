//! A resource: a served version of a kind with its hooks and its collection, and objects in that version.

use crate::model::error::{ApiError, Subject};
use crate::model::form::{Form, api_version};
use crate::model::hooks::Hooks;
use crate::model::operation::Interest;
use crate::model::selector::{FieldTerm, Selector, parse_labels, read_fields};
use crate::model::versions::Conversion;
use crate::model::view::View;
use crate::storage::collection::Collection;
use bytes::Bytes;
use names::Names;
use schema::decode::FieldTree;
use schema::jsonpath::JsonPath;
use schema::table::{Kind, Ref, Subresource};
use schema::{Value, defaults};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many resources there have been.
static RESOURCES: AtomicU32 = AtomicU32::new(1);

/// A resource as it is served under one group and version.
pub struct Resource {
    /// A number that no other resource has or had. Never 0.
    pub number: u32,
    pub kind: Ref<Kind>,
    /// Full group name, empty for core.
    pub group: String,
    /// `v1` or `apps/v1`.
    pub api_version: String,
    pub hooks: Hooks,
    pub collection: Arc<Collection>,
    /// The resources that the views of the hooks are served as, in their order.
    pub views: Vec<Arc<Resource>>,
    /// `{"kind":"Pod","apiVersion":"v1",`: the beginning of an object's bytes.
    pub header: Bytes,
    /// `{"kind":"PodList","apiVersion":"v1",`
    pub list_header: Bytes,
    /// The fields that a table row reads.
    pub row_reads: FieldTree,
    /// The JSON paths of the columns, in their order; absent for plain fields.
    pub column_paths: Vec<Option<JsonPath>>,
    /// The admission plugins that handle its requests: position in the chain, and operations.
    pub(crate) plugins: Vec<(usize, Interest)>,
}

impl Resource {
    pub fn new(kind: Ref<Kind>, group: String, mut hooks: Hooks, collection: Arc<Collection>) -> Self {
        if kind.stored_as.is_some() {
            // versions that differ only in their name declare no conversion
            hooks.storage.convert.get_or_insert(Conversion { to_stored: |it| it, from_stored: |it| it });
        }
        let api_version = api_version(&group, &kind.version);
        let header = header(&kind.name, &api_version, kind.kind_first);
        let list_header = header_of_list(&kind, &api_version);
        let parse = |path: &str| path.starts_with('.').then(|| JsonPath::parse(path).ok()).flatten();
        let column_paths: Vec<_> = kind.columns.iter().map(|column| parse(&column.path)).collect();
        let row_reads = row_reads(&kind, &hooks, &column_paths);
        Resource {
            number: RESOURCES.fetch_add(1, Ordering::Relaxed),
            header,
            list_header,
            row_reads,
            column_paths,
            kind,
            group,
            api_version,
            hooks,
            collection,
            views: Vec::new(),
            plugins: Vec::new(),
        }
    }

    /// Sets declared defaults, then those that depend on other fields.
    pub(crate) fn default(&self, object: &mut Value, names: &Names) {
        defaults::apply(&self.kind.root, object);
        if let Some(default) = self.hooks.decode.default {
            default(object, names);
        }
    }

    /// The form of its objects.
    pub fn form(&self) -> Form<'_> {
        Form { kind: &self.kind.name, api_version: &self.api_version, ty: &self.kind.root }
    }

    /// The subject of errors about the resource: `pods "x"`.
    pub fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: &self.group, kind: &self.kind.plural, name }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.kind.subresources.iter().find(|one| one.name == name)
    }

    /// Both selectors of a request, for objects of this resource.
    pub fn selector(&self, labels: &str, fields: &str) -> Result<Selector, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: self.field_terms(fields)? })
    }

    fn field_terms(&self, text: &str) -> Result<Vec<FieldTerm>, ApiError> {
        let mut terms = Vec::new();
        for (label, equal, value) in read_fields(text)? {
            let field = self.collection.selected(&self.kind, label);
            let field = field.map_err(|why| match self.hooks.read.unknown_label {
                Some(message) => ApiError::bad_request(message(label)),
                None => why,
            })?;
            terms.push(FieldTerm { field, equal, value });
        }
        Ok(terms)
    }

    /// A subresource that is a view, with the resource that it is served as.
    pub fn view(&self, subresource: &str) -> Option<(&View, &Arc<Resource>)> {
        let views = &self.hooks.subresources.views;
        let at = views.iter().position(|view| view.name == subresource)?;
        Some((&views[at], self.views.get(at)?))
    }

    /// The subject of errors about the kind, in the group of its stored version.
    pub fn stored_subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        let group = match self.hooks.write.error_group {
            Some(group) => group,
            None if self.kind.stored_as.is_some() => &self.collection.group,
            None => &self.group,
        };
        Subject { group, kind: &self.kind.name, name }
    }
}

fn row_reads(kind: &Kind, hooks: &Hooks, paths: &[Option<JsonPath>]) -> FieldTree {
    if hooks.read.cells.is_some() || hooks.read.row_conditions.is_some() {
        return FieldTree::of(hooks.read.row_reads.iter().copied());
    }
    let generic = ["metadata.name", "metadata.creationTimestamp"];
    let declared = kind.columns.iter().map(|column| &*column.path);
    let declared = declared.filter(|path| !path.is_empty() && !path.starts_with('.'));
    let fields: Option<Vec<String>> = paths.iter().flatten().map(JsonPath::reads).collect();
    match fields {
        Some(fields) => FieldTree::of(declared.chain(generic).chain(fields.iter().map(String::as_str))),
        // a path with unknown fields reads everything
        None => FieldTree::of([]),
    }
}

fn header(kind: &str, api_version: &str, kind_first: bool) -> Bytes {
    if kind_first {
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into()
    } else {
        format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",").into()
    }
}

fn header_of_list(kind: &Kind, api_version: &str) -> Bytes {
    header(&kind.list_name(), api_version, kind.kind_first)
}
