//! CEL: no expression exceeds its cost, its memory or its time on any object.

#![no_main]

use cel::{Budget, Declaration, Env, PER_CALL, Variables};
use libfuzzer_sys::fuzz_target;
use schema::Value;

fuzz_target!(|data: &[u8]| {
    let Some([text, object, schema]) = fuzz::texts(data) else { return };
    let object = fuzz::json(object).unwrap_or_default();
    let declared = fuzz::json(schema).and_then(|it| Declaration::from_schema(&it, "self", false));
    evaluate(text, declared.unwrap_or(Declaration::any()), &object);
});

fn evaluate(text: &str, declared: Declaration, object: &Value) {
    let env = Env::new().variable("self", declared);
    let program = match env.compile(text) {
        Ok(program) => program,
        Err(why) => return drop(why.to_string()),
    };
    let _ = (program.cost(), program.patterns(), program.uses("self"));
    let mut budget = Budget::default();
    let held = program.eval(&Variables::new().with("self", object), &mut budget);
    assert!(held.is_err() || budget.spent() <= PER_CALL);
}
