//! Metrics, profiling and tracing options.

use super::ConfigErrors;
use apiserver::trace::Configuration;
use clap::Args;
use names::Names;
use schema::table::Release;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The feature gate of tracing.
const GATE: &str = "APIServerTracing";

/// The metrics options of every component.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics and profiling")]
pub struct MetricsOptions {
    /// The allowed values of a metric's label, all others are reported as "unexpected":
    /// apiserver_request_total,code='200,404' (may be repeated)
    #[arg(long, value_name = "METRIC,LABEL=VALUES")]
    pub allow_metric_labels: Vec<String>,

    /// Metrics to disable, comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub disabled_metrics: Vec<String>,

    /// The previous release, whose hidden metrics are shown again. No metric is hidden at present
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub show_hidden_metrics_for_version: String,

    /// Serve debug pages below /debug/pprof/ and /debug/flags/
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub profiling: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tracing")]
pub struct Observability {
    #[command(flatten)]
    pub metrics: MetricsOptions,

    /// The TracingConfiguration file: the collector of request spans and the sampling rate; needs the feature gate
    /// APIServerTracing
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

impl MetricsOptions {
    pub fn read(&self, errors: &mut ConfigErrors) -> metrics::Options {
        let (version, release) = (&*self.show_hidden_metrics_for_version, kinds::RELEASE);
        let only = Release { minor: release.minor.saturating_sub(1), ..release }.to_string();
        if !version.is_empty() && version != only {
            let why = format!("only the previous release is supported: {only}");
            errors.add("--show-hidden-metrics-for-version", why);
        }
        let mut allowed = BTreeMap::<_, BTreeSet<String>>::new();
        for pair in self.allow_metric_labels.iter().flat_map(|text| pairs(text)) {
            match read(&pair) {
                Some((metric, label, values)) => allowed.entry((metric, label)).or_default().extend(values),
                None => {
                    errors.add("--allow-metric-labels", format!("{pair:?} is not METRIC,LABEL=VALUE,VALUE"))
                }
            }
        }
        let disabled = self.disabled_metrics.iter().map(|name| name.trim().to_owned());
        metrics::Options { disabled: disabled.filter(|name| !name.is_empty()).collect(), allowed }
    }
}

impl Observability {
    /// The tracing configuration, if its feature gate is enabled.
    pub fn tracing(&self, open: bool, names: &Names, errors: &mut ConfigErrors) -> Option<Configuration> {
        const OPTION: &str = "--tracing-config-file";
        let text = errors.text(OPTION, self.tracing_config_file.as_deref())?;
        if !open {
            errors.add(OPTION, format!("--feature-gates {GATE}=true is required"));
        }
        errors.take(OPTION, Configuration::parse(&text, names))
    }
}

/// One pair, or several with commas between, each in quotes where it has commas itself.
fn pairs(text: &str) -> Vec<String> {
    if text.matches('=').count() <= 1 {
        return vec![text.trim().trim_matches('"').to_owned()];
    }
    let (mut out, mut quoted) = (vec![String::new()], false);
    for letter in text.chars() {
        match (letter, out.last_mut()) {
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => out.push(String::new()),
            (letter, Some(last)) => last.push(letter),
            (_, None) => {}
        }
    }
    out
}

fn read(pair: &str) -> Option<(String, String, Vec<String>)> {
    let (key, values) = pair.split_once('=')?;
    let (metric, label) = key.trim().split_once(',')?;
    let values = values.trim().trim_matches(['\'', '"']);
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    (!metric.is_empty() && !label.is_empty()).then(|| (metric.to_owned(), label.trim().to_owned(), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(labels: &[&str], hidden: &str) -> Result<metrics::Options, String> {
        let args = MetricsOptions {
            allow_metric_labels: labels.iter().map(|text| (*text).to_owned()).collect(),
            disabled_metrics: vec!["a".to_owned(), " b".to_owned(), String::new()],
            show_hidden_metrics_for_version: hidden.to_owned(),
            profiling: true,
        };
        let mut errors = ConfigErrors::default();
        let options = args.read(&mut errors);
        errors.check().map(|()| options).map_err(|why| why.to_string())
    }

    #[test]
    fn labels_are_parsed_like_upstream() {
        let found = read(&["m,l='1,2'", "\"n,l=3\",\"n,k=4,5\"", "m,l=6"], "1.25").unwrap();
        let formatted: Vec<_> = found
            .allowed
            .iter()
            .map(|((metric, label), values)| {
                format!("{metric} {label} {}", values.iter().cloned().collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(formatted, ["m l 1 2 6", "n k 4 5", "n l 3"]);
        assert_eq!(found.disabled.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn contradictory_values_are_reported() {
        let message = read(&["m=1", "nothing"], "1.24").unwrap_err();
        for part in ["\"m=1\"", "\"nothing\"", "1.25"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
