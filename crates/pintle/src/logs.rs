//! The log: format, verbosity, and filters.
//!
//! ```text
//! W1115 14:55:49.123456    1234 apiserver::serve:238] "requests did not finish in time" local="127.0.0.1:6443"
//! {"ts":1763218549123.456,"caller":"apiserver::serve:238","msg":"requests did not finish in time","v":0,...}
//! ```
//!
//! The formats are upstream's, so that log collectors work. Verbosity is a number as in upstream: 0 shows warnings and
//! errors, 1 and 2 events, 3 also requests, 4 details, from 6 on everything, from 8 on also the libraries. It can be
//! changed at run time.

use crate::flags::any_duration;
use crate::log_output::LogOutput;
use crate::options::gates::{LOGGING_GATE, STREAMS_GATE};
use crate::options::{ConfigErrors, FeatureGates};
use clap::{ArgAction, Args, ValueEnum};
use schema::quantity::Quantity;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

/// The environment variable that overrides all of this, in the syntax of tracing's filters.
const VARIABLE: &str = "PINTLE_LOG";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logs {
    /// The log verbosity: -v or -v=1 shows events, -v=3 requests, -v=4 details, -v=6 everything
    #[arg(short, long = "verbose", action = ArgAction::Count, alias = "v")]
    pub verbosity: u8,

    /// Log levels of single modules, comma-separated: apiserver::serve=4,store=6
    #[arg(long, value_name = "PART=LEVEL", value_delimiter = ',')]
    pub vmodule: Vec<String>,

    /// The format of the log
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Format::Text)]
    pub logging_format: Format,

    /// In JSON, write errors to standard error and all other lines to standard output; needs the feature gate
    /// LoggingAlphaOptions
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub log_json_split_stream: bool,

    /// The size of the buffer for standard output in split streams, such as 64Ki, or 0 for none; needs the feature gate
    /// LoggingAlphaOptions
    #[arg(long, value_name = "QUANTITY", value_parser = byte_size, default_value = "0")]
    pub log_json_info_buffer_size: usize,

    /// How often the buffer of split streams is written
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5s")]
    pub log_flush_frequency: Duration,
}

impl Default for Logs {
    fn default() -> Self {
        Logs {
            verbosity: 0,
            vmodule: Vec::new(),
            logging_format: Format::default(),
            log_json_split_stream: false,
            log_json_info_buffer_size: 0,
            log_flush_frequency: Duration::from_secs(5),
        }
    }
}

/// Parses a number of bytes; a negative one is zero.
pub fn byte_size(text: &str) -> Result<usize, String> {
    let size: Quantity = text.parse().map_err(|_| "must be a quantity, such as 64Ki".to_owned())?;
    Ok(usize::try_from(size.whole()).unwrap_or(0))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

fn level(text: &str) -> Result<u8, String> {
    let number: i32 = text.parse().map_err(|_| "the level must be a number".to_owned())?;
    Ok(number.clamp(0, i32::from(u8::MAX)) as u8)
}

/// The minimum severity at a verbosity.
fn minimum_level(level: u8) -> &'static str {
    match level {
        0 => "warn",
        1..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

impl Logs {
    /// Checks that the feature gates allow the options.
    pub fn check(&self, gates: &FeatureGates, errors: &mut ConfigErrors) {
        if self.logging_format == Format::Json && !gates.is_named_open(LOGGING_GATE) {
            errors
                .add("--logging-format", format!("--feature-gates {LOGGING_GATE}=true is required for json"));
        }
        let options = [
            ("--log-json-split-stream", self.log_json_split_stream),
            ("--log-json-info-buffer-size", self.log_json_info_buffer_size > 0),
        ];
        for (option, _) in options.iter().filter(|(_, set)| *set && !gates.is_named_open(STREAMS_GATE)) {
            errors.add(option, format!("--feature-gates {STREAMS_GATE}=true is required"));
        }
    }

    fn output(&self) -> LogOutput {
        if self.logging_format == Format::Json && self.log_json_split_stream {
            LogOutput::split(self.log_json_info_buffer_size, self.log_flush_frequency)
        } else {
            LogOutput::Stderr
        }
    }

    /// The modules and their levels as filter directives.
    fn modules(&self, errors: &mut ConfigErrors) -> String {
        let mut out = String::new();
        for pair in self.vmodule.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty()) {
            let read = pair.split_once('=').and_then(|(part, text)| Some((part, level(text).ok()?)));
            let named = |part: &str| part.bytes().all(|c| c.is_ascii_alphanumeric() || b"_:".contains(&c));
            match read {
                Some((part, level)) if named(part) => {
                    // writing to a string cannot fail
                    let _ = write!(out, ",{part}={}", minimum_level(level));
                }
                _ => errors.add("--vmodule", format!("{pair:?} is not MODULE=LEVEL, such as store=4")),
            }
        }
        out
    }
}

fn filter(level: u8, modules: &str) -> EnvFilter {
    let requests = if level < 3 { ",access=off" } else { "" };
    let libraries = match level {
        4..=7 => ",h2=info,hyper=info,hyper_util=info,rustls=info,tokio=info,tower=info",
        _ => "",
    };
    EnvFilter::new(format!("{}{requests}{libraries}{modules}", minimum_level(level)))
}

/// The verbosity, which can be changed at run time.
#[derive(Clone)]
pub struct Verbosity {
    now: Arc<AtomicU8>,
    change: Arc<dyn Fn(u8) + Send + Sync>,
}

impl Verbosity {
    /// One that changes nothing, for a process with a log of its own.
    pub fn fixed() -> Self {
        Verbosity { now: Arc::default(), change: Arc::new(|_| ()) }
    }

    /// Sets the verbosity from a number in text.
    pub fn set(&self, text: &str) -> Result<u8, String> {
        let number = level(text.trim())?;
        (self.change)(number);
        self.now.store(number, Ordering::Relaxed);
        Ok(number)
    }
}

/// Initializes the log.
pub fn init(args: &Logs, errors: &mut ConfigErrors) -> Verbosity {
    let modules = args.modules(errors);
    let given = EnvFilter::try_from_env(VARIABLE).ok();
    let (layer, handle) = reload::Layer::new(given.unwrap_or_else(|| filter(args.verbosity, &modules)));
    let lines = tracing_subscriber::fmt::layer().event_format(args.logging_format).with_writer(args.output());
    // the error would mean that a log is set up already
    let _ = tracing_subscriber::registry().with(layer).with(lines).try_init();
    let change = move |level| {
        // the error would mean that the log is gone
        let _ = handle.reload(filter(level, &modules));
    };
    Verbosity { now: Arc::new(AtomicU8::new(args.verbosity)), change: Arc::new(change) }
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields_of_event = EventFields { form: *self, ..EventFields::default() };
        event.record(&mut fields_of_event);
        let meta = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (target, line) = (meta.target(), meta.line().unwrap_or(0));
        let EventFields { message, fields, .. } = fields_of_event;
        match self {
            Format::Text => {
                let letter = match *meta.level() {
                    Level::ERROR => 'E',
                    Level::WARN => 'W',
                    _ => 'I',
                };
                let at = time::UtcDateTime::UNIX_EPOCH + now;
                let (month, day) = (u8::from(at.month()), at.day());
                let (hour, minute, second, micro) = (at.hour(), at.minute(), at.second(), at.microsecond());
                let process = std::process::id();
                write!(
                    writer,
                    "{letter}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micro:06} {process:7} \
                     {target}:{line}] {message:?}{fields}"
                )?;
            }
            Format::Json => {
                let ts = now.as_micros() as f64 / 1000.0;
                let message = quoted(&message);
                write!(writer, "{{\"ts\":{ts:.3},\"caller\":\"{target}:{line}\",\"msg\":{message}")?;
                match *meta.level() {
                    Level::ERROR => write!(writer, ",\"level\":\"error\"")?,
                    Level::WARN => write!(writer, ",\"level\":\"warn\",\"v\":0")?,
                    Level::INFO => write!(writer, ",\"v\":0")?,
                    Level::DEBUG => write!(writer, ",\"v\":4")?,
                    Level::TRACE => write!(writer, ",\"v\":6")?,
                }
                write!(writer, "{fields}}}")?;
            }
        }
        writeln!(writer)
    }
}

/// The message and the formatted fields of an event.
#[derive(Default)]
struct EventFields {
    form: Format,
    message: String,
    fields: String,
}

impl EventFields {
    fn text(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
            return;
        }
        // writing to a string cannot fail
        let _ = match self.form {
            Format::Text => write!(self.fields, " {}={value:?}", field.name()),
            Format::Json => write!(self.fields, ",{}:{}", quoted(field.name()), quoted(value)),
        };
    }

    fn bare(&mut self, field: &Field, value: &dyn fmt::Display) {
        let _ = match self.form {
            Format::Text => write!(self.fields, " {}={value}", field.name()),
            Format::Json => write!(self.fields, ",{}:{value}", quoted(field.name())),
        };
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.bare(field, &value),
            false => self.text(field, &value.to_string()),
        }
    }
}

/// Quotes a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(form: Format, level: u8, modules: &str) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(form).with_writer(move || to.clone());
        let subscriber = tracing_subscriber::registry().with(filter(level, modules)).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(count = 3, why = "a \"b\"\n", "something is odd");
            tracing::info!(fine = true, "it happens");
            tracing::info!(target: "access", verb = "GET", "HTTP");
            tracing::debug!(target: "store", "why");
        });
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    #[test]
    fn lines_have_the_format_of_collectors() {
        let text = logged(Format::Text, 0, "");
        let (head, rest) = text.trim_end().split_once("] ").unwrap();
        assert_eq!(rest, "\"something is odd\" count=3 why=\"a \\\"b\\\"\\n\"");
        assert!(head.starts_with('W') && head.contains(" pintle::logs::tests:"), "{head}");
        let json = logged(Format::Json, 0, "");
        let decoded = schema::decode::json_untyped(json.trim_end().as_bytes()).unwrap().value;
        assert_eq!(decoded.text(&["msg"]), "something is odd");
        assert_eq!(decoded.text(&["why"]), "a \"b\"\n");
        assert_eq!(decoded.at(&["count"]).and_then(schema::Value::as_int), Some(3));
    }

    #[test]
    fn higher_levels_log_more() {
        let logged_words = |level, modules: &str| {
            let text = logged(Format::Text, level, modules);
            ["odd", "happens", "HTTP", "why\""].map(|word| text.contains(word))
        };
        assert_eq!(logged_words(0, ""), [true, false, false, false]);
        assert_eq!(logged_words(2, ""), [true, true, false, false]);
        assert_eq!(logged_words(3, ""), [true, true, true, false]);
        assert_eq!(logged_words(4, ""), [true, true, true, true]);
        assert_eq!(logged_words(0, ",store=debug"), [true, false, false, true]);
    }

    #[test]
    fn levels_are_numbers() {
        assert_eq!([level("3"), level("-1"), level("999")].map(Result::unwrap), [3, 0, 255]);
        assert!(level("much").is_err());
        let mut errors = ConfigErrors::default();
        let vmodule = ["store=4", "a*=2", "x"].map(str::to_owned).to_vec();
        let logs = Logs { vmodule, ..Logs::default() };
        assert_eq!(logs.modules(&mut errors), ",store=debug");
        let message = errors.check().unwrap_err().to_string();
        assert!(message.contains("\"a*=2\"") && message.contains("\"x\""), "{message}");
    }
}
