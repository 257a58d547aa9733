//! Runs the inputs of a target that are the same in every run: `fuzz-ci TARGET RUNS`, in the folder `fuzz`.
//!
//! First come `regressions/TARGET` and `corpus/TARGET`, then mutations of them up to so many runs in all. Inputs depend on
//! these files and on the name of the target alone: not on chance, and not on the code that others reached.
//!
//! A target's file is the same as with libFuzzer. For it this program is both the crate `fuzz`, whose modules it has, and
//! `libfuzzer_sys`, whose macro it defines in a way of its own.

extern crate self as fuzz;
extern crate self as libfuzzer_sys;

mod bounds;
mod inputs;
mod macros;
#[path = "../../src/lib.rs"]
mod shared;

use inputs::Inputs;
pub(crate) use macros::fuzz_target;
pub use shared::*;
use std::process::exit;

/// Declares the targets: each has a file of its name.
macro_rules! targets {
    ($($name:ident)*) => {
        #[path = "../../fuzz_targets"]
        #[allow(unused_attributes, clippy::duplicate_mod, reason = "with libFuzzer a target is the root of a program")]
        mod targets {
            $(pub mod $name;)*
        }

        const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            init: targets::$name::prepare_target,
            run: targets::$name::run_input,
        }),*];
    };
}

targets! {
    apply cel certificate cni cri_answers cri_requests cron custom_resource dbus dns encryption etcd_answers etcd_requests
    http1 http2 image_documents image_layers json json_patch jsonpath kubeconfig managed_fields merge_patch
    node_configuration object object_proto pattern proto_prost quantity selectors spdy store_pages store_snapshot
    stored_values strategic_patch time tokens url websocket yaml
}

struct Target {
    name: &'static str,
    init: fn(),
    run: fn(&[u8]),
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, runs] = &arguments[..] else { usage() };
    let (Some(target), Ok(runs)) = (TARGETS.iter().find(|it| it.name == name), runs.parse()) else { usage() };
    bounds::watch(target.name);
    (target.init)();
    let mut inputs = Inputs::read(target.name).unwrap_or_else(|why| {
        eprintln!("cannot read the inputs of {name}: {why}");
        exit(1)
    });
    let (count, mut digest) = (inputs.len().max(runs), 0);
    for at in 0..count {
        let input = inputs.get(at);
        digest = inputs::digest(digest, &input);
        bounds::begin(&input);
        (target.run)(&input);
        bounds::end();
    }
    println!("stat::digest_of_inputs: {digest:016x}");
    println!("stat::number_of_executed_units: {count}");
    // without the destructors of servers that are still running
    exit(0)
}

fn usage() -> ! {
    eprintln!("usage: fuzz-ci TARGET RUNS");
    exit(2)
}
