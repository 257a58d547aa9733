//! Properties of all patches and configurations, tested on random ones. A failing round prints its seed.

use crate::apply::{ApplyWrite, apply};
use crate::managed::FieldSet;
use crate::{merge_patch, strategic_merge};
use schema::table::{Field, ListKind, ListShape, MapShape, Patch, Scalar, Shape, Text, Type};
use schema::{Map, Value};

const ROUNDS: u64 = 500;

/// A small generator that a seed determines.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn text() -> Shape {
    Shape::Scalar(Scalar::String)
}

/// A kind with a list of each type, nested in one another, a map and an atomic part.
fn thing() -> Type {
    let list = |item: Shape, kind: ListKind| Shape::List(ListShape { item, kind, default: None }.into());
    let by = |key: &'static str| ListKind::Map { keys: vec![Text::Borrowed(key)].into() };
    let merging = |name: &'static str, key: &'static str, shape: Shape| Field {
        patch: Patch::Merge { key: key.into(), retain_keys: false },
        ..Field::new(name, shape)
    };
    let strings = || {
        Shape::Map(
            MapShape { value: text(), atomic: false, nullable: false, open: false, default: None }.into(),
        )
    };
    let port = Type::new("Port", "x", vec![Field::new("port", text()), Field::new("use", text())]);
    let item = vec![
        Field::new("name", text()),
        Field::new("image", text()),
        Field::new("args", list(text(), ListKind::Atomic)),
        merging("ports", "port", list(Shape::Struct(port.into()), by("port"))),
    ];
    let item = Type::new("Item", "x", item);
    let spec = vec![
        Field::new("size", text()),
        Field::new("labels", strings()),
        merging("items", "name", list(Shape::Struct(item.into()), by("name"))),
        merging("marks", "", list(text(), ListKind::Set)),
    ];
    let metadata = Type::new("Meta", "x", vec![Field::new("name", text())]);
    let fields = vec![
        Field::new("kind", text()),
        Field::new("apiVersion", text()),
        Field::new("metadata", Shape::Struct(metadata.into())),
        Field::new("spec", Shape::Struct(Type::new("Spec", "x", spec).into())),
    ];
    Type::new("Thing", "x", fields)
}

/// Some of the things that a spec can hold, of those that `pick` chooses by their place.
fn spec(random: &mut Random, pick: &mut dyn FnMut(&str) -> bool) -> Value {
    let mut spec = Value::map();
    let value = |random: &mut Random| format!("v{}", random.below(3));
    if pick("size") && random.chance() {
        spec.set(&["size"], value(random));
    }
    for key in ["a", "b", "c"] {
        if pick(&format!("labels.{key}")) && random.chance() {
            spec.set(&["labels", key], value(random));
        }
    }
    let mut items = Vec::new();
    for name in ["i", "j", "k"] {
        let mut item = Value::map();
        for field in ["image", "args"] {
            if pick(&format!("items.{name}.{field}")) && random.chance() {
                let text: Value = value(random).into();
                item.set(&[field], if field == "args" { Value::List(vec![text]) } else { text });
            }
        }
        let mut ports = Vec::new();
        for port in ["1", "2"] {
            if pick(&format!("items.{name}.ports.{port}")) && random.chance() {
                let mut one = Value::map();
                one.set(&["port"], port);
                one.set(&["use"], value(random));
                ports.push(one);
            }
        }
        if !ports.is_empty() {
            item.set(&["ports"], ports);
        }
        if item.as_map().is_some_and(|it| !it.is_empty()) {
            item.set(&["name"], name);
            items.push(item);
        }
    }
    if !items.is_empty() {
        spec.set(&["items"], items);
    }
    let marks: Vec<Value> = ["x", "y", "z"]
        .into_iter()
        .filter(|it| pick(&format!("marks.{it}")) && random.chance())
        .map(Value::from)
        .collect();
    if !marks.is_empty() {
        spec.set(&["marks"], marks);
    }
    spec
}

fn object(spec: Value) -> Value {
    let mut object = Value::map();
    object.set(&["apiVersion"], "v1");
    object.set(&["kind"], "Thing");
    object.set(&["metadata", "name"], "o");
    object.set(&["spec"], spec);
    object
}

/// The same whatever the order of lists with keys and of sets; empty parts count as absent.
fn settled(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| (Text::Owned(key.to_owned()), settled(value)));
            Value::Map(entries.filter(|(_, value)| !schema::decode::is_zero(value)).collect::<Map>())
        }
        Value::List(items) => {
            let mut items: Vec<Value> = items.iter().map(settled).collect();
            items.sort_by_key(|item| String::from_utf8_lossy(&schema::encode::untyped(item)).into_owned());
            Value::List(items)
        }
        other => other.clone(),
    }
}

fn applied(ty: &Type, manager: &str, live: Option<&Value>, config: Value) -> Value {
    let reset = FieldSet::new();
    let write = ApplyWrite {
        ty,
        manager,
        api_version: "v1",
        subresource: "",
        now: "00",
        force: false,
        reset: &reset,
        convert: None,
        last_applied: None,
    };
    apply(&write, live, &config).unwrap().object
}

/// The fields of each manager.
fn owned(object: &Value) -> Vec<(String, Value)> {
    let entries = object.items(&["metadata", "managedFields"]).iter();
    let mut owned: Vec<_> = entries
        .map(|it| (it.text(&["manager"]).to_owned(), it.at(&["fieldsV1"]).cloned().unwrap()))
        .collect();
    owned.sort_by(|a, b| a.0.cmp(&b.0));
    owned
}

#[test]
fn managers_of_different_fields_come_in_any_order() {
    let ty = thing();
    for seed in 1..ROUNDS {
        let mut random = Random::new(seed);
        let share = random.below(u64::MAX);
        // a place belongs to one of the two, the same in both configurations
        let of_first = |place: &str| {
            let hash = place
                .bytes()
                .fold(share, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            hash >> 40 & 1 == 0
        };
        let first = object(spec(&mut random, &mut |place| of_first(place)));
        let second = object(spec(&mut random, &mut |place| !of_first(place)));
        let one = applied(&ty, "a", None, first.clone());
        let one = applied(&ty, "b", Some(&one), second.clone());
        let two = applied(&ty, "b", None, second);
        let two = applied(&ty, "a", Some(&two), first);
        assert_eq!(owned(&one), owned(&two), "seed {seed}");
        let content = |object: &Value| settled(object.at(&["spec"]).unwrap_or(&Value::Null));
        assert_eq!(content(&one), content(&two), "seed {seed}");
    }
}

#[test]
fn applying_again_changes_nothing() {
    let ty = thing();
    for seed in 1..ROUNDS {
        let mut random = Random::new(seed);
        let config = object(spec(&mut random, &mut |_| true));
        let once = applied(&ty, "a", None, config.clone());
        let twice = applied(&ty, "a", Some(&once), config);
        assert_eq!(once, twice, "seed {seed}");
    }
}

/// The patch that clients make of two states of a structure: nulls, directives and the order of lists.
fn difference(ty: &Type, old: &Map, new: &Map) -> Map {
    let mut patch = Map::new();
    for (name, before) in old.iter().filter(|(name, _)| new.get(name).is_none()) {
        match ty.field(name).map(|(_, field)| &field.patch) {
            Some(Patch::Merge { key, .. }) => {
                list_difference(ty, name, key, before, &Value::List(Vec::new()), &mut patch)
            }
            _ => drop(patch.insert(name.to_owned(), Value::Null)),
        }
    }
    for (name, after) in new.iter().filter(|(name, after)| old.get(name) != Some(after)) {
        let Some((_, field)) = ty.field(name) else {
            patch.insert(name.to_owned(), after.clone());
            continue;
        };
        match (&field.shape, &field.patch, old.get(name), after) {
            (_, Patch::Merge { key, .. }, before, after) => {
                let none = Value::List(Vec::new());
                list_difference(ty, name, key, before.unwrap_or(&none), after, &mut patch);
            }
            (Shape::Struct(below), _, Some(Value::Map(before)), Value::Map(after)) => {
                patch.insert(name.to_owned(), Value::Map(difference(below, before, after)));
            }
            (Shape::Map(_), _, Some(Value::Map(before)), Value::Map(after)) => {
                let mut entries = Map::new();
                for (key, _) in before.iter().filter(|(key, _)| after.get(key).is_none()) {
                    entries.insert(key.to_owned(), Value::Null);
                }
                for (key, value) in after.iter().filter(|(key, value)| before.get(key) != Some(value)) {
                    entries.insert(key.to_owned(), value.clone());
                }
                patch.insert(name.to_owned(), Value::Map(entries));
            }
            _ => drop(patch.insert(name.to_owned(), after.clone())),
        }
    }
    patch
}

fn list_difference(ty: &Type, name: &str, key: &str, before: &Value, after: &Value, patch: &mut Map) {
    let (before, after) = (before.as_list().unwrap_or_default(), after.as_list().unwrap_or_default());
    if key.is_empty() {
        let gone: Vec<Value> = before.iter().filter(|it| !after.contains(it)).cloned().collect();
        let come: Vec<Value> = after.iter().filter(|it| !before.contains(it)).cloned().collect();
        if !gone.is_empty() {
            patch.insert(format!("$deleteFromPrimitiveList/{name}"), Value::List(gone));
        }
        patch.insert(format!("$setElementOrder/{name}"), Value::List(after.to_vec()));
        if !come.is_empty() {
            patch.insert(name.to_owned(), Value::List(come));
        }
        return;
    }
    let Some((_, Field { shape: Shape::List(list), .. })) = ty.field(name) else { return };
    let Shape::Struct(item) = &list.item else { return };
    let named =
        |items: &[Value], wanted: &Value| items.iter().find(|it| it.at(&[key]) == wanted.at(&[key])).cloned();
    let mut changes = Vec::new();
    for one in after {
        let Some(new) = one.as_map() else { continue };
        let mut change = match named(before, one) {
            Some(Value::Map(old)) => difference(item, &old, new),
            _ => new.clone(),
        };
        if !change.is_empty() {
            change.insert(key.to_owned(), one.text(&[key]));
            changes.push(Value::Map(change));
        }
    }
    for one in before.iter().filter(|one| named(after, one).is_none()) {
        let mut gone = named_only(key, one);
        gone.set(&["$patch"], "delete");
        changes.push(gone);
    }
    let order = after.iter().map(|one| named_only(key, one));
    patch.insert(format!("$setElementOrder/{name}"), Value::List(order.collect()));
    if !changes.is_empty() {
        patch.insert(name.to_owned(), Value::List(changes));
    }
}

/// An item with nothing but its key.
fn named_only(key: &str, item: &Value) -> Value {
    let mut map = Map::new();
    map.insert(key.to_owned(), item.text(&[key]));
    Value::Map(map)
}

#[test]
fn the_patch_between_two_states_leads_from_one_to_the_other() {
    let ty = thing();
    for seed in 1..ROUNDS {
        let mut random = Random::new(seed);
        let old = object(spec(&mut random, &mut |_| true));
        let new = object(spec(&mut random, &mut |_| true));
        let (Value::Map(before), Value::Map(after)) = (&old, &new) else { unreachable!("objects are maps") };
        let patch = Value::Map(difference(&ty, before, after));
        let patched =
            strategic_merge(&ty, old.clone(), &patch).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let bare = |it: &Value| {
            // a list that lost its last item may stay behind, empty
            let mut it = it.clone();
            drop_empty(&mut it);
            it
        };
        assert_eq!(bare(&patched), bare(&new), "seed {seed}: {patch:?}");
    }
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Map(map) => {
            let names: Vec<String> = map.iter().map(|(name, _)| name.to_owned()).collect();
            for name in names {
                if let Some(below) = map.get_mut(&name) {
                    drop_empty(below);
                    if schema::decode::is_zero(below) {
                        map.remove(&name);
                    }
                }
            }
        }
        Value::List(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Every leaf with the place it stands at; items of lists by their keys.
fn leaves(value: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Map(map) => map.iter().for_each(|(name, below)| leaves(below, &format!("{at}/{name}"), found)),
        Value::List(items) if items.iter().all(|it| it.as_map().is_some()) => {
            for item in items {
                let key = [item.text(&["name"]), item.text(&["port"])].concat();
                leaves(item, &format!("{at}[{key}]"), found);
            }
        }
        other => found.push((at.to_owned(), other.clone())),
    }
}

#[test]
fn a_patch_keeps_unnamed_fields() {
    let ty = thing();
    for seed in 1..ROUNDS {
        let mut random = Random::new(seed);
        let old = object(spec(&mut random, &mut |_| true));
        let patch = {
            let mut patch = Value::map();
            patch.set(&["spec"], spec(&mut random, &mut |_| true));
            patch
        };
        let mut named = Vec::new();
        leaves(&patch, "", &mut named);
        let strategic = strategic_merge(&ty, old.clone(), &patch).unwrap();
        let mut merged = old.clone();
        merge_patch(&mut merged, patch.clone()).unwrap();
        let mut before = Vec::new();
        leaves(&old, "", &mut before);
        for (how, patched) in [("strategic", &strategic), ("merge", &merged)] {
            let mut after = Vec::new();
            leaves(patched, "", &mut after);
            for (place, value) in &before {
                // a merge patch replaces lists as one
                let list = place.split('[').next().unwrap_or_default();
                let touched = named.iter().any(|(it, _)| {
                    it == place || how == "merge" && place.contains('[') && it.starts_with(list)
                });
                assert!(
                    touched || after.contains(&(place.clone(), value.clone())),
                    "seed {seed}: {how} {place}"
                );
            }
        }
    }
}
