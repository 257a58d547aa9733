//! Links the program at a fixed address: docs/decisions/024-static-binary.md.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo:rustc-link-arg-bin=pintle=-no-pie");
    }
}
