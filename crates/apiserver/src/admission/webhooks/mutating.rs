//! MutatingAdmissionWebhook: calls webhooks in sequence, each with the object as changed by those before it.
//!
//! After a change the whole chain runs a second time, and with it the webhooks that ask for reinvocation.

use super::dispatcher::{Invocation, Webhooks};
use super::hook::{Failure, Hook};
use super::review::ReviewResponse;
use crate::admission::matching::{Match, is_exempt};
use crate::admission::parts::Parts;
use env::MaybeReady;
use merge::JsonPatch;
use merge::json_patch::Form;
use merge::managed::ManagedFields;
use rest::{Admission, AdmissionAttributes, ApiError, AuditDetail, Interest, Resource};
use schema::problem::quoted;
use schema::{Value, decode, defaults, encode};
use std::collections::BTreeSet;

const KIND: &str = "admit";
const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

pub struct Mutating(Webhooks);

impl Mutating {
    pub fn new(parts: &Parts, configuration: &Value) -> Result<Self, String> {
        Webhooks::new("mutatingwebhookconfigurations", parts, configuration).map(Mutating)
    }
}

impl Admission for Mutating {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::ALL.when(!is_exempt(resource))
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let invocations = self.0.invocations(write);
        if invocations.is_empty() {
            return Ok(()).into();
        }
        MaybeReady::later(self.round(write, object, old, invocations))
    }
}

/// The state of a write between the two rounds.
#[derive(Default)]
struct RoundState {
    /// Webhooks to reinvoke if the object changes after them.
    reinvocable: BTreeSet<(String, String)>,
    /// Those of them after which it has changed.
    due: BTreeSet<(String, String)>,
    /// The object after the last webhook.
    left: Option<Value>,
}

impl RoundState {
    fn mark_changed(&mut self) {
        self.due.append(&mut self.reinvocable);
    }
}

fn key(hook: &Hook) -> (String, String) {
    (hook.configuration.clone(), hook.name.clone())
}

impl Mutating {
    async fn round(
        &self,
        write: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
        invocations: Vec<Invocation>,
    ) -> Result<(), ApiError> {
        let mut state = write.reinvocation.take_value::<RoundState>().unwrap_or_default();
        if write.reinvocation.is_reinvoke() && state.left.as_ref() != object.as_deref() {
            state.mark_changed();
        }
        for one in &invocations {
            let matched_object = object.as_deref().unwrap_or(&Value::Null);
            let is_due = !write.reinvocation.is_reinvoke() || state.due.contains(&key(&one.hook));
            if !one.hook.selectors.select(write, matched_object, old)? || !is_due {
                continue;
            }
            let changed = self.call(write, one, object.as_deref_mut(), old).await?;
            if changed {
                state.mark_changed();
                write.reinvocation.set_should_reinvoke();
            }
            if one.hook.reinvoke {
                state.reinvocable.insert(key(&one.hook));
            }
        }
        state.left = object.as_deref().cloned();
        write.reinvocation.set_value(state);
        Ok(())
    }

    /// Calls a webhook; returns whether it changed the object.
    async fn call(
        &self,
        write: &AdmissionAttributes<'_>,
        one: &Invocation,
        object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let Invocation { at, hook, matched } = one;
        let bodies = (matched.json(write, object.as_deref()).await?, matched.json(write, old).await?);
        let began = self.0.clients.world.elapsed();
        let outcome = hook.review(write, matched, (&bodies.0, &bodies.1), true).await;
        let record = AuditAnnotations {
            write,
            hook,
            suffix: format!("round_{}_index_{at}", u8::from(write.reinvocation.is_reinvoke())),
        };
        let outcome = match outcome {
            Ok(ReviewResponse { patch: Some(patch), .. }) => {
                let changed = change(write, hook, matched, object, &patch).await;
                if matches!(changed, Ok(Some(_))) {
                    record.patch(&patch);
                }
                changed.map(|it| it.unwrap_or(false))
            }
            other => other.map(|_| false),
        };
        record.mutation(matches!(outcome, Ok(true)));
        let judged = hook.conclude(&self.0.clients, (write, KIND, began), outcome)?;
        if judged.is_none() {
            record.failed_open();
        }
        Ok(judged.unwrap_or(false))
    }
}

/// Applies the patch of a webhook; returns whether it made a difference.
async fn change(
    write: &AdmissionAttributes<'_>,
    hook: &Hook,
    matched: &Match,
    object: Option<&mut Value>,
    patch: &[u8],
) -> Result<Option<bool>, Failure> {
    let read = decode::json_untyped(patch).map_err(|why| Failure::Refused(internal_error(&why)))?;
    let (operations, _) =
        JsonPatch::parse(&read.value, Form::Checked).map_err(|why| Failure::Refused(internal_error(&why)))?;
    if operations.is_empty() {
        return Ok(None);
    }
    let Some(object) = object else {
        let why = "attempted to modify the object, which is not supported for this operation";
        let why = format!("admission webhook {} {why}", quoted(&hook.name));
        return Err(Failure::Refused(ApiError::internal_error(why)));
    };
    let other = matched.other(write);
    let matched_object = match other {
        None => object.clone(),
        Some(other) => {
            let matched_object = write.resource.convert_to(other, object.clone()).await;
            matched_object.map_err(Failure::Refused)?
        }
    };
    // managed fields are kept as text, and are parsed for a patch that points into them
    let changes_managed_fields =
        memchr::memmem::find(patch, b"managedFields").is_some() || patch.contains(&b'\\');
    let next = apply_patch(write, matched, matched_object, &operations, changes_managed_fields)
        .map_err(Failure::Refused)?;
    let Some(next) = next else { return Ok(Some(false)) };
    *object = match other {
        None => next,
        Some(other) => other.convert_to(write.resource, next).await.map_err(Failure::Refused)?,
    };
    Ok(Some(true))
}

fn internal_error(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal_error(why.to_string())
}

/// The patched object, normalized and with defaults; `None` if it is unchanged.
fn apply_patch(
    write: &AdmissionAttributes<'_>,
    matched: &Match,
    matched_object: Value,
    operations: &JsonPatch,
    changes_managed_fields: bool,
) -> Result<Option<Value>, ApiError> {
    let form = matched.form(write);
    let base = if changes_managed_fields { decode::open(&matched_object) } else { matched_object.clone() };
    let next = operations.apply(base).map_err(|why| match why {
        merge::Error::Rejected(why) => internal_error(&why),
        other => internal_error(&other),
    })?;
    let mut next = decode::tree(next, form.ty).map_err(|why| internal_error(&why))?.value;
    let (version, kind) = (next.text(&["apiVersion"]), next.text(&["kind"]));
    if (version, kind) != (form.api_version, form.kind) {
        let package = form.api_version.split_once('/').map_or("core", |(group, _)| group);
        let package = package.split('.').next().unwrap_or(package);
        let version = version.rsplit('/').next().unwrap_or_default();
        return Err(ApiError::internal(format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            form.kind
        )));
    }
    if changes_managed_fields {
        restore_managed_fields(write, &mut next, &matched_object);
    }
    if next == matched_object {
        return Ok(None);
    }
    defaults::apply(form.ty, &mut next);
    if let (None, Some(default)) = (write.other, matched.resource(write).hooks.decode.default) {
        default(&mut next, &write.api.names);
    }
    Ok(Some(next))
}

/// Restores managed fields that are invalid after the patch.
fn restore_managed_fields(write: &AdmissionAttributes<'_>, next: &mut Value, matched_object: &Value) {
    let entries = next.items(MANAGED_FIELDS);
    if let Err(why) = ManagedFields::decode(entries, entries) {
        write.user.record.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
             admission controller; please fix your requests: {why}"
        ));
        match matched_object.at(MANAGED_FIELDS) {
            Some(record) => next.set(&["metadata", "managedFields"], record.clone()),
            None => drop(next.unset(MANAGED_FIELDS)),
        }
    }
}

/// The audit annotations of a call.
struct AuditAnnotations<'a> {
    write: &'a AdmissionAttributes<'a>,
    hook: &'a Hook,
    suffix: String,
}

impl AuditAnnotations<'_> {
    fn note(&self, least: AuditDetail, domain: &str, value: impl FnOnce() -> String) {
        let record = &self.write.user.record;
        if record.audit_detail() >= least {
            let domain = self.write.api.names.group(domain);
            record.annotate(format!("{domain}/{}", self.suffix), value());
        }
    }

    fn identity(&self) -> String {
        let mut out = b"\"configuration\":".to_vec();
        encode::string(&self.hook.configuration, &mut out);
        out.extend_from_slice(b",\"webhook\":");
        encode::string(&self.hook.name, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn mutation(&self, mutated: bool) {
        self.note(AuditDetail::Reference, "mutation.webhook.admission", || {
            format!("{{{},\"mutated\":{mutated}}}", self.identity())
        });
    }

    fn patch(&self, patch: &[u8]) {
        self.note(AuditDetail::Request, "patch.webhook.admission", || {
            let text = String::from_utf8_lossy(patch);
            format!("{{{},\"patch\":{text},\"patchType\":\"JSONPatch\"}}", self.identity())
        });
    }

    fn failed_open(&self) {
        self.note(AuditDetail::Reference, "failed-open.mutation.webhook.admission", || {
            self.hook.name.clone()
        });
    }
}
