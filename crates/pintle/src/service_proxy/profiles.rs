//! `/debug/pprof/` of the proxy: what the process shows of itself. There is no profiler inside.

use http::StatusCode;
use network::http_server::Answer;

const INDEX: &str = "\
/debug/pprof/

cmdline    the command line that the process was started with
goroutine  tasks: how many there are, and how many wait for a thread
profile    where time is spent: not from inside, use a profiler on a build with symbols
";

const NO_PROFILE: &str = "\
There is no profiler in the proxy. A build with symbols can be looked at from outside while it runs:
  cargo build --profile profiling
  perf record -g -p PID -- sleep 30
";

/// The page of a path below `/debug/pprof`.
pub fn profile(page: &str) -> Answer {
    match page.trim_start_matches('/') {
        "" => Answer::text(INDEX),
        "cmdline" => Answer::text(std::env::args().collect::<Vec<_>>().join("\0")),
        "goroutine" => Answer::text(tasks()),
        "allocs" | "block" | "heap" | "mutex" | "profile" | "symbol" | "threadcreate" | "trace" => {
            Answer { status: StatusCode::NOT_IMPLEMENTED, ..Answer::text(NO_PROFILE) }
        }
        _ => Answer::not_found(),
    }
}

fn tasks() -> String {
    let numbers = tokio::runtime::Handle::current().metrics();
    let (tasks, waiting) = (numbers.num_alive_tasks(), numbers.global_queue_depth());
    format!("tasks: {tasks}\nwaiting for a thread: {waiting}\nthreads: {}\n", numbers.num_workers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_say_what_there_is() {
        let status = |page: &str| profile(page).status.as_u16();
        assert_eq!([status("/"), status("/goroutine"), status("/heap"), status("/x")], [200, 200, 501, 404]);
        assert!(profile("/goroutine").body.starts_with("tasks: "));
    }
}
