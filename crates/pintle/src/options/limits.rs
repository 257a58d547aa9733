//! Limits, timeouts, health checks and shutdown options.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::{flowcontrol, limits, serve};
use clap::Args;
use std::time::Duration;

/// The default maximum of concurrent streams of an HTTP/2 connection.
const STREAMS: u32 = 250;
/// Files reserved for the store, the log and outgoing connections.
const OWN_FILES: u64 = 128;
/// Ten years: practically no deadline, without arithmetic overflow.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 86_400);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits, health and shutdown")]
pub struct Limits {
    /// The maximum number of concurrent read requests, without watches; further ones get 429. 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pub max_requests_inflight: u32,

    /// The maximum number of concurrent write requests; further ones get 429. 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,

    /// Classify requests by flow schemas and queue them at priority levels, which share the sum of the two inflight
    /// limits. Otherwise each limit applies by itself
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,

    /// The timeout of requests, without watches; clients may ask for less
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "1m0s")]
    pub request_timeout: Duration,

    /// The minimum duration of a watch in seconds, unless its client asks for less. Each watch gets a random duration
    /// between this and twice this, which spreads reconnects
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub min_request_timeout: u32,

    /// The probability that a request gets a GOAWAY on its HTTP/2 connection (0 to 0.02), so that clients spread over
    /// several servers; 0.001 is a good start. Keep 0 with a single server
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0)]
    pub goaway_chance: f64,

    /// The maximum number of concurrent streams of an HTTP/2 connection; 0 for 250
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,

    /// The bytes per second of long-running responses, such as watches, on one connection; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub max_connection_bytes_per_sec: u64,

    /// How long the history of objects can be read and watched (the compaction interval); 0 keeps it until it takes too
    /// much space
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,

    /// The timeout of the store's check in /healthz and /livez
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub etcd_healthcheck_timeout: Duration,

    /// The timeout of the store's check in /readyz
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub etcd_readycheck_timeout: Duration,

    /// How long after the start /livez ignores start-up steps that are not finished
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub livez_grace_period: Duration,

    /// How long the server still serves after a stop signal: /readyz fails already, so that load balancers choose other
    /// servers
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub shutdown_delay_duration: Duration,

    /// Keep the port open during shutdown and answer new requests with Retry-After until the running ones are done
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub shutdown_send_retry_after: bool,
}

impl Limits {
    pub fn read(&self, errors: &mut ConfigErrors) -> limits::Options {
        if !(0.0..=0.02).contains(&self.goaway_chance) {
            errors.add("--goaway-chance", "must be between 0 and 0.02");
        }
        for (option, value) in [
            ("--request-timeout", self.request_timeout),
            ("--etcd-healthcheck-timeout", self.etcd_healthcheck_timeout),
            ("--etcd-readycheck-timeout", self.etcd_readycheck_timeout),
        ] {
            if value.is_zero() {
                errors.add(option, "must be greater than 0");
            }
        }
        limits::Options {
            reading: self.max_requests_inflight,
            writing: self.max_mutating_requests_inflight,
            request_timeout: self.request_timeout,
            min_request_timeout: Duration::from_secs(self.min_request_timeout.into()),
            goaway_chance: self.goaway_chance,
            history: match self.etcd_compaction_interval {
                Duration::ZERO => NO_DEADLINE,
                interval => interval,
            },
            livez_grace: self.livez_grace_period,
            store_health_timeout: self.etcd_healthcheck_timeout,
            store_ready_timeout: self.etcd_readycheck_timeout,
            shutdown_delay: self.shutdown_delay_duration,
            send_retry_after: self.shutdown_send_retry_after,
        }
    }

    /// The options of priority and fairness.
    pub fn flow_control(&self, gate: bool, errors: &mut ConfigErrors) -> flowcontrol::Options {
        let seats = self.max_requests_inflight.saturating_add(self.max_mutating_requests_inflight);
        let on = gate && self.enable_priority_and_fairness;
        if on && seats == 0 {
            let why = "the sum with --max-mutating-requests-inflight must be greater than 0 if priority and fairness is enabled";
            errors.add("--max-requests-inflight", why);
        }
        // a request may wait a quarter of its timeout
        flowcontrol::Options { on, queue_timeout: self.request_timeout / 4 }
    }

    /// The connection limits for a process with that limit of open files.
    pub fn connection_limits(&self, open_files: Option<u64>) -> serve::Limits {
        let own = serve::Limits::default();
        // at most half of a low limit: a connection without a file descriptor is not accepted
        let left = open_files.map_or(u64::MAX, |files| files.saturating_sub(OWN_FILES.min(files / 2)).max(1));
        serve::Limits {
            max_connections: own.max_connections.min(u32::try_from(left).unwrap_or(u32::MAX)),
            max_concurrent_streams: match self.http2_max_streams_per_connection {
                0 => STREAMS,
                count => count,
            },
            stream_bytes_per_second: self.max_connection_bytes_per_sec,
            // a request that is under way gets all the time that it would have had
            shutdown_grace: self.request_timeout,
            ..own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn read(line: &str) -> (limits::Options, serve::Limits, Result<(), String>) {
        let cli =
            Cli::read(format!("pintle up {line}").trim().split(' ').map(Into::into), crate::config_errors)
                .unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut errors = ConfigErrors::default();
        let options = up.server.limits.read(&mut errors);
        (options, up.server.limits.connection_limits(None), errors.check().map_err(|why| why.to_string()))
    }

    #[test]
    fn absent_options_keep_the_server_defaults() {
        let (options, connections, checked) = read("");
        assert_eq!((options, checked), (limits::Options::default(), Ok(())));
        let own = serve::Limits { shutdown_grace: Duration::from_secs(60), ..serve::Limits::default() };
        assert_eq!(connections, own);
    }

    #[test]
    fn every_option_is_parsed() {
        let (options, connections, checked) = read(
            "--max-requests-inflight=7 --max-mutating-requests-inflight=0 --request-timeout=90s \
             --min-request-timeout=60 --goaway-chance=0.001 --http2-max-streams-per-connection=9 \
             --max-connection-bytes-per-sec=1000 --etcd-compaction-interval=0 --etcd-healthcheck-timeout=1s \
             --etcd-readycheck-timeout=3s --livez-grace-period=1m --shutdown-delay-duration=20s \
             --shutdown-send-retry-after",
        );
        assert_eq!(checked, Ok(()));
        let seconds = Duration::from_secs;
        let expected = limits::Options {
            reading: 7,
            writing: 0,
            request_timeout: seconds(90),
            min_request_timeout: seconds(60),
            goaway_chance: 0.001,
            history: NO_DEADLINE,
            livez_grace: seconds(60),
            store_health_timeout: seconds(1),
            store_ready_timeout: seconds(3),
            shutdown_delay: seconds(20),
            send_retry_after: true,
        };
        assert_eq!(options, expected);
        assert_eq!((connections.max_concurrent_streams, connections.stream_bytes_per_second), (9, 1000));
        assert_eq!(connections.shutdown_grace, seconds(90));
    }

    #[test]
    fn connections_leave_files_for_the_rest() {
        let cli = Cli::read(["pintle", "up"].map(Into::into), crate::config_errors).unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        for (files, connections) in [
            (Some(1024), 896),
            (Some(1 << 20), 32_768),
            (Some(256), 128),
            (Some(255), 128),
            (Some(100), 50),
            (Some(10), 5),
            (Some(0), 1),
            (None, 32_768),
        ] {
            assert_eq!(up.server.limits.connection_limits(files).max_connections, connections, "{files:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_reported_at_once() {
        let (.., checked) = read("--goaway-chance=0.5 --request-timeout=0 --etcd-readycheck-timeout=0s");
        let message = checked.unwrap_err();
        for option in ["--goaway-chance: ", "--request-timeout: ", "--etcd-readycheck-timeout: "] {
            assert!(message.contains(option), "{message}");
        }
        assert!(read("--goaway-chance=NaN").2.is_err());
    }
}
