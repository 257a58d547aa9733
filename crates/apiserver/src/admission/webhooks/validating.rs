//! Webhooks that may refuse writes: all that a write is for are asked at the same time, and all must agree.

use super::dispatcher::{Invocation, Webhooks};
use super::hook::Hook;
use crate::admission::matching::{Meant, is_exempt};
use crate::admission::parts::Parts;
use env::MaybeReady;
use futures_util::future::join_all;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource, Shown};
use schema::Value;
use std::collections::HashMap;

const MANNER: &str = "validating";

pub struct Validating(Webhooks);

impl Validating {
    pub fn new(parts: &Parts, told: &Value) -> Result<Self, String> {
        Webhooks::new("validatingwebhookconfigurations", parts, told).map(Validating)
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
        let concerned = self.0.invocations(write);
        if concerned.is_empty() {
            return Ok(()).into();
        }
        MaybeReady::later(self.ask_all(write, object, old, concerned))
    }
}

/// An object, and what it was before, as JSON.
type Bodies = (Vec<u8>, Vec<u8>);

impl Validating {
    async fn ask_all(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
        mut concerned: Vec<Invocation>,
    ) -> Result<(), ApiError> {
        let mut wrong = None;
        concerned.retain(|one| match one.hook.selected.select(write, object, old) {
            Ok(selected) => selected,
            Err(why) => {
                wrong.get_or_insert(why);
                false
            }
        });
        wrong.map_or(Ok(()), Err)?;
        let mut bodies: HashMap<String, Bodies> = HashMap::new();
        for one in &concerned {
            let version = &one.meant.resource(write).api_version;
            if !bodies.contains_key(version) {
                let object = one.meant.json(write, Some(object)).await?;
                bodies.insert(version.clone(), (object, one.meant.json(write, old).await?));
            }
        }
        let asked = concerned.iter().enumerate().map(|(at, one)| {
            let bodies = bodies.get(&one.meant.resource(write).api_version);
            self.ask(write, at, &one.hook, &one.meant, bodies)
        });
        // all are waited for, and the first in their order counts
        join_all(asked).await.into_iter().collect()
    }

    async fn ask(
        &self,
        write: &AdmissionAttributes<'_>,
        at: usize,
        hook: &Hook,
        meant: &Meant,
        bodies: Option<&Bodies>,
    ) -> Result<(), ApiError> {
        let (object, old) = bodies.map_or((&b"null"[..], &b"null"[..]), |(object, old)| (object, old));
        let began = self.0.clients.world.elapsed();
        let outcome = hook.ask(write, meant, (object, old), false).await;
        let judged = hook.judge(&self.0.clients, (write, MANNER, began), outcome)?;
        if judged.is_none() && write.user.notes.shown() > Shown::Nothing {
            let domain = write.api.names.group("failed-open.validating.webhook.admission");
            write.user.notes.annotate(format!("{domain}/round_0_index_{at}"), hook.name.as_str());
        }
        Ok(())
    }
}
