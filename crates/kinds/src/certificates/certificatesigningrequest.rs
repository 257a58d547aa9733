//! CertificateSigningRequests: the server sets the requesting user, and a decision is final.
//!
//! The state is in the conditions: none (pending), `Approved` or `Denied` (never both, never removed),
//! `Failed`, and issued once there is a certificate. Approving goes through `approval`, issuing through
//! `status`; a plain update changes metadata only.

use crate::check::{self, Problems};
use crate::{asn1, metadata, pem, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, SubresourceHooks,
    Subresources, UpdateHooks, WriteHooks, replace,
};
use schema::problem::{Problem, quoted};
use schema::table::Format;
use schema::{Map, Path, Value, time};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEAST_SECONDS: i64 = 600;

const REPEATED: [MetadataRules; 3] = [MetadataRules::State, MetadataRules::OfKind, MetadataRules::Change];

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(prepare_create),
            validate: Some(|object, context| validate(object, None, context)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate_state: Some(|new, old, context| change(new, old, context, Endpoint::Main)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
            // its own rules take any name; those of all objects want one that fits into a path
            name_rule: Some(|_, _| Vec::new()),
            unowned: &["spec", "status"],
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[
    SubresourceHooks {
        name: "status",
        apply: apply_status,
        validate: Some(|new, old, context| change(new, old, context, Endpoint::Status)),
        unowned: &["status.conditions"],
        repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
        ..SubresourceHooks::STATUS
    },
    SubresourceHooks {
        name: "approval",
        apply: apply_approval,
        validate: Some(|new, old, context| change(new, old, context, Endpoint::Approval)),
        unowned: &["spec", "status.certificate"],
        repeated_metadata_errors: RepeatedMetadataErrors(&REPEATED),
        without_table: true,
        ..SubresourceHooks::STATUS
    },
];

/// Through which path a change comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Main,
    Status,
    Approval,
}

/// The identity in the request is the caller's, whatever the caller writes.
fn prepare_create(object: &mut Value, context: &Context<'_>) {
    let user = context.user;
    let spec = object.make_map().entry("spec").make_map();
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    let texts = |items: &[String]| Value::List(items.iter().map(|it| it.as_str().into()).collect());
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            spec.insert(field, text.as_str());
        }
    }
    if !user.groups.is_empty() {
        spec.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map = user.extra.iter().map(|(key, values)| (key.clone().into(), texts(values))).collect();
        spec.insert("extra", extra);
    }
    object.set(&["status"], Value::map());
}

fn prepare_update(next: &mut Value, old: &Value, _: &Context<'_>) {
    replace(next, old, "spec");
    replace(next, old, "status");
}

fn apply_status(next: &mut Value, submitted: &Value, context: &Context<'_>) {
    let old = next.clone();
    replace(next, submitted, "metadata");
    replace(next, submitted, "status");
    // decisions are immutable; validation checks that none is added or removed
    for kind in ["Approved", "Denied"] {
        keep_conditions(next, &old, kind);
    }
    stamp_conditions(next, &old, context);
}

/// Conditions of one type as they were before, if there are as many.
fn keep_conditions(next: &mut Value, old: &Value, kind: &str) {
    let is = |it: &&Value| it.text(&["type"]) == kind;
    let before: Vec<_> = old.items(&["status", "conditions"]).iter().filter(is).collect();
    if before.len() != next.items(&["status", "conditions"]).iter().filter(is).count() {
        return;
    }
    let mut before = before.into_iter();
    read::each_mut(next, &["status", "conditions"], |condition| {
        if condition.text(&["type"]) == kind
            && let Some(was) = before.next()
        {
            *condition = was.clone();
        }
    });
}

fn apply_approval(next: &mut Value, submitted: &Value, context: &Context<'_>) {
    let old = next.clone();
    replace(next, submitted, "metadata");
    replace(next, submitted, "status");
    match old.at(&["status", "certificate"]) {
        Some(certificate) => next.set(&["status", "certificate"], certificate.clone()),
        None => {
            next.unset(&["status", "certificate"]);
        }
    }
    stamp_conditions(next, &old, context);
}

/// Sets the update and transition times of conditions.
fn stamp_conditions(next: &mut Value, old: &Value, context: &Context<'_>) {
    let now = context.timestamp();
    let state = |it: &Value| (it.text(&["type"]).to_owned(), it.text(&["status"]).to_owned());
    let before: HashMap<_, _> = old
        .items(&["status", "conditions"])
        .iter()
        .map(|it| (state(it), it.text(&["lastTransitionTime"])))
        .filter(|(_, since)| !since.is_empty())
        .collect();
    read::each_mut(next, &["status", "conditions"], |condition| {
        if condition.text(&["lastUpdateTime"]).is_empty() {
            condition.set(&["lastUpdateTime"], now.as_str());
        }
        if condition.text(&["lastTransitionTime"]).is_empty() {
            let since = before.get(&state(condition)).copied().unwrap_or(&now);
            condition.set(&["lastTransitionTime"], since);
        }
    });
}

/// The requested organizations, which authentication reads as groups.
pub fn organizations(object: &Value) -> Result<Vec<String>, String> {
    let der = request_der(object)?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|why| why.to_string())?;
    let subject = request.certification_request_info.subject;
    // in whatever alphabet they are written
    Ok(subject.iter_organization().map(|it| text_of(it.attr_value())).collect())
}

/// A string of a certificate's subject.
fn text_of(value: &Any<'_>) -> String {
    const OF_TWO_BYTES: Tag = Tag::BmpString;
    if value.tag() == OF_TWO_BYTES {
        let units: Vec<u16> =
            value.data.chunks(2).map(|it| u16::from_be_bytes([it[0], *it.get(1).unwrap_or(&0)])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value.data).into_owned()
}

/// The bytes of the request inside its PEM block.
fn request_der(object: &Value) -> Result<Vec<u8>, &'static str> {
    let bytes = check::bytes_of(object.text(&["spec", "request"]));
    let text = String::from_utf8_lossy(&bytes);
    match pem::blocks(&text).into_iter().next() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => Ok(block.bytes),
        _ => Err("PEM block type must be CERTIFICATE REQUEST"),
    }
}

fn validate(object: &Value, old: Option<&Value>, context: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let spec = Path::ROOT.field("spec");
    let parsed = request_der(object).map_err(str::to_owned).and_then(|der| {
        match X509CertificationRequest::from_der(&der) {
            Ok(([], _)) => Ok(()),
            Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
            Err(why) => {
                Err(asn1::broken(&der).unwrap_or_else(|| format!("malformed certificate request: {why}")))
            }
        }
    });
    if let Err(why) = parsed {
        let formatted = check::format_bytes(&check::bytes_of(object.text(&["spec", "request"])));
        out.push(check::invalid_formatted(&spec.field("request"), &formatted, &why));
    }
    let path = spec.field("usages");
    let usages = object.items(&["spec", "usages"]);
    if usages.is_empty() {
        out.push(Problem::required(&path, ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&read::text(usage)) {
            out.push(check::unsupported(&path.index(at), read::text(usage), USAGES));
        }
    }
    let mut seen = HashSet::new();
    for (at, usage) in usages.iter().enumerate() {
        if !seen.insert(read::text(usage)) {
            out.push(Problem::duplicate(&path.index(at), usage));
        }
    }
    let signer = object.text(&["spec", "signerName"]);
    if signer == context.names.well_known("legacy-unknown") {
        const WHY: &str = "the legacy signerName is not allowed via this API version";
        out.push(Problem::invalid_text(&spec.field("signerName"), signer, WHY));
    } else {
        signer_name(signer, &spec.field("signerName"), &mut out);
    }
    if let Some(seconds) =
        read::opt_int(object, &["spec", "expirationSeconds"]).filter(|it| *it < LEAST_SECONDS)
    {
        const WHY: &str = "may not specify a duration less than 600 seconds (10 minutes)";
        out.push(check::invalid_int(&spec.field("expirationSeconds"), seconds, WHY));
    }
    conditions(object, &mut out);
    // stored values are not validated again
    let certificate = object.text(&["status", "certificate"]);
    if old.is_none_or(|old| old.text(&["status", "certificate"]) != certificate)
        && let Err(why) = check_certificate(certificate)
    {
        let path = Path::ROOT.field("status");
        out.push(Problem::invalid_text(&path.field("certificate"), "<certificate data>", &why));
    }
    out
}

/// A domain and a path below it: `example.com/signer`.
fn signer_name(name: &str, path: &Path<'_>, out: &mut Problems) {
    if name.is_empty() {
        out.push(Problem::required(path, ""));
        return;
    }
    let (domain, rest) = match name.split_once('/') {
        Some((domain, rest)) if !rest.contains('/') => (domain, rest),
        _ => {
            const WHY: &str =
                "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            out.push(Problem::invalid_text(path, name, WHY));
            return;
        }
    };
    const MOST_OF_SUBDOMAIN: usize = 253;
    const MOST_OF_LABEL: usize = 63;
    if domain.len() > MOST_OF_SUBDOMAIN {
        out.push(Problem::too_long(path, MOST_OF_SUBDOMAIN));
    }
    dotted(domain, Format::Dns1123Label, path, out);
    if !domain.contains('.') {
        const WHY: &str = "should be a domain with at least two segments separated by dots";
        out.push(Problem::invalid_text(path, domain, WHY));
    }
    dotted(rest, Format::Dns1123Subdomain, path, out);
    let most = MOST_OF_SUBDOMAIN + 1 + MOST_OF_SUBDOMAIN + 1 + MOST_OF_LABEL;
    if name.len() > most {
        out.push(Problem::too_long(path, most));
    }
}

/// The parts between dots; one that is wrong is enough to tell.
fn dotted(text: &str, form: Format, path: &Path<'_>, out: &mut Problems) {
    let wrong =
        text.split('.').map(|label| (label, check::why(form, label))).find(|(_, why)| !why.is_empty());
    if let Some((label, why)) = wrong {
        let problems = why.iter().map(|why| format!("validating label {}: {why}", quoted(label)));
        out.extend(problems.map(|why| Problem::invalid_text(path, text, &why)));
    }
}

fn conditions(object: &Value, out: &mut Problems) {
    let path = Path::ROOT.field("status");
    let path = path.field("conditions");
    let mut seen = HashSet::new();
    for (at, condition) in object.items(&["status", "conditions"]).iter().enumerate() {
        let path = path.index(at);
        let (kind, status) = (condition.text(&["type"]), condition.text(&["status"]));
        check::required(kind, &path.field("type"), out);
        let decided = matches!(kind, "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if decided { &["True"] } else { &["False", "True", "Unknown"] };
        check::one_of(status, allowed, &path.field("status"), out);
        let contrary = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !contrary.is_empty() && seen.contains(contrary) {
            const WHY: &str = "Approved and Denied conditions are mutually exclusive";
            out.push(Problem::invalid_text(&path.field("type"), kind, WHY));
        }
        if !seen.insert(kind) {
            out.push(check::duplicate_text(&path.field("type"), kind));
        }
    }
}

/// Checks for certificates only, at least one, without headers.
fn check_certificate(base64: &str) -> Result<(), String> {
    if base64.is_empty() {
        return Ok(());
    }
    let bytes = check::bytes_of(base64);
    let text = String::from_utf8_lossy(&bytes);
    let blocks = pem::blocks(&text);
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", quoted(block.label)));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        let mut rest = &block.bytes[..];
        if rest.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !rest.is_empty() {
            rest = X509Certificate::from_der(rest).map_err(|why| asn1::bad_certificate(rest, &why))?.0;
        }
    }
    Ok(())
}

fn change(new: &Value, old: &Value, context: &Context<'_>, endpoint: Endpoint) -> Problems {
    let mut out = validate(new, Some(old), context);
    let status = Path::ROOT.field("status");
    let count = |object: &Value, kind: &str| {
        object.items(&["status", "conditions"]).iter().filter(|it| it.text(&["type"]) == kind).count()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if count(new, kind) < count(old, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            out.push(Problem::forbidden(&status.field("conditions"), &why));
        }
    }
    if endpoint != Endpoint::Approval {
        for kind in ["Approved", "Denied"] {
            if count(new, kind) > count(old, kind) {
                let why = format!("updates may not add a condition of type {kind:?}");
                out.push(Problem::forbidden(&status.field("conditions"), &why));
            }
        }
    }
    let (is, was) = (new.text(&["status", "certificate"]), old.text(&["status", "certificate"]));
    if is != was {
        let why = match (was.is_empty(), endpoint) {
            (false, _) => "updates may not modify existing certificate content",
            (true, Endpoint::Status) => return out,
            (true, _) => "updates may not set certificate content",
        };
        out.push(Problem::forbidden(&status.field("certificate"), why));
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let duration = match read::opt_int(object, &["spec", "expirationSeconds"]) {
        Some(seconds) => time::human_duration(seconds),
        None => "<none>".to_owned(),
    };
    vec![
        metadata::name(object),
        metadata::age(object, now),
        metadata::or(object.text(&["spec", "signerName"]), "<none>"),
        object.text(&["spec", "username"]).into(),
        duration.into(),
        state(object).into(),
    ]
}

fn state(object: &Value) -> String {
    let has =
        |kind: &str| object.items(&["status", "conditions"]).iter().any(|it| it.text(&["type"]) == kind);
    let decision = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if object.text(&["status", "certificate"]).is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

/// Defaults of `v1beta1`: usages, a signer and the status of conditions.
pub(crate) fn default_v1beta1(object: &mut Value, names: &Names) {
    if object.text(&["spec", "signerName"]).is_empty() {
        object.set(&["spec", "signerName"], names.legacy_signer());
    }
    if object.items(&["spec", "usages"]).is_empty() {
        let usages = ["digital signature", "key encipherment"].map(Value::from);
        object.set(&["spec", "usages"], usages.to_vec());
    }
    read::each_mut(object, &["status", "conditions"], |condition| {
        if condition.text(&["status"]).is_empty() {
            condition.set(&["status"], "True");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn signers_have_a_domain_and_a_path() {
        let check = |name: &str, expected: usize| {
            let mut out = Problems::new();
            signer_name(name, &Path::ROOT.field("s"), &mut out);
            assert_eq!(out.len(), expected, "{name}: {out:?}");
        };
        check("example.com/signer", 0);
        check("", 1);
        check("nodomain", 1);
        check("a.b/c/d", 1);
        check("single/signer", 1);
        check("In valid_/!", 3);
    }

    #[test]
    fn the_user_is_the_requester() {
        let mut object =
            json(r#"{"spec":{"username":"x","extra":{"a":["b"]}},"status":{"certificate":"x"}}"#);
        prepare_create(&mut object, &context());
        let expected = json(
            r#"{"spec":{"username":"admin","uid":"1","groups":["system:masters","system:authenticated"]},"status":{}}"#,
        );
        assert_eq!(object, expected);
    }

    #[test]
    fn decisions_are_made_once_and_in_their_place() {
        let with = |kinds: &[&str]| {
            let condition = |kind: &&str| json(&format!(r#"{{"type":{kind:?},"status":"True"}}"#));
            let mut object = json("{}");
            object.set(&["status", "conditions"], kinds.iter().map(condition).collect::<Vec<_>>());
            object
        };
        let check = |old: &[&str], new: &[&str], endpoint: Endpoint, expected: &[&str]| {
            let found = change(&with(new), &with(old), &context(), endpoint);
            let found: Vec<_> = problems(&found).into_iter().filter(|it| it.starts_with("status")).collect();
            assert_eq!(found, expected);
        };
        check(&[], &["Approved"], Endpoint::Approval, &[]);
        check(
            &[],
            &["Approved"],
            Endpoint::Status,
            &[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#],
        );
        check(
            &["Approved"],
            &["Denied"],
            Endpoint::Approval,
            &[r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#],
        );
        check(
            &["Approved"],
            &["Approved", "Denied"],
            Endpoint::Approval,
            &[
                r#"status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
            ],
        );
    }

    #[test]
    fn certificates_come_once_through_status() {
        assert_eq!(check_certificate(""), Ok(()));
        assert_eq!(
            check_certificate("anVuaw=="),
            Err("must contain at least one CERTIFICATE PEM block".to_owned())
        );
        let request = check::base64_of(b"-----BEGIN X-----\nYQ==\n-----END X-----\n");
        assert_eq!(
            check_certificate(&request),
            Err("only CERTIFICATE PEM blocks are allowed, found \"X\"".to_owned())
        );
        let old = json(r#"{"status":{"certificate":"YQ=="}}"#);
        let found = problems(&change(&json("{}"), &old, &context(), Endpoint::Status));
        assert!(found.contains(
            &"status.certificate: Forbidden: updates may not modify existing certificate content".to_owned()
        ));
    }

    #[test]
    fn new_conditions_are_stamped_and_old_ones_keep_their_time() {
        let mut next = json(
            r#"{"status":{"conditions":[{"type":"Approved","status":"True","lastTransitionTime":"2001-01-01T00:00:00Z"}]}}"#,
        );
        let submitted = json(
            r#"{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"X","status":"True"}]}}"#,
        );
        apply_approval(&mut next, &submitted, &context());
        let times: Vec<_> = next
            .items(&["status", "conditions"])
            .iter()
            .map(|it| it.text(&["lastTransitionTime"]).to_owned())
            .collect();
        assert_eq!(times, ["2001-01-01T00:00:00Z".to_owned(), context().timestamp()]);
    }

    #[test]
    fn states_are_reported_by_conditions() {
        let check = |status: &str, expected: &str| {
            let mut object = json("{}");
            object.set(&["status"], json(status));
            assert_eq!(state(&object), expected);
        };
        check("{}", "Pending");
        check(r#"{"conditions":[{"type":"Failed"}]}"#, "Pending,Failed");
        check(r#"{"conditions":[{"type":"Approved"}],"certificate":"YQ=="}"#, "Approved,Issued");
    }
}
