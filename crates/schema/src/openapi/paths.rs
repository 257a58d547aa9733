//! Paths: what can be asked for where.

use super::operations::{
    Body, DELETE_COLLECTION_QUERY, DELETE_QUERY, LIST_QUERY, Operation, PATCH_QUERY, WRITE_QUERY,
    capitalized, group_words, path_parameter, query_parameter, shared,
};
use super::{Flavour, META, Source, root_path};
use crate::table::{Kind, Subresource};
use crate::value::{Map, Value};

/// One path and what is there.
pub(super) struct Place<'a> {
    pub path: String,
    kind: &'a Kind,
    what: What<'a>,
}

#[derive(Clone, Copy)]
enum What<'a> {
    /// The list of a group's resources.
    Resources,
    Collection,
    AllNamespaces,
    Item,
    Subresource(&'a Subresource),
    /// Below a connection, where the path is passed on.
    Beyond(&'a Subresource),
    WatchCollection,
    WatchAllNamespaces,
    WatchItem,
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

    add(format!("{root}/"), What::Resources);
    if has("list") || has("create") || has("deletecollection") {
        add(format!("{root}{collection}"), What::Collection);
    }
    if kind.namespaced && has("list") {
        add(format!("{root}/{plural}"), What::AllNamespaces);
    }
    if has("get") || has("update") || has("patch") || has("delete") {
        add(format!("{root}{item}"), What::Item);
    }
    if has("watch") {
        add(format!("{root}/watch{collection}"), What::WatchCollection);
        add(format!("{root}/watch{item}"), What::WatchItem);
        if kind.namespaced {
            add(format!("{root}/watch/{plural}"), What::WatchAllNamespaces);
        }
    }
    for sub in kind.subresources.iter() {
        add(format!("{root}{item}/{}", sub.name), What::Subresource(sub));
        if connects(sub) && sub.verbs.len() > 2 {
            add(format!("{root}{item}/{}/{{path}}", sub.name), What::Beyond(sub));
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
    for operation in operations(source, place) {
        tree.insert(operation.method, operation.render(source, flavour));
    }
    let mut parameters = Vec::new();
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
        What::Resources => {}
        What::WatchCollection | What::WatchAllNamespaces | What::WatchItem => {
            parameters.extend(LIST_QUERY.iter().map(|name| query_parameter(flavour, name)));
            parameters.push(query_parameter(flavour, "pretty"));
        }
        What::Subresource(sub) | What::Beyond(sub) if connects(sub) => {
            parameters.extend(
                options_of(source, place.kind, sub).iter().map(|name| query_parameter(flavour, name)),
            );
        }
        _ => parameters.push(query_parameter(flavour, "pretty")),
    }
    if !parameters.is_empty() {
        tree.insert("parameters", parameters);
    }
    tree.into()
}

/// The options of a connection, which are sent in the query.
fn options_of(source: &Source<'_>, kind: &Kind, sub: &Subresource) -> Vec<String> {
    let found = body_kind(source, kind, sub)
        .map(|it| it.root.clone())
        .or_else(|| (source.find_type)(&kind.root.package, &sub.kind));
    let fields = found.iter().flat_map(|ty| ty.fields.iter());
    fields.map(|it| it.name.to_string()).filter(|name| name != "kind" && name != "apiVersion").collect()
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
        What::Resources => all.push(maker.resources()),
        What::Collection => {
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
        What::AllNamespaces => all.push(maker.list("", "ForAllNamespaces")),
        What::Item => maker.item(&kind.verbs, &maker.own(), "", &mut all),
        What::Subresource(sub) if connects(sub) => all.extend(maker.connect(sub, "")),
        What::Beyond(sub) => all.extend(maker.connect(sub, "WithPath")),
        What::Subresource(sub) => {
            let travels = maker.travels(sub);
            maker.item(&sub.verbs, &travels, &capitalized(&sub.name), &mut all);
            if sub.verbs.iter().any(|verb| verb == "create") {
                all.push(maker.write("post", travels, &capitalized(&sub.name)));
            }
        }
        What::WatchCollection => all.push(maker.watch("watchlist", maker.scope(), "List")),
        What::WatchAllNamespaces => all.push(maker.watch("watchlist", "", "ListForAllNamespaces")),
        What::WatchItem => all.push(maker.watch("watch", maker.scope(), "")),
    }
    all
}

/// What travels: its definition, and its group, version and kind.
#[derive(Clone)]
struct Travels {
    definition: String,
    gvk: Value,
    name: String,
}

struct Maker<'m, 'a> {
    source: &'m Source<'m>,
    kind: &'a Kind,
}

impl<'a> Maker<'_, 'a> {
    fn own(&self) -> Travels {
        let kind = self.kind;
        let gvk = self.source.gvk(&kind.group, &kind.version, &kind.name);
        Travels { definition: self.source.kind_name(kind, ""), gvk, name: kind.name.to_string() }
    }

    fn travels(&self, sub: &Subresource) -> Travels {
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
        let found = (self.source.find_type)(&self.kind.root.package, &sub.kind);
        let definition = found.map_or_else(|| self.own().definition, |ty| self.source.type_name(&ty));
        Travels { definition, gvk, name: sub.kind.to_string() }
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
        travels: Travels,
    ) -> Operation<'a> {
        Operation {
            method,
            action,
            id,
            description: format!("{action} {}", travels.name),
            kind: self.kind,
            gvk: travels.gvk,
            query: &[],
            body: None,
            answer: Some(travels.definition),
            codes: &[200],
            streams: false,
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
        it.query = LIST_QUERY;
        it.streams = true;
        it
    }

    fn watch(&self, action: &'static str, scope: &str, suffix: &str) -> Operation<'a> {
        let mut it = self.operation("get", action, self.id("watch", scope, suffix), self.own());
        it.description = format!("watch {}; a list with the watch parameter does the same", self.kind.plural);
        it.answer = Some(shared(self.source, "WatchEvent"));
        it.streams = true;
        it
    }

    fn delete_collection(&self) -> Operation<'a> {
        let version = capitalized(&self.kind.version);
        let (group, scope, name) = (group_words(self.kind), self.scope(), &self.kind.name);
        let id = format!("delete{group}{version}Collection{scope}{name}");
        let mut it = self.operation("delete", "deletecollection", id, self.own());
        it.description = format!("delete all selected {}", self.kind.plural);
        it.query = DELETE_COLLECTION_QUERY;
        it.body = self.delete_options();
        it.answer = Some(shared(self.source, "Status"));
        it
    }

    fn delete_options(&self) -> Option<Body> {
        let definition = shared(self.source, "DeleteOptions");
        Some(Body { definition, required: false, patch: false })
    }

    /// `post` or `put`.
    fn write(&self, method: &'static str, travels: Travels, suffix: &str) -> Operation<'a> {
        let (verb, codes): (_, &[u16]) =
            if method == "post" { ("create", &[200, 201, 202]) } else { ("replace", &[200, 201]) };
        let body = Body { definition: travels.definition.clone(), required: true, patch: false };
        let mut it = self.operation(method, method, self.id(verb, self.scope(), suffix), travels);
        it.description = format!("{verb} {}", self.kind.name);
        (it.query, it.codes, it.body) = (WRITE_QUERY, codes, Some(body));
        it
    }

    /// What can be done to one object, or to a subresource of it.
    fn item(
        &self,
        verbs: &[crate::table::Text],
        travels: &Travels,
        suffix: &str,
        all: &mut Vec<Operation<'a>>,
    ) {
        for verb in verbs {
            all.push(match &**verb {
                "get" => {
                    let mut it =
                        self.operation("get", "get", self.id("read", self.scope(), suffix), travels.clone());
                    it.description = format!("read {}", self.kind.name);
                    it
                }
                "update" => self.write("put", travels.clone(), suffix),
                "patch" => {
                    let mut it = self.operation(
                        "patch",
                        "patch",
                        self.id("patch", self.scope(), suffix),
                        travels.clone(),
                    );
                    let body = Body { definition: shared(self.source, "Patch"), required: true, patch: true };
                    it.description = format!("change {} in part", self.kind.name);
                    (it.query, it.codes, it.body) = (PATCH_QUERY, &[200, 201], Some(body));
                    it
                }
                "delete" => {
                    let mut it = self.operation(
                        "delete",
                        "delete",
                        self.id("delete", self.scope(), suffix),
                        travels.clone(),
                    );
                    it.answer = Some(shared(self.source, "Status"));
                    (it.query, it.codes, it.body) = (DELETE_QUERY, &[200, 202], self.delete_options());
                    it
                }
                _ => continue,
            });
        }
    }

    fn connect(&self, sub: &Subresource, suffix: &str) -> Vec<Operation<'a>> {
        let travels = self.travels(sub);
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
        methods
            .map(|(method, word)| {
                let id = format!("connect{group}{version}{word}{scope}{name}{part}{suffix}");
                let mut it = self.operation(method, "connect", id, travels.clone());
                it.description = format!("connect to {} of {}", sub.name, self.kind.name);
                it.answer = None;
                it
            })
            .collect()
    }
}
