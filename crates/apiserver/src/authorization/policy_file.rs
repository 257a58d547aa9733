//! Parser of ABAC policy files: one JSON object per line.
//!
//! ```text
//! # comments and blank lines are skipped
//! {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "ann", ...}}
//! {"user": "bob", "readonly": true}
//! ```
//!
//! The second form, without a version, is the oldest. Unknown fields are ignored.

use auth::abac::{Abac, Policy};
use names::Names;
use schema::{Value, decode};

/// A line that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct InvalidLine {
    pub line: usize,
    pub why: String,
}

/// Parses a file; reports all invalid lines.
pub fn parse(text: &str, names: &Names) -> Result<Abac, Vec<InvalidLine>> {
    let version = format!("abac.{}", names.well_known_under("authorization", "v1beta1"));
    let (mut policies, mut bad) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match policy(line, &version) {
            Ok(policy) => policies.push(policy),
            Err(why) => bad.push(InvalidLine { line: at + 1, why }),
        }
    }
    if bad.is_empty() { Ok(Abac(policies)) } else { Err(bad) }
}

fn policy(line: &str, version: &str) -> Result<Policy, String> {
    let read = decode::json_untyped(line.as_bytes()).map_err(|why| format!("not JSON: {why}"))?.value;
    if read.as_map().is_none() {
        return Err("not a JSON object".to_owned());
    }
    let (api_version, kind) = (text(&read, "apiVersion")?, text(&read, "kind")?);
    if api_version.is_empty() {
        // without a version the kind is ignored
        return Ok(fields(&read)?.of_oldest_form());
    }
    if api_version != version || kind != "Policy" {
        return Err(format!(
            "{kind:?} of {api_version:?} is not a policy: that is \"Policy\" of {version:?}"
        ));
    }
    let empty = Value::map();
    let spec = match read.at(&["spec"]) {
        None | Some(Value::Null) => &empty,
        Some(spec @ Value::Map(_)) => spec,
        Some(_) => return Err("spec must be an object".to_owned()),
    };
    let policy =
        Policy { api_group: text(spec, "apiGroup")?, path: text(spec, "nonResourcePath")?, ..fields(spec)? };
    Ok(policy.settled())
}

/// The fields of both forms.
fn fields(of: &Value) -> Result<Policy, String> {
    let read_only = match of.at(&["readonly"]) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(read_only)) => *read_only,
        Some(_) => return Err("readonly must be true or false".to_owned()),
    };
    Ok(Policy {
        user: text(of, "user")?,
        group: text(of, "group")?,
        resource: text(of, "resource")?,
        namespace: text(of, "namespace")?,
        read_only,
        ..Policy::default()
    })
}

fn text(of: &Value, field: &str) -> Result<String, String> {
    match of.at(&[field]) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{field} must be text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy""#;

    #[test]
    fn both_forms_are_read() {
        let text = format!(
            "# who\n\n  {{{HEAD},\"spec\":{{\"user\":\"ann\",\"group\":\"g\",\"readonly\":true,\"apiGroup\":\"apps\",\
             \"resource\":\"r\",\"namespace\":\"n\",\"nonResourcePath\":\"/p\",\"more\":1}}}}\n\
             {{{HEAD},\"spec\":{{\"user\":\"*\"}}}}\r\n{{\"kind\":\"Policy\",\"user\":\"bob\",\"namespace\":\"n\"}}\n{{{HEAD}}}"
        );
        let Abac(read) = parse(&text, &Names::kubernetes()).unwrap();
        let whole = Policy {
            user: "ann".to_owned(),
            group: "g".to_owned(),
            read_only: true,
            api_group: "apps".to_owned(),
            resource: "r".to_owned(),
            namespace: "n".to_owned(),
            path: "/p".to_owned(),
        };
        assert_eq!(read[0], whole);
        assert_eq!((&*read[1].user, &*read[1].group), ("", auth::AUTHENTICATED));
        assert_eq!((&*read[2].user, &*read[2].resource, &*read[2].path), ("bob", "*", ""));
        assert_eq!(read[3], Policy::default());
    }

    #[test]
    fn every_bad_line_is_named() {
        let bad = [
            ("nonsense", "not JSON"),
            ("[]", "not a JSON object"),
            ("{} {}", "not JSON"),
            (r#"{"user":1}"#, "user must be text"),
            (r#"{"readonly":"yes"}"#, "readonly must be true or false"),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, "not a policy"),
            (r#"{"apiVersion":"abac.authorization.kubernetes.io/v2","kind":"Policy"}"#, "not a policy"),
            (r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1"}"#, "not a policy"),
            (&format!("{{{HEAD},\"spec\":{{\"user\":[]}}}}"), "user must be text"),
            (&format!("{{{HEAD},\"spec\":[]}}"), "spec must be an object"),
        ];
        let text: String = bad.iter().map(|(line, _)| format!("# next\n{line}\n")).collect();
        let errors = parse(&text, &Names::kubernetes()).unwrap_err();
        assert_eq!(errors.len(), bad.len());
        for (at, (errors, (line, part))) in errors.iter().zip(bad).enumerate() {
            assert_eq!(errors.line, 2 * at + 2, "{line}");
            assert!(errors.why.contains(part), "{line}: {errors}");
        }
    }
}
