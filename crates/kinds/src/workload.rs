//! Common behaviour of the kinds that create pods: selectors, pod templates, status counts, cells.
//!
//! Paths are for messages; values are read from the tree.

use crate::check::{self, Problems};
use crate::core::pod::template;
use crate::{node_selection as scheduling, read};
use rest::hooks::Context;
use schema::problem::{Problem, quoted};
use schema::{Map, Path, Value};

/// The longest part of messages that several kinds have.
pub(crate) const IMMUTABLE: &str = "field is immutable";
const UNMATCHED: &str = "`selector` does not match template `labels`";

/// A selector over labels that has been read; absent selects nothing.
pub(crate) struct Selector<'v>(Option<&'v Value>);

impl<'v> Selector<'v> {
    pub fn of(selector: Option<&'v Value>) -> Self {
        Selector(selector.filter(|it| !it.is_null()))
    }

    /// Whether it can be used at all.
    pub fn is_valid(&self) -> bool {
        let mut problems = Problems::new();
        scheduling::label_selector(self.0, &Path::ROOT, &mut problems);
        problems.is_empty()
    }

    pub fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Given, and selecting everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_some_and(|it| {
            read::map(it, &["matchLabels"]).is_empty() && it.items(&["matchExpressions"]).is_empty()
        })
    }

    pub fn matches(&self, labels: &Map) -> bool {
        let Some(selector) = self.0 else { return false };
        read::map(selector, &["matchLabels"]).iter().all(|(key, value)| labels.get(key) == Some(value))
            && selector.items(&["matchExpressions"]).iter().all(|one| expression(one, labels))
    }

    /// As clients write selectors in a query: `a=b,c in (d,e)`.
    pub fn text(&self) -> String {
        let Some(selector) = self.0 else { return String::new() };
        let labels = read::map(selector, &["matchLabels"]);
        let mut parts: Vec<(&str, String)> =
            labels.iter().map(|(key, value)| (key, format!("{key}={}", read::text(value)))).collect();
        for one in selector.items(&["matchExpressions"]) {
            let key = one.text(&["key"]);
            let mut values: Vec<&str> = one.items(&["values"]).iter().map(read::text).collect();
            values.sort_unstable();
            values.dedup();
            let text = match one.text(&["operator"]) {
                "In" => format!("{key} in ({})", values.join(",")),
                "NotIn" => format!("{key} notin ({})", values.join(",")),
                "DoesNotExist" => format!("!{key}"),
                _ => key.to_owned(),
            };
            parts.push((key, text));
        }
        parts.sort_by_key(|(key, _)| *key);
        parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
    }

    /// As messages show it.
    pub fn go_text(&self) -> String {
        let Some(selector) = self.0 else { return "\"null\"".to_owned() };
        let expressions = selector.items(&["matchExpressions"]);
        let expressions = if expressions.is_empty() {
            "(nil)".to_owned()
        } else {
            let all: Vec<String> = expressions.iter().map(format_expression).collect();
            format!("{{{}}}", all.join(", "))
        };
        format!(
            "v1.LabelSelector{{MatchLabels:{}, MatchExpressions:[]v1.LabelSelectorRequirement{expressions}}}",
            format_map(read::map(selector, &["matchLabels"]))
        )
    }
}

fn expression(one: &Value, labels: &Map) -> bool {
    let value = labels.get(one.text(&["key"]));
    let listed = || value.is_some_and(|value| one.items(&["values"]).contains(value));
    match one.text(&["operator"]) {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

fn format_expression(one: &Value) -> String {
    let values = one.items(&["values"]);
    let values = if values.is_empty() { "[]string(nil)".to_owned() } else { check::format_texts(values) };
    let (key, operator) = (quoted(one.text(&["key"])), quoted(one.text(&["operator"])));
    format!("v1.LabelSelectorRequirement{{Key:{key}, Operator:{operator}, Values:{values}}}")
}

/// A map of texts as messages show it.
pub(crate) fn format_map(map: &Map) -> String {
    if map.is_empty() {
        return "map[string]string(nil)".to_owned();
    }
    let all: Vec<String> =
        map.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(read::text(value)))).collect();
    format!("map[string]string{{{}}}", all.join(", "))
}

/// A selector that must be there and select something.
pub(crate) fn some_selector(object: &Value, kind: &str, path: &Path<'_>, out: &mut Problems) {
    let value = object.at(&["spec", "selector"]);
    let selector = Selector::of(value);
    if !selector.is_given() {
        out.push(Problem::required(path, ""));
        return;
    }
    scheduling::label_selector(value, path, out);
    if selector.is_empty() {
        let why = format!("empty selector is invalid for {kind}");
        out.push(check::invalid_formatted(path, &selector.go_text(), &why));
    }
}

/// The selector of an object cannot change.
pub(crate) fn same_selector(new: &Value, old: &Value, path: &Path<'_>, out: &mut Problems) {
    let (is, was) = (new.at(&["spec", "selector"]), old.at(&["spec", "selector"]));
    if !read::same(is, was) {
        out.push(check::invalid_formatted(path, &Selector::of(is).go_text(), IMMUTABLE));
    }
}

/// Pods from this template have the labels that are selected.
pub(crate) fn selected(template: &Value, matches: bool, path: &Path<'_>, out: &mut Problems) {
    if !matches {
        let path = path.field("metadata");
        let labels = format_map(read::map(template, &["metadata", "labels"]));
        out.push(check::invalid_formatted(&path.field("labels"), &labels, UNMATCHED));
    }
}

/// The validation of a template for pods that restart forever.
pub(crate) struct TemplateRules<'a> {
    pub context: &'a Context<'a>,
    pub privileged: bool,
    /// The kind, as messages name it.
    pub kind: &'a str,
    /// More than one pod may exist at once.
    pub many: bool,
}

impl TemplateRules<'_> {
    /// Checks a template by all rules.
    pub fn check(&self, template: &Value, path: &Path<'_>, out: &mut Problems) {
        template::validate(template, path, self.context, self.privileged, out);
        if self.many {
            shared_disks(template, path, out);
        }
        self.check_lasting(template, path, out);
    }

    /// Pods that are kept running do not end by themselves.
    pub fn check_lasting(&self, template: &Value, path: &Path<'_>, out: &mut Problems) {
        let path = path.field("spec");
        let policy = template.text(&["spec", "restartPolicy"]);
        if policy != "Always" {
            out.push(check::unsupported(&path.field("restartPolicy"), policy, &["Always"]));
        }
        if read::has(template, &["spec", "activeDeadlineSeconds"]) {
            let why = format!("activeDeadlineSeconds in {} is not Supported", self.kind);
            out.push(Problem::forbidden(&path.field("activeDeadlineSeconds"), &why));
        }
    }
}

/// Disks that only one machine can write to.
fn shared_disks(template: &Value, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "must be true for replicated pods > 1; GCE PD can only be mounted on multiple machines if it \
                       is read-only";
    let path = path.field("spec");
    let path = path.field("volumes");
    for (at, volume) in template.items(&["spec", "volumes"]).iter().enumerate() {
        let Some(disk) = volume.at(&["gcePersistentDisk"]).filter(|it| !it.is_null()) else { continue };
        if !read::flag(disk, &["readOnly"]) {
            let path = path.index(at);
            let path = path.field("gcePersistentDisk");
            out.push(check::invalid_formatted(&path.field("readOnly"), "false", WHY));
        }
    }
}

/// Numbers below a path that are not negative.
pub(crate) fn not_negative(value: &Value, fields: &[&str], path: &Path<'_>, out: &mut Problems) {
    for field in fields {
        check::not_negative(value, field, path, out);
    }
}

/// A count that is at most another one: `(count, most, what messages call that)`.
pub(crate) type CountBound = (&'static str, &'static str, &'static str);

/// The counts of a status: none is negative, and each keeps its bounds.
pub(crate) fn counts(object: &Value, counts: &[&str], bounds: &[CountBound]) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    let status = object.at(&["status"]).unwrap_or(&Value::Null);
    not_negative(status, counts, &path, &mut out);
    for (count, most, named) in bounds {
        let number = read::int(status, &[count]);
        if number > read::int(status, &[most]) {
            let why = format!("cannot be greater than {named}");
            out.push(check::invalid_int(&path.field(count), number, &why));
        }
    }
    out
}

/// The collision count only increases.
pub(crate) fn collisions(new: &Value, old: &Value, out: &mut Problems) {
    let at = |object: &Value| read::opt_int(object, &["status", "collisionCount"]);
    let path = Path::ROOT.field("status");
    let Some(was) = at(old) else { return };
    let is = at(new);
    if is.is_none_or(|is| is < was) {
        let path = path.field("collisionCount");
        out.push(check::invalid_int(&path, is.unwrap_or(0), "cannot be decremented"));
    }
}

/// A number or a share, as messages show it.
pub(crate) fn format_share(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => {
            format!("intstr.IntOrString{{Type:1, IntVal:0, StrVal:{}}}", quoted(text))
        }
        other => {
            let number = other.and_then(Value::as_int).unwrap_or(0);
            format!("intstr.IntOrString{{Type:0, IntVal:{number}, StrVal:\"\"}}")
        }
    }
}

/// A number that is not negative, or a share in percent.
pub(crate) fn share(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
    match value.at(&[field]) {
        Some(given @ Value::String(text)) if percent(text).is_none() => {
            out.push(check::invalid_formatted(&path.field(field), &format_share(Some(given)), WHY));
        }
        Some(Value::String(_)) => {}
        _ => check::not_negative(value, field, path, out),
    }
}

/// A share of at most everything.
pub(crate) fn at_most_all(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    let given = value.at(&[field]);
    if given.and_then(Value::as_str).and_then(percent).is_some_and(|it| it > 100) {
        out.push(check::invalid_formatted(
            &path.field(field),
            &format_share(given),
            "must not be greater than 100%",
        ));
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits =
        text.strip_suffix('%').filter(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))?;
    Some(digits.parse().unwrap_or(i64::MAX))
}

/// The number that counts for comparisons with nothing.
pub(crate) fn share_number(value: &Value, field: &str) -> i64 {
    match value.at(&[field]) {
        Some(Value::String(text)) => percent(text).or_else(|| text.parse().ok()).unwrap_or(0),
        other => other.and_then(Value::as_int).unwrap_or(0),
    }
}

/// A structure with a type and one optional part, as messages show it.
pub(crate) fn format_strategy(strategy: &Value, name: &str, part: &str) -> String {
    let pointer = if read::has(strategy, &["rollingUpdate"]) { "0xc000000000" } else { "nil" };
    let kind = quoted(strategy.text(&["type"]));
    format!("apps.{name}{{Type:{kind}, RollingUpdate:(*apps.{part})({pointer})}}")
}

/// Warnings about the template of an object whose spec is new.
pub(crate) fn template_warnings(new: &Value, old: Option<&Value>, template: &[&str]) -> Vec<String> {
    let generation = |object: &Value| read::int(object, &["metadata", "generation"]);
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return Vec::new();
    }
    template::warnings(new.at(template), &template.join("."))
}

/// Copies a map where the other one is empty.
pub(crate) fn copy_if_empty(object: &mut Value, from: &[&str], to: &[&'static str]) {
    if read::map(object, to).is_empty()
        && let Some(labels) =
            object.at(from).filter(|it| it.as_map().is_some_and(|it| !it.is_empty())).cloned()
    {
        object.set(to, labels);
    }
}

/// In older versions a workload has the labels of its template, and selects by them, where nothing else is said.
pub(crate) fn take_labels_of_template(object: &mut Value) {
    const LABELS: &[&str] = &["spec", "template", "metadata", "labels"];
    if !read::has(object, &["spec", "selector"]) {
        copy_if_empty(object, LABELS, &["spec", "selector", "matchLabels"]);
    }
    copy_if_empty(object, LABELS, &["metadata", "labels"]);
}

/// The cells of containers: names and images.
pub(crate) fn containers(template: Option<&Value>) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let containers = template.map(|it| it.items(&["spec", "containers"])).unwrap_or_default();
        let texts: Vec<&str> = containers.iter().map(|it| it.text(&[field])).collect();
        texts.join(",").into()
    })
}

/// Labels as a cell.
pub(crate) fn labels_cell(labels: &Map) -> Value {
    let texts: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", read::text(value))).collect();
    crate::metadata::or(&texts.join(","), "<none>")
}

/// A selector as a cell.
pub(crate) fn selector_cell(selector: Option<&Value>) -> Value {
    crate::metadata::or(&Selector::of(selector).text(), "<none>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn selectors_match_and_read_well() {
        let check = |selector: &str, labels: &str, matches: bool, text: &str| {
            let (selector, labels) = (json(selector), json(labels));
            let selector = Selector::of(Some(&selector));
            assert_eq!(selector.matches(read::map(&labels, &[])), matches, "{text}");
            assert_eq!(selector.text(), text);
        };
        check("{}", "{}", true, "");
        check("null", "{}", false, "");
        check(r#"{"matchLabels":{"a":"b","c":"d"}}"#, r#"{"a":"b","c":"d","e":"f"}"#, true, "a=b,c=d");
        check(r#"{"matchLabels":{"a":"b"}}"#, r#"{"a":"x"}"#, false, "a=b");
        check(
            r#"{"matchLabels":{"b":"1"},"matchExpressions":[{"key":"a","operator":"In","values":["y","x"]},
                {"key":"c","operator":"DoesNotExist"},{"key":"d","operator":"Exists"}]}"#,
            r#"{"a":"x","b":"1","d":""}"#,
            true,
            "a in (x,y),b=1,!c,d",
        );
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["x"]}]}"#,
            "{}",
            true,
            "a notin (x)",
        );
    }

    #[test]
    fn shares_are_numbers_or_percents() {
        let check = |value: &str, expected: &[&str]| {
            let value = json(&format!(r#"{{"s":{value}}}"#));
            let mut out = Problems::new();
            share(&value, "s", &Path::ROOT, &mut out);
            at_most_all(&value, "s", &Path::ROOT, &mut out);
            assert_eq!(problems(&out), expected);
        };
        check("0", &[]);
        check("\"100%\"", &[]);
        check("-1", &["s: Invalid value: -1: must be greater than or equal to 0"]);
        check(
            "\"101%\"",
            &[
                r#"s: Invalid value: intstr.IntOrString{Type:1, IntVal:0, StrVal:"101%"}: must not be greater than 100%"#,
            ],
        );
        let value = json(r#"{"a":"10","b":"7%","c":3,"d":"x"}"#);
        assert_eq!(["a", "b", "c", "d"].map(|field| share_number(&value, field)), [10, 7, 3, 0]);
    }
}
