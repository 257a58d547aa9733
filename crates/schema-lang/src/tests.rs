//! Valid files compile; invalid files are reported with their problems.

use super::{Source, compile};

const META: &str = "package m.v1\ntype ObjectMeta\n  1 name string\n  2 labels {}string\n";
const HEAD: &str = "package a.v1\ngroup a.{domain}\nversion v1\nimport meta m.v1\n";

/// Compiles `text` below a header of four lines, so its first line is line 5.
fn outcome(text: &str) -> Result<String, String> {
    let text = format!("{HEAD}{text}");
    let sources = [Source { name: "a.api", text: &text }, Source { name: "m.api", text: META }];
    compile(&sources).map(|it| it.tables).map_err(|problems| problems.to_string())
}

fn compiled(text: &str) -> String {
    outcome(text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let cases = [
        // Lines that say nothing.
        ("frobnicate", "a.api:5: `frobnicate` is no statement"),
        ("1 name string", "a.api:5: a field outside of a `type` or `kind`"),
        ("verbs get", "a.api:5: `verbs` outside of a `kind`"),
        ("type T\nverbs get", "a.api:6: `verbs` outside of a `kind`"),
        ("type t", "a.api:5: `t` is no name of a type"),
        ("type", "a.api:5: `type` needs a name"),
        ("type T sealed", "a.api:5: `sealed` is no attribute of a type"),
        ("type T \"open", "a.api:5: a quotation is not closed"),
        ("type T \"a\\nb\"", "a.api:5: only `\\\"` and `\\\\` are escapes"),
        ("type T \"doc\"\n\"doc\"", "a.api:6: `T` is documented twice"),
        ("import meta", "a.api:5: `import` takes an alias and a package"),
        ("import x no.v1", "a.api:5: there is no package `no.v1`"),
        ("package a b", "a.api:5: `package` takes one word"),
        ("version v1 \"doc\"", "a.api:5: `version` takes no documentation"),
        ("group a.{b}", "a.api:5: `a.{b}` is no group"),
        // Fields.
        ("type T\n1 a", "a.api:6: a field needs a name and a type"),
        ("type T\n70000 a string", "a.api:6: `70000` is no protobuf number"),
        ("type T\n1 a text", "a.api:6: `text` is no type"),
        ("type T\n1 a [][][][][]string", "a.api:6: more than 4 lists and maps in one another"),
        ("type T\n1 a string shiny", "a.api:6: `shiny` is no attribute of a field"),
        ("type T\n1 a string shiny=1", "a.api:6: `shiny=` is no attribute of a field"),
        ("type T\n1 a string required required", "a.api:6: `required` is given twice"),
        ("type T\n1 a string format=odd", "a.api:6: `odd` is no format"),
        ("type T\n1 a int32 min=x", "a.api:6: `x` is no min"),
        ("type T\n1 a int32 min=", "a.api:6: `min=` needs a value"),
        ("type T\n1 a []string list=map", "a.api:6: `list=` can be `atomic`, `set` or `map(key,...)`"),
        ("type T\n1 a {}string map=set", "a.api:6: `map=` can be `atomic` or `granular`"),
        ("type T\n1 a []string merge=a,b", "a.api:6: `b` is no way to merge"),
        ("type T\n1 a U", "a.api:6: there is no type `U` in `a.v1`"),
        ("type T\n1 a x.U", "a.api:6: `x` is not imported"),
        ("type T\n1 a meta.U", "a.api:6: there is no type `U` in `m.v1`"),
        ("type T\n1 a string\n1 b string", "a.api:7: `T` has number 1 twice"),
        ("type T\n1 a string\n2 a string", "a.api:7: `T.a` is declared twice"),
        ("type T\ntype T", "a.api:6: `T` is declared twice"),
        ("type T\n1 a string list=set", "a.api:6: `list=` on `a`, which is no list"),
        ("type T\n1 a string map=atomic", "a.api:6: `map=` on `a`, which is no map"),
        ("type T\n1 a []string retainKeys", "a.api:6: `a` has no keys that a patch could keep or replace"),
        ("type T\n1 a []string merge=name", "a.api:6: `a` has the key `name` but is no list of structures"),
        ("type T\n1 a []U merge=id\ntype U", "a.api:6: `U` has no field `id` to be the key of `a`"),
        ("type T\n1 a []U list=map(id)\ntype U", "a.api:6: `U` has no field `id` to be the key of `a`"),
        ("type T\n1 a []U list=map(k)\ntype U\n1 k []string", "a.api:6: the key `k` of `a` is not a scalar"),
        (
            "type T\n1 a []U list=set\ntype U\n1 k string",
            "a.api:6: `a` is a set of structures that are not atomic",
        ),
        ("type T\n1 a int32 default=x", "a.api:6: the default `x` does not fit the type"),
        ("type T\n1 a int32 default=3000000000", "a.api:6: the default `3000000000` does not fit the type"),
        ("type T\n1 a bool default=1", "a.api:6: the default `1` does not fit the type"),
        ("type T\n1 a []int32 default=[1,b]", "a.api:6: the default `[1,b]` does not fit the type"),
        ("type T\n1 a T default=x", "a.api:6: the default `x` does not fit the type"),
        ("type T\n1 a string published", "a.api:6: `published` without a default"),
        ("type T\n1 a string min=1", "a.api:6: a rule does not suit the type: Min(1)"),
        ("type T\n1 a string map=granular", "a.api:6: `map=granular` on `a`, which is no structure"),
        ("type T\n1 a string list=atomic", "a.api:6: `list=` on `a`, which is no list"),
        ("type T\nunion b\n1 a string", "a.api:6: `T` has no field `b`"),
        ("type T\nunion a b\n1 a string", "a.api:6: `b` is no `field=Name` of a union"),
        // Inlined types.
        ("type T\ninline string", "a.api:6: `string` cannot be inlined"),
        ("type T\ninline 1 2 U", "a.api:6: `inline` takes a number and a type"),
        ("type T\ninline T", "a.api:6: `T` contains itself"),
        ("type T\ninline 1 U\n1 b string\ntype U\n1 a string", "a.api:7: `T` has number 1 twice"),
        ("type T\ninline U\n1 b string\ntype U\n1 a string", "a.api:7: `T` has number 1 twice"),
        ("type T\ninline 1 U\ntype U\n2.1 a string\n2 b string", "a.api:9: `U` has number 2 twice"),
        // Alternatives.
        ("type T oneof\n1 a []string\n2 b []T", "a.api:7: `b` has the same form as another alternative"),
        ("type T oneof\n1 a string", "a.api:6: `a` cannot be an alternative"),
        // Kinds.
        (
            "kind K ks\nverbs get\n1 metadata meta.ObjectMeta",
            "a.api:5: `K` is neither `namespaced` nor `cluster`",
        ),
        ("kind K ks cluster\n1 metadata meta.ObjectMeta", "a.api:5: `K` has no verbs"),
        ("kind K ks cluster\nverbs get", "a.api:5: `K` has no metadata"),
        ("kind K\nverbs get", "a.api:5: `K` has no plural but is described as a resource"),
        ("kind K fast=yes", "a.api:5: `fast=yes` is no attribute of a kind"),
        ("kind K put=maybe", "a.api:5: `put=` can be `creates` or `update-only`"),
        ("kind K stored=v1", "a.api:5: `v1` is no group/version"),
    ];
    for (text, expected) in cases {
        let found = outcome(text).err().unwrap_or_else(|| panic!("{text:?} compiles"));
        assert!(found.lines().any(|it| it == expected), "{text:?}\nexpected: {expected}\nfound:    {found}");
    }
}

#[test]
fn mistakes_in_the_description_of_a_resource_are_reported() {
    let cases = [
        ("verbs fly", "a.api:8: `fly` is no verb"),
        ("verbs", "a.api:8: no verbs are given"),
        ("subresource", "a.api:8: `subresource` needs a name"),
        ("subresource x get as", "a.api:8: `as` needs a kind"),
        ("subresource x get as b/v1 Other", "a.api:8: there is no kind `Other` there"),
        ("subresource x get as Other", "a.api:8: there is no kind `Other` there"),
        ("subresource x get\nsubresource x get", "a.api:9: subresource `x` is declared twice"),
        ("select metadata.nothing", "a.api:8: `metadata.nothing`: `ObjectMeta` has no field `nothing`"),
        ("select x = metadata.name.x", "a.api:8: `metadata.name.x`: nothing has a field `x` there"),
        ("select metadata.name odd", "a.api:8: `odd` is no attribute of `select`"),
        ("select metadata.name\nselect metadata.name", "a.api:9: `metadata.name` can be selected twice"),
        ("column Name", "a.api:8: `column` needs a name and a type"),
        ("column Name text", "a.api:8: `text` is no type of a column"),
        ("column Name string .spec", "a.api:8: `spec`: `K` has no field `spec`"),
        ("column Name string high", "a.api:8: `high` is no attribute of `column`"),
        ("kind L ks cluster\nverbs get\n1 metadata meta.ObjectMeta", "a.api:8: `ks` is served twice"),
        (
            "kind L ls cluster stored=b/v1\nverbs get\n1 metadata meta.ObjectMeta",
            "a.api:8: `L` is not stored as declared",
        ),
    ];
    for (text, expected) in cases {
        let text = format!("kind K ks cluster\nverbs get\n1 metadata meta.ObjectMeta\n{text}");
        let found = outcome(&text).err().unwrap_or_else(|| panic!("{text:?} compiles"));
        assert!(found.lines().any(|it| it == expected), "{text:?}\nexpected: {expected}\nfound:    {found}");
    }
}

#[test]
fn every_problem_is_reported_in_order() {
    let found = outcome("type T\n2 b U\n1 a string shiny\nodd").expect_err("three mistakes");
    let lines: Vec<&str> = found.lines().map(|it| &it[..7]).collect();
    assert_eq!(lines, ["a.api:6", "a.api:7", "a.api:8"]);
}

#[test]
fn a_file_without_package_is_refused() {
    let found = compile(&[Source { name: "x.api", text: "\n" }]).expect_err("a mistake").to_string();
    assert_eq!(found, "x.api:1: the file names no `package`");
}

#[test]
fn list_types_follow_from_merge_unless_given() {
    let source = compiled(
        "type T\n1 a []U merge=k\n2 b []string merge\n3 c []U\n4 d []U list=map(k,l) merge=k\n5 e []U list=atomic merge=k\ntype U\n1 k string\n2 l string",
    );
    let shapes: Vec<&str> = source.lines().filter(|it| it.starts_with("static L")).collect();
    assert_eq!(
        shapes,
        [
            r#"static L0: ListShape = ListShape { item: structure(&A_V1_U), kind: ListKind::Map { keys: B(&[B("k")]) }, default: None };"#,
            r#"static L1: ListShape = ListShape { item: scalar(Scalar::String), kind: ListKind::Set, default: None };"#,
            r#"static L2: ListShape = ListShape { item: structure(&A_V1_U), kind: ListKind::Atomic, default: None };"#,
            r#"static L3: ListShape = ListShape { item: structure(&A_V1_U), kind: ListKind::Map { keys: B(&[B("k"),B("l")]) }, default: None };"#,
        ]
    );
}

#[test]
fn inlined_fields_keep_their_numbers_within_the_nested_message() {
    let source = compiled(
        "type T\n1 n string\ninline 2 U\n4.1 w []string\ntype U\n1 a string\ninline 3 V\ntype V\n2 b int32? required",
    );
    let fields: Vec<&str> = source.lines().filter(|it| it.starts_with("field(")).take(4).collect();
    assert_eq!(
        fields,
        [
            r#"field("n",1,&[],scalar(Scalar::String),0,None,&[],Patch::Replace,"",""),"#,
            r#"field("a",1,&[2],scalar(Scalar::String),0,None,&[],Patch::Replace,"",""),"#,
            r#"field("b",2,&[2, 3],scalar(Scalar::Int32),7,None,&[],Patch::Replace,"",""),"#,
            r#"field("w",1,&[4],list(&L0),0,None,&[],Patch::Replace,"",""),"#,
        ]
    );
}

#[test]
fn defaults_rules_and_docs_are_carried_over() {
    let source = compiled(
        "type T \"the \\\"T\\\"\" # comment\n1 a string default=\"x y\" enum=x|y format=labelvalue \"a # b\"\n2 b []string default=[p,q] nonempty\n3 c T? default={} retainKeys\n4 d T? default=\"{\\\"a\\\":\\\"z\\\"}\"",
    );
    for expected in [
        r#"Some(Literal::Text(B("x y"))),&[Rule::Enum(B(&[B("x"),B("y")])),Rule::Format(Format::LabelValue)],Patch::Replace,"","a # b"),"#,
        r#"Some(Literal::Json(B("[\"p\",\"q\"]"))),&[Rule::NotEmpty],"#,
        r#"Some(Literal::Json(B("{}"))),&[],Patch::RetainKeys,"#,
        r#"Some(Literal::Json(B("{\"a\":\"z\"}"))),"#,
        r#"doc: B("the \"T\"")"#,
    ] {
        assert!(source.contains(expected), "no {expected} in\n{source}");
    }
}

#[test]
fn kinds_begin_with_kind_and_version_and_are_listed() {
    let source = compiled(
        "kind Pod pods namespaced short=po,p put=creates ttl\n\"a doc\"\nverbs get list\nsubresource eviction create as Eviction\n\
         select host = metadata.name absent=none indexed\ncolumn \"My Name\" string wide .metadata.name \"doc\"\n\
         1 metadata meta.ObjectMeta\nkind Eviction\n1 metadata meta.ObjectMeta",
    );
    for expected in [
        "static A_V1_POD_FIELDS: [Field; 3] = [\nfield(\"kind\",0,&[],",
        "pub static KINDS: &[&Kind] = &[&K_A_V1_POD];",
        "pub static TRAVELLING: &[&Kind] = &[&K_A_V1_EVICTION];",
        "pub static TYPES: &[&Type] = &[&A_V1_EVICTION,&A_V1_POD,&M_V1_OBJECT_META];",
        "by_name: B(&[1,0,2])",
        r#"Selectable { label: B("host"), path: B("metadata.name"), absent: B("none"), indexed: true }"#,
        r#"Column { name: B("My Name"), kind: B("string"), format: B(""), priority: 1, path: B("metadata.name"), doc: B("doc") }"#,
        r#"short_names: B(&[B("po"),B("p")])"#,
        r#"singular: B("pod")"#,
    ] {
        assert!(source.contains(expected), "no {expected} in\n{source}");
    }
}

#[test]
fn selectors_read_the_stored_form() {
    let stored = "kind Event events namespaced stored=core/v1\nverbs get\nselect about = involved\n1 metadata meta.ObjectMeta";
    let text = format!("{HEAD}{stored}");
    let core = "package c.v1\ngroup core\nversion v1\nimport meta m.v1\nkind Event events namespaced\nverbs get\n1 metadata meta.ObjectMeta\n2 involved string";
    let file = |name, text| Source { name, text };
    let sources = [file("a.api", text.as_str()), file("c.api", core), file("m.api", META)];
    let source = compile(&sources).unwrap_or_else(|problems| panic!("{problems}")).tables;
    assert!(
        source.contains(r#"stored_as: Some((Group { stem: B(""), in_domain: false },B("v1")))"#),
        "{source}"
    );
}

#[test]
fn retired_versions_are_listed_with_their_form_and_nowhere_else() {
    let source = compiled(
        "kind Pod pods namespaced\nverbs get\nretired a.{domain}/v1beta1 old/v1\n1 metadata meta.ObjectMeta\n\
         kind Scale retired\nretired old/v1\n1 metadata meta.ObjectMeta\nkind Eviction\n1 metadata meta.ObjectMeta",
    );
    let entry = |group: &str, in_domain: bool, version: &str, kind: &str| {
        format!(
            r#"RetiredVersion {{ group: Group {{ stem: B("{group}"), in_domain: {in_domain} }}, version: B("{version}"), form: &K_A_V1_{kind} }}"#
        )
    };
    let entries = [
        entry("a", true, "v1", "SCALE"),
        entry("old", false, "v1", "SCALE"),
        entry("a", true, "v1beta1", "POD"),
        entry("old", false, "v1", "POD"),
    ];
    for one in entries {
        assert!(source.contains(&one), "no {one} in\n{source}");
    }
    assert!(source.contains("pub static KINDS: &[&Kind] = &[&K_A_V1_POD];"), "{source}");
    assert!(source.contains("pub static TRAVELLING: &[&Kind] = &[&K_A_V1_EVICTION];"), "{source}");
    let served = "kind Pod pods namespaced retired\nverbs get\n1 metadata meta.ObjectMeta";
    assert_eq!(outcome(served), Err("a.api:5: `Pod` is served and retired".to_owned()));
    assert_eq!(outcome("type T\nretired a/v1"), Err("a.api:6: `retired` outside of a `kind`".to_owned()));
}
