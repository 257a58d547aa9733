//! The record of what was done.

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
#[command(next_help_heading = "The record of what was done (audit)")]
pub struct Audit {
    /// The rules that say which requests are recorded and how much of each, as a Policy of audit.k8s.io/v1.
    /// Without it nothing is recorded
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// The file that events are written to, one line each; - is standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// What a line of the log is: json, or legacy for plain text
    #[arg(long, value_name = "FORM", default_value = "json")]
    pub audit_log_format: String,

    /// Megabytes after which a log file is put aside and a new one begun; 0 is never
    #[arg(long, value_name = "MB", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxsize: i64,

    /// Days after which a file that was put aside is removed; 0 is never
    #[arg(long, value_name = "DAYS", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxage: i64,

    /// How many files that were put aside are kept; 0 is all
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_maxbackup: i64,

    /// Compress files that are put aside
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_log_compress: bool,

    /// Whether requests wait until their events are written: batch (no), blocking (yes), blocking-strict (yes, and
    /// a request that cannot be recorded is refused)
    #[arg(long, value_name = "MODE", default_value = "blocking")]
    pub audit_log_mode: String,

    /// In batch mode, how many events may wait; more are lost
    #[arg(long, value_name = "COUNT", default_value_t = 10000, allow_negative_numbers = true)]
    pub audit_log_batch_buffer_size: i64,

    /// In batch mode, how many events are written together
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_negative_numbers = true)]
    pub audit_log_batch_max_size: i64,

    /// In batch mode, how long to wait for more events before fewer are written
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub audit_log_batch_max_wait: Duration,

    /// In batch mode, limit how often is written
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub audit_log_batch_throttle_enable: bool,

    /// In batch mode, how often a second is written on average
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_negative_numbers = true)]
    pub audit_log_batch_throttle_qps: f32,

    /// In batch mode, how often may be written without a pause after a quiet time
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_batch_throttle_burst: i64,

    /// Leave bodies out of events that would be too large, and leave out events that are so even then
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

    /// A kubeconfig that names a server to which events are posted
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,

    /// How long to wait after a first failure to post; each further pause is half as long again
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s", alias = "audit-webhook-batch-initial-backoff")]
    pub audit_webhook_initial_backoff: Duration,

    /// Whether requests wait until their events are posted: batch (no), blocking (yes), blocking-strict (yes, and
    /// a request that cannot be recorded is refused)
    #[arg(long, value_name = "MODE", default_value = "batch")]
    pub audit_webhook_mode: String,

    /// In batch mode, how many events may wait; more are lost
    #[arg(long, value_name = "COUNT", default_value_t = 10000, allow_negative_numbers = true)]
    pub audit_webhook_batch_buffer_size: i64,

    /// In batch mode, how many events are posted together
    #[arg(long, value_name = "COUNT", default_value_t = 400, allow_negative_numbers = true)]
    pub audit_webhook_batch_max_size: i64,

    /// In batch mode, how long to wait for more events before fewer are posted
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub audit_webhook_batch_max_wait: Duration,

    /// In batch mode, limit how often is posted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub audit_webhook_batch_throttle_enable: bool,

    /// In batch mode, how often a second is posted on average
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, allow_negative_numbers = true)]
    pub audit_webhook_batch_throttle_qps: f32,

    /// In batch mode, how often may be posted without a pause after a quiet time
    #[arg(long, value_name = "COUNT", default_value_t = 15, allow_negative_numbers = true)]
    pub audit_webhook_batch_throttle_burst: i64,

    /// Leave bodies out of events that would be too large, and leave out events that are so even then
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
    /// `way` leads to a server that is told.
    pub fn read(&self, names: &Names, way: &Dialer, wrong: &mut ConfigErrors) -> audit::Options {
        let policy = self.audit_policy_file.as_deref();
        let text = wrong.text("--audit-policy-file", policy);
        let policy = text.and_then(|text| wrong.take("--audit-policy-file", Policy::parse(&text, names)));
        let log = self.audit_log_path.clone().and_then(|path| self.log(path, names, wrong));
        let webhook = self.audit_webhook_config_file.as_ref().and_then(|file| {
            let receiver = outbound::Target::from_kubeconfig(file);
            let receiver = wrong.take("--audit-webhook-config-file", receiver);
            let (mode, truncate) = self.webhook(names, wrong);
            let initial_backoff = self.audit_webhook_initial_backoff;
            let receiver = outbound::Target { way: way.clone(), ..receiver? };
            Some(WebhookOptions { receiver, initial_backoff, mode: mode?, truncate })
        });
        audit::Options { policy, log, webhook }
    }

    fn log(&self, path: PathBuf, names: &Names, wrong: &mut ConfigErrors) -> Option<LogOptions> {
        let format = match &*self.audit_log_format {
            "json" => Format::Json,
            "legacy" => Format::Legacy,
            other => {
                wrong.add("--audit-log-format", format!("{other:?} is no format; there are json, legacy"));
                Format::Json
            }
        };
        let rotation = Rotation {
            max_bytes: limit("--audit-log-maxsize", self.audit_log_maxsize, wrong).saturating_mul(MEGABYTE),
            max_age: DAY.saturating_mul(
                u32::try_from(limit("--audit-log-maxage", self.audit_log_maxage, wrong)).unwrap_or(u32::MAX),
            ),
            max_backups: usize::try_from(limit("--audit-log-maxbackup", self.audit_log_maxbackup, wrong))
                .unwrap_or(usize::MAX),
            compress: self.audit_log_compress,
        };
        version("--audit-log-version", self.audit_log_version.as_deref(), names, wrong);
        let batch = Batch {
            options: "--audit-log-batch",
            buffer: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable,
            qps: self.audit_log_batch_throttle_qps,
            burst: self.audit_log_batch_throttle_burst,
        };
        let mode = mode("--audit-log-mode", &self.audit_log_mode, &batch, wrong)?;
        let truncate = truncate(
            "--audit-log-truncate",
            self.audit_log_truncate_enabled,
            (self.audit_log_truncate_max_event_size, self.audit_log_truncate_max_batch_size),
            wrong,
        );
        let target = if path.as_os_str() == "-" { Target::Stdout } else { Target::File(path) };
        Some(LogOptions { target, format, rotation, mode, truncate })
    }

    fn webhook(&self, names: &Names, wrong: &mut ConfigErrors) -> (Option<Mode>, Option<Truncate>) {
        version("--audit-webhook-version", self.audit_webhook_version.as_deref(), names, wrong);
        let batch = Batch {
            options: "--audit-webhook-batch",
            buffer: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable,
            qps: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        };
        let mode = mode("--audit-webhook-mode", &self.audit_webhook_mode, &batch, wrong);
        let truncate = truncate(
            "--audit-webhook-truncate",
            self.audit_webhook_truncate_enabled,
            (self.audit_webhook_truncate_max_event_size, self.audit_webhook_truncate_max_batch_size),
            wrong,
        );
        (mode, truncate)
    }
}

/// The options of gathering, as they were given.
struct Batch {
    /// What their names begin with.
    options: &'static str,
    buffer: i64,
    max_size: i64,
    max_wait: Duration,
    throttle: bool,
    qps: f32,
    burst: i64,
}

impl Batch {
    /// Options that are not used are not looked at.
    fn read(&self, wrong: &mut ConfigErrors) -> Batching {
        let buffer = self.positive("buffer-size", self.buffer, wrong);
        let max_size = self.positive("max-size", self.max_size, wrong);
        let mut throttle = None;
        if self.throttle {
            let burst = self.positive("throttle-burst", self.burst, wrong);
            if !(self.qps > 0.0 && self.qps.is_finite()) {
                let option = format!("{}-throttle-qps", self.options);
                wrong.add(&option, format!("it must be more than 0, not {}", self.qps));
            }
            let burst = u32::try_from(burst).unwrap_or(u32::MAX);
            throttle = Some(Throttle { per_second: f64::from(self.qps), burst });
        }
        Batching { buffer, max_size, max_wait: self.max_wait, throttle }
    }

    fn positive(&self, name: &str, value: i64, wrong: &mut ConfigErrors) -> usize {
        if value <= 0 {
            wrong.add(&format!("{}-{name}", self.options), format!("it must be more than 0, not {value}"));
        }
        usize::try_from(value).unwrap_or(1)
    }
}

fn mode(option: &str, text: &str, batch: &Batch, wrong: &mut ConfigErrors) -> Option<Mode> {
    match text {
        "batch" => Some(Mode::Batch(batch.read(wrong))),
        "blocking" => Some(Mode::Blocking),
        "blocking-strict" => Some(Mode::BlockingStrict),
        other => {
            wrong.add(option, format!("{other:?} is no mode; there are {MODES}"));
            None
        }
    }
}

fn truncate(
    options: &str,
    enabled: bool,
    (event, batch): (i64, i64),
    wrong: &mut ConfigErrors,
) -> Option<Truncate> {
    if !enabled {
        return None;
    }
    if event <= 0 {
        let option = format!("{options}-max-event-size");
        wrong.add(&option, format!("it must be more than 0, not {event}"));
    }
    if batch < event {
        let option = format!("{options}-max-batch-size");
        wrong.add(&option, format!("a batch of {batch} bytes cannot hold an event of {event}"));
    }
    let bytes = |value| usize::try_from(value).unwrap_or(usize::MAX);
    Some(Truncate { max_event_bytes: bytes(event), max_batch_bytes: bytes(batch) })
}

fn version(option: &str, asked: Option<&str>, names: &Names, wrong: &mut ConfigErrors) {
    let only = format!("{}/v1", names.group("audit"));
    if let Some(text) = asked.filter(|text| *text != only) {
        wrong.add(option, format!("{text:?} is no version of events; there is {only}"));
    }
}

fn limit(option: &str, value: i64, wrong: &mut ConfigErrors) -> u64 {
    if value < 0 {
        wrong.add(option, format!("it cannot be less than 0, as {value} is"));
    }
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        audit: Audit,
    }

    fn read(line: &str) -> Result<audit::Options, String> {
        let read =
            Line::try_parse_from(format!("x {line}").split_whitespace()).map_err(|it| it.to_string())?;
        let mut wrong = ConfigErrors::default();
        let options = read.audit.read(&Names::kubernetes(), &Dialer::Direct, &mut wrong);
        wrong.check().map(|()| options).map_err(|why| why.to_string())
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
    fn wrong_values_are_told_all_at_once_and_only_where_they_matter() {
        assert!(read("--audit-log-mode never --audit-log-maxage -1").is_ok());
        let told = read(
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
            "--audit-webhook-mode: \"x\" is no mode; there are batch, blocking, blocking-strict",
            "--audit-webhook-version: \"v1\" is no version",
            "--audit-log-format: \"xml\" is no format",
            "--audit-log-maxsize: it cannot be less than 0",
            "--audit-log-maxage: ",
            "--audit-log-maxbackup: ",
            "--audit-log-batch-buffer-size: it must be more than 0",
            "--audit-log-batch-max-size: ",
            "--audit-log-batch-throttle-burst: ",
            "--audit-log-batch-throttle-qps: it must be more than 0, not 0",
            "--audit-log-truncate-max-event-size: ",
            "--audit-log-truncate-max-batch-size: a batch of -1 bytes",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        assert!(read("--audit-webhook-initial-backoff -3s").is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p");
        std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: all\n").unwrap();
        let told = read(&format!("--audit-policy-file {}", file.display())).err().unwrap();
        assert!(told.contains("--audit-policy-file: line 4: rules[0].level: \"all\" is no level"), "{told}");
    }
}
