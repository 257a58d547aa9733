//! The `token` subresource of service accounts, which issues tokens.

use super::Issuer;
use crate::string_lists::list_of;
use env::MaybeReady;
use rest::hooks::VirtualSubresource;
use rest::metadata::check_name_parameter;
use rest::{ApiError, Subject, VirtualRequest, VirtualResource};
use schema::problem::Problem;
use schema::table::{Group, Kind, Ref};
use schema::{Path, Value, time};
use std::sync::Arc;

/// Minimum lifetime of a requested token, in seconds.
const SHORTEST: i64 = 600;
/// Maximum lifetime.
const LONGEST: i64 = 1 << 32;

/// The default lifetime that pods request, in seconds; an odd number that identifies them.
const POD_DEFAULT: i64 = 3607;
/// Extended lifetime of those tokens, for clients that do not reload them in time.
const EXTENDED: i64 = 365 * 24 * 3600;

/// The virtual subresource.
pub struct TokenRequests {
    pub issuer: Arc<Issuer>,
}

/// The subresource of a kind, if it is ServiceAccount.
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
        let name_in_body = request.text(&["metadata", "name"]);
        if !name_in_body.is_empty() && name_in_body != name {
            let path = Path::ROOT.field("metadata");
            let why = "must match the service account name if specified";
            return invalid(name, Problem::invalid(&path.field("name"), &name_in_body.into(), why));
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
            request.set(&["spec", "audiences"], crate::string_lists::texts(&self.issuer.audiences));
        }
        let now = env::unix_seconds(origin.world);
        request.unset(&["metadata", "uid"]);
        request.set(&["metadata", "name"], name);
        request.set(&["metadata", "namespace"], namespace);
        request.set(&["metadata", "creationTimestamp"], time::format_time(now));
        Ok(())
    }
}

/// The requested lifetime.
fn seconds_of(request: &Value) -> i64 {
    request.at(&["spec", "expirationSeconds"]).and_then(Value::as_int).unwrap_or(0)
}

impl TokenRequests {
    fn issue(&self, mut request: Value, origin: &VirtualRequest<'_>) -> Result<Value, ApiError> {
        let (namespace, name) = (origin.namespace, origin.subject.name);
        let account = (origin.lookup)("serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| ApiError::not_found(origin.subject))?;
        let (issuer, seconds) = (&self.issuer, seconds_of(&request));
        let mut private_claims = self.private_claims(&request, &account, origin)?;
        let seconds = match issuer.max_seconds {
            Some(max_seconds) if seconds > max_seconds => {
                let message =
                    format!("requested expiration of {seconds} seconds shortened to {max_seconds} seconds");
                origin.user.record.warn(message);
                request.set(&["spec", "expirationSeconds"], max_seconds);
                max_seconds
            }
            _ => seconds,
        };
        let now = env::unix_seconds(origin.world);
        let mut good_for = seconds;
        if issuer.extend
            && seconds == POD_DEFAULT
            && private_claims.at(&["pod"]).is_some()
            && self.is_for_this_server(&request)
        {
            private_claims.set(&["warnafter"], now.saturating_add(seconds));
            good_for = EXTENDED;
        }
        let mut claims = Value::map();
        claims.set(&["aud"], request.at(&["spec", "audiences"]).cloned().unwrap_or_default());
        for (field, at) in [("exp", now.saturating_add(good_for)), ("iat", now), ("nbf", now)] {
            claims.set(&[field], at);
        }
        claims.set(&["iss"], issuer.name.as_str());
        claims.make_map().insert(issuer.claims.clone(), private_claims);
        claims.set(&["sub"], format!("{}{namespace}:{name}", auth::SERVICE_ACCOUNT_PREFIX));
        let token = issuer.signer.sign(&claims);
        let token = token.ok_or_else(|| ApiError::internal_error("failed to generate token"))?;
        request.set(&["status"], Value::map());
        request.set(&["status", "token"], token);
        request.set(&["status", "expirationTimestamp"], time::format_time(now.saturating_add(seconds)));
        Ok(request)
    }

    /// Whether a token is only for this server, which knows that it is extended.
    fn is_for_this_server(&self, request: &Value) -> bool {
        let requested = list_of(request, &["spec", "audiences"]);
        requested.iter().all(|audience| self.issuer.audiences.contains(audience))
    }

    /// The private claims: the account and the bound object.
    fn private_claims(
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
        let mut private_claims = Value::map();
        private_claims.set(&["namespace"], origin.namespace);
        private_claims.set(&["serviceaccount"], named(account));
        let Some(reference) = request.at(&["spec", "boundObjectRef"]).filter(|it| !it.is_null()) else {
            return Ok(private_claims);
        };
        let (kind, name) = (reference.text(&["kind"]), reference.text(&["name"]));
        // an apiVersion with more than two segments has neither
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
        check_name_parameter(name)?;
        let object = (origin.lookup)(plural, origin.namespace, name);
        let object = object.ok_or_else(|| ApiError::not_found(Subject { group: "", kind: plural, name }))?;
        if claim == "pod" && object.text(&["spec", "serviceAccountName"]) != origin.subject.name {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                origin.subject.name
            )));
        }
        let uid = reference.text(&["uid"]);
        if !uid.is_empty() && uid != object.text(&["metadata", "uid"]) {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(Subject { group, kind, name }, &why));
        }
        private_claims.set(&[claim], named(&object));
        Ok(private_claims)
    }
}
