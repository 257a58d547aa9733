//! The macro by which a target is declared.

/// Defines two functions, where that of libFuzzer defines the entry points of a program.
macro_rules! fuzz_target {
    (init: $init:expr, |$data:ident: &[u8]| $body:block) => {
        pub fn prepare_target() {
            $init;
        }

        pub fn run_input($data: &[u8]) {
            $body
        }
    };
    (|$data:ident: &[u8]| $body:block) => {
        $crate::fuzz_target!(init: (), |$data: &[u8]| $body);
    };
}

pub(crate) use fuzz_target;
