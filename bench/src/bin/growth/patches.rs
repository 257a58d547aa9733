//! Shapes of changes: updates, patches of each kind, and applies.

use super::shapes::{MAPS, MERGE, PODS, SIZE, around, entries, env, items, object, pod};
use super::{Call, Shape};
use http::Method;
use serde_json::{Map, Value, json};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub fn all() -> Vec<Shape> {
    let mut shapes = merges();
    shapes.extend(json_patches());
    shapes.extend(applies());
    shapes
}

fn merges() -> Vec<Shape> {
    let data = |size: usize, text: &'static str| {
        let mut map = json!({ "metadata": { "name": "m" } });
        map["data"] = entries(size, |_| json!(text));
        map
    };
    let patch = |patch: &Value, kind| Call::json(Method::PATCH, "?fieldManager=second", patch).of_type(kind);
    let on_map = move |kind: &'static str, change: fn(usize) -> Value| {
        move |size: usize| around(MAPS, &data(size, "old"), patch(&change(size), kind))
    };
    let on_pod = move |change: fn(usize) -> Value| {
        move |size: usize| {
            let change = json!({ "spec": { "containers": [change(size)] } });
            let call = Call::json(Method::PATCH, "?dryRun=All", &change).of_type(STRATEGIC);
            around(PODS, &pod("p", env(size, "old")), call)
        }
    };
    let finalizers = move |change: fn(usize) -> Value| {
        move |size: usize| {
            let before =
                object("m", json!({ "finalizers": items(size, |nth| json!(format!("a.b/f{nth}"))) }));
            let mut probe = around(MAPS, &before, patch(&json!({ "metadata": change(size) }), STRATEGIC));
            let none = json!({ "metadata": { "finalizers": null } });
            probe.after.insert(0, Call::json(Method::PATCH, format!("{MAPS}/m"), &none).of_type(MERGE));
            probe
        }
    };
    let update = move |size: usize| {
        around(MAPS, &data(size, "old"), Call::json(Method::PUT, "?fieldManager=second", &data(size, "new")))
    };
    let update_pod = |size: usize| {
        let (before, after) = (pod("p", env(size, "old")), pod("p", env(size, "new")));
        around(PODS, &before, Call::json(Method::PUT, "?dryRun=All", &after))
    };
    vec![
        Shape::new("update of a map", SIZE, update),
        Shape::new("update of a pod", SIZE, update_pod),
        Shape::new(
            "merge patch changes",
            SIZE,
            on_map(MERGE, |size: usize| json!({ "data": entries(size, |_| json!("new")) })),
        ),
        Shape::new(
            "merge patch deletes",
            SIZE,
            on_map(MERGE, |size: usize| json!({ "data": entries(size, |_| Value::Null) })),
        ),
        Shape::new(
            "merge patch adds",
            SIZE,
            on_map(MERGE, |size: usize| {
                let new = (0..size).map(|nth| (format!("a{}", 100_000 - nth), json!("new")));
                json!({ "data": new.collect::<Map<_, _>>() })
            }),
        ),
        Shape::new(
            "merge patch unknown fields",
            SIZE,
            on_map(MERGE, |size: usize| entries(size, |_| json!("new"))),
        ),
        Shape::new(
            "strategic patch changes",
            SIZE,
            on_map(STRATEGIC, |size: usize| json!({ "data": entries(size, |_| json!("new")) })),
        ),
        Shape::new(
            "strategic patch deletes",
            SIZE,
            on_map(STRATEGIC, |size: usize| json!({ "data": entries(size, |_| Value::Null) })),
        ),
        Shape::new(
            "strategic patch unknown fields",
            SIZE,
            on_map(STRATEGIC, |size: usize| entries(size, |_| json!("new"))),
        ),
        Shape::new(
            "strategic retain keys",
            SIZE,
            on_map(STRATEGIC, |size: usize| {
                let mut data = entries(size, |_| json!("new"));
                data["$retainKeys"] = items(size, |nth| json!(format!("key-{nth}")));
                json!({ "data": data })
            }),
        ),
        Shape::new(
            "strategic additions beside removals",
            SIZE,
            on_map(STRATEGIC, |size: usize| {
                let mut data = entries(size, |_| Value::Null);
                for nth in 0..size {
                    data[format!("added-{nth}")] = json!("new");
                }
                json!({ "data": data })
            }),
        ),
        Shape::new(
            "strategic list changes",
            SIZE,
            on_pod(|size: usize| {
                let mut change = env(size, "new");
                change["name"] = json!("main");
                change
            }),
        ),
        Shape::new(
            "strategic list changes of another type",
            SIZE,
            on_pod(|size: usize| {
                let change = |nth: usize| json!({ "name": format!("N{nth}"), "value": { "x": null } });
                json!({ "name": "main", "env": items(size, change) })
            }),
        ),
        Shape::new(
            "strategic list deletes",
            SIZE,
            on_pod(|size: usize| {
                let gone = |nth: usize| json!({ "name": format!("N{nth}"), "$patch": "delete" });
                json!({ "name": "main", "env": items(size, gone) })
            }),
        ),
        Shape::new(
            "strategic list order",
            SIZE,
            on_pod(|size: usize| {
                let order = items(size, |nth| json!({ "name": format!("N{}", size - nth) }));
                json!({ "name": "main", "$setElementOrder/env": order, "env": [] })
            }),
        ),
        Shape::new(
            "strategic list adds in another order",
            SIZE,
            on_pod(|size: usize| {
                let order = items(2 * size, |nth| json!({ "name": format!("N{}", 2 * size - nth - 1) }));
                let mut change = env(2 * size, "new");
                change["name"] = json!("main");
                change["$setElementOrder/env"] = order;
                change
            }),
        ),
        Shape::new(
            "strategic primitives add",
            SIZE,
            finalizers(
                |size: usize| json!({ "finalizers": items(size, |nth| json!(format!("a.b/g{nth}"))) }),
            ),
        ),
        Shape::new(
            "strategic primitives delete",
            SIZE,
            finalizers(
                |size: usize| json!({ "$deleteFromPrimitiveList/finalizers": items(size, |nth| json!(format!("a.b/f{nth}"))) }),
            ),
        ),
        Shape::new(
            "strategic primitives order",
            SIZE,
            finalizers(|size: usize| {
                let order = items(size, |nth| json!(format!("a.b/f{}", size - nth - 1)));
                json!({ "$setElementOrder/finalizers": order, "finalizers": order })
            }),
        ),
    ]
}

/// What is put before others in a list or a map moves them aside, which a patch may do only so often.
fn json_patches() -> Vec<Shape> {
    let on_map = |operation: fn(usize, usize) -> Value| {
        move |size: usize| {
            let mut before =
                object("m", json!({ "finalizers": items(size, |nth| json!(format!("a.b/f{nth}"))) }));
            before["data"] = entries(size, |_| json!("old"));
            let patch = items(size, |nth| operation(nth, size));
            let call = Call::json(Method::PATCH, "?dryRun=All", &patch).of_type(PATCH);
            let mut probe = around(MAPS, &before, call);
            let none = json!({ "metadata": { "finalizers": null } });
            probe.after.insert(0, Call::json(Method::PATCH, format!("{MAPS}/m"), &none).of_type(MERGE));
            probe
        }
    };
    vec![
        Shape::new(
            "json patch adds keys",
            SIZE,
            on_map(
                |nth, _| json!({ "op": "add", "path": format!("/data/a{}", 100_000 - nth), "value": "new" }),
            ),
        )
        .bounded(),
        Shape::new(
            "json patch replaces keys",
            SIZE,
            on_map(|nth, _| json!({ "op": "replace", "path": format!("/data/key-{nth}"), "value": "new" })),
        ),
        Shape::new(
            "json patch removes keys",
            SIZE,
            on_map(|nth, _| json!({ "op": "remove", "path": format!("/data/key-{nth}") })),
        )
        .bounded(),
        Shape::new(
            "json patch tests keys",
            SIZE,
            on_map(|nth, _| json!({ "op": "test", "path": format!("/data/key-{nth}"), "value": "old" })),
        ),
        Shape::new(
            "json patch tests everything",
            SIZE,
            on_map(
                |nth, _| json!({ "op": "test", "path": if nth == 0 { "/metadata/name" } else { "/data/key-1" }, "value": if nth == 0 { "m" } else { "old" } }),
            ),
        ),
        Shape::new(
            "json patch appends items",
            SIZE,
            on_map(
                |nth, _| json!({ "op": "add", "path": "/metadata/finalizers/-", "value": format!("a.b/g{nth}") }),
            ),
        ),
        Shape::new(
            "json patch puts items first",
            SIZE,
            on_map(
                |nth, _| json!({ "op": "add", "path": "/metadata/finalizers/0", "value": format!("a.b/g{nth}") }),
            ),
        )
        .bounded(),
        Shape::new(
            "json patch removes first items",
            SIZE,
            on_map(|_, _| json!({ "op": "remove", "path": "/metadata/finalizers/0" })),
        )
        .bounded(),
        Shape::new(
            "json patch moves items",
            SIZE,
            on_map(
                |_, size| json!({ "op": "move", "from": format!("/metadata/finalizers/{}", size - 1), "path": "/metadata/finalizers/0" }),
            ),
        )
        .bounded(),
        Shape::new(
            "json patch copies keys",
            SIZE,
            on_map(
                |nth, _| json!({ "op": "copy", "from": format!("/data/key-{nth}"), "path": format!("/data/copy-{nth}") }),
            ),
        )
        .bounded(),
    ]
}

fn applies() -> Vec<Shape> {
    let data = |size: usize, text: &'static str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": entries(size, |_| json!(text)) });
    let apply = |body: &Value, query: &str| Call::json(Method::PATCH, query, body).of_type(APPLY);
    let with_kind = |mut it: Value| {
        it["apiVersion"] = json!("v1");
        it["kind"] = json!("Pod");
        it
    };
    let forced = "?fieldManager=second&force=true";
    let applied = move |first: usize, second: usize| {
        move |size: usize| {
            let mut probe =
                around(MAPS, &data(first * size + 1, "old"), apply(&data(second * size, "new"), forced));
            let path = format!("{MAPS}/m?fieldManager=second");
            probe.before = vec![Call { path, ..apply(&data(first * size + 1, "old"), "") }];
            probe
        }
    };
    let create = move |size: usize| {
        let mut probe = around(MAPS, &data(size, "new"), apply(&data(size, "new"), forced));
        probe.before.clear();
        probe
    };
    let conflicts = move |size: usize| {
        around(MAPS, &data(size, "old"), apply(&data(size, "new"), "?fieldManager=second"))
    };
    let pods = move |size: usize| {
        let change = with_kind(pod("p", env(size, "new")));
        around(
            PODS,
            &pod("p", env(size, "old")),
            apply(&change, "?fieldManager=second&force=true&dryRun=All"),
        )
    };
    let repeats = move |size: usize| {
        let mut change = env(size, "new");
        change["env"] = items(size, |nth| json!({ "name": format!("N{}", nth / 2), "value": "x" }));
        let change = with_kind(pod("p", change));
        around(
            PODS,
            &pod("p", env(size, "old")),
            apply(&change, "?fieldManager=second&force=true&dryRun=All"),
        )
    };
    let set = move |size: usize| {
        let map = |letter: &str, size: usize| {
            let mut it = data(1, "x");
            it["metadata"]["finalizers"] = items(size, |nth| json!(format!("a.b/{letter}{nth}")));
            it
        };
        let call = apply(&map("f", size / 2), "?fieldManager=second&force=true&dryRun=All");
        let mut probe = around(MAPS, &map("f", size), call);
        let none = json!({ "metadata": { "finalizers": null } });
        probe.after.insert(0, Call::json(Method::PATCH, format!("{MAPS}/m"), &none).of_type(MERGE));
        probe
    };
    // as many appliers, of whom each owns a field that is then changed
    let owners = move |size: usize| {
        let entry = |nth: usize| {
            json!({ "manager": format!("m{nth}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2020-01-01T00:00:00Z", "fieldsV1": { "f:data": { format!("f:key-{nth}"): {} } } })
        };
        let mut before = data(size, "old");
        before["metadata"]["managedFields"] = items(size, entry);
        around(MAPS, &before, apply(&data(size, "new"), forced))
    };
    vec![
        Shape::new("apply over many appliers", SIZE, owners),
        Shape::new("apply creates", SIZE, create),
        Shape::new("apply changes", SIZE, applied(1, 1)),
        Shape::new("apply gives up", SIZE, applied(2, 1)),
        Shape::new("apply conflicts", SIZE, conflicts),
        Shape::new("apply takes items", SIZE, pods),
        Shape::new("apply repeats items", SIZE, repeats),
        Shape::new("apply set of items", SIZE, set),
    ]
}
