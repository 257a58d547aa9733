//! Availability checks of aggregated servers, and the condition `Available` of APIServices.

use super::aggregated_server::AggregatedServer;
use super::proxy;
use super::resolve::{FAILED, ResolveError};
use super::routes::Aggregation;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use outbound::{CallError, Limits};
use schema::Value;
use schema::problem::quoted;
use std::time::Duration;

/// Addresses that are tried concurrently; one response is enough.
const ATTEMPTS: usize = 5;

/// Timeout and maximum size of a response.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), answer: 3 * 1024 * 1024 };

/// The availability of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Availability {
    pub available: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Availability {
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Availability { available: true, reason: "Local", message }
    }

    pub fn unavailable(ResolveError { reason, message }: ResolveError) -> Self {
        Availability { available: false, reason, message }
    }

    /// An APIService for a version that this server serves itself.
    pub fn built_in(group_version: &str, prefix: &str) -> Self {
        let message = format!(
            "{group_version} is built into {prefix}-apiserver, which keeps serving it: \
             the service is never called"
        );
        Availability { available: false, reason: "BuiltIn", message }
    }

    fn passed() -> Self {
        Availability { available: true, reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// Whether the object has this condition already.
    pub fn is_current(&self, object: &Value) -> bool {
        let current = condition(object);
        current.is_some_and(|it| {
            it.text(&["status"]) == self.status()
                && it.text(&["reason"]) == self.reason
                && it.text(&["message"]) == self.message
        })
    }

    fn status(&self) -> &'static str {
        if self.available { "True" } else { "False" }
    }

    /// The object with this condition in its status.
    pub fn apply_to(&self, object: &Value, now: &str) -> Value {
        let mut next = Value::map();
        next.set(&["type"], AVAILABLE);
        next.set(&["status"], self.status());
        let before = condition(object).filter(|it| it.text(&["status"]) == self.status());
        let since = before.map_or("", |it| it.text(&["lastTransitionTime"]));
        next.set(&["lastTransitionTime"], if since.is_empty() { now } else { since });
        next.set(&["reason"], self.reason);
        next.set(&["message"], &*self.message);
        let mut conditions = object.items(&["status", "conditions"]).to_vec();
        match conditions.iter_mut().find(|it| it.text(&["type"]) == AVAILABLE) {
            Some(existing) => *existing = next,
            None => conditions.push(next),
        }
        let mut object = object.clone();
        object.set(&["status", "conditions"], conditions);
        object
    }
}

const AVAILABLE: &str = "Available";

fn condition(object: &Value) -> Option<&Value> {
    object.items(&["status", "conditions"]).iter().find(|it| it.text(&["type"]) == AVAILABLE)
}

/// Whether the condition of an object is true.
pub(super) fn was_available(object: &Value) -> bool {
    condition(object).is_some_and(|it| it.text(&["status"]) == "True")
}

impl Aggregation {
    /// Resolves a server and fetches its resource list; returns its availability and that list.
    pub(super) async fn examine(&self, remote: &AggregatedServer) -> (Availability, Option<Bytes>) {
        let addresses = match remote.locate(&self.api, self.options.to_endpoints) {
            Ok(addresses) => addresses,
            Err(refusal) => return (Availability::unavailable(refusal), None),
        };
        // random ones, rather than always the same
        let first = (env::random_u64(&self.api.world) % addresses.len().max(1) as u64) as usize;
        let some = addresses.iter().cycle().skip(first).take(addresses.len().min(ATTEMPTS));
        let mut attempts: FuturesUnordered<_> =
            some.map(|address| self.resources_of(remote, address)).collect();
        let mut message = format!("no endpoints available for service {}", quoted(&remote.reference.name));
        while let Some(result) = attempts.next().await {
            match result {
                Ok(resources) => return (Availability::passed(), Some(resources)),
                Err(why) => message = why,
            }
        }
        (Availability::unavailable(ResolveError { reason: FAILED, message }), None)
    }

    async fn resources_of(&self, remote: &AggregatedServer, address: &str) -> Result<Bytes, String> {
        let path = format!("/apis/{}", remote.group_version());
        let url = format!("https://{address}{path}");
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        let client = remote.proxy.as_ref().map_err(|why| failed(why.clone()))?;
        let request = proxy::own_request(&self.api.names, address, &path)
            .ok_or_else(|| failed(format!("{} is not a URL that can be called", quoted(&url))))?;
        match client.ask(request, LIMITS).await {
            Ok(response) if response.status.is_success() => Ok(response.body),
            Ok(response) => Err(failed(format!("bad status from {url}: {}", response.status.as_u16()))),
            Err(CallError::Timeout(_)) => Err(failed(format!(
                "Get {}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                quoted(&url)
            ))),
            Err(why) => Err(failed(format!("Get {}: {why}", quoted(&url)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_changes_its_time_with_its_status() {
        let failed =
            |message: &str| Availability { available: false, reason: "R", message: message.to_owned() };
        let object = failed("a").apply_to(&Value::map(), "1");
        assert!(failed("a").is_current(&object) && !failed("b").is_current(&object));
        let object = failed("b").apply_to(&object, "2");
        let current = |object: &Value| {
            let it = &object.items(&["status", "conditions"])[0];
            format!("{} {} {}", it.text(&["status"]), it.text(&["message"]), it.text(&["lastTransitionTime"]))
        };
        assert_eq!(current(&object), "False b 1");
        assert!(!was_available(&object));
        let object = Availability::passed().apply_to(&object, "3");
        assert_eq!(current(&object), "True all checks passed 3");
        assert_eq!(object.items(&["status", "conditions"]).len(), 1);
        assert!(was_available(&object));
    }
}
