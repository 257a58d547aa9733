//! Expressions and objects beyond the limits: each is an error, and never exhausts stack or memory.

use cel::{Budget, Declaration, Env, EvalError, Variables};
use schema::Value;

fn json(text: &str) -> Value {
    schema::decode::json_untyped(text.as_bytes()).unwrap_or_else(|why| panic!("{why}")).value
}

#[test]
fn deep_and_long_expressions_are_refused() {
    let deep = "max recursion depth exceeded";
    let rules = "expression recursion limit exceeded: 250";
    let pairs =
        |open: &str, close: &str, count: usize| format!("{}1{}", open.repeat(count), close.repeat(count));
    for (text, expected) in [
        (pairs("(", ")", 40), None),
        (pairs("(", ")", 41), Some(deep)),
        (pairs("(", ")", 240), Some(deep)),
        (pairs("(", ")", 20_000), Some(rules)),
        (pairs("[", "]", 20_000), Some(rules)),
        (format!("1{}", "+1".repeat(243)), None),
        (format!("1{}", "+1".repeat(244)), Some(deep)),
        (format!("1{}", "+1".repeat(40_000)), Some(deep)),
        (format!("self{}", ".a".repeat(40_000)), Some(deep)),
        (format!("self{}", "[0]".repeat(30_000)), Some(deep)),
        (format!("{}1", "true?1:".repeat(120)), None),
        (format!("{}1", "true?1:".repeat(10_000)), Some(rules)),
        (format!("true{}", " && true".repeat(10_000)), None),
        (format!("{}true", "!".repeat(90_000)), None),
        (format!("[1{}]", ",1".repeat(40_000)), None),
        ("(".repeat(100_000), Some(rules)),
        ("a".repeat(100_001), Some("expression code point size exceeds limit: size: 100001, limit 100000")),
    ] {
        let env = Env::new().variable("self", Declaration::any());
        let found = env.compile(&text).err().map(|why| why.to_string());
        let start: String = text.chars().take(20).collect();
        let expected = expected.map(|it| format!("compilation failed: ERROR: <input>:-1:0: {it}"));
        assert_eq!(found, expected, "{start}");
    }
}

#[test]
fn expensive_evaluations_are_aborted() {
    let schema = json(
        r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}},"s":{"type":"string"}}}"#,
    );
    let declared = Declaration::from_schema(&schema, "self", false).unwrap();
    let env = Env::new().variable("self", declared);
    let items = vec!["\"x\""; 2000].join(",");
    let object = json(&format!(r#"{{"l":[{items}],"s":"{}"}}"#, "y".repeat(1_000_000)));
    for text in [
        "self.l.all(x, self.l.all(y, self.l.all(z, x == y)))",
        "self.s.replace('', self.s) == ''",
        "self.l.map(x, self.s).join(self.s) == ''",
        "self.l.map(x, self.l + self.l).size() == 0",
        "self.l.map(x, self.l.map(y, self.s + self.s)).size() == 0",
    ] {
        let program = env.compile_rule(text).unwrap();
        let mut budget = Budget::default();
        let held = program.holds(&Variables::new().with("self", &object), &mut budget);
        assert_eq!(held, Err(EvalError::OverBudget), "{text}");
    }
}

#[test]
fn programs_go_between_threads() {
    fn sendable<T: Send + Sync>() {}
    sendable::<cel::Program>();
    sendable::<cel::Env>();
}
