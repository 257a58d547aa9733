//! AdmissionReview requests and responses.
//!
//! ```text
//! {"kind":"AdmissionReview","apiVersion":"…/v1","request":{"uid":"7f…","kind":{…},"resource":{…},…}}
//! {"kind":"AdmissionReview","apiVersion":"…/v1","response":{"uid":"7f…","allowed":true,…}}
//! ```
//!
//! Invariants: a response has the kind and version of the request and, from v1 on, its uid; only mutating
//! webhooks return patches.

use crate::admission::matching::{Match, namespace_of};
use crate::reviews::user_info::{user_of, user_value};
use crate::string_lists::list_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outbound::HttpResponse;
use rest::{AdmissionAttributes, ApiError, Cause, Details, Operation};
use schema::problem::quoted;
use schema::table::Type;
use schema::{Map, Value, decode, encode};

/// Supported versions, best first.
pub(super) const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const KIND: &str = "AdmissionReview";

/// An AdmissionReview request.
pub(super) struct ReviewRequest<'a> {
    pub write: &'a AdmissionAttributes<'a>,
    pub matched: &'a Match,
    pub version: &'static str,
    pub uid: &'a str,
    /// The object and its old state, as JSON; `null` where there is none.
    pub object: &'a [u8],
    pub old: &'a [u8],
    pub dry_run: bool,
}

impl ReviewRequest<'_> {
    fn api_version(&self) -> String {
        format!("{}/{}", self.write.api.names.group("admission"), self.version)
    }

    pub fn json(&self) -> Vec<u8> {
        let write = self.write;
        let resource = self.matched.resource(write);
        let mut out = Vec::with_capacity(self.object.len() + self.old.len() + 2048);
        let mut text = |text: &str| out.extend_from_slice(text.as_bytes());
        text("{\"kind\":\"AdmissionReview\",\"apiVersion\":");
        text(&string(&self.api_version()));
        text(",\"request\":{\"uid\":");
        text(&string(self.uid));
        let request_form = write.form();
        for (name, form) in [("kind", self.matched.form(write)), ("requestKind", request_form)] {
            let (group, version) = form.api_version.rsplit_once('/').unwrap_or(("", form.api_version));
            text(&group_version_object(name, group, version, ("kind", form.kind)));
            let (name, resource, sub) = match name {
                "kind" => ("resource", resource, "subResource"),
                _ => ("requestResource", write.resource, "requestSubResource"),
            };
            text(&group_version_object(
                name,
                &resource.group,
                &resource.kind.version,
                ("resource", &resource.kind.plural),
            ));
            if !write.subresource.is_empty() {
                text(&format!(",\"{sub}\":{}", string(write.subresource)));
            }
        }
        // a delete of a collection has no name
        let name = if write.operation == Operation::Delete { write.request_name } else { write.name };
        for (name, value) in [("name", name), ("namespace", namespace_of(write))] {
            if !value.is_empty() {
                text(&format!(",\"{name}\":{}", string(value)));
            }
        }
        text(&format!(",\"operation\":\"{}\",\"userInfo\":", write.operation.name()));
        out.extend(encode::untyped(&user_value(&user_of(write.user))));
        for (name, json) in [("object", self.object), ("oldObject", self.old)] {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            out.extend_from_slice(json);
        }
        out.extend_from_slice(format!(",\"dryRun\":{},\"options\":", self.dry_run).as_bytes());
        match write.options_object(&write.api.names) {
            Some(options) => out.extend(encode::untyped(&options)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b"}}");
        out
    }
}

fn string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    encode::string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn group_version_object(field: &str, group: &str, version: &str, (name, value): (&str, &str)) -> String {
    let (group, version, value) = (string(group), string(version), string(value));
    format!(",\"{field}\":{{\"group\":{group},\"version\":{version},\"{name}\":{value}}}")
}

/// An AdmissionReview response.
#[derive(Default)]
pub(super) struct ReviewResponse {
    /// Denied, with the webhook's status.
    pub denied: Option<Value>,
    /// The patch.
    pub patch: Option<Vec<u8>>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// Why a response is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidResponse {
    /// It cannot be decoded.
    Decode(String),
    /// It violates the protocol.
    Protocol(String),
    /// It requests something unsupported.
    Unsupported(String),
}

/// Why an HTTP response is an error, with the code for metrics.
pub(super) fn failure(answer: &HttpResponse) -> Option<(u16, String)> {
    if answer.status.is_success() {
        return None;
    }
    let code = answer.status.as_u16();
    let status = decode::json_untyped(&answer.body).map(|it| it.value).unwrap_or_default();
    if status.text(&["kind"]) == "Status" && !status.text(&["message"]).is_empty() {
        return Some((code, status.text(&["message"]).to_owned()));
    }
    let media = answer.headers.get(http::header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let text = match media {
        Some(media) if !media.starts_with("text/") => "unknown".to_owned(),
        _ => String::from_utf8_lossy(&answer.body[..answer.body.len().min(2048)]).trim().to_owned(),
    };
    let message = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 406 | 415 => text,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing \
                the request"
                .to_owned()
        }
        500.. => {
            format!("an error on the server ({}) has prevented the request from succeeding", quoted(&text))
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    };
    Some((code, message))
}

/// Parses the response to a request.
pub(super) fn read(
    body: &[u8],
    request: &ReviewRequest<'_>,
    changes: bool,
) -> Result<ReviewResponse, InvalidResponse> {
    let ty = kinds::tables::type_named(&format!("api.admission.{}", request.version), KIND);
    let ty = ty.ok_or_else(|| InvalidResponse::Decode("there is no such version".to_owned()))?;
    read_as(body, ty, &ExpectedReview { api_version: &request.api_version(), uid: request.uid, changes })
}

struct ExpectedReview<'a> {
    api_version: &'a str,
    uid: &'a str,
    changes: bool,
}

fn read_as(body: &[u8], ty: &Type, expected: &ExpectedReview<'_>) -> Result<ReviewResponse, InvalidResponse> {
    let unreadable = |why: decode::DecodeError| match why {
        decode::DecodeError::Type(why) => InvalidResponse::Decode(why),
        other => InvalidResponse::Decode(format!("couldn't get version/kind; json parse error: {other}")),
    };
    let untyped = decode::json_untyped(body).map_err(unreadable)?.value;
    if let Some(why) = other_kind(&untyped, expected.api_version) {
        return Err(InvalidResponse::Decode(why));
    }
    let mut review = decode::json(body, ty).map_err(unreadable)?.value;
    let wrong = |why: String| Err(InvalidResponse::Protocol(why));
    let first_version = expected.api_version.ends_with("/v1");
    let Some(response) = review.at(&["response"]).filter(|it| !it.is_null()) else {
        return wrong("webhook response was absent".to_owned());
    };
    let uid = response.text(&["uid"]);
    if first_version && uid != expected.uid {
        return wrong(format!("expected response.uid={}, got {}", quoted(expected.uid), quoted(uid)));
    }
    let type_meta = (untyped.text(&["apiVersion"]), untyped.text(&["kind"]));
    if type_meta != (expected.api_version, KIND) {
        let (expected_version, version) =
            (expected.api_version, if type_meta.0.is_empty() { "/" } else { type_meta.0 });
        let kind = type_meta.1;
        return wrong(format!(
            "expected webhook response of {expected_version}, Kind={KIND}, got {version}, Kind={kind}"
        ));
    }
    let patch = STANDARD.decode(response.text(&["patch"])).unwrap_or_default();
    let patch_type = response.at(&["patchType"]).and_then(Value::as_str);
    if first_version {
        match (expected.changes, patch.is_empty(), patch_type) {
            (true, false, None) => {
                return wrong("webhook returned response.patch but not response.patchType".into());
            }
            (true, true, Some(_)) => {
                return wrong("webhook returned response.patchType but not response.patch".into());
            }
            (true, _, Some("")) => {
                return wrong("webhook returned invalid response.patchType of \"\"".into());
            }
            (false, false, _) => return wrong("validating webhook may not return response.patch".into()),
            (false, _, Some(_)) => {
                return wrong("validating webhook may not return response.patchType".into());
            }
            _ => {}
        }
    }
    let texts = |map: &Map| -> Vec<(String, String)> {
        map.iter()
            .map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    let mut verdict = ReviewResponse {
        warnings: list_of(response, &["warnings"]),
        annotations: response
            .at(&["auditAnnotations"])
            .and_then(Value::as_map)
            .map(texts)
            .unwrap_or_default(),
        ..ReviewResponse::default()
    };
    let allowed = response.at(&["allowed"]).and_then(Value::as_bool).unwrap_or(false);
    if !allowed {
        let status = review.at_mut(&["response", "status"]).map(std::mem::take);
        verdict.denied = Some(status.unwrap_or_default());
        return Ok(verdict);
    }
    if expected.changes && !patch.is_empty() {
        if first_version && patch_type != Some("JSONPatch") {
            let why = format!("unsupported patch type {}", quoted(patch_type.unwrap_or_default()));
            return Err(InvalidResponse::Unsupported(why));
        }
        verdict.patch = Some(patch);
    }
    Ok(verdict)
}

/// The error for a response of another kind.
fn other_kind(review: &Value, api_version: &str) -> Option<String> {
    let (version, kind) = (review.text(&["apiVersion"]), review.text(&["kind"]));
    if version.is_empty() || kind.is_empty() || (version, kind) == (api_version, KIND) {
        return None;
    }
    let short = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
    let is_known = VERSIONS.iter().any(|it| *it == short(version)) && kind == KIND;
    if is_known && version.rsplit_once('/').map(|it| it.0) == api_version.rsplit_once('/').map(|it| it.0) {
        let (from, to) = (short(version), short(api_version));
        return Some(format!("converting ({from}.{KIND}) to ({to}.{KIND}): unknown conversion"));
    }
    // upstream's error names its source file
    const SCHEME: &str = "pkg/runtime/scheme.go:100";
    Some(format!(
        "no kind {} is registered for version {} in scheme {SCHEME:?}",
        quoted(kind),
        quoted(version)
    ))
}

/// The error of a denial, given the webhook's status.
pub(super) fn denial(name: &str, status: Value) -> ApiError {
    let by = format!("admission webhook {} denied the request", quoted(name));
    let message = [status.text(&["message"]), status.text(&["reason"])].into_iter().find(|it| !it.is_empty());
    let code = status.at(&["code"]).and_then(Value::as_int).and_then(|it| u16::try_from(it).ok());
    let details = status.at(&["details"]).filter(|it| !it.is_null()).map(|details| {
        let text = |field: &str| details.text(&[field]).to_owned();
        let seconds = details.at(&["retryAfterSeconds"]).and_then(Value::as_int).unwrap_or(0);
        let cause = |cause: &Value| Cause {
            reason: cause.text(&["reason"]).to_owned(),
            message: cause.text(&["message"]).to_owned(),
            field: cause.text(&["field"]).to_owned(),
        };
        Box::new(Details {
            name: text("name"),
            group: text("group"),
            kind: text("kind"),
            uid: text("uid"),
            causes: details.items(&["causes"]).iter().map(cause).collect(),
            retry_after_seconds: u32::try_from(seconds).unwrap_or(0),
        })
    });
    ApiError {
        // a denial must be an error, and status codes have three digits
        code: code.filter(|it| (400..1000).contains(it)).unwrap_or(400),
        reason: status.text(&["reason"]).to_owned().into(),
        message: match message {
            Some(message) => format!("{by}: {message}"),
            None => format!("{by} without explanation"),
        },
        details,
        continue_token: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(version: &str, body: &str, changes: bool) -> Result<ReviewResponse, String> {
        let ty = kinds::tables::type_named(&format!("api.admission.{version}"), KIND).expect("a table");
        let api_version = format!("admission.k8s.io/{version}");
        let expected = ExpectedReview { api_version: &api_version, uid: "u", changes };
        read_as(body.as_bytes(), ty, &expected).map_err(|why| match why {
            InvalidResponse::Decode(why)
            | InvalidResponse::Protocol(why)
            | InvalidResponse::Unsupported(why) => why,
        })
    }

    fn answer(version: &str, response: &str) -> String {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/{version}","kind":"AdmissionReview","response":{response}}}"#
        )
    }

    #[test]
    fn responses_are_validated() {
        let patch = STANDARD.encode("[]");
        let with = |more: &str| answer("v1", &format!(r#"{{"uid":"u","allowed":true{more}}}"#));
        for (body, changes, why) in [
            ("<html>".to_owned(), true, "couldn't get version/kind; json parse error"),
            (answer("v1", "null"), true, "webhook response was absent"),
            (answer("v1", r#"{"uid":"v"}"#), true, r#"expected response.uid="u", got "v""#),
            (answer("v1", r#"{"uid":"u","allowed":"yes"}"#), true, "cannot unmarshal string"),
            (
                answer("v1beta1", r#"{"uid":"u"}"#),
                true,
                "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
            ),
            (r#"{"response":{"uid":"u"}}"#.to_owned(), true, "got /, Kind="),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#.to_owned(), true, "no kind \"Pod\" is registered"),
            (with(&format!(r#","patch":"{patch}""#)), true, "response.patch but not response.patchType"),
            (with(r#","patchType":"JSONPatch""#), true, "response.patchType but not response.patch"),
            (
                with(&format!(r#","patch":"{patch}","patchType":"""#)),
                true,
                "invalid response.patchType of \"\"",
            ),
            (with(&format!(r#","patch":"{patch}","patchType":"X""#)), true, "unsupported patch type \"X\""),
            (
                with(&format!(r#","patch":"{patch}""#)),
                false,
                "validating webhook may not return response.patch",
            ),
            (with(r#","patchType":"JSONPatch""#), false, "may not return response.patchType"),
        ] {
            let found = message("v1", &body, changes).err().unwrap_or_default();
            assert!(found.contains(why), "{body}: {found}");
        }
        assert!(
            message("v1", &with(&format!(r#","patch":"{patch}","patchType":"JSONPatch""#)), true).is_ok()
        );
        // v1beta1 requires less
        let older = answer("v1beta1", &format!(r#"{{"allowed":true,"patch":"{patch}"}}"#));
        assert!(message("v1beta1", &older, true).unwrap().patch.is_some());
        assert!(message("v1beta1", &older, false).unwrap().patch.is_none());
    }

    #[test]
    fn denials_name_webhook_and_reason() {
        let refused = |status: &str| {
            let status = decode::json_untyped(status.as_bytes()).unwrap().value;
            let error = denial("a.b.c", status);
            (error.code, error.reason.into_owned(), error.message)
        };
        let by = "admission webhook \"a.b.c\" denied the request";
        for (status, code, reason, message) in [
            ("null", 400, "", " without explanation"),
            (r#"{"message":"no"}"#, 400, "", ": no"),
            (r#"{"reason":"Odd"}"#, 400, "Odd", ": Odd"),
            (r#"{"code":403,"message":"no","reason":"Forbidden"}"#, 403, "Forbidden", ": no"),
            (r#"{"code":200,"status":"Success"}"#, 400, "", " without explanation"),
        ] {
            assert_eq!(refused(status), (code, reason.to_owned(), format!("{by}{message}")), "{status}");
        }
    }
}
