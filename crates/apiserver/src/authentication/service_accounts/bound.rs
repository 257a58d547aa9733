//! Claims of bound service account tokens: validity, and the objects that must exist.

use super::fault::Fault;
use crate::authentication::objects::{ObjectReference, Objects, StoredObject, deleted_at};
use schema::Value;

/// Tolerance for clock skew and for the use of deleted objects, in seconds.
const LEEWAY: i64 = 60;

/// The claims of a bound token.
pub struct BoundToken {
    pub namespace: String,
    pub account: ObjectReference,
    secret: Option<ObjectReference>,
    pod: Option<ObjectReference>,
    not_before: i64,
    expires: i64,
    /// When an extended token should have been replaced.
    warn_after: Option<i64>,
}

impl BoundToken {
    pub fn read(claims: &Value, under: &str) -> Result<Self, Fault> {
        let unreadable = || "service account token claims could not be read".to_owned();
        let time = |value: &Value, field: &str| match value.at(&[field]) {
            None | Some(Value::Null) => Ok(0),
            Some(Value::Int(seconds)) => Ok(*seconds),
            Some(Value::Float(seconds)) => Ok(*seconds as i64),
            Some(_) => Err(unreadable()),
        };
        let empty = Value::map();
        let about = match claims.at(&[under]) {
            None | Some(Value::Null) => &empty,
            Some(about @ Value::Map(_)) => about,
            Some(_) => return Err(unreadable()),
        };
        let named = |field: &str| match about.at(&[field]) {
            None | Some(Value::Null) => Ok(None),
            Some(it @ Value::Map(_)) => Ok(Some(ObjectReference::new(it.text(&["name"]), it.text(&["uid"])))),
            Some(_) => Err(unreadable()),
        };
        Ok(BoundToken {
            namespace: about.text(&["namespace"]).to_owned(),
            account: named("serviceaccount")?.unwrap_or_else(|| ObjectReference::new("", "")),
            secret: named("secret")?,
            pod: named("pod")?,
            not_before: time(claims, "nbf")?,
            expires: time(claims, "exp")?,
            warn_after: Some(time(about, "warnafter")?).filter(|at| *at != 0),
        })
    }

    pub fn pod(&self) -> Option<&ObjectReference> {
        self.pod.as_ref()
    }

    /// Seconds since the token should have been replaced; `None` if it is not extended.
    pub fn past_warning(&self, now: i64) -> Option<i64> {
        self.warn_after.map(|at| now.saturating_sub(at).max(0))
    }

    /// Checks validity times, and that the bound objects exist.
    pub fn check(&self, now: i64, objects: &Objects) -> Result<(), Fault> {
        if now.saturating_add(LEEWAY) < self.not_before {
            return Err("service account token is not valid yet".to_owned());
        }
        if now.saturating_sub(LEEWAY) > self.expires {
            return Err("service account token has expired".to_owned());
        }
        let (namespace, account) = (&self.namespace, &self.account);
        if account.name.is_empty() {
            return Err("resource name may not be empty".to_owned());
        }
        let stored = objects.find("serviceaccounts", namespace, &account.name);
        let stored = stored.ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
        check(&stored, account, now, |uid| match uid {
            None => format!("service account {namespace}/{} has been deleted", account.name),
            Some(uid) => format!("service account UID ({uid}) does not match claim ({})", account.uid),
        })?;
        for (kind, plural, named) in [("secret", "secrets", &self.secret), ("pod", "pods", &self.pod)] {
            let Some(named) = named else { continue };
            let void = || "service account token has been invalidated".to_owned();
            let object = objects.find(plural, namespace, &named.name).ok_or_else(void)?;
            check(&object, named, now, |uid| match uid {
                None => void(),
                Some(uid) => {
                    let claim = format!("service account {kind} ref claim ({})", named.uid);
                    format!("{kind} UID ({uid}) does not match {claim}")
                }
            })?;
        }
        Ok(())
    }
}

/// Whether an object is the referenced one, and not deleted for too long. `fault` makes the error: with the
/// actual uid, or `None` if it is deleted.
fn check(
    found: &StoredObject,
    named: &ObjectReference,
    now: i64,
    fault: impl Fn(Option<&str>) -> Fault,
) -> Result<(), Fault> {
    named.check(found, |object| {
        let deleted = deleted_at(object);
        if deleted.is_some_and(|at| at < now.saturating_sub(LEEWAY)) {
            return Err(fault(None));
        }
        match object.text(&["metadata", "uid"]) {
            uid if uid == named.uid => Ok(deleted.is_none()),
            uid => Err(fault(Some(uid))),
        }
    })
}
