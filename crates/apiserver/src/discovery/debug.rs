//! Debug pages: `/debug/pprof/` and `/debug/flags/`.
//!
//! Served unless `--profiling` is off, to users who may read these paths. Each page describes itself; pages
//! that would need a profiler are not served ([docs/decisions](../../../../docs/decisions/README.md)).

use crate::handle::plain_text::text;
use crate::options::observability::Verbosity;
use crate::serve::Body;
use http::{HeaderValue, Method, Response, header};

const PROFILES: &str = "/debug/pprof";
const FLAGS: &str = "/debug/flags";

const INDEX: &str = "\
/debug/pprof/

cmdline    the command line that the process was started with
goroutine  tasks: how many there are, and how many wait for a thread
heap       memory usage by resource or by queue
profile    where time is spent: not from inside, use a profiler on a build with symbols
trace      not from inside: see --tracing-config-file for spans of requests
";

const NO_PROFILE: &str = "\
There is no profiler in the server. A build with symbols can be looked at from outside while it runs:
  cargo build --profile profiling
  perf record -g -p PID -- sleep 30
";

/// The data behind the debug pages.
pub struct DebugData<'a> {
    /// The command line of the process.
    pub command: &'a [String],
    /// Sets the log level.
    pub verbosity: Option<&'a Verbosity>,
    /// Memory usage, as a table.
    pub memory_usage: &'a dyn Fn() -> String,
}

impl DebugData<'_> {
    /// The page of a path; `None` if there is no such page.
    pub fn page(&self, method: &Method, path: &str, body: &[u8]) -> Option<Response<Body>> {
        match path.strip_prefix(FLAGS) {
            Some(rest) => self.flag(method, rest, body),
            None => self.profile(path.strip_prefix(PROFILES)?),
        }
    }

    fn profile(&self, rest: &str) -> Option<Response<Body>> {
        Some(match rest {
            "" => {
                let mut response = text(302, String::new());
                response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/debug/pprof/"));
                response
            }
            "/" => text(200, INDEX.to_owned()),
            "/cmdline" => text(200, self.command.join("\0")),
            "/goroutine" => text(200, tasks()),
            "/heap" | "/allocs" => text(200, (self.memory_usage)()),
            "/profile" | "/trace" | "/symbol" | "/block" | "/mutex" | "/threadcreate" => {
                text(501, NO_PROFILE.to_owned())
            }
            _ => return None,
        })
    }

    /// `/debug/flags/v` sets the log level.
    fn flag(&self, method: &Method, rest: &str, body: &[u8]) -> Option<Response<Body>> {
        match (rest, self.verbosity) {
            ("" | "/", _) => Some(text(200, "/debug/flags/\n\nv  how much is logged\n".to_owned())),
            ("/v", Some(_)) if method != Method::PUT => {
                Some(text(406, "unsupported http method\n".to_owned()))
            }
            ("/v", Some(change)) => Some(match change(&String::from_utf8_lossy(body)) {
                Ok(level) => text(200, format!("successfully set klog.logging.verbosity to {level}\n")),
                Err(why) => text(400, format!("{why}\n")),
            }),
            _ => None,
        }
    }
}

fn tasks() -> String {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return String::new() };
    let numbers = runtime.metrics();
    format!(
        "tasks: {}\nwaiting for a thread: {}\nthreads: {}\n",
        numbers.num_alive_tasks(),
        numbers.global_queue_depth(),
        numbers.num_workers()
    )
}
