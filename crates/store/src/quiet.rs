//! Calls into redb whose panics become errors and are not printed.
//!
//! redb does not promise to survive a damaged file without panicking. Such a panic is caught and becomes the error
//! of the call; a printed report would only hide the line that names the damaged file.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls redb; a panic becomes the error.
pub fn call<T>(engine: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    install();
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(engine));
    QUIET.set(before);
    result
}

/// Calls back out of redb: panics inside are reported as usual.
pub fn call_back<T>(back: impl FnOnce() -> T) -> T {
    let before = QUIET.replace(false);
    let result = back();
    QUIET.set(before);
    result
}

/// The message of a panic.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

/// Installs a panic hook before the current one, once.
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
