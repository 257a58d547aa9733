//! MutatingAdmissionWebhook: calls webhooks in sequence, each with the object that those before it have changed.
//!
//! When one of them has changed an object, everything that writes pass is asked a second time, and of the webhooks
//! those that want to see what others did after them.

use super::dispatcher::{Invocation, Webhooks};
use super::hook::{Failure, Hook};
use super::review::Verdict;
use crate::admission::matching::{Meant, is_exempt};
use crate::admission::parts::Parts;
use env::MaybeReady;
use merge::JsonPatch;
use merge::json_patch::Form;
use merge::managed::Managed;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource, Shown};
use schema::problem::quoted;
use schema::{Value, decode, defaults, encode};
use std::collections::BTreeSet;

const MANNER: &str = "admit";
const RECORD: &[&str] = &["metadata", "managedFields"];

pub struct Mutating(Webhooks);

impl Mutating {
    pub fn new(parts: &Parts, told: &Value) -> Result<Self, String> {
        Webhooks::new("mutatingwebhookconfigurations", parts, told).map(Mutating)
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
        let concerned = self.0.invocations(write);
        if concerned.is_empty() {
            return Ok(()).into();
        }
        MaybeReady::later(self.round(write, object, old, concerned))
    }
}

/// What is known of a write from one round to the next.
#[derive(Default)]
struct Memory {
    /// Those that want to be asked again when somebody changes what they have seen.
    asked: BTreeSet<(String, String)>,
    /// Those of them for which somebody has.
    due: BTreeSet<(String, String)>,
    /// What the last of them has left.
    left: Option<Value>,
}

impl Memory {
    fn changed(&mut self) {
        self.due.append(&mut self.asked);
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
        concerned: Vec<Invocation>,
    ) -> Result<(), ApiError> {
        let mut memory = write.rounds.recall::<Memory>().unwrap_or_default();
        if write.rounds.is_second() && memory.left.as_ref() != object.as_deref() {
            memory.changed();
        }
        for one in &concerned {
            let shown = object.as_deref().unwrap_or(&Value::Null);
            let is_due = !write.rounds.is_second() || memory.due.contains(&key(&one.hook));
            if !one.hook.selected.select(write, shown, old)? || !is_due {
                continue;
            }
            let changed = self.ask(write, one, object.as_deref_mut(), old).await?;
            if changed {
                memory.changed();
                write.rounds.changed();
            }
            if one.hook.again {
                memory.asked.insert(key(&one.hook));
            }
        }
        memory.left = object.as_deref().cloned();
        write.rounds.remember(memory);
        Ok(())
    }

    /// Asks one of them; whether it has changed the object.
    async fn ask(
        &self,
        write: &AdmissionAttributes<'_>,
        one: &Invocation,
        object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let Invocation { at, hook, meant } = one;
        let bodies = (meant.json(write, object.as_deref()).await?, meant.json(write, old).await?);
        let began = self.0.clients.world.elapsed();
        let outcome = hook.ask(write, meant, (&bodies.0, &bodies.1), true).await;
        let record =
            Record { write, hook, place: format!("round_{}_index_{at}", u8::from(write.rounds.is_second())) };
        let outcome = match outcome {
            Ok(Verdict { patch: Some(patch), .. }) => {
                let changed = change(write, hook, meant, object, &patch).await;
                if matches!(changed, Ok(Some(_))) {
                    record.patch(&patch);
                }
                changed.map(|it| it.unwrap_or(false))
            }
            other => other.map(|_| false),
        };
        record.mutation(matches!(outcome, Ok(true)));
        let judged = hook.judge(&self.0.clients, (write, MANNER, began), outcome)?;
        if judged.is_none() {
            record.failed_open();
        }
        Ok(judged.unwrap_or(false))
    }
}

/// Changes an object as a webhook wants; whether that made a difference, where it wants anything.
async fn change(
    write: &AdmissionAttributes<'_>,
    hook: &Hook,
    meant: &Meant,
    object: Option<&mut Value>,
    patch: &[u8],
) -> Result<Option<bool>, Failure> {
    let read = decode::json_untyped(patch).map_err(|why| Failure::Refused(told(&why)))?;
    let (operations, _) =
        JsonPatch::parse(&read.value, Form::Checked).map_err(|why| Failure::Refused(told(&why)))?;
    if operations.is_empty() {
        return Ok(None);
    }
    let Some(object) = object else {
        let why = "attempted to modify the object, which is not supported for this operation";
        let why = format!("admission webhook {} {why}", quoted(&hook.name));
        return Err(Failure::Refused(ApiError::internal_error(why)));
    };
    let other = meant.other(write);
    let shown = match other {
        None => object.clone(),
        Some(other) => {
            let shown = write.resource.convert_to(other, object.clone()).await;
            shown.map_err(Failure::Refused)?
        }
    };
    // the record of ownership is kept as text, and must be opened for a patch that points into it
    let into_record = memchr::memmem::find(patch, b"managedFields").is_some() || patch.contains(&b'\\');
    let next = patched(write, meant, shown, &operations, into_record).map_err(Failure::Refused)?;
    let Some(next) = next else { return Ok(Some(false)) };
    *object = match other {
        None => next,
        Some(other) => other.convert_to(write.resource, next).await.map_err(Failure::Refused)?,
    };
    Ok(Some(true))
}

fn told(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal_error(why.to_string())
}

/// The object with the changes, in normal form and with defaults; nothing where they make no difference.
fn patched(
    write: &AdmissionAttributes<'_>,
    meant: &Meant,
    shown: Value,
    operations: &JsonPatch,
    into_record: bool,
) -> Result<Option<Value>, ApiError> {
    let form = meant.form(write);
    let base = if into_record { shown.opened() } else { shown.clone() };
    let next = operations.apply(base).map_err(|why| match why {
        merge::Error::Rejected(why) => told(&why),
        other => told(&other),
    })?;
    let mut next = decode::tree(next, form.ty).map_err(|why| told(&why))?.value;
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
    if into_record {
        keep_record(write, &mut next, &shown);
    }
    if next == shown {
        return Ok(None);
    }
    defaults::apply(form.ty, &mut next);
    if let (None, Some(default)) = (write.other, meant.resource(write).hooks.decode.default) {
        default(&mut next, &write.api.names);
    }
    Ok(Some(next))
}

/// A record of ownership that makes no sense is not taken over.
fn keep_record(write: &AdmissionAttributes<'_>, next: &mut Value, shown: &Value) {
    let entries = next.items(RECORD);
    if let Err(why) = Managed::decode(entries, entries) {
        write.user.notes.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
             admission controller; please fix your requests: {why}"
        ));
        match shown.at(RECORD) {
            Some(record) => next.set(&["metadata", "managedFields"], record.clone()),
            None => drop(next.unset(RECORD)),
        }
    }
}

/// What the record of the request says about a call.
struct Record<'a> {
    write: &'a AdmissionAttributes<'a>,
    hook: &'a Hook,
    place: String,
}

impl Record<'_> {
    fn note(&self, least: Shown, domain: &str, value: impl FnOnce() -> String) {
        let notes = &self.write.user.notes;
        if notes.shown() >= least {
            let domain = self.write.api.names.group(domain);
            notes.annotate(format!("{domain}/{}", self.place), value());
        }
    }

    fn who(&self) -> String {
        let mut out = b"\"configuration\":".to_vec();
        encode::string(&self.hook.configuration, &mut out);
        out.extend_from_slice(b",\"webhook\":");
        encode::string(&self.hook.name, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn mutation(&self, mutated: bool) {
        self.note(Shown::Reference, "mutation.webhook.admission", || {
            format!("{{{},\"mutated\":{mutated}}}", self.who())
        });
    }

    fn patch(&self, patch: &[u8]) {
        self.note(Shown::Request, "patch.webhook.admission", || {
            let text = String::from_utf8_lossy(patch);
            format!("{{{},\"patch\":{text},\"patchType\":\"JSONPatch\"}}", self.who())
        });
    }

    fn failed_open(&self) {
        self.note(Shown::Reference, "failed-open.mutation.webhook.admission", || self.hook.name.clone());
    }
}
