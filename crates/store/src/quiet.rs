//! Calls into the engine, whose panics are errors like others and are not printed.
//!
//! redb does not promise to survive a damaged file without panicking. Such a panic is caught and becomes the error of
//! the call; its report, with or without a backtrace, would only hide the line that says which file is damaged.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls the engine. An error is what a panic said.
pub(crate) fn call<T>(engine: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    install();
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(engine));
    QUIET.set(before);
    result
}

/// Calls back out of the engine: panics in there are reported as everywhere else.
pub(crate) fn call_back<T>(back: impl FnOnce() -> T) -> T {
    let before = QUIET.replace(false);
    let result = back();
    QUIET.set(before);
    result
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

/// Puts a hook before the one that there is, once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let reporting = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                reporting(panic);
            }
        }));
    });
}
