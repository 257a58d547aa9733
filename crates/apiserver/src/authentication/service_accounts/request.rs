//! Issues tokens of service accounts: the `token` subresource.

use super::Issuer;
use crate::reviews::list_of;
use env::MaybeReady;
use rest::hooks::VirtualSubresource;
use rest::{ApiError, Subject, VirtualRequest, VirtualResource};
use schema::problem::Problem;
use schema::table::{Group, Kind, Ref};
use schema::{Path, Value, time};
use std::sync::Arc;

/// The shortest time that can be asked for, in seconds.
const SHORTEST: i64 = 600;
/// The longest.
const LONGEST: i64 = 1 << 32;

/// For how long pods ask for tokens unless told otherwise, in seconds: an odd number, so that it is known again.
const POD_DEFAULT: i64 = 3607;
/// For how long such tokens are good, for the sake of those who do not read them anew in time.
const EXTENDED: i64 = 365 * 24 * 3600;

/// Issues tokens.
pub struct TokenRequests {
    pub issuer: Arc<Issuer>,
}

/// Where tokens are asked for, if this kind is the one.
pub fn part(kind: &Kind, issuer: &Arc<Issuer>) -> Option<VirtualSubresource> {
    let sub = kind.subresources.iter().find(|it| it.name == "token" && it.kind == "TokenRequest")?;
    let (group, version): &(Group, _) = sub.group_version.as_ref()?;
    let kind = kinds::tables::kind_named(group, version, &sub.kind)?;
    let resource = Arc::new(TokenRequests { issuer: issuer.clone() });
    Some(VirtualSubresource { name: "token", kind: Ref::Static(kind), resource })
}

impl VirtualResource for TokenRequests {
    fn create<'a>(
        &'a self,
        request: Value,
        origin: &'a VirtualRequest<'a>,
    ) -> MaybeReady<'a, Result<Value, ApiError>> {
        self.issue(request, origin).into()
    }

    fn prepare(&self, request: &mut Value, origin: &VirtualRequest<'_>) -> Result<(), ApiError> {
        let (namespace, name) = (origin.namespace, origin.subject.name);
        let group = origin.names.group("authentication");
        let invalid = |name: &str, problem| {
            Err(ApiError::invalid(Subject { group: &group, kind: "TokenRequest", name }, vec![problem]))
        };
        let given = request.text(&["metadata", "name"]);
        if !given.is_empty() && given != name {
            let path = Path::ROOT.field("metadata");
            let why = "must match the service account name if specified";
            return invalid(name, Problem::invalid(&path.field("name"), &given.into(), why));
        }
        if (origin.find)("serviceaccounts", namespace, name).is_none() {
            return Err(ApiError::not_found(origin.subject));
        }
        let seconds = seconds_of(request);
        let why = match seconds {
            ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
            SHORTEST..=LONGEST => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(why) = why {
            let path = Path::ROOT.field("spec");
            return invalid("", Problem::invalid(&path.field("expirationSeconds"), &seconds.into(), why));
        }
        if list_of(request, &["spec", "audiences"]).is_empty() {
            request.set(&["spec", "audiences"], crate::reviews::texts(&self.issuer.audiences));
        }
        let now = env::unix_seconds(origin.world);
        request.unset(&["metadata", "uid"]);
        request.set(&["metadata", "name"], name);
        request.set(&["metadata", "namespace"], namespace);
        request.set(&["metadata", "creationTimestamp"], time::format_time(now));
        Ok(())
    }
}

/// For how long a token is asked for.
fn seconds_of(request: &Value) -> i64 {
    request.at(&["spec", "expirationSeconds"]).and_then(Value::as_int).unwrap_or(0)
}

impl TokenRequests {
    fn issue(&self, mut request: Value, origin: &VirtualRequest<'_>) -> Result<Value, ApiError> {
        let (namespace, name) = (origin.namespace, origin.subject.name);
        let account = (origin.lookup)("serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| ApiError::not_found(origin.subject))?;
        let (issuer, seconds) = (&self.issuer, seconds_of(&request));
        let mut about = self.about(&request, &account, origin)?;
        let seconds = match issuer.longest {
            Some(longest) if seconds > longest => {
                let told =
                    format!("requested expiration of {seconds} seconds shortened to {longest} seconds");
                origin.user.notes.warn(told);
                request.set(&["spec", "expirationSeconds"], longest);
                longest
            }
            _ => seconds,
        };
        let now = env::unix_seconds(origin.world);
        let mut good_for = seconds;
        if issuer.extend
            && seconds == POD_DEFAULT
            && about.at(&["pod"]).is_some()
            && self.is_meant_here(&request)
        {
            about.set(&["warnafter"], now.saturating_add(seconds));
            good_for = EXTENDED;
        }
        let mut claims = Value::map();
        claims.set(&["aud"], request.at(&["spec", "audiences"]).cloned().unwrap_or_default());
        for (field, at) in [("exp", now.saturating_add(good_for)), ("iat", now), ("nbf", now)] {
            claims.set(&[field], at);
        }
        claims.set(&["iss"], issuer.name.as_str());
        claims.make_map().insert(issuer.claims.clone(), about);
        claims.set(&["sub"], format!("{}{namespace}:{name}", auth::SERVICE_ACCOUNT_PREFIX));
        let token = issuer.signer.sign(&claims);
        let token = token.ok_or_else(|| ApiError::internal_error("failed to generate token"))?;
        request.set(&["status"], Value::map());
        request.set(&["status", "token"], token);
        request.set(&["status", "expirationTimestamp"], time::format_time(now.saturating_add(seconds)));
        Ok(request)
    }

    /// Whether a token is for this server alone, which knows what it extended.
    fn is_meant_here(&self, request: &Value) -> bool {
        let asked = list_of(request, &["spec", "audiences"]);
        asked.iter().all(|audience| self.issuer.audiences.contains(audience))
    }

    /// What the token says about the account, and about the object it is bound to.
    fn about(
        &self,
        request: &Value,
        account: &Value,
        origin: &VirtualRequest<'_>,
    ) -> Result<Value, ApiError> {
        let named = |object: &Value| {
            let mut out = Value::map();
            for field in ["name", "uid"] {
                out.set(&[field], object.text(&["metadata", field]));
            }
            out
        };
        let mut about = Value::map();
        about.set(&["namespace"], origin.namespace);
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
        let found = (origin.lookup)(plural, origin.namespace, name);
        let found = found.ok_or_else(|| ApiError::not_found(Subject { group: "", kind: plural, name }))?;
        if claim == "pod" && found.text(&["spec", "serviceAccountName"]) != origin.subject.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                origin.subject.name
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
