//! Bounds of an input: it ends the process if it panics, if it takes too long, or if the process takes too much memory. The
//! input is then in `artifacts/TARGET`.

use std::fs;
use std::path::Path;
use std::process::abort;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// An unoptimised program on a busy machine: only what never ends, or nearly never, takes so long.
const MAX_TIME: Duration = Duration::from_secs(300);
const MAX_MEMORY: u64 = 2 << 30;
const PAGE: u64 = 4096;

/// The input that is run, and since when.
static CURRENT: Mutex<Option<(Vec<u8>, Instant)>> = Mutex::new(None);

pub fn begin(input: &[u8]) {
    *current() = Some((input.to_vec(), Instant::now()));
}

pub fn end() {
    *current() = None;
}

fn current() -> std::sync::MutexGuard<'static, Option<(Vec<u8>, Instant)>> {
    CURRENT.lock().unwrap_or_else(|it| it.into_inner())
}

/// Ends the process at a panic, and when an input leaves its bounds.
pub fn watch(target: &'static str) {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        fail(target, "panic")
    }));
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(50));
            let is_late = current().as_ref().is_some_and(|(_, since)| since.elapsed() > MAX_TIME);
            if is_late {
                fail(target, "timeout");
            }
            if resident() > MAX_MEMORY {
                fail(target, "memory");
            }
        }
    });
}

/// The memory of this process; zero where the system does not say.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) * PAGE
}

fn fail(target: &str, reason: &str) -> ! {
    let input = current().take().map(|(input, _)| input).unwrap_or_default();
    let path = Path::new("artifacts").join(target).join(reason);
    match fs::write(&path, &input) {
        Ok(()) => eprintln!("{reason}: the input of {} bytes is in fuzz/{}", input.len(), path.display()),
        Err(why) => eprintln!("{reason}: the input is {input:?} (not written to {}: {why})", path.display()),
    }
    abort()
}
