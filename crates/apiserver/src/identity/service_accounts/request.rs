//! Asking for a token of a service account.

use super::Issuer;
use crate::answers::list_of;
use ambient::Soon;
use rest::hooks::Part;
use rest::{Answer, ApiError, Asking, Subject};
use schema::problem::Problem;
use schema::table::{Group, Kind, Ref};
use schema::{Path, Value, time};
use std::sync::Arc;

/// The shortest time that can be asked for, in seconds.
const SHORTEST: i64 = 600;
/// The longest.
const LONGEST: i64 = 1 << 32;

/// Issues tokens.
pub struct TokenRequests {
    pub issuer: Arc<Issuer>,
    pub audiences: Vec<String>,
}

/// Where tokens are asked for, if this kind is the one.
pub fn part(kind: &Kind, issuer: &Arc<Issuer>, audiences: &[String]) -> Option<Part> {
    let sub = kind.subresources.iter().find(|it| it.name == "token" && it.kind == "TokenRequest")?;
    let (group, version): &(Group, _) = sub.group_version.as_ref()?;
    let kind = kinds::tables::kind_named(group, version, &sub.kind)?;
    let answer = Arc::new(TokenRequests { issuer: issuer.clone(), audiences: audiences.to_vec() });
    Some(Part { name: "token", kind: Ref::Static(kind), answer })
}

impl Answer for TokenRequests {
    fn create<'a>(&'a self, request: Value, asking: &'a Asking<'a>) -> Soon<'a, Result<Value, ApiError>> {
        self.issue(request, asking).into()
    }
}

impl TokenRequests {
    fn issue(&self, mut request: Value, asking: &Asking<'_>) -> Result<Value, ApiError> {
        let (namespace, name) = (asking.namespace, asking.name);
        let group = asking.api.names.group("authentication");
        let invalid = |name: &str, problem| {
            Err(ApiError::invalid(Subject { group: &group, kind: "TokenRequest", name }, vec![problem]))
        };
        let given = request.text(&["metadata", "name"]);
        if !given.is_empty() && given != name {
            let path = Path::ROOT.field("metadata");
            let why = "must match the service account name if specified";
            return invalid(name, Problem::invalid(&path.field("name"), &given.into(), why));
        }
        let account = asking.api.lookup("serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| ApiError::not_found(asking.resource.subject(name)))?;
        let seconds = match request.at(&["spec", "expirationSeconds"]) {
            Some(Value::Int(seconds)) => *seconds,
            _ => 0,
        };
        let why = match seconds {
            ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
            SHORTEST..=LONGEST => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(why) = why {
            let path = Path::ROOT.field("spec");
            return invalid("", Problem::invalid(&path.field("expirationSeconds"), &seconds.into(), why));
        }
        if list_of(&request, &["spec", "audiences"]).is_empty() {
            request.set(&["spec", "audiences"], crate::answers::texts(&self.audiences));
        }
        let now = ambient::unix_seconds(&asking.api.world);
        let about = self.about(&request, &account, asking)?;
        let mut claims = Value::map();
        claims.set(&["aud"], request.at(&["spec", "audiences"]).cloned().unwrap_or_default());
        for (field, at) in [("exp", now.saturating_add(seconds)), ("iat", now), ("nbf", now)] {
            claims.set(&[field], at);
        }
        claims.set(&["iss"], self.issuer.name.as_str());
        claims.make_map().insert(self.issuer.claims.clone(), about);
        claims.set(&["sub"], format!("{}{namespace}:{name}", auth::SERVICE_ACCOUNT_PREFIX));
        let token = self.issuer.key.sign(&claims);
        let token = token.ok_or_else(|| ApiError::internal_error("failed to generate token"))?;
        for field in ["uid", "resourceVersion"] {
            request.unset(&["metadata", field]);
        }
        request.set(&["metadata", "name"], name);
        request.set(&["metadata", "creationTimestamp"], time::format_time(now));
        request.set(&["status"], Value::map());
        request.set(&["status", "token"], token);
        request.set(&["status", "expirationTimestamp"], time::format_time(now.saturating_add(seconds)));
        Ok(request)
    }
}

impl TokenRequests {
    /// What the token says about the account, and about the object it is bound to.
    fn about(&self, request: &Value, account: &Value, asking: &Asking<'_>) -> Result<Value, ApiError> {
        let named = |object: &Value| {
            let mut out = Value::map();
            for field in ["name", "uid"] {
                out.set(&[field], object.text(&["metadata", field]));
            }
            out
        };
        let mut about = Value::map();
        about.set(&["namespace"], asking.namespace);
        about.set(&["serviceaccount"], named(account));
        let Some(reference) = request.at(&["spec", "boundObjectRef"]).filter(|it| !it.is_null()) else {
            return Ok(about);
        };
        let (kind, name) = (reference.text(&["kind"]), reference.text(&["name"]));
        // more than a group and a version is neither
        let version = Some(reference.text(&["apiVersion"])).filter(|it| it.matches('/').count() < 2);
        let (group, version) = match version.unwrap_or("").split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", version.unwrap_or("")),
        };
        let (claim, plural) = match (group, kind) {
            ("", "Pod") => ("pod", "pods"),
            ("", "Secret") => ("secret", "secrets"),
            _ => {
                let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(ApiError::bad_request(why));
            }
        };
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let found = asking.api.lookup(plural, asking.namespace, name);
        let found = found.ok_or_else(|| ApiError::not_found(Subject { group: "", kind: plural, name }))?;
        if claim == "pod" && found.text(&["spec", "serviceAccountName"]) != asking.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                asking.name
            )));
        }
        let uid = reference.text(&["uid"]);
        if !uid.is_empty() && uid != found.text(&["metadata", "uid"]) {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(Subject { group, kind, name }, &why));
        }
        about.set(&[claim], named(&found));
        Ok(about)
    }
}
