//! References to variables in text: `$(NAME)`; `$$` is a dollar sign.
//!
//! A reference to an unknown variable stays as it is: `$(NOPE)`.

use std::collections::BTreeMap;

/// Replaces the references in a text. `value` yields the text of a variable.
pub fn expand(text: &str, mut value: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            after
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|it| it.split_once(')')) {
            out.push_str(&value(name));
            after
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

/// The value of a variable in the first map that has it, or the reference itself.
pub fn lookup(name: &str, maps: &[&BTreeMap<String, String>]) -> String {
    maps.iter().find_map(|map| map.get(name)).cloned().unwrap_or_else(|| format!("$({name})"))
}

/// Replaces the references of `subPathExpr`. Every variable must have a value.
pub fn expand_sub_path(text: &str, envs: &[(String, String)]) -> Result<String, String> {
    let mut missing = std::collections::BTreeSet::new();
    let expanded = expand(text, |name| {
        let value = envs.iter().rev().find(|(key, _)| key == name).map_or("", |(_, value)| value);
        if value.is_empty() {
            missing.insert(name.to_owned());
        }
        value.to_owned()
    });
    match missing.is_empty() {
        true => Ok(expanded),
        false => Err(format!("missing value for {}", missing.into_iter().collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced() {
        let known = BTreeMap::from([("A".to_owned(), "a".to_owned()), ("B".to_owned(), "ab".to_owned())]);
        let check = |text: &str, expected: &str| {
            assert_eq!(expand(text, |name| lookup(name, &[&known])), expected, "{text}");
        };
        check("$(A)b", "ab");
        check("$(UNDEF)", "$(UNDEF)");
        check("$$(A)", "$(A)");
        check("$A", "$A");
        check("$(A", "$(A");
        check("$$$(A)", "$a");
        check("$()", "$()");
        check("x$", "x$");
        check("$(A)$(B)", "aab");
        check("$( A )", "$( A )");
        check("$ü$(A)", "$üa");
    }

    #[test]
    fn sub_paths_need_every_variable() {
        let envs = [("X".to_owned(), "1".to_owned()), ("E".to_owned(), String::new())];
        assert_eq!(expand_sub_path("$(X)/y", &envs), Ok("1/y".to_owned()));
        assert_eq!(expand_sub_path("$(NOPE)/$(E)", &envs), Err("missing value for E, NOPE".to_owned()));
    }
}
