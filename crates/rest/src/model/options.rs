//! The options of a request, parsed from its query and body, and their validation.

use crate::model::error::{ApiError, Subject};
use crate::model::metadata::check_field_manager;
use crate::model::selector::{check_fields, parse_labels};
use names::Names;
use schema::problem::{Problem, Problems, quoted};
use schema::{Path, Value};

/// Decoded `key=value` pairs in the order of the URL.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub pairs: Vec<(String, String)>,
    /// Keys that stand alone, without an equals sign.
    bare: Vec<String>,
}

impl Query {
    /// Splits and decodes the part of a URL after the question mark.
    pub fn parse(text: &str) -> Self {
        let mut query = Query::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let key = unescape(key);
            if !part.contains('=') {
                query.bare.push(key.clone());
            }
            query.pairs.push((key, unescape(value)));
        }
        query
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| &**v)
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| &**v)
    }

    /// The values of `dryRun`; without an equals sign it requests a real run.
    fn dry_runs(&self) -> Vec<String> {
        if self.bare.iter().any(|key| key == "dryRun") {
            return Vec::new();
        }
        self.all("dryRun").map(str::to_owned).collect()
    }

    fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or("").to_owned()
    }

    /// Absent, empty and words for no are false; everything else is true.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        match self.get(key) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let why = if !text.is_empty()
                    && text.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit())
                    && text.len() > 1
                {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quoted(text)))
            }),
        }
    }
}

/// Percent-decoding; invalid UTF-8 is replaced.
fn unescape(text: &str) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| (*b as char).to_digit(16));
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => match (hex(at + 1), hex(at + 2)) {
                (Some(high), Some(low)) => {
                    out.push((high * 16 + low) as u8);
                    at += 2;
                }
                _ => out.push(b'%'),
            },
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
}

/// Parameters of list, watch and deletecollection.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub allow_bookmarks: bool,
    pub resource_version: String,
    pub match_rule: Match,
    pub limit: i64,
    pub continue_token: String,
    pub timeout_seconds: Option<i64>,
}

/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Match {
    #[default]
    Unset,
    Exact,
    NotOlderThan,
}

impl ListOptions {
    pub fn parse(query: &Query, names: &Names) -> Result<Self, ApiError> {
        let resource_version = query.text("resourceVersion");
        let rule = query.text("resourceVersionMatch");
        let options = ListOptions {
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
            watch: query.flag("watch"),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            // of two wrong numbers the first one is reported
            timeout_seconds: query.number("timeoutSeconds")?,
            limit: query.number("limit")?.unwrap_or(0).max(0),
            continue_token: query.text("continue"),
            match_rule: match &*rule {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            resource_version,
        };
        let problems = options.problems(&rule);
        if problems.is_empty() {
            return Ok(options);
        }
        // syntax errors of selectors come first
        parse_labels(&options.label_selector)?;
        check_fields(&options.field_selector)?;
        Err(invalid("ListOptions", problems, names))
    }

    fn problems(&self, rule: &str) -> Problems {
        let path = Path::ROOT.field("resourceVersionMatch");
        let forbidden = |why: &str| Problem::forbidden(&path, why);
        let mut problems = Problems::new();
        if rule.is_empty() {
            return problems;
        }
        if self.watch {
            problems.push(forbidden("resourceVersionMatch is forbidden for watch"));
        }
        if self.resource_version.is_empty() {
            problems.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !self.continue_token.is_empty() {
            problems.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        if self.match_rule == Match::Unset {
            let message = format!(
                "Unsupported value: {}: supported values: \"Exact\", \"NotOlderThan\", \"\"",
                quoted(rule)
            );
            let reason = schema::problem::Reason::NotSupported;
            problems.push(Problem { reason, field: "resourceVersionMatch".to_owned(), message });
        }
        if self.match_rule == Match::Exact && self.resource_version == "0" {
            problems.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
        problems
    }
}

/// How unknown and repeated fields are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    fn name(self) -> &'static str {
        match self {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Warn => "Warn",
            FieldValidation::Strict => "Strict",
        }
    }
}

/// Parameters of create, update and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Whether the request names it.
    pub validation_given: bool,
    pub force: Option<bool>,
}

impl WriteOptions {
    /// The options of the request as an object.
    pub(crate) fn to_value(&self) -> Value {
        let mut formatted = Value::map();
        if self.dry_run {
            formatted.set(&["dryRun"], vec![Value::from("All")]);
        }
        if !self.field_manager.is_empty() {
            formatted.set(&["fieldManager"], &*self.field_manager);
        }
        if self.validation_given {
            formatted.set(&["fieldValidation"], self.field_validation.name());
        }
        formatted
    }

    /// `kind` is the options' own kind, `CreateOptions` and so on, for messages.
    pub fn parse(query: &Query, kind: &str, names: &Names) -> Result<Self, ApiError> {
        Self::parse_with(query, kind, names, Problems::new())
    }

    /// The options of a patch: an apply patch requires a field manager, and only an apply patch can be forced.
    pub fn parse_patch(query: &Query, applied: bool, names: &Names) -> Result<Self, ApiError> {
        let mut problems = Problems::new();
        if applied && query.get("fieldManager").unwrap_or("").is_empty() {
            let path = Path::ROOT.field("fieldManager");
            problems.push(Problem::required(&path, "is required for apply patch"));
        }
        if !applied && query.get("force").is_some() {
            problems.push(Problem::forbidden(
                &Path::ROOT.field("force"),
                "may not be specified for non-apply patch",
            ));
        }
        Self::parse_with(query, "PatchOptions", names, problems)
    }

    fn parse_with(
        query: &Query,
        kind: &str,
        names: &Names,
        mut problems: Problems,
    ) -> Result<Self, ApiError> {
        let field_manager = query.text("fieldManager");
        check_field_manager(&field_manager, &Path::ROOT.field("fieldManager"), &mut problems);
        let dry_run = dry_run(&query.dry_runs(), &mut problems);
        let given = query.get("fieldValidation").unwrap_or("");
        let field_validation = match given {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let path = Path::ROOT.field("fieldValidation");
                problems.push(Problem::not_supported(
                    &path,
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        let force = query.get("force").map(|_| query.flag("force"));
        if problems.is_empty() {
            let validation_given = !given.is_empty();
            Ok(WriteOptions { dry_run, field_manager, field_validation, validation_given, force })
        } else {
            Err(invalid(kind, problems, names))
        }
    }
}

/// Parameters of delete, from the body and the query.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<Propagation>,
}

/// The propagation policy: the fate of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

impl Propagation {
    fn name(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        }
    }
}

impl DeleteOptions {
    /// The options of the request as an object.
    pub(crate) fn to_value(&self) -> Value {
        let mut formatted = Value::map();
        if self.dry_run {
            formatted.set(&["dryRun"], vec![Value::from("All")]);
        }
        if let Some(seconds) = self.grace_period_seconds {
            formatted.set(&["gracePeriodSeconds"], seconds);
        }
        if let Some(uid) = &self.uid {
            formatted.set(&["preconditions", "uid"], uid.as_str());
        }
        if let Some(version) = &self.resource_version {
            formatted.set(&["preconditions", "resourceVersion"], version.as_str());
        }
        if let Some(orphan) = self.orphan_dependents {
            formatted.set(&["orphanDependents"], orphan);
        }
        if let Some(propagation) = self.propagation {
            formatted.set(&["propagationPolicy"], propagation.name());
        }
        formatted
    }

    /// Parses the decoded body (`Null` when there is none) and the query; a body overrides the query.
    pub fn parse(query: &Query, body: &Value, names: &Names) -> Result<Self, ApiError> {
        let mut problems = Problems::new();
        let in_body = !body.is_null();
        let runs: Vec<String> = if in_body {
            body.items(&["dryRun"]).iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
        } else {
            query.dry_runs()
        };
        let mut options = DeleteOptions::default();
        let policy;
        if in_body {
            options.grace_period_seconds = body.at(&["gracePeriodSeconds"]).and_then(Value::as_int);
            options.orphan_dependents = body.at(&["orphanDependents"]).and_then(Value::as_bool);
            policy = body.at(&["propagationPolicy"]).and_then(Value::as_str).map(str::to_owned);
            let precondition =
                |field| body.at(&["preconditions", field]).and_then(Value::as_str).map(str::to_owned);
            options.uid = precondition("uid");
            options.resource_version = precondition("resourceVersion");
        } else {
            options.grace_period_seconds = query.number("gracePeriodSeconds")?;
            options.orphan_dependents = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
            policy = query.get("propagationPolicy").map(str::to_owned);
            let precondition = |name| query.get(name).filter(|it| !it.is_empty()).map(str::to_owned);
            options.uid = precondition("uid");
            options.resource_version = precondition("resourceVersion");
        }
        let path = Path::ROOT.field("propagationPolicy");
        if let (Some(text), Some(_)) = (&policy, options.orphan_dependents) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            problems.push(Problem::invalid_text(&path, text, why));
        }
        options.propagation = match policy.as_deref() {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                let message = format!("Unsupported value: {}: supported values: {supported}", quoted(other));
                let reason = schema::problem::Reason::NotSupported;
                problems.push(Problem { reason, field: "propagationPolicy".to_owned(), message });
                None
            }
        };
        options.dry_run = dry_run(&runs, &mut problems);
        if problems.is_empty() { Ok(options) } else { Err(invalid("DeleteOptions", problems, names)) }
    }
}

/// Every value must be `All`; no value at all is a real run.
fn dry_run(values: &[String], problems: &mut Problems) -> bool {
    if values.iter().any(|value| value != "All") {
        let listed: Vec<_> = values.iter().map(|value| quoted(value)).collect();
        let message =
            format!("Unsupported value: []string{{{}}}: supported values: \"All\"", listed.join(", "));
        let reason = schema::problem::Reason::NotSupported;
        problems.push(Problem { reason, field: "dryRun".to_owned(), message });
    }
    !values.is_empty()
}

fn invalid(kind: &str, problems: Problems, names: &Names) -> ApiError {
    ApiError::invalid(Subject { group: &names.meta_group(), kind, name: "" }, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("a=b%20c&d=e+f&g&a=second&bad=%zz");
        assert_eq!(query.get("a"), Some("b c"));
        assert_eq!(query.get("d"), Some("e f"));
        assert_eq!(query.get("g"), Some(""));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["b c", "second"]);
    }

    #[test]
    fn a_deletion_has_preconditions_in_its_query() {
        let parse = |body: &Value| {
            let query = Query::parse("uid=u&resourceVersion=5");
            let options = DeleteOptions::parse(&query, body, &Names::default()).expect("options");
            (options.uid, options.resource_version)
        };
        assert_eq!(parse(&Value::Null), (Some("u".to_owned()), Some("5".to_owned())));
        assert_eq!(parse(&Value::map()), (None, None));
    }

    #[test]
    fn match_rules_are_all_reported() {
        let parse = |text: &str| {
            ListOptions::parse(&Query::parse(text), &Names::default()).map(|_| ()).map_err(|e| e.message)
        };
        assert!(parse("resourceVersionMatch=Exact&resourceVersion=5").is_ok());
        assert_eq!(
            parse("resourceVersionMatch=Bogus").unwrap_err(),
            "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is \
             forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: \"Bogus\": \
             supported values: \"Exact\", \"NotOlderThan\", \"\"]"
        );
        assert!(parse("limit=x").unwrap_err().contains("strconv.ParseInt"));
    }
}
