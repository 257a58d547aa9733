//! Definitions in `v1beta1`, which upstream stores: what every version has in common stands once, beside the versions.

use crate::read;
use names::Names;
use schema::Value;

/// Parts that versions take over: the name beside the versions, and in each.
const COMMON: [(&str, &str); 3] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
];

pub(crate) fn default(object: &mut Value, _: &Names) {
    let version = object.text(&["spec", "version"]).to_owned();
    if object.items(&["spec", "versions"]).is_empty() && !version.is_empty() {
        let mut only = Value::map();
        only.set(&["name"], version);
        only.set(&["served"], true);
        only.set(&["storage"], true);
        object.set(&["spec", "versions"], vec![only]);
    }
    let asks = object.text(&["spec", "conversion", "strategy"]) == "Webhook";
    if asks && object.items(&["spec", "conversion", "conversionReviewVersions"]).is_empty() {
        object.set(&["spec", "conversion", "conversionReviewVersions"], vec![Value::from("v1beta1")]);
    }
}

/// To `v1`, where each version says everything about itself.
pub(crate) fn convert(object: &mut Value, _: &Names) {
    let Some(spec) = object.at_mut(&["spec"]) else { return };
    spec.unset(&["version"]);
    for (common, own) in COMMON {
        let Some(part) = spec.unset(&[common]).filter(|it| !it.is_null()) else { continue };
        read::each_mut(spec, &["versions"], |version| version.set(&[own], part.clone()));
    }
    read::each_mut(spec, &["versions"], |version| {
        read::each_mut(version, &["additionalPrinterColumns"], |column| {
            if let Some(path) = column.unset(&["JSONPath"]) {
                column.set(&["jsonPath"], path);
            }
        });
    });
    let Some(conversion) = spec.at_mut(&["conversion"]) else { return };
    for (before, now) in
        [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
    {
        if let Some(part) = conversion.unset(&[before]).filter(|it| !it.is_null()) {
            conversion.set(&["webhook", now], part);
        }
    }
}
