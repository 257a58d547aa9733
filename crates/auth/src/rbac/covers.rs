//! Privilege escalation check: the permissions of requested rules that the user's own rules do not cover.
//!
//! A requested rule is split into its smallest permissions, one verb on one resource each, and each must be covered
//! by one held rule. Their number is the product of a rule's lists, so it is bounded.

use super::rule::{ALL, Rule, has, path_covers, quoted_list};
use crate::user::User;
use tables::text::quoted;

/// The rules have more permissions than are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rules name more than {MOST} permissions")]
pub struct TooManyPermissions;

const MOST: usize = 50_000;

/// The smallest requested permissions that are not held.
pub fn missing(held: &[&Rule], requested: &[&Rule]) -> Result<Vec<Rule>, TooManyPermissions> {
    let mut left = MOST;
    let mut missing = Vec::new();
    for rule in requested {
        // a rule that another one covers need not be split
        if held.iter().any(|one| covers(one, rule)) {
            continue;
        }
        left = left.checked_sub(count(rule)).ok_or(TooManyPermissions)?;
        let lacking = |part: &Rule| !held.iter().any(|one| covers(one, part));
        missing.extend(parts(rule).into_iter().filter(lacking));
    }
    Ok(missing)
}

/// Whether `held` alone allows everything that `requested` does.
fn covers(held: &Rule, requested: &Rule) -> bool {
    let all = |held: &[String], requested: &[String]| requested.iter().all(|one| has(held, one));
    let names = held.names.is_empty()
        || !requested.names.is_empty() && requested.names.iter().all(|one| held.names.contains(one));
    names
        && all(&held.verbs, &requested.verbs)
        && all(&held.api_groups, &requested.api_groups)
        && requested.resources.iter().all(|one| resource_covered(&held.resources, one))
        && requested.paths.iter().all(|path| held.paths.iter().any(|pattern| path_covers(pattern, path)))
}

fn resource_covered(held: &[String], requested: &str) -> bool {
    let part = requested.split_once('/').map(|(_, part)| part);
    held.iter().any(|one| {
        one == ALL || one == requested || part.is_some_and(|part| one.strip_prefix("*/") == Some(part))
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

/// Merges the verbs on one resource; paths stay separate.
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

/// The message of the refusal to grant permissions that a user does not hold.
pub fn refusal(user: &User, missing: Vec<Rule>) -> String {
    let mut lines: Vec<String> = compacted(missing).iter().map(Rule::to_string).collect();
    lines.sort();
    lines.dedup();
    format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&user.name),
        quoted_list(&user.groups),
        lines.join("\n")
    )
}
