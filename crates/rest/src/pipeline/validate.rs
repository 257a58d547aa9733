//! Stage: validation of a new or next state by rules, then by validating admission.

use crate::model::context::Context;
use crate::model::error::{ApiError, Subject};
use crate::model::hooks::{MetadataRules, RuledWrite};
use crate::model::metadata;
use crate::model::operation::Operation;
use crate::pipeline::api::Api;
use crate::pipeline::decode::group_of;
use crate::pipeline::request::Write;
use schema::problem::{Problem, Problems, Reason, quoted};
use schema::rules;
use schema::{Path, Value};

/// Compares the version that the client names with the stored one.
pub(crate) fn version(write: &Write<'_, '_>) -> Result<(), ApiError> {
    let Some(base) = write.base else { return Ok(()) };
    let (named, resource) = (write.object.text(&["metadata", "resourceVersion"]), write.resource());
    if named.is_empty() || named == "0" {
        if resource.kind.unconditional_update {
            return Ok(());
        }
        let problem = Problem {
            reason: Reason::Invalid,
            field: "metadata.resourceVersion".to_owned(),
            message: "Invalid value: 0x0: must be specified for an update".to_owned(),
        };
        return Err(ApiError::invalid(resource.subject(write.request.name), vec![problem]));
    }
    match parse_version(named)? == base.stored.revision {
        true => Ok(()),
        false => Err(ApiError::modified(resource.subject(write.request.name))),
    }
}

/// Parses the resource version of an object.
pub(crate) fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        ApiError::internal(format!("strconv.ParseUint: parsing {}: {why}", quoted(text)))
    })
}

/// Checks all rules; the error has every problem.
pub(crate) fn check(api: &Api, write: &mut Write<'_, '_>, context: &Context<'_>) -> Result<(), ApiError> {
    check_type(write)?;
    let problems = match write.old() {
        None => problems_of_new(api, write, context),
        Some(old) => problems_of_next(api, write, old, context),
    };
    if problems.is_empty() {
        return Ok(());
    }
    let name = write.object.text(&["metadata", "name"]);
    Err(ApiError::invalid(write.resource().stored_subject(name), problems))
}

/// Checks that a custom resource has the kind and the version of the request. Of one that has not, only the rules of all
/// objects are checked beside them, and only in an update.
fn check_type(write: &Write<'_, '_>) -> Result<(), ApiError> {
    let (resource, object) = (write.resource(), &write.object);
    let (kind, version) = (object.text(&["kind"]), object.text(&["apiVersion"]));
    let fields = [("kind", kind, &*resource.kind.name), ("apiVersion", version, &*resource.api_version)];
    if !resource.kind.root.loose || fields.iter().all(|(_, found, expected)| found == expected) {
        return Ok(());
    }
    let mut problems = Problems::new();
    if let Some(old) = write.old() {
        problems.extend(metadata::check_common(object, resource.kind.namespaced));
        problems.extend(metadata::check_update(object, old));
    }
    for (field, found, expected) in fields.into_iter().filter(|(_, found, expected)| found != expected) {
        let why = format!("must be {expected}");
        problems.push(Problem::invalid_text(&Path::ROOT.field(field), found, &why));
    }
    let subject = Subject { group: group_of(version), kind, name: object.text(&["metadata", "name"]) };
    Err(ApiError::invalid(subject, problems))
}

fn problems_of_new(api: &Api, write: &mut Write<'_, '_>, context: &Context<'_>) -> Problems {
    let hooks = &write.resource().hooks;
    // a kind whose own rules leave out metadata reports its problems when there are no others
    let metadata_first = !hooks.write.repeated_metadata_errors.0.is_empty();
    let mut problems = Problems::new();
    if let Some(validate) = hooks.create.validate_first {
        problems.extend(validate(&write.object, context));
    }
    if metadata_first {
        problems.extend(problems_of_new_metadata(write));
    }
    problems.extend(rules::check(&write.resource().kind.root, &mut write.object));
    if let Some(validate) = hooks.create.validate {
        problems.extend(validate(&write.object, context));
    }
    let custom = problems_of_custom_rules(api, write, &problems);
    problems.extend(custom);
    if !metadata_first && problems.is_empty() {
        problems = problems_of_new_metadata(write);
    }
    if problems.is_empty() {
        problems = metadata::check_common(&write.object, write.resource().kind.namespaced);
    }
    if hooks.create.repeats_errors {
        problems.extend(problems.clone());
    }
    problems
}

fn problems_of_new_metadata(write: &Write<'_, '_>) -> Problems {
    let mut problems = problems_of_metadata(write);
    problems.extend(metadata::check_finalizer_domains(&write.object, &write.resource().hooks));
    problems
}

fn problems_of_metadata(write: &Write<'_, '_>) -> Problems {
    let resource = write.resource();
    metadata::check(&write.object, resource.kind.namespaced, &resource.hooks)
}

fn problems_of_next(api: &Api, write: &mut Write<'_, '_>, old: &Value, context: &Context<'_>) -> Problems {
    let (resource, part) = (write.resource(), write.part);
    let hooks = &resource.hooks;
    let declared = problems_of_metadata(write);
    let changed = metadata::check_update(&write.object, old);
    let domains = metadata::check_finalizer_domains(&write.object, hooks);
    // upstream reports these as rules of all objects, and again as rules of the kind
    let state = || declared.iter().chain(&domains).cloned();
    let change = || changed.iter().chain(&domains).cloned();
    let mut problems = metadata::check_common(&write.object, resource.kind.namespaced);
    problems.extend(changed.iter().cloned());
    let repeated = part.map_or(hooks.write.repeated_metadata_errors, |part| part.repeated_metadata_errors);
    let (check_state, check) = match part {
        Some(part) if repeated.0.contains(&MetadataRules::OfKind) => (part.validate, None),
        Some(part) => (None, part.validate),
        None => (hooks.update.validate_state, hooks.update.validate),
    };
    let mut of_kind = rules::check(&resource.kind.root, &mut write.object);
    of_kind.extend(check_state.map(|check| check(&write.object, old, context)).unwrap_or_default());
    let mut of_change = check.map(|check| check(&write.object, old, context)).unwrap_or_default();
    of_change.extend(rules::check_immutable(&resource.kind.root, old, &write.object));
    let last = [MetadataRules::OfKind, MetadataRules::OfChange];
    let last = last.iter().filter(|rules| !repeated.0.contains(rules));
    for rules in repeated.0.iter().chain(last) {
        match rules {
            MetadataRules::State => problems.extend(state()),
            MetadataRules::Change => problems.extend(change()),
            MetadataRules::OfKind => problems.extend(of_kind.iter().cloned()),
            MetadataRules::OfChange => problems.extend(of_change.iter().cloned()),
        }
    }
    let custom = problems_of_custom_rules(api, write, &problems);
    problems.extend(custom);
    problems
}

/// Problems by the rules of a custom kind, after those of its metadata.
fn problems_of_custom_rules(api: &Api, write: &Write<'_, '_>, metadata: &Problems) -> Problems {
    let Some(rules) = &write.resource().hooks.write.rules else { return Problems::default() };
    let checked = RuledWrite {
        object: &write.object,
        old: write.old(),
        subresource: write.request.subresource,
        metadata,
    };
    rules.check(&checked, &api.timing())
}

/// Runs validating admission, as a dry run if the object cannot be stored.
pub(crate) async fn admit(api: &Api, write: &Write<'_, '_>, unstorable: bool) -> Result<(), ApiError> {
    let Some(old) = write.old() else {
        let names = [&*write.sent_name, write.object.text(&["metadata", "name"])];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let mut attributes = write.request.attributes(api, Operation::Create, name);
        attributes.dry_run |= unstorable;
        return api.validate(&attributes, &write.object, None).await;
    };
    let attributes = write.request.attributes(api, Operation::Update, write.request.name);
    match write.view {
        None => api.validate(&attributes, &write.object, Some(old)).await,
        Some((view, served)) => {
            let (object, old) = (view.of(&write.object, served.form()), view.of(old, served.form()));
            api.validate(&attributes, &object, Some(&old)).await
        }
    }
}
