//! ValidatingAdmissionWebhook: calls all matching webhooks concurrently; all must allow the write.

use super::dispatcher::{Invocation, Webhooks};
use super::hook::Hook;
use crate::admission::matching::{Match, is_exempt};
use crate::admission::parts::Parts;
use env::MaybeReady;
use futures_util::future::join_all;
use rest::{Admission, AdmissionAttributes, ApiError, AuditDetail, Interest, Resource};
use schema::Value;
use std::collections::HashMap;

const KIND: &str = "validating";

pub struct Validating(Webhooks);

impl Validating {
    pub fn new(parts: &Parts, configuration: &Value) -> Result<Self, String> {
        Webhooks::new("validatingwebhookconfigurations", parts, configuration).map(Validating)
    }
}

impl Admission for Validating {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::ALL.when(!is_exempt(resource))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        let invocations = self.0.invocations(write);
        if invocations.is_empty() {
            return Ok(()).into();
        }
        MaybeReady::later(self.call_all(write, object, old, invocations))
    }
}

/// An object and its old state, as JSON.
type Bodies = (Vec<u8>, Vec<u8>);

impl Validating {
    async fn call_all(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
        mut invocations: Vec<Invocation>,
    ) -> Result<(), ApiError> {
        let mut wrong = None;
        invocations.retain(|one| match one.hook.selectors.select(write, object, old) {
            Ok(selectors) => selectors,
            Err(why) => {
                wrong.get_or_insert(why);
                false
            }
        });
        wrong.map_or(Ok(()), Err)?;
        let mut bodies: HashMap<String, Bodies> = HashMap::new();
        for one in &invocations {
            let version = &one.matched.resource(write).api_version;
            if !bodies.contains_key(version) {
                let object = one.matched.json(write, Some(object)).await?;
                bodies.insert(version.clone(), (object, one.matched.json(write, old).await?));
            }
        }
        let calls = invocations.iter().enumerate().map(|(at, one)| {
            let bodies = bodies.get(&one.matched.resource(write).api_version);
            self.call(write, at, &one.hook, &one.matched, bodies)
        });
        // all are awaited, and the first error in order counts
        join_all(calls).await.into_iter().collect()
    }

    async fn call(
        &self,
        write: &AdmissionAttributes<'_>,
        at: usize,
        hook: &Hook,
        matched: &Match,
        bodies: Option<&Bodies>,
    ) -> Result<(), ApiError> {
        let (object, old) = bodies.map_or((&b"null"[..], &b"null"[..]), |(object, old)| (object, old));
        let began = self.0.clients.world.elapsed();
        let outcome = hook.review(write, matched, (object, old), false).await;
        let outcome = hook.conclude(&self.0.clients, (write, KIND, began), outcome)?;
        if outcome.is_none() && write.user.record.audit_detail() > AuditDetail::Nothing {
            let domain = write.api.names.group("failed-open.validating.webhook.admission");
            write.user.record.annotate(format!("{domain}/round_0_index_{at}"), hook.name.as_str());
        }
        Ok(())
    }
}
