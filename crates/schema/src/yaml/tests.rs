use super::*;
use crate::value::Value;

fn json(text: &str) -> String {
    match parse(text.as_bytes(), Limits::default()) {
        Ok(document) => String::from_utf8(crate::encode::untyped(&document.value)).unwrap(),
        Err(why) => why.cause().to_owned(),
    }
}

fn value(json: &str) -> Value {
    crate::decode::json_untyped(json.as_bytes()).unwrap().value
}

#[test]
fn plain_scalars_resolve_by_yaml_1_1() {
    for (text, expected) in [
        ("y", "true"),
        ("NO", "false"),
        ("Off", "false"),
        ("nO", "\"nO\""),
        ("~", "null"),
        ("''", "\"\""),
        ("0777", "511"),
        ("0o17", "15"),
        ("0x1F", "31"),
        ("0b11", "3"),
        ("-0b11", "-3"),
        ("+0x1F", "31"),
        ("1_000", "1000"),
        ("08", "8"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1.5_0", "1.5"),
        ("2020-01-01", "\"2020-01-01\""),
        ("2020-01-01T00:00:00Z", "\"2020-01-01T00:00:00Z\""),
        ("1:30", "\"1:30\""),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1e400", "\"1e400\""),
        ("0x", "\"0x\""),
        ("1e", "\"1e\""),
        ("!!str 1", "\"1\""),
        ("!!int '1'", "1"),
        ("!foo 1", "\"1\""),
        ("!!binary aGk=", "\"hi\""),
        ("!!float 1", "1"),
        ("+", "\"+\""),
        ("+1", "1"),
        ("-0", "0"),
        ("12e03", "12000"),
        ("\"\\u263a\\x41\"", "\"☺A\""),
        (".", "\".\""),
        ("|\n  x\n  y\n", "\"x\\ny\\n\""),
        (">\n  x\n  y\n\n  z\n", "\"x y\\nz\\n\""),
        ("'it''s'", "\"it's\""),
    ] {
        assert_eq!(json(&format!("a: {text}")), format!("{{\"a\":{expected}}}"), "{text}");
    }
}

#[test]
fn keys_documents_and_merges() {
    for (text, expected) in [
        ("1: a", r#"{"1":"a"}"#),
        ("1.5: a", r#"{"1.5":"a"}"#),
        ("1e3: a", r#"{"1000":"a"}"#),
        ("y: a", r#"{"true":"a"}"#),
        ("100000000000000000000: a", r#"{"1e+20":"a"}"#),
        (".inf: a", r#"{".inf":"a"}"#),
        ("a: 1\n<<: {a: 2, b: 3}", r#"{"a":2,"b":3}"#),
        ("x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  a: 5", r#"{"x":{"a":1,"b":2},"z":{"a":5,"b":2}}"#),
        ("z:\n  <<: [{a: 1},{a: 2}]", r#"{"z":{"a":1}}"#),
        ("'<<': 1", r#"{"<<":1}"#),
        ("a: x\n---\nb: [", r#"{"a":"x"}"#),
        ("---\n---\na: 1", "null"),
        ("", "null"),
        ("# c", "null"),
        ("- 1\n- 2", "[1,2]"),
        ("\u{feff}a: b", r#"{"a":"b"}"#),
        ("{\n\t\"a\": [\n\t\t1\n\t]\n}", r#"{"a":[1]}"#),
        ("{\"a\":\"\\/\"}", r#"{"a":"/"}"#),
        ("a: [b: c]", r#"{"a":[{"b":"c"}]}"#),
        ("{\"a\":\t1.0}", r#"{"a":1}"#),
    ] {
        assert_eq!(json(text), expected, "{text}");
    }
}

#[test]
fn brackets_behind_the_first_document_are_no_part_of_it() {
    for (text, expected) in [
        ("{a: b}]", r#"{"a":"b"}"#),
        ("{a: {b: [c]}} }", r#"{"a":{"b":["c"]}}"#),
        ("{\"a\":1}\n,", r#"{"a":1}"#),
        ("{a: '}]', b: \"}\\\"]\"}]", r#"{"a":"}]","b":"}\"]"}"#),
        ("[a]]", r#"["a"]"#),
    ] {
        assert_eq!(json(text), expected, "{text}");
    }
}

#[test]
fn refusals_in_the_words_that_clients_know() {
    let cases = [
        ("a: [b", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: [", "yaml: line 1: did not find expected node content"),
        ("{", "yaml: line 1: did not find expected node content"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a: 1\n b: 2", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: @x", "yaml: found character that cannot start any token"),
        ("a: \u{1}", "yaml: control characters are not allowed"),
        ("a: 'x", "yaml: found unexpected end of stream"),
        ("- a\nb: c", "yaml: line 1: did not find expected '-' indicator"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("a: -.inf", "json: unsupported value: -Inf"),
        ("<<: 5", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: !!null x", "yaml: cannot decode !!str `x` as a !!null"),
        ("a: &x [*x]", "yaml: anchor value contains itself"),
        ("a: *nope", "yaml: unknown anchor 'nope' referenced"),
        ("a\nb: 1", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: \"x", "yaml: found unexpected end of stream"),
        ("a: 1\nb\nc: 2\n", "yaml: line 3: could not find expected ':'"),
        ("a: 1\nb", "yaml: line 3: could not find expected ':'"),
        ("a: \"x\" y", "yaml: did not find expected key"),
        ("a: \"x\"]", "yaml: did not find expected key"),
        ("a: ]", "yaml: did not find expected node content"),
        ("}", "yaml: did not find expected node content"),
        ("]", "yaml: did not find expected node content"),
        ("a: %x", "yaml: found character that cannot start any token"),
        ("a: `x", "yaml: found character that cannot start any token"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("a: \"\\q\"", "yaml: found unknown escape character"),
        ("a: \"\\x1\"", "yaml: did not find expected hexdecimal number"),
        ("a: \"\\uD800\"", "yaml: found invalid Unicode character escape code"),
        ("a: |x\n  b", "yaml: did not find expected comment or line break"),
        ("a: >5 x\n b", "yaml: did not find expected comment or line break"),
        ("a: - b", "yaml: block sequence entries are not allowed in this context"),
        ("- - a\n - b\n  c: d", "yaml: line 1: did not find expected '-' indicator"),
        ("a: ? b", "yaml: mapping keys are not allowed in this context"),
        ("[a, b", "yaml: line 1: did not find expected ',' or ']'"),
        ("[a, b}", "yaml: did not find expected ',' or ']'"),
        ("{a: b]", "yaml: did not find expected ',' or '}'"),
        ("{a: b, c", "yaml: line 1: did not find expected ',' or '}'"),
        ("{a: b,", "yaml: line 1: did not find expected node content"),
        ("{a:", "yaml: line 1: did not find expected node content"),
        ("{a", "yaml: line 1: did not find expected ',' or '}'"),
        ("[a,", "yaml: line 1: did not find expected node content"),
        ("[", "yaml: line 1: did not find expected node content"),
        ("a: &", "yaml: did not find expected alphabetic or numeric character"),
        ("a: * ", "yaml: did not find expected alphabetic or numeric character"),
        ("a: !<x", "yaml: did not find the expected '>'"),
        ("a: !x!y z", "yaml: found undefined tag handle"),
        ("%YAML 9\n---\na: b", "yaml: did not find expected digit or '.' character"),
        ("a: {b: c}}\n", "yaml: did not find expected key"),
        ("a: [b\nc: d\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("a:\n  b: c\n d: e", "yaml: line 2: did not find expected key"),
        ("a:\n- b\n c: d", "yaml: line 3: mapping values are not allowed in this context"),
        ("a: |\n b\nc", "yaml: line 4: could not find expected ':'"),
        ("a:\n  b:*\n    c: 1\n", "yaml: line 3: mapping values are not allowed in this context"),
        ("a:\n  b\n  c\n    d: 1\n", "yaml: line 4: mapping values are not allowed in this context"),
        ("a:\n  x: y\n  b:*\n    c: 1\n", "yaml: line 4: could not find expected ':'"),
        ("a:\n  x: |\n   y\n  b\n   c: 1\n", "yaml: line 5: could not find expected ':'"),
        ("a:\n  b: c\n    d: 1\n", "yaml: line 3: mapping values are not allowed in this context"),
        ("a:\n  b: c\n    d\n    e: 1\n", "yaml: line 4: mapping values are not allowed in this context"),
        ("a:\n  b: 'c\nd: e\nf: 'g\n", "yaml: line 3: did not find expected key"),
        (
            "a: 1\n[b, 2, {c: null}]: d\n",
            "yaml: invalid map key: []interface {}{\"b\", 2, map[interface {}]interface {}{\"c\":interface {}(nil)}}",
        ),
        ("a: 'it''s' b", "yaml: did not find expected key"),
        ("- a\n  b: c\n d", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: b\n  c: d", "yaml: line 2: mapping values are not allowed in this context"),
        ("- a\n- b\n c: d\n", "yaml: line 3: mapping values are not allowed in this context"),
        ("a: [b: c: d]", "yaml: did not find expected ',' or ']'"),
        ("{a: b: c}", "yaml: did not find expected ',' or '}'"),
        ("[a b c", "yaml: line 1: did not find expected ',' or ']'"),
        ("[a\n b: c", "yaml: line 1: did not find expected ',' or ']'"),
        ("\"a\" b: c", "yaml: did not find expected key"),
        ("a: \"b\n---\nc\"", "yaml: line 2: found unexpected document indicator"),
        ("a: 'b\n...\n'", "yaml: line 2: found unexpected document indicator"),
        ("{\"a\":1,,}", "yaml: did not find expected node content"),
        ("[,]", "yaml: did not find expected node content"),
        ("{,}", "yaml: did not find expected node content"),
        ("{\"a\" \"b\"}", "yaml: did not find expected ',' or '}'"),
        ("{\"a\":\"b\" \"c\"}", "yaml: did not find expected ',' or '}'"),
        ("{\"a\"1}", "yaml: did not find expected ',' or '}'"),
        ("{\"a\":\"b\"\"}", "yaml: found unexpected end of stream"),
        ("{\"a\":\"b}", "yaml: found unexpected end of stream"),
        ("{\"a\":\"b\\}", "yaml: found unknown escape character"),
        ("{\"a\":{\"b\":1}", "yaml: line 1: did not find expected ',' or '}'"),
        ("{\"a\":[1,2}", "yaml: did not find expected ',' or ']'"),
        ("{\"a\":[1,2]]}", "yaml: did not find expected ',' or '}'"),
        ("a:\n  - b\n -c", "yaml: line 2: did not find expected key"),
        ("- a\n-b\n", "yaml: line 3: could not find expected ':'"),
        ("key: [a, b]: c", "yaml: mapping values are not allowed in this context"),
        ("? [a\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("!!", "yaml: did not find expected tag URI"),
        ("*a", "yaml: unknown anchor 'a' referenced"),
        ("---\n%", "yaml: line 2: could not find expected directive name"),
        ("a: |+5-\n", "yaml: did not find expected comment or line break"),
        ("a: |0\n x", "yaml: found an indentation indicator equal to 0"),
        ("a: >\n\t x", "yaml: line 2: found a tab character where an indentation space is expected"),
    ];
    let found = cases.map(|(text, expected)| (text, json(text), expected));
    let differing: Vec<_> = found.iter().filter(|(_, found, expected)| found != expected).collect();
    assert!(differing.is_empty(), "{differing:#?}");
    let why = parse(b"a: [b", Limits::default()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "error converting YAML to JSON: yaml: line 1: did not find expected ',' or ']'"
    );
    assert!(json("? [a]\n: b").starts_with("yaml: invalid map key"));
    // what cannot be parsed comes before what has no meaning
    assert_eq!(json("{\"a\"}: {\"b\": {}}}"), "yaml: did not find expected key");
    assert_eq!(json("a: .nan\na: 1"), r#"{"a":1}"#);
    assert_eq!(json("~: x"), r#"Unsupported map key of type: %!s(<nil>), key: <nil>, value: "x""#);
    assert_eq!(json("~: 5"), "Unsupported map key of type: %!s(<nil>), key: <nil>, value: 5");
    assert_eq!(json("<<: 5\na: [b"), "yaml: line 2: did not find expected ',' or ']'");
    assert_eq!(json("a: !!null x\nb: @c"), "yaml: line 2: found character that cannot start any token");
    assert!(parse(b"\xff\xfe", Limits::default()).is_err());
}

#[test]
fn repeated_keys_are_reported_with_their_lines() {
    let repeated = |text: &str| parse(text.as_bytes(), Limits::default()).unwrap().repeated;
    assert_eq!(
        repeated("a: {b: 1, b: 2}\na: 3"),
        ["line 1: key \"b\" already set in map", "line 2: key \"a\" already set in map"]
    );
    assert_eq!(repeated("a:\n  b: 1\na:\n  c: 2"), ["line 4: key \"a\" already set in map"]);
    assert_eq!(repeated("1: a\n1: b"), ["line 2: key 1 already set in map"]);
    assert!(repeated("a: 1\nb: 2").is_empty());
    assert!(repeated("y: 1\n'true': 2\n1: a\n'1': b\n1.0: c").is_empty(), "the keys are of several types");
    assert_eq!(repeated("y: 1\n'true': 2\non: 3"), ["line 3: key true already set in map"]);
}

#[test]
fn growth_is_bounded() {
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{},", level - 1).repeat(9);
        laughs += &format!("a{level}: &a{level} [{before}]\n");
    }
    assert_eq!(json(&laughs), "yaml: document contains excessive aliasing");
    let limits = Limits { bytes: 10, ..Limits::default() };
    assert!(parse(b"12345678901", limits).is_err());
    let deep = "- ".repeat(100_000);
    assert!(json(&deep).contains("exceeded max depth"), "{}", json(&deep));
    assert!(json(&"[".repeat(100_000)).contains("exceeded max depth"));
    assert!(json(&"{a: ".repeat(100_000)).contains("exceeded max depth"));
    assert_eq!(json(&format!("{}x", "- ".repeat(500))).len(), 500 + 3 + 500);
}

#[test]
fn written_as_the_api_writes() {
    for (from, expected) in [
        (r#"{"b":[1,{"c":null,"d":[]}],"a":{"x":{}}}"#, "a:\n  x: {}\nb:\n- 1\n- c: null\n  d: []\n"),
        (r#"[[1,2],[[]],{"a":[3]}]"#, "- - 1\n  - 2\n- - []\n- a:\n  - 3\n"),
        (
            r#"{"a":"","b":"y","c":"1","d":"x y","e":"*","f":"a: b","g":"2020-01-01","h":"1:30","i":"~","j":"-","k":"- x"}"#,
            "a: \"\"\nb: \"y\"\nc: \"1\"\nd: x y\ne: '*'\nf: 'a: b'\ng: \"2020-01-01\"\nh: \"1:30\"\ni: \"~\"\nj: '-'\nk: '- x'\n",
        ),
        (
            r#"{"a":"x\ny\n","b":"x\ny","c":"x\n\n","d":" x\ny","e":"\n","f":"x \ny","g":"a\tb","h":"x\r\n"}"#,
            "a: |\n  x\n  y\nb: |-\n  x\n  y\nc: |+\n  x\n\nd: |2-\n   x\n  y\ne: |2+\n\nf: \"x \\ny\"\ng: \"a\\tb\"\nh: \"x\\r\\n\"\n",
        ),
        (
            r#"{"a10":1,"a9":1,"a-b":1,"aB":1,"true":1,"1":1,"":1}"#,
            "\"\": 1\n\"1\": 1\na-b: 1\na9: 1\na10: 1\naB: 1\n\"true\": 1\n",
        ),
        (
            r#"{"a":1.5,"b":1e21,"c":-0.25,"d":12345678.5,"e":true}"#,
            "a: 1.5\nb: 1e+21\nc: -0.25\nd: 1.23456785e+07\ne: true\n",
        ),
        (
            r#"{"a":"it's","b":"é☺","c":"😀","d":"'q'","e":"a #b","f":"a#b","g":"x:"}"#,
            "a: it's\nb: é☺\nc: \"\\U0001F600\"\nd: '''q'''\ne: 'a #b'\nf: a#b\ng: 'x:'\n",
        ),
    ] {
        assert_eq!(emit(&value(from)), expected, "{from}");
    }
    let long = format!("{{\"{}\":{{\"a\":1}},\"b\":\"{}end\"}}", "k".repeat(130), "word ".repeat(20));
    let text = emit(&value(&long));
    assert!(text.contains(&format!("? {}\n: a: 1\n", "k".repeat(130))), "{text}");
    assert_eq!(text.lines().next().unwrap().len(), 82, "{text}");
}

#[test]
fn written_yaml_round_trips() {
    let pieces = [
        "a",
        " ",
        "\n",
        ":",
        "#",
        "-",
        "'",
        "\"",
        "1",
        "\t",
        "é",
        "\u{85}",
        "\u{2028}",
        "😀",
        "y",
        "\\",
        "[",
        ",",
        "\u{a0}",
        "long words ",
    ];
    for seed in 1..400u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let mut text =
            || (0..next(14)).map(|_| pieces[next(pieces.len() as u64) as usize]).collect::<String>();
        let inner = Value::Map(
            [(text().into(), text().into()), (text().into(), Value::List(vec![text().into()]))]
                .into_iter()
                .collect(),
        );
        let whole = Value::Map(
            [(text().into(), inner.clone()), ("l".into(), Value::List(vec![inner, text().into()]))]
                .into_iter()
                .collect(),
        );
        let written = emit(&whole);
        match parse(written.as_bytes(), Limits::default()) {
            Ok(read) => assert_eq!(read.value, whole, "seed {seed}\n{written}"),
            Err(why) => panic!("seed {seed}: {why}\n{written}"),
        }
    }
}

/// Answers of a 1.26 server, where they are at hand.
#[test]
fn recorded_answers_are_written_to_the_letter() {
    let Some(folder) = testdata::find("recorded/tables") else { return };
    let mut compared = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let scenario = std::fs::read(file.unwrap().path()).unwrap();
        let scenario = crate::decode::json_untyped(&scenario).unwrap().value;
        for step in scenario.items(&["steps"]) {
            let (text, kind) = (step.text(&["answer", "text"]), step.text(&["do", "headers", "Accept"]));
            if kind == "application/yaml" && !text.is_empty() {
                // quoted values are times or numbers in the recorded response
                let text = text.replace("\"${time}\"", "\"2020-01-01T00:00:00Z\"");
                let text = (0..10)
                    .fold(text, |text, n| text.replace(&format!("\"${{rv:{n}}}\""), &format!("\"{n}\"")));
                let read = parse(text.as_bytes(), Limits::default()).unwrap();
                assert_eq!(emit(&read.value), text);
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "only {compared} answers");
}

#[test]
fn a_list_written_item_by_item_is_the_same() {
    let items = [
        r#"{"metadata":{"name":"a","labels":{}},"data":{"x":"two\nlines\n","y":"a long text that is folded at eighty columns because it is much longer than they are"}}"#,
        r#"{"rules":[{"verbs":["get"]},[]]}"#,
        r#""plain""#,
        "[[1],2]",
    ];
    for key in ["items", "rows"] {
        let whole = format!(
            r#"{{"kind":"L","apiVersion":"v1","metadata":{{"continue":""}},"{key}":[{}]}}"#,
            items.join(",")
        );
        let Value::Map(document) = value(r#"{"kind":"L","apiVersion":"v1","metadata":{"continue":""}}"#)
        else {
            unreachable!()
        };
        let mut writer = ListWriter::new(document, key);
        let mut pieces: Vec<String> = Vec::new();
        for item in items {
            writer.item(&value(item));
            pieces.push(writer.take());
        }
        pieces.push(writer.finish());
        assert_eq!(pieces.concat(), emit(&value(&whole)));
    }
}

#[test]
fn large_integers_keep_their_digits_until_they_are_decoded() {
    use crate::table::{Field, Scalar, Shape, Type};
    let ty = Type::new("T", "", vec![Field::new("size", Shape::Scalar(Scalar::Int32))]);
    let decoded = |text: &str| {
        let document = parse(text.as_bytes(), Limits::default()).unwrap();
        crate::decode::tree_with_integers(document.value, document.integers, &ty).unwrap_err().to_string()
    };
    for text in ["size: 9223372036854775809", "{\"size\": 9223372036854775809}", "size: 0x8000000000000001"] {
        let why = decoded(text);
        assert!(why.contains("cannot unmarshal number 9223372036854775809 into"), "{text}: {why}");
    }
    // from 2^64 on there is only a float
    let why = decoded("size: 18446744073709551617");
    assert!(why.contains("cannot unmarshal number 18446744073709552000 into"), "{why}");
}
