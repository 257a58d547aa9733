//! Availability checks of aggregated servers, and the condition `Available` of APIServices.

use super::proxy;
use super::remote::Remote;
use super::resolve::{FAILED, Refusal};
use super::routes::Aggregation;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use outbound::{CallError, Limits};
use schema::Value;
use schema::problem::quoted;
use std::time::Duration;

/// How many addresses are asked at a time; one that answers is enough.
const ATTEMPTS: usize = 5;

/// How long an answer may take, and how large it may be.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), answer: 3 * 1024 * 1024 };

/// What is found out about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub available: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Verdict { available: true, reason: "Local", message }
    }

    pub fn refused(Refusal { reason, message }: Refusal) -> Self {
        Verdict { available: false, reason, message }
    }

    /// What an object asks for cannot be: this server answers for the version itself.
    pub fn shadows(group_version: &str, prefix: &str) -> Self {
        let message = format!(
            "{group_version} is built into {prefix}-apiserver, which goes on to answer for it: \
             the service is never asked"
        );
        Verdict { available: false, reason: "BuiltIn", message }
    }

    fn passed() -> Self {
        Verdict { available: true, reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// Whether an object says so already.
    pub fn is_told(&self, object: &Value) -> bool {
        let told = condition(object);
        told.is_some_and(|it| {
            it.text(&["status"]) == self.status()
                && it.text(&["reason"]) == self.reason
                && it.text(&["message"]) == self.message
        })
    }

    fn status(&self) -> &'static str {
        if self.available { "True" } else { "False" }
    }

    /// The object with this in its status.
    pub fn onto(&self, object: &Value, now: &str) -> Value {
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
            Some(there) => *there = next,
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

/// Whether an object says that its server could be asked.
pub(super) fn was_available(object: &Value) -> bool {
    condition(object).is_some_and(|it| it.text(&["status"]) == "True")
}

impl Aggregation {
    /// Looks where a server is and asks it for its resources; gives what it says about them.
    pub(super) async fn examine(&self, remote: &Remote) -> (Verdict, Option<Bytes>) {
        let addresses = match remote.locate(&self.api, self.options.to_endpoints) {
            Ok(addresses) => addresses,
            Err(refusal) => return (Verdict::refused(refusal), None),
        };
        // any of them, but not always the same ones
        let first = (env::random_u64(&self.api.world) % addresses.len().max(1) as u64) as usize;
        let some = addresses.iter().cycle().skip(first).take(addresses.len().min(ATTEMPTS));
        let mut asked: FuturesUnordered<_> = some.map(|address| self.resources_of(remote, address)).collect();
        let mut message = format!("no endpoints available for service {}", quoted(&remote.place.name));
        while let Some(answered) = asked.next().await {
            match answered {
                Ok(resources) => return (Verdict::passed(), Some(resources)),
                Err(why) => message = why,
            }
        }
        (Verdict::refused(Refusal { reason: FAILED, message }), None)
    }

    async fn resources_of(&self, remote: &Remote, address: &str) -> Result<Bytes, String> {
        let path = format!("/apis/{}", remote.group_version());
        let url = format!("https://{address}{path}");
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        let relay = remote.relay.as_ref().map_err(|why| failed(why.clone()))?;
        let request = proxy::own_request(&self.api.names, address, &path)
            .ok_or_else(|| failed(format!("{} is not a URL that can be called", quoted(&url))))?;
        match relay.ask(request, LIMITS).await {
            Ok(answer) if answer.status.is_success() => Ok(answer.body),
            Ok(answer) => Err(failed(format!("bad status from {url}: {}", answer.status.as_u16()))),
            Err(CallError::Late(_)) => Err(failed(format!(
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
        let failed = |message: &str| Verdict { available: false, reason: "R", message: message.to_owned() };
        let object = failed("a").onto(&Value::map(), "1");
        assert!(failed("a").is_told(&object) && !failed("b").is_told(&object));
        let object = failed("b").onto(&object, "2");
        let told = |object: &Value| {
            let it = &object.items(&["status", "conditions"])[0];
            format!("{} {} {}", it.text(&["status"]), it.text(&["message"]), it.text(&["lastTransitionTime"]))
        };
        assert_eq!(told(&object), "False b 1");
        assert!(!was_available(&object));
        let object = Verdict::passed().onto(&object, "3");
        assert_eq!(told(&object), "True all checks passed 3");
        assert_eq!(object.items(&["status", "conditions"]).len(), 1);
        assert!(was_available(&object));
    }
}
