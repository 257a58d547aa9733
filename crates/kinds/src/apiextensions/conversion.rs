//! Validation of the conversion between the versions of a definition.

use crate::check::{self, Problems};
use crate::{admissionregistration::webhook, admissionregistration::webhook_client, read};
use schema::problem::Problem;
use schema::{Path, Value};

/// The supported versions of conversion reviews.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

pub(super) fn check(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(conversion) = spec.at(&["conversion"]).filter(|it| !it.is_null()) else { return };
    let path = path.field("conversion");
    let strategy = conversion.text(&["strategy"]);
    let by_webhook = strategy == "Webhook";
    if by_webhook && read::flag(spec, &["preserveUnknownFields"]) {
        let detail = "must be None if spec.preserveUnknownFields is true";
        out.push(Problem::invalid_text(&path.field("strategy"), strategy, detail));
    }
    check::one_of(strategy, &["None", "Webhook"], &path.field("strategy"), out);
    let config = conversion.at(&["webhook", "clientConfig"]).filter(|it| !it.is_null());
    let versions = conversion.items(&["webhook", "conversionReviewVersions"]);
    let (config_path, versions_path) =
        (path.field("webhookClientConfig"), path.field("conversionReviewVersions"));
    if !by_webhook {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            out.push(Problem::forbidden(&config_path, detail));
        }
        if !versions.is_empty() {
            out.push(Problem::forbidden(&versions_path, detail));
        }
        return;
    }
    match config {
        Some(config) => webhook_client::check(config, &config_path, out),
        None => out.push(Problem::required(&config_path, "required when strategy is set to Webhook")),
    }
    if versions.is_empty() {
        out.push(Problem::required(&versions_path, ""));
    } else {
        webhook::check_versions(versions, REVIEW_VERSIONS, &versions_path, out);
    }
}
