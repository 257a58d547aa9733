//! Audit options.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::audit::{
    self, Batching, Format, LogOptions, Mode, Policy, Rotation, Target, Throttle, Truncate, WebhookOptions,
};
use clap::Args;
use names::Names;
use outbound::Dialer;
use std::path::PathBuf;
use std::time::Duration;

const MODES: &str = "batch, blocking, blocking-strict";
const DAY: Duration = Duration::from_secs(24 * 3600);
const MEGABYTE: u64 = 1024 * 1024;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit")]
pub struct Audit {
    /// The audit policy file, a Policy of audit.k8s.io/v1. Without it no audit events are recorded
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// The audit log file, one event per line; - for standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// The format of the audit log: json, or legacy for plain text
    #[arg(long, value_name = "FORM", default_value = "json")]
    pub audit_log_format: String,

    /// The size in megabytes at which the log file is rotated; 0 for never
    #[arg(long, value_name = "MB", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxsize: i64,

    /// The age in days at which rotated files are removed; 0 for never
    #[arg(long, value_name = "DAYS", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxage: i64,

    /// The number of rotated files to keep; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxbackup: i64,

    /// Compress rotated files with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_log_compress: bool,

    /// Whether requests wait until their events are written: batch (no), blocking (yes), blocking-strict (yes, and
    /// a request that cannot be recorded is refused)
    #[arg(long, value_name = "MODE", default_value = "blocking")]
    pub audit_log_mode: String,

    /// In batch mode, the size of the event buffer; further events are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 10000, allow_negative_numbers = true)]
    pub audit_log_batch_buffer_size: i64,

    /// In batch mode, how many events are written together
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_negative_numbers = true)]
    pub audit_log_batch_max_size: i64,

    /// In batch mode, how long to wait for more events before fewer are written
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub audit_log_batch_max_wait: Duration,

    /// In batch mode, throttle writes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_log_batch_throttle_enable: bool,

    /// In batch mode, the average number of writes per second
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_negative_numbers = true)]
    pub audit_log_batch_throttle_qps: f32,

    /// In batch mode, the maximum burst of writes
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_batch_throttle_burst: i64,

    /// Drop the bodies of events that are too large, and drop events that are too large without them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_log_truncate_enabled: bool,

    /// How large an event may be, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 102400, allow_negative_numbers = true)]
    pub audit_log_truncate_max_event_size: i64,

    /// How large events that are written together may be, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 10485760, allow_negative_numbers = true)]
    pub audit_log_truncate_max_batch_size: i64,

    /// The version of the events in the log [default: audit.k8s.io/v1]
    #[arg(long, value_name = "VERSION")]
    pub audit_log_version: Option<String>,

    /// The kubeconfig of the audit webhook, which gets the events
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,

    /// The backoff after the first failed post; each further one is 1.5 times as long
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s", alias = "audit-webhook-batch-initial-backoff")]
    pub audit_webhook_initial_backoff: Duration,

    /// Whether requests wait until their events are posted: batch (no), blocking (yes), blocking-strict (yes, and
    /// a request that cannot be recorded is refused)
    #[arg(long, value_name = "MODE", default_value = "batch")]
    pub audit_webhook_mode: String,

    /// In batch mode, the size of the event buffer; further events are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 10000, allow_negative_numbers = true)]
    pub audit_webhook_batch_buffer_size: i64,

    /// In batch mode, how many events are posted together
    #[arg(long, value_name = "COUNT", default_value_t = 400, allow_negative_numbers = true)]
    pub audit_webhook_batch_max_size: i64,

    /// In batch mode, how long to wait for more events before fewer are posted
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub audit_webhook_batch_max_wait: Duration,

    /// In batch mode, throttle posts
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub audit_webhook_batch_throttle_enable: bool,

    /// In batch mode, the average number of posts per second
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, allow_negative_numbers = true)]
    pub audit_webhook_batch_throttle_qps: f32,

    /// In batch mode, the maximum burst of posts
    #[arg(long, value_name = "COUNT", default_value_t = 15, allow_negative_numbers = true)]
    pub audit_webhook_batch_throttle_burst: i64,

    /// Drop the bodies of events that are too large, and drop events that are too large without them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_webhook_truncate_enabled: bool,

    /// How large an event may be, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 102400, allow_negative_numbers = true)]
    pub audit_webhook_truncate_max_event_size: i64,

    /// How large events that are posted together may be, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 10485760, allow_negative_numbers = true)]
    pub audit_webhook_truncate_max_batch_size: i64,

    /// The version of the events that are posted [default: audit.k8s.io/v1]
    #[arg(long, value_name = "VERSION")]
    pub audit_webhook_version: Option<String>,
}

impl Audit {
    /// `way` is the dialer of the audit webhook.
    pub fn read(&self, names: &Names, way: &Dialer, errors: &mut ConfigErrors) -> audit::Options {
        let policy = self.audit_policy_file.as_deref();
        let text = errors.text("--audit-policy-file", policy);
        let policy = text.and_then(|text| errors.take("--audit-policy-file", Policy::parse(&text, names)));
        let log = self.audit_log_path.clone().and_then(|path| self.log(path, names, errors));
        let webhook = self.audit_webhook_config_file.as_ref().and_then(|file| {
            let receiver = outbound::Target::from_kubeconfig(file);
            let receiver = errors.take("--audit-webhook-config-file", receiver);
            let (mode, truncate) = self.webhook(names, errors);
            let initial_backoff = self.audit_webhook_initial_backoff;
            let receiver = outbound::Target { way: way.clone(), ..receiver? };
            Some(WebhookOptions { receiver, initial_backoff, mode: mode?, truncate })
        });
        audit::Options { policy, log, webhook }
    }

    fn log(&self, path: PathBuf, names: &Names, errors: &mut ConfigErrors) -> Option<LogOptions> {
        let format = match &*self.audit_log_format {
            "json" => Format::Json,
            "legacy" => Format::Legacy,
            other => {
                errors.add("--audit-log-format", format!("{other:?} is not a format; use json or legacy"));
                Format::Json
            }
        };
        let rotation = Rotation {
            max_bytes: limit("--audit-log-maxsize", self.audit_log_maxsize, errors).saturating_mul(MEGABYTE),
            max_age: DAY.saturating_mul(
                u32::try_from(limit("--audit-log-maxage", self.audit_log_maxage, errors)).unwrap_or(u32::MAX),
            ),
            max_backups: usize::try_from(limit("--audit-log-maxbackup", self.audit_log_maxbackup, errors))
                .unwrap_or(usize::MAX),
            compress: self.audit_log_compress,
        };
        version("--audit-log-version", self.audit_log_version.as_deref(), names, errors);
        let batch = Batch {
            options: "--audit-log-batch",
            buffer: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable,
            qps: self.audit_log_batch_throttle_qps,
            burst: self.audit_log_batch_throttle_burst,
        };
        let mode = mode("--audit-log-mode", &self.audit_log_mode, &batch, errors)?;
        let truncate = truncate(
            "--audit-log-truncate",
            self.audit_log_truncate_enabled,
            (self.audit_log_truncate_max_event_size, self.audit_log_truncate_max_batch_size),
            errors,
        );
        let target = if path.as_os_str() == "-" { Target::Stdout } else { Target::File(path) };
        Some(LogOptions { target, format, rotation, mode, truncate })
    }

    fn webhook(&self, names: &Names, errors: &mut ConfigErrors) -> (Option<Mode>, Option<Truncate>) {
        version("--audit-webhook-version", self.audit_webhook_version.as_deref(), names, errors);
        let batch = Batch {
            options: "--audit-webhook-batch",
            buffer: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable,
            qps: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        };
        let mode = mode("--audit-webhook-mode", &self.audit_webhook_mode, &batch, errors);
        let truncate = truncate(
            "--audit-webhook-truncate",
            self.audit_webhook_truncate_enabled,
            (self.audit_webhook_truncate_max_event_size, self.audit_webhook_truncate_max_batch_size),
            errors,
        );
        (mode, truncate)
    }
}

/// The batch options of one backend.
struct Batch {
    /// The common prefix of the flags.
    options: &'static str,
    buffer: i64,
    max_size: i64,
    max_wait: Duration,
    throttle: bool,
    qps: f32,
    burst: i64,
}

impl Batch {
    /// Converts the options; unused ones are not checked.
    fn read(&self, errors: &mut ConfigErrors) -> Batching {
        let buffer = self.positive("buffer-size", self.buffer, errors);
        let max_size = self.positive("max-size", self.max_size, errors);
        let mut throttle = None;
        if self.throttle {
            let burst = self.positive("throttle-burst", self.burst, errors);
            if !(self.qps > 0.0 && self.qps.is_finite()) {
                let option = format!("{}-throttle-qps", self.options);
                errors.add(&option, format!("must be greater than 0, not {}", self.qps));
            }
            let burst = u32::try_from(burst).unwrap_or(u32::MAX);
            throttle = Some(Throttle { per_second: f64::from(self.qps), burst });
        }
        Batching { buffer, max_size, max_wait: self.max_wait, throttle }
    }

    fn positive(&self, name: &str, value: i64, errors: &mut ConfigErrors) -> usize {
        if value <= 0 {
            errors.add(&format!("{}-{name}", self.options), format!("must be greater than 0, not {value}"));
        }
        usize::try_from(value).unwrap_or(1)
    }
}

fn mode(option: &str, text: &str, batch: &Batch, errors: &mut ConfigErrors) -> Option<Mode> {
    match text {
        "batch" => Some(Mode::Batch(batch.read(errors))),
        "blocking" => Some(Mode::Blocking),
        "blocking-strict" => Some(Mode::BlockingStrict),
        other => {
            errors.add(option, format!("{other:?} is not a mode; use one of {MODES}"));
            None
        }
    }
}

fn truncate(
    options: &str,
    enabled: bool,
    (event, batch): (i64, i64),
    errors: &mut ConfigErrors,
) -> Option<Truncate> {
    if !enabled {
        return None;
    }
    if event <= 0 {
        let option = format!("{options}-max-event-size");
        errors.add(&option, format!("must be greater than 0, not {event}"));
    }
    if batch < event {
        let option = format!("{options}-max-batch-size");
        errors.add(&option, format!("a batch of {batch} bytes cannot hold an event of {event}"));
    }
    let bytes = |value| usize::try_from(value).unwrap_or(usize::MAX);
    Some(Truncate { max_event_bytes: bytes(event), max_batch_bytes: bytes(batch) })
}

fn version(option: &str, version: Option<&str>, names: &Names, errors: &mut ConfigErrors) {
    let only = format!("{}/v1", names.group("audit"));
    if let Some(text) = version.filter(|text| *text != only) {
        errors.add(option, format!("{text:?} is not a supported version; use {only}"));
    }
}

fn limit(option: &str, value: i64, errors: &mut ConfigErrors) -> u64 {
    if value < 0 {
        errors.add(option, format!("must not be negative: {value}"));
    }
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        audit: Audit,
    }

    fn read(line: &str) -> Result<audit::Options, String> {
        let read = ParsedLine::try_parse_from(format!("x {line}").split_whitespace())
            .map_err(|it| it.to_string())?;
        let mut errors = ConfigErrors::default();
        let options = read.audit.read(&Names::kubernetes(), &Dialer::Direct, &mut errors);
        errors.check().map(|()| options).map_err(|why| why.to_string())
    }

    #[test]
    fn defaults_are_the_known_ones() {
        let options = read("").unwrap();
        assert!(options.policy.is_none() && options.log.is_none() && options.webhook.is_none());
        let log = read("--audit-log-path -").unwrap().log.unwrap();
        assert_eq!((log.target, log.format, log.mode), (Target::Stdout, Format::Json, Mode::Blocking));
        assert_eq!((log.rotation, log.truncate), (Rotation::default(), None));
        let log = read("--audit-log-path x --audit-log-mode batch --audit-log-truncate-enabled").unwrap();
        let log = log.log.unwrap();
        let once = Batching { buffer: 10000, max_size: 1, max_wait: Duration::ZERO, throttle: None };
        assert_eq!(log.mode, Mode::Batch(once));
        let sizes = Truncate { max_event_bytes: 102400, max_batch_bytes: 10485760 };
        assert_eq!((log.truncate, log.target), (Some(sizes), Target::File("x".into())));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k");
        std::fs::write(&file, "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://h'}}]\n").unwrap();
        let hook = read(&format!("--audit-webhook-config-file {}", file.display())).unwrap().webhook.unwrap();
        let throttle = Some(Throttle { per_second: 10.0, burst: 15 });
        let lists = Batching { buffer: 10000, max_size: 400, max_wait: Duration::from_secs(30), throttle };
        assert_eq!((hook.mode, hook.truncate), (Mode::Batch(lists), None));
        assert_eq!((hook.initial_backoff, &*hook.receiver.url), (Duration::from_secs(10), "https://h/"));
    }

    #[test]
    fn wrong_values_are_reported_all_at_once_and_only_where_they_matter() {
        assert!(read("--audit-log-mode never --audit-log-maxage -1").is_ok());
        let message = read(
            "--audit-policy-file /nowhere/p --audit-webhook-config-file /nowhere/k --audit-webhook-mode x \
             --audit-webhook-version v1 --audit-log-path - --audit-log-mode batch --audit-log-format xml \
             --audit-log-maxsize -1 --audit-log-maxage -1 --audit-log-maxbackup -1 \
             --audit-log-batch-buffer-size 0 --audit-log-batch-max-size 0 --audit-log-batch-throttle-enable \
             --audit-log-truncate-enabled=true --audit-log-truncate-max-event-size 0 \
             --audit-log-truncate-max-batch-size -1",
        )
        .err()
        .unwrap();
        for part in [
            "--audit-policy-file: cannot read /nowhere/p",
            "--audit-webhook-config-file: /nowhere/k",
            "--audit-webhook-mode: \"x\" is not a mode; use one of batch, blocking, blocking-strict",
            "--audit-webhook-version: \"v1\" is not a supported version",
            "--audit-log-format: \"xml\" is not a format",
            "--audit-log-maxsize: must not be negative",
            "--audit-log-maxage: ",
            "--audit-log-maxbackup: ",
            "--audit-log-batch-buffer-size: must be greater than 0",
            "--audit-log-batch-max-size: ",
            "--audit-log-batch-throttle-burst: ",
            "--audit-log-batch-throttle-qps: must be greater than 0, not 0",
            "--audit-log-truncate-max-event-size: ",
            "--audit-log-truncate-max-batch-size: a batch of -1 bytes",
        ] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        assert!(read("--audit-webhook-initial-backoff -3s").is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p");
        std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: all\n").unwrap();
        let message = read(&format!("--audit-policy-file {}", file.display())).err().unwrap();
        assert!(
            message.contains("--audit-policy-file: line 4: rules[0].level: \"all\" is no level"),
            "{message}"
        );
    }
}
