//! Pages by which an operator looks into a running server: `/debug/pprof/` and `/debug/flags/`.
//!
//! They are there unless `--profiling` is off, for those who may read such paths. Each says what it shows; what needs
//! a profiler is not pretended ([docs/decisions](../../../../docs/decisions/README.md)).

use crate::handle::{Call, Service, text};
use crate::serve::Body;
use http::{HeaderValue, Method, Response, header};
use std::fmt::Write as _;

const PROFILES: &str = "/debug/pprof";
const FLAGS: &str = "/debug/flags";

const INDEX: &str = "\
/debug/pprof/

cmdline    the command line that the process was started with
goroutine  tasks: how many there are, and how many wait for a thread
heap       what the caches hold, by resource
profile    where time is spent: not from inside, use a profiler on a build with symbols
trace      not from inside: see --tracing-config-file for spans of requests
";

const NO_PROFILE: &str = "\
There is no profiler in the server. A build with symbols can be looked at from outside while it runs:
  cargo build --profile profiling
  perf record -g -p PID -- sleep 30
";

/// A page by its path; none where there is no such page.
pub(crate) fn page(service: &Service, call: &Call<'_>) -> Option<Response<Body>> {
    let path = call.asked.path.as_str();
    if let Some(rest) = path.strip_prefix(FLAGS) {
        return flag(rest, service, call);
    }
    let rest = path.strip_prefix(PROFILES)?;
    Some(match rest {
        "" => {
            let mut response = text(302, String::new());
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/debug/pprof/"));
            response
        }
        "/" => text(200, INDEX.to_owned()),
        "/cmdline" => text(200, service.command.join("\0")),
        "/goroutine" => text(200, tasks()),
        "/heap" | "/allocs" => text(200, holdings(service)),
        "/profile" | "/trace" | "/symbol" | "/block" | "/mutex" | "/threadcreate" => {
            text(501, NO_PROFILE.to_owned())
        }
        _ => return None,
    })
}

/// `/debug/flags/v` takes how much is logged.
fn flag(rest: &str, service: &Service, call: &Call<'_>) -> Option<Response<Body>> {
    match (rest, &service.verbosity) {
        ("" | "/", _) => Some(text(200, "/debug/flags/\n\nv  how much is logged\n".to_owned())),
        ("/v", Some(_)) if call.asked.method != Method::PUT => {
            Some(text(406, "unsupported http method\n".to_owned()))
        }
        ("/v", Some(change)) => Some(match change(&String::from_utf8_lossy(&call.body)) {
            Ok(level) => text(200, format!("successfully set klog.logging.verbosity to {level}\n")),
            Err(why) => text(400, format!("{why}\n")),
        }),
        _ => None,
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

fn holdings(service: &Service) -> String {
    let mut lines: Vec<_> = service
        .api
        .storage
        .collections()
        .iter()
        .map(|collection| (collection.prefix.clone(), collection.cache.stats()))
        .collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut out = "objects  events kept  bytes of events  pages  watches  collection\n".to_owned();
    for (prefix, stats) in lines {
        // writing to a string cannot fail
        let _ = writeln!(
            out,
            "{:7}  {:11}  {:15}  {:5}  {:7}  {prefix}",
            stats.objects, stats.ring_events, stats.ring_bytes, stats.pins, stats.watchers
        );
    }
    out
}
