//! ValidatingAdmissionPolicy: CEL expressions that writes must fulfil, with their bindings.
//!
//! A policy takes effect through bindings, for some writes and with parameters. Invariants: expressions are
//! compiled once, and their evaluation has a cost limit. An evaluation error denies the write, unless the
//! policy has `failurePolicy: Ignore`.

use super::derived::{DerivedValue, Snapshot};
use super::matching::{self, Index, Match, Rule, Selectors, is_exempt};
use super::parts::Parts;
use super::policy_metrics::Counters;
use crate::reviews::user_info::{user_of, user_value};
use cel::{Budget, Program, Variables};
use env::MaybeReady;
use rest::metrics::Timing;
use rest::{
    Admission, AdmissionAttributes, ApiError, Cause, Collection, Interest, Object, Operation, Resource,
};
use schema::problem::quoted;
use schema::{Value, decode};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub struct ValidatingAdmissionPolicy {
    /// Whether the feature gate is enabled.
    on: bool,
    policies: DerivedValue<Policies>,
    bindings: DerivedValue<Bindings>,
    counters: Counters,
}

impl ValidatingAdmissionPolicy {
    pub fn new(parts: &Parts) -> Self {
        ValidatingAdmissionPolicy {
            on: parts.policies,
            policies: DerivedValue::new("validatingadmissionpolicies"),
            bindings: DerivedValue::new("validatingadmissionpolicybindings"),
            counters: parts.policy_counters.clone(),
        }
    }
}

impl Admission for ValidatingAdmissionPolicy {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::ALL.when(self.on && !is_exempt(resource))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let policies = self.policies.get(write.api, |collection, objects, before| {
            Policies::of(collection, objects, before, &|name, policy| {
                self.counters.record_definition();
                Policy::of(name, policy, &write.api.timing())
            })
        });
        let bindings = self.bindings.get(write.api, Bindings::of);
        let (Some(policies), Some(bindings)) = (policies, bindings) else { return Ok(()).into() };
        let plural = &write.resource.kind.plural;
        if bindings.value.0.is_empty() || policies.value.index.candidates(plural).next().is_none() {
            return Ok(()).into();
        }
        MaybeReady::later(admit(write, object, old, policies, bindings, &self.counters))
    }
}

/// All policies, by name.
struct Policies {
    all: Vec<(u64, Arc<Policy>)>,
    index: Index,
}

impl Policies {
    fn of(
        collection: &Collection,
        objects: &[Arc<Object>],
        before: Option<&Policies>,
        make: &dyn Fn(&str, &Value) -> Policy,
    ) -> Self {
        let previous: HashMap<&str, &(u64, Arc<Policy>)> = before
            .map(|it| it.all.iter().map(|one| (one.1.name.as_str(), one)).collect())
            .unwrap_or_default();
        let all: Vec<_> = objects
            .iter()
            .filter_map(|object| match previous.get(&*object.name) {
                Some((revision, policy)) if *revision == object.revision => Some((*revision, policy.clone())),
                _ => Some((object.revision, Arc::new(make(&object.name, &read(collection, object)?)))),
            })
            .collect();
        let index = Index::of(all.iter().map(|(_, policy)| &*policy.constraints.rules));
        Policies { all, index }
    }
}

fn read(collection: &Collection, object: &Object) -> Option<Value> {
    let read = object.value(&collection.kind);
    read.inspect_err(
        |why| tracing::error!(name = %object.name, %why, "a ValidatingAdmissionPolicy could not be decoded"),
    )
    .ok()
}

struct Policy {
    name: String,
    constraints: Constraints,
    /// Version and kind of the parameters.
    params: Option<(String, String)>,
    checks: Vec<Check>,
    may_fail: bool,
}

/// One expression.
struct Check {
    program: Result<Program, String>,
    expression: String,
    message: String,
    reason: String,
}

impl Policy {
    fn of(name: &str, policy: &Value, timing: &Timing<'_>) -> Self {
        let empty = Value::map();
        let spec = policy.at(&["spec"]).unwrap_or(&empty);
        let params = spec.at(&["paramKind"]).filter(|it| !it.is_null());
        let env = kinds::admissionregistration::admission_policy::environment(params.is_some());
        let check = |one: &Value| Check {
            program: timing
                .compiling(|| env.compile_rule(one.text(&["expression"]).trim()), |_| true)
                .map_err(|why| why.to_string()),
            expression: one.text(&["expression"]).to_owned(),
            message: one.text(&["message"]).trim().to_owned(),
            reason: one.text(&["reason"]).to_owned(),
        };
        Policy {
            name: name.to_owned(),
            constraints: Constraints::of(spec.at(&["matchConstraints"]).unwrap_or(&empty)),
            params: params.map(|it| (it.text(&["apiVersion"]).to_owned(), it.text(&["kind"]).to_owned())),
            checks: spec.items(&["validations"]).iter().map(check).collect(),
            may_fail: spec.text(&["failurePolicy"]) == "Ignore",
        }
    }
}

/// Bindings, by the names of their policies.
struct Bindings(BTreeMap<String, Vec<Binding>>);

struct Binding {
    name: String,
    /// Namespace and name of the parameters.
    params: Option<(String, String)>,
    constraints: Option<Constraints>,
}

impl Bindings {
    fn of(collection: &Collection, objects: &[Arc<Object>], _: Option<&Bindings>) -> Self {
        let mut all: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for object in objects {
            let Some(value) = read(collection, object) else { continue };
            let text = |path: &[&str]| value.text(path).to_owned();
            let params = value.at(&["spec", "paramRef"]).filter(|it| !it.is_null());
            let constraints = value.at(&["spec", "matchResources"]).filter(|it| !it.is_null());
            all.entry(text(&["spec", "policyName"])).or_default().push(Binding {
                name: object.name.to_string(),
                params: params.map(|it| (it.text(&["namespace"]).to_owned(), it.text(&["name"]).to_owned())),
                constraints: constraints.map(Constraints::of),
            });
        }
        Bindings(all)
    }
}

/// Match constraints.
struct Constraints {
    selectors: Selectors,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

impl Constraints {
    fn of(value: &Value) -> Self {
        let rules = |field: &str| value.items(&[field]).iter().map(Rule::of).collect();
        Constraints {
            selectors: Selectors::of(value),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            equivalent: value.text(&["matchPolicy"]) == "Equivalent",
        }
    }

    fn find_match(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Match>, ApiError> {
        if matching::find_match(&self.excluded, self.equivalent, write).is_some() {
            return Ok(None);
        }
        let matched = match &self.rules[..] {
            [] => Some(Match::Exact),
            rules => matching::find_match(rules, self.equivalent, write),
        };
        let Some(matched) = matched else { return Ok(None) };
        Ok(self.selectors.select(write, object, old)?.then_some(matched))
    }
}

/// A denial.
struct Denial {
    message: String,
    reason: String,
}

async fn admit(
    write: &AdmissionAttributes<'_>,
    object: &Value,
    old: Option<&Value>,
    policies: Arc<Snapshot<Policies>>,
    bindings: Arc<Snapshot<Bindings>>,
    counters: &Counters,
) -> Result<(), ApiError> {
    for at in policies.value.index.candidates(&write.resource.kind.plural) {
        let Some((_, policy)) = policies.value.all.get(at) else { continue };
        let Some(bound) = bindings.value.0.get(&policy.name) else { continue };
        let evaluation = Evaluation { write, object, old, policy, counters };
        let matched = match policy.constraints.find_match(write, object, old) {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(why) => {
                evaluation
                    .denial_for_error(format!("failed to configure policy: {why}"))
                    .map_or(Ok(()), |it| Err(evaluation.error(None, &it)))?;
                continue;
            }
        };
        for binding in bound {
            let outcome = match evaluation.evaluate(binding, &matched).await {
                Ok(outcome) => outcome,
                Err(why) => evaluation.denial_for_error(format!("failed to configure binding: {why}")),
            };
            if let Some(denial) = outcome {
                return Err(evaluation.error(Some(binding), &denial));
            }
        }
    }
    Ok(())
}

/// The evaluation of a policy for a write.
struct Evaluation<'a> {
    write: &'a AdmissionAttributes<'a>,
    object: &'a Value,
    old: Option<&'a Value>,
    policy: &'a Policy,
    counters: &'a Counters,
}

impl Evaluation<'_> {
    /// The denial for an error, unless the policy ignores errors.
    fn denial_for_error(&self, message: String) -> Option<Denial> {
        (!self.policy.may_fail).then_some(Denial { message, reason: String::new() })
    }

    /// Evaluates the policy for a binding; the error is one of its configuration.
    async fn evaluate(&self, binding: &Binding, matched: &Match) -> Result<Option<Denial>, String> {
        let (write, object, old) = (self.write, self.object, self.old);
        if let Some(constraints) = &binding.constraints
            && constraints.find_match(write, object, old).map_err(|why| why.to_string())?.is_none()
        {
            return Ok(None);
        }
        let params = match (&self.policy.params, &binding.params) {
            (Some(kind), Some(reference)) => self.params(kind, reference).await?,
            _ => Value::Null,
        };
        let failed = |why: ApiError| format!("failed to convert object version: {why}");
        let object = tree(&matched.json(write, Some(object)).await.map_err(failed)?);
        let old = tree(&matched.json(write, old).await.map_err(failed)?);
        let variables = Variables::new().with("object", &object).with("oldObject", &old);
        let request = request(write, matched);
        let variables = variables.with("request", &request).with("params", &params);
        Ok(self.policy.checks.iter().find_map(|check| self.check(check, binding, &variables)))
    }

    async fn params(
        &self,
        (version, kind): &(String, String),
        (namespace, name): &(String, String),
    ) -> Result<Value, String> {
        let resources = self.write.api.resources();
        let Some(resource) = resources.of_version(version).find(|it| it.kind.name == *kind) else {
            return Err(format!("paramKind kind `{version}, Kind={kind}` not known"));
        };
        let object = resource.collection.cache.get(namespace, name);
        let object = object.ok_or_else(|| format!("{} {} not found", resource.kind.plural, quoted(name)))?;
        resource.ready(std::slice::from_ref(&object)).await.map_err(|why| why.to_string())?;
        Ok(tree(&resource.json(&object)))
    }

    /// Evaluates one expression; denials and errors are counted.
    fn check(&self, check: &Check, binding: &Binding, variables: &Variables<'_>) -> Option<Denial> {
        let (holds, took) = match &check.program {
            Ok(program) => {
                self.write.api.timing().evaluating(|| program.holds(variables, &mut Budget::default()))
            }
            Err(why) => {
                let denial = self.denial_for_error(format!("compilation error: {why}"));
                self.counters.record_check(
                    &self.policy.name,
                    &binding.name,
                    denial.is_some(),
                    Duration::ZERO,
                );
                return denial;
            }
        };
        let denial = match holds {
            Ok(true) => return None,
            Ok(false) => Some(Denial {
                message: match &*check.message {
                    "" => format!("failed expression: {}", check.expression.trim()),
                    message => message.to_owned(),
                },
                reason: check.reason.clone(),
            }),
            Err(why) => {
                self.denial_for_error(format!("expression '{}' resulted in error: {why}", check.expression))
            }
        };
        self.counters.record_check(&self.policy.name, &binding.name, denial.is_some(), took);
        denial
    }

    fn error(&self, binding: Option<&Binding>, denial: &Denial) -> ApiError {
        let name = &self.policy.name;
        let by = match binding {
            Some(binding) => format!("ValidatingAdmissionPolicy '{name}' with binding '{}'", binding.name),
            None => format!("ValidatingAdmissionPolicy '{name}'"),
        };
        let message = format!("{by} denied request: {}", denial.message);
        let named_object = if self.object.is_null() { self.old } else { Some(self.object) };
        let mut error = self.write.forbidden(named_object, &message);
        let (code, reason) = match &*denial.reason {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        error.code = code;
        error.reason = reason.into();
        if let Some(details) = &mut error.details {
            let (reason, field) = (String::new(), String::new());
            details.causes.push(Cause { reason, message, field });
        }
        error
    }
}

/// Objects as expressions see them, in the form of the API.
fn tree(json: &[u8]) -> Value {
    decode::json_untyped(json).map(|it| it.value).unwrap_or_default()
}

/// The request as expressions see it.
fn request(write: &AdmissionAttributes<'_>, matched: &Match) -> Value {
    let mut request = Value::map();
    let names = &write.api.names;
    for (field, form) in [("kind", matched.form(write)), ("requestKind", write.form())] {
        let (group, version) = form.api_version.rsplit_once('/').unwrap_or(("", form.api_version));
        for (part, text) in [("group", group), ("version", version), ("kind", form.kind)] {
            request.set(&[field, part], text);
        }
    }
    for (field, resource) in [("resource", matched.resource(write)), ("requestResource", write.resource)] {
        for (part, text) in [
            ("group", resource.group.as_str()),
            ("version", &resource.kind.version),
            ("resource", &resource.kind.plural),
        ] {
            request.set(&[field, part], text);
        }
    }
    let name = if write.operation == Operation::Delete { write.request_name } else { write.name };
    for (field, text) in [
        ("subResource", write.subresource),
        ("requestSubResource", write.subresource),
        ("name", name),
        ("namespace", matching::namespace_of(write)),
    ] {
        if !text.is_empty() {
            request.set(&[field], text);
        }
    }
    request.set(&["operation"], write.operation.name());
    request.set(&["userInfo"], user_value(&user_of(write.user)));
    request.set(&["dryRun"], matching::is_dry_run(write));
    if let Some(options) = write.options_object(names) {
        request.set(&["options"], options);
    }
    request
}
