//! Privilege escalation check: the permissions of requested rules that the user's own rules do not cover.
//!
//! A requested rule is split into its smallest permissions, one verb on one resource each, and each must be covered
//! by one held rule. Their number is the product of a rule's lists, so it is bounded; a rule beyond the bound is not
//! split, and one held rule must cover all of it.

use super::held_permissions::{HeldPermissions, MOST, TooManyPermissions, is_covered_whole};
use super::rule::{Rule, quoted_list};
use crate::user::User;
use tables::text::quoted;

/// Permissions that a refusal lists.
const MOST_MISSING: usize = 50_000;

/// The smallest requested permissions that are not held.
pub fn missing(held: &[&Rule], requested: &[&Rule]) -> Result<Vec<Rule>, TooManyPermissions> {
    let mut left = MOST;
    let (split, whole): (Vec<&Rule>, Vec<&Rule>) = requested.iter().copied().partition(|rule| {
        let rest = left.checked_sub(count(rule));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    if !whole.is_empty() && !is_covered_whole(held, &whole)? {
        return Err(TooManyPermissions);
    }
    if split.is_empty() {
        return Ok(Vec::new());
    }
    let held = HeldPermissions::among(held, &split)?;
    let mut missing = Vec::new();
    for rule in split {
        held.each_missing(rule, |part| {
            missing.push(part);
            if missing.len() > MOST_MISSING { Err(TooManyPermissions) } else { Ok(()) }
        })?;
    }
    Ok(missing)
}

fn count(rule: &Rule) -> usize {
    let lists = [&rule.api_groups, &rule.resources, &rule.verbs].map(Vec::len);
    let resources = lists.iter().fold(rule.names.len().max(1), |all, one| all.saturating_mul(*one));
    resources.saturating_add(rule.paths.len().saturating_mul(rule.verbs.len()))
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
