//! Names, manifests, indexes and configurations of images: read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime::images::{Descriptor, Digest, ImageConfig, ImageReference, ImageStore, UnpackLimits, reference};
use std::sync::LazyLock;

static STORE: LazyLock<ImageStore> = LazyLock::new(|| {
    let folder = fuzz::temporary::folder("images");
    ImageStore::open(&folder, UnpackLimits::default()).expect("an image store")
});

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    match choice % 4 {
        0 => {
            let Some(name) = fuzz::text(rest) else { return };
            let Ok(reference) = ImageReference::parse(name) else { return };
            let printed = reference.to_string();
            assert_eq!(ImageReference::parse(&printed).expect("own text parses"), reference, "{name}");
            let _ = reference::repository(name);
        }
        1 => {
            let Some(digest) = fuzz::text(rest).and_then(|it| Digest::parse(it).ok()) else { return };
            assert_eq!(Digest::parse(digest.as_str()).expect("own text parses"), digest);
            digest.hasher().finish();
        }
        2 => {
            if let Ok(config) = ImageConfig::parse(rest) {
                let _ = (config.chain_ids(), config.user());
            }
        }
        _ => {
            let store = &*STORE;
            let Ok(descriptor) = store.content.store(rest, "") else { return };
            read(store, &descriptor);
            store.content.retain(|_| false).expect("garbage goes");
        }
    }
});

fn read(store: &ImageStore, descriptor: &Descriptor) {
    if let Ok((_, manifest)) = store.manifest(descriptor) {
        let _ = manifest.content_size();
    }
    let _ = store.parse(descriptor);
}
