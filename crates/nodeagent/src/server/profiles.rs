//! `/debug/pprof/`: what the process shows of itself. There is no profiler inside.

use super::body::{self, Body};
use super::service::Service;
use http::{Response, StatusCode};

const NO_PROFILE: &str = "\
There is no profiler in the agent. A build with symbols can be looked at from outside while it runs:
  cargo build --profile profiling
  perf record -g -p PID -- sleep 30
";

/// The page of a path.
pub fn profile(service: &Service, path: &str) -> Response<Body> {
    let page = path.strip_prefix("/debug/pprof").unwrap_or_default().trim_start_matches('/');
    match page {
        "cmdline" => body::text(StatusCode::OK, service.deps.command_line.join("\0")),
        "goroutine" => body::text(StatusCode::OK, tasks()),
        "allocs" | "block" | "heap" | "mutex" | "profile" | "symbol" | "threadcreate" | "trace" => {
            body::text(StatusCode::NOT_IMPLEMENTED, NO_PROFILE)
        }
        _ => body::not_found(),
    }
}

fn tasks() -> String {
    let numbers = tokio::runtime::Handle::current().metrics();
    format!(
        "tasks: {}\nwaiting for a thread: {}\nthreads: {}\n",
        numbers.num_alive_tasks(),
        numbers.global_queue_depth(),
        numbers.num_workers()
    )
}
