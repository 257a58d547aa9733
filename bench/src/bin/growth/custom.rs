//! Shapes of custom resources and of their definitions: lists by key and of distinct items, schemas, expressions.

use super::shapes::{DEFINITIONS, TABLE, entries, items};
use super::{Call, Probe, Shape};
use http::Method;
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/growth.example.com/v1/namespaces/default/widgets";
const SIZE: usize = 250;

fn widget_schema() -> Value {
    let named = json!({ "type": "object", "required": ["name"],
        "properties": { "name": { "type": "string", "maxLength": 50 }, "value": { "type": "integer", "default": 1, "maximum": 5 } } });
    let mut ruled = named.clone();
    ruled["x-kubernetes-validations"] = json!([{ "rule": "self.name != 'x'" }]);
    let texts = json!({ "type": "string", "maxLength": 50 });
    json!({ "type": "object", "properties": {
        "byKey": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": named },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": texts },
        "atomic": { "type": "array", "items": named },
        "either": { "type": "array", "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "oneOf": [{ "required": ["a"] }, { "required": ["b"] }], "anyOf": [{ "required": ["a"] }, { "required": ["c"] }] } },
        "listed": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] } },
        "formats": { "type": "array", "items": { "type": "string", "format": "date-time", "pattern": "^a+$" } },
        "loose": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "values": { "type": "object", "additionalProperties": named },
        "ruled": { "type": "array", "maxItems": 4000, "items": ruled,
            "x-kubernetes-validations": [{ "rule": "self.all(x, x.name != 'y')" }] },
        "embedded": { "type": "array", "items": { "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true } },
    } })
}

fn definition(plural: &str, kind: &str, schema: &Value) -> Value {
    json!({ "metadata": { "name": format!("{plural}.growth.example.com") }, "spec": {
        "group": "growth.example.com", "scope": "Namespaced",
        "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
        "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
            "additionalPrinterColumns": [
                { "name": "all", "type": "string", "jsonPath": ".byKey[*].name" },
                { "name": "some", "type": "string", "jsonPath": ".byKey[?(@.name==\"n1\")].value" },
            ] }] } })
}

pub fn fixtures() -> Vec<Call> {
    vec![Call::json(Method::POST, &**DEFINITIONS, &definition("widgets", "Widget", &widget_schema()))]
}

fn widget(field: &str, value: Value) -> Value {
    let mut it =
        json!({ "apiVersion": "growth.example.com/v1", "kind": "Widget", "metadata": { "name": "w" } });
    it[field] = value;
    it
}

pub fn all() -> Vec<Shape> {
    let mut shapes = widgets();
    shapes.extend(definitions());
    shapes
}

fn widgets() -> Vec<Shape> {
    type Item = fn(usize) -> Value;
    let named: Item = |nth| json!({ "name": format!("n{nth}") });
    let same: Item = |_| json!({ "name": "n", "value": 9, "unknown": true });
    let fields: &[(&'static str, Item)] = &[
        ("byKey", named),
        ("byKey", same),
        ("set", |nth| json!(format!("n{nth}"))),
        ("set", |_| json!("n")),
        ("atomic", named),
        ("atomic", same),
        ("either", |nth| json!({ "a": nth })),
        ("either", |nth| json!({ "d": nth })),
        ("listed", |_| json!("a")),
        ("listed", |nth| json!(format!("n{nth}"))),
        ("formats", |nth| json!(format!("n{nth}"))),
        ("ruled", named),
        ("ruled", |_| json!({ "name": "x" })),
        (
            "embedded",
            |nth| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("n{nth}") } }),
        ),
        ("embedded", |_| json!({ "metadata": { "unknown": 1 } })),
    ];
    let mut shapes = Vec::new();
    for (nth, (field, item)) in fields.iter().copied().enumerate() {
        let create = move |size: usize| -> Probe {
            Call::json(Method::POST, format!("{WIDGETS}?dryRun=All"), &widget(field, items(size, item)))
                .into()
        };
        shapes.push(Shape::new(format!("custom {field} {nth} create"), SIZE, create));
        let update = move |size: usize| {
            let changed = items(size, |nth| item(nth + size / 2));
            let call = Call::json(Method::PATCH, "?dryRun=All", &widget(field, changed));
            around(widget(field, items(size, item)), call.of_type("application/merge-patch+json"))
        };
        shapes.push(Shape::new(format!("custom {field} {nth} merge"), SIZE, update));
        let apply = move |size: usize| {
            let changed = items(size, |nth| item(nth + size / 2));
            let call =
                Call::json(Method::PATCH, "?dryRun=All&fieldManager=b&force=true", &widget(field, changed));
            around(widget(field, items(size, item)), call.of_type("application/apply-patch+yaml"))
        };
        shapes.push(Shape::new(format!("custom {field} {nth} apply"), SIZE, apply));
    }
    let table = move |size: usize| {
        let mut probe = around(widget("byKey", items(size, named)), Call::new(Method::GET, "", Vec::new()));
        probe.call.accept = &TABLE;
        probe
    };
    shapes.push(Shape::new("custom table", SIZE, table));
    for (field, value) in [("loose", false), ("values", true), ("values", false)] {
        let create = move |size: usize| -> Probe {
            let entry =
                |nth: usize| if value { json!({ "name": format!("n{nth}") }) } else { json!({ "x": nth }) };
            let object = widget(field, entries(size, entry));
            Call::json(Method::POST, format!("{WIDGETS}?dryRun=All"), &object).into()
        };
        shapes.push(Shape::new(format!("custom {field} {value}"), SIZE, create));
    }
    for validation in ["Warn", "Strict", "Ignore"] {
        let unknown = move |size: usize| -> Probe {
            let mut object = entries(size, |nth| json!(nth));
            for (key, value) in [("apiVersion", "growth.example.com/v1"), ("kind", "Widget")] {
                object[key] = json!(value);
            }
            object["metadata"] = json!({ "name": "w" });
            let path = format!("{WIDGETS}?dryRun=All&fieldValidation={validation}");
            Call::json(Method::POST, path, &object).into()
        };
        shapes.push(Shape::new(format!("custom unknown fields {validation}"), 4 * SIZE, unknown));
    }
    shapes
}

fn around(object: Value, call: Call) -> Probe {
    Probe {
        before: vec![Call::json(Method::POST, format!("{WIDGETS}?fieldManager=a"), &object)],
        call: Call { path: format!("{WIDGETS}/w{}", call.path), ..call },
        after: vec![Call::new(Method::DELETE, format!("{WIDGETS}/w"), Vec::new())],
    }
}

fn definitions() -> Vec<Shape> {
    let with = |schema: fn(usize) -> Value| {
        move |size: usize| -> Probe {
            let it = definition("gadgets", "Gadget", &schema(size));
            Call::json(Method::POST, format!("{}?dryRun=All", *DEFINITIONS), &it).into()
        }
    };
    vec![
        Shape::new(
            "definition with properties",
            SIZE,
            with(
                |size: usize| json!({ "type": "object", "properties": entries(size, |_| json!({ "type": "string" })) }),
            ),
        ),
        Shape::new(
            "definition with required fields",
            SIZE,
            with(|size: usize| {
                json!({ "type": "object", "required": items(size, |nth| json!(format!("key-{nth}"))),
                "properties": entries(size, |_| json!({ "type": "string" })) })
            }),
        ),
        Shape::new(
            "definition with wrong properties",
            SIZE,
            with(
                |size: usize| json!({ "type": "object", "properties": entries(size, |_| json!({ "type": "nothing", "nullable": true })) }),
            ),
        ),
        Shape::new(
            "definition with alternatives",
            SIZE,
            with(|size: usize| {
                json!({ "type": "object", "properties": { "a": { "type": "string" } },
                "anyOf": items(size, |_| json!({ "required": ["a"] })) })
            }),
        ),
        Shape::new(
            "definition with an enumeration",
            SIZE,
            with(
                |size: usize| json!({ "type": "object", "properties": { "a": { "type": "string", "enum": items(size, |nth| json!(format!("v{nth}"))) } } }),
            ),
        ),
        Shape::new(
            "definition with list keys",
            SIZE,
            with(|size: usize| {
                let keys = items(size, |nth| json!(format!("key-{nth}")));
                json!({ "type": "object", "properties": { "a": { "type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": keys, "items": { "type": "object", "required": keys,
                    "properties": entries(size, |_| json!({ "type": "string" })) } } } })
            }),
        ),
        Shape::new(
            "definition with defaults",
            SIZE,
            with(
                |size: usize| json!({ "type": "object", "properties": entries(size, |_| json!({ "type": "string", "default": "x" })) }),
            ),
        ),
        Shape::new(
            "definition with rules",
            20,
            with(|size: usize| {
                let rule = |nth| json!({ "rule": format!("self.key0 != 'v{nth}'") });
                json!({ "type": "object", "properties": { "key0": { "type": "string", "maxLength": 10 } },
                "required": ["key0"], "x-kubernetes-validations": items(size, rule) })
            }),
        ),
        Shape::new(
            "definition with a long rule",
            20,
            with(|size: usize| {
                let terms: Vec<_> = (0..size).map(|nth| format!("self.key0 != 'v{nth}'")).collect();
                json!({ "type": "object", "properties": { "key0": { "type": "string", "maxLength": 10 } },
                "required": ["key0"], "x-kubernetes-validations": [{ "rule": terms.join(" && ") }] })
            }),
        ),
    ]
}
