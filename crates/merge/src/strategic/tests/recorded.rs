//! Tests of strategic merge patches against recorded answers, if those are available.
//!
//! Each scenario runs on the object as sent, without the fields that the server sets, so a recorded value may have more
//! fields than ours ([`FILLED`](crate::tests::recorded::FILLED)), never fewer or different ones.

use super::*;
use crate::tests::recorded::{Types, compare, scenarios};
use schema::decode;
use schema::table::Ref;
use std::collections::HashMap;
use std::path::Path;

/// Steps whose answer does not follow from the patch alone.
const OTHERWISE: &[&str] = &[
    // what was taken away comes back as its default
    "smp-null-scalar#1",
    "smp-hpa#2",
    // the second of two fields that hold the same follows the first
    "smp-node-status#13",
    // replaced whole, which the table cannot say of a structure
    "smp-pdb#1",
    "smp-pdb#2",
    // a field that is dropped while its feature is off
    "smp-sts#4",
];

#[test]
fn recorded_patches_merge_alike() {
    let Some(mut types) = Types::load() else { return };
    let mut played = Played::default();
    for file in scenarios("patches") {
        scenario(&file, &mut types, &mut played);
    }
    println!("{} merged, {} refused, {} refused later", played.merged, played.refused, played.later);
    assert!(played.wrong.is_empty(), "{}", played.wrong.join("\n"));
    assert!(played.merged >= 63 && played.refused >= 7, "too few recorded patches were found: {played:?}");
}

#[derive(Debug, Default)]
struct Played {
    merged: usize,
    refused: usize,
    /// By validation, which is not our business here.
    later: usize,
    wrong: Vec<String>,
}

fn scenario(file: &Path, types: &mut Types, played: &mut Played) {
    let text = std::fs::read_to_string(file).unwrap();
    if !text.contains("application/strategic-merge-patch+json") {
        return;
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut objects: HashMap<String, (Ref<Type>, Value)> = HashMap::new();
    for (at, step) in json(&text).items(&["steps"]).iter().enumerate() {
        let path = step.text(&["do", "path"]).split('?').next().unwrap_or_default().to_owned();
        let body = step.at(&["do", "body"]).cloned().unwrap_or_default();
        let status = step.at(&["answer", "status"]).and_then(Value::as_int).unwrap_or(0);
        let content = step.text(&["do", "headers", "Content-Type"]);
        if step.text(&["do", "method"]) == "POST" && status == 201 {
            let Some(ty) = types.root(&body) else { continue };
            let Ok(sent) = decode::tree(body, &ty) else { continue };
            objects.insert(format!("{path}/{}", sent.value.text(&["metadata", "name"])), (ty, sent.value));
            continue;
        }
        let object = path.trim_end_matches("/status").to_owned();
        if !content.starts_with("application/strategic") || step.at(&["do", "body"]).is_none() {
            // changed by other means
            if matches!(step.text(&["do", "method"]), "PUT" | "PATCH" | "DELETE") {
                objects.remove(&object);
            }
            continue;
        }
        let Some((ty, current)) = objects.get(&object).cloned() else { continue };
        let place = format!("{stem}#{at}");
        if OTHERWISE.contains(&&*place) || status == 415 {
            continue;
        }
        let answer = step.at(&["answer"]).cloned().unwrap_or_default();
        match check(&ty, current, &body, status, &answer, played) {
            Ok(Some(next)) => drop(objects.insert(object, (ty, next))),
            Ok(None) => {}
            Err(why) => played.wrong.push(format!("{place}: {why}")),
        }
    }
}

fn check(
    ty: &Type,
    current: Value,
    patch: &Value,
    status: i64,
    answer: &Value,
    played: &mut Played,
) -> Result<Option<Value>, String> {
    let part = |name: &str| {
        let whole = answer.at(&["body", name]);
        whole.or_else(|| answer.at(&["parts", &format!("/{name}")])).and_then(Value::as_str)
    };
    let message = part("message").unwrap_or_default();
    let later = message.contains("is invalid: ") && !message.starts_with(" \"\"")
        || message.contains("undeterminable")
        || message.contains("does not match")
        || status == 409;
    match strategic_merge(ty, current, patch) {
        Err(why) if i64::from(why.code()) == status && why.to_string() == message => {
            played.refused += 1;
            Ok(None)
        }
        Err(why) => Err(format!("{} {why:?}, and not {status} {message:?}", why.code())),
        Ok(_) if status >= 400 && later => {
            played.later += 1;
            Ok(None)
        }
        Ok(_) if status >= 400 => Err(format!("merged, and not {status} {message:?}")),
        Ok(merged) => {
            let next = decode::tree(merged, ty).map_err(|why| why.to_string())?.value;
            compare(&next, answer)?;
            played.merged += 1;
            Ok(Some(next))
        }
    }
}
