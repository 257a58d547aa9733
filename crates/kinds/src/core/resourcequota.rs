//! ResourceQuotas: the limits of a namespace, and their use.

use crate::check::{self, Problems};
use crate::{metadata, quantities, read};
use rest::hooks::{
    Context, CreateHooks, DecodeHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors,
    SubresourceHooks, Subresources, UpdateHooks, WriteHooks,
};
use schema::problem::{Problem, quoted};
use schema::{Path, Value};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
];
/// Scopes that nothing is in both of.
const OPPOSED: &[[&str; 2]] = &[["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const OF_PODS: &[&str] =
    &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

pub fn hooks() -> Hooks {
    Hooks {
        decode: DecodeHooks { default: Some(|object, _| default(object)), ..DecodeHooks::default() },
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { returns_object: true, ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks::status(Some(|new, _, _| {
    let mut out = Problems::new();
    status(new, &mut out);
    out
}))];

fn default(object: &mut Value) {
    for path in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
        quantities::round(object.at_mut(&path));
    }
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    spec(object, &mut out);
    status(object, &mut out);
    out
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    spec(new, &mut out);
    let scopes = |object: &Value| -> BTreeSet<String> {
        object.items(&["spec", "scopes"]).iter().map(|it| read::text(it).to_owned()).collect()
    };
    if scopes(new) != scopes(old) {
        let path = Path::ROOT.field("spec");
        let formatted = format_scopes(new.items(&["spec", "scopes"]));
        out.push(check::invalid_formatted(&path.field("scopes"), &formatted, "field is immutable"));
    }
    out
}

fn spec(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("spec");
    amounts(object, &["spec", "hard"], &path.field("hard"), out);
    let hard: Vec<&str> = read::map(object, &["spec", "hard"]).keys().collect();
    let scopes = object.items(&["spec", "scopes"]);
    scope_list(scopes, &hard, &path.field("scopes"), out);
    if let Some(selector) = object.at(&["spec", "scopeSelector"]).filter(|it| !it.is_null()) {
        scope_selector(selector, &hard, scopes, &path.field("scopeSelector"), out);
    }
}

fn status(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("status");
    for list in ["hard", "used"] {
        amounts(object, &["status", list], &path.field(list), out);
    }
}

fn amounts(object: &Value, at: &[&str], path: &Path<'_>, out: &mut Problems) {
    for (name, value) in read::map(object, at).iter() {
        let path = path.key(name);
        quantities::resource_name(name, &path, out);
        if !name.contains('/') && !quantities::is_quota_resource(name) {
            out.push(Problem::invalid_text(&path, name, "must be a standard resource for quota"));
        }
        quantities::amount(name, value, &path, out);
    }
}

/// Whether a scope says something about a resource.
fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        scope if SCOPES.contains(&scope) => OF_PODS.contains(&resource),
        _ => true,
    }
}

/// The number of resources that each scope does not support.
#[derive(Default)]
struct UnsupportedCounts<'s>(HashMap<&'s str, usize>);

impl<'s> UnsupportedCounts<'s> {
    fn count(&mut self, scope: &'s str, hard: &[&str]) -> usize {
        let unfit = |it: &&&str| quantities::is_quota_resource(it) && !applies(scope, it);
        *self.0.entry(scope).or_insert_with(|| hard.iter().filter(unfit).count())
    }
}

fn opposed(scopes: &BTreeSet<&str>) -> usize {
    OPPOSED.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

const UNFIT: &str = "unsupported scope applied to resource";
const OPPOSITES: &str = "conflicting scopes";

fn scope_list(scopes: &[Value], hard: &[&str], path: &Path<'_>, out: &mut Problems) {
    let (mut unfit, mut repeated) = (UnsupportedCounts::default(), check::SharedListProblems::default());
    let mut tell = |why: &str, times: usize| {
        for _ in 0..times {
            if repeated.is_full() {
                break;
            }
            repeated.report(path, || format_scopes(scopes), why, out);
        }
    };
    for scope in scopes.iter().map(read::text) {
        tell("unsupported scope", usize::from(!SCOPES.contains(&scope)));
        // a scope that does not exist says something about everything
        let count = if SCOPES.contains(&scope) { unfit.count(scope, hard) } else { 0 };
        tell(UNFIT, count);
    }
    let given = scopes.iter().map(read::text).collect();
    tell(OPPOSITES, opposed(&given));
}

fn scope_selector(selector: &Value, hard: &[&str], scopes: &[Value], path: &Path<'_>, out: &mut Problems) {
    let path = path.field("matchExpressions");
    let (mut unfit, mut repeated) = (UnsupportedCounts::default(), check::SharedListProblems::default());
    let mut given = BTreeSet::new();
    for one in selector.items(&["matchExpressions"]) {
        let (scope, operator) = (one.text(&["scopeName"]), one.text(&["operator"]));
        if !SCOPES.contains(&scope) {
            out.push(Problem::invalid_text(&path.field("scopeName"), scope, "unsupported scope"));
        }
        let count = if SCOPES.contains(&scope) { unfit.count(scope, hard) } else { 0 };
        for _ in 0..count {
            if repeated.is_full() {
                break;
            }
            repeated.report(&path, || format_selector(selector), UNFIT, out);
        }
        if SCOPES.contains(&scope) && scope != "PriorityClass" && operator != "Exists" {
            const WHY: &str = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, \
                               ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                               ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            out.push(Problem::invalid_text(&path.field("operator"), operator, WHY));
        }
        let values = one.items(&["values"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                const WHY: &str =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                out.push(Problem::required(&path.field("values"), WHY));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                const WHY: &str =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                out.push(check::invalid_formatted(&path.field("values"), &check::format_texts(values), WHY));
            }
            "Exists" | "DoesNotExist" => {}
            _ => {
                const WHY: &str = "not a valid selector operator";
                out.push(Problem::invalid_text(&path.field("operator"), operator, WHY));
            }
        }
        given.insert(scope);
    }
    for _ in 0..opposed(&given) {
        out.push(check::invalid_formatted(&path, &format_scopes(scopes), OPPOSITES));
    }
}

fn format_scopes(scopes: &[Value]) -> String {
    if scopes.is_empty() {
        return "[]core.ResourceQuotaScope(nil)".to_owned();
    }
    let formatted: Vec<_> = scopes.iter().map(|it| quoted(read::text(it))).collect();
    format!("[]core.ResourceQuotaScope{{{}}}", formatted.join(", "))
}

fn format_selector(selector: &Value) -> String {
    let formatted = |one: &Value| {
        let (scope, operator) = (quoted(one.text(&["scopeName"])), quoted(one.text(&["operator"])));
        let values = match one.items(&["values"]) {
            [] => "[]string(nil)".to_owned(),
            values => check::format_texts(values),
        };
        format!(
            "core.ScopedResourceSelectorRequirement{{ScopeName:{scope}, Operator:{operator}, Values:{values}}}"
        )
    };
    let formatted: Vec<_> = selector.items(&["matchExpressions"]).iter().map(formatted).collect();
    format!(
        "core.ScopeSelector{{MatchExpressions:[]core.ScopedResourceSelectorRequirement{{{}}}}}",
        formatted.join(", ")
    )
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in read::map(object, &["status", "hard"]).iter() {
        let used = read::opt_text(object, &["status", "used", name]).unwrap_or("0");
        let column = if name.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{name}: {used}/{}", read::text(hard)));
    }
    vec![
        metadata::name(object),
        metadata::age(object, now),
        requests.join(", ").into(),
        limits.join(", ").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn scopes_support_the_counted_resources() {
        let check = |spec: &str, expected: &[&str]| {
            let object = json(&format!(r#"{{"spec":{spec}}}"#));
            assert_eq!(problems(&validate(&object)), expected, "{spec}");
        };
        check(r#"{"hard":{"pods":"1","count/x.y":"2"},"scopes":["BestEffort"]}"#, &[]);
        check(
            r#"{"hard":{"services":"1"},"scopes":["BestEffort","NotBestEffort"]}"#,
            &[
                r#"spec.scopes: Invalid value: []core.ResourceQuotaScope{"BestEffort", "NotBestEffort"}: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: []core.ResourceQuotaScope{"BestEffort", "NotBestEffort"}: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: []core.ResourceQuotaScope{"BestEffort", "NotBestEffort"}: conflicting scopes"#,
            ],
        );
        check(
            r#"{"hard":{"storage":"1","bogus":"-1"}}"#,
            &[
                r#"spec.hard[bogus]: Invalid value: "bogus": must be a standard resource type or fully qualified"#,
                r#"spec.hard[bogus]: Invalid value: "bogus": must be a standard resource for quota"#,
                r#"spec.hard[bogus]: Invalid value: "-1": must be greater than or equal to 0"#,
                r#"spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota"#,
            ],
        );
    }

    #[test]
    fn scopes_stay() {
        let old = json(r#"{"spec":{"scopes":["Terminating"]}}"#);
        let expected = ["spec.scopes: Invalid value: []core.ResourceQuotaScope(nil): field is immutable"];
        assert_eq!(problems(&update(&json("{}"), &old, &context())), expected);
    }

    #[test]
    fn rows_divide_requests_and_limits() {
        let quota = json(r#"{"status":{"hard":{"limits.cpu":"2","pods":"3"},"used":{"pods":"1"}}}"#);
        assert_eq!(cells(&quota, Duration::ZERO)[2..], ["pods: 1/3", "limits.cpu: 0/2"].map(Value::from));
    }
}
