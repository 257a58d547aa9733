//! The tracing configuration file.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1alpha1
//! kind: TracingConfiguration
//! endpoint: localhost:4317
//! samplingRatePerMillion: 100
//! ```

use names::Names;
use outbound::Endpoint;
use rest::{Format, Input};
use schema::Value;

/// The default collector endpoint.
const ENDPOINT: &str = "localhost:4317";
const MAX_PER_MILLION: i64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The collector.
    pub endpoint: Endpoint,
    /// How many of a million requests are sampled, unless their client decides.
    pub per_million: u32,
}

/// The errors in a file.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidConfiguration(Vec<String>);

impl Configuration {
    pub fn parse(text: &str, names: &Names) -> Result<Self, InvalidConfiguration> {
        let input = Input { bytes: text.to_owned().into(), format: Format::Yaml };
        let read = input.untyped().map_err(|why| InvalidConfiguration(vec![why]))?;
        let value = read.value;
        let mut wrong = Vec::new();
        let group = names.group("apiserver.config");
        let version = value.text(&["apiVersion"]);
        let is_known_version = ["v1alpha1", "v1beta1"].iter().any(|one| version == format!("{group}/{one}"));
        if !is_known_version || value.text(&["kind"]) != "TracingConfiguration" {
            wrong.push(format!("it is not a TracingConfiguration of {group}/v1alpha1 or v1beta1"));
        }
        let fields = value.as_map().into_iter().flat_map(|map| map.iter());
        for (name, _) in fields {
            if !["apiVersion", "kind", "endpoint", "samplingRatePerMillion"].contains(&name) {
                wrong.push(format!("there is no field {name:?}"));
            }
        }
        let endpoint = match value.at(&["endpoint"]) {
            None | Some(Value::Null) => ENDPOINT.parse(),
            Some(value) => value.as_str().unwrap_or("").parse(),
        };
        let endpoint = endpoint.map_err(|why: String| wrong.push(format!("endpoint: {why}"))).ok();
        let per_million = match value.at(&["samplingRatePerMillion"]) {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_int().unwrap_or(-1),
        };
        if !(0..=MAX_PER_MILLION).contains(&per_million) {
            wrong.push("samplingRatePerMillion: a number from 0 to 1000000 is needed".to_owned());
        }
        match (endpoint, wrong.is_empty()) {
            (Some(endpoint), true) => {
                Ok(Configuration { endpoint, per_million: u32::try_from(per_million).unwrap_or(0) })
            }
            _ => Err(InvalidConfiguration(wrong)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Configuration, String> {
        let head = "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: TracingConfiguration\n";
        Configuration::parse(&format!("{head}{text}"), &Names::kubernetes()).map_err(|why| why.to_string())
    }

    #[test]
    fn missing_fields_have_defaults() {
        let usual = parse("").unwrap();
        assert_eq!(
            usual,
            Configuration { endpoint: Endpoint::Tcp("localhost:4317".to_owned()), per_million: 0 }
        );
        let configuration = parse("endpoint: unix:///run/otel\nsamplingRatePerMillion: 100\n").unwrap();
        assert_eq!(
            configuration,
            Configuration { endpoint: Endpoint::Unix("/run/otel".into()), per_million: 100 }
        );
    }

    #[test]
    fn all_errors_are_reported() {
        let errors = parse("endpoint: http://x\nsamplingRatePerMillion: 1000001\nmore: 1\n").unwrap_err();
        for part in ["endpoint:", "samplingRatePerMillion:", "\"more\""] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        let other = Configuration::parse("apiVersion: v1\nkind: Pod\n", &Names::kubernetes());
        assert!(other.unwrap_err().to_string().contains("not a TracingConfiguration"));
        assert!(Configuration::parse("[", &Names::kubernetes()).is_err());
    }
}
