//! Paths of the API and their operations.

use super::operations::{
    Body, DELETE_COLLECTION_QUERY, DELETE_QUERY, LIST_QUERY, Operation, PATCH_QUERY, WRITE_QUERY,
    capitalized, group_tag, group_words, parameter, path_parameter, query_parameter, shared, version_tag,
};
use super::{Flavour, META, Source, root_path};
use crate::table::{Kind, Ref, Scalar, Shape, Subresource, Type};
use crate::value::{Map, Value};
use std::collections::BTreeSet;

/// One path and its kind.
pub(super) struct Place<'a> {
    pub path: String,
    kind: &'a Kind,
    what: PathKind<'a>,
}

#[derive(Clone, Copy)]
enum PathKind<'a> {
    /// The versions of the core group.
    Versions,
    /// The other groups.
    Groups,
    /// One of them.
    Group,
    /// The list of a group's resources.
    Resources,
    Collection,
    AllNamespaces,
    Item,
    Subresource(&'a Subresource),
    /// Below a connect subresource: the rest of the path is proxied.
    Beyond(&'a Subresource),
    WatchCollection,
    WatchAllNamespaces,
    WatchItem,
}

impl Place<'_> {
    /// Whether the path serves groups and versions, not resources.
    pub fn is_group_discovery(&self) -> bool {
        matches!(self.what, PathKind::Versions | PathKind::Groups | PathKind::Group)
    }
}

/// All places of the given kinds, in the order of their paths.
pub(super) fn places<'a>(source: &Source<'a>, kinds: &[&'a Kind]) -> Vec<Place<'a>> {
    let mut all = Vec::new();
    for kind in kinds {
        places_of(source, kind, &mut all);
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all.dedup_by(|a, b| a.path == b.path);
    all
}

fn places_of<'a>(source: &Source<'a>, kind: &'a Kind, all: &mut Vec<Place<'a>>) {
    if kind.plural.is_empty() {
        return;
    }
    let root = root_path(source.dialect, &kind.group, &kind.version);
    let mut add = |path: String, what| all.push(Place { path, kind, what });
    let has = |verb: &str| kind.verbs.iter().any(|it| it == verb);
    let below = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let plural = &kind.plural;
    let (collection, item) = (format!("{below}/{plural}"), format!("{below}/{plural}/{{name}}"));

    if kind.group.stem.is_empty() {
        add("/api/".to_owned(), PathKind::Versions);
    } else {
        add("/apis/".to_owned(), PathKind::Groups);
        add(format!("/apis/{}/", kind.group.full(source.dialect.api_domain)), PathKind::Group);
    }
    add(format!("{root}/"), PathKind::Resources);
    if has("list") || has("create") || has("deletecollection") {
        add(format!("{root}{collection}"), PathKind::Collection);
    }
    if kind.namespaced && has("list") {
        add(format!("{root}/{plural}"), PathKind::AllNamespaces);
    }
    if has("get") || has("update") || has("patch") || has("delete") {
        add(format!("{root}{item}"), PathKind::Item);
    }
    if has("watch") {
        add(format!("{root}/watch{collection}"), PathKind::WatchCollection);
        add(format!("{root}/watch{item}"), PathKind::WatchItem);
        if kind.namespaced {
            add(format!("{root}/watch/{plural}"), PathKind::WatchAllNamespaces);
        }
    }
    for sub in kind.subresources.iter() {
        add(format!("{root}{item}/{}", sub.name), PathKind::Subresource(sub));
        if connects(sub) && sub.verbs.len() > 2 {
            add(format!("{root}{item}/{}/{{path}}", sub.name), PathKind::Beyond(sub));
        }
    }
}

/// A subresource whose body is options only is a connection to something behind the object.
fn connects(sub: &Subresource) -> bool {
    sub.kind.ends_with("Options")
}

/// A path as a tree.
pub(super) fn render(source: &Source<'_>, flavour: Flavour, place: &Place<'_>) -> Value {
    let mut tree = Map::new();
    let mut operations = operations(source, place);
    let common = take_common(&mut operations);
    for operation in operations {
        tree.insert(operation.method, operation.render(source, flavour));
    }
    let mut parameters: Vec<Value> = common.iter().map(|name| query_parameter(flavour, name)).collect();
    if place.path.contains("/{name}") {
        parameters.push(path_parameter(flavour, "name", &format!("name of the {}", place.kind.name)));
    }
    if place.path.contains("/{namespace}") {
        parameters.push(path_parameter(flavour, "namespace", "namespace of the object"));
    }
    if place.path.contains("/{path}") {
        parameters.push(path_parameter(flavour, "path", "path to pass on"));
    }
    match place.what {
        PathKind::Resources | PathKind::Versions | PathKind::Groups | PathKind::Group => {}
        PathKind::Subresource(sub) | PathKind::Beyond(sub) if connects(sub) => {
            parameters.extend(options_of(source, flavour, place.kind, sub));
        }
        PathKind::Subresource(sub) => {
            parameters.push(query_parameter(flavour, "pretty"));
            if let Some(ty) = text_options(source, place.kind, sub) {
                let own = options(flavour, &ty);
                parameters.extend(own.into_iter().filter(|it| it.text(&["name"]) != "pretty"));
            }
        }
        _ => parameters.push(query_parameter(flavour, "pretty")),
    }
    if !parameters.is_empty() {
        parameters.sort_by(|a, b| a.text(&["name"]).cmp(b.text(&["name"])));
        tree.insert("parameters", parameters);
    }
    tree.into()
}

/// Removes the query parameters that all operations of a path share, to publish them once.
fn take_common(operations: &mut [Operation<'_>]) -> Vec<&'static str> {
    let Some((first, others)) = operations.split_first() else { return Vec::new() };
    let everywhere = |name: &&&str| others.iter().all(|it| it.query.contains(name));
    let common: Vec<&'static str> = first.query.iter().filter(everywhere).copied().collect();
    for operation in operations {
        operation.query.retain(|name| !common.contains(name));
    }
    common
}

/// The definitions that requests to these places speak of.
pub(super) fn wanted(source: &Source<'_>, places: &[Place<'_>]) -> BTreeSet<String> {
    let operations = places.iter().flat_map(|place| operations(source, place));
    operations.flat_map(|it| it.answer.into_iter().chain(it.body.map(|body| body.definition))).collect()
}

/// The options of a connection, which are sent in the query.
fn options_of(source: &Source<'_>, flavour: Flavour, kind: &Kind, sub: &Subresource) -> Vec<Value> {
    let found = body_kind(source, kind, sub)
        .map(|it| it.root.clone())
        .or_else(|| (source.find_type)(kind.package(), &sub.kind));
    found.map(|ty| options(flavour, &ty)).unwrap_or_default()
}

fn options(flavour: Flavour, ty: &Type) -> Vec<Value> {
    let fields = ty.fields.iter().filter(|it| !matches!(&*it.name, "kind" | "apiVersion"));
    let scalars = fields.filter_map(|field| {
        let scalar = match &field.shape {
            Shape::Scalar(scalar) => *scalar,
            // a list is sent as the same parameter several times
            Shape::List(list) => match &list.item {
                Shape::Scalar(scalar) => *scalar,
                _ => return None,
            },
            _ => return None,
        };
        let kind = match scalar {
            Scalar::Bool => "boolean",
            Scalar::Int32 | Scalar::Int64 => "integer",
            // times are not sent this way
            Scalar::Time | Scalar::MicroTime => return None,
            _ => "string",
        };
        Some(parameter(flavour, &field.name, "query", kind, &field.doc))
    });
    scalars.collect()
}

/// The options of a plain-text subresource, such as logs.
fn text_options(source: &Source<'_>, kind: &Kind, sub: &Subresource) -> Option<Ref<Type>> {
    let plain = sub.kind == kind.name && sub.verbs.len() == 1 && sub.verbs[0] == "get";
    let name = format!("{}{}Options", kind.name, capitalized(&sub.name));
    if plain { (source.find_type)(kind.package(), &name) } else { None }
}

/// The kind that a subresource is represented by.
fn body_kind<'a>(source: &Source<'a>, kind: &Kind, sub: &Subresource) -> Option<&'a Kind> {
    let (group, version) = match &sub.group_version {
        Some((group, version)) => (group, version),
        None => (&kind.group, &kind.version),
    };
    let same = |it: &&&Kind| it.name == sub.kind && it.group == *group && it.version == *version;
    source.kinds.iter().find(same).copied()
}

fn operations<'a>(source: &Source<'_>, place: &Place<'a>) -> Vec<Operation<'a>> {
    let kind = place.kind;
    let maker = Maker { source, kind };
    let has = |verb: &str| kind.verbs.iter().any(|it| it == verb);
    let mut all = Vec::new();
    match place.what {
        PathKind::Versions => {
            all.push(maker.about(
                "getCoreAPIVersions",
                "core".to_owned(),
                "APIVersions",
                "list the versions",
            ));
        }
        PathKind::Groups => {
            all.push(maker.about("getAPIVersions", "apis".to_owned(), "APIGroupList", "list the groups"));
        }
        PathKind::Group => {
            let id = format!("get{}APIGroup", group_words(kind));
            all.push(maker.about(&id, group_tag(kind), "APIGroup", "list the versions of the group"));
        }
        PathKind::Resources => all.push(maker.resources()),
        PathKind::Collection => {
            if has("list") {
                all.push(maker.list(maker.scope(), ""));
            }
            if has("create") {
                all.push(maker.write("post", maker.own(), ""));
            }
            if has("deletecollection") {
                all.push(maker.delete_collection());
            }
        }
        PathKind::AllNamespaces => all.push(maker.list("", "ForAllNamespaces")),
        PathKind::Item => maker.item(&kind.verbs, &maker.own(), "", &mut all),
        PathKind::Subresource(sub) if connects(sub) => all.extend(maker.connect(sub, "")),
        PathKind::Beyond(sub) => all.extend(maker.connect(sub, "WithPath")),
        PathKind::Subresource(sub) => {
            let body_type = maker.body_type(sub);
            let text = text_options(source, kind, sub).is_some();
            maker.item(&sub.verbs, &body_type, &capitalized(&sub.name), &mut all);
            if sub.verbs.iter().any(|verb| verb == "create") {
                all.push(maker.write("post", body_type, &capitalized(&sub.name)));
            }
            if text {
                for it in &mut all {
                    (it.answer, it.text) = (None, true);
                }
            }
        }
        PathKind::WatchCollection => all.push(maker.watch("watchlist", maker.scope(), "List")),
        PathKind::WatchAllNamespaces => all.push(maker.watch("watchlist", "", "ListForAllNamespaces")),
        PathKind::WatchItem => all.push(maker.watch("watch", maker.scope(), "")),
    }
    all
}

/// The body of an operation: its definition, and its group, version and kind.
#[derive(Clone)]
struct BodyType {
    definition: String,
    gvk: Value,
    name: String,
}

struct Maker<'m, 'a> {
    source: &'m Source<'m>,
    kind: &'a Kind,
}

impl<'a> Maker<'_, 'a> {
    /// The discovery paths of groups and versions.
    fn about(&self, id: &str, tag: String, answer: &str, description: &str) -> Operation<'a> {
        let mut it = self.operation("get", "", id.to_owned(), self.own());
        it.description = description.to_owned();
        it.answer = (self.source.find_type)(META, answer).map(|ty| self.source.type_name(&ty));
        it.tag = tag;
        it
    }

    fn own(&self) -> BodyType {
        let kind = self.kind;
        let gvk = self.source.gvk(&kind.group, &kind.version, &kind.name);
        BodyType { definition: self.source.kind_name(kind, ""), gvk, name: kind.name.to_string() }
    }

    fn body_type(&self, sub: &Subresource) -> BodyType {
        if sub.kind == self.kind.name && sub.group_version.is_none() {
            return self.own();
        }
        if let Some(kind) = body_kind(self.source, self.kind, sub) {
            return Maker { source: self.source, kind }.own();
        }
        let (group, version) = match &sub.group_version {
            Some((group, version)) => (group, version),
            None => (&self.kind.group, &self.kind.version),
        };
        let gvk = self.source.gvk(group, version, &sub.kind);
        // a definition that is not there would break readers; the object's own is the nearest
        let found = (self.source.find_type)(self.kind.package(), &sub.kind);
        let definition = found.map_or_else(|| self.own().definition, |ty| self.source.type_name(&ty));
        BodyType { definition, gvk, name: sub.kind.to_string() }
    }

    fn scope(&self) -> &'static str {
        if self.kind.namespaced { "Namespaced" } else { "" }
    }

    /// `list` + `CoreV1` + `Namespaced` + `Pod` + suffix.
    fn id(&self, verb: &str, scope: &str, suffix: &str) -> String {
        let version = capitalized(&self.kind.version);
        format!("{verb}{}{version}{scope}{}{suffix}", group_words(self.kind), self.kind.name)
    }

    fn operation(
        &self,
        method: &'static str,
        action: &'static str,
        id: String,
        body_type: BodyType,
    ) -> Operation<'a> {
        Operation {
            method,
            action,
            id,
            description: format!("{action} {}", body_type.name),
            kind: self.kind,
            gvk: body_type.gvk,
            query: Vec::new(),
            body: None,
            answer: Some(body_type.definition),
            codes: &[200],
            streams: false,
            tag: version_tag(self.kind),
            text: false,
        }
    }

    fn resources(&self) -> Operation<'a> {
        let version = capitalized(&self.kind.version);
        let id = format!("get{}{version}APIResources", group_words(self.kind));
        let mut it = self.operation("get", "", id, self.own());
        it.description = "list the resources of this group and version".to_owned();
        it.answer = (self.source.find_type)(META, "APIResourceList").map(|ty| self.source.type_name(&ty));
        it
    }

    fn list(&self, scope: &str, suffix: &str) -> Operation<'a> {
        let mut it = self.operation("get", "list", self.id("list", scope, suffix), self.own());
        it.description = format!("list or watch {}", self.kind.plural);
        it.answer = Some(self.source.kind_name(self.kind, "List"));
        it.query = LIST_QUERY.to_vec();
        it.streams = true;
        it
    }

    fn watch(&self, action: &'static str, scope: &str, suffix: &str) -> Operation<'a> {
        let mut it = self.operation("get", action, self.id("watch", scope, suffix), self.own());
        it.description = format!("watch {}; a list with the watch parameter does the same", self.kind.plural);
        it.answer = Some(shared(self.source, "WatchEvent"));
        it.query = LIST_QUERY.to_vec();
        it.streams = true;
        it
    }

    fn delete_collection(&self) -> Operation<'a> {
        let version = capitalized(&self.kind.version);
        let (group, scope, name) = (group_words(self.kind), self.scope(), &self.kind.name);
        let id = format!("delete{group}{version}Collection{scope}{name}");
        let mut it = self.operation("delete", "deletecollection", id, self.own());
        it.description = format!("delete all selected {}", self.kind.plural);
        it.query = DELETE_COLLECTION_QUERY.to_vec();
        it.body = self.delete_options();
        it.answer = Some(shared(self.source, "Status"));
        it
    }

    fn delete_options(&self) -> Option<Body> {
        let definition = shared(self.source, "DeleteOptions");
        Some(Body { definition, required: false, patch: false })
    }

    /// `post` or `put`.
    fn write(&self, method: &'static str, body_type: BodyType, suffix: &str) -> Operation<'a> {
        let (verb, codes): (_, &[u16]) =
            if method == "post" { ("create", &[200, 201, 202]) } else { ("replace", &[200, 201]) };
        let body = Body { definition: body_type.definition.clone(), required: true, patch: false };
        let mut it = self.operation(method, method, self.id(verb, self.scope(), suffix), body_type);
        it.description = format!("{verb} {}", self.kind.name);
        (it.query, it.codes, it.body) = (WRITE_QUERY.to_vec(), codes, Some(body));
        it
    }

    /// The operations of one object, or of a subresource of it.
    fn item(
        &self,
        verbs: &[crate::table::Text],
        body_type: &BodyType,
        suffix: &str,
        all: &mut Vec<Operation<'a>>,
    ) {
        for verb in verbs {
            all.push(match &**verb {
                "get" => {
                    let mut it = self.operation(
                        "get",
                        "get",
                        self.id("read", self.scope(), suffix),
                        body_type.clone(),
                    );
                    it.description = format!("read {}", self.kind.name);
                    it
                }
                "update" => self.write("put", body_type.clone(), suffix),
                "patch" => {
                    let mut it = self.operation(
                        "patch",
                        "patch",
                        self.id("patch", self.scope(), suffix),
                        body_type.clone(),
                    );
                    let body = Body { definition: shared(self.source, "Patch"), required: true, patch: true };
                    it.description = format!("change {} in part", self.kind.name);
                    (it.query, it.codes, it.body) = (PATCH_QUERY.to_vec(), &[200, 201], Some(body));
                    it
                }
                "delete" => {
                    let mut it = self.operation(
                        "delete",
                        "delete",
                        self.id("delete", self.scope(), suffix),
                        body_type.clone(),
                    );
                    if !(self.source.deletes_object)(self.kind) {
                        it.answer = Some(shared(self.source, "Status"));
                    }
                    (it.query, it.codes, it.body) =
                        (DELETE_QUERY.to_vec(), &[200, 202], self.delete_options());
                    it
                }
                _ => continue,
            });
        }
    }

    fn connect(&self, sub: &Subresource, suffix: &str) -> Vec<Operation<'a>> {
        let body_type = self.body_type(sub);
        let (group, version) = (group_words(self.kind), capitalized(&self.kind.version));
        let (scope, name, part) = (self.scope(), &self.kind.name, capitalized(&sub.name));
        let methods = sub.verbs.iter().filter_map(|verb| match &**verb {
            "get" => Some(("get", "Get")),
            "create" => Some(("post", "Post")),
            "update" => Some(("put", "Put")),
            "patch" => Some(("patch", "Patch")),
            "delete" => Some(("delete", "Delete")),
            _ => None,
        });
        // whole objects are sent in these formats too
        let whole: &[_] = if sub.verbs.len() > 2 { &[("head", "Head"), ("options", "Options")] } else { &[] };
        methods
            .chain(whole.iter().copied())
            .map(|(method, word)| {
                let id = format!("connect{group}{version}{word}{scope}{name}{part}{suffix}");
                let mut it = self.operation(method, "connect", id, body_type.clone());
                it.description = format!("connect to {} of {}", sub.name, self.kind.name);
                it.answer = None;
                it
            })
            .collect()
    }
}
