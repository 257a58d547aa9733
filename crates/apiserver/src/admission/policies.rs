//! Policies: expressions that writes must fulfil, with their bindings.
//!
//! A policy does nothing by itself; a binding puts it to work, for some writes and with parameters. What always
//! holds: expressions are compiled once, and what evaluating one of them costs is bounded. What cannot be evaluated
//! refuses the write, unless the policy says that it may fail.

use super::derived::{Derived, Made};
use super::matching::{self, Index, Meant, Rule, Selected, is_exempt};
use super::parts::Parts;
use super::policy_metrics::Counters;
use cel::{Budget, Program, Variables};
use env::MaybeReady;
use rest::metrics::Timing;
use rest::{
    Admission, AdmissionAttributes, ApiError, Cause, Collection, Interest, Object, Operation, Resource,
};
use schema::{Value, decode};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub struct ValidatingAdmissionPolicy {
    /// Whether the gate is open behind which all of this is.
    on: bool,
    policies: Derived<Policies>,
    bindings: Derived<Bindings>,
    counters: Counters,
}

impl ValidatingAdmissionPolicy {
    pub fn new(parts: &Parts) -> Self {
        ValidatingAdmissionPolicy {
            on: parts.policies,
            policies: Derived::new("validatingadmissionpolicies"),
            bindings: Derived::new("validatingadmissionpolicybindings"),
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
                self.counters.read();
                Policy::of(name, policy, &write.api.timing())
            })
        });
        let bindings = self.bindings.get(write.api, Bindings::of);
        let (Some(policies), Some(bindings)) = (policies, bindings) else { return Ok(()).into() };
        let plural = &write.resource.kind.plural;
        if bindings.it.0.is_empty() || policies.it.index.candidates(plural).next().is_none() {
            return Ok(()).into();
        }
        MaybeReady::later(judge(write, object, old, policies, bindings, &self.counters))
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
        let known: HashMap<&str, &(u64, Arc<Policy>)> = before
            .map(|it| it.all.iter().map(|one| (one.1.name.as_str(), one)).collect())
            .unwrap_or_default();
        let all: Vec<_> = objects
            .iter()
            .filter_map(|object| match known.get(&*object.name) {
                Some((revision, policy)) if *revision == object.revision => Some((*revision, policy.clone())),
                _ => Some((object.revision, Arc::new(make(&object.name, &read(collection, object)?)))),
            })
            .collect();
        let index = Index::of(all.iter().map(|(_, policy)| &*policy.matches.rules));
        Policies { all, index }
    }
}

fn read(collection: &Collection, object: &Object) -> Option<Value> {
    let read = object.value(&collection.kind);
    read.inspect_err(|why| tracing::error!(name = %object.name, %why, "a policy cannot be read")).ok()
}

struct Policy {
    name: String,
    matches: Matches,
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
        let nothing = Value::map();
        let spec = policy.at(&["spec"]).unwrap_or(&nothing);
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
            matches: Matches::of(spec.at(&["matchConstraints"]).unwrap_or(&nothing)),
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
    matches: Option<Matches>,
}

impl Bindings {
    fn of(collection: &Collection, objects: &[Arc<Object>], _: Option<&Bindings>) -> Self {
        let mut all: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for object in objects {
            let Some(value) = read(collection, object) else { continue };
            let text = |path: &[&str]| value.text(path).to_owned();
            let params = value.at(&["spec", "paramRef"]).filter(|it| !it.is_null());
            let matches = value.at(&["spec", "matchResources"]).filter(|it| !it.is_null());
            all.entry(text(&["spec", "policyName"])).or_default().push(Binding {
                name: object.name.to_string(),
                params: params.map(|it| (it.text(&["namespace"]).to_owned(), it.text(&["name"]).to_owned())),
                matches: matches.map(Matches::of),
            });
        }
        Bindings(all)
    }
}

/// Which writes are meant.
struct Matches {
    selected: Selected,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

impl Matches {
    fn of(value: &Value) -> Self {
        let rules = |field: &str| value.items(&[field]).iter().map(Rule::of).collect();
        Matches {
            selected: Selected::of(value),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            equivalent: value.text(&["matchPolicy"]) == "Equivalent",
        }
    }

    fn meant(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Meant>, ApiError> {
        if matching::meant(&self.excluded, self.equivalent, write).is_some() {
            return Ok(None);
        }
        let meant = match &self.rules[..] {
            [] => Some(Meant::AsItIs),
            rules => matching::meant(rules, self.equivalent, write),
        };
        let Some(meant) = meant else { return Ok(None) };
        Ok(self.selected.select(write, object, old)?.then_some(meant))
    }
}

/// Why a write is refused.
struct Denied {
    message: String,
    reason: String,
}

async fn judge(
    write: &AdmissionAttributes<'_>,
    object: &Value,
    old: Option<&Value>,
    policies: Arc<Made<Policies>>,
    bindings: Arc<Made<Bindings>>,
    counters: &Counters,
) -> Result<(), ApiError> {
    for at in policies.it.index.candidates(&write.resource.kind.plural) {
        let Some((_, policy)) = policies.it.all.get(at) else { continue };
        let Some(bound) = bindings.it.0.get(&policy.name) else { continue };
        let asked = Asked { write, object, old, policy, counters };
        let meant = match policy.matches.meant(write, object, old) {
            Ok(None) => continue,
            Ok(Some(meant)) => meant,
            Err(why) => {
                asked
                    .unable(format!("failed to configure policy: {why}"))
                    .map_or(Ok(()), |it| Err(asked.refusal(None, &it)))?;
                continue;
            }
        };
        for binding in bound {
            let outcome = match asked.bound(binding, &meant).await {
                Ok(outcome) => outcome,
                Err(why) => asked.unable(format!("failed to configure binding: {why}")),
            };
            if let Some(denied) = outcome {
                return Err(asked.refusal(Some(binding), &denied));
            }
        }
    }
    Ok(())
}

/// A policy that looks at a write.
struct Asked<'a> {
    write: &'a AdmissionAttributes<'a>,
    object: &'a Value,
    old: Option<&'a Value>,
    policy: &'a Policy,
    counters: &'a Counters,
}

impl Asked<'_> {
    /// What it means that something cannot be told.
    fn unable(&self, message: String) -> Option<Denied> {
        (!self.policy.may_fail).then_some(Denied { message, reason: String::new() })
    }

    /// Evaluates the policy for a binding; the error says why that cannot be done.
    async fn bound(&self, binding: &Binding, meant: &Meant) -> Result<Option<Denied>, String> {
        let (write, object, old) = (self.write, self.object, self.old);
        if let Some(matches) = &binding.matches
            && matches.meant(write, object, old).map_err(|why| why.to_string())?.is_none()
        {
            return Ok(None);
        }
        let params = match (&self.policy.params, &binding.params) {
            (Some(kind), Some(place)) => self.params(kind, place).await?,
            _ => Value::Null,
        };
        let failed = |why: ApiError| format!("failed to convert object version: {why}");
        let object = tree(&meant.json(write, Some(object)).await.map_err(failed)?);
        let old = tree(&meant.json(write, old).await.map_err(failed)?);
        let seen = Variables::new().with("object", &object).with("oldObject", &old);
        let request = request(write, meant);
        let seen = seen.with("request", &request).with("params", &params);
        Ok(self.policy.checks.iter().find_map(|check| self.check(check, binding, &seen)))
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
        let found = resource.collection.cache.get(namespace, name);
        let found = found.ok_or_else(|| format!("{} {name:?} not found", resource.kind.plural))?;
        resource.ready(std::slice::from_ref(&found)).await.map_err(|why| why.to_string())?;
        Ok(tree(&resource.json(&found)))
    }

    /// Evaluates one expression; what does not hold, and what cannot be told, is counted.
    fn check(&self, check: &Check, binding: &Binding, seen: &Variables<'_>) -> Option<Denied> {
        let (holds, took) = match &check.program {
            Ok(program) => self.write.api.timing().evaluating(|| program.holds(seen, &mut Budget::default())),
            Err(why) => {
                let denied = self.unable(format!("compilation error: {why}"));
                self.counters.checked(&self.policy.name, &binding.name, denied.is_some(), Duration::ZERO);
                return denied;
            }
        };
        let denied = match holds {
            Ok(true) => return None,
            Ok(false) => Some(Denied {
                message: match &*check.message {
                    "" => format!("failed expression: {}", check.expression.trim()),
                    message => message.to_owned(),
                },
                reason: check.reason.clone(),
            }),
            Err(why) => self.unable(format!("expression '{}' resulted in error: {why}", check.expression)),
        };
        self.counters.checked(&self.policy.name, &binding.name, denied.is_some(), took);
        denied
    }

    fn refusal(&self, binding: Option<&Binding>, denied: &Denied) -> ApiError {
        let name = &self.policy.name;
        let by = match binding {
            Some(binding) => format!("ValidatingAdmissionPolicy '{name}' with binding '{}'", binding.name),
            None => format!("ValidatingAdmissionPolicy '{name}'"),
        };
        let message = format!("{by} denied request: {}", denied.message);
        let shown = if self.object.is_null() { self.old } else { Some(self.object) };
        let mut error = self.write.forbidden(shown, &message);
        let (code, reason) = match &*denied.reason {
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

/// Objects as expressions see them: as clients do.
fn tree(json: &[u8]) -> Value {
    decode::json_untyped(json).map(|it| it.value).unwrap_or_default()
}

/// The request as expressions see it.
fn request(write: &AdmissionAttributes<'_>, meant: &Meant) -> Value {
    let mut request = Value::map();
    let names = &write.api.names;
    for (field, form) in [("kind", meant.form(write)), ("requestKind", write.form())] {
        let (group, version) = form.api_version.rsplit_once('/').unwrap_or(("", form.api_version));
        for (part, text) in [("group", group), ("version", version), ("kind", form.kind)] {
            request.set(&[field, part], text);
        }
    }
    for (field, resource) in [("resource", meant.resource(write)), ("requestResource", write.resource)] {
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
    request.set(&["userInfo"], crate::reviews::user_value(&crate::reviews::user_of(write.user)));
    request.set(&["dryRun"], matching::is_dry_run(write));
    if let Some(options) = write.options_object(names) {
        request.set(&["options"], options);
    }
    request
}
