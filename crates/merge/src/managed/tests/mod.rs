//! Managed fields over small hand-made types.

mod recorded;

use super::*;
use schema::table::{
    Field, Flags, ListKind, ListShape, Literal, MapShape, Ref, Scalar, Shape, Text, Type, Unknown,
};
use schema::{Value, decode};

/// A tree from JSON text.
pub(crate) fn json(text: &str) -> Value {
    decode::json_untyped(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}")).value
}

fn fields(text: &str) -> FieldSet {
    FieldSet::of_value(&json(text)).unwrap()
}

fn string() -> Shape {
    Shape::Scalar(Scalar::String)
}

fn structure(ty: Type) -> Shape {
    Shape::Struct(ty.into())
}

fn list(item: Shape, kind: ListKind) -> Shape {
    Shape::List(ListShape { item, kind, default: None }.into())
}

fn map_of(keys: &[&'static str]) -> ListKind {
    ListKind::Map { keys: keys.iter().map(|key| Text::Borrowed(*key)).collect() }
}

fn strings(atomic: bool) -> Shape {
    Shape::Map(MapShape { value: string(), atomic, nullable: false, open: false, default: None }.into())
}

fn field(name: &'static str, shape: Shape) -> Field {
    Field::new(name, shape)
}

fn optional(name: &'static str, shape: Shape) -> Field {
    Field { flags: Flags::NILABLE, ..Field::new(name, shape) }
}

fn always(name: &'static str, shape: Shape) -> Field {
    Field { flags: Flags::ALWAYS, ..Field::new(name, shape) }
}

fn metadata() -> Type {
    let owner = Type::new("OwnerReference", "meta", vec![always("name", string()), always("uid", string())]);
    Type::new(
        "ObjectMeta",
        "meta",
        vec![
            field("name", string()),
            field("namespace", string()),
            field("uid", string()),
            field("resourceVersion", string()),
            field("generation", Shape::Scalar(Scalar::Int64)),
            field("creationTimestamp", Shape::Scalar(Scalar::Time)),
            field("labels", strings(false)),
            field("annotations", strings(false)),
            field("ownerReferences", list(structure(owner), map_of(&["uid"]))),
            field("finalizers", list(string(), ListKind::Set)),
            field("managedFields", list(Shape::Scalar(Scalar::Object), ListKind::Atomic)),
        ],
    )
}

fn pod_spec() -> Type {
    let protocol = Field { default: Some(Literal::Text("TCP".into())), ..field("protocol", string()) };
    let port = Type::new("Port", "x", vec![always("containerPort", Shape::Scalar(Scalar::Int32)), protocol]);
    let resources = Type::new("Resources", "x", vec![field("limits", strings(false))]);
    let container = Type::new(
        "Container",
        "x",
        vec![
            always("name", string()),
            field("image", string()),
            field("args", list(string(), ListKind::Atomic)),
            field("ports", list(structure(port), map_of(&["containerPort", "protocol"]))),
            field("resources", structure(resources)),
        ],
    );
    let security = Type::new("Security", "x", vec![optional("runAsUser", Shape::Scalar(Scalar::Int64))]);
    Type::new(
        "PodSpec",
        "x",
        vec![
            always("containers", list(structure(container), map_of(&["name"]))),
            field("nodeSelector", strings(true)),
            optional("securityContext", structure(security)),
            field("dnsPolicy", string()),
        ],
    )
}

/// A workload: a selector that is replaced whole, a structure that is always written with an optional one
/// inside, and a template of pods.
fn workload() -> Type {
    let selector =
        Type { atomic: true, ..Type::new("Selector", "x", vec![field("matchLabels", strings(false))]) };
    let rolling = Type::new("Rolling", "x", vec![optional("maxSurge", Shape::Scalar(Scalar::IntOrString))]);
    let strategy = Type::new(
        "Strategy",
        "x",
        vec![field("type", string()), optional("rollingUpdate", structure(rolling))],
    );
    let template = vec![field("metadata", structure(metadata())), field("spec", structure(pod_spec()))];
    let template = Type::new("Template", "x", template);
    let spec = Type::new(
        "Spec",
        "x",
        vec![
            optional("replicas", Shape::Scalar(Scalar::Int32)),
            optional("selector", structure(selector)),
            field("strategy", structure(strategy)),
            field("template", structure(template.clone())),
            optional("other", structure(template)),
        ],
    );
    let condition = Type::new("Condition", "x", vec![always("type", string()), field("status", string())]);
    let status =
        Type::new("Status", "x", vec![field("conditions", list(structure(condition), map_of(&["type"])))]);
    kind(vec![field("spec", structure(spec)), field("status", structure(status))])
}

fn kind(mut members: Vec<Field>) -> Type {
    let mut all = vec![
        field("kind", string()),
        field("apiVersion", string()),
        field("metadata", structure(metadata())),
    ];
    all.append(&mut members);
    Type::new("Workload", "x", all)
}

fn config_map() -> Type {
    kind(vec![field("data", strings(false))])
}

fn write<'a>(ty: &'a Type, manager: &'a str, reset: &'a FieldSet) -> Write<'a> {
    Write {
        ty,
        manager,
        api_version: "v1",
        subresource: "",
        now: "2024-01-01T00:00:00Z",
        reset,
        convert: None,
    }
}

/// The normal form of an object of this type.
fn normal(ty: &Type, text: &str) -> Value {
    decode::tree(json(text), ty).unwrap().value
}

/// The fields of a creation, by comparison with an empty object.
pub(crate) fn compared(ty: &Type, new: &Value, reset: &FieldSet) -> Option<String> {
    let mut changes = compare(ty, None, new).ok()?;
    changes.exclude(reset);
    changes.taken.subtract(&UNOWNED);
    (!changes.taken.is_empty()).then(|| changes.taken.to_text())
}

#[track_caller]
fn check_created(ty: &Type, object: &str, expected: &str) {
    let reset = FieldSet::of(&[&["status"]]);
    let mut new = normal(ty, object);
    assert_eq!(creation::brought(ty, &new, &reset, &UNOWNED).unwrap(), compared(ty, &new, &reset));
    track(&write(ty, "m", &reset), None, &mut new);
    let entries = new.items(&["metadata", "managedFields"]);
    assert_eq!(entries.len(), 1, "{new:?}");
    assert_eq!(schema::decode::open(entries[0].at(&["fieldsV1"]).unwrap()), json(expected));
    assert_eq!(entries[0].text(&["manager"]), "m");
    assert_eq!(entries[0].text(&["time"]), "2024-01-01T00:00:00Z");
}

#[test]
fn a_creator_owns_non_zero_fields() {
    check_created(
        &workload(),
        r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"o","uid":"u","labels":{"a":"b"},"finalizers":["x.y/z"]},
            "spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
              "strategy":{"type":"R","rollingUpdate":{"maxSurge":"25%"}},
              "template":{"metadata":{"labels":{"a":"b"}},"spec":{"dnsPolicy":"D","securityContext":{},
                "nodeSelector":{"x":"y"},
                "containers":[{"name":"c","image":"i","args":["a","b"],"ports":[{"containerPort":80}]}]}}},
            "status":{"conditions":[{"type":"Ready"}]}}"#,
        r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"x.y/z\"":{}},"f:labels":{".":{},"f:a":{}}},
            "f:spec":{"f:replicas":{},"f:selector":{},
              "f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}},"f:type":{}},
              "f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},
                "f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},
                    "f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},
                    "f:resources":{}}},
                  "f:dnsPolicy":{},"f:nodeSelector":{},"f:securityContext":{}}}}}"#,
    );
}

#[test]
fn below_an_optional_structure_everything_is_new() {
    check_created(
        &workload(),
        r#"{"spec":{"other":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[]}}}}"#,
        r#"{"f:spec":{"f:other":{".":{},"f:metadata":{".":{},"f:creationTimestamp":{},"f:labels":{".":{},"f:a":{}}},
            "f:spec":{".":{},"f:containers":{}}}}}"#,
    );
}

#[test]
fn untyped_values_are_granular() {
    let open = Type { unknown: Unknown::Keep, ..Type::new("Open", "x", Vec::new()) };
    let ty = kind(vec![optional("spec", structure(open))]);
    check_created(
        &ty,
        r#"{"spec":{"a":{"b":1,"l":[{"c":1}],"e":{}},"n":null}}"#,
        r#"{"f:spec":{".":{},"f:a":{".":{},"f:b":{},"f:e":{},"f:l":{}},"f:n":{}}}"#,
    );
}

/// One object that several writers change in turn.
struct Story {
    ty: Type,
    live: Value,
    reset: FieldSet,
    second: u32,
}

impl Story {
    fn new(ty: Type, manager: &str, object: &str) -> Story {
        let reset = FieldSet::of(&[&["status"]]);
        let mut live = normal(&ty, object);
        live.set(&["metadata", "uid"], "u");
        let mut story = Story { ty, live: Value::Null, reset, second: 0 };
        story.step(manager, "", None, live);
        story
    }

    fn step(&mut self, manager: &str, subresource: &str, reset: Option<&FieldSet>, new: Value) -> &mut Self {
        let now = format!("2024-01-01T00:00:{:02}Z", self.second);
        self.second += 1;
        let reset = reset.unwrap_or(&self.reset);
        let write = Write { subresource, now: &now, ..write(&self.ty, manager, reset) };
        let live = (!self.live.is_null()).then_some(&self.live);
        let mut new = new;
        track(&write, live, &mut new);
        self.live = new;
        self
    }

    /// A merge patch by a writer.
    fn patch(&mut self, manager: &str, patch: &str) -> &mut Self {
        let mut new = self.live.clone();
        crate::merge_patch(&mut new, json(patch)).unwrap();
        let new = decode::tree(new, &self.ty).unwrap().value;
        self.step(manager, "", None, new)
    }

    #[track_caller]
    fn expect(&mut self, entries: &[(&str, &str, &str)]) -> &mut Self {
        let found: Vec<_> = self.live.items(&["metadata", "managedFields"]).iter().collect();
        let recorded = found.iter().map(|entry| {
            let second = entry.text(&["time"]).get(17..19).unwrap_or("-").to_owned();
            (
                entry.text(&["manager"]).to_owned(),
                second,
                schema::decode::open(entry.at(&["fieldsV1"]).unwrap()),
            )
        });
        let expected =
            entries.iter().map(|(manager, second, set)| (manager.to_string(), second.to_string(), json(set)));
        assert_eq!(recorded.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        self
    }
}

#[test]
fn a_changed_field_changes_its_owner_and_a_removed_one_has_none() {
    Story::new(config_map(), "a", r#"{"data":{"k":"v","l":"w"}}"#)
        .expect(&[("a", "00", r#"{"f:data":{".":{},"f:k":{},"f:l":{}}}"#)])
        .patch("b", r#"{"data":{"k":"x","m":"y"}}"#)
        .expect(&[
            ("a", "00", r#"{"f:data":{".":{},"f:l":{}}}"#),
            ("b", "01", r#"{"f:data":{"f:k":{},"f:m":{}}}"#),
        ])
        // the same value again takes nothing
        .patch("a", r#"{"data":{"k":"x"}}"#)
        .patch("c", r#"{"data":{"l":null}}"#)
        .expect(&[("a", "00", r#"{"f:data":{}}"#), ("b", "01", r#"{"f:data":{"f:k":{},"f:m":{}}}"#)])
        .patch("b", r#"{"data":null}"#)
        .expect(&[])
        // an untracked object stays untracked
        .patch("b", r#"{"data":{"k":"x"}}"#)
        .expect(&[]);
}

#[test]
fn items_are_followed_by_their_keys() {
    let object = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}}}"#;
    let mut story = Story::new(workload(), "a", object);
    let containers =
        |set: &str| format!(r#"{{"f:spec":{{"f:template":{{"f:spec":{{"f:containers":{set}}}}}}}}}"#);
    let c = r#""k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}"#;
    let d = r#""k:{\"name\":\"d\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}"#;
    story.expect(&[("a", "00", &containers(&format!("{{{c},{d}}}")))]);
    // another order and another image of one
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"j"},{"name":"c","image":"i"}]}}}}"#;
    let d_rest = r#""k:{\"name\":\"d\"}":{".":{},"f:name":{},"f:resources":{}}"#;
    let d_image = r#"{"k:{\"name\":\"d\"}":{"f:image":{}}}"#;
    story
        .patch("b", patch)
        .expect(&[("a", "00", &containers(&format!("{{{c},{d_rest}}}"))), ("b", "01", &containers(d_image))]);
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    story.patch("x", patch).expect(&[("a", "00", &containers(&format!("{{{c}}}")))]);
}

#[test]
fn objects_with_ambiguous_items_have_no_entries() {
    let object = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let mut story = Story::new(workload(), "a", object);
    let twice = r#"{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c"},{"name":"c"}]}}}}"#;
    story.patch("b", twice);
    assert!(story.live.at(&["metadata", "managedFields"]).is_none());
    assert!(Story::new(workload(), "a", twice).live.at(&["metadata", "managedFields"]).is_none());
}

#[test]
fn a_subresource_has_entries_of_its_own() {
    let mut story = Story::new(workload(), "a", r#"{"metadata":{"labels":{"x":"1"}}}"#);
    let mut new = story.live.clone();
    new.set(&["status", "conditions"], json(r#"[{"type":"Ready","status":"True"}]"#));
    new.set(&["spec", "replicas"], 5);
    // entries cannot be edited through a subresource
    new.set(&["metadata", "managedFields"], json("[{}]"));
    let reset = FieldSet::of(&[&["spec"]]);
    let status = r#"{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:type":{}}}}}"#;
    story
        .step("a", "status", Some(&reset), new)
        .expect(&[("a", "00", r#"{"f:metadata":{"f:labels":{".":{},"f:x":{}}}}"#), ("a", "01", status)]);
    let entries = story.live.items(&["metadata", "managedFields"]);
    assert_eq!(entries[1].text(&["subresource"]), "status");
    // a write of the object itself does not touch the status
    story.patch("b", r#"{"status":null}"#);
    assert_eq!(story.live.items(&["metadata", "managedFields"]).len(), 2);
}

#[test]
fn invalid_entries_of_clients_are_ignored() {
    let mut story = Story::new(config_map(), "a", r#"{"data":{"k":"v"}}"#);
    let own = [("a", "00", r#"{"f:data":{".":{},"f:k":{}}}"#)];
    for bad in [
        "[]",
        "null",
        r#"[{"manager":"z","operation":"Nope","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]"#,
        r#"[{"manager":"z","operation":"Apply","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]"#,
        r#"[{"manager":"z","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:data":{}}}]"#,
        r#"[{"manager":"z","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"x":{}}}]"#,
        r#"[{},{}]"#,
    ] {
        story.patch("u", &format!(r#"{{"metadata":{{"managedFields":{bad}}}}}"#)).expect(&own);
    }
    let edit = r#"{"metadata":{"managedFields":[{"manager":"z","operation":"Apply","apiVersion":"v1",
        "time":"2020-01-01T00:00:33Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]}}"#;
    story.patch("u", edit).expect(&[("z", "33", r#"{"f:data":{"f:k":{}}}"#)]);
    story.patch("u", r#"{"metadata":{"managedFields":[{}]}}"#).expect(&[]);
}

#[test]
fn old_updaters_are_gathered() {
    let mut story = Story::new(config_map(), "u00", r#"{"data":{"k0":"v"}}"#);
    for n in 1..13 {
        story.patch(&format!("u{n:02}"), &format!(r#"{{"data":{{"k{n}":"v"}}}}"#));
    }
    let entries = story.live.items(&["metadata", "managedFields"]);
    let managers: Vec<_> = entries.iter().map(|entry| entry.text(&["manager"])).collect();
    let expected = ["ancient-changes", "u04", "u05", "u06", "u07", "u08", "u09", "u10", "u11", "u12"];
    assert_eq!(managers, expected);
    let gathered = r#"{"f:data":{".":{},"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{}}}"#;
    assert_eq!(schema::decode::open(entries[0].at(&["fieldsV1"]).unwrap()), json(gathered));
    assert_eq!(entries[0].text(&["time"]), "2024-01-01T00:00:03Z");
}

#[test]
fn entries_of_other_versions_are_converted_kept_or_dropped() {
    let live = r#"{"data":{"k":"v"},"metadata":{"managedFields":[{"manager":"a","operation":"Update",
        "apiVersion":"v2","fieldsType":"FieldsV1","fieldsV1":{"f:values":{"f:k":{},"f:l":{}}}}]}}"#;
    let ty = config_map();
    let live = normal(&ty, live);
    let mut changed = live.clone();
    changed.set(&["data", "k"], "w");
    let reset = FieldSet::new();
    let managers = |convert: Option<&Convert<'_>>| {
        let mut new = changed.clone();
        track(&Write { convert, ..write(&ty, "b", &reset) }, Some(&live), &mut new);
        let entries = new.items(&["metadata", "managedFields"]).iter();
        entries
            .map(|entry| {
                format!(
                    "{} {:?}",
                    entry.text(&["manager"]),
                    schema::decode::open(entry.at(&["fieldsV1"]).unwrap())
                )
            })
            .collect()
    };
    let formatted = |set: &str| format!("{:?}", json(set));
    let b = format!("b {}", formatted(r#"{"f:data":{"f:k":{}}}"#));
    let kept: Vec<String> = managers(None);
    assert_eq!(kept, [format!("a {}", formatted(r#"{"f:values":{"f:k":{},"f:l":{}}}"#)), b.clone()]);
    let dropped: Vec<String> = managers(Some(&|_, _, _| ConversionResult::Gone));
    assert_eq!(dropped, std::slice::from_ref(&b));
    let other = kind(vec![field("values", strings(false))]);
    let renamed = |object: &Value| {
        let mut object = object.clone();
        let data = object.unset(&["data"]).unwrap();
        object.set(&["values"], data);
        object
    };
    let convert = |version: &str, live: Option<&Value>, new: &Value| {
        assert_eq!(version, "v2");
        ConversionResult::Converted {
            ty: Ref::from(other.clone()),
            live: live.map(renamed),
            new: renamed(new),
        }
    };
    let converted: Vec<String> = managers(Some(&convert));
    assert_eq!(converted, [format!("a {}", formatted(r#"{"f:values":{"f:l":{}}}"#)), b]);
}

#[test]
fn a_write_without_effect_keeps_the_times() {
    let live =
        json(r#"{"metadata":{"name":"o","managedFields":[{"manager":"a","time":"1"}]},"data":{"k":"v"}}"#);
    let again =
        json(r#"{"metadata":{"name":"o","managedFields":[{"manager":"a","time":"2"}]},"data":{"k":"v"}}"#);
    let mut new = again.clone();
    keep_times(&live, &mut new);
    assert_eq!(new, live);
    for (path, value) in [(&["data", "k"][..], "w"), (&["metadata", "name"], "p")] {
        let mut new = again.clone();
        new.set(path, value);
        let expected = new.clone();
        keep_times(&live, &mut new);
        assert_eq!(new, expected);
    }
    let with_list = |object: &Value, list: Value| {
        let mut object = object.clone();
        object.set(&["data", "k"], list);
        object
    };
    // an empty list is stored as null
    let (stored, mut empty) = (with_list(&live, Value::Null), with_list(&again, Value::List(Vec::new())));
    keep_times(&stored, &mut empty);
    assert_eq!(empty, with_list(&live, Value::List(Vec::new())));
    let mut other =
        json(r#"{"metadata":{"name":"o","managedFields":[{"manager":"b","time":"2"}]},"data":{"k":"v"}}"#);
    let expected = other.clone();
    keep_times(&live, &mut other);
    assert_eq!(other, expected);
}

#[test]
fn an_apply_owns_the_fields_of_its_configuration() {
    let check = |object: &str, expected: &str| {
        assert_eq!(owned(&workload(), &json(object)).unwrap().to_value(), json(expected), "{object}");
    };
    check(r#"{"spec":{}}"#, r#"{"f:spec":{}}"#);
    check(
        r#"{"metadata":{"finalizers":[],"labels":{"a":"b"}}}"#,
        r#"{"f:metadata":{"f:labels":{"f:a":{}}}}"#,
    );
    check(
        r#"{"spec":{"selector":{"matchLabels":{"a":"b"}},"strategy":{"rollingUpdate":{"maxSurge":1}},
            "template":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":80}]}]}}}}"#,
        r#"{"f:spec":{"f:selector":{},"f:strategy":{"f:rollingUpdate":{"f:maxSurge":{}}},"f:template":{"f:spec":{
            "f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:ports":{
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}"#,
    );
}

#[test]
fn field_sets_round_trip() {
    for text in [
        "{}",
        r#"{"f:a":{}}"#,
        r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"i:2":{},"i:10":{},"k:{\"n\":1}":{".":{},"f:n":{}},"v:1":{}}}"#,
    ] {
        assert_eq!(fields(text).to_value(), json(text));
    }
    assert_eq!(fields(r#"{"x:y":{},"f:a":{".":{}}}"#).to_value(), json(r#"{"f:a":{}}"#));
    // two spellings of one key are one branch
    let two = fields(r#"{"k:{\"n\":1}":{"f:a":{}},"k:{ \"n\":1}":{"f:b":{}}}"#);
    assert_eq!(two.to_value(), json(r#"{"k:{\"n\":1}":{"f:a":{},"f:b":{}}}"#));
    assert_eq!(FieldSet::parse(r#"{"f:a":1}"#), Err(ManagedFieldsError::NotAnObject));
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(510), "}".repeat(510));
    assert_eq!(fields(&deep).to_value(), json(&deep));
    let mut deeper = json(&deep);
    for _ in 0..3 {
        let mut outer = Value::map();
        outer.set(&["f:a"], deeper);
        deeper = outer;
    }
    assert!(matches!(FieldSet::of_value(&deeper), Err(ManagedFieldsError::Syntax(_))));
}

#[test]
fn set_operations() {
    let a = || fields(r#"{"f:a":{".":{},"f:b":{"f:c":{}},"f:d":{}},"f:e":{}}"#);
    let b = fields(r#"{"f:a":{"f:b":{}},"f:e":{"f:f":{}},"f:g":{}}"#);
    let formatted = |set: &FieldSet| set.to_value();
    let mut united = a();
    united.unite(b.clone());
    assert_eq!(
        formatted(&united),
        json(r#"{"f:a":{".":{},"f:b":{".":{},"f:c":{}},"f:d":{}},"f:e":{".":{},"f:f":{}},"f:g":{}}"#)
    );
    assert_eq!(united.len(), 7);
    let mut left = united.clone();
    left.subtract(&b);
    assert_eq!(formatted(&left), json(r#"{"f:a":{".":{},"f:b":{"f:c":{}},"f:d":{}},"f:e":{}}"#));
    let mut left = united.clone();
    left.subtract_below(&b);
    assert_eq!(formatted(&left), json(r#"{"f:a":{".":{},"f:d":{}},"f:e":{}}"#));
    assert_eq!(formatted(&united.intersection(&a())), formatted(&a()));
    assert!(a().intersection(&b).is_empty());
    assert!(a().is_within(&united) && b.is_within(&united) && FieldSet::new().is_within(&b));
    assert!(!united.is_within(&a()) && !b.is_within(&a()) && !a().is_within(&b));
    let path =
        |names: &[&'static str]| names.iter().map(|name| Element::Field((*name).into())).collect::<Vec<_>>();
    assert!(a().contains(&path(&["a", "b", "c"])));
    assert!(!a().contains(&path(&["a", "b"])));
    assert!(!a().contains(&path(&["z"])));
    let mut none = a();
    none.subtract(&a());
    assert!(none.is_empty());
}

/// Random sets against plain sets of path texts.
#[test]
fn set_operations_agree_with_a_model() {
    use std::collections::BTreeSet;
    let seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut state = seed;
    let mut random = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let names = ["a", "b", "c", "d"];
    let model = |set: &FieldSet| {
        fn walk(set: &FieldSet, at: &str, out: &mut BTreeSet<String>) {
            if set.member {
                out.insert(at.to_owned());
            }
            set.children().for_each(|(element, below)| walk(below, &format!("{at}/{}", element.path()), out));
        }
        let mut out = BTreeSet::new();
        walk(set, "", &mut out);
        out
    };
    for round in 0..500 {
        let mut sets = [FieldSet::new(), FieldSet::new()];
        for set in &mut sets {
            for _ in 0..random(12) {
                let length = 1 + random(3);
                let path: Vec<_> =
                    (0..length).map(|_| Element::Field(names[random(4) as usize].into())).collect();
                set.insert(path);
            }
        }
        let [a, b] = sets;
        let (ma, mb) = (model(&a), model(&b));
        let mut united = a.clone();
        united.unite(b.clone());
        let mut less = a.clone();
        less.subtract(&b);
        let mut cut = a.clone();
        cut.subtract_below(&b);
        let below =
            |path: &String| mb.iter().any(|taken| path == taken || path.starts_with(&format!("{taken}/")));
        assert_eq!(model(&united), &ma | &mb, "seed {seed} round {round}");
        assert_eq!(model(&less), &ma - &mb, "seed {seed} round {round}");
        assert_eq!(
            model(&cut),
            ma.iter().filter(|path| !below(path)).cloned().collect(),
            "seed {seed} round {round}"
        );
        assert_eq!(model(&a.intersection(&b)), &ma & &mb, "seed {seed} round {round}");
        assert_eq!(FieldSet::parse(&united.to_text()).unwrap(), united, "seed {seed} round {round}");
        assert_eq!(a.count_in(&b.to_text()), Ok(a.intersection(&b).len()), "seed {seed} round {round}");
        assert_eq!(a.covers(&b.to_text()), Ok(b.is_within(&a)), "seed {seed} round {round}");
        assert_eq!(united.covers(&b.to_text()), Ok(true), "seed {seed} round {round}");
    }
}

#[test]
fn a_manager_is_named_after_its_agent() {
    assert_eq!(default_manager("kubectl/v1.26 (linux/amd64)"), "kubectl");
    assert_eq!(default_manager("Go-http-client"), "Go-http-client");
    assert_eq!(default_manager("a\u{1}b \"c\"\t/x"), "ab \"c\"");
    assert_eq!(default_manager(&"x".repeat(500)).len(), MAX_MANAGER);
    assert_eq!(default_manager(&"é".repeat(500)).len(), MAX_MANAGER);
    assert_eq!(default_manager(""), "");
    let reset = FieldSet::new();
    let ty = config_map();
    let mut new = json(r#"{"data":{"k":"v"}}"#);
    track(&write(&ty, "", &reset), None, &mut new);
    assert_eq!(new.items(&["metadata", "managedFields"])[0].text(&["manager"]), "unknown");
}

#[test]
fn a_new_part_with_ambiguous_items_is_unreadable() {
    let status = FieldSet::of(&[&["status"]]);
    let live = json(r#"{"status":{"conditions":[{"type":"a"}]}}"#);
    for (sent, is_unreadable) in [
        (r#"{"status":{"conditions":[{"type":"a"},{"type":"a"}]}}"#, true),
        (r#"{"status":{"conditions":[{"type":"b"}]}}"#, false),
        (r#"{"status":{"conditions":[{"type":"a"}]}}"#, false),
        (r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}}}"#, false),
    ] {
        assert_eq!(has_unreadable_part(&workload(), &status, &live, &json(sent)), is_unreadable, "{sent}");
    }
}
