//! How much is taken on at a time and for how long, and how the server begins and ends.

use super::ConfigErrors;
use crate::flags::any_duration;
use apiserver::{flowcontrol, limits, serve};
use clap::Args;
use std::time::Duration;

/// Requests at a time on one HTTP/2 connection, unless the operator says otherwise.
const STREAMS: u32 = 250;
/// Files that are open beside connections: the store, the log, calls to others.
const OWN_FILES: u64 = 128;
/// As good as for ever, and far from where arithmetic ends.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 365 * 86_400);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits, health and the end")]
pub struct Limits {
    /// How many requests that only read are carried out at a time, watches aside; those beyond are told to come back.
    /// 0 is no limit
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pub max_requests_inflight: u32,

    /// The same for requests that write
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,

    /// Whether requests are told apart by flow schemas and wait for their turn at priority levels, which share the sum
    /// of those two numbers. Otherwise each number is a limit by itself
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,

    /// How long a request may take, watches aside; clients may ask for less
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "1m0s")]
    pub request_timeout: Duration,

    /// How many seconds a watch lasts at least, unless its client asks for less. Each gets a random time between this
    /// and twice this, so that not all come back at once
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub min_request_timeout: u32,

    /// How likely a request over HTTP/2 is to be the last on its connection (0 to 0.02), so that clients spread over
    /// several servers; 0.001 is a good start. Leave it off with a single server
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0)]
    pub goaway_chance: f64,

    /// How many requests an HTTP/2 client may have open on one connection; 0 is 250
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,

    /// How many bytes per second a connection gets of what lasts, such as watches; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub max_connection_bytes_per_sec: u64,

    /// How long replaced and deleted objects can still be read and watched from; 0 keeps them until they take too much
    /// room
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,

    /// How long the store may take to answer before /healthz and /livez call it down
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub etcd_healthcheck_timeout: Duration,

    /// How long the store may take to answer before /readyz calls it down
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub etcd_readycheck_timeout: Duration,

    /// How long after the start /livez takes for granted that the start will succeed
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub livez_grace_period: Duration,

    /// How long the server goes on after it was told to stop: it answers everything but is no longer ready, so that
    /// balancers look elsewhere first
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    pub shutdown_delay_duration: Duration,

    /// Keep the port open at the end and tell new requests to come back later, until the present ones are done
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub shutdown_send_retry_after: bool,
}

impl Limits {
    pub fn read(&self, wrong: &mut ConfigErrors) -> limits::Options {
        if !(0.0..=0.02).contains(&self.goaway_chance) {
            wrong.add("--goaway-chance", "it is between 0 and 0.02");
        }
        for (option, value) in [
            ("--request-timeout", self.request_timeout),
            ("--etcd-healthcheck-timeout", self.etcd_healthcheck_timeout),
            ("--etcd-readycheck-timeout", self.etcd_readycheck_timeout),
        ] {
            if value.is_zero() {
                wrong.add(option, "it must be more than nothing");
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

    /// Whose request is next.
    pub fn of_turns(&self, gate: bool, wrong: &mut ConfigErrors) -> flowcontrol::Options {
        let seats = self.max_requests_inflight.saturating_add(self.max_mutating_requests_inflight);
        let on = gate && self.enable_priority_and_fairness;
        if on && seats == 0 {
            let why = "together with --max-mutating-requests-inflight it must be more than 0 where priority and fairness is on";
            wrong.add("--max-requests-inflight", why);
        }
        // a quarter of its time is what a request may wait
        flowcontrol::Options { on, patience: self.request_timeout / 4 }
    }

    /// What connections may do, where the process may have so many files open.
    pub fn of_connections(&self, open_files: Option<u64>) -> serve::Limits {
        let own = serve::Limits::default();
        // half of a few: connections that find no file are neither accepted nor told
        let left = open_files.map_or(u64::MAX, |files| files.saturating_sub(OWN_FILES.min(files / 2)).max(1));
        serve::Limits {
            max_connections: own.max_connections.min(u32::try_from(left).unwrap_or(u32::MAX)),
            max_concurrent_streams: match self.http2_max_streams_per_connection {
                0 => STREAMS,
                count => count,
            },
            lasting_bytes_per_second: self.max_connection_bytes_per_sec,
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
        let cli = Cli::read(format!("pintle up {line}").trim().split(' ').map(Into::into)).unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        let mut wrong = ConfigErrors::default();
        let options = up.server.limits.read(&mut wrong);
        (options, up.server.limits.of_connections(None), wrong.check().map_err(|why| why.to_string()))
    }

    #[test]
    fn what_is_not_said_is_the_servers_own() {
        let (options, connections, checked) = read("");
        assert_eq!((options, checked), (limits::Options::default(), Ok(())));
        let own = serve::Limits { shutdown_grace: Duration::from_secs(60), ..serve::Limits::default() };
        assert_eq!(connections, own);
    }

    #[test]
    fn everything_can_be_said() {
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
        assert_eq!((connections.max_concurrent_streams, connections.lasting_bytes_per_second), (9, 1000));
        assert_eq!(connections.shutdown_grace, seconds(90));
    }

    #[test]
    fn connections_leave_files_for_the_rest() {
        let cli = Cli::read(["pintle", "up"].map(Into::into)).unwrap();
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
            assert_eq!(up.server.limits.of_connections(files).max_connections, connections, "{files:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let (.., checked) = read("--goaway-chance=0.5 --request-timeout=0 --etcd-readycheck-timeout=0s");
        let told = checked.unwrap_err();
        for option in ["--goaway-chance: ", "--request-timeout: ", "--etcd-readycheck-timeout: "] {
            assert!(told.contains(option), "{told}");
        }
        assert!(read("--goaway-chance=NaN").2.is_err());
    }
}
