//! Generates the messages, clients and servers of the crate `grpc` from its `.proto` files.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let protos = root.join("proto");
    let out = root.join("src/generated");
    for name in [
        "containerd_events",
        "cri",
        "csi",
        "device_plugin",
        "etcd",
        "health",
        "kms_v1beta1",
        "kms_v2alpha1",
        "konnectivity",
        "otlp_trace",
        "plugin_registration",
        "pod_resources_v1",
        "pod_resources_v1alpha1",
    ] {
        let file = protos.join(name).with_extension("proto");
        let descriptors = protox::compile([&file], [&protos])?;
        // one file at a time: the generator names its output by package
        let into = tempdir(&out, name)?;
        tonic_prost_build::configure()
            .bytes(".")
            .btree_map(".")
            .build_transport(false)
            // the fake etcd of tests serves a part of the protocol
            .generate_default_stubs(name == "etcd")
            .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
            .out_dir(&into)
            .compile_fds(descriptors)?;
        let written = std::fs::read_dir(&into)?.next().ok_or("nothing was generated")??.path();
        std::fs::rename(written, out.join(name).with_extension("rs"))?;
        std::fs::remove_dir_all(into)?;
    }
    Ok(())
}

fn tempdir(out: &Path, name: &str) -> std::io::Result<std::path::PathBuf> {
    let path = out.join(format!(".{name}"));
    std::fs::create_dir_all(&path)?;
    Ok(path)
}
