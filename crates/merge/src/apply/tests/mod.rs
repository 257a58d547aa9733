//! Server-side apply over small hand-made types.

mod recorded;

use super::*;
use crate::managed::Write;
use crate::managed::tests::json;
use schema::Map;
use schema::table::{Field, ListKind, ListShape, Literal, MapShape, Ref, Scalar, Shape, Text, Type, Unknown};

fn string() -> Shape {
    Shape::Scalar(Scalar::String)
}

fn strings(atomic: bool) -> Shape {
    Shape::Map(MapShape { value: string(), atomic, nullable: false, open: false, default: None }.into())
}

fn list(item: Shape, kind: ListKind) -> Shape {
    Shape::List(ListShape { item, kind, default: None }.into())
}

fn by(keys: &[&'static str]) -> ListKind {
    ListKind::Map { keys: keys.iter().map(|key| Text::Borrowed(*key)).collect() }
}

fn kind(name: &'static str, mut fields: Vec<Field>) -> Type {
    let metadata = Type::new(
        "Meta",
        "x",
        vec![
            Field::new("name", string()),
            Field::new("labels", strings(false)),
            Field::new("annotations", strings(false)),
            Field::new("finalizers", list(string(), ListKind::Set)),
            Field::new("managedFields", list(Shape::Scalar(Scalar::Object), ListKind::Atomic)),
        ],
    );
    fields.push(Field::new("apiVersion", string()));
    fields.push(Field::new("kind", string()));
    fields.push(Field::new("metadata", Shape::Struct(metadata.into())));
    Type::new(name, "x", fields)
}

fn thing() -> Type {
    let protocol = Field { default: Some(Literal::Text("TCP".into())), ..Field::new("protocol", string()) };
    let port = Type::new(
        "Port",
        "x",
        vec![Field::new("port", Shape::Scalar(Scalar::Int32)), protocol, Field::new("name", string())],
    );
    let item = Type::new(
        "Item",
        "x",
        vec![
            Field::new("name", string()),
            Field::new("image", string()),
            Field::new("args", list(string(), ListKind::Atomic)),
            Field::new("ports", list(Shape::Struct(port.into()), by(&["port", "protocol"]))),
        ],
    );
    let open = Type { unknown: Unknown::Keep, ..Type::new("Open", "x", Vec::new()) };
    let spec = Type::new(
        "Spec",
        "x",
        vec![
            Field::new("replicas", Shape::Scalar(Scalar::Int32)),
            Field::new("paused", Shape::Scalar(Scalar::Bool)),
            Field::new("selector", strings(true)),
            Field::new("items", list(Shape::Struct(item.into()), by(&["name"]))),
            Field::new("free", Shape::Struct(open.into())),
        ],
    );
    let status = Type::new("Status", "x", vec![Field::new("phase", string())]);
    kind(
        "Thing",
        vec![
            Field::new("data", strings(false)),
            Field::new("spec", Shape::Struct(spec.into())),
            Field::new("status", Shape::Struct(status.into())),
        ],
    )
}

/// One object that several managers apply to in turn.
struct Story {
    ty: Type,
    reset: FieldSet,
    live: Option<Value>,
    second: u32,
    last_applied: Option<&'static str>,
}

impl Story {
    fn new() -> Story {
        Story { ty: thing(), reset: FieldSet::of(&[&["status"]]), live: None, second: 0, last_applied: None }
    }

    /// Starts with an object that a manager created by other means.
    fn created(manager: &str, object: &str) -> Story {
        let mut story = Story::new();
        let mut new = config(object);
        let write = Write {
            ty: &story.ty,
            manager,
            api_version: "v1",
            subresource: "",
            now: "00",
            reset: &story.reset,
            convert: None,
        };
        crate::managed::track(&write, None, &mut new);
        story.live = Some(new);
        story.second = 1;
        story
    }

    fn run(&mut self, manager: &str, text: &str, force: bool) -> Result<ApplyOutcome, ApplyError> {
        let now = format!("{:02}", self.second);
        self.second += 1;
        let write = ApplyWrite {
            ty: &self.ty,
            manager,
            api_version: "v1",
            subresource: "",
            now: &now,
            force,
            reset: &self.reset,
            convert: None,
            last_applied: self.last_applied,
        };
        let applied = apply(&write, self.live.as_ref(), &config(text))?;
        self.live = Some(applied.object.clone());
        Ok(applied)
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, text: &str) -> &mut Self {
        self.run(manager, text, false).unwrap();
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, text: &str) -> &mut Self {
        self.run(manager, text, true).unwrap();
        self
    }

    #[track_caller]
    fn refused(&mut self, manager: &str, text: &str, code: u16, message: &str) -> &mut Self {
        let why = self.run(manager, text, false).unwrap_err();
        assert_eq!((why.code(), &*why.to_string()), (code, message));
        self
    }

    /// The object without its name and entries.
    #[track_caller]
    fn is(&mut self, object: &str) -> &mut Self {
        let mut live = self.live.clone().unwrap();
        live.unset(&["metadata", "managedFields"]);
        assert_eq!(live, config(object));
        self
    }

    /// Manager, operation, time and fields of each entry.
    #[track_caller]
    fn owned(&mut self, entries: &[(&str, &str, &str)]) -> &mut Self {
        let live = self.live.clone().unwrap();
        let recorded = live.items(&["metadata", "managedFields"]).iter().map(|entry| {
            let operation = &entry.text(&["operation"])[..1];
            let who = format!("{} {operation}", entry.text(&["manager"]));
            (who, entry.text(&["time"]).to_owned(), schema::decode::open(entry.at(&["fieldsV1"]).unwrap()))
        });
        let expected = entries.iter().map(|(who, time, set)| (who.to_string(), time.to_string(), json(set)));
        assert_eq!(recorded.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        self
    }
}

/// A configuration with the common fields.
fn config(text: &str) -> Value {
    let mut config = json(text);
    for (path, value) in [(&["apiVersion"][..], "v1"), (&["kind"], "Thing"), (&["metadata", "name"], "o")] {
        if config.at(path).is_none() {
            config.set(path, value);
        }
    }
    config
}

#[test]
fn abandoned_fields_are_removed_unless_owned_by_others() {
    Story::new()
        .apply("a", r#"{"data":{"k":"v","a":"1"}}"#)
        .owned(&[("a A", "00", r#"{"f:data":{"f:a":{},"f:k":{}}}"#)])
        .apply("b", r#"{"data":{"k":"v","b":"1"}}"#)
        .is(r#"{"data":{"a":"1","b":"1","k":"v"}}"#)
        .apply("a", r#"{"data":{"a":"1"}}"#)
        .is(r#"{"data":{"a":"1","b":"1","k":"v"}}"#)
        // nothing but the claim went: no new time
        .owned(&[
            ("a A", "00", r#"{"f:data":{"f:a":{}}}"#),
            ("b A", "01", r#"{"f:data":{"f:b":{},"f:k":{}}}"#),
        ])
        .apply("b", r#"{"data":{"b":"1"}}"#)
        .is(r#"{"data":{"a":"1","b":"1"}}"#)
        .apply("b", "{}")
        .owned(&[("a A", "00", r#"{"f:data":{"f:a":{}}}"#)])
        .apply("a", "{}")
        .is("{}")
        .owned(&[]);
}

#[test]
fn fields_of_other_managers_conflict_unless_forced() {
    let mut story = Story::new();
    story
        .apply("a", r#"{"data":{"k":"v","l":"w"},"metadata":{"labels":{"x":"1"}}}"#)
        .refused("b", r#"{"data":{"k":"x"}}"#, 409, r#"Apply failed with 1 conflict: conflict with "a": .data.k"#)
        .refused(
            "b",
            r#"{"data":{"k":"x","l":"x"},"metadata":{"labels":{"x":"2"}}}"#,
            409,
            "Apply failed with 3 conflicts: conflicts with \"a\":\n- .data.k\n- .data.l\n- .metadata.labels.x",
        )
        .force("b", r#"{"data":{"k":"x"}}"#)
        .is(r#"{"data":{"k":"x","l":"w"},"metadata":{"labels":{"x":"1"}}}"#)
        .owned(&[
            ("a A", "00", r#"{"f:data":{"f:l":{}},"f:metadata":{"f:labels":{"f:x":{}}}}"#),
            ("b A", "03", r#"{"f:data":{"f:k":{}}}"#),
        ]);
    let Err(ApplyError::Conflicts(conflicts)) = story.run("a", r#"{"data":{"k":"v","l":"w"}}"#, false) else {
        panic!("no conflict");
    };
    assert_eq!((conflicts.total, &*conflicts.listed[0].message()), (1, r#"conflict with "b""#));
    Story::created("u", r#"{"data":{"k":"v"}}"#)
        .refused(
            "a",
            r#"{"data":{"k":"w"}}"#,
            409,
            r#"Apply failed with 1 conflict: conflict with "u" using v1: .data.k"#,
        )
        // the same value is shared, without a time of its own
        .apply("a", r#"{"data":{"k":"v"}}"#)
        .owned(&[("a A", "", r#"{"f:data":{"f:k":{}}}"#), ("u U", "00", r#"{"f:data":{".":{},"f:k":{}}}"#)]);
}

#[test]
fn items_meet_on_their_keys_and_keep_their_neighbours() {
    let mut story = Story::new();
    story
        .apply("a", r#"{"spec":{"items":[{"name":"x","image":"1","ports":[{"port":80}]},{"name":"y","image":"2"}]}}"#)
        .apply("b", r#"{"spec":{"items":[{"name":"n","image":"9"},{"name":"y","args":["q"]}]}}"#)
        .is(r#"{"spec":{"items":[{"name":"x","image":"1","ports":[{"port":80}]},{"name":"n","image":"9"},
            {"name":"y","image":"2","args":["q"]}]}}"#)
        .refused(
            "b",
            r#"{"spec":{"items":[{"name":"x","ports":[{"port":80,"protocol":"TCP","name":"p"}],"image":"2"}]}}"#,
            409,
            r#"Apply failed with 1 conflict: conflict with "a": .spec.items[name="x"].image"#,
        )
        // the item stays for its other owner, without what only this one had
        .apply("a", r#"{"spec":{"items":[{"name":"x","image":"1"}]}}"#)
        .is(r#"{"spec":{"items":[{"name":"x","image":"1"},{"name":"n","image":"9"},{"name":"y","args":["q"]}]}}"#)
        .apply("b", r#"{"spec":{"items":[{"name":"y","args":["q"]}]}}"#)
        .is(r#"{"spec":{"items":[{"name":"x","image":"1"},{"name":"y","args":["q"]}]}}"#);
    let order = |live: &str, config: &str| {
        let mut story = Story::created("u", &format!(r#"{{"metadata":{{"finalizers":{live}}}}}"#));
        story.apply("a", &format!(r#"{{"metadata":{{"finalizers":{config}}}}}"#));
        let live = story.live.unwrap();
        let items: Vec<_> =
            live.items(&["metadata", "finalizers"]).iter().filter_map(Value::as_str).collect();
        items.concat()
    };
    assert_eq!(order(r#"["a","b","c"]"#, r#"["d"]"#), "abcd");
    assert_eq!(order(r#"["a","b","c"]"#, r#"["d","b"]"#), "adbc");
    // another order alone is no change
    assert_eq!(order(r#"["a","b","c"]"#, r#"["c","b","a"]"#), "abc");
    assert_eq!(order(r#"["a","b","c"]"#, r#"["c","b","a","n"]"#), "cban");
    assert_eq!(order(r#"["a","b","c","d"]"#, r#"["d","x","a"]"#), "bcdxa");
}

#[test]
fn ownership_of_a_part_outlives_its_content() {
    Story::new()
        .apply("a", r#"{"spec":{"paused":true}}"#)
        .apply("a", r#"{"spec":{}}"#)
        .is(r#"{"spec":null}"#)
        .owned(&[("a A", "01", r#"{"f:spec":{}}"#)]);
}

#[test]
fn atomic_parts_are_one() {
    Story::new()
        .apply("a", r#"{"spec":{"selector":{"x":"1"},"items":[{"name":"c","args":["a"]}]}}"#)
        .refused(
            "b",
            r#"{"spec":{"selector":{"y":"2"}}}"#,
            409,
            r#"Apply failed with 1 conflict: conflict with "a": .spec.selector"#,
        )
        .force("b", r#"{"spec":{"selector":{"y":"2"},"items":[{"name":"c","args":["b"]}]}}"#)
        .is(r#"{"spec":{"selector":{"y":"2"},"items":[{"name":"c","args":["b"]}]}}"#);
}

#[test]
fn nulls_and_empty_maps_are_claims() {
    Story::new()
        .apply("a", r#"{"metadata":{"labels":null},"data":{"k":null}}"#)
        .owned(&[("a A", "00", r#"{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{}}}"#)])
        .apply("a", r#"{"data":null}"#)
        .owned(&[("a A", "01", r#"{"f:data":{}}"#)])
        .apply("a", r#"{"spec":{}}"#)
        .owned(&[("a A", "02", r#"{"f:spec":{}}"#)]);
    // a null does not empty what others put in
    Story::created("u", r#"{"data":{"k":"v"}}"#).apply("a", r#"{"data":null}"#).is(r#"{"data":{"k":"v"}}"#);
}

#[test]
fn untyped_values_are_granular() {
    Story::new()
        .apply("a", r#"{"spec":{"free":{"m":{"x":1},"l":[1]}}}"#)
        .apply("b", r#"{"spec":{"free":{"m":{"y":2}}}}"#)
        .is(r#"{"spec":{"free":{"m":{"x":1,"y":2},"l":[1]}}}"#)
        .refused(
            "b",
            r#"{"spec":{"free":{"l":[2]}}}"#,
            409,
            r#"Apply failed with 1 conflict: conflict with "a": .spec.free.l"#,
        )
        .apply("a", r#"{"spec":{"free":{"l":[1]}}}"#)
        .is(r#"{"spec":{"free":{"m":{"y":2},"l":[1]}}}"#);
}

#[test]
fn reset_fields_are_neither_owned_nor_in_conflict() {
    let mut story = Story::created("u", r#"{"data":{"k":"v"}}"#);
    story.live.as_mut().unwrap().set(&["status", "phase"], "A");
    let applied = story.run("a", r#"{"status":{"phase":"B"}}"#, false).unwrap();
    assert!(!applied.changed);
    assert_eq!(applied.object.text(&["status", "phase"]), "A");
    story.owned(&[("u U", "00", r#"{"f:data":{".":{},"f:k":{}}}"#)]);
}

#[test]
fn fields_of_an_untracked_object_belong_to_before_first_apply() {
    let mut story = Story::created("u", r#"{"data":{"k":"v"}}"#);
    story.live.as_mut().unwrap().unset(&["metadata", "managedFields"]);
    let why = r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k"#;
    story.refused("a", r#"{"data":{"k":"w"}}"#, 409, why).apply("a", r#"{"data":{"z":"1"}}"#).owned(&[
        ("a A", "02", r#"{"f:data":{"f:z":{}}}"#),
        ("before-first-apply U", "02", r#"{"f:data":{".":{},"f:k":{}}}"#),
    ]);
}

#[test]
fn configurations_must_fit() {
    let of = |rest: &str| format!("failed to create typed patch object (/o; /v1, Kind=Thing): {rest}");
    let mut story = Story::new();
    for (config, why) in [
        (r#"{"bogus":1}"#, ".bogus: field not declared in schema"),
        (
            r#"{"spec":{"items":[{"name":"c","bogus":1}]}}"#,
            r#".spec.items[name="c"].bogus: field not declared in schema"#,
        ),
        (r#"{"data":["a"]}"#, ".data: expected map, got &{[a]}"),
        (r#"{"data":{"k":5}}"#, ".data.k: expected string, got &value.valueUnstructured{Value:5}"),
        (r#"{"spec":{"replicas":"x"}}"#, ".spec.replicas: expected numeric (int or float), got string"),
        (r#"{"spec":{"paused":"x"}}"#, ".spec.paused: expected boolean, got &{x}"),
        (r#"{"spec":{"items":"x"}}"#, ".spec.items: expected list, got &{x}"),
        (
            r#"{"spec":{"items":[{"image":"i"}]}}"#,
            ".spec.items: element 0: associative list with keys has an element that omits key field \"name\" (and doesn't have default value)",
        ),
        (
            r#"{"spec":{"items":[{"name":"c"},{"name":"c"}]}}"#,
            r#".spec.items: duplicate entries for key [name="c"]"#,
        ),
        (
            r#"{"spec":{"items":[{"name":"c","ports":[{"port":1},{"port":1,"protocol":"TCP"}]}]}}"#,
            r#".spec.items[name="c"].ports: duplicate entries for key [port=1,protocol="TCP"]"#,
        ),
        (
            r#"{"metadata":{"finalizers":["a","a"]}}"#,
            r#".metadata.finalizers: duplicate entries for key [="a"]"#,
        ),
        (
            r#"{"data":{"a":1.5,"b":true}}"#,
            "errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1.5}\n  .data.b: expected string, got &value.valueUnstructured{Value:true}",
        ),
    ] {
        story.refused("a", config, 500, &of(why));
    }
    let why = "Incorrect version specified in apply patch. Specified patch version: v2, expected: v1";
    story.refused("a", r#"{"apiVersion":"v2"}"#, 400, why);
    let why = "metadata.managedFields must be nil";
    story.refused("a", r#"{"metadata":{"managedFields":[]}}"#, 400, why);
    assert!(story.live.is_none());
    story.apply("a", r#"{"metadata":{"managedFields":null},"data":{"k":"v"}}"#);
    // and so must the live object
    let twice = json(r#"[{"name":"c"},{"name":"c"}]"#);
    story.live.as_mut().unwrap().set(&["spec", "items"], twice);
    let of_live = |whose: &str| format!(r#"{whose}: .spec.items: duplicate entries for key [name="c"]"#);
    let why = of_live("failed to create typed live object (/o; /v1, Kind=Thing)");
    story.refused("a", r#"{"spec":{"items":[{"name":"d"}]}}"#, 500, &why);
    // without managed fields, before the check of the configuration
    story.live.as_mut().unwrap().unset(&["metadata", "managedFields"]);
    let why = of_live(
        "failed to create manager for existing fields: failed to convert new object (/o; /v1, Kind=Thing) to smd typed",
    );
    story.refused("a", r#"{"data":{"a":1.5}}"#, 500, &why);
}

#[test]
fn a_client_that_applied_by_its_own_means_may_go_on() {
    const NAME: &str = "example.com/applied";
    let object = r#"{"data":{"k":"v","l":"w"},"metadata":{"annotations":{"example.com/applied":"{\"data\":{\"k\":\"v\"}}"}}}"#;
    let mut story = Story::created("client", object);
    let why = r#"Apply failed with 1 conflict: conflict with "client" using v1: .data.k"#;
    story.refused("a", r#"{"data":{"k":"x"}}"#, 409, why);
    story.last_applied = Some(NAME);
    let why = r#"Apply failed with 1 conflict: conflict with "client" using v1: .data.l"#;
    story.refused("a", r#"{"data":{"k":"x","l":"y"}}"#, 409, why);
    story.apply("a", r#"{"data":{"k":"x"}}"#);
    let live = story.live.clone().unwrap();
    let expected =
        "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"x\"},\"kind\":\"Thing\",\"metadata\":{\"name\":\"o\"}}\n";
    assert_eq!(live.text(&["metadata", "annotations", NAME]), expected);
    assert_eq!(live.text(&["data", "k"]), "x");
}

/// The same object in a version that calls its data `values`.
fn renamed(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    let (from, to) = if version == "v2" { ("data", "values") } else { ("values", "data") };
    if object.text(&["apiVersion"]) != version {
        if let Some(data) = object.unset(&[from]) {
            object.as_map_mut().unwrap().insert(to, data);
        }
        object.set(&["apiVersion"], version);
    }
    object
}

#[test]
fn other_versions_have_a_say() {
    let v2: Ref<Type> = kind("Thing", vec![Field::new("values", strings(false))]).into();
    let v1: Ref<Type> = thing().into();
    let convert = |version: &str, live: Option<&Value>, new: &Value| match version {
        "v0" => ConversionResult::Gone,
        _ => ConversionResult::Converted {
            ty: if version == "v2" { v2.clone() } else { v1.clone() },
            live: live.map(|live| renamed(live, version)),
            new: renamed(new, version),
        },
    };
    let reset = FieldSet::new();
    let run = |manager: &str, version: &str, live: Option<&Value>, text: &str| {
        let write = ApplyWrite {
            ty: if version == "v2" { &v2 } else { &v1 },
            manager,
            api_version: version,
            subresource: "",
            now: "1",
            force: false,
            reset: &reset,
            convert: Some(&convert),
            last_applied: None,
        };
        let mut config = config(text);
        config.set(&["apiVersion"], version);
        let live = live.map(|live| renamed(live, version));
        apply(&write, live.as_ref(), &config).map(|applied| applied.object)
    };
    let first = run("a", "v2", None, r#"{"values":{"k":"v","m":"1","n":"1"}}"#).unwrap();
    let why = run("b", "v1", Some(&first), r#"{"data":{"k":"x"}}"#).unwrap_err();
    assert_eq!(why.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .values.k"#);
    let second = run("b", "v1", Some(&first), r#"{"data":{"k":"v","m":"1"}}"#).unwrap();
    // a field that the other manager has under another name stays, an unowned one is removed
    let third = run("a", "v1", Some(&second), r#"{"data":{"k":"v"}}"#).unwrap();
    assert_eq!(third.at(&["data"]), Some(&json(r#"{"k":"v","m":"1"}"#)));
    let fourth = run("b", "v2", Some(&third), "{}").unwrap();
    assert_eq!(fourth.at(&["values"]), Some(&json(r#"{"k":"v"}"#)));
    let mut stale = fourth.clone();
    let entry = json(
        r#"[{"manager":"old","operation":"Update","apiVersion":"v0","fieldsType":"FieldsV1","fieldsV1":{"f:values":{"f:k":{}}}}]"#,
    );
    stale.set(&["metadata", "managedFields"], entry);
    let fifth = run("c", "v2", Some(&stale), r#"{"values":{"k":"y"}}"#).unwrap();
    assert_eq!(fifth.items(&["metadata", "managedFields"]).len(), 1);
}

/// A small random configuration: labels, data, items with arguments and ports.
fn random_config(random: &mut impl FnMut(u64) -> u64) -> Value {
    let mut config = config("{}");
    let some = |prefix: &str, random: &mut dyn FnMut(u64) -> u64| -> Value {
        let count = random(4);
        let entries = (0..count).map(|_| {
            let key = format!("{prefix}{}", random(5));
            (Text::Owned(key), Value::String("v".to_owned()))
        });
        Value::Map(entries.collect::<Map>())
    };
    if random(2) == 0 {
        config.set(&["data"], some("k", random));
    }
    if random(2) == 0 {
        config.set(&["metadata", "labels"], some("l", random));
    }
    let mut items = Vec::new();
    for n in 0..4 {
        if random(2) == 0 {
            let mut item = Value::map();
            item.set(&["name"], format!("c{n}"));
            if random(2) == 0 {
                item.set(&["image"], "i");
            }
            if random(2) == 0 {
                item.set(&["ports"], json(r#"[{"port":80},{"port":81,"protocol":"UDP"}]"#));
            }
            items.push(item);
        }
    }
    if random(3) > 0 {
        config.set(&["spec", "items"], items);
    }
    config
}

/// Drops empty and absent parts, which come and go with what was in them.
fn bare(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Map(map) => {
            let kept: Map = map
                .iter()
                .filter_map(|(name, held)| Some((Text::Owned(name.to_owned()), bare(held)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Map(kept))
        }
        Value::List(items) => {
            (!items.is_empty()).then(|| Value::List(items.iter().filter_map(bare).collect()))
        }
        other => Some(other.clone()),
    }
}

#[test]
fn applying_is_repeatable_and_giving_up_undoes_it() {
    for seed in 1..400u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (first, second) = (random_config(&mut random), random_config(&mut random));
        let mut story = Story::created("u", r#"{"data":{"of":"u"}}"#);
        let mut step = |manager: &str, config: &Value| {
            let text = String::from_utf8(encode::untyped(config)).unwrap();
            story.run(manager, &text, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"))
        };
        let base = step("a", &first);
        let both = step("b", &second);
        let again = step("b", &second);
        assert!(!again.changed, "seed {seed}");
        assert_eq!(again.object, both.object, "seed {seed}");
        // what one gives up is gone, and the other has lost nothing
        let bare_object = |applied: &ApplyOutcome| {
            let mut object = applied.object.clone();
            object.unset(&["metadata", "managedFields"]);
            bare(&object)
        };
        let undone = step("b", &config("{}"));
        assert_eq!(bare_object(&undone), bare_object(&base), "seed {seed}");
        let empty = step("a", &config("{}"));
        assert_eq!(bare_object(&empty), bare(&config(r#"{"data":{"of":"u"}}"#)), "seed {seed}");
    }
}

#[test]
fn long_lists_are_not_scanned_for_each_item() {
    let items = |range: std::ops::Range<usize>| {
        let list: Vec<String> = range.map(|n| format!(r#"{{"name":"n{n}","image":"i"}}"#)).collect();
        format!(r#"{{"spec":{{"items":[{}]}}}}"#, list.join(","))
    };
    let mut story = Story::new();
    story.apply("a", &items(0..20_000)).apply("b", &items(10_000..30_000)).apply("a", &items(5_000..10_000));
    let live = story.live.unwrap();
    let names: Vec<&str> = live.items(&["spec", "items"]).iter().map(|item| item.text(&["name"])).collect();
    assert_eq!((names.len(), names[0], names[24_999]), (25_000, "n5000", "n29999"));
}

#[test]
fn conflicts_are_reported_within_bounds() {
    let long = "x".repeat(300_000);
    let fields: Vec<String> = (0..20).map(|n| format!(r#""k{n}":{{"v":1}}"#)).collect();
    let object = |value: &str| {
        format!(r#"{{"spec":{{"free":{{"{long}":{{{}}}}}}}}}"#, fields.join(",").replace('1', value))
    };
    let mut story = Story::new();
    story.apply("a", &object("1"));
    let Err(ApplyError::Conflicts(conflicts)) = story.run("b", &object("2"), false) else {
        panic!("no conflict")
    };
    assert!(
        conflicts.total > 3 && conflicts.listed.len() <= 3,
        "{} {}",
        conflicts.total,
        conflicts.listed.len()
    );
}

#[test]
fn deep_configurations_are_walked() {
    let deep = |depth: usize, leaf: &str| {
        let mut value = Value::String(leaf.to_owned());
        for _ in 0..depth {
            value = Value::Map([("a".into(), value)].into_iter().collect());
        }
        let mut config = config("{}");
        config.set(&["spec", "free"], value);
        config
    };
    let mut story = Story::new();
    for (manager, leaf) in [("a", "1"), ("b", "1"), ("a", "1")] {
        let text = String::from_utf8(encode::untyped(&deep(500, leaf))).unwrap();
        story.apply(manager, &text);
    }
    let text = String::from_utf8(encode::untyped(&deep(500, "2"))).unwrap();
    assert_eq!(story.run("b", &text, false).unwrap_err().code(), 409);
    story.apply("a", "{}").apply("b", "{}").is("{}");
}
