//! Tests of whole images: archives in, unpacked layers and archives out.

use super::manifest::{OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use super::tar::EntryKind;
use super::tar_writer::{TarWriter, entry};
use super::*;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: unpacking needs root");
    }
    is_root
}

fn open(folder: &tempfile::TempDir) -> ImageStore {
    ImageStore::open(&folder.path().join("store"), UnpackLimits { bytes: 1 << 24, entries: 1000 }).unwrap()
}

/// A layer of files and deletions.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = TarWriter::new(Vec::new());
    for (path, data) in files {
        writer.append(&mut entry(EntryKind::File, path), data.as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

fn config(layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<_> = layers.iter().map(|it| Digest::of(it)).collect();
    let config = json!({
        "architecture": Platform::current().architecture, "os": "linux",
        "config": {"Cmd": ["/bin/app"], "Env": ["A=b"], "User": "app"},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    config.to_string().into_bytes()
}

/// Three layers, the second in gzip and the third in zstd; files are replaced and deleted on the way up.
fn layers() -> Vec<Vec<u8>> {
    vec![
        layer(&[("bin/app", "one"), ("etc/a", "a"), ("etc/b", "b"), ("data/x", "x")]),
        layer(&[("etc/.wh.a", ""), ("bin/app", "two")]),
        layer(&[("data/.wh..wh..opq", ""), ("data/y", "y")]),
    ]
}

/// An archive in the form of an OCI layout.
fn layout(layers: &[Vec<u8>], name: &str) -> Vec<u8> {
    let stored: Vec<_> = vec![layers[0].clone(), gzip(&layers[1]), zstd(&layers[2])];
    let config = config(layers);
    let descriptor =
        |kind: &str, data: &[u8]| json!({"mediaType": kind, "digest": Digest::of(data), "size": data.len()});
    let described: Vec<_> = stored.iter().map(|it| descriptor(OCI_LAYER, it)).collect();
    let manifest =
        json!({"schemaVersion": 2, "config": descriptor(OCI_CONFIG, &config), "layers": described});
    let manifest = manifest.to_string().into_bytes();
    let mut target = descriptor(OCI_MANIFEST, &manifest);
    target["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [target]}).to_string();
    let mut writer = TarWriter::new(Vec::new());
    let mut add = |path: &str, data: &[u8]| writer.append(&mut entry(EntryKind::File, path), data).unwrap();
    add("index.json", index.as_bytes());
    for data in stored.iter().chain([&config, &manifest]) {
        add(&format!("blobs/sha256/{}", Digest::of(data).hex()), data);
    }
    writer.finish().unwrap()
}

fn write(folder: &tempfile::TempDir, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, data).unwrap();
    path
}

type Reports = Arc<Mutex<Vec<(u64, Option<u64>)>>>;

fn recorded_progress() -> (CopyProgress, Reports) {
    let seen = Reports::default();
    let recorded = seen.clone();
    (Arc::new(move |done, all| recorded.lock().push((done, all))), seen)
}

#[test]
fn an_oci_layout_is_imported_flattened_and_exported() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let archive = write(&folder, "image.tar.gz", &gzip(&layout(&layers(), "r.test/app:1")));
    let (progress, seen) = recorded_progress();
    assert_eq!(import_with_progress(&store, &archive, None, progress).unwrap(), ["r.test/app:1"]);
    let size = fs::metadata(&archive).unwrap().len();
    assert_eq!(seen.lock().last(), Some(&(size, Some(size))));
    let image = store.find("r.test/app:1").unwrap().unwrap();
    assert_eq!(image.id, Digest::of(&config(&layers())));
    assert_eq!(image.parsed.config.config.cmd, ["/bin/app"]);
    assert_eq!(store.find(&image.id.hex()[..12]).unwrap().as_ref(), Some(&image));
    let chain = store.unpacked_layers(&image.parsed).unwrap();
    let paths: Vec<_> = chain.iter().map(|it| store.layers.files(it)).collect();
    let target = folder.path().join("flat");
    fs::create_dir(&target).unwrap();
    flatten(&paths, &target).unwrap();
    let read = |path: &str| fs::read_to_string(target.join(path)).ok();
    assert_eq!(read("bin/app").as_deref(), Some("two"));
    assert_eq!((read("etc/a"), read("etc/b").as_deref()), (None, Some("b")));
    assert_eq!((read("data/x"), read("data/y").as_deref()), (None, Some("y")));

    let mut exported = Vec::new();
    let (progress, seen) = recorded_progress();
    export(&store, &["r.test/app:1".to_owned()], &mut exported, progress).unwrap();
    let content: u64 = image.parsed.manifest.content_size();
    assert!(seen.lock().last().is_some_and(|(done, all)| *done >= content && all.is_none()));
    let other = tempfile::tempdir().unwrap();
    let archive = write(&other, "exported.tar", &exported);
    let again = open(&other);
    assert_eq!(import(&again, &archive, None).unwrap(), ["r.test/app:1"]);
    assert_eq!(again.find("r.test/app:1").unwrap().unwrap().id, image.id);
}

#[test]
fn an_archive_of_docker_save_is_imported() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let layers = layers();
    let manifest = json!([{"Config": "c.json", "RepoTags": ["app:2"],
        "Layers": ["1/layer.tar", "2/layer.tar", "3/layer.tar"]}]);
    let mut writer = TarWriter::new(Vec::new());
    let mut add = |path: &str, data: &[u8]| writer.append(&mut entry(EntryKind::File, path), data).unwrap();
    add("0/layer.tar", &layers[0]);
    add("2/layer.tar", &layers[1]);
    add("3/layer.tar", &layers[2]);
    add("c.json", &config(&layers));
    add("manifest.json", manifest.to_string().as_bytes());
    let mut link = entry(EntryKind::Symlink, "1/layer.tar");
    link.link = b"../0/layer.tar".to_vec();
    writer.append(&mut link, b"").unwrap();
    let archive = write(&folder, "image.tar", &writer.finish().unwrap());
    assert_eq!(import(&store, &archive, None).unwrap(), ["docker.io/library/app:2"]);
    let image = store.find("app:2").unwrap().unwrap();
    assert_eq!(image.parsed.config.user(), (None, "app".to_owned()));
    assert_eq!(image.tags, ["docker.io/library/app:2"]);
}

#[test]
fn a_layer_that_lies_about_its_contents_is_refused() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    // the configuration names another layer
    let other = [layer(&[("other", "")])];
    let manifest = json!([{"Config": "c.json", "RepoTags": ["app:2"], "Layers": ["l"]}]);
    let mut writer = TarWriter::new(Vec::new());
    let mut add = |path: &str, data: &[u8]| writer.append(&mut entry(EntryKind::File, path), data).unwrap();
    add("l", &layers()[0]);
    add("c.json", &config(&other));
    add("manifest.json", manifest.to_string().as_bytes());
    let archive = write(&folder, "lying.tar", &writer.finish().unwrap());
    let refused = import(&store, &archive, None).unwrap_err();
    assert!(refused.to_string().contains("has the digest"), "{refused}");
    let chain = ImageConfig::parse(&config(&other)).unwrap().chain_ids();
    assert!(!store.layers.is_unpacked(&chain[0]));
    // a changed byte in a blob, in a store that does not have the right one
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let mut damaged = layout(&layers(), "r.test/app:1");
    let at = damaged.windows(3).position(|it| it == b"one").unwrap();
    damaged[at] = b'O';
    let archive = write(&folder, "damaged.tar", &damaged);
    assert!(import(&store, &archive, None).unwrap_err().to_string().contains("has the digest"));
}

#[test]
fn a_bomb_ends_at_the_limit() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    // many files that are small each, and large together
    let zeros = vec![0; 1 << 20];
    let mut writer = TarWriter::new(Vec::new());
    for number in 0..17 {
        writer.append(&mut entry(EntryKind::File, &format!("f{number}")), &zeros).unwrap();
    }
    let bomb = writer.finish().unwrap();
    let config = config(std::slice::from_ref(&bomb));
    let manifest = json!([{"Config": "c.json", "RepoTags": ["app:2"], "Layers": ["l"]}]);
    let mut writer = TarWriter::new(Vec::new());
    let mut add = |path: &str, data: &[u8]| writer.append(&mut entry(EntryKind::File, path), data).unwrap();
    let packed = gzip(&bomb);
    assert!(packed.len() < bomb.len() / 100);
    add("l", &packed);
    add("c.json", &config);
    add("manifest.json", manifest.to_string().as_bytes());
    let archive = write(&folder, "bomb.tar", &writer.finish().unwrap());
    let refused = import(&store, &archive, None).unwrap_err();
    assert!(refused.to_string().contains("larger than the limit"), "{refused}");
    assert_eq!(store.usage().unwrap(), Usage::default(), "nothing stays");
}

#[test]
fn an_archive_that_unpacks_without_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let limit = store.layers.limits.bytes;
    // one blob by its digest, one by its name only, and nothing but folders
    let blob = |path: &str, size: u64| {
        let mut writer = TarWriter::new(Vec::new());
        writer.append_from(&tar::Entry { size, ..entry(EntryKind::File, path) }, std::io::repeat(0)).unwrap();
        writer.finish().unwrap()
    };
    let named = format!("blobs/sha256/{}", Digest::of(b"").hex());
    let mut writer = TarWriter::new(Vec::new());
    for _ in 0..=limit / 512 {
        writer.append(&mut entry(EntryKind::Directory, "d"), &[]).unwrap();
    }
    let folders = writer.finish().unwrap();
    let archives = [
        (blob(&named, limit + 1), "is larger than"),
        (blob("layer.tar", limit + 1), "is larger than"),
        // with its header the archive is larger than its blob
        (blob(&named, limit), "unpacks to more than"),
        (blob("layer.tar", limit), "unpacks to more than"),
        (folders, "unpacks to more than"),
    ];
    for (archive, why) in archives {
        let packed = gzip(&archive);
        assert!(packed.len() as u64 * 50 < limit);
        let path = write(&folder, "endless.tar", &packed);
        let refused = import(&store, &path, None).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let parts = fs::read_dir(store.root().join("content/ingest")).unwrap().count();
    assert_eq!(parts, 0, "no part stays");
}

#[test]
fn garbage_is_removed_and_used_layers_stay() {
    if !is_root() {
        return;
    }
    let none = || Ok(BTreeSet::new());
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let archive = write(&folder, "image.tar", &layout(&layers(), "r.test/app:1"));
    import(&store, &archive, None).unwrap();
    assert_eq!(store.collect_garbage(none).unwrap(), Some(0));
    let image = store.find("r.test/app:1").unwrap().unwrap();
    let chain = image.parsed.config.chain_ids();
    assert!(store.usage().unwrap().inodes > 5);
    assert!(!store.remove("r.test/other:1").unwrap());
    assert!(store.remove("r.test/app:1").unwrap());
    assert_eq!(store.find("r.test/app:1").unwrap(), None);
    // while another process pulls, nothing is removed
    let in_use = store.begin_use().unwrap();
    assert_eq!(store.collect_garbage(none).unwrap(), None);
    drop(in_use);
    let used = || {
        // no container can be made between this look and the removal
        let path = store.root().join("use.lock");
        assert!(records::lock(&path, FlockOperation::NonBlockingLockShared).is_err());
        Ok(chain[..2].iter().cloned().collect())
    };
    assert!(store.collect_garbage(used).unwrap().unwrap() > 0);
    assert!(store.collect_garbage(|| Err(std::io::Error::other("unreadable"))).is_err());
    assert!(store.layers.is_unpacked(&chain[1]) && !store.layers.is_unpacked(&chain[2]));
    assert_eq!(store.content.size(&image.id), None);
    store.wait_and_collect_garbage(none).unwrap();
    assert_eq!(store.usage().unwrap(), Usage::default());
}
