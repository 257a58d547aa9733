//! Configuration file of tracing.
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

/// Where spans go unless somebody says otherwise.
const ENDPOINT: &str = "localhost:4317";
const MOST: i64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Where the collector is.
    pub endpoint: Endpoint,
    /// So many of a million requests are traced of which no client has decided.
    pub per_million: u32,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct BadConfiguration(Vec<String>);

impl Configuration {
    pub fn parse(text: &str, names: &Names) -> Result<Self, BadConfiguration> {
        let input = Input { bytes: text.to_owned().into(), format: Format::Yaml };
        let read = input.untyped().map_err(|why| BadConfiguration(vec![why]))?;
        let value = read.value;
        let mut wrong = Vec::new();
        let group = names.group("apiserver.config");
        let version = value.text(&["apiVersion"]);
        let known = ["v1alpha1", "v1beta1"].iter().any(|one| version == format!("{group}/{one}"));
        if !known || value.text(&["kind"]) != "TracingConfiguration" {
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
            Some(given) => given.as_str().unwrap_or("").parse(),
        };
        let endpoint = endpoint.map_err(|why: String| wrong.push(format!("endpoint: {why}"))).ok();
        let per_million = match value.at(&["samplingRatePerMillion"]) {
            None | Some(Value::Null) => 0,
            Some(given) => given.as_int().unwrap_or(-1),
        };
        if !(0..=MOST).contains(&per_million) {
            wrong.push("samplingRatePerMillion: a number from 0 to 1000000 is needed".to_owned());
        }
        match (endpoint, wrong.is_empty()) {
            (Some(endpoint), true) => {
                Ok(Configuration { endpoint, per_million: u32::try_from(per_million).unwrap_or(0) })
            }
            _ => Err(BadConfiguration(wrong)),
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
    fn what_is_not_said_is_as_usual() {
        let usual = parse("").unwrap();
        assert_eq!(
            usual,
            Configuration { endpoint: Endpoint::Tcp("localhost:4317".to_owned()), per_million: 0 }
        );
        let said = parse("endpoint: unix:///run/otel\nsamplingRatePerMillion: 100\n").unwrap();
        assert_eq!(said, Configuration { endpoint: Endpoint::Unix("/run/otel".into()), per_million: 100 });
    }

    #[test]
    fn everything_wrong_is_told() {
        let told = parse("endpoint: http://x\nsamplingRatePerMillion: 1000001\nmore: 1\n").unwrap_err();
        for part in ["endpoint:", "samplingRatePerMillion:", "\"more\""] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let other = Configuration::parse("apiVersion: v1\nkind: Pod\n", &Names::kubernetes());
        assert!(other.unwrap_err().to_string().contains("not a TracingConfiguration"));
        assert!(Configuration::parse("[", &Names::kubernetes()).is_err());
    }
}
