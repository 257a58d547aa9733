//! A stand-in for the server: one object for each path, and the hooks in the server's order.

use super::Cause;
use crate::{
    core::node, core::persistentvolume, core::persistentvolumeclaim, core::pod, networking::ingress,
    scheduling::priorityclass,
};
use rest::hooks::{Context, Hooks, MetadataRules, replace};
use schema::problem::{Problem, Problems};
use schema::table::{Kind, Ref};
use schema::{Value, decode, defaults, encode, rules};
use std::collections::BTreeMap;

/// The response of a request.
#[derive(Default)]
pub(super) struct Answer {
    pub status: i64,
    pub message: String,
    pub causes: Vec<Cause>,
    pub body: Value,
    pub warnings: Vec<String>,
}

#[derive(Default)]
pub(super) struct Server {
    /// Stored objects by plural, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
}

/// Where a request goes.
struct Target {
    kind: Ref<Kind>,
    hooks: Hooks,
    namespace: String,
    name: String,
    subresource: String,
    dry_run: bool,
}

impl Target {
    fn parse(path: &str) -> Option<Target> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, version, mut rest) = match parts[..] {
            ["api", version, ..] => ("", version, &parts[2..]),
            ["apis", group, version, ..] => (group, version, &parts[3..]),
            _ => return None,
        };
        let mut namespace = "";
        if let ["namespaces", ns, more @ ..] = rest
            && more.first().is_some_and(|it| !matches!(*it, "status" | "finalize"))
        {
            (namespace, rest) = (*ns, more);
        }
        let plural = rest.first()?;
        let found = crate::builtin().into_iter().find(|(kind, _)| {
            kind.group.full("k8s.io") == group && kind.version == version && kind.plural == *plural
        });
        let (kind, hooks) = found?;
        Some(Target {
            kind,
            hooks,
            namespace: namespace.to_owned(),
            name: rest.get(1).copied().unwrap_or("").to_owned(),
            subresource: rest.get(2).copied().unwrap_or("").to_owned(),
            dry_run: query.contains("dryRun=All"),
        })
    }

    fn has_status(&self) -> bool {
        self.kind.subresources.iter().any(|it| it.name == "status")
    }

    fn key(&self, name: &str) -> (String, String, String) {
        (self.kind.plural.to_string(), self.namespace.clone(), name.to_owned())
    }

    fn default(&self, object: &mut Value) {
        defaults::apply(&self.kind.root, object);
        if let Some(default) = self.hooks.decode.default {
            default(object, &names::Names::kubernetes());
        }
    }

    fn served(&self, object: Value) -> Value {
        match self.hooks.storage.convert {
            Some(convert) => {
                let mut object = (convert.from_stored)(object);
                object.set(&["apiVersion"], "events.k8s.io/v1");
                object
            }
            None => object,
        }
    }

    fn to_stored(&self, object: Value) -> Value {
        match self.hooks.storage.convert {
            Some(convert) => {
                let mut object = (convert.to_stored)(object);
                object.set(&["apiVersion"], "v1");
                object
            }
            None => object,
        }
    }

    fn answer(&self, status: i64, object: &Value) -> Answer {
        let json = encode::json(object, &self.kind.root);
        let body = decode::json_untyped(&json).expect("our own JSON").value;
        Answer { status, body, ..Answer::default() }
    }
}

fn refused(problems: Problems) -> Answer {
    let cause = |it: Problem| (it.reason.name().to_owned(), it.field, it.message);
    Answer { status: 422, causes: problems.into_iter().map(cause).collect(), ..Answer::default() }
}

impl Server {
    /// Nothing when the stand-in cannot do it.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: Option<&Value>,
    ) -> Option<Answer> {
        let target = Target::parse(path)?;
        let header = |name: &str| headers.map_or("", |it| it.text(&[name]));
        match (method, body) {
            ("GET", _) if target.name.is_empty() => None,
            ("GET", _) => self.get(&target, header("Accept")),
            ("DELETE", _) => self.delete(&target),
            ("POST", Some(body)) if target.subresource.is_empty() => self.create(&target, body),
            ("PUT", Some(body)) => {
                let wanted = decode::tree(body.clone(), &target.kind.root).ok()?.value;
                self.update(&target, wanted)
            }
            ("PATCH", Some(patch)) if header("Content-Type") == "application/merge-patch+json" => {
                let old = target.served(self.objects.get(&target.key(&target.name))?.clone());
                let mut wanted = old;
                merge(&mut wanted, patch);
                let wanted = decode::tree(wanted, &target.kind.root).ok()?.value;
                self.update(&target, wanted)
            }
            _ => None,
        }
    }

    fn with_context<T>(&self, run: impl FnOnce(&Context<'_>) -> T) -> T {
        let lookup = |plural: &str, namespace: &str, name: &str| {
            let there = self.objects.get(&(plural.to_owned(), namespace.to_owned(), name.to_owned()));
            // every cluster has those
            let mut system = priorityclass::system_classes();
            let is = |class: &Value| plural == "priorityclasses" && class.text(&["metadata", "name"]) == name;
            there.cloned().or_else(|| system.find(is))
        };
        let list = |plural: &str, namespace: Option<&str>| {
            let fits = |key: &(String, String, String)| {
                key.0 == plural && namespace.is_none_or(|namespace| key.1 == namespace)
            };
            self.objects.iter().filter(|(key, _)| fits(key)).map(|(_, object)| object.clone()).collect()
        };
        let containing = |plural: &str, _: &str| list(plural, None);
        run(&Context { lookup: &lookup, list: &list, containing: &containing, ..crate::tests::context() })
    }

    fn get(&self, target: &Target, accept: &str) -> Option<Answer> {
        let object = target.served(self.objects.get(&target.key(&target.name))?.clone());
        if !accept.contains("as=Table") {
            return accept.is_empty().then(|| target.answer(200, &object));
        }
        let cells = (target.hooks.read.cells?)(&object, std::time::Duration::from_secs(1_700_000_000));
        let mut row = Value::map();
        row.set(&["cells"], cells);
        if target.kind.plural == "pods" && !crate::core::pod::columns::row_conditions(&object).is_empty() {
            row.set(&["conditions"], crate::core::pod::columns::row_conditions(&object));
        }
        let mut body = Value::map();
        body.set(&["rows"], vec![row]);
        Some(Answer { status: 200, body, ..Answer::default() })
    }

    fn delete(&mut self, target: &Target) -> Option<Answer> {
        let mut object = self.objects.get(&target.key(&target.name))?.clone();
        object.set(&["metadata", "deletionTimestamp"], "2020-01-01T00:00:00Z");
        if let Some(begin) = target.hooks.delete.begin {
            self.with_context(|context| begin(&mut object, context));
        }
        if let Some(grace) = target.hooks.delete.grace {
            object.set(&["metadata", "deletionGracePeriodSeconds"], grace(&object, None));
        }
        let answer = target.answer(200, &object);
        self.objects.insert(target.key(&target.name), object);
        Some(answer)
    }

    fn create(&mut self, target: &Target, body: &Value) -> Option<Answer> {
        let mut object = decode::tree(body.clone(), &target.kind.root).ok()?.value;
        if !target.namespace.is_empty() {
            object.set(&["metadata", "namespace"], target.namespace.as_str());
        }
        target.default(&mut object);
        if target.has_status() && !target.hooks.create.keeps_status {
            match target.kind.root.field("status").and_then(|(_, field)| decode::zero_when_absent(field)) {
                Some(empty) => object.set(&["status"], empty),
                None => {
                    object.unset(&["status"]);
                }
            }
        }
        let problems = self.with_context(|context| {
            admit(&target.kind.plural, &mut object, None, context)?;
            if let Some(prepare) = target.hooks.create.prepare {
                prepare(&mut object, context);
            }
            let first = target.hooks.create.validate_first;
            let mut problems = first.map(|it| it(&object, context)).unwrap_or_default();
            problems.extend(rules::check(&target.kind.root, &mut object));
            problems.extend(target.hooks.create.validate.map(|it| it(&object, context)).unwrap_or_default());
            Ok::<_, rest::error::ApiError>(problems)
        });
        self.finish(target, object, problems, 201)
    }

    fn update(&mut self, target: &Target, mut wanted: Value) -> Option<Answer> {
        let old = target.served(self.objects.get(&target.key(&target.name))?.clone());
        if !target.namespace.is_empty() {
            wanted.set(&["metadata", "namespace"], target.namespace.as_str());
        }
        target.default(&mut wanted);
        let part = match &*target.subresource {
            "" => None,
            name => Some(target.hooks.subresources.parts.iter().find(|it| it.name == name)?),
        };
        let mut object = wanted;
        let problems = self.with_context(|context| {
            match part {
                Some(part) => {
                    let mut next = old.clone();
                    (part.apply)(&mut next, &object, context);
                    object = next;
                }
                None => {
                    if target.has_status() {
                        replace(&mut object, &old, "status");
                    }
                    admit(&target.kind.plural, &mut object, Some(&old), context)?;
                    if let Some(prepare) = target.hooks.update.prepare {
                        prepare(&mut object, &old, context);
                    }
                }
            }
            let mut problems = rules::check(&target.kind.root, &mut object);
            problems.extend(rules::check_immutable(&target.kind.root, &old, &object));
            let (update, repeated) = (&target.hooks.update, target.hooks.write.repeated_metadata_errors);
            let times = repeated.0.iter().filter(|it| **it == MetadataRules::OfKind).count().max(1);
            let (check_state, check) = match part {
                Some(part) => (None, part.validate),
                None => (update.validate_state, update.validate),
            };
            for check in std::iter::repeat_n(check_state, times).chain([check]).flatten() {
                problems.extend(check(&object, &old, context));
            }
            Ok::<_, rest::error::ApiError>(problems)
        });
        self.finish(target, object, problems, 200)
    }

    fn finish(
        &mut self,
        target: &Target,
        object: Value,
        problems: Result<Problems, rest::error::ApiError>,
        status: i64,
    ) -> Option<Answer> {
        match problems {
            Err(why) => {
                return Some(Answer { status: why.code.into(), message: why.message, ..Answer::default() });
            }
            Ok(problems) if !problems.is_empty() => return Some(refused(problems)),
            Ok(_) => {}
        }
        let mut answer = target.answer(status, &object);
        answer.warnings = target.hooks.write.warn.map(|it| it(&object, None)).unwrap_or_default();
        if !target.dry_run {
            let name = object.text(&["metadata", "name"]).to_owned();
            self.objects.insert(target.key(&name), target.to_stored(object));
        }
        Some(answer)
    }
}

/// Applies the admission plugins that are enabled by default to an object.
fn admit(
    plural: &str,
    object: &mut Value,
    old: Option<&Value>,
    context: &Context<'_>,
) -> Result<(), rest::error::ApiError> {
    let mut why = Ok(());
    match (plural, old) {
        ("pods", None) => {
            let given = pod::admit::give_priority(object, context);
            pod::admit::tolerate_lost_nodes(object, pod::admit::TolerationSeconds::default(), context.names);
            let used = pod::admit::use_runtime(object, context);
            why = given.and(used).and_then(|()| pod::admit::check_runtime(object, context));
        }
        ("pods", Some(old)) => {
            pod::admit::keep_priority(object, old);
            pod::admit::tolerate_lost_nodes(object, pod::admit::TolerationSeconds::default(), context.names);
        }
        ("nodes", None) => node::taint_new(object, context.names),
        ("ingresses", None) => ingress::give_class(object, context),
        ("persistentvolumes", None) => persistentvolume::protect(object, context.names),
        ("persistentvolumeclaims", None) => {
            persistentvolumeclaim::give_class(object, context);
            persistentvolumeclaim::protect(object, context.names);
        }
        _ => {}
    }
    let name = object.text(&["metadata", "name"]);
    let subject = rest::error::Subject { group: "", kind: plural, name };
    why.map_err(|why| rest::error::ApiError::object_forbidden(subject, &why))
}

/// JSON merge patch.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Map(fields) = patch else {
        *value = patch.clone();
        return;
    };
    let map = value.make_map();
    for (key, change) in fields.iter() {
        match change {
            Value::Null => {
                map.remove(key);
            }
            change => merge(map.entry(key.to_owned()), change),
        }
    }
}
