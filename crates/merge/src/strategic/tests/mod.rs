//! Strategic merge over a small hand-made type.

mod recorded;

use super::*;
use crate::error::Rejection;
use crate::managed::tests::json;
use schema::table::{Field, ListKind, ListShape, MapShape, Patch, Scalar, Shape};

fn string() -> Shape {
    Shape::Scalar(Scalar::String)
}

fn list(item: Shape) -> Shape {
    Shape::List(ListShape { item, kind: ListKind::Atomic, default: None }.into())
}

fn merging(name: &'static str, key: &'static str, item: Shape) -> Field {
    Field { patch: Patch::Merge { key: key.into(), retain_keys: false }, ..Field::new(name, list(item)) }
}

fn strings() -> Shape {
    Shape::Map(
        MapShape { value: string(), atomic: false, nullable: false, open: false, default: None }.into(),
    )
}

fn ty() -> Type {
    let port = Type::new(
        "Port",
        "x",
        vec![Field::new("port", Shape::Scalar(Scalar::Int32)), Field::new("name", string())],
    );
    let item = Type::new(
        "Item",
        "x",
        vec![
            Field::new("name", string()),
            Field::new("image", string()),
            Field::new("args", list(string())),
            merging("ports", "port", Shape::Struct(port.into())),
            Field::new("limits", strings()),
        ],
    );
    let item = Shape::Struct(item.into());
    Type::new(
        "Thing",
        "x",
        vec![
            merging("items", "name", item.clone()),
            Field::new("whole", list(item.clone())),
            merging("finalizers", "", string()),
            Field::new("labels", strings()),
            Field::new("one", item),
            Field::new("count", Shape::Scalar(Scalar::Int32)),
            Field::new("free", Shape::Scalar(Scalar::Object)),
            merging("keyless", "", Shape::Struct(Type::new("Keyless", "x", Vec::new()).into())),
        ],
    )
}

#[track_caller]
fn check(object: &str, patch: &str, expected: &str) {
    assert_eq!(
        strategic_merge(&ty(), json(object), &json(patch)).unwrap(),
        json(expected),
        "{object} + {patch}"
    );
}

#[track_caller]
fn check_refused(object: &str, patch: &str, code: u16, message: &str) {
    let why = strategic_merge(&ty(), json(object), &json(patch)).unwrap_err();
    assert_eq!((why.code(), &*why.to_string()), (code, message), "{object} + {patch}");
}

#[test]
fn maps_merge_and_null_takes_away() {
    check(
        r#"{"labels":{"a":"1","b":"2"}}"#,
        r#"{"labels":{"b":"3","c":"4"}}"#,
        r#"{"labels":{"a":"1","b":"3","c":"4"}}"#,
    );
    check(r#"{"labels":{"a":"1","b":"2"}}"#, r#"{"labels":{"b":null,"z":null}}"#, r#"{"labels":{"a":"1"}}"#);
    check(r#"{"labels":{"a":"1"}}"#, r#"{"labels":null}"#, "{}");
    check(
        "{}",
        r#"{"one":{"name":"n","image":null,"limits":{"a":null,"b":"1"}}}"#,
        r#"{"one":{"name":"n","limits":{"b":"1"}}}"#,
    );
    // of an object of any form only scalars can be merged
    check(
        r#"{"free":{"a":1,"b":[1]}}"#,
        r#"{"free":{"a":2,"b":{"c":1}}}"#,
        r#"{"free":{"a":2,"b":{"c":1}}}"#,
    );
    for (held, patch) in [(r#"{"k":{"b":1}}"#, r#"{"k":{"c":2}}"#), (r#"{"k":[1]}"#, r#"{"k":[2]}"#)] {
        let text = r#"unable to find api field in struct RawExtension for the json field "k""#;
        check_refused(&format!(r#"{{"free":{held}}}"#), &format!(r#"{{"free":{patch}}}"#), 500, text);
    }
    check(r#"{"count":1}"#, r#"{"count":3.0}"#, r#"{"count":3}"#);
    check(r#"{"count":1}"#, "null", r#"{"count":1}"#);
    // unknown fields are the decoder's business
    check(r#"{"count":1}"#, r#"{"bogus":{"a":[1]},"$x":1}"#, r#"{"count":1,"bogus":{"a":[1]},"$x":1}"#);
}

#[test]
fn lists_are_replaced_unless_they_merge() {
    let object = r#"{"whole":[{"name":"a"}],"one":{"args":["x"]}}"#;
    check(
        object,
        r#"{"whole":[{"name":"b","$patch":"delete"}],"one":{"args":["y"]}}"#,
        r#"{"whole":[{"name":"b","$patch":"delete"}],"one":{"args":["y"]}}"#,
    );
    let items = r#"{"items":[{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"c","image":"3"}]}"#;
    check(
        items,
        r#"{"items":[{"name":"b","image":"9"}]}"#,
        r#"{"items":[{"name":"a","image":"1"},{"name":"b","image":"9"},{"name":"c","image":"3"}]}"#,
    );
    check(items, r#"{"items":[]}"#, items);
    // new items come before those that only the server has, where nothing else says their place
    check(
        items,
        r#"{"items":[{"name":"n"}]}"#,
        r#"{"items":[{"name":"n"},{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"c","image":"3"}]}"#,
    );
    check(
        items,
        r#"{"items":[{"name":"b"},{"name":"n"}]}"#,
        r#"{"items":[{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"n"},{"name":"c","image":"3"}]}"#,
    );
    // the same key twice in the patch: one after the other
    check(
        items,
        r#"{"items":[{"name":"c","image":"4"},{"name":"c","image":"5"}]}"#,
        r#"{"items":[{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"c","image":"5"}]}"#,
    );
    check(r#"{"finalizers":["a","b"]}"#, r#"{"finalizers":["c","b"]}"#, r#"{"finalizers":["c","a","b"]}"#);
    check("{}", r#"{"items":[{"name":"a","$patch":"delete"},{"name":"b"}]}"#, r#"{"items":[{"name":"b"}]}"#);
    check(
        r#"{"items":[{"name":"a","ports":[{"port":1,"name":"x"}]}]}"#,
        r#"{"items":[{"name":"a","ports":[{"port":1.0,"name":"y"}]}]}"#,
        r#"{"items":[{"name":"a","ports":[{"port":1,"name":"y"}]}]}"#,
    );
}

#[test]
fn directives_of_maps_and_items() {
    let items = r#"{"items":[{"name":"a"},{"name":"b"},{"name":"c"}],"labels":{"x":"1"}}"#;
    check(
        items,
        r#"{"items":[{"name":"b","$patch":"delete"}]}"#,
        r#"{"items":[{"name":"a"},{"name":"c"}],"labels":{"x":"1"}}"#,
    );
    check(
        items,
        r#"{"items":[{"$patch":"replace"},{"name":"z"}]}"#,
        r#"{"items":[{"name":"z"}],"labels":{"x":"1"}}"#,
    );
    check(items, r#"{"items":null,"labels":{"$patch":"replace","y":"2"}}"#, r#"{"labels":{"y":"2"}}"#);
    check(items, r#"{"items":null,"labels":{"$patch":"delete"}}"#, r#"{"labels":{}}"#);
    check(items, r#"{"$patch":"delete"}"#, "{}");
    check_refused(
        items,
        r#"{"items":[{"$patch":"merge"}]}"#,
        500,
        "merging lists cannot yet be specified in the patch",
    );
    check_refused(items, r#"{"items":[{"$patch":"x"}]}"#, 500, "unknown patch type: x in map: map[$patch:x]");
    check_refused(
        items,
        r#"{"labels":{"$patch":"merge"}}"#,
        500,
        "unknown patch type: merge in map: map[$patch:merge]",
    );
    check_refused(
        items,
        r#"{"items":[{"$patch":"delete"}]}"#,
        500,
        "map: map[$patch:delete] does not contain declared merge key: name",
    );
}

#[test]
fn kept_keys_are_named() {
    let object = r#"{"one":{"name":"n","image":"i","args":["x"]}}"#;
    check(
        object,
        r#"{"one":{"$retainKeys":["name","limits"],"limits":{"a":"1"}}}"#,
        r#"{"one":{"name":"n","limits":{"a":"1"}}}"#,
    );
    check(object, r#"{"one":{"$retainKeys":["name"],"args":null}}"#, r#"{"one":{"name":"n"}}"#);
    let text = "invalid patch format of retainKeys";
    check_refused(object, r#"{"one":{"$retainKeys":["name"],"image":"j"}}"#, 400, text);
    check_refused(object, r#"{"one":{"$retainKeys":"name"}}"#, 400, text);
}

#[test]
fn order_is_set_and_scalars_are_deleted() {
    let items = r#"{"items":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#;
    check(
        items,
        r#"{"$setElementOrder/items":[{"name":"c"},{"name":"a"}]}"#,
        r#"{"items":[{"name":"b"},{"name":"c"},{"name":"a"}]}"#,
    );
    check(
        items,
        r#"{"$setElementOrder/items":[{"name":"c"},{"name":"n"},{"name":"a"}],"items":[{"name":"n"},{"name":"b","$patch":"delete"}]}"#,
        r#"{"items":[{"name":"c"},{"name":"n"},{"name":"a"}]}"#,
    );
    check("{}", r#"{"$setElementOrder/items":[{"name":"c"}]}"#, "{}");
    check(
        "{}",
        r#"{"$setElementOrder/items":[{"name":"b"},{"name":"a"}],"items":[{"name":"b"},{"name":"a"}]}"#,
        r#"{"items":[{"name":"b"},{"name":"a"}]}"#,
    );
    let both = r#"{"finalizers":["a","b","c"]}"#;
    check(both, r#"{"$deleteFromPrimitiveList/finalizers":["b"]}"#, r#"{"finalizers":["a","c"]}"#);
    check(
        both,
        r#"{"$deleteFromPrimitiveList/finalizers":["b"],"$setElementOrder/finalizers":["d","c","a"],"finalizers":["d"]}"#,
        r#"{"finalizers":["d","c","a"]}"#,
    );
    check("{}", r#"{"$deleteFromPrimitiveList/finalizers":["b"]}"#, "{}");
    let args = r#"{"one":{"args":["a","b"]}}"#;
    check(args, r#"{"one":{"$deleteFromPrimitiveList/args":["b","z"]}}"#, r#"{"one":{"args":["b","z"]}}"#);
    check(r#"{"one":{}}"#, r#"{"one":{"$deleteFromPrimitiveList/args":["b"]}}"#, r#"{"one":{}}"#);
    check_refused(
        items,
        r#"{"$setElementOrder/items":[{"name":"a"},{"name":"b"}],"items":[{"name":"b"},{"name":"a"}]}"#,
        500,
        "The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n",
    );
    check_refused(items, r#"{"$setElementOrder":[]}"#, 400, "invalid patch format of setElementOrder list");
    // an item of the list has no place before one of the order that is no map
    for (order, at) in [(r#"["x"]"#, 0), (r#"[{"name":"z"},1,{"name":"a"}]"#, 1)] {
        let why = format!("value for key {at} is not a map");
        check_refused(items, &format!(r#"{{"$setElementOrder/items":{order}}}"#), 500, &why);
    }
    check_refused(
        items,
        r#"{"$setElementOrder/items":{}}"#,
        500,
        "expected a []interface {}, but received a map[string]interface {}",
    );
    check_refused(both, r#"{"$deleteFromPrimitiveListx":[]}"#, 400, "invalid patch format of primitive list");
}

#[test]
fn an_item_whose_key_is_null_is_new() {
    check(
        r#"{"items":[{"name":"a","image":"x"}]}"#,
        r#"{"items":[{"name":null,"image":"y"}]}"#,
        r#"{"items":[{"image":"y","name":null},{"image":"x","name":"a"}]}"#,
    );
}

#[test]
fn contradictory_directives_are_rejected() {
    let object = r#"{"items":[{"name":"a"}],"finalizers":["a"],"keyless":[{}]}"#;
    check_refused(
        object,
        r#"{"items":[{"image":"x"}]}"#,
        500,
        "map: map[image:x] does not contain declared merge key: name",
    );
    check_refused(
        object,
        r#"{"items":["x"]}"#,
        500,
        "list element types are not identical: [[map[name:a]] [x]]",
    );
    check_refused(
        object,
        r#"{"finalizers":[null]}"#,
        500,
        "list element types are not identical: [[a] [<nil>]]",
    );
    // an order compares the lists, though this one does not merge
    check_refused(
        r#"{"one":{"args":["a"]}}"#,
        r#"{"one":{"args":[{}],"$setElementOrder/args":[{}]}}"#,
        500,
        "list element types are not identical: [[a] [map[]]]",
    );
    check_refused(object, r#"{"keyless":[{}]}"#, 500, "cannot merge lists without merge key for Keyless");
    check_refused(
        object,
        "[]",
        400,
        "json: cannot unmarshal array into Go value of type map[string]interface {}",
    );
    let invalid = |patch: &str, formatted: &str, why: &str| {
        check_refused(
            object,
            patch,
            422,
            &format!(" \"\" is invalid: patch: Invalid value: \"{formatted}\": {why}"),
        );
    };
    invalid(r#"{"count":"x"}"#, "map[count:x]", "unrecognized type: int32");
    invalid(r#"{"count":1.5}"#, "map[count:1.5]", "cannot convert float64 to int32");
    invalid(r#"{"labels":["x"]}"#, "map[labels:[x]]", "cannot restore map from slice");
    invalid(r#"{"labels":{"a":1}}"#, "map[labels:map[a:1]]", "cannot convert int64 to string");
    invalid(r#"{"items":{"a":"b"}}"#, "map[items:map[a:b]]", "cannot restore slice from map");
    invalid(r#"{"one":true}"#, "map[one:true]", "cannot restore struct from: bool");
}

#[test]
fn replaced_lists_are_ordered() {
    let args = r#"{"one":{"args":["a","b","c"]}}"#;
    check(args, r#"{"one":{"$setElementOrder/args":["b","a"]}}"#, r#"{"one":{"args":["b","a","c"]}}"#);
    // without an order, items of the live list keep theirs
    let patch = r#"{"one":{"args":["c","a"],"$setElementOrder/args":[]}}"#;
    check(args, patch, r#"{"one":{"args":["a","c"]}}"#);
    let patch = r#"{"one":{"args":["c","a"],"$setElementOrder/args":["c","a"]}}"#;
    check(args, patch, r#"{"one":{"args":["c","a"]}}"#);
    let why = "The order in patch list:\n[c a]\n doesn't match $setElementOrder list:\n[a c]\n";
    check_refused(args, r#"{"one":{"args":["c","a"],"$setElementOrder/args":["a","c"]}}"#, 500, why);
    // maps without a key have no order
    let whole = r#"{"whole":[{"name":"a"},{"name":"b"}]}"#;
    let why = "map: map[name:a] does not contain declared merge key: ";
    check_refused(whole, r#"{"whole":[],"$setElementOrder/whole":[]}"#, 500, why);
    let why = "expected a map[string]interface {}, but received a string";
    check_refused(whole, r#"{"whole":[],"$setElementOrder/whole":["x"]}"#, 500, why);
    check(whole, r#"{"whole":[{"name":"b"}],"$setElementOrder/whole":[]}"#, r#"{"whole":[{"name":"b"}]}"#);
}

#[test]
fn depth_is_bounded() {
    let deep = |depth: usize| {
        let mut value = Value::map();
        for _ in 0..depth {
            value = Value::Map([("free".into(), value)].into_iter().collect());
        }
        value
    };
    assert!(strategic_merge(&ty(), Value::map(), &deep(500)).is_ok());
    assert_eq!(strategic_merge(&ty(), Value::map(), &deep(600)), Err(Error::Rejected(Rejection::TooDeep)));
}

#[test]
fn long_lists_are_not_scanned_for_each_item() {
    let items = |range: std::ops::Range<usize>| {
        let item = |n| Value::Map([("name".into(), Value::String(format!("n{n}")))].into_iter().collect());
        let list: Vec<Value> = range.map(item).collect();
        Value::Map([("items".into(), Value::List(list))].into_iter().collect())
    };
    let merged = strategic_merge(&ty(), items(0..60_000), &items(30_000..90_000)).unwrap();
    let names: Vec<&str> = merged.items(&["items"]).iter().map(|item| item.text(&["name"])).collect();
    assert_eq!(names.len(), 90_000);
    assert_eq!((names[0], names[89_999]), ("n0", "n89999"));
}

/// A small random map of the type, with directives in it or not.
fn random_patch(random: &mut impl FnMut(u64) -> u64, directives: bool) -> Value {
    let mut patch = Value::map();
    let names = ["a", "b", "c", "d"];
    let mut items = Vec::new();
    for _ in 0..random(4) {
        let mut item = Value::map();
        item.set(&["name"], names[random(4) as usize]);
        match random(if directives { 6 } else { 3 }) {
            0 => item.set(&["image"], names[random(4) as usize]),
            1 => item.set(&["image"], Value::Null),
            2 => item.set(&["limits"], json(r#"{"x":"1","y":null}"#)),
            3 => item.set(&["$patch"], "delete"),
            4 => item = json(r#"{"$patch":"replace"}"#),
            _ => item.set(&["$retainKeys"], json(r#"["name"]"#)),
        }
        items.push(item);
    }
    if random(3) > 0 {
        patch.set(&["items"], items.clone());
    }
    if directives && random(2) == 0 {
        let order = items.into_iter().filter(|item| item.at(&["$patch"]).is_none());
        patch.set(&["$setElementOrder/items"], order.collect::<Vec<_>>());
    }
    let some = |random: &mut dyn FnMut(u64) -> u64| -> Vec<Value> {
        (0..random(4)).map(|_| Value::from(names[random(4) as usize])).collect()
    };
    if random(2) == 0 {
        patch.set(&["finalizers"], some(random));
    }
    if directives && random(3) == 0 {
        patch.set(&["$deleteFromPrimitiveList/finalizers"], some(random));
    }
    patch
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Map(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Map(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::List(items) => Value::List(items.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

#[test]
fn patching_twice_is_patching_once() {
    for seed in 1..2000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let object = json(
            r#"{"items":[{"name":"a","image":"1"},{"name":"b"},{"name":"c","limits":{"y":"2"}}],
                "finalizers":["a","b","c"]}"#,
        );
        let plain = random_patch(&mut random, false);
        let once = strategic_merge(&ty(), object.clone(), &plain).unwrap();
        let twice = strategic_merge(&ty(), once.clone(), &plain).unwrap();
        // an added item keeps its nulls, which the same patch removes from an item that is there
        assert_eq!(without_nulls(once), without_nulls(twice), "seed {seed}: {plain:?}");
        // with directives a patch may fail, with known errors only, and removes only the named items
        let directed = random_patch(&mut random, true);
        match strategic_merge(&ty(), object, &directed) {
            Ok(patched) => {
                let mut names: Vec<_> =
                    patched.items(&["items"]).iter().map(|it| it.text(&["name"])).collect();
                let count = names.len();
                names.sort();
                names.dedup();
                let replaced = directed.items(&["items"]).iter().any(|it| it.text(&["$patch"]) == "replace");
                assert!(names.len() == count || replaced, "seed {seed}: {directed:?} {patched:?}");
            }
            Err(why) => assert!(matches!(why.code(), 400 | 500), "seed {seed}: {why}"),
        }
    }
}

#[test]
fn patches_that_change_a_growing_item_again_and_again_are_rejected() {
    let patch = |count: usize| {
        let items = (0..count).map(|at| format!(r#"{{"name":"a","limits":{{"k{at}":"1"}}}}"#));
        format!(r#"{{"items":[{}]}}"#, items.collect::<Vec<_>>().join(","))
    };
    let merged = |count| strategic_merge(&ty(), json(r#"{"items":[{"name":"a"}]}"#), &json(&patch(count)));
    let limits = |object: Value| object.items(&["items"])[0].at(&["limits"]).unwrap().as_map().unwrap().len();
    assert_eq!(limits(merged(1_000).unwrap()), 1_000);
    assert_eq!(merged(3_000).unwrap_err(), Error::from(Rejection::TooMuchMoved));
    // an error text is bounded in the same way
    let text = format_spent(&ty(), &json(r#"{"items":[{"name":"b"}]}"#), &json(&patch(3_000)));
    assert!(text.len() < 3_000_000, "{}", text.len());
}

#[test]
fn items_that_are_added_to_a_list_keep_their_nulls() {
    let object = r#"{"items":[{"name":"a","image":"1"}]}"#;
    check(
        object,
        r#"{"items":[{"name":"b","limits":{"x":null}}]}"#,
        r#"{"items":[{"name":"b","limits":{"x":null}},{"name":"a","image":"1"}]}"#,
    );
    // not those of an item that the object has, of a list that it does not have, or of an item with directives
    for (object, patch, expected) in [
        (
            object,
            r#"{"items":[{"name":"a","limits":{"x":null}}]}"#,
            r#"{"items":[{"name":"a","image":"1","limits":{}}]}"#,
        ),
        ("{}", r#"{"items":[{"name":"b","limits":{"x":null}}]}"#, r#"{"items":[{"name":"b","limits":{}}]}"#),
        (
            object,
            r#"{"items":[{"name":"b","limits":{"x":null},"$retainKeys":["name","limits"]}]}"#,
            r#"{"items":[{"name":"b","limits":{}},{"name":"a","image":"1"}]}"#,
        ),
    ] {
        check(object, patch, expected);
    }
    // a null key is one, until another item with it is merged into the first
    check(
        object,
        r#"{"items":[{"name":null,"image":"2"}]}"#,
        r#"{"items":[{"name":null,"image":"2"},{"name":"a","image":"1"}]}"#,
    );
    let twice = r#"{"items":[{"name":null,"image":"2"},{"name":null,"image":"3"}]}"#;
    check_refused(object, twice, 500, "map: map[image:3] does not contain declared merge key: name");
}

#[test]
fn errors_show_the_patch_without_the_nulls_that_it_has_spent() {
    let object = json(r#"{"items":[{"name":"a"}],"whole":[{"name":"a"}]}"#);
    for (patch, spent) in [
        (r#"{"items":[{"name":"a","limits":{"x":null}}]}"#, "map[items:[map[limits:map[] name:a]]]"),
        (r#"{"items":[{"name":"b","limits":{"x":null}}]}"#, "map[items:[map[limits:map[x:<nil>] name:b]]]"),
        (r#"{"whole":[{"name":"a","limits":{"x":null}}]}"#, "map[whole:[map[limits:map[x:<nil>] name:a]]]"),
        // items of one key are merged into the first
        (
            r#"{"items":[{"name":"b","image":"1"},{"name":"b","args":null,"limits":{"x":null}}]}"#,
            "map[items:[map[image:1 limits:map[] name:b] map[args:<nil> limits:map[] name:b]]]",
        ),
        (
            r#"{"items":[{"name":"a","limits":{"x":"1"}},{"name":"a","image":"1","limits":{"y":"2"}}]}"#,
            "map[items:[map[limits:map[x:1 y:2] name:a] map[image:1 limits:map[y:2] name:a]]]",
        ),
        (
            r#"{"items":[{"name":"a","ports":[{"port":1}]},{"name":"a","ports":[{"port":1,"name":"x"},{"port":2}]}]}"#,
            "map[items:[map[name:a ports:[map[name:x port:1]]] map[name:a ports:[map[name:x port:1] map[port:2]]]]]",
        ),
    ] {
        assert_eq!(format_spent(&ty(), &object, &json(patch)), spent);
    }
}
