//! Layers of an image: nothing is written outside of their folder, and limits hold.

#![no_main]

use fuzz::temporary::{FOLDER, folder};
use libfuzzer_sys::fuzz_target;
use runtime::images::{ContentStore, Digest, ImageConfig, LayerStore, UnpackLimits};
use std::fs;

fuzz_target!(|data: &[u8]| {
    let root = folder("store");
    let canary = fuzz::temporary::file("canary", b"as it was");
    let limits = UnpackLimits { bytes: 1 << 20, entries: 100 };
    let content = ContentStore::open(&root.join("content")).expect("a content store");
    let layers = LayerStore::open(&root.join("layers"), limits).expect("a layer store");
    let Ok(layer) = content.store(data, "application/vnd.oci.image.layer.v1.tar") else { return };
    let config = format!(r#"{{"rootfs":{{"diff_ids":["{}"]}}}}"#, Digest::of(data));
    let config = ImageConfig::parse(config.as_bytes()).expect("a configuration");
    if layers.unpack(&content, &layer, &config, 0).is_ok() {
        let usage = layers.usage(&config.chain_ids()[0]);
        assert!(usage.bytes <= 64 << 20 && usage.inodes <= 10_000, "{usage:?}");
    }
    assert_eq!(fs::read(&canary).expect("the canary"), b"as it was");
    let outside = fs::read_dir(&*FOLDER).expect("the folder").count();
    assert_eq!(outside, 2, "files beside the store");
});
