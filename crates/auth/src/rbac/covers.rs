//! What somebody would gain: the permissions in wanted rules that held rules do not have.
//!
//! A wanted rule is taken apart into its smallest permissions, one verb on one resource each, and every one of
//! them must be held by some rule. The number of these is the product of the lists of a rule, so it is bounded.

use super::rule::{ALL, Rule, has, path_covers, quoted_list};
use crate::user::User;

/// More permissions than are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rules name more than {MOST} permissions")]
pub struct TooMany;

const MOST: usize = 50_000;

/// The smallest permissions that are wanted and not held.
pub fn missing(held: &[&Rule], wanted: &[&Rule]) -> Result<Vec<Rule>, TooMany> {
    let mut left = MOST;
    let mut missing = Vec::new();
    for rule in wanted {
        // a rule within another needs no taking apart
        if held.iter().any(|one| covers(one, rule)) {
            continue;
        }
        left = left.checked_sub(count(rule)).ok_or(TooMany)?;
        let lacking = |part: &Rule| !held.iter().any(|one| covers(one, part));
        missing.extend(parts(rule).into_iter().filter(lacking));
    }
    Ok(missing)
}

/// Whether `held` alone permits all that `wanted` does.
fn covers(held: &Rule, wanted: &Rule) -> bool {
    let all = |held: &[String], wanted: &[String]| wanted.iter().all(|one| has(held, one));
    let names = held.names.is_empty()
        || !wanted.names.is_empty() && wanted.names.iter().all(|one| held.names.contains(one));
    names
        && all(&held.verbs, &wanted.verbs)
        && all(&held.api_groups, &wanted.api_groups)
        && wanted.resources.iter().all(|one| resource_covered(&held.resources, one))
        && wanted.paths.iter().all(|path| held.paths.iter().any(|pattern| path_covers(pattern, path)))
}

fn resource_covered(held: &[String], wanted: &str) -> bool {
    let part = wanted.split_once('/').map(|(_, part)| part);
    held.iter().any(|one| {
        one == ALL || one == wanted || part.is_some_and(|part| one.strip_prefix("*/") == Some(part))
    })
}

fn count(rule: &Rule) -> usize {
    let lists = [&rule.api_groups, &rule.resources, &rule.verbs].map(Vec::len);
    let resources = lists.iter().fold(rule.names.len().max(1), |all, one| all.saturating_mul(*one));
    resources.saturating_add(rule.paths.len().saturating_mul(rule.verbs.len()))
}

fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::with_capacity(count(rule));
    let names: Vec<Vec<String>> =
        if rule.names.is_empty() { vec![Vec::new()] } else { rule.names.iter().map(one).collect() };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                parts.extend(names.iter().map(|names| Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    names: names.clone(),
                    paths: Vec::new(),
                }));
            }
        }
    }
    for path in &rule.paths {
        let of = |verb| Rule { verbs: one(verb), paths: one(path), ..Rule::default() };
        parts.extend(rule.verbs.iter().map(of));
    }
    parts
}

/// The same permissions with the verbs on one resource put together; paths stay apart.
pub fn compacted(parts: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for part in parts {
        if !part.paths.is_empty() {
            out.push(part);
            continue;
        }
        let key = (part.api_groups.clone(), part.resources.clone(), part.names.clone());
        match places.get(&key) {
            Some(at) => {
                let rule: &mut Rule = &mut out[*at];
                rule.verbs.extend(part.verbs);
            }
            None => {
                places.insert(key, out.len());
                out.push(part);
            }
        }
    }
    out
}

/// The words of a refusal to let a user give what it does not have.
pub fn refusal(user: &User, missing: Vec<Rule>) -> String {
    let mut told: Vec<String> = compacted(missing).iter().map(Rule::to_string).collect();
    told.sort();
    told.dedup();
    format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted_list(&user.groups),
        told.join("\n")
    )
}
