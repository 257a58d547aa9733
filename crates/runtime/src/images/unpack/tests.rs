//! Tests of unpacking, with hostile archives by name. They make device nodes and owners, so they need root.

use super::super::tar_writer::{TarWriter, entry};
use super::*;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

const LIMITS: UnpackLimits = UnpackLimits { bytes: 1 << 20, entries: 100 };

/// A root to unpack into, beside a file that no archive may reach.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: unpacking needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "secret").unwrap();
        Some(Case { folder })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn unpack(&self, entries: &[(Entry, &[u8])]) -> Result<(), ImageError> {
        self.unpack_over(entries, &[])
    }

    fn unpack_over(&self, entries: &[(Entry, &[u8])], lower: &[PathBuf]) -> Result<(), ImageError> {
        let mut writer = TarWriter::new(Vec::new());
        for (entry, data) in entries {
            writer.append(&mut entry.clone(), data).unwrap();
        }
        unpack(&writer.finish().unwrap()[..], &self.root(), lower, LIMITS).map(drop)
    }

    /// The archive was refused, or had no effect outside of the root.
    fn assert_contained(&self) {
        let names: Vec<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let outside: Vec<_> = fs::read_dir(self.folder.path().join("outside")).unwrap().collect();
        assert_eq!(outside.len(), 1);
        assert_eq!(fs::read_to_string(self.folder.path().join("outside/secret")).unwrap(), "secret");
        assert_eq!(fs::metadata(self.folder.path().join("outside/secret")).unwrap().nlink(), 1);
    }
}

fn file(path: &str) -> Entry {
    entry(EntryKind::File, path)
}

fn link(kind: EntryKind, path: &str, target: &str) -> Entry {
    Entry { link: target.as_bytes().to_vec(), ..entry(kind, path) }
}

#[test]
fn parent_components_cannot_leave_the_root() {
    let Some(case) = Case::new() else { return };
    for path in ["../outside/x", "a/../../outside/x", "..", "./../x"] {
        let refused = case.unpack(&[(file(path), b"x")]).unwrap_err();
        assert!(refused.to_string().contains("leads out of its root"), "{path}: {refused}");
    }
    case.assert_contained();
    case.unpack(&[(file("a/../b"), b"x")]).unwrap();
    assert!(case.root().join("b").is_file());
}

#[test]
fn absolute_paths_are_inside_the_root() {
    let Some(case) = Case::new() else { return };
    case.unpack(&[(file("/etc/passwd"), b"x"), (file("//double"), b"y")]).unwrap();
    assert_eq!(fs::read(case.root().join("etc/passwd")).unwrap(), b"x");
    assert!(case.root().join("double").is_file());
}

#[test]
fn a_write_through_a_symlink_stays_in_the_root() {
    let Some(case) = Case::new() else { return };
    let outside = case.folder.path().join("outside");
    for target in [outside.to_str().unwrap(), "../outside", "../../../../../.."] {
        let _ = case.unpack(&[
            (link(EntryKind::Symlink, "out", target), b""),
            (file("out/secret"), b"overwritten"),
            (file("out/new"), b"new"),
        ]);
        case.assert_contained();
    }
}

#[test]
fn a_file_replaces_a_symlink_instead_of_following() {
    let Some(case) = Case::new() else { return };
    let secret = case.folder.path().join("outside/secret");
    let entries = [
        (link(EntryKind::Symlink, "file", secret.to_str().unwrap()), &b""[..]),
        (Entry { mode: 0o777, uid: 1000, ..file("file") }, b"overwritten"),
    ];
    case.unpack(&entries).unwrap();
    case.assert_contained();
    assert!(fs::symlink_metadata(case.root().join("file")).unwrap().is_file());
    assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
}

#[test]
fn a_chain_of_symlinks_stays_in_the_root() {
    let Some(case) = Case::new() else { return };
    let _ = case.unpack(&[
        (link(EntryKind::Symlink, "a", "."), b""),
        (link(EntryKind::Symlink, "a/b", ".."), b""),
        (link(EntryKind::Symlink, "a/b/c", "../../outside"), b""),
        (file("a/b/c/secret"), b"overwritten"),
        (link(EntryKind::Symlink, "loop", "loop"), b""),
        (file("loop/x"), b"x"),
    ]);
    case.assert_contained();
}

#[test]
fn a_hard_link_cannot_name_a_file_outside() {
    let Some(case) = Case::new() else { return };
    let secret = case.folder.path().join("outside/secret");
    for target in ["../outside/secret", secret.to_str().unwrap(), "", "/", "missing"] {
        let refused = case.unpack(&[(link(EntryKind::HardLink, "link", target), b"")]);
        assert!(refused.is_err(), "{target}");
        case.assert_contained();
    }
    let through = [
        (link(EntryKind::Symlink, "out", "../outside"), &b""[..]),
        (link(EntryKind::HardLink, "link", "out/secret"), b""),
    ];
    assert!(case.unpack(&through).is_err());
    case.assert_contained();
}

#[test]
fn a_hard_link_to_a_symlink_is_not_followed() {
    let Some(case) = Case::new() else { return };
    let secret = case.folder.path().join("outside/secret");
    let entries = [
        (link(EntryKind::Symlink, "s", secret.to_str().unwrap()), &b""[..]),
        (link(EntryKind::HardLink, "h", "s"), b""),
    ];
    case.unpack(&entries).unwrap();
    assert!(fs::symlink_metadata(case.root().join("h")).unwrap().is_symlink());
    case.assert_contained();
}

#[test]
fn whiteouts_cannot_delete_outside() {
    let Some(case) = Case::new() else { return };
    for path in [".wh.", ".wh..", ".wh...", "a/.wh..."] {
        assert!(case.unpack(&[(file(path), b"")]).is_err(), "{path}");
    }
    case.unpack(&[
        (link(EntryKind::Symlink, "out", "../outside"), b""),
        (entry(EntryKind::Directory, "outside"), b""),
        (file("out/.wh.secret"), b""),
    ])
    .unwrap();
    case.assert_contained();
}

#[test]
fn device_nodes_have_their_numbers_and_no_others() {
    let Some(case) = Case::new() else { return };
    let null = Entry { device: (1, 3), mode: 0o666, ..entry(EntryKind::CharDevice, "dev/null") };
    case.unpack(&[(null, b""), (entry(EntryKind::Fifo, "fifo"), b"")]).unwrap();
    let found = fs::symlink_metadata(case.root().join("dev/null")).unwrap();
    assert!(found.file_type().is_char_device());
    assert_eq!((found.rdev(), found.mode() & 0o7777), (makedev(1, 3), 0o666));
    assert!(fs::symlink_metadata(case.root().join("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn huge_sizes_are_refused_before_they_are_written() {
    let Some(case) = Case::new() else { return };
    let mut writer = TarWriter::new(Vec::new());
    writer.append_raw(b'0', "huge", 1 << 33).unwrap();
    let archive = writer.finish().unwrap();
    let refused = unpack(&archive[..], &case.root(), &[], LIMITS).map(drop).unwrap_err();
    assert!(refused.to_string().contains("larger than the limit"), "{refused}");
    assert!(!case.root().join("huge").exists());
}

#[test]
fn too_many_entries_are_refused() {
    let Some(case) = Case::new() else { return };
    let entries: Vec<_> = (0..101).map(|it| (file(&format!("f{it}")), &b""[..])).collect();
    let refused = case.unpack(&entries).unwrap_err();
    assert!(refused.to_string().contains("more than 100 entries"), "{refused}");
}

#[test]
fn attributes_of_overlayfs_are_ignored() {
    let Some(case) = Case::new() else { return };
    let xattrs = vec![
        (b"trusted.overlay.redirect".to_vec(), b"/etc".to_vec()),
        (b"trusted.x".to_vec(), b"kept".to_vec()),
    ];
    case.unpack(&[(Entry { xattrs, ..entry(EntryKind::Directory, "d") }, b"")]).unwrap();
    let found = read_xattrs(&case.root().join("d")).unwrap();
    assert_eq!(found, [(b"trusted.x".to_vec(), b"kept".to_vec())]);
}

#[test]
fn owners_modes_times_and_capabilities_are_set() {
    let Some(case) = Case::new() else { return };
    // a valid capability: version 2, permitted NET_BIND_SERVICE
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let program = Entry {
        mode: 0o4755,
        uid: 1234,
        gid: 99,
        modified: (1_600_000_000, 7),
        xattrs: vec![(b"security.capability".to_vec(), capability.clone())],
        ..file("bin/program")
    };
    let directory = Entry { mode: 0o1777, modified: (5, 0), ..entry(EntryKind::Directory, "bin") };
    case.unpack(&[(directory, b""), (program, b"x")]).unwrap();
    let found = fs::metadata(case.root().join("bin/program")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o4755, 1234, 99));
    assert_eq!((found.mtime(), found.mtime_nsec()), (1_600_000_000, 7));
    let xattrs = read_xattrs(&case.root().join("bin/program")).unwrap();
    assert_eq!(xattrs, [(b"security.capability".to_vec(), capability)]);
    let directory = fs::metadata(case.root().join("bin")).unwrap();
    assert_eq!((directory.mode() & 0o7777, directory.mtime()), (0o1777, 5));
    let wrong = Entry { uid: 1 << 40, ..file("x") };
    assert!(case.unpack(&[(wrong, b"")]).unwrap_err().to_string().contains("invalid owner"));
}

#[test]
fn deletions_have_the_form_of_overlayfs() {
    let Some(case) = Case::new() else { return };
    case.unpack(&[
        (file("etc/.wh.gone"), b""),
        (file("opaque/.wh..wh..opq"), b""),
        (file("opaque/kept"), b"x"),
        (file(".wh..wh.plnk"), b""),
        // deleted below, and made anew
        (file(".wh.again"), b""),
        (entry(EntryKind::Directory, "again"), b""),
        (file("mine/file"), b"x"),
        (file(".wh.mine"), b""),
    ])
    .unwrap();
    let gone = fs::symlink_metadata(case.root().join("etc/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(case.root().join("opaque/kept").is_file() && case.root().join("mine/file").is_file());
    assert!(!case.root().join(".wh..wh.plnk").exists());
    for opaque in ["opaque", "again", "mine"] {
        let xattrs = read_xattrs(&case.root().join(opaque)).unwrap();
        assert_eq!(xattrs, [(OPAQUE.to_vec(), b"y".to_vec())], "{opaque}");
    }
}

#[test]
fn implicit_directories_have_the_attributes_of_the_layer_below() {
    let Some(case) = Case::new() else { return };
    let lower = tempfile::tempdir().unwrap();
    fs::create_dir_all(lower.path().join("tmp/deep")).unwrap();
    fs::set_permissions(lower.path().join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::chown(lower.path().join("tmp/deep"), Some(7), Some(8)).unwrap();
    case.unpack_over(&[(file("tmp/deep/file"), b"x")], &[lower.path().to_owned()]).unwrap();
    let found = |path: &str| fs::metadata(case.root().join(path)).unwrap();
    assert_eq!(found("tmp").mode() & 0o7777, 0o1777);
    assert_eq!((found("tmp/deep").uid(), found("tmp/deep").gid()), (7, 8));
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    let Some(case) = Case::new() else { return };
    case.unpack(&[
        (file("a/b/c"), b"1"),
        (file("a"), b"file"),
        (file("d"), b"1"),
        (entry(EntryKind::Directory, "d"), b""),
        (file("d/e"), b"2"),
    ])
    .unwrap();
    assert_eq!(fs::read(case.root().join("a")).unwrap(), b"file");
    assert_eq!(fs::read(case.root().join("d/e")).unwrap(), b"2");
    assert!(case.unpack(&[(file("/"), b"x")]).is_err());
}

#[test]
fn a_link_to_a_directory_of_the_layer_below_stays() {
    let Some(case) = Case::new() else { return };
    let lower = tempfile::tempdir().unwrap();
    fs::create_dir(lower.path().join("run")).unwrap();
    fs::set_permissions(lower.path().join("run"), fs::Permissions::from_mode(0o711)).unwrap();
    let entries = [(link(EntryKind::Symlink, "var/run", "/run"), &b""[..]), (file("var/run/pid"), b"1")];
    case.unpack_over(&entries, &[lower.path().to_owned()]).unwrap();
    assert!(fs::symlink_metadata(case.root().join("var/run")).unwrap().is_symlink());
    assert_eq!(fs::read(case.root().join("run/pid")).unwrap(), b"1");
    assert_eq!(fs::metadata(case.root().join("run")).unwrap().mode() & 0o7777, 0o711);
}
